"""What every algorithm shares: a block of rows, and the verbs of a rule.

A `Rule` says how a state begins (`init`) and what a block of rows does to it (`update`). What the state is
between two blocks differs, and with it who may run the rule and how often rows are shown to it:

    StreamRule     the posterior of the rows so far; every row is shown once, in any order
    PassRule       sums over the rows of a pass; `turn`, at its end, makes the next Gaussian of them
    IterativeRule  an iterate; every update is one step, and rows are shown as often as steps are wanted
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

    x: Rows  # sparse rows of several blocks are stacked, a block each
    y: Float[AnyArray, "b *o"]  # a number for each row, or a vector
    weight: Float[AnyArray, " b"]
    elapsed: Float[AnyArray, " b"] | None = None  # the time before each row, if it is not 1 for all


def normalise_weights(weight: Float[Array, " b"]) -> Float[Array, " b"]:
    """The weights divided by their sum; all zero if they are all zero."""
    total = jnp.sum(weight)
    return weight / jnp.where(total > 0, total, 1)


def in_blocks(rows: Tree, size: int, fill: str = "constant") -> Tree:
    """The rows of every array of a tree in blocks of one size, the block first.

    The last is filled with zeros ("constant") or, where derivatives must exist, with the last row ("edge").
    Sparse rows come in blocks of that size.
    """

    def cut(a: Any) -> Any:
        if isinstance(a, SparseRows):
            return a.as_blocks(size)
        padded = jnp.pad(a, [(0, -len(a) % size)] + [(0, 0)] * (a.ndim - 1), mode=fill)
        return padded.reshape(-1, size, *a.shape[1:])

    return jax.tree.map(cut, rows, is_leaf=lambda leaf: isinstance(leaf, SparseRows))


class Rule(eqx.Module, Generic[State]):
    """An algorithm: how a state begins, and what a block of rows does to it."""

    @abstractmethod
    def init(self, prior: Any, *, key: PRNGKeyArray | None = None) -> State:
        """The state before any data, for a Gaussian prior."""

    @abstractmethod
    def update(self, state: State, batch: Batch, *, key: PRNGKeyArray | None = None) -> State:
        """The state after a block of rows."""


class StreamRule(Rule[State], Generic[State]):
    """One pass: after each block the state is what all rows so far say."""


class PassRule(Rule[State], Generic[State]):
    """Passes over all rows: `update` adds up, and `turn` moves on."""

    @abstractmethod
    def turn(self, state: State) -> State:
        """The state at the beginning of the next pass."""


class IterativeRule(Rule[State], Generic[State]):
    """Steps from batches of rows that come again: the state gets better with each."""


def weigh_rows(weight: Float[Array, " n"], a: Float[Array, "n *k"]) -> Float[Array, "n *k"]:
    """weight · a for each row; zero where the weight is zero, even if a is not finite."""
    weight = weight.reshape(weight.shape + (1,) * (a.ndim - 1))
    return jnp.where(weight > 0, weight * a, 0)
