"""Factor analysis of rows: the mean log-likelihood of new rows in nats, and CPU seconds.

scikit-learn's `FactorAnalysis` iterates over a table in memory to the maximum likelihood, by an exact
SVD (`lapack`) or a randomised one, its default, both with its default tolerance. Its `IncrementalPCA`
streams; its covariance, that of probabilistic PCA with one noise variance for all columns, is evaluated
by the same log-likelihood. kalvi's default makes one pass over the rows, in chunks of 1000 like
IncrementalPCA; its `batch_em` continues to the maximum likelihood.
"""

import numpy as np
from scipy.stats import multivariate_normal
from sklearn.decomposition import FactorAnalysis, IncrementalPCA

import kalvi
from benchmarks.report import Report, spread
from benchmarks.timing import cpu_seconds
from papers import datasets

ROUNDS, QUICK_ROUNDS, CHUNK = 3, 2, 1000
ONE_PASS, TO_THE_END = "kalvi, one pass", "kalvi, batch_em"
RIVALS = {"scikit-learn, lapack": TO_THE_END, "scikit-learn, randomized": TO_THE_END}
RIVALS |= {"IncrementalPCA, one pass": ONE_PASS}
"""Every peer is compared with what does the same."""


def factor(report: Report, quick: bool) -> None:
    """A table for each set of rows."""
    rounds = QUICK_ROUNDS if quick else ROUNDS
    x = np.asarray(datasets.load("usps")["X"], float)
    x = x[np.random.default_rng(0).permutation(len(x))]
    sets = {"usps, 256 pixels": (x[:2000] if quick else x, 10)}
    if not quick:
        sets["simulated, 300 columns"] = simulated(300, 5000), 20
    for name, (x, rank) in sets.items():
        _race(report, name, *np.split(x, [4 * len(x) // 5]), rank, rounds)


def simulated(d: int, n: int, rank: int = 20) -> np.ndarray:
    """Rows of a factor model whose noise differs from column to column."""
    rng = np.random.default_rng(0)
    loadings = rng.normal(size=(rank, d))
    return rng.normal(size=(n, rank)) @ loadings + rng.normal(size=(n, d)) * rng.gamma(2, 1, d)


def contenders(rank: int) -> dict:
    """Functions of rows that give the log-likelihoods of new ones."""
    return {
        ONE_PASS: lambda x: _streamed(kalvi.FactorAnalysis(rank), x).score,
        TO_THE_END: lambda x: kalvi.FactorAnalysis(rank, method="batch_em").fit(x).score,
        "scikit-learn, lapack": lambda x: FactorAnalysis(rank, svd_method="lapack").fit(x).score,
        "scikit-learn, randomized": lambda x: FactorAnalysis(rank).fit(x).score,
        "IncrementalPCA, one pass": lambda x: _density(_streamed(IncrementalPCA(rank), x)),
    }


def _streamed(model, x):
    for start in range(0, len(x), CHUNK):
        if len(part := x[start : start + CHUNK]) > model.n_components:
            model.partial_fit(part)
    return model


def _density(model: IncrementalPCA):
    law = multivariate_normal(model.mean_, model.get_covariance())
    return lambda new: float(np.mean(law.logpdf(new)))


def _race(report: Report, name: str, x, new, rank: int, rounds: int) -> None:
    runs, scores = contenders(rank), {}
    for method, run in list(runs.items()):
        try:
            scores[method] = float(run(x)(new))  # compiles
        except Exception as error:
            report.failed(method, error)
            del runs[method]
    seconds = {method: [] for method in runs}
    for _ in range(rounds):
        for method, run in runs.items():
            seconds[method].append(cpu_seconds(run, x))
    where, rows = f"{name}, {len(x):,} rows, {rank} factors", []
    for method, taken in seconds.items():
        ratio = ""
        if rival := RIVALS.get(method):
            ratio = report.faster(method, np.array(taken) / np.array(seconds[rival]), where)
            ratio += f", {rival}"
            report.closer(method, -scores[rival], -scores[method], where, "negative score")
        rows.append([method, f"{scores[method]:.3f}", spread(taken), ratio])
    report.heading(where)
    report.table(["", "log-likelihood", "seconds", "kalvi is faster by"], rows)
