"""What an observation model p(y | f) says of the predictors f of one observation.

Each likelihood has `outputs` predictors for an observation. Where that is 1, f, its mean and its variance
are numbers; otherwise f is a vector, its variance a covariance matrix, a curvature a matrix. For
f ~ N(mean, var) it knows

    expect          E[log p], E[∇ log p], −E[∇² log p]                  (explicit schemes, bounds)
    implicit        the site of the Gaussian closest to N(f) p(y | f)ʷ  (the R-VGA optimum)
    predict         mean and (co)variance of y                          (predictions)
    noise           E[Var y | f], the part of it that no data take away
    log_predictive  log ∫ p(y | f) N(f) df                              (prequential evidence)

and, for a given f, log_prob, the moments of y and the Fisher information. `vmap` does the rest: a rule that
is written for one likelihood serves them all.
"""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float

from kalvi.likelihoods.sites import Between, Expected, Predictors, Site
from kalvi.numerics.namespaces import Scalar, Values

Label = Float[Array, "*o"]
Moments = tuple[Values, Values]


class Support(NamedTuple):
    """Which y a likelihood can observe, in words and as a test of each entry of an array."""

    needed: str
    contains: Callable[[np.ndarray], np.ndarray]


NUMBERS = Support("numbers", lambda y: np.isfinite(y))
BINARY = Support("0 or 1 for a binary likelihood", lambda y: (y == 0) | (y == 1))
COUNTS = Support("counts, 0 or more", lambda y: y >= 0)
CLASSES = Support("classes, numbered from 0", lambda y: (y >= 0) & (y == np.floor(y)))


class Likelihood(eqx.Module):
    """p(y | f) of one observation, whose f is a number where `outputs` is 1 and otherwise a vector.

    `predict` is written for any number of observations at once, in arrays of NumPy or of JAX.
    """

    log_concave: ClassVar[bool] = False
    """Whether log p is concave in f, so that no curvature is negative."""
    closed: ClassVar[bool] = False
    """Whether `expect` has a closed form, so that `implicit` costs little."""
    noisy: ClassVar[bool] = False
    """Whether y is f with normal noise, whose variance (a number an output) is the field `variance`."""
    log_link: ClassVar[bool] = False
    """Whether the mean of y is exp(f)."""
    support: ClassVar[Support] = NUMBERS

    @property
    @abstractmethod
    def outputs(self) -> int:
        """The number of predictors of an observation."""

    @property
    @abstractmethod
    def label_shape(self) -> tuple[int, ...] | None:
        """The shape of one y: () for a number or a class, None if any will do."""

    @abstractmethod
    def log_prob(self, f: Predictors, y: Label) -> Scalar:
        """log p(y | f)."""

    @abstractmethod
    def moments(self, f: Predictors) -> Moments:
        """Mean and variance of y given f, for each output; a class counts as its indicator vector."""

    @abstractmethod
    def information(self, f: Predictors) -> Between:
        """The Fisher information of f in one y."""

    @abstractmethod
    def expect(self, y: Label, mean: Predictors, var: Between) -> Expected:
        """Expected log-probability, gradient and curvature under f ~ N(mean, var)."""

    @abstractmethod
    def implicit(
        self, y: Label, mean: Predictors, var: Between, weight: Scalar, *, thorough: bool = True
    ) -> Site:
        """The site of the Gaussian closest in KL to N(f; mean, var) p(y | f)^weight.

        A search that is not thorough is shorter, and may leave an unusual row unsolved.
        """

    @abstractmethod
    def predict(self, mean: Values, var: Values) -> Moments:
        """Mean and (co)variance of y under f ~ N(mean, var), for each observation."""

    @abstractmethod
    def noise(self, mean: Predictors, var: Between) -> Predictors:
        """E[Var y | f] of each output under f ~ N(mean, var)."""

    @abstractmethod
    def log_predictive(
        self, y: Label, mean: Predictors, var: Between, weight: Scalar | float = 1.0
    ) -> Scalar:
        """log ∫ p(y | f)^weight N(f; mean, var) df: what `weight` equal rows say together.

        Likelihoods of labels give weight · log ∫ p(y | f) N(f) df, which is that for weight 1 only.
        """

    @abstractmethod
    def bound(self, y: Label) -> tuple[Scalar, Scalar]:
        """Centre and slope there of a bound log p ≥ slope (f − centre) − ½ λ(z) (f − centre)² + const."""

    @abstractmethod
    def bound_curvature(self, z: Scalar) -> Scalar:
        """λ(z) of the bound that touches at |f − centre| = z."""


class ScalarLikelihood(Likelihood):
    """A likelihood of one predictor, whose y is a number."""

    @property
    def outputs(self) -> int:
        return 1

    @property
    def label_shape(self) -> tuple[int, ...]:
        return ()


class Unbounded(Likelihood):
    """A likelihood of any number of predictors without a quadratic lower bound."""

    def bound(self, y: Label) -> Any:
        raise TypeError(
            f"QKF needs a likelihood with a quadratic bound and {type(self).__name__} has none; "
            "use Implicit()."
        )

    def bound_curvature(self, z: Scalar) -> Any:
        return self.bound(z)


SEVERAL = "use LogisticRegression, a network, or one class against the rest."
"""What to do with several predictors where there is one latent function."""


def need_one_output(likelihood: Likelihood, what: str, remedy: str = SEVERAL) -> None:
    """Refuse a likelihood of several predictors where there is one latent function or number."""
    if likelihood.outputs > 1:
        raise TypeError(
            f"{what} takes likelihoods of one predictor and {type(likelihood).__name__} has "
            f"{likelihood.outputs}; {remedy}"
        )


def need_labels(likelihood: Likelihood, y: np.ndarray) -> None:
    """Refuse labels that the likelihood cannot observe, by the first row that has one."""
    support = likelihood.support
    bad = np.flatnonzero(~support.contains(y))
    if bad.size:
        raise ValueError(f"y must hold {support.needed}; row {bad[0]} has {y[bad[0]]:g}.")
