"""The loop that feeds blocks to a rule, and the only jit boundary of the core."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import PRNGKeyArray

from kalvi.numerics.precision import full_precision_products
from kalvi.rules.base import Batch, Rule
from kalvi.system.forks import refuse_inherited_backend

State = TypeVar("State")

LARGE_BLOCK = 2**20
"""Blocks of more bytes wait for the one before them: some thirty would queue up in memory otherwise, and
the host makes the next block while the device works on this one all the same."""


def fit(
    rule: Rule[State],
    prior: Any,
    batches: Iterable[Batch],
    *,
    key: PRNGKeyArray | None = None,
    after_block: Callable[[State], None] | None = None,
) -> State:
    """The state of `rule` after all batches, starting from `prior`."""
    return resume(rule, rule.init(prior, key=key), batches, key=key, after_block=after_block)


def resume(
    rule: Rule[State],
    state: State,
    batches: Iterable[Batch],
    *,
    key: PRNGKeyArray | None = None,
    first_block: int = 0,
    after_block: Callable[[State], None] | None = None,
) -> State:
    """`fit` from a state instead of a prior; the state given is left intact.

    The block's number is folded into `key`, so a run resumed at `first_block` draws what an
    uninterrupted one would have drawn.
    """
    state = copied(state)
    for block, batch in enumerate(batches, first_block):
        block_key = None if key is None else jr.fold_in(key, block)
        state = advance(rule, state, batch, key=block_key)
        if after_block is not None:
            after_block(state)
    return state


def advance(
    rule: Rule[State], state: State, batch: Any, *, key: PRNGKeyArray | None = None
) -> State:
    """The state after one block, in the memory of the state given, which is spent.

    The block is a `Batch`, or whatever else the rule learns from.
    """
    refuse_inherited_backend()
    numbers, constants = eqx.partition(rule, eqx.is_array)
    if sum(getattr(leaf, "nbytes", 0) for leaf in jax.tree.leaves(batch)) > LARGE_BLOCK:
        jax.block_until_ready(state)
    return _advance(constants, state, numbers, batch, key)


def copied(tree: State) -> State:
    """The same arrays in memory of their own."""
    refuse_inherited_backend()
    return jax.tree.map(lambda leaf: jnp.array(leaf) if eqx.is_array(leaf) else leaf, tree)


@partial(jax.jit, static_argnums=0, donate_argnums=1)
def _advance(constants, state, numbers, batch, key):
    with full_precision_products():
        return eqx.combine(numbers, constants).update(state, batch, key=key)


def call(function: Callable, *args):
    """function(*args), compiled; for the batch algorithms and for predictions."""
    refuse_inherited_backend()
    return _call(function, *args)


@eqx.filter_jit
def _call(function: Callable, *args):
    with full_precision_products():
        return function(*args)
