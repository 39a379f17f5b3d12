"""What `interpret` promises: who computes, what is kept, what is shared, what is refused."""

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from kalvi.numerics.interpreter import NotInterpretable, interpret, program
from tests.numerics.interpreter.engines import agree

VECTOR = np.arange(4.0)


class Model(eqx.Module):
    weight: np.ndarray
    scale: float
    power: int = eqx.field(static=True)
    name: str = "model"

    def __call__(self, x):
        return self.scale * self.weight * x**self.power


@pytest.fixture
def programs():
    """The programs that are kept, none at first."""
    program._programs.clear()
    return program._programs


def test_modules_in_and_out(programs):
    def moved(model, x):
        return eqx.tree_at(lambda m: m.weight, model, model(x)), "word", None

    found, word, nothing = interpret(moved, Model(VECTOR, 2.0, 3), np.float64(2))
    assert (found.name, found.power, word, nothing) == ("model", 3, "word", None)
    np.testing.assert_array_equal(found.weight, 16 * VECTOR)
    assert found.scale == 2 and isinstance(found.scale, np.ndarray)


def test_a_new_number_makes_no_new_program(programs):
    for scale in (1.0, 2.0):
        found = interpret(lambda_free, Model(VECTOR, scale, 2), VECTOR)
        np.testing.assert_array_equal(found, scale * VECTOR**3)
    assert len(programs) == 1
    interpret(lambda_free, Model(VECTOR, 1.0, 3), VECTOR)  # a constant of the program
    interpret(lambda_free, Model(VECTOR.astype(np.float32), 1.0, 3), VECTOR)
    interpret(lambda_free, Model(VECTOR[:1], 1.0, 3), VECTOR)
    assert len(programs) == 4


def test_large_arrays_are_let_go_of(programs):
    """Also in loops and branches, and none that is needed later."""

    def many(a, n):
        b = jnp.exp(-a) + a
        c = jnp.sqrt(b) * jnp.sum(b)

        def step(i, carried):
            moved = jnp.sin(carried) + c
            return lax.cond(i > 1, lambda: moved * b, lambda: jnp.abs(moved) - a) / 1e4

        looped = lax.fori_loop(0, n, step, c)
        _, rows = lax.scan(lambda t, row: (t + jnp.sum(row * c[0]), t * row), 0.0, looped + b)
        return looped, jnp.where(a > 0, rows, c)

    agree(many, np.random.default_rng(0).normal(size=(128, 130)), np.array(5), units=1000)
    (text,) = (program.text for program in programs.values())
    assert text.count("del ") > 5


def lambda_free(model, x):
    return model(x)


def test_the_oldest_programs_go_first(programs, monkeypatch):
    monkeypatch.setattr(program, "MOST_PROGRAMS", 2)
    for n in (1, 2, 1, 3):
        interpret(jnp.sum, np.ones(n))
    shapes = [key[2][0] for key in programs]
    assert shapes == [(1,), (3,)]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_results_have_the_dtypes_of_jax(dtype):
    def run(x, n):
        return x * 2.5, x + n, jnp.sum(x) / 3, x > 0, jnp.mean(x), jnp.float32(1) * x, n / 2

    agree(run, VECTOR.astype(dtype), np.int32(3))


def test_two_words_of_a_number():
    """A number of Python does not make more of float32, one of NumPy does, as in JAX."""
    x = VECTOR.astype(np.float32)
    assert interpret(jnp.multiply, x, 2.0).dtype == np.float32
    assert interpret(jnp.multiply, x, np.float64(2)).dtype == np.float64


def test_nothing_at_all():
    assert interpret(lambda: None) is None
    agree(lambda x: x[:0] * 2, VECTOR)


SHARED = {
    "itself": lambda x, y: x,
    "a view": lambda x, y: x.reshape(2, 2),
    "a row": lambda x, y: x[1:],
    "turned": lambda x, y: x[::-1],
    "by a branch": lambda x, y: lax.cond(x[0] < 9, lambda: x, lambda: y),
    "by a choice": lambda x, y: jnp.where(x[0] < 9, x, y),
    "by a loop": lambda x, y: lax.while_loop(lambda a: a[0] > 9, lambda a: a + 1, x),
    "by a window": lambda x, y: x.at[jnp.int32(x[3]) + 9].set(1),
    "by a slice": lambda x, y: lax.dynamic_slice(x, (jnp.int32(x[0]),), (3,)),
    "broadcast": lambda x, y: jnp.broadcast_to(x, (2, 4)),
    "a diagonal": lambda x, y: x.reshape(2, 2).T,
}


@pytest.mark.parametrize("name", SHARED)
def test_results_share_no_memory_with_arguments(name):
    x, y = VECTOR.copy(), VECTOR + 1
    found = interpret(SHARED[name], x, y)
    assert found.flags.writeable and not np.shares_memory(found, x)
    found[...] = 77
    np.testing.assert_array_equal(x, VECTOR)


def test_results_share_no_memory_with_the_program():
    constant = np.arange(20.0)

    def run(x):
        kept = jnp.asarray(constant)
        return kept, kept[3:], jnp.arange(30), jnp.zeros(40), jnp.full((5, 5), 2.0) + 0 * x

    first = interpret(run, np.float64(1))
    expected = [a.copy() for a in first]
    for a in first:
        a[...] = 77
    for found, wanted in zip(interpret(run, np.float64(1)), expected, strict=True):
        np.testing.assert_array_equal(found, wanted)
    np.testing.assert_array_equal(constant, np.arange(20.0))


def test_results_share_no_memory_with_each_other():
    def run(x):
        y = x + 1
        return y, y, y[1:], y.reshape(2, 2), x, x, jnp.zeros(4), jnp.zeros(4)

    found = interpret(run, VECTOR)
    for i, a in enumerate(found):
        assert not any(np.shares_memory(a, b) for b in found[:i])


def test_arguments_are_not_written_over():
    def run(x, m):
        def step(i, state):
            v, m = state
            return v.at[i].set(-1), m.at[i, 0].add(v[i])

        return lax.fori_loop(0, 4, step, (x, m))

    x, m = VECTOR.copy(), np.ones((4, 2))
    agree(run, x, m)
    np.testing.assert_array_equal(x, VECTOR)
    np.testing.assert_array_equal(m, 1)


@pytest.mark.parametrize(
    "function, name",
    [
        (lambda x: lax.conv(x[None, None], x[None, None], (1,), "SAME"), "conv_general_dilated"),
        (lambda x: jnp.fft.rfft(x), "fft"),
        (lambda x: lax.complex(x, x), "operation complex"),
        (lambda x: x.astype(jnp.bfloat16), "convert_element_type of bfloat16"),
        (lambda x: lax.fori_loop(0, 3, lambda i, a: lax.bessel_i1e(a), x), "bessel_i1e"),
        (lambda x: jax.pure_callback(np.sin, x, x), "pure_callback"),
    ],
)
def test_what_has_no_form_is_refused_by_name(function, name):
    with pytest.raises(NotInterpretable, match=name):
        interpret(function, VECTOR)


def test_a_sum_that_is_too_large_for_its_type_is_not_wrong_in_silence():
    with pytest.raises(OverflowError):
        interpret(lambda n: n * n, np.int32(2**20))


def test_two_threads_at_once(programs, monkeypatch):
    """Programs are made, used and forgotten by several threads; each finds what it asked for."""
    monkeypatch.setattr(program, "MOST_PROGRAMS", 3)
    start = threading.Barrier(4)

    def work(seed):
        rng = np.random.default_rng(seed)
        start.wait()
        for _ in range(40):
            x = rng.normal(size=rng.integers(1, 7))
            np.testing.assert_allclose(interpret(running, x), np.cumsum(x**2), rtol=1e-12)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert len(programs) == 3


def running(x):
    return lax.scan(lambda total, x: (total + x**2,) * 2, 0.0, x)[1]


def test_warnings_of_numpy_stay_inside():
    found = interpret(lambda x: (x / 0, jnp.log(-x), jnp.exp(1000 * x)), VECTOR)
    np.testing.assert_array_equal(found[2][1:], np.inf)
    with pytest.warns(RuntimeWarning):
        np.log(-VECTOR)


STREAM = """
import numpy as np
import jax
jax.config.update("jax_enable_x64", True)
from jax._src import xla_bridge
from kalvi.gaussians import Dense
from kalvi.likelihoods import Bernoulli
from kalvi.rules.rule import Batch
from kalvi.rules.rvga import RVGA
from kalvi.streams import run
rows = np.ones((4, 3)), np.ones(4), np.ones(4)
state = run.fit(RVGA(Bernoulli()), Dense.from_root(np.zeros(3), np.eye(3)), [Batch(*rows)])
assert isinstance(state.posterior.mean, np.ndarray) and state.posterior.mean[0] > 0
print(xla_bridge.backends_are_initialized())
"""


def test_no_backend_of_jax_is_started():
    found = subprocess.run(
        [sys.executable, "-c", STREAM], capture_output=True, text=True, timeout=300
    )
    assert (found.returncode, found.stdout) == (0, "False\n"), found.stderr
