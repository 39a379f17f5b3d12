"""What a model of a table is, in plain JSON: for `kalvi inspect`, for the report, for scripts."""

from functools import singledispatch
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.exceptions import NotFittedError

from kalvi import __version__
from kalvi.columns.encoder import FREE
from kalvi.columns.numbers import in_words
from kalvi.columns.targets import Classes
from kalvi.tabular import effects
from kalvi.tabular.kinds import LEVELS
from kalvi.tabular.model import Choices, TableModel
from kalvi.tabular.progressive import rows_before_scores
from kalvi.tabular.reached import reached, sentence
from kalvi.tabular.record import Record
from kalvi.tabular.scores import ClassScores
from kalvi.tabular.shapes import shape_of

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
        "passes": int(getattr(estimator, "n_passes_", 1)) if _has_passes(model) else None,
        "reached": found and found | {"text": sentence(found)},
        "parameters": _parameters(model),
        "rank": getattr(estimator, "rank", None),
        "log_evidence": evidence,
        "log_loss": None if not evidence else -evidence / record.weight,
        "noise_scale": _noise(model),
        "shape": shape_of(estimator) if record.rows else None,
        "files": file_names(record),
        "settings": _settings(model),
        "columns": model.encoder.described(),
        "curve": curve(record),
        "drift": drift(record),
        "scores": _scores(model),
        "scores_absent": _scores_absent(model),
        "calibration": _calibration(model),
        "coverage": _coverage(model),
        "effects_of": _effects_of(model),
        "effects_units": [effects.STANDARDISED, effects.ORIGINAL],
        "effects_total": effects.count(model),
        "effects": effects.effects(model),
        "intercept": effects.intercepts(model),
        "examples": [dict(example) for example in record.examples],
        "diagnosis": diagnosis or record.diagnosis,
        "diagnosis_absent": None if diagnosis or record.diagnosis else diagnosis_absent(model),
        "warnings": warnings(model),
    }


def _noise(model: TableModel) -> float | None:
    found = getattr(model.estimator, "noise_scale_", None) if model.record.rows else None
    zero, one = model.target.restored(np.array([0.0, 1.0]))
    return None if found is None else float(found) * float(one - zero)


@singledispatch
def diagnosed(model: Any, draws: int = 1000) -> dict[str, Any] | None:
    """How far the Gaussian is from the posterior: as the fit found, or of the sample if rows were kept."""
    return None


@diagnosed.register(TableModel)
def _diagnosed_table(model: TableModel, draws: int = 1000) -> dict[str, Any] | None:
    return model.record.diagnosis or model.diagnosed(draws)


def diagnosis_absent(model: TableModel) -> str | None:
    """Why there is no diagnosis of a linear model, and what to do."""
    if not model.kind.widens() or not model.record.rows:
        return None
    if not model.has_diagnosis():
        return "There is no diagnosis: a model that forgets has no other posterior to be compared with."
    if model.record.sample.x is None:
        return (
            "There is no diagnosis of the Gaussian (Pareto k), and the model holds no rows to make one "
            "from: fit it with --diagnose, or with --keep-rows to have it made later."
        )
    return "There is no diagnosis of the Gaussian (Pareto k): kalvi inspect --diagnose makes one."


def warnings(model: TableModel) -> list[str]:
    """What a person should look into."""
    how, moved = reached(model), drift(model.record)
    found = (
        [f"{sentence(how)}; set passes higher."] if how and not how.get("converged", True) else []
    )
    found += [moved["words"]] if moved and moved["sure"] and moved["change"] > 0 else []
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
    if choices["max_width"] == Choices._field_defaults["max_width"]:
        del choices["max_width"]
    own = {name: value for name, value in choices.items() if value not in (None, (), False)}
    shape = {"full covariance": model.estimator.rank is None} if model.kind.widens() else {}
    return own | parameters | shape


def _has_passes(model: TableModel) -> bool:
    """Whether rows are passed over; a Gaussian process and a network in training have no such count."""
    return model.streams() or model.kind.widens()


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


def drift(record: Record) -> dict[str, Any] | None:
    """How the loss of the last tenth of the rows compares with that of the tenth before, also in words."""
    found = None if record.losses is None else record.losses.drift()
    if found is None:
        return None
    loss = "log loss" if isinstance(record.scores, ClassScores) else "squared error"
    change = found["change"]
    compared = (
        f"{100 * abs(change):.0f} % {'above' if change > 0 else 'below'}"
        if abs(change) >= 0.005
        else "the same as"
    )
    said = f"The {loss} of the last tenth of the rows is {compared} that of the tenth before"
    if not found["sure"]:
        said += ", no more than chance explains."
    elif change > 0:
        said += ": the stream may have changed; see forgetting (--set forgetting=0.999)."
    else:
        said += ": the model is still learning, or the rows have become easier."
    return found | {"loss": loss, "words": said}


def file_names(record: Record) -> list[dict[str, Any]]:
    """The files that were learned, without their folders."""
    return [{**file, "path": Path(str(file["path"])).name or "-"} for file in record.files]


def _scores(model: TableModel) -> dict[str, Any] | None:
    """Scores of the predictions, each beside a baseline."""
    found, checks = model.record.scores, model.record.checks
    if found is None or not found.rows():
        return None
    in_sample = model.record.in_sample
    if isinstance(found, ClassScores):
        assert isinstance(model.target, Classes)
        measures = found.measures(model.target.labels)
    else:
        measures = found.measures(*["the mean of the rows"] * in_sample)
        held = checks.inside / max(checks.count, 1)
        measures += [
            {
                "name": f"coverage of {100 * level:.0f} % intervals",
                "value": float(share),
                "baseline": float(level),
                "baseline_is": "the nominal level",
                "better": "nearer",
            }
            for level, share in zip(LEVELS, held, strict=True)
        ]
    return {"rows": found.rows(), "in_sample": in_sample, "measures": measures}


def _scores_absent(model: TableModel) -> str | None:
    """Why there are no scores, if rows were learned and none was scored."""
    rows, encoder = model.record.rows, model.encoder
    inputs = encoder.numbers.width + len(encoder.groups)
    needed = max(model.kind.first_rows(), rows_before_scores(inputs))
    scored = model.record.scores is not None and model.record.scores.rows()
    if not rows or scored or rows > needed:  # of models of older versions nothing is known
        return None
    return (
        f"There are no scores: the first rows, from which a model knows too little, are learned before "
        f"any is predicted, and there were only {rows:,} of them."
    )


def _effects_of(model: TableModel) -> str | None:
    """What a coefficient adds to."""
    if not model.kind.widens():
        return None
    if not isinstance(model.target, Classes):
        return f"the {'log of the mean' if model.model == 'poisson' else 'mean'} of {model.target.name}"
    labels = list(model.target.labels)
    return (
        "the score of each class (softmax)" if len(labels) > 2 else f"the log odds of {labels[1]}"
    )


def _calibration(model: TableModel) -> dict[str, Any] | None:
    count, predicted, observed = model.record.checks.bins
    some = count > 0
    if not some.any():
        return None
    labels = list(model.target.labels) if isinstance(model.target, Classes) else []
    return {
        "class": labels[1] if len(labels) == 2 else None,  # None: whichever was the likeliest
        "predicted": (predicted[some] / count[some]).tolist(),
        "observed": (observed[some] / count[some]).tolist(),
        "count": count[some].astype(int).tolist(),
    }


def _coverage(model: TableModel) -> dict[str, Any] | None:
    checks = model.record.checks
    if not checks.count or isinstance(model.target, Classes):
        return None
    observed = (checks.inside / checks.count).tolist()
    return {"level": LEVELS.tolist(), "observed": observed, "count": checks.count}
