"""The methods of `FactorAnalysis` by name: the rule of each, its start, and its number of rows in a
block."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from kalvi.gaussians import LowRankCovariance
from kalvi.numerics.projections import EM
from kalvi.rules import factor_analysis as fa
from kalvi.rules.rule import Batch, Rule

BLOCK_SHARE = 2
"""block_size="auto" is about this many times n_components: with as many rows as factors a weak factor can
be lost in the noise of a block, and with more rows projections cost more."""
LARGEST_BLOCK = 256
"""block_size="auto" absorbs at most this many rows by one projection."""
FED_ROWS = 16
"""Rows are fed, and streams are started, in multiples of this number."""


class FactorSettings(NamedTuple):
    """The parameters of an estimator that the state of its stream depends on."""

    n_components: int
    method: str
    loops: int
    prior_rows: float
    block_size: int | str
    warm_up: int
    scaled: bool
    step_size: float
    step_decay: float
    dtype: str

    def rule(self) -> Rule:
        """The rule that learns the rows."""
        return METHODS[self.method].rule(self)

    def rows_per_block(self) -> int:
        """The number of rows that are learned together: whole projections, and enough for a start."""
        absorbed = self.rows_per_projection()
        least = max(int(self.warm_up), FED_ROWS) if METHODS[self.method].warms_up else FED_ROWS
        return absorbed * -(-least // absorbed)

    def rows_per_projection(self) -> int:
        """The number of rows that one projection absorbs."""
        method = METHODS[self.method]
        if method.warms_up or (method.row_by_row and self.block_size == "auto"):
            return 1
        if self.block_size != "auto":
            return int(self.block_size)
        needed = int(np.ceil(np.log2(BLOCK_SHARE * self.n_components)))
        return int(np.clip(2**needed, FED_ROWS, LARGEST_BLOCK))


class FactorMethod(NamedTuple):
    """The rule of a method, and the properties of its start and its passes."""

    rule: Callable[[FactorSettings], Rule]
    row_by_row: bool = False  # from a random start
    warms_up: bool = False  # from an orthogonal start, with warm-up rows
    revisits: bool = False  # continues from one pass to the maximum likelihood


def make_start(first: Batch, rank: int, key: Any, orthogonal: bool, scaled: bool):
    """The distribution that a stream starts from, in the units of its first rows."""
    variance = fa.feature_variances(first)
    zero, one = jnp.zeros_like(variance), jnp.ones_like(variance)
    if not orthogonal:
        return fa.start(zero, variance, rank, key=key)
    if scaled:
        return fa.orthogonal_start(zero, variance, rank, key=key)
    return fa.orthogonal_start(zero, one, rank, key=key, share=1.0)


def climb(batch: Batch, start: LowRankCovariance, max_passes, tolerance) -> fa.FactorOptimum:
    """The maximum likelihood of all rows, from a start."""
    return fa.batch_em(batch, start, max_passes=max_passes, tolerance=tolerance)


def _eigen(given: FactorSettings) -> Rule:
    return fa.RecursiveFA(
        prior_rows=float(given.prior_rows), block_size=given.rows_per_projection()
    )


def _recursive_em(given: FactorSettings) -> Rule:
    rows = {"prior_rows": float(given.prior_rows), "block_size": given.rows_per_projection()}
    return fa.RecursiveFA(EM(int(given.loops)), **rows)


def _sga(given: FactorSettings) -> Rule:
    steps = float(given.step_size), float(given.step_decay), float(given.warm_up)
    return fa.SGA(*steps) if given.scaled else fa.SGA.plain(*steps)


METHODS = {
    "eigen": FactorMethod(_eigen),
    "recursive_em": FactorMethod(_recursive_em, row_by_row=True),
    "online_em": FactorMethod(
        lambda given: fa.OnlineEM.forgetting(float(given.warm_up)), row_by_row=True, warms_up=True
    ),
    "incremental_em": FactorMethod(
        lambda given: fa.OnlineEM.incremental(float(given.warm_up)), row_by_row=True, warms_up=True
    ),
    "sga": FactorMethod(_sga, row_by_row=True, warms_up=True),
    "batch_em": FactorMethod(_eigen, revisits=True),
}
