"""The parameters of a linear estimator in the form that a fit uses: priors, blocks and the rule."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import jax
import numpy as np

from kalvi.estimators.constraints import (
    DTYPE,
    Constraint,
    auto,
    integer,
    number,
    one_of,
)
from kalvi.gaussians import Dense, Diagonal, Gaussian, LowRankPrecision, Updatable
from kalvi.numerics import sharding
from kalvi.numerics.namespaces import on_host
from kalvi.rules.drifts import Drift, RandomWalk, as_drift
from kalvi.rules.schemes import EKF, QKF, Explicit, Implicit, MirrorProx, Scheme

PARAMETERS = """rank : int or None, default None
        None keeps the full covariance, d² numbers. An integer keeps a precision of that rank plus a
        diagonal, d (rank + 2) numbers; 0 keeps variances only.
    prior_mean : float or array, default 0
        Prior mean of the coefficients (the intercept's is 0 unless an entry for it comes last).
    prior_scale : float, array, "auto" or None, default None
        Prior standard deviation of the coefficients; the intercept's is ten times the largest, unless
        an entry for it comes last. "auto" finds it by the evidence, `prior_scale_`: in `fit`, of a grid
        of scales that stream side by side; in a stream of `partial_fit`, on the way. None is 1 in `fit`
        (LinearRegression: 1000), and in a stream where neither a prior nor a drift is given, scale and
        drift are both learned: prior_scale="auto", drift="auto".
    prior : Gaussian or None
        The prior itself, such as the `posterior_` of another model; it replaces prior_mean and prior_scale.
    method : {"rvga", "klprox"}, default "rvga"
        How `fit` learns. "rvga" streams the rows once and continues as `passes` says. "klprox" goes from
        the prior to the optimum of the variational bound, in the space of the coefficients or, if there are
        fewer rows, in that of the rows; its posterior then has a precision with as many factors as rows.
        prior_scale="auto" takes the scale with the highest bound. Both stream the rows of `partial_fit`.
    scheme : {"implicit", "explicit", "mirror_prox", "ekf", "qkf"}
        How a row updates the posterior; "implicit" is the optimal one.
    fit_intercept : bool, default True
    forgetting : float in (0, 1], default 1
        The same as drift=kalvi.drifts.Geometric(forgetting).
    process_noise : float, default 0
        The same as drift=kalvi.drifts.RandomWalk(process_noise).
    drift : Drift, float in (0, 1], "auto" or None
        How the coefficients change from row to row (`kalvi.drifts`). A number is the share of the past that
        a row keeps; the memory is then about 1/(1 − drift) rows. The prior replaces what fades, so no
        coefficient becomes less certain than before the first row. None and 1 mean no drift. With
        `partial_fit(..., time=)` it is the share kept over one unit of time, or over a day if times are
        dates. "auto" learns it in a stream of `partial_fit` (`drift_`): a few copies with different
        settings learn the same rows and are averaged by their evidence. `fit` then has no drift.
    passes : "auto" or int, default "auto"
        The number of passes of `fit` over the rows. The first is that of a stream; each further pass is a
        step towards the optimum of the variational bound, among Gaussians of the rank if there is one.
        "auto" continues until the bound has converged if there is no drift, the scheme is variational, rank
        is not 0 and the table (as dense numbers) is below 2 GiB; otherwise it stops after one pass.
        `n_passes_` is the number that was made.
    block_size : "auto" or int
        The number of rows that are absorbed at once. With a full covariance it matters only if coefficients
        drift, because a block drifts as a whole. With a rank, the precision is projected once a block:
        "auto" begins with blocks of 8 rows, which grow with the stream. The blocks do not depend on the
        calls of `partial_fit`: rows that do not fill a block wait for the next call, and count in every
        result in the meantime.
    dtype : {"float64", "float32"}
        float64 needs no global JAX setting.
    random_state : int, RandomState or None
        The seed of `sample_posterior`.
    verbose : bool, default False
        Show a progress bar."""

ATTRIBUTES = """log_evidence_ : float
        Prequential log evidence Σ log p(yₜ | y₁ … yₜ₋₁) of the streaming pass; `elbo_` with "klprox".
    elbo_ : float
        The variational bound on log p(y), after `fit` with more than one pass."""

SCHEMES: dict[str, Scheme] = {
    "implicit": Implicit(),
    "explicit": Explicit(),
    "mirror_prox": MirrorProx(),
    "ekf": EKF(),
    "qkf": QKF(),
}
VARIATIONAL = ("implicit", "explicit", "mirror_prox")
"""The schemes whose common fixed point is the variational optimum, which further passes reach."""
INTERCEPT_WIDTH = 10.0
"""The prior of the intercept is wider by this factor than that of a coefficient."""


SCALE = Constraint(
    "positive and finite, or 'auto'",
    lambda value: (
        value is None or value == "auto"
        if value is None or isinstance(value, str)
        else np.all(np.isfinite(np.asarray(value, float)) & (np.asarray(value, float) > 0))
    ),
    "It is a standard deviation.",
)
SHARE = number("a number in (0, 1]", lambda value: 0 < value <= 1)
CONSTRAINTS = {
    "scheme": one_of(SCHEMES),
    "prior_scale": SCALE,
    "forgetting": SHARE,
    "process_noise": number("a non-negative number", lambda value: value >= 0),
    "drift": Constraint(
        "None, 'auto', a drift of kalvi.drifts or a number in (0, 1]",
        lambda value: value in (None, "auto") or isinstance(value, Drift) or SHARE.allows(value),
    ),
    "dtype": DTYPE,
    "passes": auto(integer(1)),
    "block_size": auto(integer(1)),
    "rank": Constraint(
        "None (full covariance), 0 (diagonal) or a positive integer",
        lambda value: value is None or integer(0).allows(value),
    ),
    "method": Constraint("'rvga' or 'klprox'", one_of(("rvga", "klprox")).allows),
    "prior_mean": Constraint(
        "a number or an array of them", lambda value: np.asarray(value, float).size
    ),
}
"""The constraint on each parameter, for any values of the others."""


@dataclass(frozen=True, eq=False)
class LinearSettings:
    """The parameters of a linear estimator at the time of a fit."""

    rank: int | None
    prior_mean: Any
    prior_scale: Any
    prior: Any  # a Gaussian or None
    method: str
    scheme: str
    fit_intercept: Any
    forgetting: Any
    process_noise: Any
    drift: Any
    passes: Any
    block_size: Any
    dtype: Any
    verbose: Any
    default_scale: float  # where prior_scale is None and not learned

    def resolved(self, streaming: bool) -> "LinearSettings":
        """The settings with what is not given: learned in a stream, fixed for a table."""
        still = self.drift is None and self.forgetting == 1 and self.process_noise == 0
        if streaming and self.prior_scale is None and self.prior is None and still:
            return replace(self, prior_scale="auto", drift="auto")
        drift = None if self.drift == "auto" and not streaming else self.drift
        scale = self.default_scale if self.prior_scale is None else self.prior_scale
        return replace(self, prior_scale=scale, drift=drift)

    @property
    def layout(self) -> dict[str, Any]:
        """The layout of rows as numbers: with a column of ones or without, and in which precision."""
        return {"intercept": bool(self.fit_intercept), "dtype": self.dtype}

    @property
    def seeks_scale(self) -> bool:
        """Whether the prior scale is chosen by the evidence."""
        return isinstance(self.prior_scale, str) and self.prior is None

    @property
    def seeks_drift(self) -> bool:
        """Whether the drift is learned."""
        return isinstance(self.drift, str)

    @property
    def fixed_scale(self) -> Any:
        """The prior scale where it is not sought."""
        free = self.prior_scale is None or isinstance(self.prior_scale, str)
        return self.default_scale if free else self.prior_scale

    @property
    def has_optimum(self) -> bool:
        """Whether the stream approximates the optimum of a bound, which further passes can reach."""
        return self.rank != 0 and self.scheme in VARIATIONAL and not self.drifts

    @cached_property
    def drifts(self) -> tuple[Drift, ...]:
        """The drifts of the coefficients from row to row."""
        walk = RandomWalk(self.process_noise) if self.process_noise else None
        own = None if self.seeks_drift else as_drift(self.drift)
        given = (walk, as_drift(self.forgetting), own)
        return tuple(drift for drift in given if drift is not None)

    def check_combinations(self, conjugate: bool, noise_scale: Any) -> None:
        """Refuse parameters that contradict each other.

        `conjugate` says whether one pass with a full covariance reaches the optimum.
        """
        schemes = ", ".join(VARIATIONAL)
        exact = conjugate and self.rank is None
        if self.passes not in ("auto", 1) and not exact and not self.has_optimum:
            raise ValueError(
                f"passes={self.passes} needs forgetting=1, process_noise=0, drift=None, a rank other "
                f"than 0 and one of the schemes {schemes}; use passes='auto' or 1."
            )
        if self.method == "klprox" and not (self.has_optimum and self.rank is None):
            raise ValueError(
                "method='klprox' needs rank=None, forgetting=1, process_noise=0, drift=None and one of "
                f"the schemes {schemes}; use method='rvga' for others."
            )
        if self.seeks_drift and self.drifts:
            raise ValueError(
                "drift='auto' learns how coefficients change; leave forgetting=1 and process_noise=0, or "
                "give the drift."
            )
        if self.prior is not None and not isinstance(self.prior, Gaussian):
            raise TypeError(
                "prior must be a Gaussian, such as another model's posterior_; "
                f"got {type(self.prior).__name__}."
            )
        if self.prior is not None and noise_scale == "auto":
            raise ValueError(
                "prior= is in the units of y and needs noise_scale to be a number, "
                "such as the other model's noise_scale_; got noise_scale='auto'."
            )

    @property
    def pass_limit(self) -> int | None:
        """The most passes over a table; None for as many as the optimum takes."""
        return None if self.passes == "auto" else int(self.passes)

    def make_prior(
        self, scale: Any, n_features: int, outputs: int, *, variances: bool = False
    ) -> Updatable:
        """The prior of the coefficients, with the intercept last, for one value of the prior scale.

        All predictors of a row have the same prior. With `variances` it keeps only variances, unless the
        user gave the prior itself.
        """
        dim = n_features + bool(self.fit_intercept)
        if self.rank is not None and self.rank > dim * outputs:
            raise ValueError(
                f"rank={self.rank} exceeds the {dim * outputs} parameters; "
                f"choose rank ≤ {dim * outputs}, or None for a full covariance."
            )
        if self.prior is not None:
            return self._given_prior(on_host(self.prior), dim * outputs)
        mean = _per_feature("prior_mean", self.prior_mean, n_features, dim, 0.0)
        intercept = INTERCEPT_WIDTH * float(np.max(scale))
        std = _per_feature("prior_scale", scale, n_features, dim, intercept)
        mean, std = (np.tile(a, outputs).astype(self.dtype) for a in (mean, std))
        if variances:
            return Diagonal.from_parts(sharding.rows(mean), sharding.rows(std**2))
        if self.rank is None:
            return Dense.from_root(mean, np.diag(std))
        sharding.check_splits(len(mean), "this model")
        if self.rank == 0:
            return Diagonal.from_parts(sharding.rows(mean), sharding.rows(std**2))
        factor = sharding.zeros((len(mean), self.rank), mean.dtype)
        return LowRankPrecision.from_parts(sharding.rows(mean), factor, sharding.rows(std**-2))

    def _given_prior(self, prior: Any, dim: int) -> Updatable:
        if prior.dim != dim:
            raise ValueError(
                f"prior has {prior.dim} parameters but this model has {dim} (one a feature, and the "
                "intercept last if there is one; for each class if there are several)."
            )
        if self.rank is None:
            dense = prior.to_dense()
            return Dense.from_root(dense.mean.astype(self.dtype), dense.root.astype(self.dtype))
        ranked = prior if prior.rank == self.rank else prior.with_rank(self.rank)
        return sharding.spread(jax.tree.map(lambda leaf: leaf.astype(self.dtype), ranked))


def _per_feature(name: str, value: Any, n_features: int, dim: int, intercept: float) -> np.ndarray:
    """One number for each parameter, from a scalar or an array with or without an entry for the
    intercept."""
    value = np.asarray(value, float)
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
