"""How tables make estimators, and what they need of one beyond its public methods, in one place."""

from typing import Any

import numpy as np
import scipy.sparse as sp

from kalvi.estimators.predictive import predicted, predictor_laws
from kalvi.likelihoods import Normal


def new_estimator(cls: type, parameters: dict[str, Any]) -> Any:
    """An estimator with these parameters; those it does not have are refused."""
    known = cls().get_params()
    for name in parameters:
        if name not in known:
            raise ValueError(
                f"{cls.__name__} has no parameter '{name}'; it has {', '.join(sorted(known))}."
            )
    return cls(**parameters)


def check_settings(estimator: Any) -> None:
    """Refuse parameters that the estimator cannot have."""
    estimator._check_settings()


def check_structure(estimator: Any) -> None:
    """Refuse an estimator whose posterior is not of the structure that its parameters ask for."""
    estimator._check_structure()


def predictor_moments(estimator: Any, x: Any) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of the linear predictor of each row of a linear estimator."""
    noiseless = Normal(np.zeros((), estimator.dtype))
    found = predicted(noiseless, estimator._predicting()[2], x, estimator._layout())
    return found[0], np.sqrt(found[1])


def class_predictor_moments(estimator: Any, x: Any) -> tuple[np.ndarray, np.ndarray]:
    """Means and covariances of the predictors of all classes of each row of a classifier."""
    q, outputs = estimator._predicting()[2], len(estimator.classes_)
    return predictor_laws(q, outputs, x, estimator._layout())


def combination_moments(estimator: Any, rows: Any) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of combinations of the coefficients, output after output."""
    q, width = estimator._on_host()[2], rows.shape[1]
    layout = {"intercept": False, "dtype": estimator.dtype}
    means, stds, noiseless = [], [], Normal(np.zeros((), estimator.dtype))
    for k in range(estimator._outputs()):
        wide = sp.csr_array(
            (rows.data, rows.indices + k * width, rows.indptr), shape=(rows.shape[0], q.dim)
        )
        mean, variance, _ = predicted(noiseless, q, wide, layout)
        means.append(mean)
        stds.append(np.sqrt(variance))
    return np.concatenate(means), np.concatenate(stds)
