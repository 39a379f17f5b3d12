"""Elementwise operations: a formula for Python numbers, and one for arrays.

Python raises errors where floating-point arithmetic gives an infinity or NaN; the formulas for numbers
follow the arithmetic. Two conventions keep them short: float32 numbers have the digits and the range of
double precision until they meet an array, and signed integers do not wrap around in sums and products (one
that is too large for its array raises an OverflowError there).
"""

from math import prod
from typing import Any

import numpy as np

from kalvi.numerics.interpreter.writer import FEW, Value, Writer, rule

# for numbers, for arrays; "" means the same, None that NumPy handles numbers too
FORMULAS: dict[str, tuple[str | None, str]] = {
    "add_any": ("{0} + {1}", ""),
    "abs": ("abs({0})", ""),
    "square": ("{0} * {0}", ""),
    "max": ("({0} if {0} > {1} or {0} != {0} else {1})", "np.maximum({0}, {1})"),
    "min": ("({0} if {0} < {1} or {0} != {0} else {1})", "np.minimum({0}, {1})"),
    "exp": ("(mexp({0}) if {0} < 709.782712893 else inf if {0} == {0} else nan)", "np.exp({0})"),
    "exp2": ("power(2.0, {0})", "np.exp2({0})"),
    "expm1": (
        "(mexpm1({0}) if {0} < 709.782712893 else inf if {0} == {0} else nan)",
        "np.expm1({0})",
    ),
    "log": ("(mlog({0}) if {0} > 0.0 else (-inf) if {0} == 0.0 else nan)", "np.log({0})"),
    "log1p": ("(mlog1p({0}) if {0} > -1.0 else (-inf) if {0} == -1.0 else nan)", "np.log1p({0})"),
    "sqrt": ("(msqrt({0}) if {0} >= 0.0 else nan)", "np.sqrt({0})"),
    "rsqrt": (
        "(1.0 / msqrt({0}) if {0} > 0.0 else divide_by_zero(1.0, {0}) if {0} == 0.0 else nan)",
        "1 / np.sqrt({0})",
    ),
    "cbrt": ("mcbrt({0})", "np.cbrt({0})"),
    "logistic": (
        "(1.0 / (1.0 + mexp(-{0})) if {0} > -709.0 else 0.0 if {0} == {0} else nan)",
        "special.expit({0})",
    ),
    "tanh": ("mtanh({0})", "np.tanh({0})"),
    "sinh": (None, "np.sinh({0})"),
    "cosh": (None, "np.cosh({0})"),
    "asinh": ("masinh({0})", "np.arcsinh({0})"),
    "acosh": (None, "np.arccosh({0})"),
    "atanh": (None, "np.arctanh({0})"),
    "sin": (None, "np.sin({0})"),
    "cos": (None, "np.cos({0})"),
    "tan": (None, "np.tan({0})"),
    "asin": (None, "np.arcsin({0})"),
    "acos": (None, "np.arccos({0})"),
    "atan": ("matan({0})", "np.arctan({0})"),
    "atan2": ("matan2({0}, {1})", "np.arctan2({0}, {1})"),
    "erf": ("merf({0})", "special.erf({0})"),
    "erfc": ("merfc({0})", "special.erfc({0})"),
    "erf_inv": (None, "special.erfinv({0})"),
    "lgamma": (None, "special.gammaln({0})"),
    "digamma": (None, "digamma({0})"),
    "floor": (None, "np.floor({0})"),
    "ceil": (None, "np.ceil({0})"),
    "is_finite": ("-inf < {0} < inf", "np.isfinite({0})"),
    "eq": ("{0} == {1}", ""),
    "ne": ("{0} != {1}", ""),
    "lt": ("{0} < {1}", ""),
    "le": ("{0} <= {1}", ""),
    "gt": ("{0} > {1}", ""),
    "ge": ("{0} >= {1}", ""),
    "and": ("{0} & {1}", ""),
    "or": ("{0} | {1}", ""),
    "xor": ("{0} ^ {1}", ""),
    "pow": ("power({0}, {1})", "np.power({0}, {1})"),
    "rem": ("remainder({0}, {1})", "remainders({0}, {1})"),
    "clamp": (
        "({0} if {1} < {0} else {2} if {1} > {2} else {1})",
        "np.minimum(np.maximum({1}, {0}), {2})",
    ),
}
RING = {"add": "{0} + {1}", "sub": "{0} - {1}", "mul": "{0} * {1}", "neg": "-{0}"}
"""Operations whose results wrap around for unsigned integers."""


def broadcast_held(operands: list[Value]) -> tuple[int, ...]:
    """The shape in which the result of an elementwise operation is held."""
    return np.broadcast_shapes(*(operand.held for operand in operands))


def write_each(
    writer: Writer, aval: Any, operands: list[Value], one: str | None, many: str = ""
) -> list[Value]:
    """One result, by the formula for numbers or by that for arrays."""
    one = f"({many}).item()" if one is None else one
    if all(operand.is_number for operand in operands):
        text = one.format(*(operand.text for operand in operands))
        return [writer.set_number(text, aval.dtype, operands).with_shape(aval.shape)]
    held = broadcast_held(operands)
    if prod(held) <= FEW and all(operand.is_numbers for operand in operands):
        numbers = np.empty(held, object)
        parts = np.broadcast_arrays(*(operand.numbers() for operand in operands))
        for i in np.ndindex(held):
            each: list[Any] = [part[i] for part in parts]
            text = one.format(*(number.text for number in each))
            numbers[i] = writer.set_number(text, aval.dtype, each)
        return [writer.of_numbers(numbers, aval.shape, aval.dtype)]
    arrays = [writer.array(operand) for operand in operands]
    text = (many or one).format(*(value.text for value in arrays))
    return [writer.set(text, aval.shape, aval.dtype, arrays, held)]


@rule(*FORMULAS, takes_entries=True)
def _each(writer: Writer, equation: Any, operands: list[Value]) -> Any:
    one, many = FORMULAS[equation.primitive.name]
    return write_each(writer, equation.outvars[0].aval, operands, one, many)


@rule(*RING, takes_entries=True)
def _ring(writer: Writer, equation: Any, operands: list[Value]) -> Any:
    aval, formula = equation.outvars[0].aval, RING[equation.primitive.name]
    wraps = aval.dtype.kind == "u"
    one = f"({formula}) & {2 ** (8 * aval.dtype.itemsize) - 1}" if wraps else formula
    return write_each(writer, aval, operands, one, formula)


@rule("stop_gradient", "copy", takes_entries=True)
def _same(writer: Writer, equation: Any, operands: list[Value]) -> Any:
    return operands


@rule("sign", takes_entries=True)
def _sign(writer: Writer, equation: Any, operands: list[Value]) -> Any:
    one = "({0} > 0) - ({0} < 0)"
    if operands[0].dtype.kind == "f":
        one = f"(float({one}) if {{0}} == {{0}} else nan)"
    return write_each(writer, equation.outvars[0].aval, operands, one, "np.sign({0})")


@rule("not", takes_entries=True)
def _not(writer: Writer, equation: Any, operands: list[Value]) -> Any:
    dtype = operands[0].dtype
    ones = 2 ** (8 * dtype.itemsize) - 1
    one = {"b": "not {0}", "i": "~{0}", "u": f"{{0}} ^ {ones}"}[dtype.kind]
    return write_each(writer, equation.outvars[0].aval, operands, one, "~{0}")


@rule("shift_left", "shift_right_logical", "shift_right_arithmetic", takes_entries=True)
def _shift(writer: Writer, equation: Any, operands: list[Value]) -> Any:
    name, aval = equation.primitive.name, equation.outvars[0].aval
    bits = 8 * aval.dtype.itemsize
    signed = "{0}" if aval.dtype.kind == "i" else f"wrapped({{0}}, {bits})"
    one = {
        "shift_left": f"({{0}} << {{1}}) & {2**bits - 1} if 0 <= {{1}} < {bits} else 0",
        "shift_right_logical": f"({{0}} & {2**bits - 1}) >> {{1}} if 0 <= {{1}} < {bits} else 0",
        "shift_right_arithmetic": f"{signed} >> ({{1}} if 0 <= {{1}} < {bits} else {bits - 1})",
    }[name]
    one = f"wrapped({one}, {bits})" if aval.dtype.kind == "i" else f"({one}) & {2**bits - 1}"
    many = f"{name}({{0}}, {{1}}, {writer.helper(aval.dtype)})"
    return write_each(writer, aval, operands, one, many)


@rule("div", takes_entries=True)
def write_quotient(writer: Writer, equation: Any, operands: list[Value]) -> Any:
    """The quotient of two operands, for a division or an equation that amounts to one."""
    aval = equation.outvars[0].aval
    if aval.dtype.kind in "iu":
        one = "truncated_quotient({0}, {1})"
        one = f"{one} & {2 ** (8 * aval.dtype.itemsize) - 1}" if aval.dtype.kind == "u" else one
        return write_each(writer, aval, operands, one, "quotients({0}, {1})")
    one = "{0} / {1}" if operands[1].known else "({0} / {1} if {1} else divide_by_zero({0}, {1}))"
    return write_each(writer, aval, operands, one, "{0} / {1}")


@rule("round", takes_entries=True)
def _round(writer: Writer, equation: Any, operands: list[Value]) -> Any:
    to_even = int(equation.params["rounding_method"]) == 1
    many = "np.round({0})" if to_even else "np.trunc({0} + np.copysign(0.5, {0}))"
    return write_each(writer, equation.outvars[0].aval, operands, None, many)


@rule("nextafter")
def _next_after(writer: Writer, equation: Any, operands: list[Value]) -> Any:
    aval, arrays = equation.outvars[0].aval, [writer.as_array(value) for value in operands]
    text = f"np.nextafter({', '.join(arrays)})"
    text = f"{text}.item()" if aval.shape == () else text
    return [writer.set(text, aval.shape, aval.dtype, [writer.whole(value) for value in operands])]


@rule("integer_pow", takes_entries=True)
def _integer_power(writer: Writer, equation: Any, operands: list[Value]) -> Any:
    n = equation.params["y"]
    one, many = f"integer_power({{0}}, {n})", f"{{0}} ** {n}"
    if n in (2, 3):
        one = many = " * ".join(["{0}"] * n)
    if n < 0:
        many = f"1 / {{0}} ** {-n}"
    return write_each(writer, equation.outvars[0].aval, operands, one, many)


@rule("select_n", takes_entries=True)
def _select(writer: Writer, equation: Any, operands: list[Value]) -> Any:
    (which, *cases), aval = operands, equation.outvars[0].aval
    if len(cases) == 1:
        return cases
    if which.known is not None:
        return [cases[int(which.known)]]
    if len(cases) > 2 or which.dtype.kind != "b":
        chosen = ", ".join(f"{{{i + 1}}}" for i in range(len(cases)))
        return write_each(
            writer, aval, operands, f"({chosen})[{{0}}]", f"np.choose({{0}}, ({chosen}))"
        )
    one = "({2} if {0} else {1})"
    alike = cases[0].held == cases[1].held and cases[0].is_numbers == cases[1].is_numbers
    if which.is_number and alike:
        return write_each(writer, aval, operands, one, one)
    many = "np.where({0}, {2}, {1})"
    if all(case.is_number for case in cases):
        many += f".astype({writer.helper(aval.dtype)})"
    return write_each(writer, aval, operands, one, many)


@rule("convert_element_type", takes_entries=True)
def _convert(writer: Writer, equation: Any, operands: list[Value]) -> Any:
    before, after = operands[0].dtype, np.dtype(equation.params["new_dtype"])
    aval, many = equation.outvars[0].aval, f"{{0}}.astype({writer.helper(after)})"
    if before == after:
        return operands
    if after.kind == "b":
        return write_each(writer, aval, operands, "{0} != 0", many)
    if after.kind == "f":
        one = "{0}" if before.kind == "f" else "float({0})"
        return write_each(writer, aval, operands, one, many)
    if before.kind == "f":
        low, high = np.iinfo(after).min, np.iinfo(after).max
        one, many = (f"{name}({{0}}, {low}, {high})" for name in ("saturated", "saturated_array"))
        return write_each(writer, aval, operands, one, f"{many}.astype({writer.helper(after)})")
    bits = 8 * after.itemsize
    one = f"int({{0}}) & {2**bits - 1}" if after.kind == "u" else f"wrapped(int({{0}}), {bits})"
    if np.can_cast(before, after):
        one = "int({0})"
    return write_each(writer, aval, operands, one, many)


@rule("bitcast_convert_type")
def _bitcast(writer: Writer, equation: Any, operands: list[Value]) -> Any:
    aval, whole = equation.outvars[0].aval, writer.whole(operands[0])
    dtype = writer.helper(np.dtype(aval.dtype))
    text = f"bitcast({writer.as_array(whole)}, {dtype}, {tuple(aval.shape)})"
    text = f"{text}.item()" if aval.shape == () else text
    return [writer.set(text, aval.shape, aval.dtype, [whole])]
