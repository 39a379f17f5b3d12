"""Products of vectors and matrices."""

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from kalvi.numerics.interpreter.elementwise import write_each
from kalvi.numerics.interpreter.shapes import with_shape
from kalvi.numerics.interpreter.writer import FEW, Shape, Value, Writer, rule


@rule("dot_general", takes_entries=True)
def _product(writer: Writer, equation: Any, operands: list[Value]) -> Any:
    """A product of arrays: the batch axes first, then the remaining axes of each operand, without the
    summed ones."""
    aval = equation.outvars[0].aval
    summed, batches = equation.params["dimension_numbers"]
    shape, dtype = tuple(aval.shape), np.dtype(aval.dtype)
    few = prod(shape) * _size(operands[0], summed[0]) <= FEW
    if few and 0 not in operands[0].shape and all(value.is_numbers for value in operands):
        return [_product_of_numbers(writer, aval, operands, summed, batches)]
    if any(map(is_single, operands)) and {value.dtype for value in operands} == {dtype}:
        factors = [v if is_single(v) else with_shape(writer, v, shape) for v in operands]
        return write_each(writer, aval, factors, "{0} * {1}")
    left, right = (writer.whole(value) for value in operands)
    parts = [left, right]
    if left.shape and right.shape:
        a = _arranged(left, batches[0], summed[0], last=True)
        b = _arranged(right, batches[1], summed[1], last=False)
        text, made = f"{a} @ {b}", _product_shape(left, right, summed, batches)
    else:
        text, made = f"{left.text} * {right.text}", left.shape or right.shape
    if {left.dtype, right.dtype} != {dtype} and made != ():
        text = f"({text}).astype({writer.helper(dtype)})"
    if shape == ():
        return [writer.set(f"({text}).item()", (), dtype, parts)]
    text = f"({text}).reshape({shape})" if made != shape else text
    return [writer.set(text, shape, dtype, parts)]


def _product_of_numbers(
    writer: Writer, aval: Any, operands: Sequence[Value], summed: Any, batches: Any
) -> Value:
    """Sums of products, written out."""
    sides = []
    for value, batch, gone in zip(operands, batches, summed, strict=True):
        numbers = np.broadcast_to(value.numbers(), value.shape)
        free = _free(value, batch, gone)
        sizes = (_size(value, batch), _size(value, free), _size(value, gone))
        sides.append(numbers.transpose([*batch, *free, *gone]).reshape(sizes))
    left, right = sides
    found = np.empty((len(left), left.shape[1], right.shape[1]), object)
    for b, i, j in np.ndindex(found.shape):
        pairs = list(zip(left[b, i], right[b, j], strict=True))
        text = " + ".join(f"{one.text} * {other.text}" for one, other in pairs)
        found[b, i, j] = writer.set_number(text, aval.dtype, [n for pair in pairs for n in pair])
    return writer.of_numbers(found.reshape(aval.shape), aval.shape, aval.dtype)


def is_single(value: Value) -> bool:
    """Whether a value has one entry, held as a number."""
    return value.is_number and prod(value.shape) == 1


def _free(value: Value, batch: Sequence[int], summed: Sequence[int]) -> list[int]:
    return [i for i in range(len(value.shape)) if i not in batch and i not in summed]


def _size(value: Value, axes: Sequence[int]) -> int:
    return prod(value.shape[i] for i in axes)


def _arranged(value: Value, batch: Sequence[int], summed: Sequence[int], *, last: bool) -> str:
    """The operand in the shape that `@` needs, with one axis to sum over, the last or the one before it."""
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
