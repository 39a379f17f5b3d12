"""The methods of `FactorAnalysis` by name: the rule of each, its start, and how many rows it waits for."""

from collections.abc import Mapping
from numbers import Real
from typing import Any

import jax.numpy as jnp
import numpy as np

from kalvi.gaussians import LowRankCovariance
from kalvi.numerics.projections import EM
from kalvi.rules import factor_analysis as fa
from kalvi.rules.base import Batch, Rule

METHODS = ("eigen", "recursive_em", "online_em", "incremental_em", "sga", "batch_em")
WARMED = ("online_em", "incremental_em", "sga")
"""The methods that begin with a warm-up, from an orthogonal start."""
RANDOM = ("recursive_em", *WARMED)
"""The methods that need a random start."""
BLOCK_SHARE = 2
"""block_size="auto" is about this many times n_components: with as many rows as factors a weak factor
can be lost to a block's noise, with more the projections cost more."""
LARGEST_BLOCK = 256
"""block_size="auto" absorbs at most this many rows by one projection."""
FED_ROWS = 16
"""Rows are fed, and a stream is started from, a multiple of this many at a time."""

Settings = Mapping[str, Any]


def rule(given: Settings, rank: int) -> Rule:
    """The rule that the settings ask for."""
    method, warm_up = given["method"], float(given["warm_up"])
    if method == "online_em":
        return fa.OnlineEM.forgetting(warm_up)
    if method == "incremental_em":
        return fa.OnlineEM.incremental(warm_up)
    if method == "sga":
        steps = float(given["step_size"]), float(given["step_decay"]), warm_up
        return fa.SGA(*steps) if given["scaled"] else fa.SGA.plain(*steps)
    shared = {"prior_rows": float(given["prior_rows"]), "block_size": block(given, rank)}
    if method == "recursive_em":
        return fa.RecursiveFA(EM(int(given["loops"])), **shared)
    return fa.RecursiveFA(**shared)


def block(given: Settings, rank: int) -> int:
    """How many rows one projection absorbs."""
    if given["method"] in WARMED:
        return 1
    if given["block_size"] != "auto":
        return int(given["block_size"])
    if given["method"] == "recursive_em":
        return 1
    needed = int(np.ceil(np.log2(BLOCK_SHARE * rank)))
    return int(np.clip(2**needed, FED_ROWS, LARGEST_BLOCK))


def fed(given: Settings, rank: int) -> int:
    """How many rows wait for each other: whole blocks, and enough to start from."""
    size = block(given, rank)
    least = max(int(given["warm_up"]), FED_ROWS) if given["method"] in WARMED else FED_ROWS
    return size * -(-least // size)


def start(first: Batch, rank: int, key: Any, orthogonal: bool, scaled: bool) -> LowRankCovariance:
    """What the first rows make a start of."""
    variance = fa.variances(first)
    zero, one = jnp.zeros_like(variance), jnp.ones_like(variance)
    if not orthogonal:
        return fa.start(zero, variance, rank, key=key)
    if scaled:
        return fa.orthogonal_start(zero, variance, rank, key=key)
    return fa.orthogonal_start(zero, one, rank, key=key, share=1.0)


def check(given: Settings) -> None:
    """Refuse parameters that mean nothing, with what was needed."""
    if given["method"] not in list(METHODS):
        raise ValueError(f"method must be one of {', '.join(METHODS)}; got {given['method']!r}.")
    if given["n_components"] is not None:
        _check_count("n_components", given["n_components"], "None or ")
    if given["block_size"] != "auto":
        _check_count("block_size", given["block_size"], "'auto' or ")
    for name in ("loops", "max_iter", "warm_up"):
        _check_count(name, given[name], "")
    for name in ("prior_rows", "tol", "step_size", "step_decay"):
        value = given[name]
        if not isinstance(value, Real) or not 0 <= float(value) < np.inf:
            raise ValueError(f"{name} must be a non-negative number; got {value!r}.")
    if given["scaled"] not in (True, False):
        raise ValueError(f"scaled must be True or False; got {given['scaled']!r}.")
    if given["dtype"] not in ("float32", "float64", np.float32, np.float64):
        raise ValueError(f"dtype must be 'float32' or 'float64'; got {given['dtype']!r}.")


def _check_count(name: str, value: Any, otherwise: str) -> None:
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not (whole and value >= 1):
        raise ValueError(f"{name} must be {otherwise}a positive integer; got {value!r}.")
