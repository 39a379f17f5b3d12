"""What estimators share: their common parameters, calls that happen whole or not at all, progress."""

from collections.abc import Iterator
from functools import update_wrapper, wraps
from types import FunctionType
from typing import Any, TypeVar

from tqdm import tqdm

from kalvi.rules.base import Batch
from kalvi.system.forks import refuse_inherited_backend

PARAMETERS = """rank : int or None, default None
        None keeps the full covariance, d² numbers. An integer keeps a precision of that rank plus a
        diagonal, d (rank + 2) numbers; 0 keeps variances only.
    prior_mean : float or array, default 0
        Prior mean of the coefficients (the intercept's is 0 unless an entry for it comes last).
    prior_scale : float, array or "auto", default 1 (LinearRegression: 1000)
        Prior standard deviation of the coefficients; the intercept's is ten times the largest, unless
        an entry for it comes last. "auto" runs a grid of scales side by side in the same pass and
        keeps the one with the most evidence, `prior_scale_`.
    prior : Gaussian or None
        The prior itself, such as another model's `posterior_`; replaces prior_mean and prior_scale.
    method : {"rvga", "klprox"}, default "rvga"
        How `fit` learns: "rvga" streams the rows once and goes on from there as `passes` says; "klprox"
        goes to the optimum of the variational bound from the prior, in the space of the coefficients or,
        where there are fewer rows, in that of the rows; its posterior then is a precision of as many
        factors as rows. prior_scale="auto" takes the scale with the highest bound. Rows of `partial_fit`
        are streamed by either.
    scheme : {"implicit", "explicit", "mirror_prox", "ekf", "qkf"}
        How a row updates the posterior; "implicit" is the optimal one.
    fit_intercept : bool, default True
    forgetting : float in (0, 1], default 1
        Factor on the precision before each row; below 1 the past fades, with a memory of about
        1/(1 − forgetting) rows.
    process_noise : float, default 0
        Variance added to every coefficient before each row (applied block by block).
    passes : "auto" or int, default "auto"
        Passes of `fit` over the rows. The first is the streaming one; an integer takes that many less
        one steps more towards the optimum of the variational bound, among Gaussians of that rank if
        there is one; "auto" goes on until the bound has converged if nothing is forgotten, the scheme
        is variational, rank is not 0 and the table (as dense numbers) is below 2 GiB, and stops after
        one pass otherwise. `n_passes_` says what was done.
    block_size : "auto" or int
        Rows absorbed at once. With a full covariance it does not change the result. With a rank, the
        precision is projected once a block: "auto" begins with blocks of 8 rows and lets them grow
        with the stream. However `partial_fit` is given the rows, the blocks are the same: rows that do
        not fill one wait for the next call, and count in every result meanwhile.
    dtype : {"float64", "float32"}
        float64 needs no global JAX setting.
    random_state : int, RandomState or None
        For `sample_posterior`.
    verbose : bool, default False
        Show a progress bar."""

Class = TypeVar("Class", bound=type)


def documented(cls: Class, parameters: str = PARAMETERS) -> Class:
    """Write the common parameters where the docstring says PARAMETERS."""
    heading = "Parameters\n    ----------\n    "
    cls.__doc__ = (cls.__doc__ or "").replace("PARAMETERS", heading + parameters)
    if "__init__" not in vars(cls):  # errors about parameters name the class that the user wrote
        old: Any = cls.__init__
        code = (old.__code__, old.__globals__, old.__name__, old.__defaults__, old.__closure__)
        new: Any = update_wrapper(FunctionType(*code), old)
        new.__kwdefaults__, new.__qualname__ = old.__kwdefaults__, f"{cls.__name__}.__init__"
        del new.__wrapped__
        vars(new).update(vars(old))
        cls.__init__ = new
    return cls


def all_or_nothing(method):
    """A call that learns, and leaves the estimator as it was if it fails or is interrupted."""

    @wraps(method)
    def attempt(self, *args, **kwargs):
        refuse_inherited_backend()
        before = dict(self.__dict__)
        try:
            return method(self, *args, **kwargs)
        except BaseException:
            self.__dict__.clear()
            self.__dict__.update(before)
            raise

    return attempt


def counted(batches: Iterator[Batch], bar: tqdm, n: int) -> Iterator[Batch]:
    """The batches, a progress bar told of each."""
    for batch in batches:
        yield batch
        bar.update(min(len(batch.y), n - bar.n))


def refuse_lazy(**tables: Any) -> None:
    """Refuse tables whose rows have not been computed yet, such as a polars LazyFrame."""
    for name, table in tables.items():
        if callable(getattr(table, "collect", None)) and not hasattr(table, "__array__"):
            raise TypeError(
                f"{name} is a {type(table).__name__}, whose rows are not computed yet; give "
                f"{name}.collect()."
            )
