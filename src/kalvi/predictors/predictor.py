"""The interface of a predictor f(θ, x): its values, and their derivatives in θ.

    f(θ + δ, x) ≈ mean + J δ + e,      e ~ N(0, extra) for each row, independent of θ.

For a linear model this is exact. Most models have no e (those with inducing points do). For each row f is a
number if there is one output, and otherwise a vector.
"""

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, NamedTuple

import equinox as eqx
from jaxtyping import Float

from kalvi.gaussians import Dense, Gaussian
from kalvi.numerics.namespaces import AnyArray
from kalvi.numerics.rows import Curvature, JacobianRows, PerObservation, TransformedRows
from kalvi.numerics.sparse_rows import SparseRows

Parameters = Float[AnyArray, " d"]
if TYPE_CHECKING:
    Inputs = Any
else:
    Inputs = Float[AnyArray, "n ..."] | SparseRows


class Linearised(NamedTuple):
    """The predictors of some inputs around one θ."""

    mean: PerObservation
    rows: JacobianRows
    extra: Float[AnyArray, " n"] | None = None  # the variance of e; for one output only


class Predictor(eqx.Module):
    """A function f(θ, x) that gives `outputs` numbers for a row of x."""

    if TYPE_CHECKING:

        @property
        def outputs(self) -> int:
            """The number of values for a row of x."""
            ...
    else:
        outputs: eqx.AbstractVar[int]

    @property
    @abstractmethod
    def linear(self) -> bool:
        """Whether f is linear in θ, so that its rows are the same at any θ."""

    @abstractmethod
    def __call__(self, theta: Parameters, x: Float[AnyArray, "..."]) -> Float[AnyArray, "*c"]:
        """f of one row x: a number, or a vector if there are several outputs."""

    @abstractmethod
    def values(self, theta: Parameters, x: Inputs) -> PerObservation:
        """f of each row of x."""

    @abstractmethod
    def linearise(self, theta: Parameters, x: Inputs) -> Linearised:
        """f at θ, and its derivatives."""

    @abstractmethod
    def whitened(self, prior: Dense, x: Inputs) -> tuple["Predictor", Inputs]:
        """The predictor as a function of u, θ = μ₀ + R u, for a prior N(μ₀, R Rᵀ), and the inputs it
        takes."""


class Whitened(Predictor):
    """A predictor as a function of coordinates u, θ = μ₀ + R u."""

    predictor: Predictor
    prior: Dense

    @property
    def outputs(self) -> int:
        return self.predictor.outputs

    @property
    def linear(self) -> bool:
        return self.predictor.linear

    def __call__(self, theta: Parameters, x: Float[AnyArray, "..."]) -> Float[AnyArray, "*c"]:
        return self.predictor(self._theta(theta), x)

    def values(self, theta: Parameters, x: Inputs) -> PerObservation:
        return self.predictor.values(self._theta(theta), x)

    def linearise(self, theta: Parameters, x: Inputs) -> Linearised:
        found = self.predictor.linearise(self._theta(theta), x)
        return found._replace(rows=TransformedRows(found.rows, self.prior.root))

    def whitened(self, prior: Dense, x: Inputs) -> tuple[Predictor, Inputs]:
        return Whitened(self, prior), x

    def _theta(self, u: Parameters) -> Parameters:
        return self.prior.mean + self.prior.root @ u


def predictor_moments(
    q: Gaussian, predictor: Predictor, x: Inputs
) -> tuple[PerObservation, Curvature]:
    """Mean and (co)variance of the predictors of each row of x, linearised at the mean of q."""
    return moments_of(q, predictor.linearise(q.mean, x))


def moments_of(q: Gaussian, linearised: Linearised) -> tuple[PerObservation, Curvature]:
    """Mean and (co)variance of predictors that have been linearised at the mean of q."""
    mean, rows, extra = linearised
    cov = q.predictor_covariances(rows)
    return mean, cov if extra is None else cov + extra
