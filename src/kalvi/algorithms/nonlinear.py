"""One pass of L-RVGA over a network: rows of its Jacobian take the place of the inputs.

Lambert, Bonnabel & Bach (2023), section 4.2, corrected. With f(θ, x) the predictors of an observation and
J = ∂f/∂θ, the generalised Gauss–Newton matrix Jᵀ Γ J stands for the Hessian of −log p, with Γ its
curvature in f.

Linearised at the mean, f ≈ f(μ) + J (θ − μ): the predictors of a block are Gaussian, and the block is that
of `groups`, exact for this model of it. Each look-ahead is an extra-gradient step: the network is
linearised again at the mean μ̂ found, where f ≈ f(μ̂) + Ĵ (μ − μ̂) + Ĵ (θ − μ), and the block is absorbed
from the start again. (The term Ĵ (μ − μ̂) is what eqs. 139-140 drop.)

Sampled, with `samples=K` (4.2.4): at draws θₖ of the posterior, with gₖ the gradient of log p in f and Γₖ
the Fisher information, all rows of a block at once,

    Σ⁻¹ ← Σ⁻¹ + (1/K) Σ Jₖᵀ Γₖ Jₖ,        μ ← μ + Σ₊ (1/K) Σ Jₖᵀ (gₖ + Γₖ Jₖ (μ̂ − μ)),

μ̂ = μ at first; a look-ahead draws about the mean found, with the covariance from before the block.

Noise. With `learn_noise` the variance of a `Normal` or `MultiNormal` is learned from the squared
residuals after each block, (y − E f)² + Var f, averaged with steps (t + 1)^{−0.6} for t blocks.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Int, PRNGKeyArray

from kalvi import linalg
from kalvi.algorithms.base import Batch, Rule, shares
from kalvi.algorithms.groups import Groups, solve_groups
from kalvi.algorithms.sites import Implicit, Scheme
from kalvi.frames import Framed, framed
from kalvi.gaussians import Updatable
from kalvi.models import Model, OneOutput
from kalvi.vectors import Softmax, VectorLikelihood

Scalar = Float[Array, ""]

NOISE_POWER = 0.6


class Passing(eqx.Module):
    """A posterior over the parameters of a network in the making."""

    posterior: Updatable
    noise: Float[Array, " c"]  # the variance of the noise; 1 where the likelihood has none
    log_evidence: Scalar  # Σ log p(yₜ | y₁ … yₜ₋₁) by the linearised predictions
    rows: Scalar
    blocks: Int[Array, ""]
    unsolved: Int[Array, ""]


class NetworkRVGA(Rule[Passing]):
    """The streaming rule for a network: each block is seen once.

    Parameters
    ----------
    model : Model
    scheme : Scheme, default Implicit()
        How an observation updates its linearised predictors.
    look_ahead : int, default 1
        How often a block's linearisation is moved to the mean it led to.
    directions : int or None, default None
        Rows that an observation with several outputs may have: the cost of a block grows with their square.
        The gradient and the leading eigenvectors of the Fisher information are kept; None keeps all.
    samples : int or None, default None
        Average gradients and Fisher information over this many draws of the parameters instead; `scheme`
        is not used then, and a key is needed.
    learn_noise : bool, default False
        Whether the variance of the noise is learned; it starts at the likelihood's.
    block_size : int, default 8
        Observations between two linearisations, which are also absorbed by one projection.
    """

    model: Model
    scheme: Scheme = Implicit()
    look_ahead: int = eqx.field(static=True, default=1)
    directions: int | None = eqx.field(static=True, default=None)
    samples: int | None = eqx.field(static=True, default=None)
    learn_noise: bool = eqx.field(static=True, default=False)
    block_size: int = eqx.field(static=True, default=8)

    def __check_init__(self):
        least = {"look_ahead": 0, "directions": 1, "samples": 1, "block_size": 1}
        for name, smallest in least.items():
            value = getattr(self, name)
            if value is not None and value < smallest:
                raise ValueError(f"{name} must be at least {smallest}; got {value}.")
        if self.samples is not None and self.directions is not None:
            raise ValueError("directions= is for linearised blocks; use samples=None with it.")
        if self.learn_noise and self.model.noise() is None:
            raise TypeError(
                "learn_noise=True needs a likelihood with a noise variance, Normal or MultiNormal; "
                f"got {type(self.model.likelihood).__name__}."
            )

        if self.learn_noise and self.directions is not None:
            raise ValueError(
                "directions= is for classes; an output with noise needs its own row: use directions=None."
            )

    def init(self, prior: Updatable, *, key: PRNGKeyArray | None = None) -> Passing:
        zero, none = jnp.zeros((), prior.mean.dtype), jnp.zeros((), jnp.int32)
        noise = self.model.noise()
        noise = jnp.ones(1) if noise is None else noise
        return Passing(prior, noise.astype(zero.dtype), zero, zero, none, none)

    def update(self, state: Passing, batch: Batch, *, key: PRNGKeyArray | None = None) -> Passing:
        if self.samples is not None and key is None:
            raise ValueError(
                f"NetworkRVGA(samples={self.samples}) draws samples and needs a key; got None."
            )
        n = len(batch.weight)
        if isinstance(self.model.likelihood, OneOutput | Softmax) and batch.y.ndim != 1:
            raise ValueError(f"y must have one number a row; got shape {batch.y.shape}.")
        size = min(self.block_size, n)
        padded = jax.tree.map(
            lambda a: jnp.pad(a, [(0, -n % size)] + [(0, 0)] * (a.ndim - 1)), batch
        )
        blocks = jax.tree.map(lambda a: a.reshape(-1, size, *a.shape[1:]), padded)
        keys = jr.split(jr.key(0) if key is None else key, len(blocks.weight))

        def advance(state, drawn):
            return self._absorb(state, *drawn), None

        return jax.lax.scan(advance, state, (blocks, keys))[0]

    def _absorb(self, state: Passing, block: Batch, key: PRNGKeyArray) -> Passing:
        q, model = state.posterior, self.model
        model = jax.tree.map(lambda a: jnp.asarray(a, q.mean.dtype), model)  # of the likelihood
        model = model.with_noise(state.noise) if self.learn_noise else model
        first = found = self._linear(model, q, q.mean, block)
        if self.look_ahead and self.samples is None:
            centre = self._look_ahead(model, q, first.centre(q), block)
            found = self._linear(model, q, centre, block)
        posterior = (
            found.posterior() if self.samples is None else self._sampled(model, q, block, key)
        )
        law = first.groups
        surprise = jax.vmap(lambda *row: first.likelihood.log_predictive(*row))(
            first.y, law.mean, law.cov, block.weight
        )
        return Passing(
            posterior,
            self._noise(state, block, law) if self.learn_noise else state.noise,
            state.log_evidence + jnp.sum(jnp.where(block.weight > 0, surprise, 0)),
            state.rows + jnp.sum(block.weight),
            state.blocks + jnp.any(block.weight > 0),
            state.unsolved
            + jnp.sum((block.weight > 0) & (found.groups.solved == 0)).astype(jnp.int32),
        )

    def _linear(self, model: Model, q: Updatable, centre: Float[Array, " d"], block: Batch):
        """The sites of a block whose network is linearised at `centre`."""
        likelihood, f, rows, y = self._rows(model, centre, block)
        mean = f + (rows @ (q.mean - centre)).reshape(f.shape)
        view = q.view(rows)
        ones = jnp.ones_like(block.weight)
        groups = solve_groups(self.scheme, likelihood, mean, view.cov, y, block.weight, ones)
        return _Absorbed(rows, groups, view, likelihood, y)

    def _rows(self, model: Model, centre: Float[Array, " d"], block: Batch):
        """The likelihood, its predictors at `centre`, their rows, and the labels; along frames if asked."""
        likelihood = model.likelihood
        if self.directions is None or self.directions >= likelihood.outputs:
            return likelihood, *model.linearise(centre, block.x), block.y
        f = model.predictor.values(centre, block.x)
        frames, y = framed(likelihood, self.directions, f, block.y)
        rows = model.predictor.linearise_along(centre, block.x, frames)[1]
        return Framed(likelihood, self.directions), jnp.zeros_like(frames[:, 0]), rows, y

    def _look_ahead(
        self, model: Model, q: Updatable, centre: Float[Array, " d"], block: Batch
    ) -> Float[Array, " d"]:
        """The mean after the look-aheads that follow the first."""
        if self.look_ahead == 1:
            return centre
        return jax.lax.fori_loop(
            1, self.look_ahead, lambda _, c: self._linear(model, q, c, block).centre(q), centre
        )

    def _sampled(self, model: Model, q: Updatable, block: Batch, key: PRNGKeyArray) -> Updatable:
        """The explicit step with sampled expectations, and its look-aheads."""
        draws: Any = self.samples
        away = q.sample(key, draws) - q.mean[None, :]
        centre, posterior = q.mean, q
        for _ in range(1 + self.look_ahead):
            f, rows = jax.vmap(lambda theta: model.linearise(theta, block.x))(
                centre[None, :] + away
            )
            f, rows = f.reshape(-1, f.shape[-1]), rows.reshape(-1, rows.shape[-1])
            y = jnp.tile(block.y, (draws,) + (1,) * (block.y.ndim - 1))
            share = jnp.tile(block.weight, draws) / draws
            slope = jax.vmap(jax.grad(model.likelihood.log_prob))(f, y)
            bend = jax.vmap(model.likelihood.information)(f)
            moved = (rows @ (centre - q.mean)).reshape(f.shape)
            pull = share[:, None] * (slope + jnp.einsum("ncb,nb->nc", bend, moved))
            roots = jax.vmap(linalg.semidefinite_root)(share[:, None, None] * bend)
            view = q.view(rows)
            posterior = view.absorb(_gained(view.cov, roots, pull.ravel()), roots)
            centre = posterior.mean
        return posterior

    def _noise(self, state: Passing, block: Batch, law: Groups) -> Float[Array, " c"]:
        """The running average of (y − E f)² + Var f after each observation."""
        shape = law.mean.shape
        after = law.mean + jnp.einsum("ncb,nb->nc", law.cov, law.step)
        taken = jnp.einsum("ncb,nbk->nck", law.cov, law.root)
        identity = jnp.eye(shape[1], dtype=after.dtype)[None]
        inner = jnp.einsum("nbc,nbk->nck", law.root, taken) + identity
        var = jax.vmap(lambda v, a, m: jnp.diagonal(v - a @ jnp.linalg.solve(m, a.T)))(
            law.cov, taken, inner
        )
        residual = (block.y.reshape(shape) - after) ** 2 + jnp.maximum(var, 0)
        fresh = shares(block.weight) @ residual
        step = jnp.where(jnp.sum(block.weight) > 0, (state.blocks + 2.0) ** -NOISE_POWER, 0)
        return state.noise + step.astype(fresh.dtype) * (fresh - state.noise)


class _Absorbed(eqx.Module):
    rows: Float[Array, "m d"]
    groups: Groups
    view: Any
    likelihood: VectorLikelihood
    y: Float[Array, "n *o"]

    def centre(self, q: Updatable) -> Float[Array, " d"]:
        """The mean that the block leads to."""
        return q.mean + q.matvec(self.rows.T @ self.groups.coefficient.ravel())

    def posterior(self) -> Updatable:
        return self.view.absorb(self.groups.coefficient.ravel(), self.groups.root)


def _gained(
    cov: Float[Array, "m m"], roots: Float[Array, "n c c"], pull: Float[Array, " m"]
) -> Float[Array, " m"]:
    """(I + Γ K)⁻¹ r, for the gain after the block."""
    n, c, _ = roots.shape
    mixed = jnp.einsum("ncb,nck->nbk", roots, cov.reshape(n, c, n * c)).reshape(n * c, n * c)
    inner = jnp.einsum("mnc,ncb->mnb", mixed.reshape(n * c, n, c), roots).reshape(n * c, n * c)
    root = linalg.steady_cholesky(linalg.identity_like(inner) + inner)
    back = linalg.cho_solve(root, mixed @ pull)
    return pull - jnp.einsum("ncb,nb->nc", roots, back.reshape(n, c)).ravel()
