"""Sweeps with the expected log-likelihood itself instead of its Pólya–Gamma bound.

Document 004 bounds E log p(x | ψ) with ψ ~ N(m, v), m = E ψ, by a function of E ψ². If logits are large the
bound is loose, and looser for larger v: |m|/2 in log 2cosh(ψ/2) becomes √(m² + v)/2. Its curvature is w =
tanh(Γ/2)/(2Γ) ~ 1/(2|m|), although the true curvature E σ′(ψ) falls like e^−|m|. Learned priors then have
too small variances, and predictions are too cautious. Here each entry has

    ℓ(m, v) = E log p(x | ψ),      pull (x − E σ + γ m) E α,      curvature γ E ααᵀ,      γ = E σ′(ψ),

the site of a natural-gradient step (`rules.klprox`; Khan, Baqué, Fleuret & Fua 2015, section 3). It is
mixed into the remembered site of each row: site ← (1 − ρ) site + ρ (new). Logits are products of Gaussians,
and treated as Gaussian, as in the probabilities of entries; the bound is defined accordingly. A sweep that
lowers it is undone, and the next step is shorter.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from kalvi.likelihoods.scalar import Bernoulli
from kalvi.likelihoods.sites import Expected
from kalvi.numerics.expectations import gauss_hermite
from kalvi.numerics.namespaces import Scalar
from kalvi.rules.rule import IterativeRule
from kalvi.rules.silk.first_sites import sites_of_posterior
from kalvi.rules.silk.model import Silk, double_sum, sites
from kalvi.rules.silk.observed import EntryBlock, Observed, Statistics
from kalvi.rules.silk.posteriors import Exact, MeanSolver
from kalvi.rules.silk.priors import with_best_prior

SHARE = 0.5
"""The first ρ; with large logits a whole step overshoots."""
LONGER = 1.2
"""The factor by which ρ grows after a sweep that raised the bound."""

NODES, NARROW = 9, 4.0
"""The nodes of quadrature, and the largest variance of a logit for which they are used: there the error is
2e-4 in E log p and 1e-3 in the curvature, at variances below ½ it is 1e-8."""

Entries = Float[Array, "b w"]


class RememberedSweep(eqx.Module):
    """A factorisation, and the remembered sites of its rows and of its columns."""

    silk: Silk
    rows: Statistics
    cols: Statistics


class ExpectedSILKState(eqx.Module):
    """The start of the next sweep, and the best point so far with the parts of its bound."""

    here: RememberedSweep
    best: RememberedSweep
    loss: Float[Array, " r"]
    kl: Float[Array, " 2"]
    share: Float[Array, ""]  # ρ of the next sweep
    sweeps: Int[Array, ""]

    @property
    def plain(self) -> Silk:
        """The factorisation at which the next sweep begins."""
        return self.here.silk

    @property
    def elbo(self) -> float:
        """The best bound so far, as evaluated before a sweep, summed in float64."""
        return double_sum(self.loss) - double_sum(self.kl)


class ExpectedSILK(IterativeRule[ExpectedSILKState]):
    """One sweep over the observed entries for each call, with expectations instead of bounds."""

    solver: MeanSolver = eqx.field(default_factory=Exact)
    learn_prior: bool = eqx.field(static=True, default=True)

    def init(self, prior: Silk, *, key: PRNGKeyArray | None = None) -> ExpectedSILKState:
        """The state at a factorisation, such as the result of `SILK`; its posteriors become the first
        sites."""
        here = RememberedSweep(
            prior, sites_of_posterior(prior.rows), sites_of_posterior(prior.cols)
        )
        dtype = prior.rows.posterior.mean.dtype
        loss = jnp.full(len(here.rows.loss), -jnp.inf, dtype)
        none = jnp.zeros(2, dtype), jnp.asarray(SHARE, dtype), jnp.zeros((), jnp.int32)
        return jax.tree.map(jnp.array, ExpectedSILKState(here, here, loss, *none))

    def update(
        self, state: ExpectedSILKState, batch: Any, *, key: PRNGKeyArray | None = None
    ) -> ExpectedSILKState:
        """The state after one more sweep over the observed entries."""
        here = state.here
        kl = jnp.stack([here.silk.rows.kl(), here.silk.cols.kl()])
        there, loss = self._sweep(here, batch, state.share)
        first = jnp.isneginf(state.loss[0])
        gain = jnp.sum(loss - jnp.where(first, 0, state.loss)) - jnp.sum(kl - state.kl)
        eps = float(jnp.finfo(loss.dtype).eps)
        slack = 8 * eps * (jnp.sqrt(jnp.sum(loss**2)) + jnp.sum(jnp.abs(kl)))
        rose = first | (gain >= -slack)  # false if the bound is NaN

        def either(a: Any, b: Any) -> Any:
            return jax.tree.map(lambda x, y: jnp.where(rose, x, y), a, b)

        return ExpectedSILKState(
            either(there, state.best),
            either(here, state.best),
            either(loss, state.loss),
            either(kl, state.kl),
            either(jnp.minimum(state.share * LONGER, 1), state.share / 2),
            state.sweeps + 1,
        )

    def _sweep(
        self, here: RememberedSweep, observed: Observed, share: Scalar
    ) -> tuple[RememberedSweep, Float[Array, " r"]]:
        silk, rows, loss = self._half(here.silk, here.rows, observed, share)
        turned, cols, _ = self._half(silk.transpose(), here.cols, observed.transpose(), share)
        return RememberedSweep(turned.transpose(), rows, cols), loss

    def _half(
        self, silk: Silk, past: Statistics, observed: Observed, share: Scalar
    ) -> tuple[Silk, Statistics, Float[Array, " r"]]:
        found = expected(silk, observed)
        mixed = mix(past, found, share)
        side = silk.rows
        posterior = side.posterior.update(side.prior, sites(side, mixed), self.solver)
        side = side.with_posterior(posterior)
        side = with_best_prior(side) if self.learn_prior else side
        return Silk(side, silk.cols), mixed, found.loss


def expected(silk: Silk, observed: Observed) -> Statistics:
    """The statistics of the rows from all entries."""
    rows, cols = silk.rows.moments(), silk.cols.moments()
    return observed.reduce(rows, cols, silk.rows.posterior.adds_mean, expected_statistics)


def expected_statistics(block: EntryBlock) -> Statistics:
    """The pull, curvature and expected log-likelihood of the rows of a block."""
    var = jnp.where(block.sign != 0, jnp.maximum(block.square - block.psi**2, 0), 0)
    sign = block.sign.astype(var.dtype)
    narrow = jnp.max(var) <= NARROW
    at = jax.lax.cond(narrow, _by_nodes, _by_mixture, sign * block.psi, var)
    pull = block.apply_weights(sign * at.gradient + at.curvature * block.psi)
    curvature = block.apply_weights(at.curvature)
    value = jnp.sum(block.apply_weights(at.value), axis=1)
    return Statistics(
        block.dot(pull, block.cols.mean), block.dot(curvature, block.cols.second), value
    )


def _by_nodes(mean: Entries, var: Entries) -> Expected:
    """E log σ(a), E σ(−a) and E σ′(a) for a ~ N(mean, var), ten times faster than `_by_mixture`."""
    std, found = jnp.sqrt(var), Expected(*(jnp.zeros_like(mean),) * 3)
    for node, weight in zip(*gauss_hermite(NODES), strict=True):
        a = mean + float(node) * std
        decay = jnp.exp(-jnp.abs(a))
        larger = 1 / (1 + decay)  # of σ(a) and σ(−a)
        smaller = decay * larger
        value = jnp.minimum(a, 0) - jnp.log1p(decay)
        here = Expected(value, jnp.where(a > 0, smaller, larger), smaller * larger)
        found = jax.tree.map(lambda total, part, w=float(weight): total + w * part, found, here)
    return found


def _by_mixture(mean: Entries, var: Entries) -> Expected:
    """The expectations of `_by_nodes`, for any variance."""
    return jax.vmap(jax.vmap(Bernoulli().expect))(jnp.ones_like(mean), mean, var)


def mix(old: Statistics, new: Statistics, share: Scalar) -> Statistics:
    """(1 − share) old + share new, without the bound, which is not part of a site."""

    def mixed(a: Array, b: Array) -> Array:
        return a + share * (b - a)

    pull, curvature = mixed(old.pull, new.pull), mixed(old.curvature, new.curvature)
    return Statistics(pull, curvature, old.loss)
