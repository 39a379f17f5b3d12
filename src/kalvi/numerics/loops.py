"""Loops of short steps, in the form that a CPU runs fastest.

XLA makes a task of every operation, and on a CPU a task costs more than the operation if there are few
numbers. XLA compiles a loop that carries less than a kilobyte as one task. `compact_loop` requests the same
for loops that carry more, by the attributes that XLA itself writes on small loops: a call that is not
inlined and is marked as small. A version of XLA that does not know these attributes compiles the loop like
any other. A task cannot contain operations that XLA leaves to a library, such as large sums and most of
linear algebra.
"""

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap
from jax.experimental.xla_metadata import set_xla_metadata
from jax.extend import core

from kalvi.numerics.platforms import is_traced_for_numpy, platform

T = TypeVar("T")

ONE_TASK = {"inlineable": "false", "xla_cpu_small_call": "true"}
"""The attributes that XLA writes on a call that is one task."""
WHOLE = frozenset(
    """
    abs add and argmax argmin atan2 broadcast_in_dim cbrt ceil clamp concatenate
    convert_element_type copy copy_p cos cosh digamma div dot_general dynamic_slice
    dynamic_update_slice eq erf erf_inv erfc exp exp2 expand_dims expm1 floor ge gt integer_pow
    iota is_finite le lgamma log log1p logistic lt max min mul ne neg not or pad pow reduce_and
    reduce_max reduce_min reduce_or reduce_sum rem reshape round rsqrt select_n sign sin sinh slice
    split sqrt square squeeze stack stop_gradient sub tan tanh transpose xor cond custom_jvp_call
    custom_vjp_call closed_call jit scan while
    """.split()  # noqa: SIM905
)
"""Operations that XLA compiles itself if their arrays are small, and does not leave to a library."""
MOST_ENTRIES = 2048
"""XLA leaves sums and products of more than about 4000 numbers to a library."""


def compact_loop(n: int, step: Callable[[Any, T], T], start: T) -> T:
    """`fori_loop` from 0 to n, as one task on a CPU if its operations allow it."""

    def run(start: T) -> T:
        return jax.lax.fori_loop(0, n, step, start)

    if is_traced_for_numpy() or platform() != "cpu":
        return run(start)
    traced, shapes = jax.make_jaxpr(run, return_shape=True)(start)
    if not all(_is_whole(equation) for equation in _equations(traced.jaxpr)):
        return run(start)
    leaves = _one_task(traced.jaxpr)(*traced.consts, *jax.tree.leaves(start))
    return jax.tree.unflatten(jax.tree.structure(shapes), leaves)


def _one_task(jaxpr: Any) -> Callable[..., list[Any]]:
    """The program as one task, with its constants first; under `vmap`, as it was written."""
    count = len(jaxpr.constvars)

    def plain(*args: Any) -> list[Any]:
        closed = core.ClosedJaxpr(jaxpr, args[:count])
        return core.jaxpr_as_fun(closed)(*args[count:])

    @custom_vmap
    def task(*args: Any) -> list[Any]:
        with set_xla_metadata(**ONE_TASK):
            return jax.jit(plain)(*args)

    @task.def_vmap
    def _(size: int, mapped: list[bool], *args: Any) -> tuple[list[Any], list[bool]]:
        axes = [0 if is_mapped else None for is_mapped in mapped]
        results = jax.vmap(plain, axes, axis_size=size)(*args)
        return results, [True] * len(results)

    return task


def _is_whole(equation: Any) -> bool:
    """Whether XLA compiles an operation itself."""
    arrays = [*equation.invars, *equation.outvars]
    sizes = [getattr(array.aval, "size", 1) for array in arrays]
    return equation.primitive.name in WHOLE and max(sizes, default=1) <= MOST_ENTRIES


def search(unfinished: Callable[[T], Any], step: Callable[[T], T], start: T, most: int) -> T:
    """step(… step(start)) while a point is unfinished, with at most `most` steps.

    An accelerator, where conditions wait for the host, makes all steps, and finished points do not change.
    """
    if platform() != "cpu":

        def keep(_: Any, point: T) -> T:
            going = unfinished(point)
            return jax.tree.map(lambda new, old: jnp.where(going, new, old), step(point), point)

        return jax.lax.fori_loop(0, most, keep, start)

    def going(state: tuple[Any, T]) -> Any:
        return (state[0] < most) & unfinished(state[1])

    def advance(state: tuple[Any, T]) -> tuple[Any, T]:
        return state[0] + 1, step(state[1])

    return jax.lax.while_loop(going, advance, (jnp.zeros((), jnp.int32), start))[1]


def _equations(jaxpr: Any) -> Iterator[Any]:
    """All equations of a program, including those of its loops, branches and calls."""
    for equation in jaxpr.eqns:
        yield equation
        for inner in core.jaxprs_in_params(equation.params):
            yield from _equations(inner)
