"""Random numbers: the bits of JAX, from the same keys."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jax import lax

from kalvi.numerics.interpreter import NotInterpretable, interpret
from tests.numerics.interpreter.engines import agree, compiled


def bits(seed):
    key = jr.key(seed)
    keys = jr.split(key, 5)
    folded = jr.fold_in(key, seed + 1)
    return {
        "key": jr.key_data(key),
        "split": jr.key_data(keys),
        "one key": jr.key_data(keys[:1]),
        "folded": jr.key_data(folded),
        "a grid": jr.key_data(jr.split(folded, (2, 3))),
        "bits": jr.bits(folded, (7,)),
        "one": jr.bits(keys[2]),
        "bytes": jr.bits(key, (9,), "uint8"),
        "long": jr.bits(key, (3, 2), "uint64"),
        "for each": jnp.stack([jr.bits(key, (3,)) for key in keys]),
        "randint": jr.randint(key, (11,), -5, 1000),
        "permutation": jr.permutation(key, 10),
        "bernoulli": jr.bernoulli(key, 0.3, (20,)),
        "none": jr.bits(key, (0,)),
        "wrapped": jr.bits(jr.wrap_key_data(jr.key_data(keys))[1]),
        "one wrapped": jr.bits(jr.wrap_key_data(jr.key_data(key))),
    }


@pytest.mark.parametrize("seed", [0, 7, 2**31 + 5])
def test_bits(seed):
    agree(bits, np.uint32(seed))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_numbers(dtype):
    def numbers(seed):
        key = jr.key(seed)
        return (
            jr.uniform(key, (50,), dtype),
            jr.normal(key, (50,), dtype),
            jr.gumbel(key, (9,), dtype),
        )

    agree(numbers, np.uint32(3), units=50)


def test_a_seed_with_a_sign():
    agree(lambda seed: jr.key_data(jr.key(seed)), np.int64(-3))


def test_keys_in_loops():
    def walk(seed):
        def step(key, _):
            key, now = jr.split(key)
            return key, jr.bits(now)

        last, found = lax.scan(step, jr.key(seed), None, length=4)
        return jr.key_data(last), found

    agree(walk, np.uint32(1))


def test_many_keys_at_once():
    agree(
        lambda seed: jax.vmap(lambda k: jr.bits(k, (2,)))(jr.split(jr.key(seed), 3)), np.uint32(1)
    )


def test_other_generators_are_refused():
    def other(seed):
        return jr.bits(jr.key(seed, impl="rbg"), (3,))

    assert compiled(other, np.uint32(0)).shape == (3,)
    with pytest.raises(NotInterpretable, match="random_seed of a key<rbg>"):
        interpret(other, np.uint32(0))
