"""Factorisations of matrices and solves."""

from typing import Any

import numpy as np
import scipy.linalg

from kalvi.numerics.interpreter.elementwise import write_each, write_quotient
from kalvi.numerics.interpreter.large import (
    LARGE,
    is_large_identity,
    large_root,
    triangular_inverse,
)
from kalvi.numerics.interpreter.products import is_single
from kalvi.numerics.interpreter.writer import Value, Writer, rule

SMALL = 32
"""Larger triangular systems are solved in halves, by products of NumPy: SciPy's BLAS has its own threads,
which contend with NumPy's and are used from about 64 unknowns on."""
DTYPES = (np.float32, np.float64)
SOLVERS: dict[np.dtype, Any] = {
    np.dtype(dtype): scipy.linalg.get_blas_funcs("trsm", dtype=dtype) for dtype in DTYPES
}
VECTOR_SOLVERS: dict[np.dtype, Any] = {
    np.dtype(dtype): scipy.linalg.get_blas_funcs("trsv", dtype=dtype) for dtype in DTYPES
}
"""The solution for several columns, or for one, for which BLAS uses no threads."""
SMALLEST = 8
"""Batches of systems with up to so many unknowns are solved by one call of NumPy, as general systems."""

FACTORISERS: dict[np.dtype, Any] = {
    np.dtype(dtype): scipy.linalg.get_lapack_funcs("getrf", dtype=dtype) for dtype in DTYPES
}


def _whole(writer: Writer, operands: list[Value]) -> list[Value]:
    return [writer.whole(value) for value in operands]


@rule("cholesky")
def _write_cholesky(writer: Writer, equation: Any, operands: list[Value]) -> Any:
    if is_single(operands[0]):
        aval = equation.outvars[0].aval
        return write_each(writer, aval, operands, "(msqrt({0}) if {0} > 0.0 else nan)")
    (a,) = _whole(writer, operands)
    return [writer.set(f"{writer.helper(cholesky)}({a.text})", a.shape, a.dtype, [a])]


def cholesky(a: np.ndarray) -> np.ndarray:
    """The lower root; NaN for a matrix that is not positive definite."""
    if a.ndim == 2 and len(a) > LARGE:
        return large_root(a)
    try:
        return np.linalg.cholesky(a)
    except np.linalg.LinAlgError:
        if a.ndim == 2:
            return np.full(a.shape, np.nan, a.dtype)
        return np.stack([cholesky(one) for one in a])


@rule("triangular_solve", takes_entries=True)
def _write_triangular_solve(writer: Writer, equation: Any, operands: list[Value]) -> Any:
    (a, b), given = operands, equation.params
    if is_single(a):
        return [b] if given["unit_diagonal"] else write_quotient(writer, equation, [b, a])
    a, b = _whole(writer, operands)
    flags = ", ".join(
        str(bool(given[name])) for name in ("left_side", "lower", "transpose_a", "unit_diagonal")
    )
    text = f"{writer.helper(triangular_solve)}({a.text}, {b.text}, {flags})"
    return [writer.set(text, b.shape, b.dtype, [a, b])]


def triangular_solve(
    a: np.ndarray, b: np.ndarray, left: bool, lower: bool, transposed: bool, unit: bool
) -> np.ndarray:
    """The solution x of a x = b or x a = b, for a triangular matrix or its transpose; one triangle is
    read."""
    if a.size == 0 or b.size == 0:
        return b.copy()
    if a.ndim > 2:
        return _solve_stack(a, b, left, lower, transposed, unit)
    if not left:
        return triangular_solve(a, b.T, True, lower, not transposed, unit).T
    if b.shape[1] == 1:
        solve = VECTOR_SOLVERS[b.dtype]
        found = solve(a.T, b[:, 0], lower=not lower, trans=not transposed, diag=unit)
        return found[:, None]
    if is_large_identity(b):
        return triangular_inverse(a.T if transposed else a, lower != transposed, unit)
    if len(a) <= SMALL:
        # BLAS stores columns first, so it reads the transposes without a copy: xᵀ aᵀ = bᵀ
        solve = SOLVERS[b.dtype]
        return solve(1.0, a.T, b.T, side=1, lower=not lower, trans_a=transposed, diag=unit).T
    h = len(a) // 2
    first, last, between = a[:h, :h], a[h:, h:], a[h:, :h] if lower else a[:h, h:]
    between = between.T if transposed else between
    if lower != transposed:  # the first half does not depend on the last
        x = triangular_solve(first, b[:h], True, lower, transposed, unit)
        y = triangular_solve(last, b[h:] - between @ x, True, lower, transposed, unit)
    else:
        y = triangular_solve(last, b[h:], True, lower, transposed, unit)
        x = triangular_solve(first, b[:h] - between @ y, True, lower, transposed, unit)
    return np.concatenate([x, y])


def _solve_stack(a: np.ndarray, b: np.ndarray, *how: bool) -> np.ndarray:
    """`triangular_solve` of many systems."""
    if a.shape[-1] <= SMALLEST:
        try:
            return _solve_small(a, b, *how)
        except np.linalg.LinAlgError:  # one of them is singular
            pass
    flat = [
        triangular_solve(one, other, *how)
        for one, other in zip(
            a.reshape(-1, *a.shape[-2:]), b.reshape(-1, *b.shape[-2:]), strict=True
        )
    ]
    return np.stack(flat).reshape(b.shape)


def _solve_small(
    a: np.ndarray, b: np.ndarray, left: bool, lower: bool, transposed: bool, unit: bool
) -> np.ndarray:
    a = np.tril(a) if lower else np.triu(a)
    if unit:
        a[..., range(a.shape[-1]), range(a.shape[-1])] = 1
    a = a.swapaxes(-1, -2) if transposed else a
    if left:
        return np.linalg.solve(a, b)
    return np.linalg.solve(a.swapaxes(-1, -2), b.swapaxes(-1, -2)).swapaxes(-1, -2)


@rule("lu")
def _write_lu(writer: Writer, equation: Any, operands: list[Value]) -> Any:
    (a,) = _whole(writer, operands)
    return writer.set_several(f"{writer.helper(lu)}({a.text})", equation.outvars, [a])


def lu(a: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The triangular factors in one matrix, the pivots, and their permutation."""
    if a.ndim > 2:
        found = [lu(one) for one in a]
        return tuple(np.stack(parts) for parts in zip(*found, strict=True))  # type: ignore[return-value]
    factors, pivots, _ = FACTORISERS[a.dtype](a)
    order = list(range(len(a)))
    for i, pivot in enumerate(pivots.tolist()):
        order[i], order[pivot] = order[pivot], order[i]
    return np.ascontiguousarray(factors), pivots.astype(np.int32), np.array(order, np.int32)


@rule("eigh")
def _write_eigh(writer: Writer, equation: Any, operands: list[Value]) -> Any:
    (a,) = _whole(writer, operands)
    return writer.set_several(f"{writer.helper(eigh)}({a.text})", equation.outvars, [a])


def eigh(a: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Eigenvectors and eigenvalues; NaN if they cannot be computed."""
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
    return writer.set_several(text, equation.outvars, [a])


def svd(a: np.ndarray, full: bool, vectors: bool) -> tuple[np.ndarray, ...]:
    """Singular values and, if `vectors`, the left and right vectors.

    NaN if they cannot be computed.
    """
    try:
        if not vectors:
            return (np.linalg.svd(a, compute_uv=False),)
        u, s, vt = np.linalg.svd(a, full_matrices=full)
    except np.linalg.LinAlgError:
        nothing = svd(np.zeros_like(a), full, vectors)
        return tuple(np.full_like(part, np.nan) for part in nothing)
    return s, u, vt


@rule("qr")
def _write_qr(writer: Writer, equation: Any, operands: list[Value]) -> Any:
    (a,) = _whole(writer, operands)
    mode = "complete" if equation.params["full_matrices"] else "reduced"
    return writer.set_several(f"np.linalg.qr({a.text}, '{mode}')", equation.outvars, [a])
