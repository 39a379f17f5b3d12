"""What the parameters of the Gaussian process estimators mean, and which values they refuse."""

import os
from numbers import Real
from pathlib import Path
from typing import Any

import jax
import numpy as np

PARAMETERS = """kernel : kernel or None, default None
        One of `kalvi.kernels`, sums and products of them, `kernels.Function` of your own, or any kernel of
        scikit-learn (not with sparse=True). None is a variance times an RBF, both learned from starts that
        suit the scales of y and X.
    mean : "constant", number or callable (default "constant"; GaussianProcessClassifier: 0)
        The prior mean of the latent function: a constant learned with the other hyperparameters from the
        mean of the data, a number that stays, or a function of X.
    optimizer : {"lbfgs", "grid"}, callable or None, default "lbfgs"
        How the hyperparameters of kernel, likelihood and mean are found: those with the highest variational
        bound, by L-BFGS with its exact gradient ("fmin_l_bfgs_b" is the same), among the combinations of
        `grid`, or by optimizer(objective, start, bounds), which is to minimise an objective that returns
        value and gradient. None keeps them as they are given.
    grid : dict or None
        For optimizer="grid": values of some hyperparameters by name, such as
        {"RBF.length_scale": [0.5, 1, 2]}; a wrong name is answered with all of them.
    n_restarts_optimizer : int, default 0
        Further searches, from starts drawn within a factor 1e5 of the first one.
    sparse : bool, default False
        False gives every row a latent of its own: N² numbers, N³ operations. True lets all go through
        `n_inducing` points: N · n_inducing numbers, N · n_inducing² operations, and a lower bound.
    n_inducing : int, default 256
        Inducing points of the sparse regime at most. Of four times as many rows, drawn at random, each is
        the one whose value those before leave most uncertain.
    batch_size : int or None, default None
        Of the sparse regime: None visits all rows at every step. A number learns the hyperparameters from a
        sample of the rows and the posterior by natural-gradient steps from minibatches of that size, in
        memory that does not grow with the rows.
    max_passes : int, default 500
        Steps towards the optimum of the bound for one set of hyperparameters at most.
    dtype : {"float64", "float32"}
    random_state : int, RandomState or None
        For restarts, inducing points and minibatches.
    verbose : bool, default False
        Show a progress bar."""

SQUARES = 12
"""N × N arrays that an exact fit holds at its height, as measured; scikit-learn's kernels take more."""


FEATURES = 4
"""N × M arrays that a sparse fit of all rows holds."""


def check_settings(given: dict[str, Any]) -> None:
    """Refuse parameters that mean nothing, with what was needed."""
    optimizer = given["optimizer"]
    known = ("lbfgs", "fmin_l_bfgs_b", "grid", None)
    if not callable(optimizer) and optimizer not in known:
        raise ValueError(
            f"optimizer must be 'lbfgs', 'grid', None or a callable; got {optimizer!r}."
        )
    if given["dtype"] not in ("float32", "float64", np.float32, np.float64):
        raise ValueError(f"dtype must be 'float32' or 'float64'; got {given['dtype']!r}.")
    if given["grid"] is not None and optimizer != "grid":
        raise ValueError(f"grid needs optimizer='grid'; got optimizer={optimizer!r}.")
    mean = given["mean"]
    named = isinstance(mean, str) and mean == "constant"
    if not callable(mean) and not named and not _finite(mean):
        raise ValueError(f"mean must be 'constant', a number or a callable; got {mean!r}.")
    for name, least in (("n_restarts_optimizer", 0), ("n_inducing", 1), ("max_passes", 1)):
        if not _whole(given[name], least):
            raise ValueError(f"{name} must be an integer, {least} or more; got {given[name]!r}.")
    if given["batch_size"] is not None and not _whole(given["batch_size"], 1):
        raise ValueError(
            f"batch_size must be None or a positive integer; got {given['batch_size']!r}."
        )
    if not isinstance(given["sparse"], bool | np.bool_):
        raise ValueError(f"sparse must be True or False; got {given['sparse']!r}.")
    if given["batch_size"] is not None and not given["sparse"]:
        raise ValueError("batch_size needs sparse=True: an exact fit visits all rows at once.")


def check_memory(n: int, dtype: Any, more: int = 0) -> None:
    """Refuse an exact fit that this machine cannot hold, before anything is allocated.

    `more` are the N × N arrays of a kernel's own derivatives.
    """
    needed = n**2 * (SQUARES * np.dtype(dtype).itemsize + more * 8)
    there = available_memory()
    if there is not None and needed > there:
        raise ValueError(
            f"an exact Gaussian process of {n} rows needs about {_size(needed)} and there are "
            f"{_size(there)}; use sparse=True, which needs N · n_inducing numbers."
        )


def check_sparse_memory(n: int, m: int, dtype: Any) -> None:
    """The same for a fit through inducing points that visits all rows at once."""
    needed, there = FEATURES * n * m * np.dtype(dtype).itemsize, available_memory()
    if there is not None and needed > there:
        raise ValueError(
            f"{m} inducing points of {n} rows need about {_size(needed)} and there are {_size(there)}; "
            "use batch_size, with which memory does not grow with the rows."
        )


def available_memory() -> int | None:
    """Bytes that arrays may take where JAX puts them, if that can be known."""
    device = jax.devices()[0]
    if device.platform != "cpu":
        stats = device.memory_stats() or {}
        return stats.get("bytes_limit")
    try:
        machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None
    limit = Path("/sys/fs/cgroup/memory.max")
    allowed = limit.read_text().strip() if limit.is_file() else "max"
    return machine if allowed == "max" else min(machine, int(allowed))


def _size(count: int | float) -> str:
    for unit in ("bytes", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"


def _finite(value: Any) -> bool:
    return (
        isinstance(value, Real) and not isinstance(value, bool) and bool(np.isfinite(float(value)))
    )


def _whole(value: Any, least: int) -> bool:
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    return whole and bool(value >= least)
