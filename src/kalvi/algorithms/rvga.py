"""Recursive variational Gaussian approximation (R-VGA): one pass over rows, block by block.

Lambert, Bonnabel & Bach (2022), "The recursive variational Gaussian approximation (R-VGA)".

Each row updates μ ← μ + ξ Σ x, Σ⁻¹ ← Σ⁻¹ + γ x xᵀ with a site (ξ, γ) from `sites`. A block of b rows X
needs Σ only through the marginal of its predictors, a = X μ and K = X Σ Xᵀ: the recursion runs in b
dimensions, exactly as it would in d,

    k = K[:, j],  (ξⱼ, γⱼ) = site(aⱼ, kⱼ),  sⱼ = γⱼ/(1 + γⱼ kⱼ),  a ← a + ξⱼ k,  K ← K − sⱼ k kᵀ,

and the structure then absorbs the block at once:

    Σ⁻¹ ← Σ⁻¹ + Xᵀ diag(γ) X,   μ ← μ + Σ Xᵀ c,   (I + triu(s kᵀ, 1)) c = ξ.

K is never rewritten: column j is K₀[:, j] − Σᵢ sᵢ kᵢ[j] kᵢ (left-looking). The subtractions lose
eps·γ xᵀΣx of the digits, so while γ xᵀΣx of a row exceeds eps^{-1/4} (a flat prior meeting its first
rows) the rows of a block are absorbed one at a time, which loses none, and then the rest at once. The
recursion first uses the scheme's quick search for the sites, and is done again with the thorough one
where a row was not solved.

With a `LowRankPrecision` this is L-RVGA (Lambert, Bonnabel & Bach 2023): exact inside the block, and one
factor-analysis projection a block. Sampled expectations (its section 4.2): draws θ of the posterior meet
a row only through xᵀθ ~ N(m, v), so K standard normals a row say the same as K ensemble samples of θ.

Drift. A forgetting factor λ tempers the precision before every row, Σ⁻¹ ← λ Σ⁻¹. In a block this is
one tempering by λⁿ, after which row j sees the covariance scaled by ρⱼ = λ^(rows after j): its site is
taken at ρⱼ kⱼ, and ρⱼ ξⱼ, ρⱼ γⱼ enter the recursion. Process noise q adds n q I to Σ before a block of n
rows: exact for blocks of one row.

Observations with several predictors, such as the classes of a softmax, are the same with a vector ξ and a
matrix γ each (`groups`); a `Predictor` says what their rows are.

The state also carries the prequential log evidence Σ log p(yₜ | y₁ … yₜ₋₁) and the sum of squared
standardised innovations (yₜ − E yₜ)²/Var yₜ (of scalar y), both free by-products of the marginals.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import jax.scipy.linalg as jsl
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from kalvi import linalg
from kalvi.algorithms.base import Batch, Rule
from kalvi.algorithms.groups import group_covariances, solve_groups
from kalvi.algorithms.sites import EKF, QKF, Implicit, Scheme
from kalvi.custom import Sampled
from kalvi.gaussians import Updatable
from kalvi.likelihoods import Likelihood
from kalvi.predictors import Linear, Predictor
from kalvi.vectors import VectorLikelihood

Scalar = Float[Array, ""]


class Streaming(eqx.Module):
    """A posterior in the making, and what the rows so far said of the model."""

    posterior: Updatable
    log_evidence: Scalar  # Σ log p(yₜ | y₁ … yₜ₋₁), a row of weight w as w rows
    rows: Scalar  # total weight of the rows, discounted where the stream forgets
    innovations: Scalar  # Σ (y − E y)²/Var y under the predictions, discounted alike
    unsolved: Int[Array, ""]  # rows whose implicit equations were not solved
    clipped: Int[Array, ""]  # rows whose negative curvature was set to zero


def _optional(value) -> Scalar | None:
    return None if value is None else jnp.asarray(value)


class RVGA(Rule[Streaming]):
    """The streaming rule for any likelihood of xᵀθ, any site scheme and any updatable structure.

    A likelihood of several predictors needs a `predictor` that makes as many of θ and a row, such as
    `MultiLinear`.

    With `samples=K` the scheme's expectations are averages over K draws of the predictor instead of
    integrals, and a key is needed. A batch of fewer than `block_size` rows is one block.
    """

    likelihood: Likelihood | VectorLikelihood
    scheme: Scheme = Implicit()
    forgetting: Scalar | None = eqx.field(converter=_optional, default=None)
    process_noise: Scalar | None = eqx.field(converter=_optional, default=None)
    block_size: int = eqx.field(static=True, default=16)
    samples: int | None = eqx.field(static=True, default=None)
    predictor: Predictor = Linear()

    def __check_init__(self):
        vector = isinstance(self.likelihood, VectorLikelihood)
        if vector == isinstance(self.predictor, Linear):
            raise TypeError(
                f"{type(self.likelihood).__name__} does not go with the predictor "
                f"{type(self.predictor).__name__}; likelihoods of one predictor need Linear(), those of "
                "several one that makes as many, such as MultiLinear."
            )
        if vector and self.samples is not None:
            raise ValueError(
                f"samples={self.samples} is for likelihoods of one predictor; use samples=None."
            )

    def init(self, prior: Updatable, *, key: PRNGKeyArray | None = None) -> Streaming:
        zero, none = jnp.zeros((), prior.mean.dtype), jnp.zeros((), jnp.int32)
        return Streaming(prior, zero, zero, zero, none, none)

    def update(
        self, state: Streaming, batch: Batch, *, key: PRNGKeyArray | None = None
    ) -> Streaming:
        n = len(batch.y)
        if n == 0:
            return state
        b = min(self.block_size, n)
        missing = -n % b
        padded = jax.tree.map(lambda a: jnp.pad(a, [(0, missing)] + [(0, 0)] * (a.ndim - 1)), batch)
        ones, draws = jnp.ones_like(padded.weight), self._draw(key, n + missing)
        rows = _Block(padded.x, padded.y, padded.weight, ones, draws)
        if n == b:
            return self._absorb(state, rows)
        blocks = jax.tree.map(lambda a: a.reshape(-1, b, *a.shape[1:]), rows)
        return jax.lax.scan(lambda s, block: (self._absorb(s, block), None), state, blocks)[0]

    def _draw(self, key: PRNGKeyArray | None, n: int) -> Float[Array, "n k"] | None:
        if self.samples is None:
            return None
        if key is None:
            raise ValueError(
                f"RVGA(samples={self.samples}) draws samples and needs a key; got None."
            )
        if isinstance(self.scheme, Implicit | EKF | QKF):
            raise ValueError(
                f"{type(self.scheme).__name__} takes no sampled expectations; "
                "use Explicit() or MirrorProx() with samples."
            )
        return jr.normal(key, (n, self.samples))

    def _absorb(self, state: Streaming, block: "_Block") -> Streaming:
        """The state after the block: all rows at once or, where that would lose digits, some one by one."""
        state, block = self._drift(state, block)
        left = block.weight > 0
        if len(left) == 1:
            return self._take(state, block, left)[0]
        return jax.lax.while_loop(
            lambda carry: jnp.any(carry[1]),
            lambda carry: self._take(carry[0], block, carry[1]),
            (state, left),
        )[0]

    def _drift(self, state: Streaming, block: "_Block") -> tuple[Streaming, "_Block"]:
        """The state as the block's end will see it, and the discount of each row until then."""
        present = (block.weight > 0).astype(block.weight.dtype)
        n, q = jnp.sum(present), state.posterior
        if self.process_noise is not None:
            q = q.diffuse(n * self.process_noise)
        keep = jnp.ones_like(n)
        if self.forgetting is not None:
            keep = self.forgetting**n
            q = q.temper(keep)
            block = block._replace(discount=self.forgetting ** (n - jnp.cumsum(present)))
        faded = q, keep * state.rows, keep * state.innovations
        return eqx.tree_at(lambda s: (s.posterior, s.rows, s.innovations), state, faded), block

    def _take(
        self, state: Streaming, block: "_Block", left: Bool[Array, " b"]
    ) -> tuple[Streaming, Bool[Array, " b"]]:
        """Absorb the rows that are left, or the first of them, and say which are left then."""
        block = block._replace(weight=jnp.where(left, block.weight, 0))
        if isinstance(self.likelihood, VectorLikelihood):
            return self._take_groups(self.likelihood, state, block, left)
        view = state.posterior.view(block.x)
        rows = self._solve_rows(view.mean, view.cov, block)
        at_once = jnp.max(rows.curvature * jnp.diagonal(view.cov)) <= _limit(view.cov.dtype)
        taken = _taken(left, at_once)
        coefficient = jnp.where(at_once, rows.coefficient, rows.step)
        posterior = view.absorb(
            jnp.where(taken, coefficient, 0), jnp.where(taken, rows.curvature, 0)
        )
        return self._score(state, block, rows, taken, posterior), left & ~taken

    def _take_groups(
        self,
        likelihood: VectorLikelihood,
        state: Streaming,
        block: "_Block",
        left: Bool[Array, " b"],
    ) -> tuple[Streaming, Bool[Array, " b"]]:
        """The same for observations with several rows each."""
        mean, rows = self.predictor.linearise(state.posterior.mean, block.x)
        view = state.posterior.view(rows)
        found = solve_groups(
            self.scheme, likelihood, mean, view.cov, block.y, block.weight, block.discount
        )
        alone = group_covariances(view.cov, mean.shape[1])
        strength = jnp.einsum("nij,nik,nkj->n", found.root, alone, found.root)
        at_once = jnp.max(strength) <= _limit(view.cov.dtype)
        taken = _taken(left, at_once)
        coefficient = jnp.where(at_once, found.coefficient, found.step)
        posterior = view.absorb(
            jnp.where(taken[:, None], coefficient, 0).ravel(),
            jnp.where(taken[:, None, None], found.root, 0),
        )
        cov = block.discount[:, None, None] * found.cov
        surprise = jax.vmap(lambda *row: likelihood.log_predictive(*row))(
            block.y, found.mean, cov, block.weight
        )
        weight = jnp.where(taken, block.discount * block.weight, 0)
        state = eqx.tree_at(
            lambda s: (s.posterior, s.log_evidence, s.rows, s.unsolved),
            state,
            (
                posterior,
                state.log_evidence + jnp.sum(jnp.where(taken, surprise, 0)),
                state.rows + jnp.sum(weight),
                state.unsolved + jnp.sum(taken & (found.solved == 0)).astype(jnp.int32),
            ),
        )
        return state, left & ~taken

    def _solve_rows(
        self, mean: Float[Array, " b"], cov: Float[Array, "b b"], block: "_Block"
    ) -> "_Rows":
        """The recursion with the scheme's quick search, again with the thorough one if that failed."""
        hurried = self.scheme.quick()
        if hurried is self.scheme or len(mean) == 1:
            return self._scan_rows(self.scheme, mean, cov, block)
        quick = self._scan_rows(hurried, mean, cov, block)
        return jax.lax.cond(
            jnp.all((quick.solved == 1) | (block.weight == 0)),
            lambda: quick,
            lambda: self._scan_rows(self.scheme, mean, cov, block),
        )

    def _scan_rows(
        self, scheme: Scheme, mean: Float[Array, " b"], cov: Float[Array, "b b"], block: "_Block"
    ) -> "_Rows":
        """The per-row recursion on the predictors of the block."""

        def visit(j, carry):
            columns, rows = carry
            past = columns[:, j]
            column = cov[j] - (rows[:, 0] * past) @ columns
            m, v = mean[j] + rows[:, 1] @ past, jnp.maximum(column[j], 0)
            discount, likelihood = block.discount[j], self._likelihood_of(block, j)
            site = scheme.site(likelihood, block.y[j], m, discount * v, block.weight[j])
            step, curvature = discount * site.step, discount * jnp.maximum(site.curvature, 0)
            shrink = curvature / (1 + curvature * v)
            flags = site.solved.astype(m.dtype), (site.curvature < 0).astype(m.dtype)
            row = jnp.stack([shrink, step, curvature, m, v, *flags])
            return columns.at[j].set(column), rows.at[j].set(row)

        empty = jnp.zeros_like(cov), jnp.zeros((len(mean), 7), mean.dtype)
        columns, rows = jax.lax.fori_loop(0, len(mean), visit, empty, unroll=2)
        shrink, step, curvature, m, v, solved, clipped = rows.T
        upper = linalg.identity_like(cov) + jnp.triu(linalg.scale_rows(shrink, columns), 1)
        coefficient = jsl.solve_triangular(upper, step)
        return _Rows(m, v, step, coefficient, curvature, solved, clipped)

    def _likelihood_of(self, block: "_Block", j: Any) -> Likelihood:
        likelihood: Any = self.likelihood
        if block.draws is None:
            return likelihood
        return Sampled(likelihood, block.draws[j].astype(block.y.dtype))

    def _score(
        self,
        state: Streaming,
        block: "_Block",
        rows: "_Rows",
        taken: Bool[Array, " b"],
        posterior: Updatable,
    ) -> Streaming:
        """Add what the predictions before each row taken said of its label."""
        var, tiny = block.discount * rows.var, jnp.finfo(rows.var.dtype).tiny
        surprise = jax.vmap(lambda *row: self.likelihood.log_predictive(*row))(
            block.y, rows.mean, var, block.weight
        )
        # a row of weight w stands for w rows: their mean has the variance of the noise over w
        expected, spread = jax.vmap(lambda *row: self.likelihood.predict(*row))(
            rows.mean, block.weight * var
        )
        weight = jnp.where(taken, block.discount * block.weight, 0)
        innovation = weight * (block.y - expected) ** 2 / jnp.maximum(spread, tiny)
        return Streaming(
            posterior,
            state.log_evidence + jnp.sum(jnp.where(taken, surprise, 0)),
            state.rows + jnp.sum(weight),
            state.innovations + jnp.sum(jnp.where(jnp.isfinite(innovation), innovation, 0)),
            state.unsolved + jnp.sum(taken & (rows.solved == 0)).astype(jnp.int32),
            state.clipped + jnp.sum(taken & (rows.clipped == 1)).astype(jnp.int32),
        )


def _taken(left: Bool[Array, " b"], at_once: Bool[Array, ""]) -> Bool[Array, " b"]:
    """All rows that are left, or the first of them."""
    first = left & (jnp.cumsum(left) == 1)
    return left if len(left) == 1 else jnp.where(at_once, left, first)


def _limit(dtype: Any) -> float:
    """The largest γ xᵀΣx that a block of several rows may have."""
    return float(jnp.finfo(dtype).eps) ** -0.25


class _Block(NamedTuple):
    """A block of rows, how much of each will be left at its end, and draws for sampled expectations."""

    x: Float[Array, "b d"]
    y: Float[Array, "b *o"]
    weight: Float[Array, " b"]
    discount: Float[Array, " b"]
    draws: Float[Array, "b k"] | None


class _Rows(NamedTuple):
    """Per row of a block: its predictor's law before it, ξ, c and γ, and how its site was found."""

    mean: Float[Array, " b"]
    var: Float[Array, " b"]
    step: Float[Array, " b"]
    coefficient: Float[Array, " b"]
    curvature: Float[Array, " b"]
    solved: Float[Array, " b"]  # 1 where it is so, 0 where not
    clipped: Float[Array, " b"]
