"""Gaussian variational inference that scales.

Rows become predictors, predictors become expected gradients and curvatures, those update a Gaussian.
The names that most programs need stand here, all others in the namespaces. Each is loaded when it is
first used, so that `import kalvi` costs nothing.
"""

import gc
from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_HOMES = {
    "kalvi.estimators.binary_factorization": ("BinaryFactorization",),
    "kalvi.estimators.factor_analysis": ("FactorAnalysis",),
    "kalvi.estimators.gaussian_process": ("GaussianProcessClassifier", "GaussianProcessRegressor"),
    "kalvi.estimators.linear": ("LinearRegression", "LogisticRegression", "PoissonRegression"),
    "kalvi.estimators.neural": ("NeuralClassifier", "NeuralRegressor"),
    "kalvi.gaussians": ("Dense", "Diagonal", "Gaussian", "LowRankCovariance", "LowRankPrecision"),
    "kalvi.gaussians.mixture": ("Mixture",),
    "kalvi.gaussians.divergences": ("kl",),
    "kalvi.gaussians.merging": ("merge",),
    "kalvi.likelihoods": ("Custom",),
    "kalvi.rules": ("RVGA", "Batch", "Rule"),
    "kalvi.streams.run": ("fit", "resume"),
    "kalvi.tabular.batches": ("stream",),
    "kalvi.archives.checkpoints": ("load", "save"),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}
_NAMESPACES = (
    "distributed",
    "drifts",
    "kernels",
    "klprox",
    "likelihoods",
    "metrics",
    "networks",
    "predictors",
    "projections",
    "rules",
    "schemes",
    "sharding",
    "silk",
)
_MOVED_TO = {
    "klprox": ("KLProximal",),
    "likelihoods": (
        "Bernoulli",
        "InverseProbit",
        "Laplace",
        "Likelihood",
        "MultiNormal",
        "Normal",
        "Poisson",
        "Probit",
        "ScaleMixture",
        "Softmax",
        "StudentT",
    ),
    "metrics": (
        "Diagnosis",
        "wasserstein",
    ),
    "networks": (
        "Collector",
        "LogLikelihood",
        "Model",
        "Network",
        "Perceptron",
    ),
    "predictors": (
        "Linear",
        "MultiLinear",
        "OffsetLinear",
        "Predictor",
    ),
    "projections": (
        "EM",
        "Eigen",
        "Projection",
    ),
    "rules": (
        "Antithetic",
        "FASWAG",
        "FirstOrder",
        "GaussHermite",
        "GaussNewton",
        "GeneralRVGA",
        "IterativeRule",
        "OnlineEM",
        "PassRule",
        "PathRule",
        "Plain",
        "PrecisionVI",
        "Preconditioned",
        "RecursiveFA",
        "Revisit",
        "SGA",
        "SWA",
        "SWAG",
        "Sampling",
        "SecondOrder",
        "SigmaPoints",
        "Single",
        "StreamRule",
        "Training",
        "Transform",
        "VIFA",
        "WindowAverage",
        "ZerothOrder",
        "batch_em",
        "laplace",
        "random_factor_model",
        "vga",
    ),
    "schemes": (
        "EKF",
        "Explicit",
        "Implicit",
        "MirrorProx",
        "QKF",
    ),
}
_MOVED = {name: f"{place}.{name}" for place, names in _MOVED_TO.items() for name in names}
_MOVED |= {
    "Flat": "networks.Flattener",
    "Stream": "tabular.batches.FileStream",
    "network": "networks.make_network",
}
"""Names that stood here in earlier versions, and where they are now."""
__all__ = ["__version__", *_HOME, *_NAMESPACES]


def __getattr__(name: str) -> Any:
    if name in _NAMESPACES:
        return _load(f"kalvi.{name}")
    if name in _HOME:
        return getattr(_load(_HOME[name]), name)
    moved = f"; it is kalvi.{_MOVED[name]} now" if name in _MOVED else ""
    raise AttributeError(f"module 'kalvi' has no attribute {name!r}{moved}")


def _load(module: str) -> Any:
    """Import a module without searches for garbage, which take a sixth of the time and find none."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        return import_module(module)
    finally:
        if collecting:
            gc.enable()


def __dir__() -> list[str]:
    return sorted(__all__)
