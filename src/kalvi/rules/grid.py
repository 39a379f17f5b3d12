"""Several priors side by side: one rule, one stream, one posterior for each."""

from typing import Any, TypeVar

import equinox as eqx
import jax
from jaxtyping import PRNGKeyArray

from kalvi.numerics.namespaces import is_jax, namespace_of
from kalvi.rules.base import Batch, StreamRule

State = TypeVar("State")


class SideBySide(StreamRule[State]):
    """The rule run on a stack of priors (`stack`); its state has a leading axis, one entry a prior."""

    rule: StreamRule[State]

    def init(self, prior: State, *, key: PRNGKeyArray | None = None) -> State:
        return eqx.filter_vmap(lambda one: self.rule.init(one, key=key))(prior)

    def update(self, state: State, batch: Batch, *, key: PRNGKeyArray | None = None) -> State:
        # one after the other: if they were vectorised, both sides of every branch would run for each prior
        return jax.lax.map(lambda one: self.rule.update(one, batch, key=key), state)


def stack(priors: list[State]) -> State:
    """One pytree with a leading axis from several of the same shapes."""
    return jax.tree.map(lambda *leaves: namespace_of(*leaves).stack(leaves), *priors)


def take(state: State, index: int) -> State:
    """One member of a stacked state."""
    return jax.tree.map(lambda leaf: leaf[index], state)


def put(state: State, index: int, member: State) -> State:
    """A copy of the stacked state with one member replaced."""

    def replace(leaf: Any, new: Any) -> Any:
        if is_jax(leaf):
            return leaf.at[index].set(new)
        leaf = leaf.copy()
        leaf[index] = new
        return leaf

    return jax.tree.map(replace, state, member)
