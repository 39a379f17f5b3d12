"""Operations that move entries: reshape, slice, join and pad.

If entries are kept as Python numbers, such an operation only rearranges their names when the program is
written, and the program has no line for it.
"""

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from kalvi.numerics.interpreter.writer import FEW, Shape, Value, Writer, rule


def moved(writer: Writer, text: str, value: Value, shape: Shape, held: Shape) -> Value:
    """The result of a text applied to a value, for which `{0}` stands in the text."""
    if value.is_number:
        return value.with_shape(shape)
    if value.entries is not None:
        numbers = eval(text.format("numbers"), {"numbers": value.entries})
        return writer.of_numbers(np.asarray(numbers, object), shape, value.dtype)
    return writer.set(text.format(value.text), shape, value.dtype, [value], held)


def reshaped(writer: Writer, value: Value, shape: Shape, held: Shape) -> Value:
    """The entries of a value in another shape, held in the shape `held`."""
    if held == value.held and value.entries is None:
        return Value(value.text, shape, value.dtype, held, value.depth, value.known)
    if value.text in writer.windows and held == value.held[1:] and value.held[0] == 1:
        array, firsts = writer.windows[value.text]
        if array.shape[1:] == held:  # a whole row needs no reshape
            text = f"{array.text}[{firsts[0].text}]"
            return writer.set(text, shape, value.dtype, [array, *firsts], held)
    return moved(writer, f"{{0}}.reshape({held})", value, shape, held)


def first(writer: Writer, value: Value) -> Value:
    """The only row of an array."""
    return reshaped(writer, value, value.shape[1:], value.held[1:])


def with_first_axis(writer: Writer, value: Value) -> Value:
    """The array with a first axis of length one."""
    if value.is_number:
        return value.with_shape((1, *value.shape))
    return reshaped(writer, value, (1, *value.shape), (1, *value.held))


@rule("broadcast_in_dim", takes_entries=True)
def _broadcast(writer: Writer, equation: Any, operands: list[Value]) -> Any:
    value, places = operands[0], equation.params["broadcast_dimensions"]
    shape = tuple(equation.outvars[0].aval.shape)
    if value.is_number:
        return [value.with_shape(shape)]
    held = [1] * len(shape)
    for place, size in zip(places, value.held, strict=True):
        held[place] = size
    return [reshaped(writer, value, shape, tuple(held))]


@rule("reshape", takes_entries=True)
def _reshape(writer: Writer, equation: Any, operands: list[Value]) -> Any:
    return [with_shape(writer, operands[0], tuple(equation.outvars[0].aval.shape))]


def with_shape(writer: Writer, value: Value, shape: Shape) -> Value:
    """The entries in the same order, in another shape."""
    if value.is_number:
        return value.with_shape(shape)
    if value.held != value.shape:
        value = writer.whole(value)
    return reshaped(writer, value, shape, shape)


@rule("squeeze", takes_entries=True)
def _squeeze(writer: Writer, equation: Any, operands: list[Value]) -> Any:
    value, gone = operands[0], equation.params["dimensions"]
    shape = tuple(equation.outvars[0].aval.shape)
    held = tuple(n for i, n in enumerate(value.held) if i not in gone)
    return [reshaped(writer, value, shape, held)]


@rule("transpose", takes_entries=True)
def _transpose(writer: Writer, equation: Any, operands: list[Value]) -> Any:
    value, order = operands[0], tuple(equation.params["permutation"])
    shape = tuple(equation.outvars[0].aval.shape)
    if value.is_number:
        return [value.with_shape(shape)]
    held = tuple(value.held[i] for i in order)
    text = "{0}.T" if order == (1, 0) else f"{{0}}.transpose({order})"
    return [moved(writer, text, value, shape, held)]


@rule("rev", takes_entries=True)
def _reverse(writer: Writer, equation: Any, operands: list[Value]) -> Any:
    value, turned = operands[0], equation.params["dimensions"]
    cut = ", ".join("::-1" if i in turned else ":" for i in range(len(value.held)))
    return [moved(writer, f"{{0}}[{cut}]", value, value.shape, value.held)]


@rule("slice", takes_entries=True)
def _slice(writer: Writer, equation: Any, operands: list[Value]) -> Any:
    value, given = operands[0], equation.params
    shape = tuple(equation.outvars[0].aval.shape)
    if value.is_number and 0 not in shape:
        return [value.with_shape(shape)]
    if 0 in shape:
        value = writer.whole(value)
    cuts, held = [], []
    strides = given["strides"] or (1,) * len(shape)
    bounds = zip(given["start_indices"], given["limit_indices"], strides, strict=True)
    for i, (start, end, stride) in enumerate(bounds):
        broadcast = value.held[i] == 1 and value.shape[i] != 1
        unchanged = broadcast or shape[i] == value.shape[i]
        cuts.append(":" if unchanged else f"{start}:{end}" + (f":{stride}" if stride > 1 else ""))
        held.append(1 if broadcast else shape[i])
    if set(cuts) == {":"}:
        return [value.with_shape(shape)]
    return [moved(writer, f"{{0}}[{', '.join(cuts)}]", value, shape, tuple(held))]


# windows -------------------------------------------------------------------------------------------


def _firsts(
    writer: Writer, starts: Sequence[Value], sizes: Sequence[int], shape: Shape
) -> list[Value]:
    """The start of a window along each axis, moved if the window would end outside."""
    firsts = []
    for start, size, whole in zip(starts, sizes, shape, strict=True):
        most = whole - size
        if most == 0:
            firsts.append(writer.literal(0, np.int64))
        else:
            text = f"({start.text} if 0 <= {start.text} <= {most} else 0 if {start.text} < 0 else {most})"
            firsts.append(writer.set_number(text, np.int64, [start]))
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
        return [value.with_shape(sizes)]
    value = writer.whole(value)
    firsts = _firsts(writer, starts, sizes, value.shape)
    parts = [value, *firsts]
    if prod(sizes) == 1:
        text = f"{value.text}.item({', '.join(first.text for first in firsts)})"
        return [writer.set(text, sizes, value.dtype, parts, ())]
    text = f"{value.text}[{_window(firsts, sizes, value.shape)}]"
    found = writer.set(text, sizes, value.dtype, parts)
    writer.windows[found.text] = (value, firsts)
    return [found]


@rule("dynamic_update_slice")
def _dynamic_update(writer: Writer, equation: Any, operands: list[Value]) -> Any:
    value, update, *starts = operands
    if update.shape == value.shape:
        return [update]
    value = writer.whole(value)
    firsts = _firsts(writer, starts, update.shape, value.shape)
    cut = _window(firsts, update.shape, value.shape)
    text = f"put({value.text}, np.s_[{cut}], {update.text})"
    return [writer.set(text, value.shape, value.dtype, [value, update, *firsts])]


# joining -------------------------------------------------------------------------------------------


def _joined(
    writer: Writer, function: str, axis: int, aval: Any, operands: Sequence[Value]
) -> list[Value]:
    """The result of np.concatenate or np.stack on the operands."""
    shape, size = tuple(aval.shape), prod(aval.shape)
    numbers = all(value.is_numbers for value in operands)
    if numbers and (0 < size <= FEW or size == len(operands)):
        parts = [np.broadcast_to(value.numbers(), value.shape) for value in operands]
        joined = getattr(np, function)(parts, axis)
        return [writer.of_numbers(joined, shape, aval.dtype)]
    whole = [writer.whole(value) for value in operands]
    texts = ", ".join(value.text for value in whole)
    return [writer.set(f"np.{function}(({texts},), {axis})", shape, aval.dtype, whole)]


@rule("concatenate", takes_entries=True)
def _concatenate(writer: Writer, equation: Any, operands: list[Value]) -> Any:
    axis = int(equation.params["dimension"])
    filled = [value for value in operands if value.shape[axis]] or operands[:1]
    if len(filled) == 1:
        return filled
    return _joined(writer, "concatenate", axis, equation.outvars[0].aval, filled)


@rule("stack", takes_entries=True)
def _stack(writer: Writer, equation: Any, operands: list[Value]) -> Any:
    return _joined(writer, "stack", equation.params["axis"], equation.outvars[0].aval, operands)


@rule("tile")
def _tile(writer: Writer, equation: Any, operands: list[Value]) -> Any:
    value, shape = operands[0], tuple(equation.outvars[0].aval.shape)
    if value.is_number:
        return [value.with_shape(shape)]
    whole = writer.whole(value)
    text = f"np.tile({whole.text}, {tuple(equation.params['reps'])})"
    return [writer.set(text, shape, value.dtype, [whole])]


@rule("split")
def _split(writer: Writer, equation: Any, operands: list[Value]) -> Any:
    value, axis = writer.whole(operands[0]), equation.params["axis"]
    results, start = [], 0
    for outvar, size in zip(equation.outvars, equation.params["sizes"], strict=True):
        cut = ", ".join([":"] * axis + [f"{start}:{start + size}"])
        shape = tuple(outvar.aval.shape)
        results.append(writer.set(f"{value.text}[{cut}]", shape, value.dtype, [value]))
        start += size
    return results


@rule("pad", takes_entries=True)
def _pad(writer: Writer, equation: Any, operands: list[Value]) -> Any:
    value, fill = operands
    aval = equation.outvars[0].aval
    config = tuple(tuple(int(n) for n in axis) for axis in equation.params["padding_config"])
    if not any(any(axis) for axis in config):
        return [value]
    whole = writer.whole(value)
    text = f"pad({writer.as_array(whole)}, {fill.text}, {config})"
    return [writer.set(text, tuple(aval.shape), aval.dtype, [whole, fill])]


@rule("empty", "empty2")
def _empty(writer: Writer, equation: Any, operands: list[Value]) -> Any:
    """An array that is filled later; it starts with zeros."""
    aval = equation.outvars[0].aval
    return [writer.literal(np.zeros((), aval.dtype), aval.dtype).with_shape(tuple(aval.shape))]


@rule("iota")
def _iota(writer: Writer, equation: Any, operands: list[Value]) -> Any:
    given = equation.params
    shape, axis, dtype = tuple(given["shape"]), given["dimension"], np.dtype(given["dtype"])
    held = tuple(n if i == axis else 1 for i, n in enumerate(shape))
    if shape[axis] == 1:
        return [writer.literal(0, dtype).with_shape(shape)]
    text = f"np.arange({shape[axis]}, dtype={writer.helper(dtype)})"
    text = text if held == (shape[axis],) else f"{text}.reshape({held})"
    return [writer.set(text, shape, dtype, [], held)]
