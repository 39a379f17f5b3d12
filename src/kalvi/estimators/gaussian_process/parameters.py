"""The parameters of the Gaussian process estimators: what they mean, and which values they may have."""

from typing import Any, NamedTuple

import numpy as np

from kalvi.estimators.constraints import (
    DTYPE,
    FLAG,
    Constraint,
    check_parameters,
    integer,
    number,
    one_of,
    optional,
)

PARAMETERS = """kernel : kernel or None, default None
        A kernel of `kalvi.kernels`, a sum or product of them, your own `kernels.Function`, or any kernel of
        scikit-learn (not with sparse=True). None is a variance times an RBF, both learned from starts that
        suit the scales of y and X.
    mean : "constant", number or callable (default "constant"; GaussianProcessClassifier: 0)
        The prior mean of the latent function: a constant that is learned with the other hyperparameters,
        starting from the mean of the data; a fixed number; or a function of X.
    optimizer : {"lbfgs", "grid"}, callable or None, default "lbfgs"
        The search for the hyperparameters of kernel, likelihood and mean with the highest variational
        bound: by L-BFGS with its exact gradient ("fmin_l_bfgs_b" is the same), among the combinations of
        `grid`, or by a function optimizer(objective, start, bounds) that minimises an objective returning
        value and gradient. None keeps them as they are given.
    grid : dict or None
        For optimizer="grid": values of some hyperparameters by name, such as {"RBF.length_scale": [0.5, 1,
        2]}; the error about a wrong name lists all names.
    n_restarts_optimizer : int, default 0
        Further searches, from starts drawn within a factor 1e5 of the first one.
    sparse : bool, default False
        False gives every row its own latent value: N² numbers, N³ operations. True uses `n_inducing` points
        for all rows: N · n_inducing numbers, N · n_inducing² operations, and a lower bound.
    n_inducing : int, default 256
        The most inducing points of the sparse regime. They are chosen among four times as many random rows,
        each as the row whose value is most uncertain given the earlier points.
    batch_size : int or None, default None
        For the sparse regime: None uses all rows at every step. With a number, the hyperparameters are
        learned from a sample of the rows, and the posterior by natural-gradient steps from minibatches of
        this size, in memory that does not grow with the rows.
    max_passes : int, default 500
        The most steps towards the optimum of the bound for one set of hyperparameters.
    dtype : {"float64", "float32"}
    random_state : int, RandomState or None
        The seed of restarts, inducing points and minibatches.
    verbose : bool, default False
        Show a progress bar."""

ATTRIBUTES = """kernel_ : the kernel as fitted, or a list of them, one a class
    likelihood_, mean_ : the likelihood and the constant of the mean as fitted, or lists of them
    log_marginal_likelihood_ : float
        The variational bound on log p(y) (also called `elbo_`), summed over the problems of the classes.
    regime_ : "exact" or "sparse"
        Whether every row has its own latent value, or all use inducing points.
    inducing_ : array, or a list of them; the inducing points of the sparse regime
    n_evaluations_ : int
        The number of evaluations of the bound in the search for hyperparameters.
    elbo_gap_ : float
        The squared natural-gradient norm at the end of the ascent of the bound, in nats."""


class ProcessSettings(NamedTuple):
    """The parameters of an estimator that say how a latent function is fitted."""

    kernel: Any
    mean: Any
    optimizer: Any
    grid: dict[str, Any] | None
    n_restarts_optimizer: int
    sparse: bool
    n_inducing: int
    batch_size: int | None
    max_passes: int
    dtype: Any
    verbose: bool


_OPTIMIZERS = one_of(("lbfgs", "fmin_l_bfgs_b", "grid", None))
_MEANS = one_of(("constant",))
_FINITE = number("a number", lambda value: bool(np.isfinite(value)))

CONSTRAINTS: dict[str, Constraint] = {
    "optimizer": Constraint(
        "'lbfgs', 'grid', None or a callable",
        lambda value: callable(value) or _OPTIMIZERS.allows(value),
    ),
    "dtype": DTYPE,
    "mean": Constraint(
        "'constant', a number or a callable",
        lambda value: callable(value) or _MEANS.allows(value) or _FINITE.allows(value),
    ),
    "n_restarts_optimizer": integer(0),
    "n_inducing": integer(1),
    "max_passes": integer(1),
    "batch_size": optional(integer(1)),
    "sparse": FLAG,
}
"""The constraints on the parameters of both estimators."""


def check_settings(given: dict[str, Any], constraints: dict[str, Constraint]) -> None:
    """Refuse parameters that are invalid, alone or together."""
    check_parameters(given, constraints)
    if given["grid"] is not None and given["optimizer"] != "grid":
        raise ValueError(f"grid needs optimizer='grid'; got optimizer={given['optimizer']!r}.")
    if given["batch_size"] is not None and not given["sparse"]:
        raise ValueError("batch_size needs sparse=True: an exact fit visits all rows at once.")
