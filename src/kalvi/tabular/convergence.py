"""How close the posterior of a linear model is to the optimum of the variational bound."""

from typing import Any

import numpy as np

from kalvi.estimators.linear.diagnostics import learned_alone
from kalvi.tabular.record import Record

ROUNDING = 1e-14
"""A gap below this share of the bound is rounding error."""


def reached(estimator: Any, record: Record, unit_log_density: float) -> dict[str, Any]:
    """How the posterior of a linear model was found: "exact", "optimum", "one pass", "stream" or "merged".

    `unit_log_density` is what the log density of the rows changes by if the target has its original unit.
    """
    if hasattr(estimator, "elbo_"):
        return {
            "how": "optimum",
            "passes": int(estimator.n_passes_),
            "gap": float(estimator.elbo_gap_),
            "converged": bool(getattr(estimator, "converged_", True)),
            "bound": float(estimator.elbo_) - unit_log_density,
        }
    if not len(record.curve.rows):
        return {"how": "merged", "passes": 1}
    return {"how": _of_one_pass(estimator), "passes": 1}


def _of_one_pass(estimator: Any) -> str:
    if not estimator.has_optimum():
        return "stream"
    return "exact" if estimator.exact_in_one_pass() else "one pass"


def sentence(found: dict[str, Any]) -> str:
    """How the posterior was found, as a phrase."""
    if found["how"] != "optimum":
        return SENTENCES[found["how"]]
    passes = f"{found['passes']} passes over the rows"
    if not found["converged"]:
        return f"not yet at the optimum of the variational bound after {passes}"
    rounding = ROUNDING * max(abs(found["bound"]), 1.0)
    within = "to rounding" if found["gap"] <= rounding else f"within {found['gap']:.0e} nats"
    return f"at the optimum of the variational bound after {passes} ({within})"


SENTENCES = {
    "exact": "exact after one pass over the rows",
    "stream": "one pass over the rows, by a rule that has no optimum to go on to",
    "merged": "merged from models of parts of the rows",
    "one pass": "one pass over the rows: near the optimum of the variational bound, but not at it "
    "(kalvi fit --diagnose measures how far, on a sample)",
}


def one_pass_error(estimator: Any, rows: tuple[Any, np.ndarray, np.ndarray]) -> dict[str, Any]:
    """The distance between the posterior after one pass over these rows and their optimum.

    It says little about a longer stream: there the distance shrinks if the rows come in random order, and
    grows if they are sorted.
    """
    x, y, weight = rows
    alone = learned_alone(estimator, x, y, weight)
    first = alone.posterior_
    best = alone.set_params(passes="auto").climb_to_optimum(x, y, sample_weight=weight).posterior_
    std, wide = np.sqrt(best.variance()), np.sqrt(first.variance())
    away = np.abs(np.asarray(first.mean) - np.asarray(best.mean)) / std
    ratio = wide / std - 1
    return {
        "rows": len(y),
        "mean_in_sd": float(away.max()),
        "deviations": [float(ratio.min()), float(ratio.max())],
    }


def error_sentence(error: dict[str, Any]) -> str:
    """The error of one pass, as a sentence."""
    narrow, wide = error["deviations"]
    return (
        f"{error['rows']:,} of the rows, learned alone in one pass, end up to {error['mean_in_sd']:.2g} sd "
        f"from their own optimum, deviations {narrow:+.0%} to {wide:+.0%}"
    )
