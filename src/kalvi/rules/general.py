"""R-VGA for a log-likelihood of the whole parameter vector, in its three forms.

Lambert, Bonnabel & Bach (2022), Theorem 1 and Corollary 1.1. The fixed point asks for the gradient
g = E[∇ log p] and the Hessian H = E[∇² log p] under the new Gaussian N(μ, P); both can be written with
the Hessian, with the gradient alone or with log p alone:

    order 2:  g = E[∇ log p],                    H = E[∇² log p]
    order 1:  g = E[∇ log p],                    H = P⁻¹ E[(θ − μ) ∇ log pᵀ]
    order 0:  g = P⁻¹ E[(θ − μ) log p],          H = P⁻¹ E[(θ − μ)(θ − μ)ᵀ log p] P⁻¹ − P⁻¹ E[log p]

(eqs. 17 and 19 of the paper print the previous P⁻¹ on the left; the new one is right). In natural
parameters the implicit scheme is the fixed point of

    P⁻¹ ← P₀⁻¹ − H(μ, P),        P⁻¹μ ← P₀⁻¹μ₀ + g(μ, P) − H(μ, P) μ,

started at the previous Gaussian: one iteration is the explicit scheme, several approach the implicit
one. A step that would lose positive definiteness is halved until it does not.
"""

from abc import abstractmethod
from collections.abc import Callable
from itertools import product

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from kalvi.gaussians import Dense, Gaussian
from kalvi.numerics import expectations, linalg
from kalvi.numerics.namespaces import Scalar
from kalvi.rules.base import Batch, StreamRule

Vector = Float[Array, " d"]
Matrix = Float[Array, "d d"]
LogLikelihood = Callable[[Vector, Float[Array, " i"], Scalar], Scalar]

HALVINGS = 12
SETTLED = 1e-3
"""An iteration that still moves the mean by more posterior standard deviations than this is not settled."""


class Points(eqx.Module):
    """Points and weights that stand for expectations under N(0, I)."""

    @abstractmethod
    def standard(
        self, dim: int, key: PRNGKeyArray | None
    ) -> tuple[Float[np.ndarray | Array, "n d"], Float[np.ndarray | Array, " n"]]:
        """Points and weights for z ~ N(0, I)."""


class Sampling(Points):
    """Monte Carlo with `pairs` antithetic pairs ±z; needs a key."""

    pairs: int = eqx.field(static=True, default=50)

    def standard(self, dim, key):
        if key is None:
            raise ValueError("Sampling draws random points; pass key=jax.random.key(seed).")
        z = jr.normal(key, (self.pairs, dim))
        return jnp.concatenate([z, -z]), jnp.full(2 * self.pairs, 0.5 / self.pairs)


class SigmaPoints(Points):
    """2 d² + 1 points, exact for polynomials of degree 5: all three forms are exact for linear models."""

    def standard(self, dim, key):
        return expectations.sigma_points(dim)


class GaussHermite(Points):
    """The product rule with `order` nodes a dimension: order^d points, for a few dimensions."""

    order: int = eqx.field(static=True, default=20)

    def standard(self, dim, key):
        nodes, weights = expectations.gauss_hermite(self.order)
        grid = np.array(list(product(nodes, repeat=dim)))
        return grid, np.prod(list(product(weights, repeat=dim)), axis=1)


class Form(eqx.Module):
    """Which derivatives of log p an expectation uses."""

    @abstractmethod
    def derivatives(
        self, log_prob: Callable[[Vector], Scalar], q: Dense, z: Array, weights: Array
    ) -> tuple[Vector, Matrix]:
        """g and H under q, by the points z ~ N(0, I)."""


class SecondOrder(Form):
    """Averages the Hessian."""

    def derivatives(self, log_prob, q, z, weights):
        theta = q.mean[None, :] + z @ q.root.T
        gradients = jax.vmap(jax.grad(log_prob))(theta)
        return weights @ gradients, jnp.einsum(
            "n,nij->ij", weights, jax.vmap(jax.hessian(log_prob))(theta)
        )


class FirstOrder(Form):
    """Hessian-free: P⁻¹ (θ − μ) = R⁻ᵀ z."""

    def derivatives(self, log_prob, q, z, weights):
        gradients = jax.vmap(jax.grad(log_prob))(q.mean[None, :] + z @ q.root.T)
        dual = z @ linalg.inverse_root(q.root).T
        return weights @ gradients, dual.T @ linalg.scale_rows(weights, gradients)


class ZerothOrder(Form):
    """Derivative-free; E[log p] is subtracted first, which changes nothing and tames the noise."""

    def derivatives(self, log_prob, q, z, weights):
        values = jax.vmap(log_prob)(q.mean[None, :] + z @ q.root.T)
        excess = weights * (values - weights @ values)
        dual = z @ linalg.inverse_root(q.root).T
        return excess @ dual, dual.T @ linalg.scale_rows(excess, dual)


class GeneralRVGAState(eqx.Module):
    """A full-covariance posterior, and counts of rows that were not absorbed or did not converge."""

    posterior: Dense
    unsolved: Int[Array, ""]


class GeneralRVGA(StreamRule[GeneralRVGAState]):
    """R-VGA for log_likelihood(theta, x, y), one row at a time, O(d³) a row.

    Parameters
    ----------
    log_likelihood : callable (theta, x, y) -> log p(y | x, theta)
    form : SecondOrder(), FirstOrder() or ZerothOrder()
    points : SigmaPoints(), Sampling(pairs) or GaussHermite(order)
    iterations : 1 is the explicit scheme; several approach the implicit one
    """

    log_likelihood: LogLikelihood
    form: Form = SecondOrder()
    points: Points = SigmaPoints()
    iterations: int = eqx.field(static=True, default=10)

    def init(self, prior: Gaussian, *, key: PRNGKeyArray | None = None) -> GeneralRVGAState:
        return GeneralRVGAState(prior.to_dense(), jnp.zeros((), jnp.int32))

    def update(
        self, state: GeneralRVGAState, batch: Batch, *, key: PRNGKeyArray | None = None
    ) -> GeneralRVGAState:
        dtype = state.posterior.mean.dtype

        def visit(state, numbered):
            number, row = numbered
            row_key = None if key is None else jr.fold_in(key, number)
            z, weights = self.points.standard(state.posterior.dim, row_key)
            return self._absorb(
                state, row, jnp.asarray(z, dtype), jnp.asarray(weights, dtype)
            ), None

        return jax.lax.scan(visit, state, (jnp.arange(len(batch.y)), batch))[0]

    def _absorb(
        self,
        state: GeneralRVGAState,
        row: Batch,
        z: Float[Array, "n d"],
        weights: Float[Array, " n"],
    ) -> GeneralRVGAState:
        q0 = state.posterior
        precision = q0.precision.to_dense()
        shift = precision @ q0.mean

        def log_prob(theta):
            return row.weight * self.log_likelihood(theta, row.x, row.y)

        def advance(_, carry):
            q, now, _, _ = carry
            gradient, hessian = self.form.derivatives(log_prob, q, z, weights)
            hessian = (hessian + hessian.T) / 2
            target = precision - hessian, shift + gradient - hessian @ q.mean
            new, natural, found = _towards(now, target)
            moved = jnp.max(jnp.abs(new.mean - q.mean) / jnp.sqrt(jnp.sum(new.root**2, axis=1)))
            q = jax.tree.map(lambda a, b: jnp.where(found, a, b), new, q)
            return q, natural, found, moved

        start = (q0, (precision, shift), jnp.asarray(True), jnp.zeros((), q0.mean.dtype))
        q, _, found, moved = jax.lax.fori_loop(0, self.iterations, advance, start)
        present = row.weight > 0
        solved = found & ((moved < SETTLED) | (self.iterations == 1))
        posterior = jax.tree.map(lambda a, b: jnp.where(present, a, b), q, q0)
        return GeneralRVGAState(posterior, state.unsolved + (present & ~solved).astype(jnp.int32))


def _towards(
    now: tuple[Matrix, Vector], target: tuple[Matrix, Vector]
) -> tuple[Dense, tuple[Matrix, Vector], Bool[Array, ""]]:
    """A step towards the target in natural parameters, as long as the precision stays positive definite."""
    lengths = 0.5 ** jnp.arange(HALVINGS, dtype=now[1].dtype)

    def blend(length):
        return jax.tree.map(lambda a, b: a + length * (b - a), now, target)

    finite = jax.vmap(lambda s: jnp.all(jnp.isfinite(linalg.cholesky(blend(s)[0]))))(lengths)
    precision, shift = blend(lengths[jnp.argmax(finite)])
    found = jnp.any(finite) & jnp.all(jnp.isfinite(shift))
    precision, shift = jax.tree.map(lambda a, b: jnp.where(found, a, b), (precision, shift), now)
    root = linalg.root_from_precision(precision)
    return Dense.from_root(root @ (root.T @ shift), root), (precision, shift), found
