"""Predictions of a linear fit, averaged over its copies if its settings are learned."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp

from kalvi.estimators.linear.families import Family
from kalvi.estimators.linear.fit_results import Member
from kalvi.estimators.linear.predictions import (
    average_laws,
    average_predictions,
    draw_predictors,
    predict_rows,
    predictor_laws,
)
from kalvi.estimators.linear.settings import LinearSettings
from kalvi.gaussians import Gaussian
from kalvi.numerics.precision import matching_precision


@dataclass(frozen=True, eq=False)
class LinearPredictive:
    """The law of new rows; posteriors are prepared for sparse rows when the first of these come."""

    family: Family
    settings: LinearSettings
    members: tuple[Member, ...]  # what predictions are averaged over

    def predict(self, x: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The mean and (co)variance of y and the mean of the linear predictors, for each row."""
        found = []
        for member, law in self._laws_for(x):
            likelihood = self.family.fitted_likelihood(member.stream, self.settings.dtype)
            found.append((member.weight, *predict_rows(likelihood, law, x, self.settings.layout)))
        return average_predictions(found)

    def predictors(self, x: Any) -> tuple[np.ndarray, np.ndarray]:
        """The mean and variance of the linear predictor of each row, or the covariance of several."""
        outputs, layout = self.family.likelihood.outputs, self.settings.layout
        laws = [
            (member.weight, *predictor_laws(law, outputs, x, layout))
            for member, law in self._laws_for(x)
        ]
        return average_laws(laws)

    def draw_predictors(self, x: Any, n_samples: int, random: np.random.Generator) -> np.ndarray:
        """Joint draws of the linear predictors of the rows."""
        outputs, layout, laws = (
            self.family.likelihood.outputs,
            self.settings.layout,
            self._laws_for(x),
        )
        if len(laws) == 1:
            return draw_predictors(laws[0][1], outputs, x, n_samples, random, layout)
        counts = random.multinomial(n_samples, [member.weight for member, _ in laws])
        drawn = [
            draw_predictors(law, outputs, x, int(count), random, layout)
            for (_, law), count in zip(laws, counts, strict=True)
            if count
        ]
        return random.permutation(np.concatenate(drawn))

    def _laws_for(self, x: Any) -> list[tuple[Member, Any]]:
        """The posteriors for predictions of these rows; for sparse rows they are prepared once."""
        members = self.members
        laws = self._prepared if sp.issparse(x) else [member.posterior for member in members]
        return list(zip(members, laws, strict=True))

    @cached_property
    def _prepared(self) -> list[Gaussian]:
        posteriors: list[Any] = [member.posterior for member in self.members]
        with matching_precision(self.settings.dtype):
            return [q.prepared() for q in posteriors]
