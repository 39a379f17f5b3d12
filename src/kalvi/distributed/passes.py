"""Passes over rows in many places, as three functions: begin, add a batch, join two results.

**The first pass** (`Learn`). Shard k streams its rows from the prior q₀ by `partial_fit` and ends at qₖ.
The posterior of all rows is the prior times what each shard adds to it,

    q = q₀ Πₖ (qₖ / q₀):      Σ⁻¹ = Σ₀⁻¹ + Σₖ (Σₖ⁻¹ − Σ₀⁻¹),   and the same for Σ⁻¹ μ     (`kalvi.merge`).

For a linear model with a given noise and a full covariance this is the posterior of all rows. Otherwise two
errors remain. The first rows of every shard meet the wide prior, where the expected curvature of a
likelihood differs from that at the end: K shards make the error of one stream K times. And every block and
every join projects away what a low rank cannot hold.

**Further passes** (`Refinement`). All rows are evaluated again at the current Gaussian q. Each place adds
up the bound E_q log p, its gradient and its curvature over its rows. The sums of all places are added and
give the step to the next q:

    ∇ = Σ gᵢ xᵢ − Σ₀⁻¹ (μ − μ₀),     S = Σ₀⁻¹ + Σ γᵢ xᵢ xᵢᵀ,     Σ⁻¹ ← S,  μ ← μ + S⁻¹ ∇.

With a full covariance this is Newton's method, and each step is combined with earlier ones. A low rank
keeps S only as S U and its diagonal, and takes an EM step to its factor analysis and a quasi-Newton step of
the mean (`gaussians.ascents`). Nothing is divided out of q and no shard is projected, so no error is
carried from pass to pass. Apart from rounding, the order of the rows and their places do not matter, and
the limit is the optimum of the variational bound of all rows, which `fit` finds on one machine. A round
therefore removes not only the error of merging, but also that of one stream of all rows. (Expectation
propagation over shards, the other way to refine, would start the stream of each shard at a cavity q qₖ⁻¹.
With a low rank the cavity is not a Gaussian of this rank, and the fixed point still has the error of a
stream in every shard.) A step that lowers the bound is rejected.

The log evidence is the sum over the shards; each predicts its rows from the prior and its own earlier rows.
It is lower than that of one stream by the cost of K − 1 fresh starts, about ½ log n nats a coefficient each
with n rows a shard. If neighbouring rows are alike and the shards are runs of them, it may be higher.
Further passes do not change it; they add `elbo_`, the bound on log p of all rows or, if the model had
learned before, of the new rows given what it knew.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from copy import copy
from typing import Any
from warnings import warn

import jax
import numpy as np
from sklearn.base import clone, is_classifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import _check_feature_names, _check_n_features, check_is_fitted

from kalvi.estimators.linear import shards
from kalvi.estimators.linear.estimator import LinearEstimator
from kalvi.estimators.linear.settings import VARIATIONAL
from kalvi.gaussians.ascents import zero_sums


class Pass:
    """An aggregation by pure functions, as Spark's `treeAggregate` needs it; tasks may be repeated."""

    @abstractmethod
    def begin(self) -> Any:
        """The empty accumulator."""

    @abstractmethod
    def add(self, found: Any, rows: Any) -> Any:
        """A new accumulator, of `found` and a batch (X, y) or (X, y, sample_weight); `found` is
        unchanged."""

    @abstractmethod
    def join(self, one: Any, other: Any) -> Any:
        """The accumulator of the rows of both."""

    def over(self, batches: Iterable[Any]) -> Any:
        """The accumulator of all batches of one place."""
        found = self.begin()
        for rows in batches:
            found = self.add(found, rows)
        return found


class Learn(Pass):
    """The first pass: every place learns its own stream.

    Parameters
    ----------
    model : LinearRegression, LogisticRegression or PoissonRegression
        Any rank. Its prior_scale is given, and so is a linear model's noise_scale; it has no drift. A model
        that has learned before continues: its posterior counts once, as one more place.
    classes : array, for a LogisticRegression that has not learned yet
        All labels, because a place may have rows of only some of them.
    """

    def __init__(self, model: Any, classes: Any = None):
        check_model(model)
        self.known = model if "fit_" in vars(model) else None
        self.model = shards.as_for_tables(model)
        self.classes = _classes(model, classes, self.known) if is_classifier(model) else None

    def begin(self) -> Any:
        return clone(self.model)

    def add(self, found: Any, rows: Any) -> Any:
        x, y, weight = unpack_rows(rows)
        if _empty(x, weight):
            return found
        if self.known is not None and "fit_" not in vars(found):
            _check_feature_names(self.known, x, reset=False)
            _check_n_features(self.known, x, reset=False)
        new = object.__new__(type(found))
        new.__dict__.update(vars(found))
        named = {} if self.classes is None else {"classes": self.classes}
        return new.partial_fit(x, y, sample_weight=weight, **named)

    def join(self, one: Any, other: Any) -> Any:
        parts = [part for part in (one, other) if "fit_" in vars(part)]
        if len(parts) == 2:
            return shards.merge_models(parts, again=True)
        return parts[0] if parts else one

    def finish(self, found: Any) -> Any:
        """The model of all rows."""
        whole = found if self.known is None else self.join(found, self.known)
        if "fit_" not in vars(whole):
            raise ValueError("there are no rows to learn from: every place is empty.")
        whole.warn_of_problems()
        return whole


class Visit(Pass):
    """A further pass: sums over the rows at one Gaussian. Made by `Refinement.visit`."""

    def __init__(self, model: Any, at: Any, nothing: Any):
        self.model, self.at, self.nothing = model, at, nothing

    def begin(self) -> Any:
        return self.nothing

    def add(self, found: Any, rows: Any) -> Any:
        x, y, weight = unpack_rows(rows)
        if _empty(x, weight):
            return found
        rows = self.model.checked_rows(x, y, weight)
        return shards.add_up(self.model, self.at, found, rows)

    def join(self, one: Any, other: Any) -> Any:
        return jax.tree.map(np.add, one, other)


class Refinement:
    """Rounds of further passes for a merged model; a round is a `visit` of all rows and a `turn`.

    Parameters
    ----------
    model : the result of `Learn.finish`
    known : the model that `Learn` was given, if it had learned before
        Its rows are not visited again, and its posterior replaces the prior.
    """

    def __init__(self, model: Any, known: Any = None):
        check_is_fitted(model, "fit_")
        check_refinable(model)
        self.model = model
        before = known.posterior_ if _fitted(known) else None
        self.ascent: Any = shards.begin_ascent(model.fit_, before)

    def visit(self) -> Visit:
        """The next pass: run it over all rows, then give the accumulator to `turn`."""
        visited = self.ascent.proposal
        nothing = jax.tree.map(np.asarray, zero_sums(visited))
        return Visit(shards.without_fit(self.model), visited, nothing)

    def turn(self, sums: Any) -> "Refinement":
        """The next round, from the accumulator of a visit of all rows."""
        new = object.__new__(Refinement)
        new.model, new.ascent = self.model, shards.turn(self.ascent, sums, self.model.dtype)
        return new

    def finish(self) -> Any:
        """The model at the best Gaussian that was visited; warns if it is far from the optimum."""
        new = copy(self.model)
        new.fit_ = shards.end_ascent(self.model.fit_, self.ascent)
        if not new.converged_:
            warn(
                f"the variational bound had not converged after {new.n_passes_} passes "
                f"(elbo_gap_ = {new.elbo_gap_:.2g} nats). Refine more.",
                ConvergenceWarning,
                stacklevel=2,
            )
        return new


def tree(join: Callable[[Any, Any], Any], parts: Sequence[Any]) -> Any:
    """The join of one or more parts: in pairs, then pairs of pairs, and so on."""
    parts = list(parts)
    while len(parts) > 1:
        pairs = zip(parts[::2], parts[1::2], strict=False)
        odd = parts[-1:] if len(parts) % 2 else []
        parts = [join(*pair) for pair in pairs] + odd
    return parts[0]


def check_refinable(model: Any) -> None:
    """Refuse a model whose scheme does not maximise the variational bound, which further passes do."""
    if model.scheme not in VARIATIONAL:
        raise ValueError(
            f"refinement needs a scheme that maximises the variational bound; got scheme={model.scheme!r}. "
            f"Use one of {', '.join(VARIATIONAL)}, or refine=0."
        )


def unpack_rows(rows: Any) -> tuple[Any, Any, Any]:
    """X, y and the weights of a batch, or None if it has no weights."""
    if not isinstance(rows, tuple | list) or len(rows) not in (2, 3):
        raise TypeError(
            "a batch of rows is a tuple (X, y) or (X, y, sample_weight); "
            f"got {type(rows).__name__}"
            + (f" of {len(rows)}." if isinstance(rows, tuple | list) else ".")
            + " For records in a bag give to_rows=."
        )
    x, y, *weight = rows
    return x, y, weight[0] if weight else None


def check_model(model: Any) -> None:
    """Refuse models whose shards cannot be merged, and settings that shards do not support."""
    if not isinstance(model, LinearEstimator):
        raise TypeError(
            "kalvi.distributed learns LinearRegression, LogisticRegression and PoissonRegression; "
            f"got {type(model).__name__}, whose shards cannot be merged. Give its partial_fit the rows of "
            "one place after the other."
        )
    model.check_settings()
    if "fit_" in vars(model) and model.fit_.learned:
        raise ValueError(
            "this model learned its settings from a stream of its own; give prior_scale=, or a model that "
            "has learned nothing."
        )
    shards.check_mergeable(model)


def _classes(model: Any, classes: Any, known: Any) -> np.ndarray:
    if known is not None:
        return known.classes_
    if classes is None:
        raise ValueError(
            f"{type(model).__name__} needs all labels as classes=, because a place may have only some."
        )
    return np.unique(classes)


def _fitted(model: Any) -> bool:
    return model is not None and "fit_" in vars(model)


def _empty(x: Any, weight: Any) -> bool:
    """Whether a batch has no rows, or only rows of weight 0."""
    return np.shape(x)[0] == 0 or (
        weight is not None and np.array_equal(weight, np.zeros(np.shape(x)[0]))
    )
