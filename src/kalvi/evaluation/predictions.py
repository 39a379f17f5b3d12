"""Predictions of a network with a posterior: means and two kinds of variance.

By the law of total variance, Var[y] = Var[E[y | θ]] + E[Var[y | θ]]: the epistemic part, due to the
parameters, and the aleatoric part, due to the data. A class is represented by its indicator vector, so its
mean is its probability.

`linearised` uses Gaussian predictors f ≈ f(μ) + J (θ − μ) and integrates over them; `ensemble` averages
over draws of θ, also those of a mixture.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from kalvi.gaussians import Gaussian
from kalvi.predictors import predictor_moments
from kalvi.predictors.models import Model
from kalvi.rules.rule import Batch

Outputs = Float[Array, "n c"]


class PredictiveMoments(NamedTuple):
    """The mean of y and its two variances, for each input and output."""

    mean: Outputs
    epistemic: Outputs
    aleatoric: Outputs


def linearised(model: Model, q: Gaussian, x: Float[Array, "n ..."]) -> PredictiveMoments:
    """Predictions of the network, linearised at the posterior's mean."""
    law = predictor_moments(q, model.predictor, x)
    mean, cov = jax.vmap(lambda m, v: model.likelihood.predict(m, v))(*law)
    total = cov if cov.ndim == 1 else jnp.diagonal(cov, axis1=1, axis2=2)
    aleatoric = jax.vmap(lambda m, v: model.likelihood.noise(m, v))(*law)
    epistemic = jnp.maximum(total - aleatoric, 0)
    return PredictiveMoments(*(a.reshape(len(x), -1) for a in (mean, epistemic, aleatoric)))


def ensemble(
    model: Model, draws: Float[Array, "k d"], x: Float[Array, "n ..."]
) -> PredictiveMoments:
    """Predictions averaged over draws of the parameters."""

    def one(theta: Float[Array, " d"]) -> tuple[Array, Array]:
        f = model.predictor.values(theta, x)
        mean, variance = jax.vmap(lambda f: model.likelihood.moments(f))(f)
        shape = len(x), model.likelihood.outputs
        return mean.reshape(shape), jnp.broadcast_to(variance, mean.shape).reshape(shape)

    means, variances = jax.lax.map(one, draws)
    return PredictiveMoments(
        jnp.mean(means, axis=0), jnp.var(means, axis=0), jnp.mean(variances, axis=0)
    )


def mixture_moments(parts: list[PredictiveMoments]) -> PredictiveMoments:
    """The prediction of a mixture with equal weights, from the predictions of its components."""
    means = jnp.stack([part.mean for part in parts])
    inside = jnp.mean(jnp.stack([part.epistemic for part in parts]), axis=0)
    own = jnp.mean(jnp.stack([part.aleatoric for part in parts]), axis=0)
    return PredictiveMoments(jnp.mean(means, axis=0), inside + jnp.var(means, axis=0), own)


def squared_residuals(model: Model, theta: Float[Array, " d"], batch: Batch) -> Float[Array, " c"]:
    """Σ w (y − f)² of each output."""
    f = model.predictor.values(theta, batch.x)
    return jnp.atleast_1d(batch.weight @ (batch.y.reshape(f.shape) - f) ** 2)
