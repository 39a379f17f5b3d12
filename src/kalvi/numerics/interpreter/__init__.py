"""Programs of JAX run by NumPy: the same formulas without compilation.

With few rows, XLA takes seconds to compile what NumPy computes in milliseconds. A function of JAX arrays is
traced as for a compilation. The result, a jaxpr, is a list of about sixty kinds of elementary operations,
including loops and branches. Here each operation becomes a line of Python, with numbers of Python, arrays
of NumPy and ordinary loops, and the text is run as it is.

    writer        a jaxpr as lines of Python; each value is computed once, outside of loops if it can be
    elementwise   operations on each entry, as formulas for numbers and for arrays
    shapes        operations that move entries: reshape, slice, join and pad
    reductions    sums, extremes, cumulative sums and sorting along axes
    products      products of vectors and matrices
    control       loops, branches and calls
    indexing      gather and scatter as NumPy's indexing
    algebra       factorisations and solves; `inverses` of large triangular matrices
    random        random keys and bits
    routines      functions that lines call, for arrays; `scalars` for Python numbers
    releases      lines without unused values, and lines that release large arrays
    program       tracing, and the programs that are kept

No backend of JAX is started. Results agree with the compiled program up to rounding. A program with an
operation that is not supported raises `NotInterpretable`, which names the operation.
"""

from kalvi.numerics.interpreter.program import interpret, interpret_leaves
from kalvi.numerics.interpreter.writer import NotInterpretable

__all__ = ["NotInterpretable", "interpret", "interpret_leaves"]
