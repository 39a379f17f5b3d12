"""A model learned from a Dask collection: shards in parallel, joined in a tree, refined.

A shard is a chain of tasks, one for each piece of rows. Each is a pure function of the model's parameters,
the result of the previous task and its piece. Dask repeats the work of a lost worker and gets the same
bits.
"""

from itertools import count
from typing import Any

import numpy as np
from sklearn.base import is_classifier

from kalvi.distributed.inputs import DaskPieces, check_complete, dask, naming_piece, read_collection
from kalvi.distributed.passes import (
    Learn,
    Pass,
    Refinement,
    check_model,
    check_refinable,
    tree,
    unpack_rows,
)

MOST_SHARDS = 16
"""The default number of shards, so that the result does not depend on the number of workers."""


def fit(
    model: Any,
    X: Any,
    y: Any = None,
    sample_weight: Any = None,
    *,
    classes: Any = None,
    refine: int = 1,
    shards: int | None = None,
    to_rows: Any = None,
    client: Any = None,
) -> Any:
    """A new model that has learned all rows of a Dask collection; `model` itself does not change.

    Every shard streams its rows from the prior with `partial_fit`, the posteriors are joined in a tree, and
    `refine` further rounds over the rows remove the error of this. See `distributed.passes` for what is
    exact. The result is an ordinary fitted model: it can predict, learn more rows and be saved.

    Parameters
    ----------
    model : LinearRegression, LogisticRegression or PoissonRegression
        Of any rank, with a given prior_scale (and noise_scale). A model that has learned before continues:
        its posterior is merged with the shards, and replaces the prior in the refinement.
    X : Dask array, data frame or bag
        An array has all columns in every chunk. A bag holds batches (X, y) or (X, y, sample_weight), or
        records; `to_rows` then makes one such batch of the records of a partition.
    y, sample_weight : array with the rows of X; for a data frame the name of a column, or a column
    classes : array, optional
        All labels. Without them an extra pass over the labels finds them.
    refine : int, default 1
        Rounds of refinement. The first takes two passes over the rows and every other one more, because
        each step is tested by one more pass. 0 keeps the merged posterior.
    shards : int, optional
        Number of streams, each over consecutive pieces; by default the number of pieces, up to 16. The
        result depends on it (less after a refinement), but not on the workers.
    to_rows : function of a list of records, optional, for a bag
    client : distributed.Client, optional
        The cluster to compute on; by default that of `dask.compute`.

    Returns
    -------
    The fitted model. Its `log_evidence_` is the sum over the shards, each on its own; `n_passes_` counts
    the passes. After a refinement `elbo_` is the bound on log p of all rows (for a model that had learned
    before: of the new rows, given what it knew), and `elbo_gap_` the squared natural-gradient norm, about
    twice the distance to the optimum in nats; a ConvergenceWarning says if it is too large.
    """
    _check_counts(refine, shards)
    check_model(model)
    refines = bool(refine) and not model.exact_in_one_pass()
    if refines:
        check_refinable(model)
    found = read_collection(X, y, sample_weight, to_rows)
    known = "fit_" in vars(model)
    if known and found.width not in (None, model.n_features_in_):
        raise ValueError(
            f"X has {found.width} features, and the model has learned from {model.n_features_in_}."
        )
    runner = _DaskRunner(found, shards, client)
    if is_classifier(model) and classes is None and not known:
        classes = runner.labels()
    first = Learn(model, classes)
    whole = first.finish(runner.over(first))
    if not refines:
        return whole
    climb = Refinement(whole, known=model)
    for _ in range(refine + 1):
        climb = climb.turn(runner.over(climb.visit()))
    return climb.finish()


class _DaskRunner:
    """Passes over the pieces of a collection, run by Dask."""

    def __init__(self, found: DaskPieces, shards: int | None, client: Any):
        self.found, self.client = found, client
        n = len(found.pieces)
        number = min(n, MOST_SHARDS if shards is None else int(shards))
        self.shards = [
            found.pieces[part[0] : part[-1] + 1] for part in np.array_split(range(n), number)
        ]

    def over(self, stage: Pass) -> Any:
        """The accumulator of a pass over all rows."""
        delayed = dask().delayed
        shared = delayed(stage, traverse=False)
        add, join = delayed(_add), delayed(_join)
        ends, numbers, of = [], count(), len(self.found.pieces)
        for shard in self.shards:
            state = delayed(_begin)(shared)
            for piece in shard:
                state = add(shared, state, piece, next(numbers), of)
            ends.append(state)
        return self._computed(tree(lambda one, other: join(shared, one, other), ends))

    def labels(self) -> np.ndarray:
        """The distinct labels of all rows."""
        parts = self._computed(dask().delayed(list)(self.found.labels))
        return np.unique(np.concatenate([part for part in parts if len(part)] or [np.zeros(0)]))

    def _computed(self, wanted: Any) -> Any:
        if self.client is None:
            return dask().compute(wanted)[0]
        return self.client.compute(wanted).result()


def _begin(stage: Pass) -> Any:
    return stage.begin()


def _add(stage: Pass, found: Any, batches: list[Any], number: int, of: int) -> Any:
    with naming_piece(number, of):
        for rows in batches:
            check_complete(unpack_rows(rows)[1])
            found = stage.add(found, rows)
    return found


def _join(stage: Pass, one: Any, other: Any) -> Any:
    return stage.join(one, other)


def _check_counts(refine: Any, shards: Any) -> None:
    for name, value, least in (("refine", refine, 0), ("shards", shards, 1)):
        wrong = isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least
        if wrong and not (name == "shards" and value is None):
            raise ValueError(f"{name} must be an integer, {least} or more; got {value!r}.")
