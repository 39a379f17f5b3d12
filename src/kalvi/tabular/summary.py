"""What a model of a table is, in plain JSON: for `kalvi inspect`, for the report, for scripts."""

from functools import singledispatch
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.exceptions import NotFittedError

from kalvi import __version__
from kalvi.columns.encoder import FREE
from kalvi.columns.groups import NEW_LEVEL
from kalvi.columns.numbers import in_words
from kalvi.columns.targets import Classes
from kalvi.estimators.predictive import predicted
from kalvi.intervals import normal
from kalvi.likelihoods import Normal
from kalvi.tabular.model import TableModel
from kalvi.tabular.reached import measured, one_pass_error, reached, sentence
from kalvi.tabular.record import LEVELS, Record

MOST_EFFECTS, LEVEL = 200, 0.95
MOST_CONTRASTS = 2000
"""Levels of columns with more than so many are against none."""
UNITS_APART = 3.0
"""Means this many deviations from the first rows, or deviations as many times theirs, are worth a word."""


@singledispatch
def summary(model: Any, name: str, diagnosis: Any = None) -> dict[str, Any]:
    """All that a person may want to know of a model."""
    raise TypeError(f"{type(model).__name__} is no model")


@summary.register(TableModel)
def _of_table(model: TableModel, name: str, diagnosis: Any = None) -> dict[str, Any]:
    record, estimator = model.record, model.estimator
    evidence, found = model.evidence() if record.rows else None, reached(model)
    return {
        "kalvi": __version__,
        "name": name,
        "model": model.model,
        "target": model.target.name,
        "classes": list(model.target.labels) if isinstance(model.target, Classes) else None,
        "rows": record.rows,
        "weight": record.weight,
        "seconds": round(record.seconds, 3),
        "passes": int(getattr(estimator, "n_passes_", 1)),
        "reached": found and found | {"text": sentence(found)},
        "parameters": _parameters(model),
        "rank": getattr(estimator, "rank", None),
        "log_evidence": evidence,
        "log_loss": None if not evidence else -evidence / record.weight,
        "noise_scale": _noise(model),
        "files": [dict(file) for file in record.files],
        "settings": _settings(model),
        "columns": model.encoder.described(),
        "curve": curve(record),
        "calibration": _calibration(model),
        "coverage": _coverage(model),
        "effects": effects(model),
        "examples": [dict(example) for example in record.examples],
        "diagnosis": diagnosis,
        "warnings": warnings(model),
    }


def _noise(model: TableModel) -> float | None:
    found = getattr(model.estimator, "noise_scale_", None) if model.record.rows else None
    zero, one = model.target.restored(np.array([0.0, 1.0]))
    return None if found is None else float(found) * float(one - zero)


def effects(model: TableModel) -> list[dict[str, Any]]:
    """Coefficients with their intervals, those that are surely far from zero first.

    Numbers are in deviations of the first rows, so that all are comparable; a level is against the mean of
    its column over the rows, which the intercept holds otherwise.
    """
    if not model.kind.widens() or not model.record.rows:
        return []
    names, rows = contrasts(model)
    mean, std = _laws(model, rows)
    zero, one = model.target.restored(np.array([0.0, 1.0]))
    mean, std = mean * (one - zero), std * (one - zero)
    if names[-1] == "intercept":
        mean[len(names) - 1 :: len(names)] += zero
    _, lower, upper = normal(mean, std, LEVEL)
    classes = model.target.labels if isinstance(model.target, Classes) else ()
    found = []
    for i in np.argsort(-np.maximum(lower, -upper), kind="stable")[:MOST_EFFECTS]:
        one = {"mean": mean[i], "std": std[i], "lower": lower[i], "upper": upper[i]}
        group = classes[i // len(names)] if len(mean) > len(names) else None
        named = {"name": names[i % len(names)], **{k: float(v) for k, v in one.items()}}
        found.append(named | {"class": group})
    return found


def contrasts(model: TableModel) -> tuple[list[str], Any]:
    """The effects by name, and what they are of the coefficients and the intercept.

    The intercept is that of a row that is average in every column.
    """
    encoder, intercept = model.encoder, bool(model.estimator.fit_intercept)
    names, width = encoder.names(), encoder.width
    kept = [i for i, name in enumerate(names) if name != FREE and not name.endswith(NEW_LEVEL)]
    rows = sp.lil_array((len(kept) + intercept, width + intercept))
    rows[np.arange(len(kept)), kept] = 1.0
    for group in encoder.groups:
        slots, share = group.shares()
        if len(slots) <= MOST_CONTRASTS:
            which = np.flatnonzero(np.isin(kept, slots))
            rows[np.ix_(which, slots)] = (np.asarray(kept)[which][:, None] == slots) - share
            if intercept:
                rows[len(kept), slots] = share
    if intercept:
        rows[len(kept), width] = 1.0
    return [names[i] for i in kept] + ["intercept"] * intercept, sp.csr_array(rows)


def _laws(model: TableModel, rows: Any) -> tuple[np.ndarray, np.ndarray]:
    """Mean and deviation of these combinations of the coefficients, class by class."""
    estimator = model.estimator
    q, outputs, width = estimator._on_host()[2], estimator._outputs(), rows.shape[1]
    layout = {"intercept": False, "dtype": estimator.dtype}
    means, stds, noiseless = [], [], Normal(np.zeros((), estimator.dtype))
    for k in range(outputs):
        wide = sp.csr_array(
            (rows.data, rows.indices + k * width, rows.indptr), shape=(rows.shape[0], q.dim)
        )
        mean, variance, _ = predicted(noiseless, q, wide, layout)
        means.append(mean)
        stds.append(np.sqrt(variance))
    return np.concatenate(means), np.concatenate(stds)


@singledispatch
def diagnosed(model: Any, draws: int = 1000) -> dict[str, Any] | None:
    """How far the Gaussian is from the posterior of the sample's rows, where the estimator can say."""
    return None


@diagnosed.register(TableModel)
def _diagnosed_table(model: TableModel, draws: int = 1000) -> dict[str, Any] | None:
    sample = model.record.sample
    if not hasattr(model.estimator, "diagnose") or sample.x is None or not len(sample.y):
        return None
    x = sample.x.copy()
    x.resize(x.shape[0], model.estimator.n_features_in_)
    found = model.estimator.diagnose(
        x, sample.y, sample_weight=sample.weight, n_draws=draws, random_state=0
    )
    how, error = reached(model), None
    if how is not None and how["how"] == "one pass":
        error = one_pass_error(model, (x, sample.y, sample.weight))
    return {
        "shift": _float(found.shift),
        "one_pass": error and error | {"text": measured(error)},
        "pareto_k": _float(found.pareto_k),
        "verdict": found.verdict,
        "draws": int(found.n_draws),
        "rows": int(found.n_rows),
        "ess": _float(found.ess),
    }


def warnings(model: TableModel) -> list[str]:
    """What a person should look into."""
    how = reached(model)
    found = (
        [f"{sentence(how)}; set passes higher."] if how and not how.get("converged", True) else []
    )
    for column in model.encoder.described():
        if column["kind"] in ("number", "time") and "mean" in column:
            far = abs(column["mean"] - column["centre"]) / column["scale"]
            wide = column["std"] / column["scale"]
            if max(far, wide) > UNITS_APART:
                scale = 0.0 if column.get("constant") else column["scale"]
                found.append(
                    f"'{column['name']}' is {in_words(column['kind'], column['mean'], column['std'])} over "
                    f"all rows, but was {in_words(column['kind'], column['centre'], scale)} in the first, "
                    "by which it is standardised; shuffle the rows, or widen the prior "
                    "(--set prior_scale=...)."
                )
        if column["kind"] == "category" and column.get("levels", 0) > 0.5 * model.record.rows > 50:
            found.append(
                f"'{column['name']}' has {column['levels']} levels in {model.record.rows} rows: an "
                f"identifier? Leave it out with --drop {column['name']}."
            )
    return found


def _parameters(model: TableModel) -> int:
    try:
        posterior = getattr(model.estimator, "posterior_", None)
    except (NotFittedError, AttributeError):
        posterior = None
    free = model.encoder.names().count(FREE) if model.kind.widens() else 0
    return 0 if posterior is None else int(posterior.dim) - free


def _settings(model: TableModel) -> dict[str, Any]:
    choices = model.choices._asdict()
    parameters = choices.pop("parameters")
    own = {name: value for name, value in choices.items() if value not in (None, (), False)}
    return own | parameters | {"full covariance": getattr(model.estimator, "rank", 0) is None}


def curve(record: Record) -> dict[str, Any]:
    """The progressive loss along the rows."""
    rows, total = record.curve
    with np.errstate(divide="ignore", invalid="ignore"):
        loss = -total / rows
        recent = -np.diff(total, prepend=0.0) / np.diff(rows, prepend=0.0)
    good = np.isfinite(loss) & np.isfinite(recent)
    return {
        "rows": rows[good].tolist(),
        "loss": loss[good].tolist(),
        "recent": recent[good].tolist(),
    }


def _calibration(model: TableModel) -> dict[str, Any] | None:
    count, predicted, observed = model.record.checks.bins
    some = count > 0
    if not some.any():
        return None
    return {
        "predicted": (predicted[some] / count[some]).tolist(),
        "observed": (observed[some] / count[some]).tolist(),
        "count": count[some].astype(int).tolist(),
    }


def _coverage(model: TableModel) -> dict[str, Any] | None:
    checks = model.record.checks
    if not checks.count or isinstance(model.target, Classes):
        return None
    observed = (checks.inside / checks.count).tolist()
    return {"level": list(LEVELS), "observed": observed, "count": checks.count}


def _float(value: Any) -> Any:
    return float(value) if isinstance(value, int | float | np.number) else value
