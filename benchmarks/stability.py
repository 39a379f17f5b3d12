"""One large batch must not be a problem: the posterior does not depend on how rows are cut into batches.

bayesianbandits' R-VGA iterates a joint update of a batch, without damping; kalvi goes through the rows
of a block one site after the other. KL is the divergence from the best Gaussian of the same rows.
"""

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import peers
from benchmarks.logistic import problem
from benchmarks.report import Report
from kalvi.evaluation import metrics
from kalvi.gaussians import Dense
from kalvi.likelihoods import Bernoulli
from kalvi.rules.rule import Batch
from kalvi.rules.rvga import RVGA
from kalvi.rules.vga import vga
from kalvi.streams import array_batches, run

BLOCKS = (1, 8, 32, 128)
VARIANCE = 100.0
OURS = "kalvi, blocks of 32"


def stability(report: Report, quick: bool) -> None:
    """KL and log loss of every way to cut the rows."""
    n, d = (1000, 30) if quick else (5000, 100)
    (x, y), (x_new, y_new) = problem(d, n), problem(d, 5000, seed=2)
    likelihood = Bernoulli()
    with jax.enable_x64(True):
        start = Dense(np.zeros(d), VARIANCE * np.eye(d))
        batch = Batch(jnp.asarray(x), jnp.asarray(y), jnp.ones(n))
        streams = {b: _stream(RVGA(likelihood, block_size=b), start, x, y) for b in BLOCKS}
        best = run.call(vga, likelihood, start, batch, streams[32])
        found = {"the best Gaussian": best.posterior, OURS: streams[32]} | _bandits(x, y)
        rows = []
        for name, q in found.items():
            gap = float(best.elbo - run.call(metrics.elbo, q, start, likelihood, batch))
            loss = metrics.log_loss(_predictions(q, likelihood, x_new), y_new)
            rows.append([name, f"{gap:,.3g}", f"{loss:.4f}"])
        std = np.sqrt(streams[32].variance())
        apart = max(np.max(np.abs(q.mean - streams[32].mean) / std) for q in streams.values())
    report.heading(f"One batch of {n} rows of {d} features, prior N(0, {VARIANCE:.0f} I)")
    report.table(["posterior", "KL above the optimum (nats)", "log loss on 5000 new rows"], rows)
    report.line(
        f"kalvi with blocks of {', '.join(map(str, BLOCKS))} rows: means within {apart:.0e} posterior"
        " standard deviations of each other."
    )


def _bandits(x, y) -> dict[str, Dense]:
    found = {}
    for size, options in ((1, {}), (100, {}), (len(y), {}), (len(y), {"n_iter": 100})):
        model = peers.bandits_model(x, y, size, VARIANCE, **options)
        name = "by row" if size == 1 else f"batches of {size}"
        loops = f", {options['n_iter']} iterations" if options else ""
        found[f"bayesianbandits, {name}{loops}"] = _posterior(model)
    return found


def _predictions(q, likelihood, x) -> np.ndarray:
    x = jnp.asarray(x)
    mean, var = x @ q.mean, q.marginal_variance(x)
    return np.asarray(jax.vmap(lambda m, v: likelihood.predict(m, v)[0])(mean, var))


def _stream(rule, start, x, y):
    return run.fit(rule, start, array_batches(x, y, block_size=rule.block_size)).posterior


def _posterior(model) -> Dense:
    """bayesianbandits keeps the upper triangle of a precision."""
    upper = np.triu(model.cov_inv_)
    precision = upper + np.triu(upper, 1).T
    if not np.all(np.isfinite(precision)):
        precision = np.eye(len(precision)) * np.nan
    root = jnp.linalg.cholesky(jnp.asarray(np.linalg.inv(precision)))
    return Dense.from_root(jnp.asarray(model.coef_), root)
