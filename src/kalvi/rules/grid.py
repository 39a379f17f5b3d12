"""Several priors side by side: one rule, one stream, one posterior for each."""

from typing import TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import PRNGKeyArray

from kalvi.rules.base import Batch, StreamRule

State = TypeVar("State")


class SideBySide(StreamRule[State]):
    """The rule run on a stack of priors (`stack`); its state has a leading axis, one entry a prior."""

    rule: StreamRule[State]

    def init(self, prior: State, *, key: PRNGKeyArray | None = None) -> State:
        return eqx.filter_vmap(lambda one: self.rule.init(one, key=key))(prior)

    def update(self, state: State, batch: Batch, *, key: PRNGKeyArray | None = None) -> State:
        # in turn, not vectorised: a vectorised branch would take both of its ways for every prior
        return jax.lax.map(lambda one: self.rule.update(one, batch, key=key), state)


def stack(priors: list[State]) -> State:
    """One pytree with a leading axis from several of the same shapes."""
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *priors)


def take(state: State, index: int) -> State:
    """One entry of a stacked state."""
    return jax.tree.map(lambda leaf: leaf[index], state)
