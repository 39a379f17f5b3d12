"""Every operation on entries, on ordinary numbers and on those at the edges, in each form of a value."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from kalvi.numerics.interpreter import interpret
from tests.numerics.interpreter.engines import compiled, same

EDGES = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, -2.5, 2.0, -3.0]
ORDINARY = [1e-9, -1e-5, 0.3, -0.7, 0.999, 3.7, -4.2, 12.0, -30.0, 88.0, -88.0, 100.5]
FLOATS = np.array([*EDGES, *ORDINARY])
POSITIVE = np.abs(FLOATS) + 0.0  # where a function of negative numbers is not used

ONE = {
    "neg": lambda x: -x,
    "abs": jnp.abs,
    "square": lax.square,
    "exp": jnp.exp,
    "exp2": jnp.exp2,
    "expm1": jnp.expm1,
    "log": jnp.log,
    "log1p": jnp.log1p,
    "sqrt": jnp.sqrt,
    "rsqrt": lax.rsqrt,
    "cbrt": jnp.cbrt,
    "logistic": jax.nn.sigmoid,
    "tanh": jnp.tanh,
    "sinh": jnp.sinh,
    "cosh": jnp.cosh,
    "asinh": lax.asinh,
    "acosh": lax.acosh,
    "atanh": lax.atanh,
    "sin": jnp.sin,
    "cos": jnp.cos,
    "tan": jnp.tan,
    "asin": lax.asin,
    "acos": lax.acos,
    "atan": lax.atan,
    "erf": lax.erf,
    "erfc": lax.erfc,
    "erf_inv": lax.erf_inv,
    "sign": jnp.sign,
    "floor": jnp.floor,
    "ceil": jnp.ceil,
    "round to even": jnp.round,
    "round away": lambda x: lax.round(x, lax.RoundingMethod.AWAY_FROM_ZERO),
    "is_finite": jnp.isfinite,
    "square by power": lambda x: x**2,
    "cube": lambda x: x**3,
    "seventh power": lambda x: x**7,
    "inverse power": lambda x: x**-3,
    "stop_gradient": lax.stop_gradient,
    "clamp": lambda x: jnp.clip(x, -1.0, 2.0),
    "to int32": lambda x: x.astype(jnp.int32),
    "to bool": lambda x: x.astype(bool),
    "to float32": lambda x: x.astype(jnp.float32),
    "gradient of softplus": jax.vmap(jax.grad(jax.nn.softplus)),
}
# JAX's lose digits near their roots, which the sum leaves out
OF_POSITIVE = {"lgamma": lambda x: 3 + lax.lgamma(x), "digamma": lambda x: 3 + lax.digamma(x)}
TWO = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "div": lambda x, y: x / y,
    "rem": lax.rem,
    "pow": jnp.power,
    "max": jnp.maximum,
    "min": jnp.minimum,
    "atan2": jnp.arctan2,
    "nextafter": lax.nextafter,
    "eq": lambda x, y: x == y,
    "ne": lambda x, y: x != y,
    "lt": lambda x, y: x < y,
    "le": lambda x, y: x <= y,
    "gt": lambda x, y: x > y,
    "ge": lambda x, y: x >= y,
    "select": lambda x, y: jnp.where(x > y, x, y * y),
    "select numbers": lambda x, y: jnp.where(x > y, 0.0, 1.0).astype(x.dtype),
    "logaddexp": jnp.logaddexp,
    "hypot": jnp.hypot,
}
INTEGERS = np.array([0, 1, -1, 2, -2, 7, -7, 31, 100, -128, 2**20, -(2**20)])
OF_INTEGERS = {
    "abs": lambda x, y: jnp.abs(x),
    "sign": lambda x, y: jnp.sign(x),
    "square": lambda x, y: lax.square(jnp.clip(x, -100, 100)),
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: jnp.clip(x, -99, 99) * jnp.clip(y, -99, 99),
    "div": lax.div,
    "rem": lax.rem,
    "floor_divide": jnp.floor_divide,
    "max": jnp.maximum,
    "min": jnp.minimum,
    "and": lambda x, y: x & y,
    "or": lambda x, y: x | y,
    "xor": lambda x, y: x ^ y,
    "not": lambda x, y: ~x,
    "shift_left": lax.shift_left,
    "shift_right_logical": lax.shift_right_logical,
    "shift_right_arithmetic": lax.shift_right_arithmetic,
    "lt": lambda x, y: x < y,
    "to float": lambda x, y: x.astype(jnp.float64),
    "to bool": lambda x, y: x.astype(bool),
    "to int8": lambda x, y: x.astype(jnp.int8),
    "to int64": lambda x, y: x.astype(jnp.int64),
    "to uint32": lambda x, y: x.astype(jnp.uint32),
}
UNSIGNED = np.array([0, 1, 2, 7, 31, 32, 255, 2**31, 2**32 - 1])
WRAPPING = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "neg": lambda x, y: -x,
    **{name: OF_INTEGERS[name] for name in ("div", "rem", "and", "or", "xor", "not", "max")},
    **{name: OF_INTEGERS[name] for name in OF_INTEGERS if name.startswith(("shift", "to "))},
}
BOOLS = np.array([True, False, True, False])
OF_BOOLS = {
    "and": jnp.logical_and,
    "or": jnp.logical_or,
    "xor": jnp.logical_xor,
    "not": lambda x, y: jnp.logical_not(x),
    "eq": lambda x, y: x == y,
    "to int": lambda x, y: x.astype(jnp.int32),
    "to uint": lambda x, y: x.astype(jnp.uint8),
    "to float": lambda x, y: x.astype(jnp.float32),
    "select": lambda x, y: jnp.where(x, y, ~y),
}


def pairs(values):
    """Every value with every other."""
    return [side.ravel() for side in np.meshgrid(values, values)]


CASES = {  # the functions, and what they are tried on
    "one": (ONE, (FLOATS,), ("float32", "float64")),
    "positive": (OF_POSITIVE, (POSITIVE,), ("float32", "float64")),
    "two": (TWO, pairs(FLOATS), ("float32", "float64")),
    "integers": (OF_INTEGERS, pairs(INTEGERS), ("int32", "int64")),
    "unsigned": (WRAPPING, pairs(UNSIGNED), ("uint32",)),
    "bools": (OF_BOOLS, (BOOLS, BOOLS[[0, 0, 1, 1]]), ("bool",)),
}
UNITS = {  # of the polynomials of JAX and of others, and of an argument that is large
    "erf_inv": 10,
    "exp2": 10,
    "pow": 100,
    "tan": 10,
    "logaddexp": 10,
}


@cache
def by_jax(case: str, dtype: str):
    """The arguments of a case, and what JAX makes of them by every function, in one program."""
    functions, values, _ = CASES[case]
    args = [np.asarray(value, dtype) for value in values]
    return args, compiled(lambda *args: every(functions, *args), *args)


def every(functions, *args):
    return {name: function(*args) for name, function in functions.items()}


@pytest.mark.parametrize(
    "case, dtype", [(case, dtype) for case, (_, _, dtypes) in CASES.items() for dtype in dtypes]
)
def test_operations_on_arrays(case, dtype):
    args, expected = by_jax(case, dtype)
    found = interpret(lambda *args: every(CASES[case][0], *args), *args)
    for name, wanted in expected.items():
        same({name: found[name]}, {name: wanted}, UNITS.get(name, 5), by_entry=True)


@pytest.mark.parametrize("case", CASES)
def test_operations_on_numbers(case):
    """One number, three in a vector, and one that stands for all entries of an array."""
    functions, _, dtypes = CASES[case]
    args, expected = by_jax(case, dtypes[-1])

    def forms(*numbers):
        vectors = [jnp.stack([number, number, number]) for number in numbers]
        filled = [jnp.broadcast_to(number, (2, 20)).ravel() for number in numbers]
        alone = every(functions, *(number[None] for number in numbers))
        return alone, every(functions, *vectors), every(functions, *filled)

    every_few = range(0, len(args[0]), len(args[0]) // 60 + 1)
    for i in every_few:
        found = interpret(forms, *(arg[i] for arg in args))
        for name in functions:
            for form, size in zip(found, (1, 3, 40), strict=True):
                wanted = np.full(size, expected[name][i])
                same({name: form[name]}, {name: wanted}, UNITS.get(name, 5), by_entry=True)
