"""A mixture of Gaussians: several posteriors of one model, such as those of several training runs.

With weights wₖ and components N(μₖ, Σₖ), the mean is μ = Σ wₖ μₖ and by the law of total variance

    Cov[θ] = Σₖ wₖ [Σₖ + (μₖ − μ)(μₖ − μ)ᵀ].

MultiSWAG (Wilson & Izmailov 2020, "Bayesian deep learning and a probabilistic perspective of
generalization") is the mixture of the SWAG Gaussians of several runs, with equal weights.
"""

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from kalvi.gaussians import checks
from kalvi.gaussians.gaussian import Gaussian, Scalar
from kalvi.numerics import linalg
from kalvi.numerics.precision import matching_precision, own_precision


class Mixture(eqx.Module):
    """Σ wₖ N(μₖ, Σₖ): not a Gaussian itself, but it has a mean, variances, a density and draws.

    Parameters
    ----------
    components : sequence of Gaussian
        Of one dimension and one dtype, of any structure.
    weights : array of shape (k,), positive, or None
        Normalised to one; None for equal weights.
    """

    components: tuple[Gaussian, ...]
    weights: Float[Array, " k"]

    def __init__(self, components: Sequence[Gaussian], weights=None):
        self.components = tuple(components)
        if not self.components:
            raise ValueError("Mixture needs at least one component; got none.")
        forms = [f"{q.mean.dtype}[{q.dim}]" for q in self.components]
        if len(set(forms)) > 1:
            raise ValueError(
                f"Mixture needs components of one dimension and dtype; got {', '.join(forms)}."
            )
        self.weights = _normalised(weights, len(forms), self.components[0].mean.dtype)

    @property
    def mean(self) -> Float[Array, " d"]:
        """Σ wₖ μₖ."""
        return self.weights @ jnp.stack([q.mean for q in self.components])

    @property
    def dim(self) -> int:
        """The number of parameters."""
        return self.components[0].dim

    @own_precision
    def matvec(self, v: Float[Array, "d *n"]) -> Float[Array, "d *n"]:
        """Cov[θ] v."""
        away = self._away()
        between = away.T @ linalg.scale_rows(self.weights, away @ v)
        return self._averaged([q.matvec(v) for q in self.components]) + between

    @own_precision
    def variance(self) -> Float[Array, " d"]:
        """diag Cov[θ]."""
        within = self._averaged([q.variance() for q in self.components])
        return within + self.weights @ self._away() ** 2

    @own_precision
    def marginal_variance(self, x: Float[Array, "n d"]) -> Float[Array, " n"]:
        """The variance of each predictor xᵢ θ."""
        within = self._averaged([q.marginal_variance(x) for q in self.components])
        return within + (x @ self._away().T) ** 2 @ self.weights

    @own_precision
    def log_prob(self, theta: Float[Array, " d"]) -> Scalar:
        """log Σ wₖ N(θ; μₖ, Σₖ)."""
        terms = jnp.stack([q.log_prob(theta) for q in self.components])
        return jax.scipy.special.logsumexp(terms + jnp.log(self.weights))

    @own_precision
    def sample(self, key: PRNGKeyArray, n: int) -> Float[Array, "n d"]:
        """n independent draws, each from a component drawn at random."""
        key_component, key_draw = jr.split(key)
        chosen = jr.categorical(key_component, jnp.log(self.weights), shape=(n,))
        branches = [lambda k, q=q: q.sample(k, 1)[0] for q in self.components]

        def draw(one):
            return jax.lax.switch(one[0], branches, one[1])

        return jax.lax.map(draw, (chosen, jr.split(key_draw, n)))

    def _away(self) -> Float[Array, "k d"]:
        """μₖ − μ."""
        return jnp.stack([q.mean for q in self.components]) - self.mean[None, :]

    def _averaged(self, terms: Sequence[Array]) -> Array:
        return jnp.tensordot(self.weights, jnp.stack(terms), axes=1)


def _normalised(weights, k: int, dtype) -> Float[Array, " k"]:
    with matching_precision(dtype):
        weights = jnp.ones(k, dtype) if weights is None else jnp.asarray(weights, dtype)
        checks.need(weights.shape == (k,), f"Mixture needs weights of shape ({k},)", weights)
        checks.positive(weights, "weights")
        return weights / jnp.sum(weights)
