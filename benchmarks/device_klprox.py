"""python -m benchmarks.device_klprox: KL-proximal inference on this machine's accelerator, in float64.

Logistic regression of 3500 rows and 5000 columns (Gisette's size, made-up rows) for 30 prior variances,
each from the optimum before; exact Gaussian process classification of N rows; a fit and a gradient of a
sparse one of a million rows. Needs JAX, Equinox and jaxtyping. Seconds without compilation, and the share
of the device's measured product speed that a pass reaches (4/3 N³ operations: a Cholesky root and a
triangular inverse, in whose halves products count double).
"""

import time

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from kalvi import kernels
from kalvi.likelihoods import Bernoulli
from kalvi.rules.klprox.function_space import LatentPrior, klprox
from kalvi.rules.klprox.sparse import choose_inducing, sparse_elbo, sparse_klprox
from kalvi.rules.rule import Batch
from kalvi.streams import run

DELTAS = np.logspace(0, 6, 30)


def main():
    jax.config.update("jax_enable_x64", True)
    print(jax.devices()[0].device_kind, "JAX", jax.__version__, flush=True)
    speed = _product_speed()
    print(f"float64 products {speed / 1e12:.1f} TFLOP/s", flush=True)
    _many_columns()
    for n in (1500, 3500, 10_000, 20_000):
        _exact(n, speed)
    _sparse()


def _many_columns(n=3500, d=5000):
    x, y = _rows(n, d)
    gram = run.call(_inner, x / jnp.linalg.norm(x, axis=1)[:, None])
    for label in ("with compilation", "again"):
        began, start, passes, bounds = time.perf_counter(), None, 0, []
        for delta in DELTAS:
            found = run.call(_scaled, jnp.asarray(delta), gram, y, start)
            start, passes = found.sites, passes + int(found.passes)
            bounds.append(float(found.elbo))
            assert bool(found.converged), delta
        seconds = time.perf_counter() - began
        print(
            f"{n} x {d}, {len(DELTAS)} prior variances {label}: {seconds:.2f} s, {passes} passes, "
            f"best bound {max(bounds):.4f} at {DELTAS[int(np.argmax(bounds))]:.3g}",
            flush=True,
        )


def _exact(n, speed):
    x, y = _rows(n, 5)
    prior = run.call(_gram, 4.0 * kernels.RBF(1.5), x)
    jax.block_until_ready(run.call(klprox, Bernoulli(), prior, y, jnp.ones(n)))
    began = time.perf_counter()
    found = run.call(klprox, Bernoulli(), prior, y, jnp.ones(n))
    bound = float(found.elbo)
    seconds, passes = time.perf_counter() - began, int(found.passes)
    share = 4 / 3 * n**3 * passes / seconds / speed
    print(
        f"exact N = {n}: {seconds:.3f} s, {passes} passes, {share:.0%} of products, bound {bound:.4f}",
        flush=True,
    )


def _sparse(n=1_000_000, m=500):
    x, y = _rows(n, 5)
    kernel, batch = 4.0 * kernels.RBF(1.5), Batch(x, y, jnp.ones(n))
    rows = run.call(choose_inducing, kernel, x[:20_000], m).rows
    inducing, mean = x[rows], jnp.zeros(n)
    for label in ("with compilation", "again"):
        began = time.perf_counter()
        found = run.call(_fitted, kernel, mean, inducing, batch)
        bound, middle = float(found.elbo), time.perf_counter()
        slopes = run.call(_slopes, kernel, mean, inducing, batch, found.posterior)
        jax.block_until_ready(slopes)
        ended = time.perf_counter()
        print(
            f"sparse N = {n}, M = {m} {label}: {middle - began:.2f} s for {int(found.passes)} passes, "
            f"gradient {ended - middle:.2f} s, bound {bound:.2f}",
            flush=True,
        )


def _rows(n, d):
    """Correlated columns, and labels that a smooth function of a few of them decides."""
    keys = jr.split(jr.key(0), 4)
    mixed = jr.normal(keys[0], (n, 40)) @ jr.normal(keys[1], (40, d)) / 6 if d > 40 else 0.0
    x = mixed + jr.normal(keys[2], (n, d))
    f = 2 * jnp.sin(2 * x[:, 0]) + x[:, 1] * x[:, 2]
    return x, (jr.uniform(keys[3], (n,)) < jax.nn.sigmoid(f)).astype(float)


def _product_speed(n=8192):
    a = jr.normal(jr.key(1), (n, n))
    times = []
    for _ in range(4):
        began = time.perf_counter()
        jax.block_until_ready(run.call(_inner, a))
        times.append(time.perf_counter() - began)
    return 2 * n**3 / min(times)


def _inner(x):
    return x @ x.T


def _gram(kernel, x):
    return LatentPrior(jnp.zeros(x.shape[0]), kernel.gram(x))


def _scaled(delta, gram, y, start):
    prior = LatentPrior(jnp.zeros_like(y), delta * gram)
    return klprox(Bernoulli(), prior, y, jnp.ones_like(y), start)


def _fitted(kernel, mean, inducing, batch):
    return sparse_klprox(Bernoulli(), kernel, mean, inducing, batch, tolerance=1e-8)


def _slopes(kernel, mean, inducing, batch, q):
    return jax.grad(lambda k: sparse_elbo(Bernoulli(), k, mean, inducing, batch, q))(kernel)


if __name__ == "__main__":
    main()
