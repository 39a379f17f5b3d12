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

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.scipy.linalg as jsl
import numpy as np
from jaxtyping import Array, Float, Int

from kalvi.numerics.namespaces import Scalar
from kalvi.numerics.platforms import is_traced_for_numpy, platform

FEWEST, MOST = 1024, 4096
"""The pairs of blocks that are eliminated at once: a sixteenth of the blocks, but at least and at most
these numbers. Fewer leave much of an accelerator idle, more make the last levels expensive."""

NUMPY_SHARE, NUMPY_FEWEST = 8, 32
"""The pairs for NumPy, for which a call costs as much as about a thousand numbers: an eighth of the blocks,
but at least so many."""

Links = Float[Array, "m k"]  # m = n − 1
Loads = Float[Array, "n k k"]
Sequence = Float[Array, "n k"]


class Inverse(NamedTuple):
    """The parts of Σ = Λ⁻¹ near its diagonal."""

    cov: Float[Array, "n k k"]  # Σᵣᵣ
    lag: Float[Array, "m k k"]  # Σᵣ,ᵣ₊₁
    step_cov: Float[Array, "m k k"]  # cov(uᵣ₊₁ − uᵣ)
    logdet: Scalar  # log|Λ|


def matvec(links: Links, loads: Loads, u: Sequence) -> Sequence:
    """Λ u."""
    return spring(links, u) + jnp.einsum("nij,nj->ni", loads, u)


def spring(links: Links, u: Sequence) -> Sequence:
    """The part of Λ u due to the links: zero for a constant sequence."""
    pull = links * jnp.diff(u, axis=0)
    return jnp.pad(pull, ((1, 0), (0, 0))) - jnp.pad(pull, ((0, 1), (0, 0)))


def solve(links: Links, loads: Loads, b: Sequence) -> Sequence:
    """Λ⁻¹ b, by `solve_by_scan` on a CPU and by `solve_by_reduction` elsewhere."""
    return solve_and_invert(links, loads, b)[0]


def invert(links: Links, loads: Loads) -> Inverse:
    """Blocks of Λ⁻¹, by `solve_by_scan` on a CPU and by `solve_by_reduction` elsewhere."""
    return solve_and_invert(links, loads, jnp.zeros(loads.shape[:2], loads.dtype))[1]


def solve_and_invert(links: Links, loads: Loads, b: Sequence) -> tuple[Sequence, Inverse]:
    """Λ⁻¹ b and the blocks of Λ⁻¹, from one elimination; NumPy also uses the reduction."""
    if is_traced_for_numpy():
        return solve_by_reduction(links, loads, b, max(len(loads) // NUMPY_SHARE, NUMPY_FEWEST))
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


def solve_by_reduction(
    links: Links, loads: Loads, b: Sequence, pairs: int | None = None
) -> tuple[Sequence, Inverse]:
    """Λ⁻¹ b and the blocks of Λ⁻¹ by block cyclic reduction, `pairs` pairs of blocks at once."""
    n = len(loads)
    plan = _plan(n, min(max(n // 16, FEWEST), MOST) if pairs is None else pairs)
    springs, identity = jax.vmap(jnp.diag)(links), jnp.eye(loads.shape[1], dtype=loads.dtype)
    levels = _Blocks(
        plan.laid_out(springs, jnp.zeros_like(identity)),
        plan.laid_out(loads, identity),
        plan.laid_out(b, jnp.zeros_like(b[0])),
    )
    levels, inverses, logdet = _reduce(plan, levels)
    inverse, last_logdet = _invert_blocks(levels.load[plan.top][None])
    nothing = jnp.zeros_like(inverses)
    top = _Solved(
        jnp.zeros_like(levels.pull).at[plan.top].set(inverse[0] @ levels.pull[plan.top]),
        nothing.at[plan.top].set(inverse[0]),
        nothing,
        nothing,
    )
    x, cov, lag, steps = (a[plan.first :][:n] for a in _fill_in(plan, levels, inverses, top))
    return x, Inverse(cov, lag[: n - 1], steps[: n - 1], logdet + last_logdet[0])


class _Plan(NamedTuple):
    """The positions of the levels of a reduction in one array; each level has half the blocks of the one
    before.

    A piece of a level is a fixed number of pairs of blocks, so that all pieces share one program and more
    levels do not take longer to compile. Blocks without springs fill the places after the last block of a
    level and one pair before the first.
    """

    pairs: int
    places: Int[np.ndarray, "2 pieces"]  # of each piece and of its remaining blocks
    top: int  # of the only block of the last level
    size: int

    @property
    def first(self) -> int:
        """The place of the very first block."""
        return 2

    def laid_out(self, a: Array, beyond: Array) -> Array:
        """An array for all levels, in which the first is filled in."""
        whole = jnp.broadcast_to(beyond, (self.size, *beyond.shape))
        return whole.at[self.first : self.first + len(a)].set(a)

    def each(self, visit: Callable, start: Any, *, back: bool = False) -> Any:
        """visit(place, place of the remaining blocks, carry) → carry, for all pieces in turn."""
        if self.places.shape[1] == 0:
            return start
        places = jnp.asarray(self.places[:, ::-1] if back else self.places)
        return jax.lax.fori_loop(
            0, places.shape[1], lambda i, carry: visit(places[0, i], places[1, i], carry), start
        )


def _plan(n: int, pairs: int) -> _Plan:
    pairs = max(min(pairs, -(-n // 2)), 1)
    places, start, written = [], 2, 1
    while n > 1:
        pieces = -(-n // (2 * pairs))
        after = start + max(written, 2 * pairs * pieces) + 2
        places += [(start + 2 * pairs * s, after + pairs * s) for s in range(pieces)]
        start, written, n = after, pairs * pieces + 1, -(-n // 2)
    return _Plan(pairs, np.array(places, np.int32).reshape(-1, 2).T, start, start + written)


class _Blocks(NamedTuple):
    """The remaining parts of Λ and b."""

    spring: Array  # Aᵣ, to the next block
    load: Array
    pull: Array


class _Solved(NamedTuple):
    x: Array
    cov: Array
    lag: Array
    step_cov: Array


class _Shares(NamedTuple):
    """uᵢ = X uᵢ₋₁ + Y uᵢ₊₁ + solved + noise, and F."""

    left: Array
    right: Array
    load: Array
    solved: Array


def _shares(even: _Blocks, odd: _Blocks, inverse: Array) -> _Shares:
    left, right = _product(inverse, _transpose(even.spring)), _product(inverse, odd.spring)
    return _Shares(left, right, _product(inverse, odd.load), _apply(inverse, odd.pull))


def _reduce(plan: _Plan, levels: _Blocks) -> tuple[_Blocks, Array, Array]:
    """All levels, D⁻¹ of the eliminated blocks (at the places of the remaining ones), and log|Λ|."""

    def visit(place, remains, carry):
        levels, inverses, logdet = carry
        even, odd = _pairs(levels, place - 2, plan.pairs + 1)
        inverse, own = _invert_blocks(_symmetrise(odd.load + odd.spring + _transpose(even.spring)))
        shares = _shares(even, odd, inverse)
        to_left = _transpose(odd.spring[:-1])
        _, right, load, solved = (a[1:] for a in shares)
        spring = even.spring[1:]
        left_over = _Blocks(
            _product(spring, right),
            even.load[1:] + _product(spring, load) + _product(to_left, shares.load[:-1]),
            even.pull[1:] + _apply(spring, solved) + _apply(to_left, shares.solved[:-1]),
        )
        levels = _Blocks(*(_put(a, new, remains) for a, new in zip(levels, left_over, strict=True)))
        return levels, _put(inverses, inverse[1:], remains), logdet + jnp.sum(own[1:])

    start = levels, jnp.zeros_like(levels.load), jnp.zeros((), levels.load.dtype)
    return plan.each(visit, start)


def _fill_in(plan: _Plan, levels: _Blocks, inverses: Array, solved: _Solved) -> _Solved:
    """The solution on all levels, from that on the last."""

    def visit(place, remains, solved):
        even, odd = _pairs(levels, place, plan.pairs)
        known = _Solved(*(_take(a, remains, plan.pairs + 1) for a in solved))
        found = _between(known, _shares(even, odd, inverse_at(remains)), inverse_at(remains))
        return _Solved(*(_put(a, new, place) for a, new in zip(solved, found, strict=True)))

    def inverse_at(place):
        return _take(inverses, place, plan.pairs)

    return plan.each(visit, solved, back=True)


def _between(known: _Solved, shares: _Shares, inverse: Array) -> _Solved:
    """The solution at the blocks that remained and, after each, at the block eliminated there."""
    x, cov = known.x, known.cov
    here, there, lag, span = cov[:-1], cov[1:], known.lag[:-1], known.step_cov[:-1]
    left, right, load_share, solved = shares
    x_odd = solved + _apply(left, x[:-1]) + _apply(right, x[1:])
    to_left = _product(left, here) + _product(right, _transpose(lag))  # Σᵢ,ᵢ₋₁
    to_right = _product(left, lag) + _product(right, there)  # Σᵢ,ᵢ₊₁
    spread = _product(to_left, _transpose(left)) + _product(to_right, _transpose(right))
    odd = _symmetrise(inverse + spread)
    before = inverse + _stretch_covariance(-load_share, here, right, span, lag - here)
    after = inverse + _stretch_covariance(load_share, there, left, span, there - _transpose(lag))
    pairs = (x[:-1], x_odd), (here, odd), (_transpose(to_left), to_right), (before, after)
    return _Solved(*(jnp.stack(pair, 1).reshape(-1, *pair[0].shape[1:]) for pair in pairs))


def _pairs(levels: _Blocks, place: Array, count: int) -> tuple[_Blocks, _Blocks]:
    """The first and the second blocks of `count` pairs."""

    def half(a, which):
        return _take(a, place, 2 * count).reshape(count, 2, *a.shape[1:])[:, which]

    return _Blocks(*(half(a, 0) for a in levels)), _Blocks(*(half(a, 1) for a in levels))


def _take(a: Array, place: Array, count: int) -> Array:
    return jax.lax.dynamic_slice_in_dim(a, place, count)


def _put(a: Array, new: Array, place: Array) -> Array:
    return jax.lax.dynamic_update_slice_in_dim(a, new, place, 0)


def _stretch_covariance(f: Array, cov: Array, y: Array, span: Array, across: Array) -> Array:
    """cov(F u + Y s), given the covariances of u, of the span s and between them; F shrinks as links
    stiffen."""
    first = _product(f, _product(cov, _transpose(f)) + 2 * _product(across, _transpose(y)))
    return _symmetrise(first + _product(y, _product(span, _transpose(y))))


def _apply(a: Array, b: Array) -> Array:
    return jnp.sum(a * b[..., None, :], axis=-1)


def _product(a: Array, b: Array) -> Array:
    """a b for many small blocks, as sums: an accelerator's compiler handles sums quickly, but takes a
    second or more for each new size of a product of matrices."""
    return jnp.sum(a[..., :, :, None] * b[..., None, :, :], axis=-2)


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
    inverse = half.T @ half if a.ndim == 2 else _product(_transpose(half), half)
    return inverse, logdet
