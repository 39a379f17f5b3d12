"""The classes that a file may speak of: kalvi's own, by a rule, and a few of other libraries, by name.

Only data are ever rebuilt. A class of kalvi may be if it is public and concrete, is defined where the file
says, and is a module of arrays, a named tuple or an estimator. Whether kalvi has a module of that name is
seen from the files in its folders: nothing else is imported, and no function is called by its name.
"""

import dataclasses
from functools import cache
from importlib import import_module
from inspect import get_annotations
from pkgutil import iter_modules
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import sklearn
from sklearn.base import BaseEstimator

from kalvi.archives.annotations import check_counts, check_fields, check_gaussian
from kalvi.gaussians import Gaussian
from kalvi.numerics.linalg import LowRankPlusDiagonal
from kalvi.predictors.networks import ACTIVATIONS

EDGES = frozenset({"kalvi.cli", "kalvi.demo", "kalvi.plots"})
"""What talks to people: it holds no values, and no file can have it imported."""

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

OPTIMISER_STATES = frozenset(
    f"optax:{name}" for name in ("EmptyState", "ScaleByAdamState", "TraceState")
)
"""What the optimisers of Optax that kalvi uses remember."""

FOREIGN = SKLEARN_KERNELS | STEPS | OPTIMISER_STATES

OPTIMISERS = frozenset({"kalvi.rules.training:ADAM"})
"""Those optimisers: by their names, because they are functions."""

TYPES = {kind.__name__: kind for kind in (object, str, int, float, bool)} | {
    kind.__name__: kind for kind in (np.number, np.integer, np.floating)
}
"""Types that a selector of columns may name."""

FUNCTIONS = {
    f"kalvi.predictors.networks:{name}": function for name, function in ACTIVATIONS.items()
} | {
    f"jax.nn:{name}": getattr(jax.nn, name) for name in ("relu", "gelu", "silu", "softplus", "elu")
}
FUNCTIONS |= {f"jax.numpy:{name}": getattr(jnp, name) for name in ("tanh", "sin", "cos")}
FUNCTIONS |= {
    f"numpy:{name}": getattr(np, name)
    for name in ("log", "log1p", "log10", "exp", "expm1", "sqrt", "square", "absolute", "tanh")
}
"""The functions that can be saved: by their names."""


def function_name(value: Any) -> str | None:
    """How a file calls a function or an optimiser; None for one that it cannot."""
    if type(value).__module__.startswith("optax."):
        return next((name for name in OPTIMISERS if function(name) is value), None)
    if not callable(value) or isinstance(value, type):
        return None
    return next((name for name, known in FUNCTIONS.items() if known is value), None)


def function(name: Any) -> Any:
    """The function or the optimiser that a file calls so."""
    if name not in OPTIMISERS:
        return FUNCTIONS[name]
    module, _, own = name.partition(":")
    return vars(import_module(module))[own]


def name_of(cls: type) -> str:
    """How a file calls a class: of other libraries, by the module that publishes it."""
    parts = cls.__module__.split(".")
    published = {f"{'.'.join(parts[:n])}:{cls.__qualname__}" for n in (1, 2)}
    known = published & FOREIGN
    return known.pop() if known else f"{cls.__module__}:{cls.__qualname__}"


def sklearn_version() -> str:
    """The numbers of scikit-learn's version that tell which attributes its classes have."""
    return ".".join(sklearn.__version__.split(".")[:2])


def kind_of(cls: type) -> str | None:
    """How a class is taken apart and rebuilt: None for one that a file may not speak of."""
    name = name_of(cls)
    if name in OBJECTS:
        return "object"
    if name in SKLEARN_KERNELS:
        return "kernel"
    if name in STEPS:
        return "step"
    if name in OPTIMISER_STATES:
        return "record"
    return _own_kind(cls) if _is_own(cls) else None


def _own_kind(cls: type) -> str | None:
    if issubclass(cls, BaseEstimator):
        return "estimator"
    if issubclass(cls, eqx.Module):
        return "module"
    return "record" if issubclass(cls, tuple) and _has_fields(cls) else None


def _has_fields(cls: Any) -> bool:
    return isinstance(getattr(cls, "_fields", None), tuple)


def _is_own(cls: type) -> bool:
    """Whether a class is a public, concrete one of kalvi, and defined where it says."""
    name = cls.__qualname__
    if name.startswith("_") or not is_module(cls.__module__):
        return False
    return vars(import_module(cls.__module__)).get(name) is cls and not _is_abstract(cls)


def _is_abstract(cls: type) -> bool:
    """Whether a method or an attribute is still missing, also in estimators, which are no ABCs."""
    declared = {
        name
        for base in cls.__mro__
        for name, part in vars(base).items()
        if getattr(part, "__isabstractmethod__", False)
    }
    missing = (getattr(getattr(cls, name), "__isabstractmethod__", False) for name in declared)
    return any(missing) or bool(getattr(cls, "__abstractvars__", ()))


def is_module(name: str) -> bool:
    """Whether kalvi has a public module of this name; only the packages that hold it are imported."""
    package, *path = name.split(".")
    if package != "kalvi" or not path:
        return False
    for part in path:
        if part not in _listed(package):
            return False
        package = f"{package}.{part}"
    return True


@cache
def _listed(package: str) -> frozenset[str]:
    """The names of the public modules in a package; none of what is no package."""
    folders = vars(import_module(package)).get("__path__", ())
    names = [found.name for found in iter_modules(folders) if not found.name.startswith("_")]
    return frozenset(name for name in names if f"{package}.{name}" not in EDGES)


def find(name: Any, kind: str) -> Any:
    """The class that a file calls `name` and wants to rebuild in this way."""
    parts = name.split(":") if isinstance(name, str) else []
    allowed = len(parts) == 2 and (name in FOREIGN or is_module(parts[0]))
    found = vars(import_module(parts[0])).get(parts[1]) if allowed else None
    if not isinstance(found, type) or name_of(found) != name or kind_of(found) != kind:
        raise ValueError(
            f"it speaks of {str(name)[:60]!r}, which is not one of the classes it may hold"
        )
    return found


def _annotations(cls: type) -> dict[str, Any]:
    """The declared types of a named tuple, also where a class inherits its fields."""
    return get_annotations(next(base for base in cls.__mro__ if "_fields" in vars(base)))


def check(value: Any, kind: str) -> Any:
    """The value, if its parts are what its class declares."""
    cls: Any = type(value)
    if kind == "module":
        fields = dataclasses.fields(cls)
        check_fields(cls, {field.name: field.type for field in fields}, vars(value))
        check_counts(cls, {f.name: vars(value)[f.name] for f in fields if f.metadata.get("static")})
    elif kind == "record":
        check_fields(cls, _annotations(cls), value._asdict())
    if isinstance(value, LowRankPlusDiagonal) and value.sign not in (1, -1):
        raise ValueError(f"{cls.__name__} adds its factor with a sign that is none")
    if isinstance(value, Gaussian):
        check_gaussian(value)
    return value
