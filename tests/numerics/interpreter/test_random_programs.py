"""Programs put together at random: whatever the order of operations, both engines agree."""

import jax.numpy as jnp
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax

from tests.numerics.interpreter.engines import agree

OPERATIONS = {  # of two arrays of one shape, or of the first alone
    "sum": lambda a, b: a + b,
    "difference": lambda a, b: a - b,
    "product": lambda a, b: a * b,
    "tanh": lambda a, b: jnp.tanh(a),
    "square root": lambda a, b: jnp.sqrt(jnp.abs(a)),
    "choice": lambda a, b: jnp.where(a > b, a, 0.5 * b),
    "largest": lambda a, b: jnp.maximum(a, jnp.max(b)),
    "turned": lambda a, b: jnp.flip(a) + jnp.roll(b, 1),
    "spread": lambda a, b: a * 0 + jnp.mean(b),
    "entry": lambda a, b: jnp.full_like(a, a.ravel()[-1]) - b,
    "put": lambda a, b: a.at[0].set(b[-1]),
    "transposed": lambda a, b: a.T.reshape(a.shape),
    "cumulative": lambda a, b: jnp.cumsum(a, axis=0) / 3,
    "sorted": lambda a, b: jnp.sort(a, axis=0) + b,
    "loop": lambda a, b: lax.fori_loop(0, 3, lambda i, ab: (ab[1], ab[0] / (1 + i)), (a, b))[0],
    "rows": lambda a, b: lax.scan(lambda c, row: (jnp.tanh(c + row),) * 2, b[0], a)[1],
    "while": lambda a, b: lax.while_loop(lambda a: jnp.max(a) > 1, lambda a: a / 2, a),
    "branch": lambda a, b: lax.cond(jnp.sum(a) > 0, lambda: a, lambda: b + 1),
    "products": lambda a, b: a / 4 @ (b.T @ b) if a.ndim == 2 else a * (a @ b) / 8,
}
SHAPES = [(1,), (3,), (12,), (2, 2), (1, 7), (5, 3)]
STEPS = st.lists(
    st.tuples(st.sampled_from(sorted(OPERATIONS)), st.integers(0, 9), st.integers(0, 9)),
    min_size=4,
    max_size=20,
)


@settings(max_examples=12)
@given(STEPS, st.sampled_from(SHAPES), st.integers(0, 99))
def test_random_programs(steps, shape, seed):
    def run(a, x):
        pool = [a, jnp.full_like(a, x), jnp.linspace(-1, 2, a.size).reshape(a.shape)]
        for name, i, j in steps:
            pool.append(OPERATIONS[name](pool[-1 - i % len(pool)], pool[-1 - j % len(pool)]))
        return pool[3:]

    rng = np.random.default_rng(seed)
    agree(run, rng.normal(size=shape), np.float64(rng.normal()), units=1000)
