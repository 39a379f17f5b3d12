"""The record of a pass as plain JSON, for `kalvi inspect`, for reports and for scripts."""

from pathlib import Path
from typing import Any

import numpy as np

from kalvi.columns.encoder import Encoder
from kalvi.columns.numbers import describe_moments
from kalvi.columns.targets import Classes, Target
from kalvi.tabular.progressive import rows_before_scores
from kalvi.tabular.record import LEVELS, Record
from kalvi.tabular.scores import ClassScores

UNITS_APART = 3.0
"""Warn of a column whose mean is so many deviations of the first rows away, or whose deviation is so many
times theirs."""


def record_summary(record: Record, target: Target) -> dict[str, Any]:
    """The rows that the model has learned, and how well they were predicted before they were learned."""
    return {
        "rows": record.rows,
        "weight": record.weight,
        "seconds": round(record.seconds, 3),
        "files": file_names(record),
        "curve": curve_summary(record),
        "drift": drift_summary(record),
        "scores": _scores(record, target),
        "calibration": _calibration(record, target),
        "coverage": _coverage(record, target),
        "examples": [dict(example) for example in record.examples],
    }


def all_warnings(described: dict[str, Any]) -> list[str]:
    """Warnings, as sentences, about a model with a target, from its description."""
    how, moved = described["reached"], described["drift"]
    found = [f"{how['text']}; set passes higher."] if how and not how.get("converged", True) else []
    found += [moved["words"]] if moved and moved["sure"] and moved["change"] > 0 else []
    for column in described["columns"]:
        found += _column_warnings(column, described["rows"])
    return found


def _column_warnings(column: dict[str, Any], rows: int) -> list[str]:
    """Warnings about a column whose units no longer suit it, or that looks like an identifier."""
    name, kind = column["name"], column["kind"]
    if kind in ("number", "time") and "mean" in column:
        far = abs(column["mean"] - column["centre"]) / column["scale"]
        if max(far, column["std"] / column["scale"]) > UNITS_APART:
            scale = 0.0 if column.get("constant") else column["scale"]
            return [
                f"'{name}' is {describe_moments(kind, column['mean'], column['std'])} over "
                f"all rows, but was {describe_moments(kind, column['centre'], scale)} in the first, "
                "by which it is standardised; shuffle the rows, or widen the prior "
                "(--set prior_scale=...)."
            ]
    if kind == "category" and column.get("levels", 0) > 0.5 * rows > 50:
        return [
            f"'{name}' has {column['levels']} levels in {rows} rows: an "
            f"identifier? Leave it out with --drop {name}."
        ]
    return []


def curve_summary(record: Record) -> dict[str, Any]:
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


def drift_summary(record: Record) -> dict[str, Any] | None:
    """How the loss of the last tenth of the rows compares with that of the tenth before, and a sentence."""
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
        said += ": the stream may have changed; see drift (--set drift=0.999)."
    else:
        said += ": the model is still learning, or the rows have become easier."
    return found | {"loss": loss, "words": said}


def file_names(record: Record) -> list[dict[str, Any]]:
    """The files that were learned, without their folders."""
    return [{**file, "path": Path(str(file["path"])).name or "-"} for file in record.files]


def _scores(record: Record, target: Target) -> dict[str, Any] | None:
    """Scores of the predictions, each beside a baseline."""
    found, checks = record.scores, record.checks
    if found is None or not found.rows():
        return None
    in_sample = record.in_sample
    if isinstance(found, ClassScores):
        assert isinstance(target, Classes)
        measures = found.measures(target.labels)
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


def scores_absent(record: Record, encoder: Encoder, first_rows: int) -> str | None:
    """Why there are no scores, if rows were learned and none was scored."""
    inputs = encoder.numbers.width + len(encoder.groups)
    needed = max(first_rows, rows_before_scores(inputs))
    scored = record.scores is not None and record.scores.rows()
    if not record.rows or scored or record.rows > needed:  # nothing is known of older versions
        return None
    return (
        f"There are no scores: the first rows, from which a model knows too little, are learned before "
        f"any is predicted, and there were only {record.rows:,} of them."
    )


def _calibration(record: Record, target: Target) -> dict[str, Any] | None:
    count, predicted, observed = record.checks.bins
    some = count > 0
    if not some.any():
        return None
    labels = list(target.labels) if isinstance(target, Classes) else []
    return {
        "class": labels[1] if len(labels) == 2 else None,  # None: whichever was the likeliest
        "predicted": (predicted[some] / count[some]).tolist(),
        "observed": (observed[some] / count[some]).tolist(),
        "count": count[some].astype(int).tolist(),
    }


def _coverage(record: Record, target: Target) -> dict[str, Any] | None:
    checks = record.checks
    if not checks.count or isinstance(target, Classes):
        return None
    observed = (checks.inside / checks.count).tolist()
    return {"level": LEVELS.tolist(), "observed": observed, "count": checks.count}
