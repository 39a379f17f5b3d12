"""Random keys, and the bits that JAX's default generator makes from them."""

from typing import Any

import jax
import numpy as np
from jax.extend.random import threefry_prng_impl

from kalvi.numerics.interpreter.writer import KEY, NotInterpretable, Value, Writer, rule


@rule("random_wrap")
def _wrap(writer: Writer, equation: Any, operands: list[Value]) -> Any:
    """Pairs of numbers as keys."""
    shape, value = tuple(equation.outvars[0].aval.shape), writer.whole(operands[0])
    key = writer.helper(KEY)
    text = f"np.ascontiguousarray({value.text}).view({key}).reshape({shape})"
    text = f"tuple({value.text}.tolist())" if shape == () else text
    return [writer.set(text, shape, KEY, [value])]


@rule("random_unwrap")
def _unwrap(writer: Writer, equation: Any, operands: list[Value]) -> Any:
    return [_numbers_of(writer, operands[0])]


def _numbers_of(writer: Writer, key: Value) -> Value:
    """The two numbers of each key, along a last axis."""
    shape = (*key.shape, 2)
    text = f"np.ascontiguousarray({key.text}).view(np.uint32).reshape({shape})"
    text = f"np.array({key.text}, np.uint32).reshape({shape})" if key.is_number else text
    return writer.set(text, shape, np.uint32, [key])


@rule("random_bits", "random_split", "random_fold_in", "random_seed")
def _random(writer: Writer, equation: Any, operands: list[Value]) -> Any:
    """The random bits that the generator makes from a key, written out."""
    _need_threefry(equation)
    name, given = equation.primitive.name, equation.params
    generator, outer = threefry_prng_impl, operands[0].shape

    def one(key: Any, *data: Any) -> Any:
        if name == "random_bits":
            return generator.random_bits(key, given["bit_width"], given["shape"])
        if name == "random_split":
            return generator.split(key, given["shape"])
        return generator.fold_in(key, *data) if data else generator.seed(key)

    each = one
    for _ in outer:
        each = jax.vmap(each)
    operands = [_numbers_of(writer, v) if v.dtype == KEY else v for v in operands]
    avals = [jax.ShapeDtypeStruct(value.shape, value.dtype) for value in operands]
    closed = jax.make_jaxpr(each)(*avals)
    (found,) = writer.inline(closed.jaxpr, closed.consts, operands)
    return [found] if name == "random_bits" else _wrap(writer, equation, [found])


def _need_threefry(equation: Any) -> None:
    """Refuse keys of other generators, whose bits NumPy cannot make."""
    for variable in (equation.invars[0], equation.outvars[0]):
        dtype = variable.aval.dtype
        if jax.dtypes.issubdtype(dtype, jax.dtypes.prng_key) and str(dtype) != "key<fry>":
            raise NotInterpretable(
                f"{equation.primitive.name} of a {dtype} has no form in NumPy here."
            )


@rule("threefry2x32")
def _write_threefry(writer: Writer, equation: Any, operands: list[Value]) -> Any:
    texts = ", ".join(writer.as_array(value) for value in operands)
    whole = [writer.whole(value) for value in operands]
    return writer.set_several(f"{writer.helper(threefry)}({texts})", equation.outvars, whole)


ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))


def threefry(key0: Any, key1: Any, x0: Any, x1: Any) -> tuple[Any, Any]:
    """The Threefry hash of pairs of numbers (Salmon et al. 2011), twenty rounds."""
    keys = (key0, key1, key0 ^ key1 ^ np.uint32(0x1BD11BDA))
    x0, x1 = x0 + keys[0], x1 + keys[1]
    for i in range(5):
        for by in ROTATIONS[i % 2]:
            x0 = x0 + x1
            x1 = ((x1 << np.uint32(by)) | (x1 >> np.uint32(32 - by))) ^ x0
        x0 = x0 + keys[(i + 1) % 3]
        x1 = x1 + keys[(i + 2) % 3] + np.uint32(i + 1)
    return x0, x1


@rule("iota_2x32_shape")
def _count_in_halves(writer: Writer, equation: Any, operands: list[Value]) -> Any:
    """The positions of the entries of an array: the upper 32 bits, and the lower."""
    shape = tuple(equation.params["shape"])
    text = f"count_in_halves({shape})"
    return writer.set_several(text, equation.outvars, [])
