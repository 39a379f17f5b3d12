"""The common part of the neural estimators: checks of parameters and rows, and published results."""

from abc import abstractmethod
from dataclasses import field
from typing import Any, ClassVar
from warnings import warn

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from kalvi.estimators.constraints import Constraint, check_parameters
from kalvi.estimators.decorators import parametrised
from kalvi.estimators.input_checks import checked_table, checked_weights, seed_of
from kalvi.estimators.neural.fit import PARTS, NetworkFit, restore_fit
from kalvi.estimators.neural.methods import METHODS
from kalvi.estimators.neural.parameters import Structure, TrainingSettings
from kalvi.estimators.neural.targets import Parts, Targets
from kalvi.estimators.pickling import PickledInParts
from kalvi.predictors.networks import Perceptron


def learns_in_one_pass(self: "NeuralEstimator") -> bool:
    """Whether the method can continue with further rows."""
    if self.method not in [name for name, method in METHODS.items() if method.streams]:
        raise AttributeError(
            f"partial_fit needs a method of one pass, but method={self.method!r} revisits its rows; "
            "use fit, or method='lrvga'."
        )
    return True


@parametrised
class NeuralEstimator(PickledInParts[NetworkFit]):
    """A network whose parameters have a Gaussian posterior."""

    constraints: ClassVar[dict[str, Constraint]]
    fit_parts = PARTS

    hidden_sizes: Any = field(default=(50,), kw_only=False)
    activation: Any = "tanh"
    method: Any = "vifa"
    rank: Any = "auto"
    epochs: Any = "auto"
    batch_size: Any = "auto"
    learning_rate: Any = 0.01
    prior_precision: Any = "auto"
    n_members: Any = 5
    predictive: Any = "auto"
    n_draws: Any = 30
    dtype: Any = "auto"
    random_state: Any = None
    verbose: Any = False

    @abstractmethod
    def _targets_of(self, parts: dict[str, Any]) -> Targets:
        """The targets of a network, from the parts of a file or a pickle."""

    @property
    def posterior_(self) -> Any:
        """The Gaussian over the flat vector of parameters, or a mixture of Gaussians."""
        return self._fitted("posterior_").learned.posterior

    @property
    def n_parameters_(self) -> int:
        """The number of parameters of the network."""
        return self.posterior_.dim

    @property
    def perceptron_(self) -> Perceptron:
        """The layers of the network."""
        return self._fitted("perceptron_").perceptron

    @property
    def dtype_(self) -> str:
        """The precision of the network, given or chosen."""
        return self._fitted("dtype_").dtype

    @property
    def elbo_(self) -> float:
        """The evidence bound of the linearised network, if "vifa" kept the full covariance."""
        found = self._fitted("elbo_").learned.elbo
        if found is None:
            raise AttributeError("elbo_ exists only after method='vifa' with a full covariance.")
        return found

    def sample_posterior(self, n_samples: int = 1, random_state: Any = None) -> np.ndarray:
        """Draws of the parameters, one in each row."""
        check_is_fitted(self)
        chosen = self.random_state if random_state is None else random_state
        return self.fit_.sample(seed_of(chosen), n_samples)

    def check_settings(self) -> None:
        """Refuse parameters that are invalid for any rows."""
        check_parameters(self.get_params(), self.constraints)

    def check_structure(self) -> None:
        """Refuse parameters that differ from those of the fit and that its posterior depends on."""
        before, now = self.fit_.structure, Structure.of(self.get_params())
        if before != now:
            raise ValueError(
                f"the network was begun with {before._asdict()} and the parameters say "
                f"{now._asdict()} now; call fit to start again, or set them back."
            )

    def _begin(self, targets: Targets, x: np.ndarray, weight: np.ndarray) -> NetworkFit:
        """A new fit with the units of its first rows."""
        if len(x) < 2:
            raise ValueError(
                f"{type(self).__name__} needs two rows or more to learn their scales; got 1 sample."
            )
        seed = seed_of(self.random_state)
        return NetworkFit.begin(Structure.of(self.get_params()), targets, x, weight, seed)

    def _learn(self, fit: NetworkFit, rows: tuple[Any, Any, Any], *, shuffle: bool) -> Any:
        """Continue a fit with checked rows."""
        settings = TrainingSettings.of(self.get_params())
        self.fit_ = fit.learn(rows, settings, shuffle=shuffle)
        for complaint in self.fit_.learned.complaints(settings.learns_noise):
            warn(complaint, ConvergenceWarning, stacklevel=4)
        return self

    def _predict_parts(self, x) -> Parts:
        """The means, their variances due to the parameters, and their variances due to the noise."""
        check_is_fitted(self)
        self.check_settings()
        rows = checked_table(self, x, reset=False, dtype=np.float64)
        return self.fit_.predict(rows, self.predictive, int(self.n_draws))

    def _check_rows(self, x, y, sample_weight, *, reset: bool, **how: Any) -> Any:
        """Rows to learn from and their weights; parameters are checked first."""
        self.check_settings()
        if not reset:
            self.check_structure()
        x, y = checked_table(self, x, y, reset=reset, dtype=np.float64, **how)
        return x, y, checked_weights(sample_weight, x)

    def _fit_of(self, parts: dict[str, Any]) -> NetworkFit:
        return restore_fit(parts, self._targets_of(parts), self)
