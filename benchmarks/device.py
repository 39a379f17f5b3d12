"""python -m benchmarks.device: seconds per observation of a low-rank stream on this machine's accelerator.

Needs JAX, Equinox and jaxtyping only. Times one block after compilation, host transfers apart.
"""

import argparse
import time

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr

from kalvi.gaussians import LowRankPrecision
from kalvi.likelihoods import Bernoulli, Normal
from kalvi.numerics.precision import matching_precision
from kalvi.numerics.projections import EM, Eigen
from kalvi.rules.base import Batch
from kalvi.rules.rvga import RVGA
from kalvi.streams import run


def seconds(function, *args, repeats=5):
    """The median time of a call that is already compiled."""
    jax.block_until_ready(function(*args))
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        jax.block_until_ready(function(*args))
        times.append(time.perf_counter() - start)
    return sorted(times)[repeats // 2]


def peaks(dtype):
    """Measured TFLOP/s of a matrix product as the library asks for it, and TB/s of a copy."""
    n = 8192
    a = jr.normal(jr.key(0), (n, n), dtype)
    product = seconds(lambda a: run.call(jnp.matmul, a, a), a)
    long = jnp.ones(2**28, dtype)
    copy = seconds(jax.jit(lambda v: v + 1), long)
    return 2 * n**3 / product / 1e12, 2 * long.nbytes / copy / 1e12


def flops(d, p, b):
    """Of a block: two Gram matrices, residuals and the projection."""
    q = p + b
    return 2 * d * (p * p + p * b + b * b) + 2 * d * (p * b + b * b) + 2 * d * (q * p + q * b)


def block(d, p, b, dtype, likelihood, projection, blocks=6):
    """Seconds per observation, the state at the end, and the program's temporary bytes over those of W."""
    factor = 1e-2 * jr.normal(jr.key(0), (d, p), dtype)
    q = LowRankPrecision(jnp.zeros(d, dtype), factor, jnp.ones(d, dtype), projection)
    del factor
    rule = RVGA(likelihood, block_size=b)
    state = jax.tree.map(jnp.array, rule.init(q))
    del q
    x = jr.normal(jr.key(1), (b, d), dtype) / d**0.5
    y = (jr.uniform(jr.key(2), (b,)) < 0.5).astype(dtype)
    batch = Batch(x, y, jnp.ones(b, dtype))
    numbers, constants = eqx.partition(rule, eqx.is_array)
    memory = run._advance.lower(constants, state, numbers, batch, None).compile().memory_analysis()
    times = []
    for _ in range(blocks):
        start = time.perf_counter()
        state = jax.block_until_ready(run._advance(constants, state, numbers, batch, None))
        times.append(time.perf_counter() - start)
    temporary = memory.temp_size_in_bytes / (d * p * x.itemsize)
    return sorted(times[1:])[len(times) // 2 - 1] / b, state, temporary


def main():
    parser = argparse.ArgumentParser(prog="python -m benchmarks.device", description=__doc__)
    parser.add_argument("--dims", type=float, nargs="+", default=[1e6, 1e7])
    parser.add_argument("--ranks", type=int, nargs="+", default=[100, 10])
    parser.add_argument("--blocks", type=int, nargs="+", default=[128])
    parser.add_argument("--dtypes", nargs="+", default=["float32", "float64"])
    args = parser.parse_args()
    print(jax.devices()[0].device_kind, "JAX", jax.__version__)
    print("dtype d p block likelihood projection | us/observation, share of peak, temp/W, finite")
    for dtype in args.dtypes:
        with matching_precision(dtype):
            product, copy = peaks(dtype)
            print(f"{dtype}: products {product:.1f} TFLOP/s, copies {copy:.2f} TB/s", flush=True)
            for d in map(int, args.dims):
                for p in args.ranks:
                    for b in args.blocks:
                        for likelihood in (Normal(), Bernoulli()):
                            for projection in (Eigen(), EM(1)):
                                _line(dtype, d, p, b, likelihood, projection, product)


def _line(dtype, d, p, b, likelihood, projection, product):
    names = type(likelihood).__name__, type(projection).__name__
    each, state, temporary = block(d, p, b, dtype, likelihood, projection)
    share = flops(d, p, b) / (each * b) / (product * 1e12)
    q = state.posterior
    sound = bool(jnp.all(jnp.isfinite(q.mean)) & jnp.all(q.precision.diag > 0))
    figures = f"{each * 1e6:.1f} us, {share:.0%}, {temporary:.2f}, {sound}"
    print(dtype, d, p, b, *names, "|", figures, flush=True)


if __name__ == "__main__":
    main()
