"""Factorisations, solves and random bits of the programs that NumPy runs."""

from typing import Any

import numpy as np
import scipy.linalg

from kalvi.numerics.interpreter.writer import Value, Writer, rule

SMALL = 128
"""Triangular systems of more unknowns are solved in halves."""


def _several(writer: Writer, equation: Any, text: str, operands: list[Value]) -> list[Value]:
    """The results of a function that returns a tuple of arrays."""
    both = writer.set(text, (), np.dtype(float), operands, (0,))
    return [
        writer.set(f"{both.text}[{i}]", tuple(v.aval.shape), v.aval.dtype, [both])
        for i, v in enumerate(equation.outvars)
    ]


def _whole(writer: Writer, operands: list[Value]) -> list[Value]:
    return [writer.whole(value) for value in operands]


@rule("cholesky")
def _write_cholesky(writer: Writer, equation: Any, operands: list[Value]) -> Any:
    (a,) = _whole(writer, operands)
    return [writer.set(f"{writer.helper(cholesky)}({a.text})", a.shape, a.dtype, [a])]


def cholesky(a: np.ndarray) -> np.ndarray:
    """The lower root; of a matrix that is not positive definite, no numbers."""
    try:
        return np.linalg.cholesky(a)
    except np.linalg.LinAlgError:
        if a.ndim == 2:
            return np.full(a.shape, np.nan, a.dtype)
        return np.stack([cholesky(one) for one in a])


@rule("triangular_solve")
def _write_triangular_solve(writer: Writer, equation: Any, operands: list[Value]) -> Any:
    a, b = _whole(writer, operands)
    given = equation.params
    flags = ", ".join(
        str(bool(given[name])) for name in ("left_side", "lower", "transpose_a", "unit_diagonal")
    )
    text = f"{writer.helper(triangular_solve)}({a.text}, {b.text}, {flags})"
    return [writer.set(text, b.shape, b.dtype, [a, b])]


def triangular_solve(
    a: np.ndarray, b: np.ndarray, left: bool, lower: bool, transposed: bool, unit: bool
) -> np.ndarray:
    """The x with a x = b, or x a = b; of a matrix or its transpose, of which one triangle is read."""
    if a.ndim > 2:
        flat = [
            triangular_solve(one, other, left, lower, transposed, unit)
            for one, other in zip(
                a.reshape(-1, *a.shape[-2:]), b.reshape(-1, *b.shape[-2:]), strict=True
            )
        ]
        return np.stack(flat).reshape(b.shape) if flat else b.copy()
    if not left:
        return triangular_solve(a, b.T, True, lower, not transposed, unit).T
    n = len(a)
    if n == 0 or b.size == 0:
        return b.copy()
    if n <= SMALL:
        return _substitute(a, b, lower != transposed, transposed, unit)
    h = n // 2
    first, last, between = a[:h, :h], a[h:, h:], a[h:, :h] if lower else a[:h, h:]
    between = between.T if transposed else between
    if lower != transposed:  # the first half needs nothing of the last
        x = triangular_solve(first, b[:h], True, lower, transposed, unit)
        y = triangular_solve(last, b[h:] - between @ x, True, lower, transposed, unit)
    else:
        y = triangular_solve(last, b[h:], True, lower, transposed, unit)
        x = triangular_solve(first, b[:h] - between @ y, True, lower, transposed, unit)
    return np.concatenate([x, y])


def _substitute(
    a: np.ndarray, b: np.ndarray, forward: bool, transposed: bool, unit: bool
) -> np.ndarray:
    """The x with a x = b, the unknowns one after the other, from the first on or from the last.

    Gaussian elimination finds nothing to eliminate in an upper triangular matrix, so that it is
    substitution; a lower one is upper if its rows and columns are reversed. (LAPACK's own function for
    triangular systems starts threads for the smallest of them.)
    """
    a = a.T if transposed else a
    if forward:
        a, b = a[::-1, ::-1], b[::-1]
    a = np.triu(a)
    if unit:
        np.fill_diagonal(a, 1)
    try:
        x = np.linalg.solve(a, b)
    except np.linalg.LinAlgError:
        return np.full(b.shape, np.nan, b.dtype)
    return x[::-1] if forward else x


@rule("lu")
def _write_lu(writer: Writer, equation: Any, operands: list[Value]) -> Any:
    (a,) = _whole(writer, operands)
    return _several(writer, equation, f"{writer.helper(lu)}({a.text})", [a])


def lu(a: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The triangular factors in one matrix, the pivots, and the permutation that they make."""
    if a.ndim > 2:
        found = [lu(one) for one in a]
        return tuple(np.stack(parts) for parts in zip(*found, strict=True))  # type: ignore[return-value]
    (getrf,) = scipy.linalg.get_lapack_funcs(("getrf",), (a,))
    factors, pivots, _ = getrf(a)
    order = np.arange(len(a), dtype=np.int32)
    for i, pivot in enumerate(pivots):
        order[[i, pivot]] = order[[pivot, i]]
    return np.ascontiguousarray(factors), pivots.astype(np.int32), order


@rule("eigh")
def _write_eigh(writer: Writer, equation: Any, operands: list[Value]) -> Any:
    (a,) = _whole(writer, operands)
    return _several(writer, equation, f"{writer.helper(eigh)}({a.text})", [a])


def eigh(a: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Eigenvectors and eigenvalues; no numbers where there are none."""
    try:
        values, vectors = np.linalg.eigh(a)
    except np.linalg.LinAlgError:
        return np.full(a.shape, np.nan, a.dtype), np.full(a.shape[:-1], np.nan, a.dtype)
    return vectors, values


@rule("svd")
def _write_svd(writer: Writer, equation: Any, operands: list[Value]) -> Any:
    (a,) = _whole(writer, operands)
    given = equation.params
    text = f"{writer.helper(svd)}({a.text}, {bool(given['full_matrices'])}, {bool(given['compute_uv'])})"
    return _several(writer, equation, text, [a])


def svd(a: np.ndarray, full: bool, vectors: bool) -> tuple[np.ndarray, ...]:
    """Singular values, and the vectors on the left and on the right if asked."""
    if not vectors:
        return (np.linalg.svd(a, compute_uv=False),)
    u, s, vt = np.linalg.svd(a, full_matrices=full)
    return s, u, vt


@rule("qr")
def _write_qr(writer: Writer, equation: Any, operands: list[Value]) -> Any:
    (a,) = _whole(writer, operands)
    mode = "complete" if equation.params["full_matrices"] else "reduced"
    return _several(writer, equation, f"np.linalg.qr({a.text}, '{mode}')", [a])


@rule("geqrf")
def _write_geqrf(writer: Writer, equation: Any, operands: list[Value]) -> Any:
    (a,) = _whole(writer, operands)
    return _several(writer, equation, f"{writer.helper(householder)}({a.text})", [a])


def householder(a: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The R of a QR above the reflectors, and their factors."""
    raw, tau = np.linalg.qr(a, "raw")
    return np.swapaxes(raw, -1, -2), tau


@rule("threefry2x32")
def _write_threefry(writer: Writer, equation: Any, operands: list[Value]) -> Any:
    texts = ", ".join(writer.as_array(value) for value in operands)
    parts = _whole(writer, operands)
    found = _several(writer, equation, f"{writer.helper(threefry)}({texts})", parts)
    if equation.outvars[0].aval.shape == ():
        return [writer.set(f"{value.text}.item()", (), value.dtype, [value]) for value in found]
    return found


ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))


def threefry(key0: Any, key1: Any, x0: Any, x1: Any) -> tuple[np.ndarray, np.ndarray]:
    """The Threefry hash of pairs of numbers (Salmon et al. 2011), twenty rounds."""
    keys = (key0, key1, key0 ^ key1 ^ np.uint32(0x1BD11BDA))
    x0, x1 = x0 + keys[0], x1 + keys[1]
    for i in range(5):
        for by in ROTATIONS[i % 2]:
            x0 = x0 + x1
            x1 = ((x1 << np.uint32(by)) | (x1 >> np.uint32(32 - by))) ^ x0
        x0 = x0 + keys[(i + 1) % 3]
        x1 = x1 + keys[(i + 2) % 3] + np.uint32(i + 1)
    return x0, x1
