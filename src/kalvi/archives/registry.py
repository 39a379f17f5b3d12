"""The classes and functions that a file may name.

Only data are rebuilt. A file may name a class of kalvi that is public, concrete, defined where the file
says, and a module of arrays, a named tuple or an estimator. Before a module is imported, its name is looked
up among the files of kalvi; nothing else is imported, and no function is called by its name. Of other
libraries, a file may name scikit-learn's kernels, the steps of pipelines that are listed here, and the
states of Optax's optimisers.
"""

from functools import cache
from importlib import import_module
from inspect import isabstract
from pkgutil import iter_modules
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import sklearn
from sklearn.base import BaseEstimator
from sklearn.gaussian_process.kernels import Kernel

from kalvi.predictors.networks import ACTIVATIONS

EDGES = frozenset({"kalvi.cli", "kalvi.demo", "kalvi.plots"})
"""Packages without values to save; no file can cause them to be imported."""

COVARIANCE = frozenset({"dtype", "kernel", "theta", "bounds", "names"})
OBJECTS = {
    f"kalvi.estimators.gaussian_process.covariances:{name}": COVARIANCE
    for name in ("KalviKernel", "SklearnKernel")
}
"""The plain objects that a file may hold, and their attributes."""

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
"""Steps of scikit-learn's pipelines, by the module that publishes them. They are listed one by one because
their attributes are restored as they were, which would not be safe for every class. A file needs the
version of scikit-learn that it was written with; only the last number may differ."""

KERNELS = Kernel.__module__
"""The module of scikit-learn's kernels, which are rebuilt from their parameters."""

TYPES = {kind.__name__: kind for kind in (object, str, int, float, bool)} | {
    kind.__name__: kind for kind in (np.number, np.integer, np.floating)
}
"""Types that a selector of columns may name."""

JAX_FUNCTIONS = {
    f"{module.__name__}:{name}": getattr(module, name)
    for module, names in ((jax.nn, "relu gelu silu softplus elu"), (jnp, "tanh sin cos"))
    for name in names.split()
}
NUMPY_FUNCTIONS = {
    f"numpy:{function.__name__}": function
    for function in vars(np).values()
    if isinstance(function, np.ufunc) and function.nin == 1
}
FUNCTIONS = (
    JAX_FUNCTIONS
    | NUMPY_FUNCTIONS
    | {f"kalvi.predictors.networks:{name}": function for name, function in ACTIVATIONS.items()}
)
"""The functions that can be saved, by their names in a file: they do nothing but compute."""
OPTIMISER = "kalvi.rules.training:ADAM"
"""The optimiser of kalvi is saved by its name too, because it is made of functions. Optax is imported when
it is met."""


def function_name(value: Any) -> str | None:
    """The name in a file of a function or an optimiser; None for one that cannot be saved."""
    if type(value).__module__.startswith("optax") and value is named_function(OPTIMISER):
        return OPTIMISER
    return next((name for name, known in FUNCTIONS.items() if known is value), None)


def named_function(name: str) -> Any:
    """The function or the optimiser of this name in a file."""
    if name == OPTIMISER:
        from kalvi.rules.training import ADAM

        return ADAM
    return FUNCTIONS[name]


def name_of(cls: type) -> str:
    """The name of a class in a file; a class of another library has the module that publishes it."""
    parts = cls.__module__.split(".")
    published = [f"{'.'.join(parts[:n])}:{cls.__qualname__}" for n in (1, 2)]
    own = f"{cls.__module__}:{cls.__qualname__}"
    return next((name for name in published if name in STEPS or _is_state(name)), own)


def sklearn_version() -> str:
    """The major and minor version of scikit-learn, on which the attributes of its classes depend."""
    return ".".join(sklearn.__version__.split(".")[:2])


def kind_of(cls: type) -> str | None:
    """The word in a file for values of this class; None for a class that no file may hold."""
    name = name_of(cls)
    if name in OBJECTS:
        return "object"
    if issubclass(cls, Kernel):
        return "kernel" if cls.__module__ == KERNELS and not isabstract(cls) else None
    if name in STEPS:
        return "step"
    if _is_state(name):
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
    """Whether a class is a public, concrete one of kalvi, and defined in the module that it names."""
    name = cls.__qualname__
    if name.startswith("_") or not is_module(cls.__module__):
        return False
    return vars(import_module(cls.__module__)).get(name) is cls and not _is_abstract(cls)


def _is_abstract(cls: type) -> bool:
    """Whether a method or an attribute is still abstract, even in estimators, which are no ABCs."""
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
    """The names of the public modules in a package; none for a plain module."""
    folders = vars(import_module(package)).get("__path__", ())
    names = [found.name for found in iter_modules(folders) if not found.name.startswith("_")]
    return frozenset(name for name in names if f"{package}.{name}" not in EDGES)


def _split(name: Any) -> tuple[str, str]:
    """The module and the name in "module:name"; empty texts for anything else."""
    parts = name.split(":") if isinstance(name, str) else []
    return (parts[0], parts[1]) if len(parts) == 2 else ("", "")


def _is_state(name: Any) -> bool:
    """Whether the name is that of a state of an optimiser, a named tuple that Optax publishes."""
    module, own = _split(name)
    state = module == "optax" and own.endswith("State")
    found = vars(import_module(module)).get(own) if state else None
    return isinstance(found, type) and issubclass(found, tuple)


def find(name: Any, kind: str) -> Any:
    """The class with this name in a file; refused unless `kind` is the word for its values."""
    module, own = _split(name)
    foreign = module == KERNELS or f"{module}:{own}" in STEPS or _is_state(name)
    found = vars(import_module(module)).get(own) if foreign or is_module(module) else None
    if not isinstance(found, type) or name_of(found) != name or kind_of(found) != kind:
        raise ValueError(f"it names {str(name)[:60]!r}, which is not a class that a file may hold")
    return found
