"""Solves with block-tridiagonal matrices that couple neighbours by springs.

The n k × n k matrix Λ acts on sequences u₁ … u_n of k-vectors,

    uᵀΛu = Σᵣ uᵣᵀ Eᵣ uᵣ + Σᵣ (uᵣ₊₁ − uᵣ)ᵀ oᵣ (uᵣ₊₁ − uᵣ),

with diagonal *links* oᵣ ≥ 0 between neighbours and positive definite *loads* Eᵣ. Kept apart, the two never
cancel, however stiff the links: everything below adds positive matrices.

`solve_by_scan` eliminates one block after the other. With Dᵣ = oᵣ + Ẽᵣ and Gᵣ = Dᵣ⁻¹ oᵣ

    Ẽᵣ₊₁ = Eᵣ₊₁ + oᵣ Dᵣ⁻¹ Ẽᵣ,     b̃ᵣ₊₁ = bᵣ₊₁ + oᵣ Dᵣ⁻¹ b̃ᵣ,                    Ẽ₁ = E₁,  o_n = 0,
    xᵣ = Dᵣ⁻¹ b̃ᵣ + Gᵣ xᵣ₊₁,       Σᵣᵣ = Dᵣ⁻¹ + Gᵣ Σᵣ₊₁ Gᵣᵀ,      Σᵣ,ᵣ₊₁ = Gᵣ Σᵣ₊₁,
    cov(uᵣ₊₁ − uᵣ) = Dᵣ⁻¹ + Fᵣ Σᵣ₊₁ Fᵣᵀ,                          Fᵣ = Dᵣ⁻¹ Ẽᵣ = I − Gᵣ.

`solve_by_reduction` eliminates every other block at once (block cyclic reduction), log₂ n times, which an
accelerator does side by side. Springs between the blocks that remain become full matrices, Aᵣ = −Λᵣ,ᵣ₊₁,
and with Dᵣ = Aᵣ₋₁ᵀ + Aᵣ + Eᵣ the loads again only add up:

    Eⱼ ← Eⱼ + Aⱼ Dⱼ₊₁⁻¹ Eⱼ₊₁ + Aⱼ₋₁ᵀ Dⱼ₋₁⁻¹ Eⱼ₋₁,     Aⱼ ← Aⱼ Dⱼ₊₁⁻¹ Aⱼ₊₁,     bⱼ likewise.

On the way back uᵢ = X uᵢ₋₁ + Y uᵢ₊₁ + noise of covariance Dᵢ⁻¹, with X + Y + F = I, so that steps follow
from the span s = uᵢ₊₁ − uᵢ₋₁ between the blocks that had remained, not from differences of covariances:

    uᵢ − uᵢ₋₁ = Y s − F uᵢ₋₁ + noise,     uᵢ₊₁ − uᵢ = X s + F uᵢ₊₁ − noise.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import jax.scipy.linalg as jsl
from jaxtyping import Array, Float

from kalvi.numerics.namespaces import Scalar
from kalvi.numerics.platforms import platform

Links = Float[Array, "m k"]  # m = n − 1
Loads = Float[Array, "n k k"]
Sequence = Float[Array, "n k"]


class Inverse(NamedTuple):
    """The parts of Σ = Λ⁻¹ that are near its diagonal."""

    cov: Float[Array, "n k k"]  # Σᵣᵣ
    lag: Float[Array, "m k k"]  # Σᵣ,ᵣ₊₁
    step_cov: Float[Array, "m k k"]  # cov(uᵣ₊₁ − uᵣ)
    logdet: Scalar  # log|Λ|


def matvec(links: Links, loads: Loads, u: Sequence) -> Sequence:
    """Λ u."""
    return spring(links, u) + jnp.einsum("nij,nj->ni", loads, u)


def spring(links: Links, u: Sequence) -> Sequence:
    """The part of Λ u that the links make: zero for a constant sequence."""
    pull = links * jnp.diff(u, axis=0)
    return jnp.pad(pull, ((1, 0), (0, 0))) - jnp.pad(pull, ((0, 1), (0, 0)))


def solve(links: Links, loads: Loads, b: Sequence) -> Sequence:
    """Λ⁻¹ b, by `solve_by_scan` on a CPU and by `solve_by_reduction` elsewhere."""
    return solve_and_invert(links, loads, b)[0]


def invert(links: Links, loads: Loads) -> Inverse:
    """Blocks of Λ⁻¹, by `solve_by_scan` on a CPU and by `solve_by_reduction` elsewhere."""
    return solve_and_invert(links, loads, jnp.zeros(loads.shape[:2], loads.dtype))[1]


def solve_and_invert(links: Links, loads: Loads, b: Sequence) -> tuple[Sequence, Inverse]:
    """Λ⁻¹ b and the blocks of Λ⁻¹, from one elimination."""
    eliminate = solve_by_scan if platform() == "cpu" else solve_by_reduction
    return eliminate(links, loads, b)


class _Elimination(NamedTuple):
    inverse: Array  # Dᵣ⁻¹
    load_share: Array  # Fᵣ
    gain: Array  # Gᵣ
    solved: Array  # Dᵣ⁻¹ b̃ᵣ
    logdet: Array


def solve_by_scan(links: Links, loads: Loads, b: Sequence) -> tuple[Sequence, Inverse]:
    """Λ⁻¹ b and the blocks of Λ⁻¹, block after block."""
    k = loads.shape[1]
    identity = jnp.eye(k, dtype=loads.dtype)

    def eliminate(carried, here):
        link, own_load, own_b = here
        load, pull = carried
        load, pull = own_load + load, own_b + pull
        inverse, logdet = _invert_blocks(load + jnp.diag(link))
        load_share, solved = inverse @ load, inverse @ pull
        passed = link[:, None] * load_share
        done = _Elimination(inverse, load_share, inverse * link[None], solved, logdet)
        return ((passed + passed.T) / 2, link * solved), done

    def back(following, done: _Elimination):
        x, cov = following
        lag = done.gain @ cov
        step = _symmetrise(done.inverse + done.load_share @ cov @ done.load_share.T)
        cov = _symmetrise(done.inverse + lag @ done.gain.T)
        x = done.solved + done.gain @ x
        return (x, cov), (x, cov, lag, step)

    links = jnp.pad(links, ((0, 1), (0, 0)))
    start = jnp.zeros_like(identity), jnp.zeros(k, loads.dtype)
    _, done = jax.lax.scan(eliminate, start, (links, loads, b))
    end = jnp.zeros(k, loads.dtype), jnp.zeros_like(identity)
    _, (x, cov, lag, step) = jax.lax.scan(back, end, done, reverse=True)
    return x, Inverse(cov, lag[:-1], step[:-1], jnp.sum(done.logdet))


def solve_by_reduction(links: Links, loads: Loads, b: Sequence) -> tuple[Sequence, Inverse]:
    """Λ⁻¹ b and the blocks of Λ⁻¹ by block cyclic reduction."""
    springs = jnp.pad(jax.vmap(jnp.diag)(links), ((0, 1), (0, 0), (0, 0)))
    return _reduce(springs, loads, b)


def _reduce(springs: Array, loads: Array, b: Array) -> tuple[Array, Inverse]:
    """x and the blocks of the inverse; springs[r] = Aᵣ, the last of them zero."""
    n = len(loads)
    before = jnp.pad(springs[:-1], ((1, 0), (0, 0), (0, 0)))  # Aᵣ₋₁
    whole = _symmetrise(loads + springs + _transpose(before))
    if n == 1:
        inverse, logdet = _invert_blocks(whole)
        return _apply(inverse, b), Inverse(inverse, inverse[:0], inverse[:0], logdet[0])
    inverse, logdet = _invert_blocks(whole[1::2])
    left, right = inverse @ _transpose(before[1::2]), inverse @ springs[1::2]  # X, Y
    load_share, solved = inverse @ loads[1::2], _apply(inverse, b[1::2])
    ours = _Neighbours(springs[::2], _transpose(before[::2]))
    x, rest = _reduce(
        ours.right(right),
        loads[::2] + ours.right(load_share) + ours.left(load_share),
        b[::2] + ours.right(solved) + ours.left(solved),
    )
    here, there = rest.cov[: n // 2], _shift(rest.cov, n // 2)
    lag, span = (_pad_to(part, n // 2) for part in (rest.lag, rest.step_cov))
    x_odd = solved + _apply(left, x[: n // 2]) + _apply(right, _shift(x, n // 2))
    to_left = left @ here + right @ _transpose(lag)  # Σᵢ,ᵢ₋₁
    to_right = left @ lag + right @ there  # Σᵢ,ᵢ₊₁
    odd = _symmetrise(inverse + to_left @ _transpose(left) + to_right @ _transpose(right))
    before_odd = inverse + _stretch_covariance(-load_share, here, right, span, lag - here)
    after_odd = inverse + _stretch_covariance(
        load_share, there, left, span, there - _transpose(lag)
    )
    lags = _interleave(_transpose(to_left), to_right)[: n - 1]
    steps = _interleave(before_odd, after_odd)[: n - 1]
    found = Inverse(_interleave(rest.cov, odd), lags, steps, rest.logdet + jnp.sum(logdet))
    return _interleave(x, x_odd), found


def _stretch_covariance(f: Array, cov: Array, y: Array, span: Array, across: Array) -> Array:
    """cov(F u + Y s), given those of u, of the span s and between them: F falls as links stiffen."""
    mixed = f @ across @ _transpose(y)
    return _symmetrise(f @ cov @ _transpose(f) + y @ span @ _transpose(y) + 2 * mixed)


class _Neighbours(NamedTuple):
    """Springs of the blocks that stay to the eliminated ones at their right and left."""

    to_right: Array
    to_left: Array

    def right(self, of: Array) -> Array:
        missing = len(self.to_right) - len(of)
        return _apply(self.to_right, jnp.pad(of, ((0, missing),) + ((0, 0),) * (of.ndim - 1)))

    def left(self, of: Array) -> Array:
        shifted = jnp.pad(of, ((1, 0),) + ((0, 0),) * (of.ndim - 1))[: len(self.to_left)]
        return _apply(self.to_left, shifted)


def _shift(a: Array, n: int) -> Array:
    """a[1], a[2], …, n of them, zeros beyond the end."""
    return _pad_to(a[1:], n)


def _pad_to(a: Array, n: int) -> Array:
    """a and zeros, n in all."""
    return jnp.pad(a, ((0, n - len(a)),) + ((0, 0),) * (a.ndim - 1))


def _interleave(even: Array, odd: Array) -> Array:
    n = len(even) + len(odd)
    odd = jnp.pad(odd, ((0, len(even) - len(odd)),) + ((0, 0),) * (odd.ndim - 1))
    return jnp.stack([even, odd], axis=1).reshape(2 * len(even), *even.shape[1:])[:n]


def _apply(a: Array, b: Array) -> Array:
    return jnp.einsum("nij,nj->ni", a, b) if b.ndim == 2 else a @ b


def _transpose(a: Array) -> Array:
    return jnp.swapaxes(a, -1, -2)


def _symmetrise(a: Array) -> Array:
    return (a + _transpose(a)) / 2


def _invert_blocks(a: Array) -> tuple[Array, Array]:
    """Inverses and log-determinants of small positive definite matrices."""
    if a.shape[-1] == 1:
        return 1 / a, jnp.log(a[..., 0, 0])
    root = jnp.linalg.cholesky(a)
    identity = jnp.broadcast_to(jnp.eye(a.shape[-1], dtype=a.dtype), a.shape)
    half = jsl.solve_triangular(root, identity, lower=True)
    logdet = 2 * jnp.sum(jnp.log(jnp.diagonal(root, axis1=-2, axis2=-1)), axis=-1)
    return _transpose(half) @ half, logdet
