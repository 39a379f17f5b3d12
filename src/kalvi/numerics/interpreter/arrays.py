"""Operations that move entries, add them up or multiply matrices."""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from kalvi.numerics.interpreter import indexing
from kalvi.numerics.interpreter.writer import KEY, Shape, Value, Writer, rule


def reshaped(writer: Writer, value: Value, shape: Shape, held: Shape) -> Value:
    """The entries of a value in another shape, held as said; as a number where the shape is ()."""
    if value.is_number:
        return Value(value.text, shape, value.dtype, (), value.depth)
    if held == value.held:
        return Value(value.text, shape, value.dtype, held, value.depth)
    if value.text in writer.windows and np.prod(held) == np.prod(value.held):
        array, firsts = writer.windows[value.text]
        if held == ():
            places = ", ".join(first.text for first in firsts)
            return writer.set(
                f"{array.text}.item({places})", shape, value.dtype, [array, *firsts], held
            )
        if held == array.shape[1:] and value.shape[1:] == array.shape[1:]:
            text = f"{array.text}[{firsts[0].text}]"
            return writer.set(text, shape, value.dtype, [array, *firsts], held)
    text = f"{value.text}.item()" if held == () else f"{value.text}.reshape({held})"
    return writer.set(text, shape, value.dtype, [value], held)


@rule("broadcast_in_dim")
def _broadcast(writer: Writer, equation: Any, operands: list[Value]) -> Any:
    value, places = operands[0], equation.params["broadcast_dimensions"]
    shape = tuple(equation.outvars[0].aval.shape)
    held = [1] * len(shape)
    for place, size in zip(places, value.held or (1,) * len(places), strict=True):
        held[place] = size
    return [reshaped(writer, value, shape, tuple(held))]


@rule("reshape")
def _reshape(writer: Writer, equation: Any, operands: list[Value]) -> Any:
    shape = tuple(equation.outvars[0].aval.shape)
    value = operands[0] if operands[0].is_number else writer.whole(operands[0])
    return [reshaped(writer, value, shape, shape)]


@rule("squeeze")
def _squeeze(writer: Writer, equation: Any, operands: list[Value]) -> Any:
    value, gone = operands[0], equation.params["dimensions"]
    shape = tuple(equation.outvars[0].aval.shape)
    held = tuple(n for i, n in enumerate(value.held) if i not in gone)
    if held == () and shape != ():  # cannot be: an axis that is left is held too
        held = shape
    return [reshaped(writer, value, shape, held)]


@rule("expand_dims")
def _expand(writer: Writer, equation: Any, operands: list[Value]) -> Any:
    return _reshape(writer, equation, operands)


@rule("transpose")
def _transpose(writer: Writer, equation: Any, operands: list[Value]) -> Any:
    value, order = operands[0], equation.params["permutation"]
    shape = tuple(equation.outvars[0].aval.shape)
    if value.is_number:
        return [reshaped(writer, value, shape, ())]
    held = tuple(value.held[i] for i in order)
    return [writer.set(f"{value.text}.transpose({order})", shape, value.dtype, operands, held)]


@rule("rev")
def _reverse(writer: Writer, equation: Any, operands: list[Value]) -> Any:
    value, turned = operands[0], equation.params["dimensions"]
    if value.is_number:
        return [value]
    cut = ", ".join("::-1" if i in turned else ":" for i in range(len(value.held)))
    return [writer.set(f"{value.text}[{cut}]", value.shape, value.dtype, operands, value.held)]


@rule("slice")
def _slice(writer: Writer, equation: Any, operands: list[Value]) -> Any:
    value, given = operands[0], equation.params
    shape = tuple(equation.outvars[0].aval.shape)
    if value.is_number:
        return [reshaped(writer, value, shape, ())]
    strides = given["strides"] or (1,) * len(shape)
    cuts, held = [], []
    for i, (start, end, stride) in enumerate(
        zip(given["start_indices"], given["limit_indices"], strides, strict=True)
    ):
        broadcast = value.held[i] == 1 and value.shape[i] != 1
        cuts.append(":" if broadcast else f"{start}:{end}:{stride}")
        held.append(1 if broadcast else shape[i])
    text = f"{value.text}[{', '.join(cuts)}]"
    return [writer.set(text, shape, value.dtype, operands, tuple(held))]


def _firsts(
    writer: Writer, starts: Sequence[Value], sizes: Sequence[int], shape: Shape
) -> list[Value]:
    """Where windows begin along each axis, moved where they would end outside."""
    firsts = []
    for start, size, whole in zip(starts, sizes, shape, strict=True):
        known, most = writer.known_number(start), whole - size
        if most == 0 or known is not None:
            firsts.append(writer.literal(min(max(int(known or 0), 0), most), np.int64))
        else:
            text = f"({start.text} if 0 <= {start.text} <= {most} else 0 if {start.text} < 0 else {most})"
            firsts.append(writer.set(text, (), np.int64, [start]))
    return firsts


def _window(firsts: Sequence[Value], sizes: Sequence[int], shape: Shape) -> str:
    """The index of a window."""
    cuts = [
        ":" if size == whole else f"{first.text}:{first.text} + {size}"
        for first, size, whole in zip(firsts, sizes, shape, strict=True)
    ]
    return ", ".join(cuts)


@rule("dynamic_slice")
def _dynamic_slice(writer: Writer, equation: Any, operands: list[Value]) -> Any:
    value, *starts = operands
    sizes = tuple(equation.outvars[0].aval.shape)
    if value.is_number:
        return [reshaped(writer, value, sizes, ())]
    value = writer.whole(value)
    firsts = _firsts(writer, starts, sizes, value.shape)
    text = f"{value.text}[{_window(firsts, sizes, value.shape)}]"
    found = writer.set(text, sizes, value.dtype, [value, *firsts])
    writer.windows[found.text] = (value, firsts)
    return [found]


@rule("dynamic_update_slice")
def _dynamic_update(writer: Writer, equation: Any, operands: list[Value]) -> Any:
    value, update, *starts = operands
    value = writer.whole(value)
    if value.shape == ():
        return [update]
    firsts = _firsts(writer, starts, update.shape, value.shape)
    return [_replaced(writer, value, firsts, update.shape, update)]


def _replaced(
    writer: Writer, value: Value, firsts: Sequence[Value], sizes: Sequence[int], update: Value
) -> Value:
    """The array with a window replaced."""
    cut = _window(firsts, sizes, value.shape)
    text = f"put({value.text}, np.s_[{cut}], {update.text})"
    return writer.set(text, value.shape, value.dtype, [value, update, *firsts])


def put(array: np.ndarray, where: Any, what: Any) -> np.ndarray:
    """A copy with some entries replaced."""
    new = array.copy()
    new[where] = what
    return new


@rule("concatenate")
def _concatenate(writer: Writer, equation: Any, operands: list[Value]) -> Any:
    aval, axis = equation.outvars[0].aval, equation.params["dimension"]
    shape, dtype = tuple(aval.shape), writer.helper(np.dtype(aval.dtype))
    if (
        all(value.is_number and value.shape[axis] == 1 for value in operands)
        and np.prod(shape) == shape[axis]
    ):
        texts = ", ".join(value.text for value in operands)
        held = tuple(shape[axis] if i == axis else 1 for i in range(len(shape)))
        text = f"np.array(({texts},), {dtype})" + ("" if len(shape) == 1 else f".reshape({held})")
        return [writer.set(text, shape, aval.dtype, operands)]
    whole = [writer.whole(value) for value in operands]
    texts = ", ".join(value.text for value in whole)
    return [writer.set(f"np.concatenate(({texts},), {axis})", shape, aval.dtype, whole)]


@rule("stack")
def _stack(writer: Writer, equation: Any, operands: list[Value]) -> Any:
    aval, axis = equation.outvars[0].aval, equation.params["axis"]
    shape, dtype = tuple(aval.shape), writer.helper(np.dtype(aval.dtype))
    whole = [writer.whole(value) for value in operands]
    texts = ", ".join(value.text for value in whole)
    text = f"np.array(({texts},), {dtype})" if len(shape) == 1 else f"np.stack(({texts},), {axis})"
    return [writer.set(text, shape, aval.dtype, whole)]


@rule("split")
def _split(writer: Writer, equation: Any, operands: list[Value]) -> Any:
    value, axis = writer.whole(operands[0]), equation.params["axis"]
    results, start = [], 0
    for outvar, size in zip(equation.outvars, equation.params["sizes"], strict=True):
        cut = ", ".join([":"] * axis + [f"{start}:{start + size}"])
        results.append(
            writer.set(f"{value.text}[{cut}]", tuple(outvar.aval.shape), value.dtype, [value])
        )
        start += size
    return results


@rule("pad")
def _pad(writer: Writer, equation: Any, operands: list[Value]) -> Any:
    aval = equation.outvars[0].aval
    config = tuple(tuple(map(int, axis)) for axis in equation.params["padding_config"])
    if not any(map(any, config)):
        return [operands[0]]
    text = f"pad({writer.as_array(operands[0])}, {operands[1].text}, {config})"
    return [writer.set(text, tuple(aval.shape), aval.dtype, operands + [writer.whole(operands[0])])]


def pad(array: np.ndarray, fill: Any, config: Sequence[tuple[int, int, int]]) -> np.ndarray:
    """The array with `low` entries before, `high` after (cut off if negative) and some between."""
    shape = [
        max(lo + hi + n + max(n - 1, 0) * mid, 0)
        for n, (lo, hi, mid) in zip(array.shape, config, strict=True)
    ]
    result = np.full(shape, fill, array.dtype)
    there, here = [], []
    for n, size, (low, _, between) in zip(array.shape, shape, config, strict=True):
        places = low + np.arange(n) * (between + 1)
        inside = (places >= 0) & (places < size)
        there.append(places[inside])
        here.append(np.flatnonzero(inside))
    result[np.ix_(*there)] = array[np.ix_(*here)]
    return result


@rule("iota")
def _iota(writer: Writer, equation: Any, operands: list[Value]) -> Any:
    given = equation.params
    shape, axis = tuple(given["shape"]), given["dimension"]
    held = tuple(n if i == axis else 1 for i, n in enumerate(shape))
    text = (
        f"np.arange({shape[axis]}, dtype={writer.helper(np.dtype(given['dtype']))}).reshape({held})"
    )
    return [writer.set(text, shape, given["dtype"], [], held)]


# sums ----------------------------------------------------------------------------------------------

REDUCTIONS = {
    "reduce_sum": ("np.add.reduce", "0"),
    "reduce_prod": ("np.multiply.reduce", "1"),
    "reduce_max": ("np.maximum.reduce", "-inf"),
    "reduce_min": ("np.minimum.reduce", "inf"),
    "reduce_and": ("np.logical_and.reduce", "True"),
    "reduce_or": ("np.logical_or.reduce", "False"),
    "reduce_xor": ("np.bitwise_xor.reduce", "0"),
}
SCALAR_TYPES = {"b": "bool", "i": "int", "u": "int", "f": "float"}


@rule(*REDUCTIONS)
def _reduce(writer: Writer, equation: Any, operands: list[Value]) -> Any:
    function, _ = REDUCTIONS[equation.primitive.name]
    aval, axes = equation.outvars[0].aval, tuple(equation.params["axes"])
    if not axes:
        return operands
    value = writer.whole(operands[0])
    dtype = f", dtype={writer.helper(np.dtype(aval.dtype))}" if function == "np.add.reduce" else ""
    if len(axes) == value.held.__len__():
        text = (
            f"{SCALAR_TYPES[np.dtype(aval.dtype).kind]}({function}({value.text}, axis=None{dtype}))"
        )
    else:
        text = f"{function}({value.text}, axis={axes if len(axes) > 1 else axes[0]}{dtype})"
    return [writer.set(text, tuple(aval.shape), aval.dtype, [value])]


@rule("argmax", "argmin")
def _arg_extreme(writer: Writer, equation: Any, operands: list[Value]) -> Any:
    aval, (axis,) = equation.outvars[0].aval, equation.params["axes"]
    value = writer.whole(operands[0])
    text = f"np.{equation.primitive.name}({value.text}, axis={axis})"
    dtype = writer.helper(np.dtype(aval.dtype))
    text = f"int({text})" if aval.shape == () else f"{text}.astype({dtype})"
    return [writer.set(text, tuple(aval.shape), aval.dtype, [value])]


CUMULATIVE = {
    "cumsum": "np.add",
    "cumprod": "np.multiply",
    "cummax": "np.maximum",
    "cummin": "np.minimum",
    "cumlogsumexp": "np.logaddexp",
}


@rule(*CUMULATIVE)
def _accumulate(writer: Writer, equation: Any, operands: list[Value]) -> Any:
    value, axis = writer.whole(operands[0]), equation.params["axis"]
    turn = f"[{', '.join([':'] * axis + ['::-1'])}]" if equation.params["reverse"] else ""
    dtype = writer.helper(value.dtype)
    name = CUMULATIVE[equation.primitive.name]
    text = f"{name}.accumulate({value.text}{turn}, axis={axis}, dtype={dtype}){turn}"
    return [writer.set(text, value.shape, value.dtype, [value])]


@rule("sort")
def _sort(writer: Writer, equation: Any, operands: list[Value]) -> Any:
    given, whole = equation.params, [writer.whole(value) for value in operands]
    texts = ", ".join(value.text for value in whole)
    text = f"sort(({texts},), {given['dimension']}, {given['num_keys']})"
    several = writer.set(text, (), whole[0].dtype, whole, (0,))
    return [
        writer.set(f"{several.text}[{i}]", value.shape, value.dtype, [several])
        for i, value in enumerate(whole)
    ]


def sort(arrays: Sequence[np.ndarray], axis: int, keys: int) -> list[np.ndarray]:
    """The arrays in the stable order of the first `keys` of them, along an axis."""
    if keys == 1:
        order = np.argsort(arrays[0], axis=axis, kind="stable")
    else:
        order = np.lexsort(arrays[:keys][::-1], axis=axis)
    return [np.take_along_axis(array, order, axis) for array in arrays]


@rule("top_k")
def _top_k(writer: Writer, equation: Any, operands: list[Value]) -> Any:
    value, given = writer.whole(operands[0]), equation.params
    several = writer.set(
        f"top_k({value.text}, {given['k']}, {given['axis']})", (), value.dtype, [value], (0,)
    )
    return [
        writer.set(f"{several.text}[{i}]", tuple(var.aval.shape), var.aval.dtype, [several])
        for i, var in enumerate(equation.outvars)
    ]


def top_k(array: np.ndarray, k: int, axis: int) -> tuple[np.ndarray, np.ndarray]:
    """The k largest entries along an axis, the largest first, and where they are."""
    order = np.argsort(-array, axis=axis, kind="stable").take(range(k), axis=axis)
    return np.take_along_axis(array, order, axis), order.astype(np.int32)


# products ------------------------------------------------------------------------------------------


@rule("dot_general")
def _product(writer: Writer, equation: Any, operands: list[Value]) -> Any:
    """A product of matrices: batches first, then what is left, then what is summed."""
    aval = equation.outvars[0].aval
    (summed, batches) = equation.params["dimension_numbers"]
    left, right = (writer.whole(value) for value in operands)
    shape, dtype = tuple(aval.shape), np.dtype(aval.dtype)
    parts = [left, right]
    if left.shape and right.shape:
        a = _arranged(writer, left, batches[0], summed[0], last=True)
        b = _arranged(writer, right, batches[1], summed[1], last=False)
        text = f"{a} @ {b}"
        made = _product_shape(left, right, summed, batches)
        if shape == ():
            text = f"({text}).item()"
        elif made != shape:
            text = f"({text}).reshape({shape})"
    else:
        text = f"{left.text} * {right.text}"
    if {left.dtype, right.dtype} != {dtype} and shape != ():
        text = f"({text}).astype({writer.helper(dtype)})"
    return [writer.set(text, shape, dtype, parts)]


def _free(value: Value, batch: Sequence[int], summed: Sequence[int]) -> list[int]:
    return [i for i in range(len(value.shape)) if i not in batch and i not in summed]


def _size(value: Value, axes: Sequence[int]) -> int:
    return int(np.prod([value.shape[i] for i in axes]))


def _arranged(
    writer: Writer, value: Value, batch: Sequence[int], summed: Sequence[int], *, last: bool
) -> str:
    """The operand as `@` takes it, with one axis to sum over, the last or the one before it."""
    free = _free(value, batch, summed)
    order = [*batch, *free, *summed] if last else [*batch, *summed, *free]
    sizes = (_size(value, free), _size(value, summed))
    shape = tuple(value.shape[i] for i in batch) + (sizes if last else sizes[::-1])
    text = value.text
    if order != list(range(len(order))):
        text = f"{text}.T" if order == [1, 0] else f"{text}.transpose({tuple(order)})"
    if not batch and not free:
        shape = (sizes[1],)
    arranged = tuple(value.shape[i] for i in order)
    return text if arranged == shape else f"{text}.reshape({shape})"


def _product_shape(left: Value, right: Value, summed: Any, batches: Any) -> Shape:
    shape = tuple(left.shape[i] for i in batches[0])
    for value, batch, gone in ((left, batches[0], summed[0]), (right, batches[1], summed[1])):
        free = _free(value, batch, gone)
        if batch or free:
            shape += (_size(value, free),)
    return shape


# gather and scatter --------------------------------------------------------------------------------


@rule("gather")
def _gather(writer: Writer, equation: Any, operands: list[Value]) -> Any:
    aval, given = equation.outvars[0].aval, equation.params
    plan = indexing.GatherPlan.of(given, tuple(aval.shape))
    array, index = (writer.as_array(value) for value in operands)
    text = f"{writer.helper(plan)}({array}, {index})"
    text = f"{text}.item()" if aval.shape == () else text
    parts = [writer.whole(value) for value in operands]
    return [writer.set(text, tuple(aval.shape), aval.dtype, parts)]


@rule("scatter", "scatter-add", "scatter-mul", "scatter-min", "scatter-max")
def _scatter(writer: Writer, equation: Any, operands: list[Value]) -> Any:
    aval, given = equation.outvars[0].aval, equation.params
    plan = indexing.ScatterPlan.of(equation.primitive.name, given)
    array, index, update = operands
    if plan.replaces_one_window(given, index.shape) and index.is_number:
        return [_replace_window(writer, plan, writer.whole(array), index, update)]
    texts = ", ".join(writer.as_array(value) for value in operands)
    text = f"{writer.helper(plan)}({texts})"
    text = f"{text}.item()" if aval.shape == () else text
    parts = [writer.whole(value) for value in operands]
    return [writer.set(text, tuple(aval.shape), aval.dtype, parts)]


def _replace_window(
    writer: Writer, plan: indexing.ScatterPlan, array: Value, index: Value, update: Value
) -> Value:
    """The array with the window at one index replaced, if it is inside."""
    (axis,) = plan.start_axes
    if array.shape == ():
        return update
    kept = iter(update.shape)
    sizes = [1 if i in plan.gone else next(kept) for i in range(len(array.shape))]
    most = array.shape[axis] - sizes[axis]
    cut = ", ".join(
        ":"
        if i != axis
        else index.text
        if axis in plan.gone
        else f"{index.text}:{index.text} + {sizes[axis]}"
        for i in range(len(array.shape))
    )
    text = f"put({array.text}, np.s_[{cut}], {update.text}) if 0 <= {index.text} <= {most} else {array.text}"
    return writer.set(text, array.shape, array.dtype, [array, index, update])


# what changes nothing here -------------------------------------------------------------------------


@rule("sharding_constraint", "optimization_barrier", "reduce_precision", "device_put", "pvary")
def _same(writer: Writer, equation: Any, operands: list[Value]) -> Any:
    return operands


@rule("platform_index")
def _platform(writer: Writer, equation: Any, operands: list[Value]) -> Any:
    platforms = equation.params["platforms"]
    found = next(i for i, names in enumerate(platforms) if names is None or "cpu" in names)
    return [writer.literal(found, np.int32)]


@rule("random_wrap")
def _wrap(writer: Writer, equation: Any, operands: list[Value]) -> Any:
    shape, value = tuple(equation.outvars[0].aval.shape), writer.whole(operands[0])
    key = writer.helper(KEY)
    text = f"np.ascontiguousarray({value.text}).view({key}).reshape({shape})"
    text = f"tuple({value.text}.tolist())" if shape == () else text
    return [writer.set(text, shape, KEY, [value])]


@rule("random_unwrap")
def _unwrap(writer: Writer, equation: Any, operands: list[Value]) -> Any:
    return [_numbers_of(writer, operands[0])]


def _numbers_of(writer: Writer, key: Value) -> Value:
    """The two numbers of each key along a last axis."""
    value, shape = writer.whole(key), (*key.shape, 2)
    text = f"np.ascontiguousarray({value.text}).view(np.uint32).reshape({shape})"
    text = f"np.array({value.text}, np.uint32)" if key.shape == () else text
    return writer.set(text, shape, np.uint32, [value])


@rule("random_bits", "random_split", "random_fold_in", "random_seed")
def _random(writer: Writer, equation: Any, operands: list[Value]) -> Any:
    """What JAX's own generator does with the numbers of a key, written out."""
    name, given = equation.primitive.name, equation.params
    implementation, outer = _implementation(equation), operands[0].shape

    def one(key: Any, *data: Any) -> Any:
        if name == "random_bits":
            return implementation.random_bits(key, given["bit_width"], given["shape"])
        if name == "random_split":
            return implementation.split(key, given["shape"])
        return implementation.fold_in(key, *data) if data else implementation.seed(key)

    each = one
    for _ in outer:
        each = jax.vmap(each)
    operands = [_numbers_of(writer, v) if v.dtype == KEY else writer.whole(v) for v in operands]
    avals = [jax.ShapeDtypeStruct(value.shape, value.dtype) for value in operands]
    closed = jax.make_jaxpr(each)(*avals)
    (found,) = writer.inline(closed.jaxpr, closed.consts, operands)
    if name == "random_bits":
        return [found]
    found = writer.whole(found)
    return _wrap(writer, equation, [found])


def _implementation(equation: Any) -> Any:
    dtype = equation.invars[0].aval.dtype
    return dtype._impl if hasattr(dtype, "_impl") else equation.params["impl"]


@rule("iota_2x32_shape")
def _count_in_halves(writer: Writer, equation: Any, operands: list[Value]) -> Any:
    """The numbers of the entries of an array: their upper 32 bits, and the lower."""
    shape = tuple(equation.params["shape"])
    numbers = writer.set(f"np.arange({int(np.prod(shape))}, dtype=np.uint64)", (0,), np.uint64, [])
    return [
        writer.set(
            f"({numbers.text} {half}).astype(np.uint32).reshape({shape})",
            shape,
            np.uint32,
            [numbers],
        )
        for half in (">> np.uint64(32)", "& np.uint64(0xFFFFFFFF)")
    ]
