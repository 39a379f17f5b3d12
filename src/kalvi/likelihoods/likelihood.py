"""The interface of a likelihood p(y | f), where f are the predictors of one observation.

An observation has `outputs` predictors. If there is one, then f, its mean and its variance are numbers;
otherwise f is a vector, and its variance and a curvature are matrices. For f ~ N(mean, var) a likelihood
has

    expect          E[log p], E[∇ log p], −E[∇² log p]                  (explicit schemes, bounds)
    implicit        the site of the Gaussian closest to N(f) p(y | f)ʷ  (the R-VGA optimum)
    predict         mean and (co)variance of y                          (predictions)
    noise           E[Var y | f], the part of the variance that no data remove
    log_predictive  log ∫ p(y | f) N(f) df                              (prequential evidence)

and, for a given f, log_prob, the moments of y and the Fisher information. These methods are for one
observation, and rules `vmap` them; so a rule works with every likelihood.
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
    """The values y that a likelihood can observe, in words and as a test of each entry of an array."""

    needed: str
    contains: Callable[[np.ndarray], np.ndarray]


NUMBERS = Support("numbers", lambda y: np.isfinite(y))
BINARY = Support("0 or 1 for a binary likelihood", lambda y: (y == 0) | (y == 1))
COUNTS = Support("counts, 0 or more", lambda y: y >= 0)
POSITIVE = Support("positive numbers", lambda y: (y > 0) & np.isfinite(y))
CLASSES = Support("classes, numbered from 0", lambda y: (y >= 0) & (y == np.floor(y)))


class Likelihood(eqx.Module):
    """p(y | f) of one observation; f is a number if `outputs` is 1 and otherwise a vector.

    `predict` is written for any number of observations at once, in arrays of NumPy or of JAX.
    """

    log_concave: ClassVar[bool] = False
    """Whether log p is concave in f, so that no curvature is negative."""
    closed: ClassVar[bool] = False
    """Whether `expect` has a closed form, so that `implicit` is cheap."""
    noisy: ClassVar[bool] = False
    """Whether y is f plus normal noise, whose variance (one number an output) is the field `variance`."""
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
        """The shape of one y: () for a number or a class, None for any shape."""

    @abstractmethod
    def log_prob(self, f: Predictors, y: Label) -> Scalar:
        """log p(y | f)."""

    @abstractmethod
    def moments(self, f: Predictors) -> Moments:
        """Mean and variance of y given f, for each output; a class is represented by its indicator
        vector."""

    @abstractmethod
    def information(self, f: Predictors) -> Between:
        """The Fisher information about f in one y."""

    @abstractmethod
    def expect(self, y: Label, mean: Predictors, var: Between) -> Expected:
        """Expected log-probability, gradient and curvature under f ~ N(mean, var)."""

    @abstractmethod
    def implicit(
        self, y: Label, mean: Predictors, var: Between, weight: Scalar, *, thorough: bool = True
    ) -> Site:
        """The site of the Gaussian closest in KL to N(f; mean, var) p(y | f)^weight.

        If not `thorough`, the search is shorter and may leave an unusual row unsolved.
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
        """log ∫ p(y | f)^weight N(f; mean, var) df: the log evidence of `weight` equal rows together.

        Likelihoods of labels give weight · log ∫ p(y | f) N(f) df, which is the same only for weight 1.
        """

    @abstractmethod
    def bound(self, y: Label) -> tuple[Scalar, Scalar]:
        """The centre and the slope of a bound log p ≥ slope (f − centre) − ½ λ(z) (f − centre)² + const."""

    @abstractmethod
    def bound_curvature(self, z: Scalar) -> Scalar:
        """λ(z) of the bound that touches at |f − centre| = z."""


class ScalarLikelihood(Likelihood):
    """A likelihood of one predictor, for numbers y."""

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
"""The remedy for several predictors where there is only one latent function."""


def need_one_output(likelihood: Likelihood, what: str, remedy: str = SEVERAL) -> None:
    """Refuse a likelihood of several predictors where only one latent function or number is possible."""
    if likelihood.outputs > 1:
        raise TypeError(
            f"{what} takes likelihoods of one predictor and {type(likelihood).__name__} has "
            f"{likelihood.outputs}; {remedy}"
        )


def need_labels(likelihood: Likelihood, y: np.ndarray) -> None:
    """Refuse labels that the likelihood cannot observe; the error names the first such row."""
    support = likelihood.support
    bad = np.flatnonzero(~support.contains(y))
    if bad.size:
        raise ValueError(f"y must hold {support.needed}; row {bad[0]} has {y[bad[0]]:g}.")
