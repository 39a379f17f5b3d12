"""One of several processes that share a low-rank posterior.

python -m tests.numerics.two_processes ADDRESS COUNT NUMBER OUT
"""

import sys

import jax
import jax.numpy as jnp
import numpy as np

import kalvi
from kalvi.numerics import sharding

DIM, RANK, ROWS = 32, 6, 24


def problem() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(ROWS, DIM))
    return x, (x[:, 0] + rng.normal(size=ROWS) > 0).astype(float)


def learned():
    """The state after all rows, its parameters wherever the surrounding context puts them."""
    x, y = problem()
    prior = sharding.spread(
        lambda: kalvi.LowRankPrecision(jnp.zeros(DIM), jnp.zeros((DIM, RANK)), jnp.ones(DIM))
    )
    rows = kalvi.Batch(
        sharding.columns(lambda part: x[part], x.shape), jnp.asarray(y), jnp.ones(ROWS)
    )
    return kalvi.fit(kalvi.RVGA(kalvi.likelihoods.Bernoulli(), block_size=8), prior, [rows])


if __name__ == "__main__":
    address, count, number, out = sys.argv[1:]
    jax.config.update("jax_enable_x64", True)
    jax.distributed.initialize(address, int(count), int(number))
    with sharding.over():
        state = learned()
        factor = state.posterior.precision.factor
        held = sum(part.data.nbytes for part in factor.addressable_shards) / factor.nbytes
        whole = sharding.gather(state)
    np.savez(
        f"{out}.{number}.npz",
        mean=whole.posterior.mean,
        factor=whole.posterior.precision.factor,
        diag=whole.posterior.precision.diag,
        log_evidence=whole.log_evidence,
        held=held,
        devices=jax.device_count(),
    )
