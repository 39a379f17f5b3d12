"""What every algorithm shares: a block of rows, and the two verbs of a rule."""

from abc import abstractmethod
from typing import Any, Generic, NamedTuple, TypeVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

State = TypeVar("State")


class Batch(NamedTuple):
    """A block of rows; a row of weight 0 is padding and changes nothing."""

    x: Float[Array, "b i"]
    y: Float[Array, "b *o"]  # a number a row, or a vector
    weight: Float[Array, " b"]


def shares(weight: Float[Array, " b"]) -> Float[Array, " b"]:
    """The weights as parts of their sum; zero where all are."""
    total = jnp.sum(weight)
    return weight / jnp.where(total > 0, total, 1)


class Rule(eqx.Module, Generic[State]):
    """An algorithm: how a state begins, and what a block of rows does to it."""

    @abstractmethod
    def init(self, prior: Any, *, key: PRNGKeyArray | None = None) -> State:
        """The state before any data, for a Gaussian prior."""

    @abstractmethod
    def update(self, state: State, batch: Batch, *, key: PRNGKeyArray | None = None) -> State:
        """The state after a block of rows."""


def weighted(weight: Float[Array, " n"], a: Float[Array, "n *k"]) -> Float[Array, "n *k"]:
    """weight · a for each row, nothing where the weight is zero."""
    weight = weight.reshape(weight.shape + (1,) * (a.ndim - 1))
    return jnp.where(weight > 0, weight * a, 0)
