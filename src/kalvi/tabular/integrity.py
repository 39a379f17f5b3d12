"""Whether the parts of a model from a file agree with each other: anyone may have changed the file.

`archives` has checked that each part has the type that its class declares. The rules here relate the parts.
A rule is a pair: what is checked, and whether it is right. Rules are tried in order; one may rely on those
before it.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from kalvi.columns.encoder import Encoder
from kalvi.columns.numbers import NumberColumns
from kalvi.columns.targets import MOST_CLASSES, Classes, Target
from kalvi.readers.notation import Notation
from kalvi.tabular.record import BINS, LEVELS, Record
from kalvi.tabular.scores import ODDS_BINS, ClassScores, NumberScores

DENSE = ("number", "flag", "time", "vector")
REAL = (int, float)
MOST_BITS = 26
"""The most bits of a hash, as in `kalvi fit`."""

Rules = Iterator[tuple[str, bool]]


@contextmanager
def errors_as_damage(path: str | Path) -> Iterator[None]:
    """Turn the unexpected errors of a damaged model into one sentence."""
    try:
        yield
    except (ValueError, OSError, MemoryError):
        raise
    except Exception as error:
        raise ValueError(f"{path} is damaged: its parts do not fit together.") from error


def check_rules(rules: Rules, path: str | Path) -> None:
    """Refuse a file that breaks a rule; the error names the first one."""
    try:
        wrong = next((what for what, right in rules if not right), None)
    except Exception as error:
        raise ValueError(f"{path} is damaged: its parts do not fit together.") from error
    if wrong is not None:
        raise ValueError(f"{path} is damaged: {wrong} cannot be as it says.")


def notation_rules(notation: dict[str, str], columns: tuple[str, ...]) -> Rules:
    """Rules for the notation of columns."""
    known = set(notation) <= set(columns)
    yield "the notation", known and all(_is_word(word) for word in notation.values())


def _is_word(word: str) -> bool:
    try:
        return bool(Notation.of(word))
    except ValueError:
        return False


def estimator_rules(estimator: Any) -> Rules:
    """Rules for the parameters of an estimator and the numbers that it publishes."""
    estimator.check_settings()
    yield "the settings", all(is_json(v) for v in estimator.get_params(deep=False).values())
    if "fit_" in vars(estimator):
        estimator.check_structure()
    counts = [getattr(estimator, name, 1) for name in ("n_passes_", "n_samples_seen_", "n_iter_")]
    yield "the passes", all(isinstance(n, int | np.integer) and bool(n >= 0) for n in counts)
    found = [getattr(estimator, name, 0.0) for name in ("elbo_", "elbo_gap_")]
    yield "the bound", all(isinstance(value, int | float | np.floating) for value in found)
    yield "the settings", isinstance(vars(estimator).get("verbose", False), bool)


def fitted_rules(estimator: Any, rows: int, width: int) -> Rules:
    """Rules for a fitted estimator: it has seen rows of this width, if any were learned."""
    known = vars(estimator)
    yield "the rows", bool(rows) == ("n_features_in_" in known)
    yield "the width", not rows or known["n_features_in_"] == width


def target_rules(target: Target) -> Rules:
    """Rules for the column that is predicted."""
    numbers = {k: v for k, v in vars(target).items() if isinstance(v, int | float)}
    yield "the target", all(np.isfinite(v) for v in numbers.values())
    yield "the unit of the target", numbers.get("scale", 1.0) > 0
    if isinstance(target, Classes):
        labels = target.labels
        yield "the classes", 2 <= len(set(labels)) == len(labels) <= MOST_CLASSES


def encoder_rules(encoder: Encoder) -> Rules:
    """Rules for the encoder: every feature belongs to one column, or is free."""
    numbers, settings, columns = encoder.numbers, encoder.settings, encoder.columns()
    bits = settings.hash_bits
    yield "the hash", few_bits(bits)
    yield "the largest width", settings.max_width >= 1
    yield "the columns", 1 <= len(set(columns)) == len(columns)
    yield from _number_rules(numbers)
    front = numbers.width + settings.impute * len(numbers.names)
    hashed = 2**bits if bits is not None and encoder.groups else 0
    taken = [np.zeros(0, int)]
    for group in encoder.groups:
        yield f"'{group.name}': its counts", min(group.rows, group.missing) >= 0
        for what, right in group.slots.rules(group.keys.textual, front, bits):
            yield f"'{group.name}': {what}", right
        if group.slots.count() is not None:
            taken.append(np.array(list(group.slots.by_key().values()), int))
    places = np.sort(np.concatenate(taken))
    given = front + hashed + np.arange(len(places))
    yield "the places", np.array_equal(places, given)
    yield "the places", encoder.used == front + hashed + len(places)
    yield "the width", encoder.used <= encoder.width <= max(encoder.roomy_width(), encoder.used)


def few_bits(bits: int | None) -> bool:
    """Whether levels are hashed into no more features than `kalvi fit` allows, or not hashed."""
    return bits is None or 1 <= bits <= MOST_BITS


def _number_rules(numbers: NumberColumns) -> Rules:
    lengths = {len(numbers.names), len(numbers.kinds), len(numbers.widths)}
    yield "the columns of numbers", len(lengths) == 1 and set(numbers.kinds) <= set(DENSE)
    single = (w == 1 for k, w in zip(numbers.kinds, numbers.widths, strict=True) if k != "vector")
    yield "the columns of numbers", all(single) and all(w >= 0 for w in numbers.widths)
    arrays = (numbers.centre, numbers.scale, *numbers.moments)
    yield (
        "the units",
        all(is_float_array(a, (numbers.width,)) for a in arrays) and numbers.rows >= 0,
    )
    count, mean, squares = numbers.moments[:3]
    yield "the units", bool(np.all((numbers.scale > 0) | np.isnan(numbers.scale)))
    yield "the units", not np.isinf(numbers.centre).any() and not np.isinf(numbers.scale).any()
    known = np.isfinite(count) & (count >= 0) & np.isfinite(mean) & (squares >= 0)
    yield "the moments", bool(np.all(known & np.isfinite(squares)))


def record_rules(record: Record, width: int) -> Rules:
    """Rules for the record of a pass."""
    positive = np.isfinite(record.weight) and (record.weight > 0) == (record.rows > 0)
    yield "the weight of the rows", record.rows >= 0 and bool(positive) and record.weight >= 0
    yield "the time", bool(np.isfinite(record.seconds)) and record.seconds >= 0
    curve, checks, sample = record.curve, record.checks, record.sample
    yield "the curve", all(is_float_array(part, (curve.rows.size,)) for part in curve)
    yield "the curve", bool(np.all(curve.rows > 0)) and bool(np.all(np.isfinite(curve.rows)))
    yield (
        "the checks",
        is_float_array(checks.bins, (3, BINS)) and is_float_array(checks.inside, (len(LEVELS),)),
    )
    parts = checks.bins, checks.inside, checks.count
    yield "the checks", all(np.all(np.isfinite(p) & (np.asarray(p) >= 0)) for p in parts)
    yield "the files", all(map(_is_fingerprint, record.files))
    yield "the examples", is_json(record.examples) and all(map(_is_example, record.examples))
    n = len(sample.y) if sample.y.ndim else -1
    yield (
        "the sample",
        all(is_float_array(part, (n,)) and np.isfinite(part).all() for part in sample[1:]),
    )
    right = sample.x is None or (sp.issparse(sample.x) and sample.x.format == "csr")
    yield "the sample", right and (sample.x is None or sample.x.dtype.kind == "f")
    shape = (0, 0) if sample.x is None else sample.x.shape
    yield "the sample", shape[0] == n and shape[1] <= width

    yield from _summary_rules(record)


def _summary_rules(record: Record) -> Rules:
    """Rules for scores, losses, diagnosis and log densities."""
    scores, losses = record.scores, record.losses
    parts = [] if scores is None else [np.asarray(part) for part in scores]
    yield "the scores", all(np.all(np.isfinite(part)) for part in parts)
    yield "the scores", scores is None or scores.rows() >= 0
    if isinstance(scores, ClassScores):
        shape = scores.ranks.shape
        yield "the scores", len(shape) == 3 and shape[1] == 2 and 1 <= shape[2] <= ODDS_BINS
        yield "the scores", all(bool(np.all(part >= 0)) for part in parts)
    if losses is not None:
        n = losses.at.size
        right = all(is_float_array(part, (n,)) and np.all(np.isfinite(part)) for part in losses)
        yield "the losses", right and bool(np.all(np.diff(losses.at) >= 0))
    yield "the diagnosis", record.diagnosis is None or _is_diagnosis(record.diagnosis)
    yield "the log densities", record.densities is None or _is_densities(record.densities)


def score_rules(record: Record, target: Target) -> Rules:
    """Rules for scores: they suit the target of the model."""
    scores = record.scores
    if not isinstance(target, Classes):
        yield "the scores", scores is None or isinstance(scores, NumberScores)
        return
    yield "the scores", scores is None or isinstance(scores, ClassScores)
    if isinstance(scores, ClassScores):
        n = len(target.labels)
        right = is_float_array(scores.seen, (n,)) and len(scores.ranks) == (n if n > 2 else 1)
        yield "the scores", right


def _holds(told: dict[str, Any], **types: Any) -> bool:
    """Whether a value is JSON and has entries of these types."""
    return is_json(told) and all(isinstance(told.get(name), kind) for name, kind in types.items())


def _is_diagnosis(told: dict[str, Any]) -> bool:
    return _holds(told, pareto_k=REAL, draws=REAL, rows=REAL, ess=REAL, verdict=str)


def _is_densities(told: dict[str, Any]) -> bool:
    return _holds(told, rows=REAL, log_density=REAL, quantiles=list) and all(
        isinstance(pair, list) and [isinstance(part, REAL) for part in pair] == [True, True]
        for pair in told["quantiles"]
    )


def _is_example(example: dict[str, Any]) -> bool:
    if not _holds(example, row=dict, observed=str, predicted=REAL):
        return False
    numbers = [example[name] for name in ("predicted", "lower", "upper") if name in example]
    finite = all(isinstance(v, REAL) and abs(v) < np.inf for v in numbers)
    return finite and all(isinstance(v, str) for v in example["row"].values())


def job_rules(job: Any) -> Rules:
    """Rules for a job out of a checkpoint."""
    yield "the run", bool(job.data) and all(_is_word(word) for word in job.types.values())
    yield "the run", job.piece >= 1 and job.every_rows >= 1 and job.done >= 0
    yield "the run", isinstance(job.climbs, bool)
    yield "the run", bool(np.isfinite(job.every_seconds)) and job.every_seconds >= 0
    yield "the run", all(map(_is_fingerprint, job.fingerprint))


def _is_fingerprint(file: Any) -> bool:
    """Whether a value describes a file: by its path and, if it is on a disk, its size and digests."""
    if not isinstance(file, dict) or "path" not in file or not is_json(file):
        return False
    types = {"path": str, "bytes": int, "head": str, "digest": str}
    return all(isinstance(file[name], kind) for name, kind in types.items() if name in file)


def is_json(value: Any) -> bool:
    """Whether a value can be written as JSON."""
    try:
        json.dumps(value)
    except (TypeError, ValueError, RecursionError):
        return False
    return True


def is_float_array(array: Any, shape: tuple[int, ...]) -> bool:
    """Whether a value is an array of floats of this shape."""
    return isinstance(array, np.ndarray) and array.dtype.kind == "f" and array.shape == shape
