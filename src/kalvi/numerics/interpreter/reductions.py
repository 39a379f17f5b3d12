"""Operations along axes: sums, extremes, cumulative sums, sorting."""

from typing import Any

import numpy as np

from kalvi.numerics.interpreter.elementwise import FORMULAS, RING
from kalvi.numerics.interpreter.writer import Value, Writer, rule

REDUCTIONS = {
    "reduce_sum": ("np.add", RING["add"]),
    "reduce_prod": ("np.multiply", RING["mul"]),
    "reduce_max": ("np.maximum", FORMULAS["max"][0]),
    "reduce_min": ("np.minimum", FORMULAS["min"][0]),
    "reduce_and": ("np.bitwise_and", FORMULAS["and"][0]),
    "reduce_or": ("np.bitwise_or", FORMULAS["or"][0]),
    "reduce_xor": ("np.bitwise_xor", FORMULAS["xor"][0]),
}
"""The NumPy function whose `reduce` does each reduction, and the formula for two numbers."""


@rule(*REDUCTIONS, takes_entries=True)
def _reduce(writer: Writer, equation: Any, operands: list[Value]) -> Any:
    function, formula = REDUCTIONS[equation.primitive.name]
    value, aval, axes = (
        operands[0],
        equation.outvars[0].aval,
        tuple(map(int, equation.params["axes"])),
    )
    if all(value.shape[axis] == 1 for axis in axes) and value.is_number:
        return [value.with_shape(tuple(aval.shape))]
    if value.entries is not None and value.held == value.shape and formula is not None:
        return [_reduced_numbers(writer, value, axes, aval, formula)]
    value = writer.whole(value)
    kept = set(range(len(value.shape))) - set(axes)
    axis = "None" if not kept else axes[0] if len(axes) == 1 else axes
    text = f"{function}.reduce({value.text}, axis={axis}"
    if value.dtype.kind != "f":
        text += f", dtype={writer.helper(value.dtype)}"
    if 0 in value.shape:
        text += f", initial={_identity(equation.primitive.name, value.dtype)}"
    text += ")"
    if aval.shape == ():
        return [writer.set(f"{text}.item()", (), aval.dtype, [value])]
    return [writer.set(text, tuple(aval.shape), aval.dtype, [value])]


def _identity(name: str, dtype: np.dtype) -> str:
    """The result of a reduction of no entries."""
    if name in ("reduce_max", "reduce_min"):
        largest = name == "reduce_min"
        if dtype.kind == "f":
            return "inf" if largest else "-inf"
        if dtype.kind != "b":
            bounds = np.iinfo(dtype)
            return str(bounds.max if largest else bounds.min)
        return str(largest)
    return {"reduce_prod": "1", "reduce_and": "-1"}.get(name, "0")


def _reduced_numbers(
    writer: Writer, value: Value, axes: tuple[int, ...], aval: Any, formula: str
) -> Value:
    """The reduction of entries that are Python numbers, one operation at a time."""
    numbers = np.moveaxis(value.numbers(), axes, range(len(axes)))
    rows = numbers.reshape(-1, *aval.shape)
    result = np.empty(aval.shape, object)
    for i in np.ndindex(result.shape):
        total = rows[(0, *i)]
        for number in rows[(slice(1, None), *i)]:
            text = formula.format(total.text, number.text)
            total = writer.set_number(text, aval.dtype, [total, number])
        result[i] = total
    return writer.of_numbers(result, aval.shape, aval.dtype)


@rule("argmax", "argmin")
def _place_of_extreme(writer: Writer, equation: Any, operands: list[Value]) -> Any:
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
    return writer.set_several(text, equation.outvars, whole)


@rule("top_k")
def _top_k(writer: Writer, equation: Any, operands: list[Value]) -> Any:
    value, given = writer.whole(operands[0]), equation.params
    text = f"top_k({value.text}, {given['k']}, {given['axis']})"
    return writer.set_several(text, equation.outvars, [value])
