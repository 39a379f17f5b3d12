"""The parameters of the neural estimators: their meaning and their valid values."""

from typing import Any, NamedTuple

import numpy as np

from kalvi.estimators.constraints import (
    POSITIVE,
    Constraint,
    auto,
    integer,
    is_integer,
    one_of,
)
from kalvi.estimators.neural.methods import METHODS
from kalvi.predictors.networks import ACTIVATIONS

PARAMETERS = """hidden_sizes : tuple of int, default (50,)
        Units of the hidden layers; () is a linear model.
    activation : {"tanh", "relu", "gelu", "silu", "softplus", "sin"}, default "tanh"
    method : {"vifa", "swag", "multiswag", "fa", "multifa", "lrvga"}, default "vifa"
        "vifa": training, then variational inference of the covariance, in rounds that also learn the prior
        precision of each layer and the noise. "swag": the Gaussian of the iterates of training at a
        constant rate. "multiswag": a mixture of several such Gaussians. "fa" and "multifa": the same with a
        factor analysis of all iterates in place of the last deviations. "lrvga": one pass over the rows,
        which `partial_fit` can continue.
    rank : "auto", int or None, default "auto"
        None keeps the full covariance, d² numbers; an integer keeps d (rank + 2) numbers. "auto" is None up
        to 1500 parameters, 20 beyond, and 20 for SWAG.
    epochs : "auto" or int, default "auto"
        Passes of the training; "auto" makes about 8000 steps, or 16000 with 5000 rows and more. Not used
        by "lrvga".
    batch_size : "auto" or int, default "auto"
        Rows of a training step; "auto" is 128, or 512 with 5000 rows and more.
    learning_rate : float, default 0.01
        The learning rate of Adam, which falls to a hundredth along a cosine.
    prior_precision : "auto" or float, default "auto"
        The prior precision of the parameters, for standardised data. "auto" learns one for each weight
        matrix and bias vector ("vifa"), or takes the number of inputs of each layer ("lrvga") or 1 (SWAG).
    n_members : int, default 5
        The number of training runs of "multiswag" and "multifa".
    predictive : {"auto", "linearised", "ensemble"}, default "auto"
        How predictions average over the posterior: by the network linearised at the mean, or by draws of
        the parameters; "auto" is the first, except for SWAG.
    n_draws : int, default 30
        The number of draws of an ensemble.
    dtype : {"auto", "float64", "float32"}, default "auto"
        "auto" is float64 for a full covariance and float32 otherwise.
    random_state : int, RandomState or None
    verbose : bool, default False
        Show a progress bar."""

FULL_COVARIANCE, LOW_RANK = 1500, 20
"""rank="auto" keeps the full covariance of at most so many parameters, and this rank beyond."""
SMALL_TABLE, SMALL_BATCH, LARGE_BATCH = 5000, 128, 512
"""batch_size="auto" is the second of these with fewer rows than the first, and the third with more."""
SMALL_STEPS, LARGE_STEPS, FEWEST, MOST = 8000, 16000, 20, 4000
"""epochs="auto" makes about the first or second number of steps, in at least and at most so many epochs."""

_LARGE_RANK = Constraint(
    "'auto', None or an integer of at least 2",
    lambda value: one_of(("auto", None)).allows(value) or (is_integer(value) and value >= 2),
)
_SIZES = Constraint(
    "a tuple of positive integers",
    lambda value: isinstance(value, tuple | list) and all(map(integer(1).allows, value)),
)
_DTYPES = Constraint(
    "'auto', 'float64' or 'float32'",
    one_of(("auto", "float64", "float32", np.float64, np.float32)).allows,
)

CONSTRAINTS: dict[str, Constraint] = {
    "activation": one_of(ACTIVATIONS),
    "method": one_of(METHODS),
    "predictive": one_of(("auto", "linearised", "ensemble")),
    "dtype": _DTYPES,
    "hidden_sizes": _SIZES,
    "epochs": auto(integer(1)),
    "batch_size": auto(integer(1)),
    "n_members": integer(1),
    "n_draws": integer(1),
    "rank": _LARGE_RANK,
    "prior_precision": auto(POSITIVE),
    "learning_rate": POSITIVE,
}
"""The constraints on the parameters of both estimators."""


class Structure(NamedTuple):
    """The parameters on which a posterior depends, and which must not change between calls."""

    hidden_sizes: tuple[int, ...]
    activation: str
    method: str
    rank: Any
    dtype: Any

    @classmethod
    def of(cls, given: dict[str, Any]) -> "Structure":
        """Select these parameters from all parameters of an estimator."""
        own: dict[str, Any] = {name: given[name] for name in cls._fields}
        own["hidden_sizes"] = tuple(int(h) for h in given["hidden_sizes"])
        return cls(**own)

    def chosen_rank(self, n_parameters: int) -> int | None:
        """The rank of the posterior of so many parameters; None for a full covariance."""
        collects = METHODS[self.method].collects
        if self.rank == "auto":
            low = collects or n_parameters > FULL_COVARIANCE
            return min(LOW_RANK, n_parameters) if low else None
        if self.rank is None and collects:
            raise ValueError(
                f"method={self.method!r} needs a rank of at least 2, or 'auto'; got rank=None."
            )
        if self.rank is not None and int(self.rank) > n_parameters:
            raise ValueError(
                f"rank={self.rank} exceeds the {n_parameters} parameters; choose rank ≤ {n_parameters}, "
                "or None."
            )
        return None if self.rank is None else int(self.rank)

    def chosen_dtype(self, n_parameters: int) -> str:
        """The precision of the posterior of so many parameters."""
        if self.dtype != "auto":
            return np.dtype(self.dtype).name
        return "float64" if self.chosen_rank(n_parameters) is None else "float32"


class TrainingSettings(NamedTuple):
    """The parameters that say how rows are learned."""

    epochs: Any
    batch_size: Any
    learning_rate: float
    prior_precision: Any
    noise_scale: Any  # None for classes, which have no noise
    n_members: int
    verbose: bool

    @classmethod
    def of(cls, given: dict[str, Any]) -> "TrainingSettings":
        """Select these parameters from all parameters of an estimator."""
        own: dict[str, Any] = {name: given.get(name) for name in cls._fields}
        return cls(**own)

    @property
    def learns_noise(self) -> bool:
        """Whether the variance of the noise is learned."""
        return self.noise_scale == "auto"

    def chosen_batch(self, n: int) -> int:
        """The rows of a training step, of a table of n rows.

        A small table is padded to a power of two, so that tables of about its size compile once.
        """
        own = SMALL_BATCH if n < SMALL_TABLE else LARGE_BATCH
        size = own if self.batch_size == "auto" else int(self.batch_size)
        return min(size, 1 << max(n - 1, 1).bit_length())

    def chosen_epochs(self, n: int) -> int:
        """The passes of the training over n rows."""
        if self.epochs != "auto":
            return int(self.epochs)
        steps = SMALL_STEPS if n < SMALL_TABLE else LARGE_STEPS
        return int(np.clip(steps * min(self.chosen_batch(n) / n, 1), FEWEST, MOST))
