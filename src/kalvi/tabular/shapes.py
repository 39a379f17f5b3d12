"""What a Gaussian process or a network is made of, in plain JSON: kernel and hyperparameters, or layers."""

from functools import singledispatch
from typing import Any

import numpy as np

from kalvi.estimators.gaussian_process.estimator import GaussianProcess
from kalvi.estimators.neural.estimator import NeuralEstimator


@singledispatch
def shape_of(estimator: Any) -> dict[str, Any] | None:
    """What a fitted estimator is made of; None of linear models, whose coefficients say it all."""
    return None


@shape_of.register(GaussianProcess)
def _of_process(estimator: GaussianProcess) -> dict[str, Any]:
    """Kernel and hyperparameters of each latent function, and the bound on the evidence."""
    sparse = estimator.regime_ == "sparse"
    return {
        "kind": "process",
        "latent": [_latent(fit) for fit in estimator.fits_],
        "regime": estimator.regime_,
        "inducing": len(estimator.fits_[0].points) if sparse else None,
        "bound": float(estimator.log_marginal_likelihood_),
        "gap": _finite(estimator.elbo_gap_),
    }


def _latent(fit: Any) -> dict[str, Any]:
    """One latent function: its kernel, its constant mean, its likelihood and what was fitted of them."""
    hyper = fit.hyper
    values = {name: _finite(value) for name, value in hyper.values.items()}
    return {
        "kernel": type_names(hyper.covariance.kernel),
        "likelihood": type(hyper.likelihood).__name__,
        "mean": _finite(hyper.mean.constant),
        "hyperparameters": values,
    }


def type_names(kernel: Any) -> str:
    """A kernel as a formula of the names of its parts: Scaled(RBF), RBF + White."""
    parts = [part for part in vars(kernel).values() if _is_kernel(part)]
    name = type(kernel).__name__
    joined = {"Sum": " + ", "Product": " × "}.get(name)
    if joined and len(parts) == 2:
        return joined.join(map(type_names, parts))
    return f"{name}({', '.join(map(type_names, parts))})" if parts else name


def _is_kernel(part: Any) -> bool:
    return any(base.__name__ == "Kernel" for base in type(part).__mro__)


@shape_of.register(NeuralEstimator)
def _of_network(estimator: NeuralEstimator) -> dict[str, Any]:
    """Layers, how the posterior was found, and how many parameters it has."""
    perceptron = estimator.perceptron_
    return {
        "kind": "network",
        "layers": [int(size) for size in perceptron.sizes],
        "activation": str(estimator.activation),
        "method": str(estimator.method),
        "posterior": type(estimator.posterior_).__name__,
        "parameters": int(perceptron.n_parameters()),
        "bound": None if getattr(estimator, "elbo_", None) is None else float(estimator.elbo_),
    }


def _finite(value: Any) -> Any:
    """A number, or a list of them, as JSON has it; None where there is none."""
    if value is None:
        return None
    array = np.asarray(value, float)
    if array.ndim:
        return [_finite(part) for part in array]
    return float(array) if np.isfinite(array) else None
