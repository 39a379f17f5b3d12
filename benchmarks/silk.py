"""Smooth binary factorisation (SILK): a hidden corner of a matrix, compared with peers, and a large
matrix.

Peers on 400 × 300 entries, K = 4, all learning their priors: 2000 sweeps of Pólya–Gamma Gibbs sampling
in NumPy (`polyagamma`), and NumPyro's AutoNormal with Adam, the better of two rates, timed until its
loss is within 0.001 nats of its lowest, so that it pays nothing for knowing when to stop. The author's
own code, in TensorFlow, is compared if it is found (`benchmarks/silk_peer.py`; what is published does
not run as it is). Seconds are on two cores, after compilation; ratios are over the matrices. The large
matrix is fitted from start to end, compilation included.
"""

import tempfile
import time

import numpy as np

import kalvi
from benchmarks import silk_peer
from benchmarks.report import Report, spread
from kalvi.evaluation import metrics
from papers import silk_corner
from papers.silk_autonormal import auto_normal
from papers.silk_corner import AUTO_NORMAL, COUPLED, TRUTH, Run
from papers.silk_data import synthetic
from papers.silk_fits import CHAINS, MEAN_FIELD

LARGE, QUICK_LARGE, K = (4000, 4000), (400, 400), 8
SEEDS, PEER_SWEEPS, QUICK_STEPS = 2, 40, 1000
FAMILIES = (MEAN_FIELD, CHAINS, COUPLED, "no smoothness")
AUTHOR = f"silkfactorization, {PEER_SWEEPS} sweeps"


def silk(report: Report, quick: bool) -> None:
    """Both tables."""
    _peers(report, quick)
    _large(report, QUICK_LARGE if quick else LARGE)


def _peers(report: Report, quick: bool) -> None:
    runs: list[dict[str, Run]] = []
    for seed in range(1 if quick else SEEDS):
        made = silk_corner.problem(seed, quick)
        runs.append(silk_corner.of_all(made, seed, quick))
        if quick:
            found = auto_normal(made.matrix, silk_corner.K, steps=QUICK_STEPS, seed=seed)
            runs[-1][AUTO_NORMAL] = Run(float(found.losses[-1]), float(found.seconds[-1]))
        if silk_peer.available() and not quick:
            runs[-1][AUTHOR] = _author(made.matrix)
    rows, where = [], "the corner"
    ours = np.array([found[COUPLED].seconds for found in runs])
    loss = {name: float(np.mean([found[name].loss for found in runs])) for name in runs[0]}
    for name in runs[0]:
        seconds, ratio = np.array([found[name].seconds for found in runs]), ""
        if name == TRUTH:
            continue
        if name not in FAMILIES:
            ratio = report.faster(name, seconds / ours, where)
            report.closer(name, loss[COUPLED], loss[name], where)
        label = f"kalvi, {name}" if name in FAMILIES else name
        rows.append([label, f"{loss[name]:.4f}", spread(seconds), ratio])
    shape = " × ".join(map(str, made.matrix.x.shape))
    report.heading(f"A hidden corner of {shape}, matrices: {len(runs)}")
    report.table(["method", "log loss", "seconds", f"kalvi, {COUPLED}, is faster by"], rows)
    report.line(f"The truth has a log loss of {loss[TRUTH]:.4f}.")
    if AUTHOR not in runs[0]:
        report.line("The author's code is left out: it is not there, or the run is a quick one.")


def _author(matrix) -> Run:
    with tempfile.TemporaryDirectory() as folder:
        found = silk_peer.fit(matrix, silk_corner.K, PEER_SWEEPS, folder)
    return Run(float(found["held_out"][-1]), float(found["seconds"][-1]))


def _large(report: Report, shape: tuple[int, int]) -> None:
    """One fit from start to end by the estimator, compilation and all."""
    made = synthetic(shape, K, (0.01, 0.01), seed=0, missing=0.02)
    locations = made.matrix.row_locations, made.matrix.col_locations
    rows = []
    for posterior in ("chains", "coupled"):
        model = kalvi.BinaryFactorization(
            K, row_locations=locations[0], col_locations=locations[1], posterior=posterior
        )
        began = time.perf_counter()
        model.fit(made.matrix.given.astype(np.float32))
        seconds = time.perf_counter() - began
        history = model.elbo_history_
        p = model.predict_proba(*np.nonzero(made.matrix.hidden))
        loss = metrics.log_loss(np.asarray(p), made.matrix.answers)
        rows.append([posterior, f"{seconds:.3g}", len(history) - 1, f"{loss:.5f}"])
    report.heading(f"{shape[0]} × {shape[1]}, K = {K}, to convergence")
    report.table(["posterior", "seconds", "sweeps", "log loss"], rows)
