"""What the estimators' parameters mean: checked at the edge, turned into priors and rules."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from numbers import Real
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse as sp

from kalvi.estimators.common import refuse_lazy
from kalvi.gaussians import Dense, Diagonal, Gaussian, LowRankPrecision, Updatable
from kalvi.numerics import sharding
from kalvi.numerics.namespaces import on_device
from kalvi.rules.schemes import EKF, QKF, Explicit, Implicit, MirrorProx, Scheme
from kalvi.streams import FIRST_BLOCK, SMALL_SHAPE, Schedule

SCHEMES: dict[str, Scheme] = {
    "implicit": Implicit(),
    "explicit": Explicit(),
    "mirror_prox": MirrorProx(),
    "ekf": EKF(),
    "qkf": QKF(),
}
VARIATIONAL = ("implicit", "explicit", "mirror_prox")
"""Schemes whose common fixed point is the variational optimum that further passes reach."""
SCALES = np.logspace(-2, 2, 9)
"""The grid of prior_scale="auto"."""
NOISE_UNITS = np.logspace(-2, 5, 15)
"""The grid where the prior scale is in units of a learned noise."""
INTERCEPT_WIDTH = 10.0
"""The intercept's prior is this much wider than a coefficient's."""

BLOCK_BYTES = 2**29
"""A block of dense rows for a low-rank posterior takes at most this much memory."""
TOGETHER = 96
"""Predictors of several classes that a block of rows for a full covariance has."""
LARGEST_BLOCK, MANY = 256, 4096
"""Blocks for a low-rank posterior grow no further. With many parameters a row costs least in blocks of
about as many rows as there are factors, and blocks grow to two or three times that (at least 32)."""


def check_settings(settings: dict[str, Any], scales: tuple[str, ...]) -> None:
    """Refuse parameters that mean nothing, with what was needed and the remedy."""
    if settings["scheme"] not in list(SCHEMES):
        raise ValueError(f"scheme must be one of {', '.join(SCHEMES)}; got {settings['scheme']!r}.")
    for name in scales:
        _check_scale(name, settings[name])
    _check_range("forgetting", settings["forgetting"], lambda value: 0 < value <= 1, "in (0, 1]")
    _check_range("process_noise", settings["process_noise"], lambda v: v >= 0, "non-negative")
    if settings["dtype"] not in ("float32", "float64", np.float32, np.float64):
        raise ValueError(f"dtype must be 'float32' or 'float64'; got {settings['dtype']!r}.")
    for name in ("passes", "block_size"):
        value = settings[name]
        if value != "auto" and not (_is_integer(value) and value >= 1):
            raise ValueError(f"{name} must be 'auto' or a positive integer; got {value!r}.")
    rank = settings["rank"]
    if rank is not None and not (_is_integer(rank) and rank >= 0):
        raise ValueError(
            f"rank must be None (full covariance), 0 (diagonal) or a positive integer; got {rank!r}."
        )


@contextmanager
def located(**arrays: Any) -> Iterator[None]:
    """scikit-learn's complaint about NaN or infinity, with the place and the remedy."""
    refuse_lazy(**arrays)
    try:
        yield
    except ValueError as error:
        if "contains NaN" not in str(error) and "contains infinity" not in str(error):
            raise
        places = [_first_bad(name, array) for name, array in arrays.items()]
        found = next((place for place in places if place), str(error))
        raise ValueError(f"{found} Drop or impute such rows first.") from None


def _first_bad(name: str, array: Any) -> str | None:
    """Where the first NaN or infinity of an array is, in a sentence."""
    try:
        entries = sp.coo_array(array if sp.issparse(array) else np.asarray(array, float))
    except (TypeError, ValueError):
        return None
    bad = np.flatnonzero(~np.isfinite(entries.data))
    if not bad.size:
        return None
    place = [int(axis[bad[0]]) for axis in entries.coords]
    value = "NaN" if np.isnan(entries.data[bad[0]]) else "infinity (inf)"
    where = f"row {place[0]}" + (f", column {place[1]}" if len(place) > 1 else "")
    return f"Input {name} contains {value} in {where} ({bad.size} such values in all)."


def make_prior(
    settings: dict[str, Any], scale: Any, shape: tuple[int, int], dtype: Any
) -> Updatable:
    """The Gaussian over the coefficients, the intercept last, for one value of the prior scale.

    `shape` is the number of features and of predictors, which all have the same prior.
    """
    n_features, outputs = shape
    dim = n_features + bool(settings["fit_intercept"])
    if settings["rank"] is not None and settings["rank"] > dim * outputs:
        raise ValueError(
            f"rank={settings['rank']} exceeds the {dim * outputs} parameters; "
            f"choose rank ≤ {dim * outputs}, or None for a full covariance."
        )
    if settings["prior"] is not None:
        return _given_prior(on_device(settings["prior"]), settings["rank"], dim * outputs, dtype)
    mean = _per_feature("prior_mean", settings["prior_mean"], n_features, dim, 0.0)
    width = INTERCEPT_WIDTH * float(np.max(scale))
    std = _per_feature("prior_scale", scale, n_features, dim, width)
    mean, std = (np.tile(a, outputs).astype(dtype) for a in (mean, std))
    return _structure(mean, std, settings["rank"])


def plain_prior(
    settings: dict[str, Any], scale: Any, shape: tuple[int, int], dtype: Any
) -> Updatable:
    """The same as variances alone, unless the prior itself was given."""
    diagonal = settings if settings["prior"] is not None else settings | {"rank": 0}
    return make_prior(diagonal, scale, shape, dtype)


def check_prior(settings: dict[str, Any]) -> None:
    """Refuse what is no prior of any number of features."""
    prior = settings["prior"]
    if prior is not None and not isinstance(prior, Gaussian):
        raise TypeError(
            f"prior must be a Gaussian, such as another model's posterior_; got {type(prior).__name__}."
        )
    _numbers("prior_mean", settings["prior_mean"])


def check_method(settings: dict[str, Any], revisitable: bool) -> None:
    """Refuse an unknown method, and one that the other parameters contradict."""
    if settings["method"] not in ("rvga", "klprox"):
        raise ValueError(f"method must be 'rvga' or 'klprox'; got {settings['method']!r}.")
    if settings["method"] == "klprox" and not (revisitable and settings["rank"] is None):
        raise ValueError(
            "method='klprox' needs rank=None, forgetting=1, process_noise=0 and one of the schemes "
            f"{', '.join(VARIATIONAL)}; use method='rvga' for others."
        )


def check_passes(passes: Any, revisitable: bool) -> None:
    """Refuse more than one pass where there is only one."""
    if passes != "auto" and passes > 1 and not revisitable:
        raise ValueError(
            f"passes={passes} needs forgetting=1, process_noise=0, a rank other than 0 and one of the "
            f"schemes {', '.join(VARIATIONAL)}; use passes='auto' or 1."
        )


def schedule(setting: Any, dim: int, rank: int | None, dtype: Any, outputs: int = 1) -> Schedule:
    """Blocks of the given size, or of sizes that suit the parameters of each of the row's predictors."""
    if setting != "auto":
        return Schedule(int(setting), growing=False)
    if rank is None:
        few = 16 if dim < 256 else 32
        return Schedule(few if outputs == 1 else max(TOGETHER // outputs, 1), growing=False)
    fitting = BLOCK_BYTES // (np.dtype(dtype).itemsize * dim * outputs**2)
    size = 1 << (max(fitting, 1).bit_length() - 1)
    cheap = LARGEST_BLOCK if dim < MANY else max(2 << rank.bit_length(), SMALL_SHAPE)
    most = 1 << (max(min(cheap, LARGEST_BLOCK) // outputs, 1).bit_length() - 1)
    return Schedule(int(np.clip(size, FIRST_BLOCK, max(most, FIRST_BLOCK))))


def _structure(mean: np.ndarray, std: np.ndarray, rank: int | None) -> Updatable:
    if rank is None:
        return Dense.from_root(jnp.asarray(mean), jnp.diag(jnp.asarray(std)))
    sharding.check_divides(len(mean), "this model")
    if rank == 0:
        return Diagonal(sharding.rows(mean), sharding.rows(std**2))
    factor = sharding.zeros((len(mean), rank), mean.dtype)
    return LowRankPrecision(sharding.rows(mean), factor, sharding.rows(std**-2))


def _given_prior(prior: Any, rank: int | None, dim: int, dtype: Any) -> Updatable:
    if prior.dim != dim:
        raise ValueError(
            f"prior has {prior.dim} parameters but this model has {dim} "
            "(one a feature, and the intercept last if there is one; for each class if there are several)."
        )
    if rank is None:
        dense = prior.to_dense()
        return Dense.from_root(dense.mean.astype(dtype), dense.root.astype(dtype))
    ranked = prior if prior.rank == rank else prior.with_rank(rank)
    return sharding.spread(jax.tree.map(lambda leaf: leaf.astype(dtype), ranked))


def _per_feature(name: str, value: Any, n_features: int, dim: int, intercept: float) -> np.ndarray:
    """One number a parameter, from a scalar or an array without or with the intercept's."""
    value = _numbers(name, value)
    if value.ndim == 0:
        value = np.full(n_features, float(value))
    if value.shape == (n_features,) and dim > n_features:
        value = np.append(value, intercept)
    if not np.all(np.isfinite(value)):
        raise ValueError(f"{name} must be finite; got {value.tolist()}.")
    if value.shape != (dim,):
        raise ValueError(
            f"{name} must be a number or have one entry for each of the {n_features} features; "
            f"got shape {value.shape}."
        )
    return value


def _numbers(name: str, value: Any) -> np.ndarray:
    try:
        return np.asarray(value, float)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be a number or an array of them; got {value!r}.") from None


def _check_scale(name: str, value: Any) -> None:
    if isinstance(value, str):
        if value != "auto":
            raise ValueError(f"{name} must be positive or 'auto'; got {value!r}.")
        return
    array = _numbers(name, value)
    if not np.all(np.isfinite(array) & (array > 0)):
        raise ValueError(
            f"{name} must be positive and finite; got {value!r}. It is a standard deviation."
        )


def _check_range(name: str, value: Any, good: Callable[[float], bool], range_: str) -> None:
    if not isinstance(value, Real) or not good(float(value)):
        raise ValueError(f"{name} must be a number {range_}; got {value!r}.")


def _is_integer(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)
