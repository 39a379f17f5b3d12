"""A rule's states over a stream, at chosen times: one compiled loop whatever the times."""

from collections.abc import Callable, Iterator
from itertools import chain, pairwise
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from kalvi.rules.rule import Batch, Rule
from kalvi.streams import Buffer, Schedule, run

TIMES = 20
"""How many times a history has, evenly spaced in the logarithm."""


class History(NamedTuple):
    """What was measured, after how many rows."""

    times: np.ndarray
    values: np.ndarray  # a row of them where several things were measured
    last: Any = None  # the state at the end

    @property
    def final(self) -> float:
        """The last value."""
        return float(self.values[-1])


Measure = Callable[[Any], Any]


def whole(x: np.ndarray, y: np.ndarray | None = None, block: int = 1) -> Batch:
    """Rows as one Batch, padded to whole blocks."""
    n = len(x)
    missing = -n % block
    labels = np.zeros(n) if y is None else y
    return Batch(
        jnp.pad(jnp.asarray(x), ((0, missing), (0, 0))),
        jnp.pad(jnp.asarray(labels), (0, missing)),
        jnp.pad(jnp.ones(n), (0, missing)),
    )


def follow(
    rule: Rule,
    prior: Any,
    batch: Batch,
    measure: Measure,
    *,
    block: int = 1,
    key: Any = None,
    times: int = TIMES,
) -> History:
    """What `measure` says of the state before the rows and at so many times, blocks one by one."""
    n = len(batch.y) // block
    moments = np.unique(np.geomspace(1, n, times).astype(int))
    state = strong(rule.init(prior))
    values = [measure(state)]
    for start, stop in pairwise(np.array([0, *moments])):
        reach = jnp.asarray(start), jnp.asarray(stop)
        state = run.call(_advance, rule, state, batch, reach, key, block)
        values.append(measure(state))
    return History(np.array([0, *moments]) * block, np.array(values), state)


def strong(tree: Any) -> Any:
    """The same arrays with types that nothing can promote, so that one compilation serves all calls."""
    return jax.tree.map(lambda leaf: jax.lax.convert_element_type(leaf, leaf.dtype), tree)


def _advance(rule: Rule, state: Any, batch: Batch, reach, key, block: int):
    def step(i, state):
        rows = jax.tree.map(lambda a: jax.lax.dynamic_slice_in_dim(a, i * block, block), batch)
        return rule.update(state, rows, key=None if key is None else jr.fold_in(key, i))

    return jax.lax.fori_loop(reach[0], reach[1], step, state)


def follow_growing(
    rule: Rule, prior: Any, x: np.ndarray, y: np.ndarray, schedule: Schedule, measure: Measure
) -> History:
    """The same with the blocks of a schedule, at the ends of blocks."""
    times, values = [0.0], [measure(rule.init(prior))]

    def record(state: Any) -> None:
        times.append(float(state.rows))
        values.append(measure(state))

    last = run.fit(rule, prior, _batches(x, y, schedule), after_block=record)
    return History(np.array(times), np.array(values), last)


def _batches(x: np.ndarray, y: np.ndarray, schedule: Schedule) -> Iterator[Batch]:
    layout = {"intercept": False, "dtype": np.float64}
    batches, buffer = Buffer().push((x, y, np.ones(len(y))), schedule, **layout)
    return chain(batches, (rest for rest in [buffer.rest(schedule, **layout)] if rest is not None))
