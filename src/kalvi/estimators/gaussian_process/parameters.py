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

ATTRIBUTES = """kernel_ : the kernel as fitted, or a list of them, one a class
    likelihood_, mean_ : the likelihood and the constant of the mean as fitted, or lists of them
    log_marginal_likelihood_ : float
        The variational bound on log p(y) (`elbo_` is another name for it), summed over the classes'
        problems.
    regime_ : "exact" or "sparse"
        Whether every row has a latent of its own, or all go through inducing points.
    inducing_ : array, or a list of them; the inducing points of the sparse regime
    n_evaluations_ : int
        How often the bound was asked for in the search of hyperparameters.
    elbo_gap_ : float
        The squared natural-gradient norm where the ascent of the bound ended, in nats."""


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
"""What the parameters that both estimators have may be."""


def check_settings(given: dict[str, Any], constraints: dict[str, Constraint]) -> None:
    """Refuse parameters that mean nothing, alone or together."""
    check_parameters(given, constraints)
    if given["grid"] is not None and given["optimizer"] != "grid":
        raise ValueError(f"grid needs optimizer='grid'; got optimizer={given['optimizer']!r}.")
    if given["batch_size"] is not None and not given["sparse"]:
        raise ValueError("batch_size needs sparse=True: an exact fit visits all rows at once.")
