"""Training: the parameters that maximise log p(θ | D), in batches."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, PRNGKeyArray

from kalvi.numerics.namespaces import Scalar, Setting, as_setting
from kalvi.rules.rule import Batch, IterativeRule, normalise_weights
from kalvi.rules.vifa.rule import in_batches

ADAM = optax.scale_by_adam()
LAST = 0.01
"""The share of the learning rate that is left at the horizon."""


class TrainingState(eqx.Module):
    """The current parameters, and the state of the optimiser."""

    theta: Float[Array, " d"]
    memory: Any
    steps: Int[Array, ""]


class Training(IterativeRule[TrainingState]):
    """Descent of −log p(θ | D)/N with a prior N(0, diag α⁻¹), batch by batch.

    Parameters
    ----------
    model : Model or LogLikelihood
    n_samples : float
        N.
    prior_precision : float or array of shape (d,)
    rate : float
        The learning rate; it falls along a cosine over `horizon` steps, or stays constant if that is None.
    direction : Optax transformation, default Adam's
        The transformation of a gradient before it is multiplied by the rate.
    batch_size : int or None
        As in `VIFA`.
    """

    model: Any
    n_samples: Setting = eqx.field(converter=as_setting)
    prior_precision: Setting = eqx.field(converter=as_setting, default=0.0)
    rate: Setting = eqx.field(converter=as_setting, default=0.01)
    horizon: Scalar | None = eqx.field(converter=as_setting, default=None)
    direction: Any = eqx.field(static=True, default=ADAM)
    batch_size: int | None = eqx.field(static=True, default=None)

    def init(self, prior: Float[Array, " d"], *, key: PRNGKeyArray | None = None) -> TrainingState:
        """The state with these initial parameters."""
        return TrainingState(prior, self.direction.init(prior), jnp.zeros((), jnp.int32))

    def update(
        self, state: TrainingState, batch: Batch, *, key: PRNGKeyArray | None = None
    ) -> TrainingState:
        return in_batches(lambda *args: self._descend(*args), state, batch, self.batch_size, key)

    def _descend(self, state: TrainingState, batch: Batch, key: PRNGKeyArray) -> TrainingState:
        gradient = jax.grad(lambda theta: self.loss(theta, batch))(state.theta)
        move, memory = self.direction.update(gradient, state.memory, state.theta)
        theta = state.theta - self._rate(state.steps).astype(move.dtype) * move
        return TrainingState(theta, memory, state.steps + 1)

    def _rate(self, steps: Int[Array, ""]) -> Scalar:
        if self.horizon is None:
            return jnp.asarray(self.rate)
        way = jnp.minimum(steps / self.horizon, 1)
        return self.rate * (LAST + (1 - LAST) * (1 + jnp.cos(jnp.pi * way)) / 2)

    def loss(self, theta: Float[Array, " d"], batch: Batch) -> Scalar:
        """−log p(θ | D)/N, estimated from a batch of the N rows."""
        terms = jax.vmap(lambda x, y: self.model.log_prob(theta, x, y))(batch.x, batch.y)
        fit = normalise_weights(batch.weight) @ terms
        return jnp.sum(self.prior_precision * theta**2) / (2 * self.n_samples) - fit
