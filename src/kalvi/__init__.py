"""Gaussian variational inference that scales.

Rows become predictors, predictors become expected gradients and curvatures, and these update a Gaussian.
The names that most programs need are here, all others in the namespaces. Each name is loaded when it is
first used, so that `import kalvi` is fast.
"""

import gc
from importlib import import_module
from importlib.util import find_spec
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
__all__ = ["__version__", *_HOME, *_NAMESPACES]


def __getattr__(name: str) -> Any:
    if name in _NAMESPACES:
        return _load(f"kalvi.{name}")
    if name in _HOME:
        return getattr(_load(_HOME[name]), name)
    raise AttributeError(f"module 'kalvi' has no attribute {name!r}{_elsewhere(name)}")


def _elsewhere(name: str) -> str:
    """The end of an error message: the namespaces that have the name.

    Python asks for the name of a module here before it imports the module; such names are not looked up.
    """
    private = name.startswith("_") or find_spec(f"kalvi.{name}") is not None
    homes = [] if private else _NAMESPACES
    found = [home for home in homes if name in _load(f"kalvi.{home}").__all__]
    return f"; there is {' and '.join(f'kalvi.{home}.{name}' for home in found)}" if found else ""


def _load(module: str) -> Any:
    """Import a module without garbage collection, which takes a sixth of the time and finds nothing."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        return import_module(module)
    finally:
        if collecting:
            gc.enable()


def __dir__() -> list[str]:
    return sorted(__all__)
