"""How tables make estimators, and what they need of one beyond its public methods, in one place."""

from typing import Any

import numpy as np
import scipy.sparse as sp

from kalvi.estimators.linear.predictions import predict_rows
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


def predictor_moments(estimator: Any, x: Any) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of the linear predictor of each row of a linear estimator."""
    mean, variance = estimator.fit_.predictors(x)
    return mean, np.sqrt(variance)


def class_predictor_moments(estimator: Any, x: Any) -> tuple[np.ndarray, np.ndarray]:
    """Means and covariances of the predictors of all classes of each row of a classifier."""
    return estimator.fit_.predictors(x)


def combination_moments(estimator: Any, rows: Any) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of combinations of the coefficients, output after output."""
    q, width = estimator.fit_.on_host.posterior, rows.shape[1]
    layout = {"intercept": False, "dtype": estimator.dtype}
    means, stds, noiseless = [], [], Normal(np.zeros((), estimator.dtype))
    for k in range(estimator.fit_.family.outputs):
        wide = sp.csr_array(
            (rows.data, rows.indices + k * width, rows.indptr), shape=(rows.shape[0], q.dim)
        )
        mean, variance, _ = predict_rows(noiseless, q, wide, layout)
        means.append(mean)
        stds.append(np.sqrt(variance))
    return np.concatenate(means), np.concatenate(stds)
