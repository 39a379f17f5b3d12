"""Programs of JAX run by NumPy: the same formulas, with nothing to compile.

XLA takes seconds to compile what NumPy computes in milliseconds, if there are few rows. A function of JAX
arrays is traced as for a compilation; what comes out, a jaxpr, is a list of some sixty kinds of elementary
operations, with loops and branches as values of their own. Here each operation is written as a line of
Python: numbers are Python's, arrays are NumPy's, loops are loops. The text is run as it is.

    writer        a jaxpr as lines of Python; each value once, outside of loops where it does not change
    elementwise   operations on each entry, as formulas for numbers and for arrays
    arrays        operations that move entries, add them up or multiply matrices
    control       loops, branches and calls
    indexing      what gather and scatter mean
    algebra       factorisations, solves and random bits
    program       tracing, and the programs that are kept

No backend of JAX is started. Results agree with the compiled program to rounding. A program with an
operation that has no line here is refused with a `NotInterpretable`, which names it.
"""

from kalvi.numerics.interpreter.program import interpret, interpret_leaves
from kalvi.numerics.interpreter.writer import NotInterpretable

__all__ = ["NotInterpretable", "interpret", "interpret_leaves"]
