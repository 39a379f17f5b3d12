"""The common parts of all algorithms: blocks of rows, and the interface of a rule.

A `Rule` says how a state begins (`init`) and how a block of rows changes it (`update`). There are three
kinds. They differ in the meaning of the state between two blocks, and in how often rows are shown:

    StreamRule     the posterior of the rows so far; every row is shown once, in any order
    PassRule       sums over the rows of a pass; `turn` makes the next Gaussian from them at its end
    IterativeRule  an iterate; every update is one step, and rows are shown for as many steps as wanted
"""

from abc import abstractmethod
from typing import Any, Generic, NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from kalvi.numerics.namespaces import AnyArray
from kalvi.numerics.sparse_rows import Rows, SparseRows

State = TypeVar("State")
Tree = TypeVar("Tree")


class Batch(NamedTuple):
    """A block of rows; a row of weight 0 is padding and changes nothing."""

    x: Rows  # sparse rows of several blocks are stacked
    y: Float[AnyArray, "b *o"]  # a number for each row, or a vector
    weight: Float[AnyArray, " b"]
    elapsed: Float[AnyArray, " b"] | None = None  # the time before each row, if not always 1


def normalise_weights(weight: Float[Array, " b"]) -> Float[Array, " b"]:
    """The weights divided by their sum, or zeros if all are zero."""
    total = jnp.sum(weight)
    return weight / jnp.where(total > 0, total, 1)


def in_blocks(rows: Tree, size: int, fill: str = "constant") -> Tree:
    """The rows of every array of a tree in blocks of one size, with the block as first axis.

    The last block is padded with zeros ("constant") or, if derivatives must exist, with the last row
    ("edge"). Sparse rows are given in blocks of this size.
    """

    def cut(a: Any) -> Any:
        if isinstance(a, SparseRows):
            return a.as_blocks(size)
        padded = jnp.pad(a, [(0, -len(a) % size)] + [(0, 0)] * (a.ndim - 1), mode=fill)
        return padded.reshape(-1, size, *a.shape[1:])

    return jax.tree.map(cut, rows, is_leaf=lambda leaf: isinstance(leaf, SparseRows))


class Rule(eqx.Module, Generic[State]):
    """An algorithm: how its state begins, and how a block of rows changes it."""

    @abstractmethod
    def init(self, prior: Any, *, key: PRNGKeyArray | None = None) -> State:
        """The state before any data, for a Gaussian prior."""

    @abstractmethod
    def update(self, state: State, batch: Batch, *, key: PRNGKeyArray | None = None) -> State:
        """The state after a block of rows."""


class StreamRule(Rule[State], Generic[State]):
    """An algorithm of one pass: after each block the state is the result for all rows so far."""


class PassRule(Rule[State], Generic[State]):
    """An algorithm of several passes over all rows: `update` adds up sums, and `turn` makes the next
    Gaussian."""

    @abstractmethod
    def turn(self, state: State) -> State:
        """The state at the beginning of the next pass."""


class IterativeRule(Rule[State], Generic[State]):
    """An algorithm of many steps, from batches of rows that are shown again and again."""


def weigh_rows(weight: Float[Array, " n"], a: Float[Array, "n *k"]) -> Float[Array, "n *k"]:
    """weight · a for each row; zero if the weight is zero, even if a is not finite."""
    weight = weight.reshape(weight.shape + (1,) * (a.ndim - 1))
    return jnp.where(weight > 0, weight * a, 0)
