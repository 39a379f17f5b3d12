"""The classes that a file may speak of: those of these modules, and a few of other libraries.

Only data are ever rebuilt. A class is looked up in a module of this list, must be defined there, and must
be a module of arrays, a named tuple, or one of the estimators and kernels named below; nothing else is
imported and no function is called by name.
"""

import dataclasses
from importlib import import_module
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import sklearn

from kalvi.archives.annotations import check_counts, check_fields, check_gaussian
from kalvi.gaussians import Gaussian
from kalvi.networks import ACTIVATIONS

MODULES = frozenset(
    f"kalvi.{name}"
    for name in (
        "linalg",
        "projections",
        "logistic",
        "implicit",
        "likelihoods",
        "custom",
        "vectors",
        "predictors",
        "networks",
        "models",
        "climbing",
        "tridiagonal",
        "streams",
        "gaussians.full",
        "gaussians.low_rank",
        "gaussians.mixture",
        "kernels.base",
        "kernels.stationary",
        "kernels.others",
        "kernels.ornstein_uhlenbeck",
        "algorithms.base",
        "algorithms.evidence",
        "algorithms.general",
        "algorithms.grid",
        "algorithms.groups",
        "algorithms.laplace",
        "algorithms.nonlinear",
        "algorithms.proximal_point",
        "algorithms.revisit",
        "algorithms.rvga",
        "algorithms.sites",
        "algorithms.swag",
        "algorithms.training",
        "algorithms.vga",
        "algorithms.factor_analysis.batch",
        "algorithms.factor_analysis.common",
        "algorithms.factor_analysis.gradient",
        "algorithms.factor_analysis.online",
        "algorithms.factor_analysis.recursive",
        "algorithms.klprox.evidence",
        "algorithms.klprox.fixed",
        "algorithms.klprox.function_space",
        "algorithms.klprox.rule",
        "algorithms.klprox.sparse",
        "algorithms.klprox.weights",
        "algorithms.silk.anderson",
        "algorithms.silk.entries",
        "algorithms.silk.model",
        "algorithms.silk.observed",
        "algorithms.silk.places",
        "algorithms.silk.posteriors",
        "algorithms.silk.priors",
        "algorithms.silk.rule",
        "algorithms.silk.stochastic",
        "algorithms.vifa.full",
        "algorithms.vifa.gradients",
        "algorithms.vifa.precision",
        "algorithms.vifa.rule",
        "algorithms.vifa.steps",
        "estimators.binary_fits",
        "estimators.binary_places",
        "estimators.climbs",
        "estimators.gp_fits",
        "estimators.gp_sparse",
        "estimators.neural_fits",
        "columns.encoder",
        "columns.groups",
        "columns.numbers",
        "columns.targets",
        "columns.words",
        "tabular.factor",
        "tabular.learn",
        "tabular.matrix",
        "tabular.model",
        "tabular.record",
        "tabular.scores",
    )
)
"""Whose modules of arrays and named tuples are rebuilt field by field."""

ESTIMATORS = frozenset(
    {
        "kalvi.estimators.linear:LinearRegression",
        "kalvi.estimators.linear:LogisticRegression",
        "kalvi.estimators.linear:PoissonRegression",
        "kalvi.estimators.factor_analysis:FactorAnalysis",
        "kalvi.estimators.neural:NeuralClassifier",
        "kalvi.estimators.neural:NeuralRegressor",
        "kalvi.estimators.gaussian_process:GaussianProcessClassifier",
        "kalvi.estimators.gaussian_process:GaussianProcessRegressor",
        "kalvi.estimators.binary_factorization:BinaryFactorization",
    }
)
"""Rebuilt as pickle would: from the attributes that they keep, by their own `__setstate__`."""

OBJECTS = {
    "kalvi.estimators.gp_covariances:Own": {"dtype", "kernel", "theta", "bounds", "names"},
    "kalvi.estimators.gp_covariances:Foreign": {"dtype", "kernel", "theta", "bounds", "names"},
}
"""Plain objects, and the attributes that they have."""

SKLEARN_KERNELS = frozenset(
    f"sklearn.gaussian_process.kernels:{name}"
    for name in (
        "CompoundKernel",
        "ConstantKernel",
        "DotProduct",
        "ExpSineSquared",
        "Exponentiation",
        "Matern",
        "PairwiseKernel",
        "Product",
        "RBF",
        "RationalQuadratic",
        "Sum",
        "WhiteKernel",
    )
)
"""Rebuilt from their parameters."""

STEPS = frozenset(
    f"sklearn.{name}"
    for name in (
        "pipeline:Pipeline",
        "pipeline:FeatureUnion",
        "compose:ColumnTransformer",
        "compose:make_column_selector",
        "decomposition:PCA",
        "decomposition:TruncatedSVD",
        "feature_selection:VarianceThreshold",
        "impute:MissingIndicator",
        "impute:SimpleImputer",
        "preprocessing:Binarizer",
        "preprocessing:FunctionTransformer",
        "preprocessing:MaxAbsScaler",
        "preprocessing:MinMaxScaler",
        "preprocessing:Normalizer",
        "preprocessing:OneHotEncoder",
        "preprocessing:OrdinalEncoder",
        "preprocessing:PolynomialFeatures",
        "preprocessing:PowerTransformer",
        "preprocessing:QuantileTransformer",
        "preprocessing:RobustScaler",
        "preprocessing:StandardScaler",
    )
)
"""Steps of scikit-learn's pipelines, by the module that publishes them: their attributes are put back as
they were, so that a file needs the scikit-learn that it was written with, but for its last number."""

TYPES = {kind.__name__: kind for kind in (object, str, int, float, bool)} | {
    kind.__name__: kind for kind in (np.number, np.integer, np.floating)
}
"""Types that a selector of columns may name."""

FUNCTIONS = {f"kalvi.networks:{name}": function for name, function in ACTIVATIONS.items()} | {
    f"jax.nn:{name}": getattr(jax.nn, name) for name in ("relu", "gelu", "silu", "softplus", "elu")
}
FUNCTIONS |= {f"jax.numpy:{name}": getattr(jnp, name) for name in ("tanh", "sin", "cos")}
FUNCTIONS |= {
    f"numpy:{name}": getattr(np, name)
    for name in ("log", "log1p", "log10", "exp", "expm1", "sqrt", "square", "absolute", "tanh")
}
"""The functions that can be saved: by their names."""


def name_of(cls: type) -> str:
    """How a file calls a class."""
    if cls.__module__.startswith("sklearn."):
        public = ".".join(cls.__module__.split(".")[:2])
        if f"{public}:{cls.__qualname__}" in STEPS:
            return f"{public}:{cls.__qualname__}"
    return f"{cls.__module__}:{cls.__qualname__}"


def sklearn_version() -> str:
    """The numbers of scikit-learn's version that tell which attributes its classes have."""
    return ".".join(sklearn.__version__.split(".")[:2])


def kind_of(cls: type) -> str | None:
    """How a class is taken apart and rebuilt: None for one that a file may not speak of."""
    name = name_of(cls)
    if name in ESTIMATORS:
        return "estimator"
    if name in OBJECTS:
        return "object"
    if name in SKLEARN_KERNELS:
        return "kernel"
    if name in STEPS:
        return "step"
    if cls.__module__ not in MODULES:
        return None
    if issubclass(cls, eqx.Module):
        return "module"
    return "record" if issubclass(cls, tuple) and _has_fields(cls) else None


def _has_fields(cls: Any) -> bool:
    return isinstance(getattr(cls, "_fields", None), tuple)


def find(name: Any, kind: str) -> Any:
    """The class that a file calls `name` and wants to rebuild in this way."""
    named = isinstance(name, str) and name.count(":") == 1
    module, _, cls = name.partition(":") if named else ("", "", "")
    others = name in ESTIMATORS or name in OBJECTS or name in SKLEARN_KERNELS or name in STEPS
    listed = module in MODULES or others
    found = vars(import_module(module)).get(cls) if named and listed else None
    if not isinstance(found, type) or name_of(found) != name or kind_of(found) != kind:
        raise ValueError(
            f"it speaks of {str(name)[:60]!r}, which is not one of the classes it may hold"
        )
    return found


def check(value: Any, kind: str) -> Any:
    """The value, if its parts are what its class declares."""
    cls: Any = type(value)
    if kind == "module":
        fields = dataclasses.fields(cls)
        check_fields(cls, {field.name: field.type for field in fields}, vars(value))
        check_counts(cls, {f.name: vars(value)[f.name] for f in fields if f.metadata.get("static")})
    elif kind == "record":
        check_fields(cls, cls.__annotations__, value._asdict())
    if isinstance(value, Gaussian):
        check_gaussian(value)
    return value
