"""Operations on each entry: a formula for Python numbers, and one for arrays.

Python raises errors where IEEE arithmetic has an infinity or is no number; the formulas for numbers do what
arithmetic does. Numbers of float32 are kept in double precision until they meet an array.
"""

import math
from typing import Any

import numpy as np
import scipy.special

from kalvi.numerics.interpreter.writer import RULES, Value, Writer, rule

GUARDED: dict[str, Any] = {}
"""Functions of numbers that formulas call by name."""


def _guarded(function: Any) -> Any:
    GUARDED[function.__name__] = function
    return function


@_guarded
def divide_by_zero(a: float, b: float) -> float:
    """a / b for b = ±0."""
    if a == 0 or math.isnan(a):
        return math.nan
    return math.copysign(math.inf, a) * math.copysign(1.0, b)


@_guarded
def truncated_quotient(a: int, b: int) -> int:
    """a / b towards zero; −1 for b = 0, as XLA has it."""
    if b == 0:
        return -1
    quotient = abs(a) // abs(b)
    return quotient if (a >= 0) == (b >= 0) else -quotient


@_guarded
def remainder(a: float, b: float) -> float:
    """What truncated division leaves, with the sign of a."""
    if isinstance(a, int) and isinstance(b, int):
        return a - b * truncated_quotient(a, b) if b else a
    return math.fmod(a, b) if b and math.isfinite(a) else math.nan


@_guarded
def power(a: float, b: float) -> float:
    """aᵇ."""
    try:
        return math.pow(a, b)
    except (OverflowError, ValueError):
        return _by_numpy(np.power, a, b)


@_guarded
def integer_power(a: float, n: int) -> float:
    """aⁿ."""
    try:
        return a**n
    except (OverflowError, ZeroDivisionError):
        return _by_numpy(np.power, float(a), n)


@_guarded
def to_integer(a: float) -> int:
    """The whole part; of what is no number or too large, some integer."""
    return int(a) if math.isfinite(a) else 0


@_guarded
def log_gamma(a: float) -> float:
    """log|Γ(a)|."""
    return float(scipy.special.gammaln(a))


@_guarded
def sine(a: float) -> float:
    """sin a."""
    return math.sin(a) if math.isfinite(a) else math.nan


@_guarded
def cosine(a: float) -> float:
    """cos a."""
    return math.cos(a) if math.isfinite(a) else math.nan


@_guarded
def tangent(a: float) -> float:
    """tan a."""
    return math.tan(a) if math.isfinite(a) else math.nan


@_guarded
def inverse_hyperbolic_tangent(a: float) -> float:
    """artanh a."""
    return math.atanh(a) if abs(a) < 1 else _by_numpy(np.arctanh, a)


@_guarded
def hyperbolic(name: str, a: float) -> float:
    """sinh a or cosh a."""
    return _by_numpy(getattr(np, name), a)


@_guarded
def round_to_even(a: float) -> float:
    """The nearest whole number."""
    return float(round(a)) if math.isfinite(a) else a


@_guarded
def whole_below(a: float) -> float:
    """The largest whole number that is not larger."""
    return float(math.floor(a)) if math.isfinite(a) else a


@_guarded
def whole_above(a: float) -> float:
    """The smallest whole number that is not smaller."""
    return float(math.ceil(a)) if math.isfinite(a) else a


@_guarded
def inverse_erf(a: float) -> float:
    """The x with erf x = a."""
    return float(scipy.special.erfinv(a))


@_guarded
def digamma(a: float) -> float:
    """The derivative of log Γ."""
    return float(scipy.special.psi(a))


@_guarded
def next_number(a: float, b: float) -> float:
    """The next number of double precision from a towards b."""
    return math.nextafter(a, b)


def _by_numpy(function: Any, *args: float) -> float:
    with np.errstate(all="ignore"):
        return float(function(*args))


# for numbers, for arrays; the latter is the former where Python and NumPy write it alike
FORMULAS: dict[str, tuple[str, str]] = {
    "add": ("{0} + {1}", ""),
    "add_any": ("{0} + {1}", ""),
    "sub": ("{0} - {1}", ""),
    "mul": ("{0} * {1}", ""),
    "neg": ("-{0}", ""),
    "abs": ("abs({0})", ""),
    "square": ("{0} * {0}", ""),
    "max": ("({0} if {0} > {1} or {0} != {0} else {1})", "np.maximum({0}, {1})"),
    "min": ("({0} if {0} < {1} or {0} != {0} else {1})", "np.minimum({0}, {1})"),
    "exp": ("(mexp({0}) if {0} < 709.78 else inf if {0} == {0} else nan)", "np.exp({0})"),
    "exp2": ("power(2.0, {0})", "np.exp2({0})"),
    "expm1": ("(mexpm1({0}) if {0} < 709.78 else inf if {0} == {0} else nan)", "np.expm1({0})"),
    "log": ("(mlog({0}) if {0} > 0.0 else (-inf) if {0} == 0.0 else nan)", "np.log({0})"),
    "log1p": ("(mlog1p({0}) if {0} > -1.0 else (-inf) if {0} == -1.0 else nan)", "np.log1p({0})"),
    "sqrt": ("(msqrt({0}) if {0} >= 0.0 else nan)", "np.sqrt({0})"),
    "rsqrt": (
        "(1.0 / msqrt({0}) if {0} > 0.0 else inf if {0} == 0.0 else nan)",
        "1 / np.sqrt({0})",
    ),
    "cbrt": ("mcbrt({0})", "np.cbrt({0})"),
    "logistic": (
        "(1.0 / (1.0 + mexp(-{0})) if {0} > -709.0 else 0.0 if {0} == {0} else nan)",
        "special.expit({0})",
    ),
    "tanh": ("mtanh({0})", "np.tanh({0})"),
    "sinh": ("hyperbolic('sinh', {0})", "np.sinh({0})"),
    "cosh": ("hyperbolic('cosh', {0})", "np.cosh({0})"),
    "atanh": ("inverse_hyperbolic_tangent({0})", "np.arctanh({0})"),
    "asinh": ("masinh({0})", "np.arcsinh({0})"),
    "atan": ("matan({0})", "np.arctan({0})"),
    "atan2": ("matan2({0}, {1})", "np.arctan2({0}, {1})"),
    "sin": ("sine({0})", "np.sin({0})"),
    "cos": ("cosine({0})", "np.cos({0})"),
    "tan": ("tangent({0})", "np.tan({0})"),
    "erf": ("merf({0})", "special.erf({0})"),
    "erfc": ("merfc({0})", "special.erfc({0})"),
    "erf_inv": ("inverse_erf({0})", "special.erfinv({0})"),
    "lgamma": ("log_gamma({0})", "special.gammaln({0})"),
    "digamma": ("digamma({0})", "special.psi({0})"),
    "sign": ("float(({0} > 0) - ({0} < 0))", "np.sign({0})"),
    "floor": ("whole_below({0})", "np.floor({0})"),
    "ceil": ("whole_above({0})", "np.ceil({0})"),
    "nextafter": ("next_number({0}, {1})", "np.nextafter({0}, {1})"),
    "is_finite": ("-inf < {0} < inf", "np.isfinite({0})"),
    "eq": ("{0} == {1}", ""),
    "ne": ("{0} != {1}", ""),
    "lt": ("{0} < {1}", ""),
    "le": ("{0} <= {1}", ""),
    "gt": ("{0} > {1}", ""),
    "ge": ("{0} >= {1}", ""),
    "stop_gradient": ("{0}", ""),
    "copy": ("{0}", ""),
    "copy_p": ("{0}", ""),
    "pow": ("power({0}, {1})", "np.power({0}, {1})"),
}
BITS = {"and": ("{0} and {1}", "{0} & {1}"), "or": ("{0} or {1}", "{0} | {1}")}
SHIFTS = {"shift_left": "<<", "shift_right_logical": ">>", "shift_right_arithmetic": ">>"}
ROUNDINGS = {0: "np.trunc({0} + np.copysign(0.5, {0}))", 1: "np.round({0})"}


def broadcast_held(operands: list[Value]) -> tuple[int, ...]:
    """The shape in which an operation on each entry leaves its result."""
    return np.broadcast_shapes(*(operand.held for operand in operands))


def write_each(writer: Writer, equation: Any, operands: list[Value], one: str, many: str) -> Any:
    """One result, by the formula for numbers or for arrays."""
    aval, held = equation.outvars[0].aval, broadcast_held(operands)
    formula = one if held == () else many or one
    text = formula.format(*(operand.text for operand in operands))
    return [writer.set(text, aval.shape, aval.dtype, operands, held)]


def _register(name: str, one: str, many: str) -> None:
    def write(writer: Writer, equation: Any, operands: list[Value]) -> Any:
        text = one
        if name in ("add", "sub", "mul") and equation.outvars[0].aval.dtype.kind == "u":
            bits = 8 * equation.outvars[0].aval.dtype.itemsize
            text = f"({one}) & {2**bits - 1}"
        return write_each(writer, equation, operands, text, many)

    RULES[name] = write


for _name, (_one, _many) in FORMULAS.items():
    _register(_name, _one, _many)


@rule("sign")
def _sign(writer: Writer, equation: Any, operands: list[Value]) -> Any:
    whole = operands[0].dtype.kind in "iu"
    one = (
        "({0} > 0) - ({0} < 0)" if whole else "float(({0} > 0) - ({0} < 0)) if {0} == {0} else nan"
    )
    return write_each(writer, equation, operands, one, "np.sign({0})")


@rule("and", "or", "xor", "not")
def _bits(writer: Writer, equation: Any, operands: list[Value]) -> Any:
    name, kind = equation.primitive.name, operands[0].dtype.kind
    if name == "not":
        bits = 8 * operands[0].dtype.itemsize
        one = "not {0}" if kind == "b" else "~{0}" if kind == "i" else f"{{0}} ^ {2**bits - 1}"
        return write_each(writer, equation, operands, one, "~{0}")
    sign = {"and": "&", "or": "|", "xor": "^"}[name]
    return write_each(writer, equation, operands, f"{{0}} {sign} {{1}}", "")


@rule(*SHIFTS)
def _shift(writer: Writer, equation: Any, operands: list[Value]) -> Any:
    name, dtype = equation.primitive.name, operands[0].dtype
    bits = 8 * dtype.itemsize
    one = f"({{0}} {SHIFTS[name]} {{1}}) & {2**bits - 1} if 0 <= {{1}} < {bits} else 0"
    unsigned = writer.helper(np.dtype(f"u{dtype.itemsize}"))
    many = f"shift('{SHIFTS[name]}', {{0}}, {{1}}, {unsigned})"
    return write_each(writer, equation, operands, one, many)


@_guarded
def shift(sign: str, a: Any, by: Any, unsigned: np.dtype) -> Any:
    """Bits of `a` moved, nothing left where they are moved by all their number."""
    dtype = a.dtype if isinstance(a, np.ndarray) else by.dtype
    a, by = np.asarray(a, dtype).view(unsigned), np.asarray(by, dtype).view(unsigned)
    moved = np.left_shift(a, by) if sign == "<<" else np.right_shift(a, by)
    return np.where(by < 8 * unsigned.itemsize, moved, 0).astype(unsigned).view(dtype)


@rule("div")
def _divide(writer: Writer, equation: Any, operands: list[Value]) -> Any:
    if equation.outvars[0].aval.dtype.kind in "iu":
        many = "np.trunc(np.true_divide({0}, {1})).astype(np." + operands[0].dtype.name + ")"
        return write_each(writer, equation, operands, "truncated_quotient({0}, {1})", many)
    one = "({0} / {1} if {1} else divide_by_zero({0}, {1}))"
    if writer.known_number(operands[1]):
        one = "{0} / {1}"
    return write_each(writer, equation, operands, one, "{0} / {1}")


@rule("rem")
def _remainder(writer: Writer, equation: Any, operands: list[Value]) -> Any:
    return write_each(writer, equation, operands, "remainder({0}, {1})", "np.fmod({0}, {1})")


@rule("round")
def _round(writer: Writer, equation: Any, operands: list[Value]) -> Any:
    way = int(equation.params["rounding_method"])
    one = "round_to_even({0})" if way else "float(" + ROUNDINGS[0] + ")"
    return write_each(writer, equation, operands, one, ROUNDINGS[way])


@rule("integer_pow")
def _integer_power(writer: Writer, equation: Any, operands: list[Value]) -> Any:
    n = equation.params["y"]
    one, many = f"integer_power({{0}}, {n})", f"{{0}} ** {n}"
    if n in (2, 3):
        one = many = " * ".join(["{0}"] * n)
    if n < 0:
        many = f"1 / {{0}} ** {-n}"
    return write_each(writer, equation, operands, one, many)


@rule("clamp")
def _clamp(writer: Writer, equation: Any, operands: list[Value]) -> Any:
    one = "({0} if {1} < {0} else {2} if {1} > {2} else {1})"
    many = "np.minimum(np.maximum({1}, {0}), {2})"
    return write_each(writer, equation, operands, one, many)


@rule("select_n")
def _select(writer: Writer, equation: Any, operands: list[Value]) -> Any:
    which, *cases = operands
    if len(cases) == 1:
        return cases
    if len(cases) > 2 or which.dtype.kind != "b":
        if any(operand.held for operand in operands):
            chosen = ", ".join(f"{{{i + 1}}}" for i in range(len(cases)))
            return write_each(writer, equation, operands, "", f"np.choose({{0}}, ({chosen},))")
        texts = ", ".join(case.text for case in cases)
        aval = equation.outvars[0].aval
        return [writer.set(f"({texts},)[{which.text}]", aval.shape, aval.dtype, operands, ())]
    dtype = writer.helper(equation.outvars[0].aval.dtype)
    if which.is_number and cases[0].held == cases[1].held:
        return write_each(
            writer, equation, operands, "({2} if {0} else {1})", "({2} if {0} else {1})"
        )
    loose = all(case.is_number for case in cases)
    many = "np.where({0}, {2}, {1})" + (f".astype({dtype})" if loose else "")
    return write_each(writer, equation, operands, "({2} if {0} else {1})", many)


@rule("convert_element_type")
def _convert(writer: Writer, equation: Any, operands: list[Value]) -> Any:
    before, after = operands[0].dtype, np.dtype(equation.params["new_dtype"])
    if before == after:
        return operands
    one = {
        ("f", "f"): "{0}",
        ("i", "i"): "{0}",
        ("u", "i"): "{0}",
        ("f", "b"): "{0} != 0",
        ("i", "b"): "{0} != 0",
        ("f", "i"): "to_integer({0})",
        ("b", "i"): "int({0})",
        ("b", "u"): "int({0})",
    }.get((before.kind, after.kind), "float({0})")
    if after.kind == "u" and before.kind in "iuf":
        one = f"int({{0}}) & {2 ** (8 * after.itemsize) - 1}"
    return write_each(writer, equation, operands, one, f"{{0}}.astype({writer.helper(after)})")


@rule("reduce_precision")
def _reduce_precision(writer: Writer, equation: Any, operands: list[Value]) -> Any:
    return operands


@rule("bitcast_convert_type")
def _bitcast(writer: Writer, equation: Any, operands: list[Value]) -> Any:
    aval = equation.outvars[0].aval
    if np.dtype(aval.dtype).itemsize != operands[0].dtype.itemsize:
        text = f"bitcast({writer.as_array(operands[0])}, {writer.helper(np.dtype(aval.dtype))}, {aval.shape})"
    else:
        text = f"{writer.as_array(operands[0])}.view({writer.helper(np.dtype(aval.dtype))})"
    text = f"({text}).item()" if aval.shape == () else text
    return [writer.set(text, aval.shape, aval.dtype, operands)]


@_guarded
def bitcast(a: np.ndarray, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
    """The same bits as numbers of another size."""
    return np.ascontiguousarray(a).reshape(-1).view(dtype).reshape(shape)
