"""Recursive variational Gaussian approximation (R-VGA): one pass over rows, block by block.

Lambert, Bonnabel & Bach (2022), "The recursive variational Gaussian approximation (R-VGA)".

Each row updates μ ← μ + ξ Σ x, Σ⁻¹ ← Σ⁻¹ + γ x xᵀ with a site (ξ, γ) from `sites`. A block of b rows X
needs Σ only through the marginal of its predictors, a = X μ and K = X Σ Xᵀ: the recursion runs in b
dimensions, exactly as it would in d,

    k = K[:, j],  (ξⱼ, γⱼ) = site(aⱼ, kⱼ),  sⱼ = γⱼ/(1 + γⱼ kⱼ),  a ← a + ξⱼ k,  K ← K − sⱼ k kᵀ,

and the structure then absorbs the block at once:

    Σ⁻¹ ← Σ⁻¹ + Xᵀ diag(γ) X,   μ ← μ + Σ Xᵀ c,   (I + triu(s kᵀ, 1)) c = ξ.

K is never rewritten: column j is K₀[:, j] − Σᵢ sᵢ kᵢ[j] kᵢ (left-looking). The subtractions lose
eps·γ xᵀΣx of the digits, so a block with a row whose γ xᵀΣx exceeds eps^{-1/4} (a flat prior meeting its
first rows) is absorbed row by row, which loses none. The recursion first uses the scheme's quick search
for the sites, and is done again with the thorough one where a row was not solved.

Drift. A forgetting factor λ tempers the precision before every row, Σ⁻¹ ← λ Σ⁻¹. In a block this is
one tempering by λⁿ, after which row j sees the covariance scaled by ρⱼ = λ^(rows after j): its site is
taken at ρⱼ kⱼ, and ρⱼ ξⱼ, ρⱼ γⱼ enter the recursion. Process noise q adds n q I to Σ before a block of n
rows (q I before each row where the block goes row by row): exact for blocks of one row.

The state also carries the prequential log evidence Σ log p(yₜ | y₁ … yₜ₋₁) and the sum of squared
standardised innovations (yₜ − E yₜ)²/Var yₜ, both free by-products of the marginals.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.scipy.linalg as jsl
from jaxtyping import Array, Float, Int, PRNGKeyArray

from kalvi import linalg
from kalvi.algorithms.base import Batch, Rule
from kalvi.algorithms.sites import Implicit, Scheme
from kalvi.gaussians import Updatable
from kalvi.likelihoods import Likelihood

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
    """The streaming rule for any likelihood of xᵀθ, any site scheme and any updatable structure."""

    likelihood: Likelihood
    scheme: Scheme = Implicit()
    forgetting: Scalar | None = eqx.field(converter=_optional, default=None)
    process_noise: Scalar | None = eqx.field(converter=_optional, default=None)
    block_size: int = eqx.field(static=True, default=16)

    def init(self, prior: Updatable, *, key: PRNGKeyArray | None = None) -> Streaming:
        zero, none = jnp.zeros((), prior.mean.dtype), jnp.zeros((), jnp.int32)
        return Streaming(prior, zero, zero, zero, none, none)

    def update(
        self, state: Streaming, batch: Batch, *, key: PRNGKeyArray | None = None
    ) -> Streaming:
        n, b = len(batch.y), self.block_size
        missing = -n % b
        padded = jax.tree.map(lambda a: jnp.pad(a, [(0, missing)] + [(0, 0)] * (a.ndim - 1)), batch)
        blocks = jax.tree.map(lambda a: a.reshape(-1, b, *a.shape[1:]), padded)
        return jax.lax.scan(lambda s, block: (self._absorb(s, block), None), state, blocks)[0]

    def _absorb(self, state: Streaming, block: Batch) -> Streaming:
        """The state after the block: at once or, where that would lose digits, row by row."""
        q, discount = self._drift(state.posterior, block.weight)
        mean, cov = q.marginal(block.x)
        rows = self._solve_rows(mean, cov, block, discount)
        posterior = q.absorb(block.x, rows.coefficient, rows.curvature)
        new = self._score(state, block, rows, discount, posterior)
        if len(mean) == 1:
            return new
        largest = jnp.max(rows.curvature * jnp.diagonal(cov))
        exact = largest <= jnp.finfo(cov.dtype).eps ** -0.25
        return jax.lax.cond(exact, lambda: new, lambda: self._absorb_rows(state, block))

    def _absorb_rows(self, state: Streaming, block: Batch) -> Streaming:
        rows = jax.tree.map(lambda a: a[:, None], block)
        return jax.lax.scan(lambda s, row: (self._absorb(s, row), None), state, rows)[0]

    def _drift(
        self, q: Updatable, weight: Float[Array, " b"]
    ) -> tuple[Updatable, Float[Array, " b"]]:
        """The posterior before the block, and the discount of each row in it."""
        present = (weight > 0).astype(weight.dtype)
        n = jnp.sum(present)
        if self.process_noise is not None:
            q = q.diffuse(n * self.process_noise)
        if self.forgetting is None:
            return q, jnp.ones_like(weight)
        return q.temper(self.forgetting**n), self.forgetting ** (n - jnp.cumsum(present))

    def _solve_rows(
        self,
        mean: Float[Array, " b"],
        cov: Float[Array, "b b"],
        block: Batch,
        discount: Float[Array, " b"],
    ) -> "_Rows":
        """The recursion with the scheme's quick search, again with the thorough one if that failed."""
        hurried = self.scheme.quick()
        if hurried is self.scheme or len(mean) == 1:
            return self._scan_rows(self.scheme, mean, cov, block, discount)
        quick = self._scan_rows(hurried, mean, cov, block, discount)
        return jax.lax.cond(
            jnp.all((quick.solved == 1) | (block.weight == 0)),
            lambda: quick,
            lambda: self._scan_rows(self.scheme, mean, cov, block, discount),
        )

    def _scan_rows(
        self,
        scheme: Scheme,
        mean: Float[Array, " b"],
        cov: Float[Array, "b b"],
        block: Batch,
        discount: Float[Array, " b"],
    ) -> "_Rows":
        """The per-row recursion on the predictors of the block."""

        def visit(j, carry):
            columns, rows = carry
            past = columns[:, j]
            column = cov[j] - (rows[:, 0] * past) @ columns
            m, v = mean[j] + rows[:, 1] @ past, jnp.maximum(column[j], 0)
            site = scheme.site(self.likelihood, block.y[j], m, discount[j] * v, block.weight[j])
            step = discount[j] * site.step
            curvature = discount[j] * jnp.maximum(site.curvature, 0)
            shrink = curvature / (1 + curvature * v)
            flags = site.solved.astype(m.dtype), (site.curvature < 0).astype(m.dtype)
            row = jnp.stack([shrink, step, curvature, m, v, *flags])
            return columns.at[j].set(column), rows.at[j].set(row)

        empty = jnp.zeros_like(cov), jnp.zeros((len(mean), 7), mean.dtype)
        columns, rows = jax.lax.fori_loop(0, len(mean), visit, empty, unroll=2)
        shrink, step, curvature, m, v, solved, clipped = rows.T
        upper = linalg.identity_like(cov) + jnp.triu(linalg.scale_rows(shrink, columns), 1)
        coefficient = jsl.solve_triangular(upper, step)
        return _Rows(m, v, coefficient, curvature, solved, clipped)

    def _score(
        self,
        state: Streaming,
        block: Batch,
        rows: "_Rows",
        discount: Float[Array, " b"],
        posterior: Updatable,
    ) -> Streaming:
        """Add what the predictions before each row said of its label."""
        var, present, tiny = discount * rows.var, block.weight > 0, jnp.finfo(discount.dtype).tiny
        surprise = jax.vmap(lambda *row: self.likelihood.log_predictive(*row))(
            block.y, rows.mean, var, block.weight
        )
        # a row of weight w stands for w rows: their mean has the variance of the noise over w
        expected, spread = jax.vmap(lambda *row: self.likelihood.predict(*row))(
            rows.mean, block.weight * var
        )
        weight = discount * block.weight
        innovation = weight * (block.y - expected) ** 2 / jnp.maximum(spread, tiny)
        keep = 1 if self.forgetting is None else self.forgetting ** jnp.sum(present)
        return Streaming(
            posterior,
            state.log_evidence + jnp.sum(jnp.where(present, surprise, 0)),
            keep * state.rows + jnp.sum(weight),
            keep * state.innovations + jnp.sum(jnp.where(jnp.isfinite(innovation), innovation, 0)),
            state.unsolved + jnp.sum(present & (rows.solved == 0)).astype(jnp.int32),
            state.clipped + jnp.sum(present & (rows.clipped == 1)).astype(jnp.int32),
        )


class _Rows(NamedTuple):
    """Per row of a block: its predictor's law before it, c and γ, and how its site was found."""

    mean: Float[Array, " b"]
    var: Float[Array, " b"]
    coefficient: Float[Array, " b"]
    curvature: Float[Array, " b"]
    solved: Float[Array, " b"]  # 1 where it is so, 0 where not
    clipped: Float[Array, " b"]
