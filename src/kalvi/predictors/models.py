"""Models of data, from which rules learn θ: a predictor f(θ, x) and a likelihood p(y | f)."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from kalvi.likelihoods import Likelihood
from kalvi.numerics.namespaces import AnyArray, Scalar, namespace_of
from kalvi.predictors.predictor import Predictor


class Model(eqx.Module):
    """p(y | f(θ, x)): a predictor and a likelihood, with the same number of outputs."""

    predictor: Predictor
    likelihood: Likelihood

    def __check_init__(self):
        need_same_outputs(self.predictor, self.likelihood)

    def noise_variance(self) -> Float[Array, " c"] | None:
        """The variance of normal noise in each output; None for other likelihoods."""
        likelihood: Any = self.likelihood
        return jnp.atleast_1d(likelihood.variance) if likelihood.noisy else None

    def with_noise(self, variance: Float[AnyArray, " c"]) -> "Model":
        """The same model with another noise variance."""
        likelihood: Any = self.likelihood
        shaped = namespace_of(variance).reshape(variance, jnp.shape(likelihood.variance))
        return eqx.tree_at(lambda m: m.likelihood.variance, self, shaped)

    def log_prob(self, theta: Float[Array, " d"], x: Array, y: Array) -> Scalar:
        """log p(y | f(θ, x)) of one observation."""
        return self.likelihood.log_prob(self.predictor(theta, x), y)


def need_same_outputs(predictor: Predictor, likelihood: Likelihood) -> None:
    """Refuse a predictor that has more or fewer outputs than the likelihood."""
    if predictor.outputs != likelihood.outputs:
        raise ValueError(
            f"the predictor {type(predictor).__name__} gives {predictor.outputs} numbers for an input and "
            f"{type(likelihood).__name__} needs {likelihood.outputs}; change the predictor (the last layer "
            f"of a network, or MultiLinear({likelihood.outputs})) or the likelihood."
        )


class LogLikelihood(eqx.Module):
    """A model from any function log_prob(θ, x, y) of one observation. It has no predictor, so no
    Gauss–Newton."""

    function: Callable[[Array, Array, Array], Scalar] = eqx.field(static=True)

    def log_prob(self, theta: Float[Array, " d"], x: Array, y: Array) -> Scalar:
        value = self.function(theta, x, y)
        if jnp.shape(value) != ():
            raise ValueError(
                "log_prob(theta, x, y) must give one number for one observation; "
                f"it gave shape {jnp.shape(value)}."
            )
        return value
