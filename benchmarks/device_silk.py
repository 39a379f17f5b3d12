"""python -m benchmarks.device_silk: smooth binary factorisation on this machine's accelerator, in float32.

A half-sweep (the statistics of one side) of 16384 x 16384 entries by the fused kernel and by plain JAX,
with the error of both against float64 products; whole sweeps; and 10^5 x 10^5 entries from the first guess.
Needs JAX, Equinox and jaxtyping. Milliseconds without compilation; the roofline counts float32 operations,
8K + K(K+1) an entry (2K(K+1) + 2K coupled) at 60 TFLOP/s.
"""

import sys
import time
from functools import partial

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from kalvi.numerics import tridiagonal
from kalvi.rules.silk import SILK, Chains, Coupled, Table, group_locations, probabilities, start
from kalvi.rules.silk.fused import fused_statistics
from kalvi.rules.silk.moments import Moments, coupled_moments, factorised_moments
from kalvi.rules.silk.observed import block_statistics
from kalvi.streams import run

FLOPS = 60e12
FAMILIES = {"chains": Chains.independent, "coupled": Coupled.independent}


PARTS = {
    "errors": lambda: _errors(),
    "half": lambda: [_half_sweep(16384, k) for k in (8, 16)],
    "solves": lambda: [_solves(n, 16) for n in (16384, 100_000)],
    "small": lambda: _sweeps(16384, 16, "chains", 12),
    "large": lambda: _sweeps(100_000, 16, "chains", 6),
    "coupled": lambda: _sweeps(16384, 16, "coupled", 12),
}


def main():
    print(jax.devices()[0].device_kind, "JAX", jax.__version__, flush=True)
    for name in sys.argv[1:] or PARTS:
        PARTS[name]()


def _moments(key, n, k, family) -> Moments:
    mean = jr.normal(key, (n, k))
    if family == "chains":
        return factorised_moments(mean, 0.1 * jr.uniform(key, (n, k)))
    root = 0.1 * jr.normal(key, (n, k, k))
    return coupled_moments(mean, root @ jnp.swapaxes(root, 1, 2))


def _plain(signs, rows, cols, adds_mean, transposed):
    table = Table(signs, None, transposed)
    return table.reduce(rows, cols, adds_mean, block_statistics)


def _errors(n=3000, m=5000, k=16):
    """The largest errors, as shares of the largest value, of pull, curvature and bound."""
    signs = jr.randint(jr.key(0), (n, m), -1, 2).astype(jnp.int8)
    for family in FAMILIES:
        rows, cols = _moments(jr.key(1), n, k, family), _moments(jr.key(2), m, k, family)
        adds_mean = family == "chains"
        for transposed in (False, True):
            table = signs.T if transposed else signs
            fused = fused_statistics(table, rows, cols, adds_mean=adds_mean, transposed=transposed)
            with jax.default_matmul_precision("highest"):
                plain = jax.jit(_plain, static_argnums=(3, 4))(
                    table, rows, cols, adds_mean, transposed
                )
            with jax.enable_x64(True):
                wide = jax.tree.map(lambda a: np.asarray(a, np.float64), (rows, cols))
                exact = jax.jit(_plain, static_argnums=(3, 4))(table, *wide, adds_mean, transposed)
                for name, found in (("fused", fused), ("plain", plain)):
                    off = [
                        float(jnp.max(jnp.abs(a - b)) / jnp.max(jnp.abs(b)))
                        for a, b in zip(found, exact, strict=True)
                    ]
                    print(f"error {family} transposed={transposed} {name}: {off}", flush=True)
                    assert max(off) < 1e-5, off


def _half_sweep(n, k):
    signs = jr.randint(jr.key(0), (n, n), -1, 2).astype(jnp.int8)
    for family in FAMILIES:
        rows, cols = _moments(jr.key(1), n, k, family), _moments(jr.key(2), n, k, family)
        adds_mean = family == "chains"
        flops = 8 * k + k * (k + 1) if adds_mean else 2 * k * (k + 1) + 2 * k
        for transposed in (False, True):

            def fused(signs, rows, cols, adds_mean=adds_mean, transposed=transposed):
                return fused_statistics(
                    signs, rows, cols, adds_mean=adds_mean, transposed=transposed
                )

            def plain(signs, rows, cols, adds_mean=adds_mean, transposed=transposed):
                with jax.default_matmul_precision("highest"):
                    return _plain(signs, rows, cols, adds_mean, transposed)

            for name, function in (("fused", fused), ("plain", plain)):
                ms = _milliseconds(jax.jit(function), signs, rows, cols)
                speed = n * n / ms * 1e3
                print(
                    f"half-sweep {n} x {n} K={k} {family} transposed={transposed} {name}: {ms:.2f} ms, "
                    f"{speed:.2e} entries/s, {speed * flops / FLOPS:.0%} of the float32 roofline",
                    flush=True,
                )


def _solves(n, k):
    links = jr.uniform(jr.key(0), (n - 1, k)) * 100
    root = jr.normal(jr.key(1), (n, k, k))
    loads = root @ jnp.swapaxes(root, 1, 2) + jnp.eye(k)
    b = jr.normal(jr.key(2), (n, k))
    for name, function in (
        ("solve", tridiagonal.solve),
        ("and invert", tridiagonal.solve_and_invert),
    ):
        began = time.perf_counter()
        jax.block_until_ready(run.call(function, links, loads, b))
        first = time.perf_counter() - began
        ms = _milliseconds(partial(run.call, function), links, loads, b)
        print(
            f"block-tridiagonal {name} n={n} k={k}: {ms:.2f} ms, the first {first:.1f} s",
            flush=True,
        )


def _sweeps(n, k, family, sweeps):
    walk = jax.jit(_walk, static_argnums=(1, 2))
    truth = [walk(jr.key(i), n, k) for i in (3, 4)]
    signs = _signs(n, *truth)
    jax.block_until_ready(signs)
    where, table = group_locations(np.arange(n, dtype=float)), Table(signs)

    def begin(table, key):
        return start(table, where, where, k, FAMILIES[family], key=key, dtype="float32")

    began = time.perf_counter()
    silk = jax.block_until_ready(run.call(begin, table, jr.key(5)))
    print(
        f"{n} x {n} K={k} {family}: start {time.perf_counter() - began:.2f} s with compilation",
        flush=True,
    )
    rule = SILK()
    state = rule.init(silk)
    for sweep in range(sweeps):
        began = time.perf_counter()
        state = jax.block_until_ready(run.advance(rule, state, table))
        print(
            f"  sweep {sweep}: {time.perf_counter() - began:.4f} s, ELBO {state.elbo:.6g}",
            flush=True,
        )
    rows, cols = (
        side.moments().at(jnp.arange(0, n, n // 500)) for side in (state.silk.rows, state.silk.cols)
    )
    found = probabilities(rows, cols, state.silk.rows.posterior.adds_mean)
    real = jax.nn.sigmoid(truth[0][:: n // 500] @ truth[1][:: n // 500].T)
    print(
        f"  probabilities off by {float(jnp.mean(jnp.abs(found - real))):.4f} on average",
        flush=True,
    )
    used = jax.devices()[0].memory_stats() or {}
    print(f"  peak memory {used.get('peak_bytes_in_use', 0) / 1e9:.1f} GB", flush=True)


def _walk(key, n, k, rate=0.01):
    """Smooth factors: an Ornstein-Uhlenbeck process of unit steps."""
    correlation = jnp.exp(-rate / 2)
    noise = jr.normal(key, (n, k)) * jnp.sqrt(1 - correlation**2)

    def join(a, b):
        return a[0] * b[0], a[1] * b[0] + b[1]

    decay = jnp.full((n, k), correlation)
    return 0.8 * jax.lax.associative_scan(join, (decay, noise.at[0].set(jr.normal(key, (k,)))))[1]


def _signs(n, u, v):
    """Entries drawn from the factors, one in ten missing, made in blocks of rows."""
    block = max(2**26 // n, 1)

    @jax.jit
    def draw(u, key):
        odds = jax.nn.sigmoid(u @ v.T)
        chance = jr.uniform(key, (2, *odds.shape))
        sign = jnp.where(chance[0] < odds, 1, -1)
        return jnp.where(chance[1] < 0.1, 0, sign).astype(jnp.int8)

    blocks = [draw(u[i : i + block], jr.key(i)) for i in range(0, n, block)]
    return jnp.concatenate(blocks)


def _milliseconds(function, *args, repeats=10):
    jax.block_until_ready(function(*args))
    best = np.inf
    for _ in range(3):
        began = time.perf_counter()
        for _ in range(repeats):
            found = function(*args)
        jax.block_until_ready(found)
        best = min(best, (time.perf_counter() - began) / repeats)
    return best * 1e3


if __name__ == "__main__":
    main()
