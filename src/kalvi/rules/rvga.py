"""Recursive variational Gaussian approximation (R-VGA): one pass over rows, block by block.

Lambert, Bonnabel & Bach (2022), "The recursive variational Gaussian approximation (R-VGA)".

Each row updates μ ← μ + ξ Σ x, Σ⁻¹ ← Σ⁻¹ + γ x xᵀ with a site (ξ, γ) from `schemes`. A block of b rows X
needs Σ only through the marginal of its predictors, a = X μ and K = X Σ Xᵀ: the recursion runs in b
dimensions, exactly as it would in d (`recursion`), and the structure then absorbs the block at once.

The subtractions of the recursion have a relative error of eps·γ xᵀΣx. So while γ xᵀΣx of a row exceeds
eps^{-1/4} (the first rows under a flat prior), the rows of a block are absorbed one at a time, which loses
no digits, and then the rest at once.

With a `LowRankPrecision` this is L-RVGA (Lambert, Bonnabel & Bach 2023): exact inside the block, and one
factor-analysis projection a block. Sampled expectations (its section 4.2): draws θ of the posterior matter
for a row only through xᵀθ ~ N(m, v), so K standard normals a row replace K ensemble samples of θ.

Drift. Parameters that change have the prior as their stationary distribution (`drifts`). A block of n rows
is one step over the time of n rows. Row j then sees the covariance scaled by ρⱼ, the share of its
information that is left at the end of the block: its site is taken at ρⱼ kⱼ, and ρⱼ ξⱼ, ρⱼ γⱼ enter the
recursion.

Predictors. A `Predictor` gives the rows. Observations with several predictors, such as the classes of a
softmax, have a vector ξ and a matrix γ each. A network f(θ, x) is linearised at the mean, f ≈ f(μ) + J (θ −
μ): rows of its Jacobian replace the inputs, Jᵀ Γ J (the generalised Gauss–Newton matrix) replaces the
Hessian of −log p, and the block is exact for this linear model. Each look-ahead is an extra-gradient step
(L-RVGA, section 4.2, corrected): the network is linearised again at the new mean μ̂, where f ≈ f(μ̂) + Ĵ (μ
− μ̂) + Ĵ (θ − μ), and the block is absorbed from the start again.
(The term Ĵ (μ − μ̂) is what eqs. 139-140 drop.) Sampled networks (4.2.4) are in `sampled_networks`.

With `learn_noise` the variance of normal noise is learned beside θ (`learned_noise`).

The state also carries the prequential log evidence Σ log p(yₜ | y₁ … yₜ₋₁) and the sum of squared
standardised innovations (yₜ − E yₜ)²/Var yₜ (of scalar y), both free by-products of the marginals.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from kalvi.gaussians import Updatable
from kalvi.likelihoods import Likelihood
from kalvi.likelihoods.custom import Sampled
from kalvi.likelihoods.projected import Projected, leading_directions
from kalvi.numerics.linalg import scale_rows
from kalvi.numerics.namespaces import AnyArray, Scalar, Setting, as_setting
from kalvi.numerics.rows import JacobianRows
from kalvi.numerics.sparse_rows import SparseRows
from kalvi.predictors import Linear, Predictor
from kalvi.predictors.models import Model, need_same_outputs
from kalvi.rules import drifts
from kalvi.rules.drifts import Drifting
from kalvi.rules.learned_noise import (
    LearnedNoise,
    NoiseSums,
    squared_residuals,
    student_evidence,
)
from kalvi.rules.recursion import Observations, find_sites
from kalvi.rules.row_blocks import RowBlock, SeenBlock
from kalvi.rules.rule import Batch, StreamRule, in_blocks, normalise_weights
from kalvi.rules.rvga_checks import check_labels, check_settings
from kalvi.rules.sampled_networks import absorb_sampled
from kalvi.rules.schemes import Implicit, Scheme

Vector = Float[Array, " d"]


class Streaming(eqx.Module):
    """The state of a stream: the posterior after the rows so far, their evidence, and counts of
    problems."""

    posterior: Updatable
    log_evidence: Scalar  # Σ log p(yₜ | y₁ … yₜ₋₁), a row of weight w as w rows
    rows: Scalar  # total weight of the rows, discounted if the stream forgets
    innovations: Scalar  # Σ (y − E y)²/Var y under the predictions, discounted alike
    unsolved: Int[AnyArray, ""]  # rows whose implicit equations were not solved
    clipped: Int[AnyArray, ""]  # rows whose negative curvature was set to zero
    noise: LearnedNoise | None = None  # if the rule learns it
    drifting: Drifting | None = None  # if the rule drifts


class RVGA(StreamRule[Streaming]):
    """The streaming rule for any likelihood, scheme, predictor and updatable structure.

    A batch of fewer than `block_size` rows is one block.

    Parameters
    ----------
    likelihood : Likelihood
    scheme : Scheme, default Implicit()
        How an observation updates the distribution of its predictors.
    drift : Drift, number or None
        How the parameters change from row to row (`kalvi.drifts`); a number means `Geometric`, None no
        change.
    forgetting, process_noise : float or None
        The same as drift=Geometric(forgetting) and drift=RandomWalk(process_noise).
    block_size : int, default 16
        The number of rows that are absorbed at once; for a network, between two linearisations.
    samples : int or None
        Average the scheme's expectations over this many draws of the predictors, or of a network's
        parameters, instead of integrating; this needs a key. A network then uses the explicit scheme.
    predictor : Predictor, default Linear()
        The function of θ and a row that gives the predictors: `MultiLinear` for several outputs, or a
        `Network`.
    look_ahead : int, default 0
        How often the network is linearised again, at the mean after the block.
    directions : int or None
        For a network with several outputs, the most rows of the Jacobian for each observation: the gradient
        and the leading eigenvectors of the Fisher information. The cost of a block grows with their square.
    learn_noise : bool, default False
        Whether the variance of normal noise is learned; it starts at the likelihood's.
    unit_noise : bool, default False
        Whether the noise deviation of Normal(1) is the unknown unit of y and of the prior; the evidence is
        then that of Student's t (`learned_noise.student_evidence`).
    """

    likelihood: Likelihood
    scheme: Scheme = Implicit()
    forgetting: Setting | None = eqx.field(converter=as_setting, default=None)
    process_noise: Setting | None = eqx.field(converter=as_setting, default=None)
    block_size: int = eqx.field(static=True, default=16)
    samples: int | None = eqx.field(static=True, default=None)
    predictor: Predictor = Linear()
    look_ahead: int = eqx.field(static=True, default=0)
    directions: int | None = eqx.field(static=True, default=None)
    learn_noise: bool = eqx.field(static=True, default=False)
    unit_noise: bool = eqx.field(static=True, default=False)
    drift: drifts.Drift | None = eqx.field(converter=drifts.as_drift, default=None)

    def __check_init__(self):
        need_same_outputs(self.predictor, self.likelihood)
        check_settings(self)

    def init(self, prior: Updatable, *, key: PRNGKeyArray | None = None) -> Streaming:
        zero, none = jnp.zeros((), prior.mean.dtype), jnp.zeros((), jnp.int32)
        noise = None
        if self.learn_noise:
            variance = Model(self.predictor, self.likelihood).noise_variance()
            noise = LearnedNoise(jnp.asarray(variance, zero.dtype), none)
        drifting = drifts.start(self.drifts(), prior)
        return Streaming(prior, zero, zero, zero, none, none, noise, drifting)

    def drifts(self) -> tuple[drifts.Drift, ...]:
        """All drifts of the parameters between rows."""
        walk = None if self.process_noise is None else drifts.RandomWalk(self.process_noise)
        fade = None if self.forgetting is None else drifts.Geometric(self.forgetting)
        return tuple(drift for drift in (walk, fade, self.drift) if drift is not None)

    def update(
        self, state: Streaming, batch: Batch, *, key: PRNGKeyArray | None = None
    ) -> Streaming:
        n = len(batch.y)
        if n == 0:
            return state
        check_labels(self.likelihood, batch.y)
        rows = in_blocks(batch, min(self.block_size, n))
        draws = self._draw(key, rows.weight.shape, state.posterior.mean.dtype)
        blocks = RowBlock(*rows, jnp.ones_like(rows.weight), draws)
        if isinstance(rows.x, SparseRows):
            alone = 1 if self.drifts() else len(rows.weight)
            state = _replace_posterior(state, state.posterior.prepared(alone))
        if len(rows.weight) == 1:
            state = self._absorb(state, jax.tree.map(lambda a: a[0], blocks))
        else:
            state, _ = jax.lax.scan(lambda s, one: (self._absorb(s, one), None), state, blocks)
        return _replace_posterior(state, state.posterior.unprepared())

    def _draw(self, key: PRNGKeyArray | None, rows: tuple[int, ...], dtype: Any) -> Array | None:
        """Standard normals for each row; for a network a key for each row, the first of which serves its
        block."""
        if self.samples is None:
            return None
        if key is None:
            raise ValueError(
                f"RVGA(samples={self.samples}) draws samples and needs a key; got None."
            )
        if not self.predictor.linear:
            return jr.split(key, rows)
        if not self.scheme.takes_samples:
            raise ValueError(
                f"{type(self.scheme).__name__} takes no sampled expectations; "
                "use Explicit() or MirrorProx() with samples."
            )
        outputs = self.likelihood.outputs
        several = () if outputs == 1 else (outputs,)
        return jr.normal(key, (*rows, self.samples, *several), dtype)

    def _absorb(self, state: Streaming, block: RowBlock) -> Streaming:
        """The state after the block; if times are uneven, it is absorbed in parts that are short."""
        elapsed = block.elapsed if self.drifts() else None
        if elapsed is None:
            present = (block.weight > 0).astype(block.weight.dtype)
            return self._learn(*self._drift(state, block, present))

        def advance(carry):
            state, left = carry
            part, time = drifts.part_within(self.drifts(), state.drifting, elapsed, left)
            now = block._replace(weight=jnp.where(part, block.weight, 0))
            return self._learn(*self._drift(state, now, time)), left & ~part

        start = state, jnp.ones_like(block.weight, bool)
        return jax.lax.while_loop(lambda carry: jnp.any(carry[1]), advance, start)[0]

    def _learn(self, state: Streaming, block: RowBlock) -> Streaming:
        """The state after rows, absorbed at once or, where that would lose digits, partly one by one."""
        if isinstance(block.x, SparseRows):
            state = _replace_posterior(state, state.posterior.prepared())
        left, noise = block.weight > 0, state.noise if self.learn_noise else None
        squares = None if noise is None else jnp.zeros_like(noise.variance)
        progress = _Progress(state, left, squares)
        if len(left) == 1 or not self.predictor.linear:
            progress = self._take(progress, block)
        else:
            progress = jax.lax.while_loop(
                lambda progress: jnp.any(progress.left),
                lambda progress: self._take(progress, block),
                progress,
            )
        if noise is None or progress.squares is None:
            return progress.state
        learned = noise.after(progress.squares, jnp.any(left))
        return eqx.tree_at(lambda s: s.noise, progress.state, learned)

    def _drift(
        self, state: Streaming, block: RowBlock, time: Float[Array, " b"]
    ) -> tuple[Streaming, RowBlock]:
        """The state drifted to the end of the block, and the discount of each row until then."""
        all_drifts = self.drifts()
        if not all_drifts:
            return state, block
        if state.drifting is None:
            raise ValueError(
                "the state was begun by a rule without drift; begin it by init of this one."
            )
        now = drifts.after(all_drifts, state.posterior, state.drifting, jnp.sum(time))
        discount = drifts.share_left(all_drifts, jnp.sum(time) - jnp.cumsum(time))
        seen = now.left * state.rows, now.left * state.innovations
        state = eqx.tree_at(
            lambda s: (s.posterior, s.drifting, s.rows, s.innovations),
            state,
            (now.posterior, now.drifting, *seen),
        )
        return state, block._replace(discount=discount)

    def _take(self, progress: "_Progress", block: RowBlock) -> "_Progress":
        """Absorb the remaining rows, or only the first of them, and return which remain then."""
        (state, left, squares), share = progress, normalise_weights(block.weight)
        block = block._replace(weight=jnp.where(left, block.weight, 0))
        likelihood = self._present_likelihood(state)
        first = self._look(likelihood, state.posterior, state.posterior.mean, block)
        last = self._look_ahead(likelihood, state.posterior, first, block)
        taken = left
        if self.predictor.linear and len(left) > 1:
            at_once = jnp.max(last.sites.strength(last.view.cov)) <= _limit(last.view.cov.dtype)
            taken = jnp.where(at_once, left, left & (jnp.cumsum(left) == 1))
            last = last.taking(taken, at_once)
        if self.samples is None or self.predictor.linear:
            posterior = last.posterior()
        else:
            model, key = Model(self.predictor, likelihood), _first(block.draws)
            posterior = absorb_sampled(
                model, state.posterior, block, self.samples, self.look_ahead, key
            )
        if squares is not None:
            squares = squares + squared_residuals(block.y, jnp.where(taken, share, 0), first.sites)
        state = self._score(state, block, first, last, taken, posterior)
        return _Progress(state, left & ~taken, squares)

    def _present_likelihood(self, state: Streaming) -> Likelihood:
        """The likelihood in the precision of the state, with the noise learned so far."""
        likelihood, dtype = self.likelihood, state.posterior.mean.dtype
        if self.learn_noise and state.noise is not None:
            model = Model(self.predictor, likelihood)
            likelihood = model.with_noise(state.noise.variance).likelihood
        return jax.tree.map(lambda a: a.astype(dtype) if eqx.is_inexact_array(a) else a, likelihood)

    def _look(
        self, likelihood: Likelihood, q: Updatable, centre: Vector, block: RowBlock
    ) -> SeenBlock:
        """The sites of a block with predictors linearised at `centre`."""
        mean, rows, likelihood_of = self._linearise(likelihood, centre, block)
        if centre is not q.mean:
            mean = mean + rows.times(q.mean - centre)
        view = q.view(rows.matrix())
        observed = Observations(block.y, block.weight, block.discount)
        sites = find_sites(self.scheme, likelihood_of, mean, view.cov, observed)
        return SeenBlock(rows, view, sites, likelihood_of)

    def _linearise(
        self, likelihood: Likelihood, centre: Vector, block: RowBlock
    ) -> tuple[Float[Array, "b *c"], JacobianRows, Callable[[Any], Likelihood]]:
        """Predictors at `centre` and their rows, along few directions if required, and the likelihood of
        each."""
        if self.directions is not None and self.directions < likelihood.outputs:
            network: Any = self.predictor
            f = network.values(centre, block.x)
            frames = leading_directions(likelihood, self.directions, f, block.y)
            rows = network.linearise_along(centre, block.x, frames).rows
            start = jnp.zeros_like(rows.times(centre))
            return start, rows, lambda j: Projected(likelihood, f[j], frames[j])
        linearised = self.predictor.linearise(centre, block.x)
        if linearised.extra is not None:
            raise TypeError(
                f"RVGA takes no predictor whose rows have a variance of their own, and "
                f"{type(self.predictor).__name__} has one; use vga, Revisit or KLProximal."
            )
        draws = block.draws
        if draws is None or not self.predictor.linear:
            return linearised.mean, linearised.rows, lambda j: likelihood
        return linearised.mean, linearised.rows, lambda j: Sampled(likelihood, draws[j])

    def _look_ahead(
        self, likelihood: Likelihood, q: Updatable, first: SeenBlock, block: RowBlock
    ) -> SeenBlock:
        """The block linearised again at the mean after it, `look_ahead` times."""
        if self.look_ahead == 0 or self.samples is not None:
            return first
        centre = first.centre(q)
        if self.look_ahead > 1:
            centre = jax.lax.fori_loop(
                1,
                self.look_ahead,
                lambda _, centre: self._look(likelihood, q, centre, block).centre(q),
                centre,
            )
        return self._look(likelihood, q, centre, block)

    def _score(
        self,
        state: Streaming,
        block: RowBlock,
        first: SeenBlock,
        last: SeenBlock,
        taken: Bool[Array, " b"],
        posterior: Updatable,
    ) -> Streaming:
        """Add the log predictions of the labels of the rows taken, each made before its row."""
        sites = first.sites
        var = scale_rows(block.discount, sites.cov)
        y = (
            sites.mean if self.unit_noise else block.y
        )  # where the noise is unknown, log N at its peak
        surprise = jax.vmap(lambda j, *row: first.likelihood_of(j).log_predictive(*row))(
            jnp.arange(len(taken)), y, sites.mean, var, block.weight
        )
        weight = jnp.where(taken, block.discount * block.weight, 0)
        innovations = self._innovations(block, first, var, weight)
        if self.unit_noise:
            before = NoiseSums(state.rows, state.innovations)
            surprise = student_evidence(surprise, before, weight, innovations, block.discount)
        unsolved, clipped = taken & (last.sites.solved == 0), taken & (last.sites.clipped == 1)
        return Streaming(
            posterior,
            state.log_evidence + jnp.sum(jnp.where(taken, surprise, 0)),
            state.rows + jnp.sum(weight),
            state.innovations + jnp.sum(innovations),
            state.unsolved + jnp.sum(unsolved).astype(jnp.int32),
            state.clipped + jnp.sum(clipped).astype(jnp.int32),
            state.noise,
            state.drifting,
        )

    def _innovations(self, block: RowBlock, first: SeenBlock, var: Array, weight: Array) -> Array:
        """(y − E y)²/Var y of each row for one output; zero for several."""
        if self.likelihood.outputs > 1:
            return jnp.zeros_like(weight)
        # a row of weight w stands for w rows, whose mean has 1/w of the noise variance
        expected, spread = jax.vmap(lambda j, *row: first.likelihood_of(j).predict(*row))(
            jnp.arange(len(weight)), first.sites.mean, block.weight * var
        )
        tiny = jnp.finfo(var.dtype).tiny
        innovation = weight * (block.y - expected) ** 2 / jnp.maximum(spread, tiny)
        return jnp.where(jnp.isfinite(innovation), innovation, 0)


class _Progress(NamedTuple):
    """The progress in a block: the state, the remaining rows, and squared residuals for the noise."""

    state: Streaming
    left: Bool[Array, " b"]
    squares: Float[Array, " c"] | None


def _replace_posterior(state: Streaming, posterior: Updatable) -> Streaming:
    return eqx.tree_at(lambda s: s.posterior, state, posterior)


def _first(keys: Any) -> PRNGKeyArray:
    return keys[0]


def _limit(dtype: Any) -> float:
    """The largest γ xᵀΣx that a block of several rows may have."""
    return float(jnp.finfo(dtype).eps) ** -0.25
