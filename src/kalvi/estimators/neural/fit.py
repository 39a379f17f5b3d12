"""A fit of a network: the posterior of its parameters, the units of its inputs, and its predictions."""

from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from kalvi.estimators.constraints import is_integer
from kalvi.estimators.input_checks import require_consistent
from kalvi.estimators.neural.methods import METHODS
from kalvi.estimators.neural.parameters import Structure, TrainingSettings
from kalvi.estimators.neural.problem import LearnedNetwork, NetworkProblem
from kalvi.estimators.neural.targets import Parts, Targets, Units
from kalvi.estimators.pickling import as_jax
from kalvi.estimators.prediction_blocks import padded_blocks, predict_in_blocks, rows_at_once
from kalvi.evaluation.predictions import PredictiveMoments, ensemble, linearised, mixture_moments
from kalvi.gaussians.mixture import Mixture
from kalvi.numerics.precision import matching_precision
from kalvi.predictors.networks import Perceptron
from kalvi.rules.rule import Batch
from kalvi.streams import run

PREDICTED_NUMBERS = 2**23
"""The most numbers of the Jacobian for which predictions are made at once."""


@dataclass(frozen=True, eq=False)
class NetworkFit:
    """A network and its learned posterior; methods that learn return another fit."""

    structure: Structure
    targets: Targets
    x_units: Units
    perceptron: Perceptron
    dtype: str
    seed: int
    learned: Any = None  # a LearnedNetwork, or None before the first rows

    @classmethod
    def begin(
        cls, structure: Structure, targets: Targets, x: np.ndarray, weight: np.ndarray, seed: int
    ) -> "NetworkFit":
        """A new fit with the units of its first rows."""
        sizes = (x.shape[1], *structure.hidden_sizes, targets.outputs)
        perceptron = Perceptron(sizes, structure.activation)
        dtype = structure.chosen_dtype(perceptron.n_parameters())
        return cls(structure, targets, Units.of(x, weight), perceptron, dtype, seed)

    def learn(
        self,
        rows: tuple[np.ndarray, np.ndarray, np.ndarray],
        settings: TrainingSettings,
        *,
        shuffle: bool,
    ) -> "NetworkFit":
        """The fit after rows x, y and their weights, in the user's units."""
        x, y, weight = rows
        rows = self.x_units.standardise(x), self.targets.encode(y), weight
        which = np.flatnonzero(weight > 0)
        if shuffle:  # a table may be sorted, and one pass depends on the order
            which = which[np.random.default_rng(self.seed).permutation(len(which))]
        with matching_precision(self.dtype):
            problem = self._problem([part[which] for part in rows], settings)
            learned = METHODS[self.structure.method].learn(problem, self.learned)
        if not learned.is_finite():
            raise FloatingPointError(
                "the training diverged; lower learning_rate, or use dtype='float64'."
            )
        return replace(self, learned=learned)

    def predict(self, x: np.ndarray, predictive: str, n_draws: int) -> Parts:
        """Predictions for rows: means, and their variances due to the parameters and due to the noise."""
        rows, learned = self._in_dtype(self.x_units.standardise(x)), self.learned
        if predictive == "auto":
            collects = METHODS[self.structure.method].collects
            predictive = "ensemble" if collects else "linearised"
        size = rows_at_once(
            len(rows), self.perceptron.n_parameters() * self.targets.outputs, PREDICTED_NUMBERS
        )
        with matching_precision(self.dtype):
            draws = None
            if predictive == "ensemble":
                draws = learned.posterior.sample(jr.key(self.seed), n_draws).astype(self.dtype)
            parts = predict_in_blocks(
                lambda block: _predict_block(learned, draws, jnp.asarray(block)),
                padded_blocks(rows, size),
                len(rows),
            )
        mean, epistemic, aleatoric = (np.asarray(part, np.float64) for part in parts)
        return self.targets.restore(mean, epistemic, aleatoric)

    def sample(self, seed: int, n: int) -> np.ndarray:
        """Draws of the parameters, one in each row."""
        with matching_precision(self.dtype):
            return np.asarray(self.learned.posterior.sample(jr.key(seed), n))

    def parts(self) -> dict[str, Any]:
        """The parts of the fit for a file or a pickle."""
        return {
            "fitted_": self.learned,
            "perceptron_": self.perceptron,
            "dtype_": self.dtype,
            "_seed": self.seed,
            "structure_": self.structure._asdict(),
            "x_mean_": self.x_units.mean,
            "x_scale_": self.x_units.scale,
            **self.targets.parts(),
        }

    def _problem(self, rows: list[np.ndarray], settings: TrainingSettings) -> NetworkProblem:
        x, y, weight = rows
        n, size, prior = len(y), settings.chosen_batch(len(y)), settings.prior_precision
        parts = [
            np.pad(a.astype(self.dtype), [(0, -n % size)] + [(0, 0)] * (a.ndim - 1))
            for a in (x, y, weight)
        ]
        likelihood = self.targets.likelihood(settings.noise_scale)
        return NetworkProblem(
            perceptron=self.perceptron,
            likelihood=jax.tree.map(lambda a: jnp.asarray(a, self.dtype), likelihood),
            batch=Batch(*(jnp.asarray(part) for part in parts)),
            n_samples=float(weight.sum()),
            batch_size=size,
            epochs=settings.chosen_epochs(n),
            rate=float(settings.learning_rate),
            rank=self.structure.chosen_rank(self.perceptron.n_parameters()),
            learn_prior=prior == "auto",
            learn_noise=settings.learns_noise,
            prior_precision=1.0 if prior == "auto" else float(prior),
            members=int(settings.n_members),
            dtype=np.dtype(self.dtype),
            seed=self.seed,
            verbose=bool(settings.verbose),
        )

    def _in_dtype(self, rows: np.ndarray) -> np.ndarray:
        """Standardised rows in the network's precision."""
        limit = float(np.sqrt(np.finfo(self.dtype).max))
        far = np.flatnonzero(np.any(np.abs(rows) > limit, axis=1))
        if far.size:
            raise ValueError(
                f"row {far[0]} of X is more than {limit:.0e} deviations from the rows of the fit; "
                "check its units."
            )
        return rows.astype(self.dtype)


def _predict_block(learned: LearnedNetwork, draws: Any, x) -> PredictiveMoments:
    if draws is not None:
        return run.call(ensemble, learned.model, draws, x)
    if isinstance(learned.posterior, Mixture):
        return run.call(_linearise_each, learned.model, learned.posterior.components, x)
    return run.call(linearised, learned.model, learned.posterior, x)


def _linearise_each(model, components, x) -> PredictiveMoments:
    return mixture_moments([linearised(model, q, x) for q in components])


PARTS = (
    *("fitted_", "perceptron_", "dtype_", "_seed", "structure_"),
    *("x_mean_", "x_scale_", "y_mean_", "y_scale_", "_columns", "elbo_"),
)
"""The parts of a fit in a file or a pickle; the bound is a separate part only in older files."""


def restore_fit(parts: dict[str, Any], targets: Targets, model: Any) -> NetworkFit:
    """The fit with these parts; parts that no fit of `model` can have are refused."""
    known: Any = [parts.get(name) for name in ("fitted_", "perceptron_", "structure_")]
    learned, perceptron, structure = known
    whole = isinstance(learned, LearnedNetwork) and isinstance(perceptron, Perceptron)
    require_consistent(whole, model, "fitted_ and perceptron_")
    named = isinstance(structure, dict) and set(structure) == set(Structure._fields)
    require_consistent(named and is_integer(parts.get("_seed")), model, "structure_")
    sizes = perceptron.sizes[0] == model.n_features_in_ == len(parts["x_mean_"])
    require_consistent(sizes, model, "n_features_in_ and perceptron_")
    counts = learned.posterior.dim == perceptron.n_parameters()
    require_consistent(counts, model, "posterior_ and perceptron_")
    units = Units(parts["x_mean_"], parts["x_scale_"])
    dtype, seed = parts["dtype_"], parts["_seed"]
    learned = as_jax(learned, dtype)
    return NetworkFit(Structure(**structure), targets, units, perceptron, dtype, seed, learned)
