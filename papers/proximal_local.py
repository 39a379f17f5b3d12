"""Local variables in the stochastic proximal point: a mixture of Gaussians, and topics of documents.

Khan, Baqué, Fleuret & Fua (2015), section 3, with a local z_n for every row beside the global factors. The
best q(z_n) given the others is in closed form (a mixture) or the end of a short iteration (topics), and

    F(t) = Σₙ max over q(z_n) of E[log p(y_n, z_n | global)] + H(q(z_n)) + E log prior

has as its gradient in the expected statistics t, by the envelope theorem, that with the local factors held.
So λ* = ∂F/∂t is the mean-field update, the step of length β/(1 + β) is the proximal point, and with
minibatches whose weights stand for all rows this is stochastic variational inference (Hoffman, Blei, Wang &
Paisley 2013). Both are `ConjugateModel`s for `proximal_point.ProximalPoint`.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import digamma, gammaln
from jaxtyping import Array, Float

from kalvi.numerics.namespaces import Scalar
from kalvi.rules.rule import Batch
from papers.proximal_point import ConjugateModel, Factors, Family, NormalFamily, Vector

SMALL = 1e-10
"""The local iteration of a document ends where no proportion changes by more."""


class DirichletFamily(Family):
    """Dirichlet(a) over k classes: T = log π, h = 1/Π π, λ = a."""

    def log_partition(self, natural: Vector) -> Scalar:
        return jnp.sum(gammaln(natural)) - gammaln(jnp.sum(natural))


class GaussianMixture(ConjugateModel):
    """y ~ Σ π_k N(μ_k, noise), π ~ Dirichlet(concentration), μ_k ~ N(0, spread): factors π, μ_1 … μ_k."""

    classes: int = eqx.field(static=True)
    noise: float = 1.0
    spread: float = 10.0
    concentration: float = 1.0

    @property
    def families(self) -> tuple[Family, ...]:
        return (DirichletFamily(), *[NormalFamily()] * self.classes)

    def joint(self, expectations: Factors, batch: Batch) -> Scalar:
        """Rows are the y of a batch, each with its best local factor."""
        log_share, *means = expectations
        rows = batch.weight @ jax.nn.logsumexp(self.scores(expectations, batch.y), axis=1)
        prior, k = self.concentration * jnp.sum(log_share), self.classes
        prior += gammaln(k * self.concentration) - k * gammaln(self.concentration)
        squares = jnp.stack([square for _, square in means])
        return rows + prior - jnp.sum(squares / self.spread + jnp.log(self.spread)) / 2

    def scores(self, expectations: Factors, y: Array) -> Float[Array, "n k"]:
        """E log π_k + E log N(y; μ_k, noise): the logarithms of the local factors, but for a constant."""
        log_share, *means = expectations
        centre, square = jnp.stack(means).T
        away = y[:, None] ** 2 - 2 * jnp.outer(y, centre) + square[None, :]
        return log_share[None, :] - (away / self.noise + jnp.log(2 * np.pi * self.noise)) / 2


class Topics(ConjugateModel):
    """Latent Dirichlet allocation: words of document n from Σ_k θ_nk φ_k; factors are the φ_k.

    A row of x holds the counts of the words of one document. φ_k ~ Dirichlet(sparsity), and local are
    θ_n ~ Dirichlet(mixing) and the topic of every word.
    """

    topics: int = eqx.field(static=True)
    words: int = eqx.field(static=True)
    mixing: float = 0.5
    sparsity: float = 0.1
    rounds: int = eqx.field(static=True, default=200)

    @property
    def families(self) -> tuple[Family, ...]:
        return (DirichletFamily(),) * self.topics

    def joint(self, expectations: Factors, batch: Batch) -> Scalar:
        """The bound with the local factors at their best, which do not move with the global ones."""
        log_words = jnp.stack(expectations)
        shares = jax.lax.stop_gradient(jax.vmap(lambda x: self.proportions(log_words, x))(batch.x))
        rows = jax.vmap(lambda x, a: self._document(log_words, x, a))(batch.x, shares)
        v = self.words
        constant = gammaln(v * self.sparsity) - v * gammaln(self.sparsity)
        prior = self.topics * constant + self.sparsity * jnp.sum(log_words)
        return batch.weight @ rows + prior

    def proportions(self, log_words: Float[Array, "k v"], counts: Float[Array, " v"]) -> Vector:
        """The Dirichlet parameters of q(θ_n) given E log φ, by coordinate ascent."""

        def improve(carry):
            a, _, i = carry
            new = self.mixing + counts @ jax.nn.softmax(digamma(a)[None, :] + log_words.T, axis=1)
            return new, jnp.max(jnp.abs(new - a)), i + 1

        def unsettled(carry):
            return (carry[1] > SMALL) & (carry[2] < self.rounds)

        even = jnp.full(self.topics, self.mixing + jnp.sum(counts) / self.topics)
        return jax.lax.while_loop(unsettled, improve, (even, jnp.inf * even[0], 0))[0]

    def _document(self, log_words: Float[Array, "k v"], counts: Float[Array, " v"], a: Vector):
        """E log p(words, θ, topics | φ) + entropies, the topics of the words at their best."""
        log_share = digamma(a) - digamma(jnp.sum(a))
        words = counts @ jax.nn.logsumexp(log_share[None, :] + log_words.T, axis=1)
        prior = gammaln(self.topics * self.mixing) - self.topics * gammaln(self.mixing)
        own = gammaln(jnp.sum(a)) - jnp.sum(gammaln(a))
        return words + prior - own + (self.mixing - a) @ log_share
