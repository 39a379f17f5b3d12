"""What a network with a posterior says of new inputs: means, and the two kinds of variance.

By the law of total variance, Var[y] = Var[E[y | θ]] + E[Var[y | θ]]: epistemic, of the parameters, and
aleatoric, of the data. A class counts as its indicator vector, so that the mean is its probability.

`linearised` has Gaussian predictors f ≈ f(μ) + J (θ − μ) and integrals over them; `ensemble` averages over
draws of θ, and serves mixtures as well.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from kalvi.algorithms.base import Batch
from kalvi.algorithms.vifa.gradients import spreads
from kalvi.gaussians import Gaussian
from kalvi.models import Model

Outputs = Float[Array, "n c"]


class Predicted(NamedTuple):
    """Per input and output: the mean of y, and its two variances."""

    mean: Outputs
    epistemic: Outputs
    aleatoric: Outputs


def linearised(model: Model, q: Gaussian, x: Float[Array, "n ..."]) -> Predicted:
    """Predictions of the network made linear at the posterior's mean."""
    f, rows = model.linearise(q.mean, x)
    spread = spreads(q, rows, f.shape[1])
    mean, cov = jax.vmap(lambda m, v: model.likelihood.predict(m, v))(f, spread)
    total = jnp.diagonal(cov, axis1=1, axis2=2)
    aleatoric = jax.vmap(lambda m, v: _own_variance(model, m, v))(f, spread)
    return Predicted(mean, jnp.maximum(total - aleatoric, 0), aleatoric)


def ensemble(model: Model, draws: Float[Array, "k d"], x: Float[Array, "n ..."]) -> Predicted:
    """Predictions averaged over draws of the parameters."""

    def one(theta: Float[Array, " d"]) -> tuple[Array, Array]:
        f = jax.vmap(lambda x: model.predictor(theta, x))(x)
        none = jnp.zeros((f.shape[1],) * 2, f.dtype)
        mean, cov = jax.vmap(lambda f: model.likelihood.predict(f, none))(f)
        return mean, jnp.diagonal(cov, axis1=1, axis2=2)

    means, variances = jax.lax.map(one, draws)
    return Predicted(jnp.mean(means, axis=0), jnp.var(means, axis=0), jnp.mean(variances, axis=0))


def merged(parts: list[Predicted]) -> Predicted:
    """The prediction of a mixture with equal weights from those of its components."""
    means = jnp.stack([part.mean for part in parts])
    inside = jnp.mean(jnp.stack([part.epistemic for part in parts]), axis=0)
    own = jnp.mean(jnp.stack([part.aleatoric for part in parts]), axis=0)
    return Predicted(jnp.mean(means, axis=0), inside + jnp.var(means, axis=0), own)


def squared_residuals(model: Model, theta: Float[Array, " d"], batch: Batch) -> Float[Array, " c"]:
    """Σ w (y − f)² of each output."""
    f = jax.vmap(lambda x: model.predictor(theta, x))(batch.x)
    return batch.weight @ (batch.y.reshape(f.shape) - f) ** 2


def _own_variance(model: Model, mean: Array, cov: Array) -> Float[Array, " c"]:
    """E[Var[y | f]]: the noise, or for classes E[p (1 − p)], which is their expected curvature."""
    noise = model.noise()
    if noise is not None:
        return noise.astype(mean.dtype)
    label = jnp.zeros((), mean.dtype)
    return jnp.diagonal(model.likelihood.expect(label, mean, cov).curvature)
