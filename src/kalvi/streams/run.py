"""The loop that feeds blocks to a rule, and the place where formulas become compiled programs.

Two engines run the same formulas, and the arrays decide which: JAX arrays go through a compiled program;
with NumPy arrays only, NumPy does the work (`numerics.interpreter`), without compiling anything or starting
a backend.
"""

from collections.abc import Callable, Iterable
from functools import partial
from threading import Thread
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import PRNGKeyArray

from kalvi.numerics.interpreter import interpret, interpret_leaves
from kalvi.numerics.namespaces import has_jax, is_array, is_jax, is_number
from kalvi.numerics.precision import full_precision_products, matching_precision
from kalvi.numerics.program_cache import cached_programs
from kalvi.rules.rule import Batch, Rule
from kalvi.system.forks import refuse_inherited_backend

State = TypeVar("State")

LARGE_BLOCK = 2**20
"""Blocks with more bytes wait for the block before them. Otherwise about thirty would queue up in memory;
the host still makes the next block while the device works on this one."""

_compiling: list[Thread] = []
"""The threads that compile programs ahead of their use."""


def fit(
    rule: Rule[State],
    prior: Any,
    batches: Iterable[Batch],
    *,
    key: PRNGKeyArray | None = None,
    after_block: Callable[[State], None] | None = None,
) -> State:
    """The state of `rule` after all batches, starting from `prior`."""
    return resume(rule, begin(rule, prior, key=key), batches, key=key, after_block=after_block)


def resume(
    rule: Rule[State],
    state: State,
    batches: Iterable[Batch],
    *,
    key: PRNGKeyArray | None = None,
    first_block: int = 0,
    after_block: Callable[[State], None] | None = None,
) -> State:
    """`fit` from a state instead of a prior; the given state stays intact.

    The number of the block is folded into `key`, so a run resumed at `first_block` makes the same draws as
    an uninterrupted one.
    """
    state = copied(state)
    for block, batch in enumerate(batches, first_block):
        block_key = None if key is None else _key_of(key, block)
        state = advance(rule, state, batch, key=block_key)
        if after_block is not None:
            after_block(state)
    return state


def _key_of(key: PRNGKeyArray, block: int) -> PRNGKeyArray:
    with cached_programs():
        return _fold_in(key, np.uint32(block))


_fold_in = jax.jit(jr.fold_in)


def advance(
    rule: Rule[State], state: State, batch: Any, *, key: PRNGKeyArray | None = None
) -> State:
    """The state after one block. JAX arrays of the old state cannot be used again: the result takes their
    memory.

    The block is a `Batch`, or whatever else the rule learns from.
    """
    leaves, tree = jax.tree.flatten((rule, state, batch, key))
    if not has_jax(leaves):
        return interpret_leaves(_update, leaves, tree)
    _prepare_backend()
    if sum(getattr(leaf, "nbytes", 0) for leaf in jax.tree.leaves(batch)) > LARGE_BLOCK:
        jax.block_until_ready(state)
    with cached_programs():
        return _advance(*_take_apart(leaves, tree))


def compile_ahead(rule: Rule[State], state: State, batches: Iterable[Any]) -> None:
    """Start a thread that compiles the programs of `advance` for such a state and such batches.

    The thread runs them on zeros. A call of a compiled program waits until the thread is done.
    """
    zeros = [jax.tree.map(_zeros_like, (state, batch)) for batch in batches]
    precision = jnp.result_type(float)

    def compile_all() -> None:
        with matching_precision(precision):
            for state, batch in zeros:
                state = jax.tree.map(jnp.asarray, state)
                _advance(*_take_apart(*jax.tree.flatten((rule, state, batch, None))))

    _compiling.append(Thread(target=compile_all, name="kalvi compiles"))
    _compiling[-1].start()


def _zeros_like(leaf: Any) -> Any:
    return np.zeros_like(leaf) if is_array(leaf) else leaf


def _prepare_backend() -> None:
    """Refuse a backend inherited through a fork, and wait for compilations in the background."""
    refuse_inherited_backend()
    while _compiling:
        _compiling.pop().join()


def copied(tree: State) -> State:
    """The tree with copies of its JAX arrays, which programs overwrite; NumPy arrays are never
    overwritten."""
    if not is_jax(tree):
        return tree
    refuse_inherited_backend()
    return jax.tree.map(lambda leaf: jnp.array(leaf) if is_array(leaf) else leaf, tree)


def begin(rule: Rule[State], prior: Any, *, key: PRNGKeyArray | None = None) -> State:
    """The state of a rule before any data, with arrays of JAX or NumPy like those of the prior."""
    if is_jax(prior, key):
        return rule.init(prior, key=key)
    return interpret(_init, rule, prior, key)


def _init(rule: Rule[State], prior: Any, key: PRNGKeyArray | None) -> State:
    return rule.init(prior, key=key)


def _update(rule: Rule[State], state: State, batch: Any, key: PRNGKeyArray | None) -> State:
    return rule.update(state, batch, key=key)


def _take_apart(leaves: list, tree: Any) -> tuple[tuple, list, list]:
    """The static description that a program is compiled for, the arrays of its state, and all other arrays.

    The arrays are flat lists, because taking modules apart is most of the cost of calling a small program.
    """
    rule, state, _, _ = tree.children()
    begin, end = rule.num_leaves, rule.num_leaves + state.num_leaves
    of_rule = [leaf if is_number(leaf) else None for leaf in leaves[:begin]]
    constants = tuple(None if is_number(leaf) else leaf for leaf in leaves[:begin])
    return (tree, constants), leaves[begin:end], of_rule + leaves[end:]


@partial(jax.jit, static_argnums=0, donate_argnums=1)
def _advance(made_for, state, numbers):
    tree, constants = made_for
    of_rule, others = numbers[: len(constants)], numbers[len(constants) :]
    of_rule = [c if n is None else n for c, n in zip(constants, of_rule, strict=True)]
    rule, state, batch, key = tree.unflatten([*of_rule, *state, *others])
    with full_precision_products():
        return rule.update(state, batch, key=key)


def call(function: Callable, *args):
    """function(*args), for the batch algorithms and for predictions."""
    leaves, tree = jax.tree.flatten(args)
    if not has_jax(leaves):
        return interpret_leaves(function, leaves, tree)
    _prepare_backend()
    settings_too = jax.tree.map(lambda a: jnp.asarray(a) if isinstance(a, float) else a, args)
    with cached_programs():
        return _call(function, *settings_too)


@eqx.filter_jit
def _call(function: Callable, *args):
    with full_precision_products():
        return function(*args)
