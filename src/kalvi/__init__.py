"""Gaussian variational inference that scales.

Rows become predictors, predictors become expected gradients and curvatures, those update a Gaussian.
Names are loaded when first used, so that `import kalvi` costs nothing.
"""

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
    "kalvi.gaussians.divergences": ("kl", "wasserstein"),
    "kalvi.gaussians.merging": ("merge",),
    "kalvi.numerics.projections": ("EM", "Eigen", "Projection"),
    "kalvi.likelihoods": (
        "Bernoulli",
        "Laplace",
        "Likelihood",
        "Normal",
        "Poisson",
        "Probit",
        "StudentT",
    ),
    "kalvi.likelihoods.custom": ("Custom",),
    "kalvi.likelihoods.vector": ("MultiNormal", "Softmax"),
    "kalvi.predictors": ("Linear", "MultiLinear", "OffsetLinear", "Predictor"),
    "kalvi.likelihoods.logistic": ("InverseProbit", "ScaleMixture"),
    "kalvi.rules.base": ("Batch", "IterativeRule", "PassRule", "Rule", "StreamRule"),
    "kalvi.rules.schemes": ("EKF", "QKF", "Explicit", "Implicit", "MirrorProx"),
    "kalvi.rules.rvga": ("RVGA",),
    "kalvi.rules.revisit": ("Revisit",),
    "kalvi.rules.general": (
        "FirstOrder",
        "GaussHermite",
        "GeneralRVGA",
        "Sampling",
        "SecondOrder",
        "SigmaPoints",
        "ZerothOrder",
    ),
    "kalvi.rules.factor_analysis": (
        "SGA",
        "OnlineEM",
        "RecursiveFA",
        "batch_em",
        "random_factor_model",
    ),
    "kalvi.rules.laplace": ("laplace",),
    "kalvi.rules.vga": ("vga",),
    "kalvi.rules.klprox.rule": ("KLProximal",),
    "kalvi.rules.swag": ("FASWAG", "SWA", "SWAG", "PathRule", "WindowAverage"),
    "kalvi.rules.vifa": (
        "VIFA",
        "Antithetic",
        "GaussNewton",
        "Plain",
        "PrecisionVI",
        "Preconditioned",
        "Single",
        "Transform",
    ),
    "kalvi.rules.training": ("Training",),
    "kalvi.predictors.networks": ("Network", "Perceptron", "network"),
    "kalvi.predictors.models": ("LogLikelihood", "Model"),
    "kalvi.gaussians.mixture": ("Mixture",),
    "kalvi.numerics.pytrees": ("Flat",),
    "kalvi.collectors": ("Collector",),
    "kalvi.streams.run": ("fit", "resume"),
    "kalvi.tabular.batches": ("Stream", "stream"),
    "kalvi.archives.checkpoints": ("load", "save"),
    "kalvi.evaluation.psis": ("Diagnosis",),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}
_MODULES = {
    "distributed": "kalvi.distributed",
    "kernels": "kalvi.kernels",
    "sharding": "kalvi.numerics.sharding",
}
"""Whose names are too common to stand alone."""
__all__ = ["__version__", *_HOME, "distributed", "kernels", "sharding"]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(_MODULES[name])
    if name not in _HOME:
        raise AttributeError(f"module 'kalvi' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
