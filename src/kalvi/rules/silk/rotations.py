"""Linear maps of the factors that do not change the logits.

U → U Rᵀ and A → A R⁻¹ change no logit, only the fit of the factors to the priors. Sweeps are slow in these
directions, because each side follows the other, which hardly moves. With the best σ², factor k of a side
with

    Mₖ = Σᵣ loadᵣ(ρₖ) E eeᵀ + Σᵣ linkᵣ(ρₖ) E δδᵀ,      e = u − μ,  δ = uᵣ₊₁ − uᵣ,

costs ½ n log rₖᵀMₖrₖ if rₖ is row k of R, so the best R maximises

    n_r (log|R| − ½ Σ log rₖᵀMₖrₖ) + n_c (log|S| − ½ Σ log sₖᵀNₖsₖ),      S = R⁻ᵀ.

(With fixed priors the quadratic forms replace n times their logarithms.) Newton steps R ← (I + E)R, which
treat each pair (Eₖⱼ, Eⱼₖ) separately as in joint diagonalisation, are shortened until the value rises. This
never lowers the bound. It needs `Coupled` posteriors: the others cannot represent the covariances between
factors that a rotation creates.
"""

from typing import NamedTuple, cast

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from kalvi.kernels import OrnsteinUhlenbeck
from kalvi.numerics import linalg
from kalvi.rules.silk.model import Side, Silk
from kalvi.rules.silk.posteriors import Coupled

NEWTON, HALVINGS = 6, 6
"""The number of Newton steps, and of the lengths 1, ½, … that are tried in each."""
RIDGE = 1e-3
"""Keeps the pairs solvable if factors have equal priors, so that rotations change nothing."""

Square = Float[Array, "k k"]
Squares = Float[Array, "k k k"]  # one a factor


class _Costs(NamedTuple):
    """The cost of a rotation of the factors, for one side."""

    form: Squares  # Mₖ/σₖ², about the prior mean
    slope: Square  # of row k: the derivative due to fixed prior means
    n: int
    learns: bool


def rotate_to_priors(silk: Silk, *, learns: bool) -> Silk:
    """The factorisation, rotated to the highest bound; with `learns` the prior variances follow."""
    rows, cols = _costs(silk.rows, learns), _costs(silk.cols, learns)
    k = len(silk.rows.prior.mean)

    def value(turn: Square) -> Float[Array, ""]:
        return _value(rows, turn) + _value(cols, _inverse_transposed(turn))

    def step(_: Array, turn: Square) -> Square:
        way = _newton(_moved(rows, turn), _moved(cols, _inverse_transposed(turn)))
        lengths = 0.5 ** jnp.arange(HALVINGS, dtype=way.dtype)
        tried = jax.vmap(lambda length: turn + length * way @ turn)(lengths)
        values = jax.vmap(value)(tried)
        values = jnp.where(jnp.isfinite(values), values, -jnp.inf)
        best = jnp.argmax(values)
        return jnp.where(values[best] > value(turn), tried[best], turn)

    turn = jax.lax.fori_loop(0, NEWTON, step, jnp.eye(k, dtype=silk.rows.prior.mean.dtype))
    back = _inverse_transposed(turn)
    return Silk(_applied(silk.rows, turn, learns), _applied(silk.cols, back, learns))


def _inverse_transposed(turn: Square) -> Square:
    return jnp.linalg.solve(turn.T, linalg.identity_like(turn))


def _costs(side: Side, learns: bool) -> _Costs:
    prior, posterior = side.prior, cast(Coupled, side.posterior)
    away = posterior.mean - (prior.mean[None] if learns else 0)
    steps = jnp.diff(posterior.mean, axis=0)
    square = jnp.einsum("ni,nj->nij", away, away) + posterior.cov
    step_square = jnp.einsum("ni,nj->nij", steps, steps) + posterior.steps
    loads, links = prior.loads(), prior.links()
    form = jnp.einsum("nk,nij->kij", loads, square) + jnp.einsum("mk,mij->kij", links, step_square)
    slope = jnp.einsum("nk,nj->kj", loads, posterior.mean) * prior.mean[:, None]
    return _Costs(form, jnp.zeros_like(slope) if learns else slope, prior.n, learns)


def _value(costs: _Costs, turn: Square) -> Float[Array, ""]:
    forms = jnp.einsum("ki,kij,kj->k", turn, costs.form, turn)
    cost = costs.n * jnp.log(forms) if costs.learns else forms - 2 * jnp.sum(costs.slope * turn, 1)
    return costs.n * jnp.linalg.slogdet(turn)[1] - jnp.sum(cost) / 2


def _moved(costs: _Costs, turn: Square) -> tuple[Squares, Square, int]:
    """The forms and slopes after a rotation, scaled by their weights in the cost."""
    form = jnp.einsum("ai,kij,bj->kab", turn, costs.form, turn)
    if costs.learns:
        k = jnp.arange(len(form))
        form = form * (costs.n / form[k, k, k])[:, None, None]
    return form, costs.slope @ turn.T, costs.n


def _newton(rows: tuple[Squares, Square, int], cols: tuple[Squares, Square, int]) -> Square:
    """E, from R → (I + E) R and S → (I − Eᵀ) S."""
    (m, row_slope, n_r), (n, col_slope, n_c) = rows, cols
    k = jnp.arange(len(m))
    own, other = m[k, k], n[k, k]  # own[k, j] = Mₖ[k, j]
    gradient = row_slope - own - (col_slope - other).T + (n_r - n_c) * jnp.eye(len(m))
    bend = jnp.diagonal(m, axis1=1, axis2=2) + jnp.diagonal(n, axis1=1, axis2=2).T
    bend, cross = bend * (1 + RIDGE), float(n_r + n_c)
    det = jnp.maximum(bend * bend.T - cross**2, RIDGE * cross**2)
    paired = (bend.T * gradient - cross * gradient.T) / det
    alone = jnp.diagonal(gradient) / (2 * jnp.diagonal(bend))
    return jnp.where(jnp.eye(len(m), dtype=bool), jnp.diag(alone), paired)


def _applied(side: Side, turn: Square, learns: bool) -> Side:
    prior = side.prior
    posterior = cast(Coupled, side.posterior).rotate(turn)
    if not learns:
        return side.with_posterior(posterior)
    mean = turn @ prior.mean
    moved = OrnsteinUhlenbeck(prior.gaps, mean, prior.variance, prior.rate, prior.even)
    return side.with_posterior(posterior).with_prior(moved)
