"""A model of data: a predictor f(θ, x) and a likelihood p(y | f), for whoever learns θ from batches."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from kalvi.likelihoods import Likelihood, Normal
from kalvi.vectors import MultiNormal, VectorExpected, VectorLikelihood, VectorSite

Scalar = Float[Array, ""]
Vector = Float[Array, " c"]
Matrix = Float[Array, "c c"]


class OneOutput(VectorLikelihood):
    """A likelihood of one predictor, as one of a vector of length one."""

    likelihood: Likelihood

    @property
    def outputs(self) -> int:
        return 1

    def log_prob(self, f: Vector, y: Array) -> Scalar:
        return self.likelihood.log_prob(f[0], y)

    def information(self, f: Vector) -> Matrix:
        return jnp.asarray(self.likelihood.information(f[0]), f.dtype)[None, None]

    def expect(self, y: Array, mean: Vector, cov: Matrix) -> VectorExpected:
        value, gradient, curvature = self.likelihood.expect(y, mean[0], cov[0, 0])
        return VectorExpected(value, gradient[None], curvature[None, None])

    def implicit(self, y: Array, mean: Vector, cov: Matrix, weight: Scalar) -> VectorSite:
        step, curvature, solved = self.likelihood.implicit(y, mean[0], cov[0, 0], weight)
        return VectorSite(step[None], curvature[None, None], solved)

    def predict(self, mean: Vector, cov: Matrix) -> tuple[Vector, Matrix]:
        expected, variance = self.likelihood.predict(mean[0], cov[0, 0])
        return expected[None], variance[None, None]

    def log_predictive(
        self, y: Array, mean: Vector, cov: Matrix, weight: Scalar | float = 1.0
    ) -> Scalar:
        return self.likelihood.log_predictive(y, mean[0], cov[0, 0], weight)


class Model(eqx.Module):
    """p(y | f(θ, x)): a predictor, and a likelihood of as many numbers as it gives for an input."""

    predictor: Any
    likelihood: VectorLikelihood

    def __init__(self, predictor: Any, likelihood: Likelihood | VectorLikelihood):
        self.predictor = predictor
        self.likelihood = (
            OneOutput(likelihood) if isinstance(likelihood, Likelihood) else likelihood
        )
        outputs = getattr(predictor, "outputs", 1)
        if outputs != self.likelihood.outputs:
            raise ValueError(
                f"the predictor gives {outputs} numbers for an input and {type(likelihood).__name__} "
                f"needs {self.likelihood.outputs}; change the last layer or the likelihood."
            )

    def noise(self) -> Float[Array, " c"] | None:
        """The variance of normal noise in each output; None for other likelihoods."""
        if isinstance(self.likelihood, MultiNormal):
            return self.likelihood.variance
        if isinstance(self.likelihood, OneOutput) and isinstance(
            self.likelihood.likelihood, Normal
        ):
            return jnp.atleast_1d(self.likelihood.likelihood.variance)
        return None

    def with_noise(self, variance: Float[Array, " c"]) -> "Model":
        """The same model with another variance of its noise."""
        one = isinstance(self.likelihood, OneOutput)
        return Model(self.predictor, Normal(variance[0]) if one else MultiNormal(variance))

    def log_prob(self, theta: Float[Array, " d"], x: Array, y: Array) -> Scalar:
        """log p(y | f(θ, x)) of one observation."""
        return self.likelihood.log_prob(self.predictor(theta, x), y)

    def linearise(
        self, theta: Float[Array, " d"], x: Array
    ) -> tuple[Float[Array, "n c"], Float[Array, "m d"]]:
        return self.predictor.linearise(theta, x)


class LogLikelihood(eqx.Module):
    """Any function log_prob(θ, x, y) of one observation; it knows no predictor, so no Gauss–Newton."""

    function: Callable[[Array, Array, Array], Scalar] = eqx.field(static=True)

    def log_prob(self, theta: Float[Array, " d"], x: Array, y: Array) -> Scalar:
        value = self.function(theta, x, y)
        if jnp.shape(value) != ():
            raise ValueError(
                "log_prob(theta, x, y) must give one number for one observation; "
                f"it gave shape {jnp.shape(value)}."
            )
        return value
