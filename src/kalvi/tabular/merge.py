"""Merging of models that were fitted to shards of a table: levels by name, posteriors by `kalvi.merge`.

The shards are fitted separately, with the same prior and the same units. A level that only some shards have
seen is added to the others, where its coefficient has the prior. That is exact, and so is the merging of
full covariances; posteriors of low rank are projected.
"""

from collections.abc import Sequence

import numpy as np

from kalvi.estimators.linear.shards import merge_models
from kalvi.tabular.linear import LinearModel
from kalvi.tabular.provenance import check_apart
from kalvi.tabular.record import Checks, Curve, Record, Sample
from kalvi.tabular.table_model import TableModel


def merge_table_models(
    held: Sequence[TableModel], names: Sequence[str], *, again: bool = False
) -> LinearModel:
    """One model of all rows; files that two of the models have learned are refused unless `again`."""
    models = [_mergeable(model, name) for model, name in zip(held, names, strict=True)]
    first = models[0]
    for model, name in zip(models, names, strict=True):
        _check_alike(first, model, names[0], name)
    if not again:
        check_apart(models, names)
    encoder = first.encoder
    for model in models[1:]:
        encoder = encoder.merged_with(model.encoder)
    places = [model.encoder.slots_in(encoder) for model in models]
    estimators = [model.estimator for model in models]
    estimator = merge_models(estimators, places, encoder.width, again=again)
    record = _record([model.record for model in models])
    return first._replace(encoder=encoder, estimator=estimator, record=record)


def _mergeable(model: TableModel, name: str) -> LinearModel:
    if not isinstance(model, LinearModel) or not model.record.rows:
        raise ValueError(f"{name} cannot be merged: only logistic, linear and poisson models can.")
    return model


def _check_alike(first: LinearModel, model: LinearModel, one: str, name: str) -> None:
    """Refuse models that differ in their columns or units."""
    same = (
        model.model == first.model
        and model.target == first.target
        and model.encoder.columns() == first.encoder.columns()
        and model.encoder.settings == first.encoder.settings
    )
    a, b = model.encoder.numbers, first.encoder.numbers
    units = same and np.array_equal(a.centre, b.centre) and np.array_equal(a.scale, b.scale)
    if not units:
        raise ValueError(
            f"{name} and {one} differ in their model, columns, classes or units; fit the shards after the "
            f"first like it: kalvi fit ... --like {one}."
        )


def _record(records: Sequence[Record]) -> Record:
    whole = records[0]
    for record in records[1:]:
        a, b = whole.checks, record.checks
        whole = Record(
            rows=whole.rows + record.rows,
            weight=whole.weight + record.weight,
            seconds=whole.seconds + record.seconds,
            curve=Curve(np.zeros(0), np.zeros(0)),
            checks=Checks(a.bins + b.bins, a.inside + b.inside, a.count + b.count),
            examples=record.examples,
            sample=Sample.none(),
            files=(*whole.files, *record.files),
            scores=whole.joined_scores(record),
            in_sample=whole.in_sample or record.in_sample,
        )
    return whole
