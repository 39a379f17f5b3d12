"""Gaussian variational inference that scales.

Rows become predictors, predictors become expected gradients and curvatures, those update a Gaussian.
Names are loaded when first used, so that `import kalvi` costs nothing.
"""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_HOMES = {
    "kalvi.estimators": (
        "BinaryFactorization",
        "FactorAnalysis",
        "GaussianProcessClassifier",
        "GaussianProcessRegressor",
        "LinearRegression",
        "LogisticRegression",
        "NeuralClassifier",
        "NeuralRegressor",
        "PoissonRegression",
    ),
    "kalvi.gaussians": ("Dense", "Diagonal", "Gaussian", "LowRankCovariance", "LowRankPrecision"),
    "kalvi.divergences": ("kl", "wasserstein"),
    "kalvi.merging": ("merge",),
    "kalvi.projections": ("EM", "Eigen", "Projection"),
    "kalvi.likelihoods": (
        "Bernoulli",
        "Laplace",
        "Likelihood",
        "Normal",
        "Poisson",
        "Probit",
        "StudentT",
    ),
    "kalvi.custom": ("Custom",),
    "kalvi.vectors": ("MultiNormal", "Softmax", "VectorLikelihood"),
    "kalvi.predictors": ("Linear", "MultiLinear", "Predictor"),
    "kalvi.logistic": ("InverseProbit", "ScaleMixture"),
    "kalvi.algorithms.base": ("Batch", "Rule"),
    "kalvi.algorithms.sites": ("EKF", "QKF", "Explicit", "Implicit", "MirrorProx"),
    "kalvi.algorithms.rvga": ("RVGA",),
    "kalvi.algorithms.revisit": ("Revisit",),
    "kalvi.algorithms.general": (
        "FirstOrder",
        "GaussHermite",
        "GeneralRVGA",
        "Sampling",
        "SecondOrder",
        "SigmaPoints",
        "ZerothOrder",
    ),
    "kalvi.algorithms.factor_analysis": (
        "SGA",
        "OnlineEM",
        "RecursiveFA",
        "batch_em",
        "random_factor_model",
    ),
    "kalvi.algorithms.laplace": ("laplace",),
    "kalvi.algorithms.vga": ("vga",),
    "kalvi.algorithms.klprox.rule": ("Carried", "Design", "KLProximal"),
    "kalvi.algorithms.proximal_point": (
        "ConjugateModel",
        "Family",
        "GammaFamily",
        "NormalFamily",
        "NormalMeanPrecision",
        "ProximalPoint",
    ),
    "kalvi.algorithms.swag": ("FASWAG", "SWA", "SWAG", "PathRule", "WindowAverage"),
    "kalvi.algorithms.vifa": (
        "VIFA",
        "Antithetic",
        "FullVI",
        "GaussNewton",
        "Plain",
        "PrecisionVI",
        "Preconditioned",
        "Single",
        "Transform",
    ),
    "kalvi.algorithms.nonlinear": ("NetworkRVGA",),
    "kalvi.algorithms.training": ("Training",),
    "kalvi.networks": ("Network", "Perceptron", "network"),
    "kalvi.models": ("LogLikelihood", "Model"),
    "kalvi.gaussians.mixture": ("Mixture",),
    "kalvi.pytrees": ("Flat",),
    "kalvi.collectors": ("Collector",),
    "kalvi.run": ("fit", "resume"),
    "kalvi.tabular.batches": ("Stream", "stream"),
    "kalvi.checkpoints": ("load", "save"),
    "kalvi.psis": ("Diagnosis",),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}
_MODULES = ("distributed", "kernels", "sharding")  # whose names are too common to stand alone
__all__ = ["__version__", *_HOME, *_MODULES]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"kalvi.{name}")
    if name not in _HOME:
        raise AttributeError(f"module 'kalvi' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
