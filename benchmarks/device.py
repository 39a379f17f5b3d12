"""python -m benchmarks.device: seconds per observation of a low-rank stream on this machine's accelerator.

Needs JAX, Equinox, jaxtyping and platformdirs only. Times one block after compilation, host transfers
apart. Compilation is from scratch with KALVI_CACHE=off in the environment. --accuracy compares eight blocks
in float32 with the same in float64.
"""

import argparse
import time

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from kalvi.gaussians import LowRankPrecision
from kalvi.likelihoods import Bernoulli, Normal
from kalvi.numerics.precision import matching_precision
from kalvi.numerics.projections import EM, Eigen
from kalvi.rules.rule import Batch
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


def block(d, p, b, dtype, likelihood, projection, blocks=10):
    """Seconds per observation and to compile, the state at the end, and temporary bytes over those of W."""
    factor = 1e-2 * jr.normal(jr.key(0), (d, p), dtype)
    q = LowRankPrecision(jnp.zeros(d, dtype), factor, jnp.ones(d, dtype), projection)
    del factor
    rule = RVGA(likelihood, block_size=b)
    state = jax.tree.map(jnp.array, rule.init(q))
    del q
    x = jr.normal(jr.key(1), (b, d), dtype) / d**0.5
    y = (jr.uniform(jr.key(2), (b,)) < 0.5).astype(dtype)
    batch = Batch(x, y, jnp.ones(b, dtype))

    def taken(state):
        return run._take_apart(*jax.tree.flatten((rule, state, batch, None)))

    start = time.perf_counter()
    program = run._advance.lower(*taken(state)).compile()
    compiling = time.perf_counter() - start
    times = []
    for _ in range(blocks):
        start = time.perf_counter()
        state = jax.block_until_ready(program(*taken(state)[1:]))
        times.append(time.perf_counter() - start)
    temporary = program.memory_analysis().temp_size_in_bytes / (d * p * x.itemsize)
    return sorted(times[1:])[len(times) // 2 - 1] / b, compiling, state, temporary


def accuracy(d, p, b, scale, blocks=8):
    """Relative errors of float32 beside float64, from rows with eight strong directions."""
    found = {}
    for dtype in ("float32", "float64"):
        with matching_precision(dtype):

            def draw(seed, *shape, dtype=dtype):
                values = np.random.default_rng(seed).normal(size=shape)
                return jnp.asarray(values.astype(np.float32), dtype)

            strong = draw(0, 8, d)
            q = LowRankPrecision(jnp.zeros(d, dtype), 1e-3 * draw(1, d, p), jnp.ones(d, dtype))
            rule = RVGA(Bernoulli(), block_size=b)
            state = jax.tree.map(jnp.array, rule.init(q))
            for i in range(blocks):
                x = (draw(10 + i, b, d) + scale * draw(30 + i, b, 8) @ strong) / d**0.5
                y = (draw(50 + i, b) < 0).astype(dtype)
                state = run.advance(rule, state, Batch(x, y, jnp.ones(b, dtype)))
            q = state.posterior
            parts = q.mean, q.precision.diag - 1, q.marginal(x)[1], state.log_evidence
            found[dtype] = [np.asarray(part, np.float64) for part in parts]
    off = [np.linalg.norm(a - b) / np.linalg.norm(b) for a, b in zip(*found.values(), strict=True)]
    names = ("mean", "diag", "predictors", "evidence")
    errors = ", ".join(f"{name} {error:.1e}" for name, error in zip(names, off, strict=True))
    print(f"accuracy d={d} p={p} b={b}, strong directions {scale:g}: {errors}", flush=True)


def main():
    parser = argparse.ArgumentParser(prog="python -m benchmarks.device", description=__doc__)
    parser.add_argument("--dims", type=float, nargs="+", default=[1e6, 1e7])
    parser.add_argument("--ranks", type=int, nargs="+", default=[100, 10])
    parser.add_argument("--blocks", type=int, nargs="+", default=[128])
    parser.add_argument("--dtypes", nargs="+", default=["float32", "float64"])
    parser.add_argument("--likelihoods", nargs="+", default=["Normal", "Bernoulli"])
    parser.add_argument("--projections", nargs="+", default=["Eigen", "EM"])
    parser.add_argument("--accuracy", action="store_true")
    args = parser.parse_args()
    print(jax.devices()[0].device_kind, "JAX", jax.__version__)
    if args.accuracy:
        for scale in (1.0, 30.0):
            accuracy(200_000, 50, 128, scale)
        return
    print(
        "dtype d p block likelihood projection | "
        "us/observation, share of peak, s to compile, temp/W, finite"
    )
    likelihoods = [{"Normal": Normal(), "Bernoulli": Bernoulli()}[n] for n in args.likelihoods]
    projections = [{"Eigen": Eigen(), "EM": EM(1)}[name] for name in args.projections]
    for dtype in args.dtypes:
        with matching_precision(dtype):
            product, copy = peaks(dtype)
            print(f"{dtype}: products {product:.1f} TFLOP/s, copies {copy:.2f} TB/s", flush=True)
            for d in map(int, args.dims):
                for p in args.ranks:
                    for b in args.blocks:
                        for likelihood in likelihoods:
                            for projection in projections:
                                _line(dtype, d, p, b, likelihood, projection, product)


def _line(dtype, d, p, b, likelihood, projection, product):
    names = type(likelihood).__name__, type(projection).__name__
    each, compiling, state, temporary = block(d, p, b, dtype, likelihood, projection)
    share = flops(d, p, b) / (each * b) / (product * 1e12)
    q = state.posterior
    sound = bool(jnp.all(jnp.isfinite(q.mean)) & jnp.all(q.precision.diag > 0))
    figures = f"{each * 1e6:.1f} us, {share:.0%}, {compiling:.1f} s, {temporary:.2f}, {sound}"
    print(dtype, d, p, b, *names, "|", figures, flush=True)


if __name__ == "__main__":
    main()
