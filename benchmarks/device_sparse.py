"""python -m benchmarks.device_sparse: rows a second of a low-rank stream of sparse rows on an accelerator.

Needs JAX, SciPy, Equinox, jaxtyping and platformdirs only. Made-up documents of 70 hashed words, logistic,
float32; batches of several blocks, after compilation, transfers from the host included. --accuracy compares
the predictors of a short stream in float32 with those in float64.
"""

import argparse
import time

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse as sp

from kalvi.gaussians import LowRankPrecision
from kalvi.likelihoods import Bernoulli
from kalvi.numerics.precision import matching_precision
from kalvi.rules.rvga import RVGA
from kalvi.streams import array_batches, run

WORDS = 70


def documents(d: int, n: int, seed: int = 0):
    """Rows of norm 1 with words of Zipf's frequencies in hashed places, and labels."""
    rng = np.random.default_rng(seed)
    vocabulary = 1 / np.arange(1.0, 10**6) ** 0.9
    words = rng.choice(len(vocabulary), (n, WORDS), p=vocabulary / vocabulary.sum())
    places = (words * np.uint64(2654435761) % np.uint64(2**32)).astype(np.int64) % d
    values = np.full(n * WORDS, WORDS**-0.5, np.float32)
    x = sp.csr_matrix((values, places.ravel(), np.arange(0, n * WORDS + 1, WORDS)), (n, d))
    x.sum_duplicates()
    theta = 5 * rng.normal(size=d)
    return x, (rng.random(n) < 1 / (1 + np.exp(-(x @ theta)))).astype(np.float32)


def batches(d: int, n: int, block: int, dtype, seed: int = 0) -> list:
    """Stacked blocks, made on the host."""
    return list(array_batches(*documents(d, n, seed), block_size=block, stacked=True, dtype=dtype))


def begin(d: int, rank: int, block: int, dtype):
    rule = RVGA(Bernoulli(), block_size=block)
    q = LowRankPrecision(jnp.zeros(d, dtype), jnp.zeros((d, rank), dtype), jnp.ones(d, dtype))
    return rule, run.copied(run.begin(rule, q))


def rate(d: int, rank: int, block: int, n: int, dtype) -> str:
    """Rows a second of three rounds, and the seconds of the first."""
    with matching_precision(dtype):
        rule, state = begin(d, rank, block, dtype)
        made, found = batches(d, n, block, dtype), []
        for _ in range(4):
            start = time.perf_counter()
            for batch in made:
                state = run.advance(rule, state, batch)
            jax.block_until_ready(state)
            found.append(time.perf_counter() - start)
    best = ", ".join(f"{n / seconds:,.0f}" for seconds in found[1:])
    return f"rank {rank}, blocks of {block}: {best} rows/s; compiled in {found[0]:.1f} s"


def accuracy(d: int, rank: int, block: int, n: int) -> str:
    """The largest distance of predictors' means, in their deviations, and of these deviations."""
    x, moments = documents(d, 200, seed=9)[0], []
    for dtype in (np.float32, np.float64):
        with matching_precision(dtype):
            rule, state = begin(d, rank, block, dtype)
            for batch in batches(d, n, block, dtype):
                state = run.advance(rule, state, batch)
            q, rows = state.posterior, x.toarray().astype(dtype)
            moments.append((rows @ np.asarray(q.mean), np.asarray(q.marginal_variance(rows))))
    (m, v), (mean, var) = moments
    far = np.max(np.abs(m - mean) / np.sqrt(var)), np.max(np.abs(np.sqrt(v / var) - 1))
    return f"float32 against float64: means {far[0]:.1e} deviations, deviations {far[1]:.1e}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bits", type=int, default=20)
    parser.add_argument("--ranks", type=int, nargs="*", default=[20])
    parser.add_argument("--blocks", type=int, nargs="*", default=[256])
    parser.add_argument("--rows", type=int, default=2**15)
    parser.add_argument("--accuracy", action="store_true")
    options = parser.parse_args()
    d = 2**options.bits
    print(jax.devices()[0].device_kind, flush=True)
    if options.accuracy:
        print(accuracy(2**16, 10, 128, 8192), flush=True)
    for rank in options.ranks:
        for block in options.blocks:
            print(rate(d, rank, block, options.rows, np.float32), flush=True)


if __name__ == "__main__":
    main()
