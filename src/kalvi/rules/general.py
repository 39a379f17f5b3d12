"""R-VGA for a log-likelihood of the whole parameter vector, in three forms.

Lambert, Bonnabel & Bach (2022), Theorem 1 and Corollary 1.1. The fixed point needs the gradient g = E[∇ log
p] and the Hessian H = E[∇² log p] under the new Gaussian N(μ, P). Both can be written with the Hessian,
with only the gradient, or with only log p:

    order 2:  g = E[∇ log p],                    H = E[∇² log p]
    order 1:  g = E[∇ log p],                    H = P⁻¹ E[(θ − μ) ∇ log pᵀ]
    order 0:  g = P⁻¹ E[(θ − μ) log p],          H = P⁻¹ E[(θ − μ)(θ − μ)ᵀ log p] P⁻¹ − P⁻¹ E[log p]

(eqs. 17 and 19 of the paper print the previous P⁻¹ on the left; the new one is right). In natural
parameters the implicit scheme is the fixed point of

    P⁻¹ ← P₀⁻¹ − H(μ, P),        P⁻¹μ ← P₀⁻¹μ₀ + g(μ, P) − H(μ, P) μ,

and the maximum of E[log p] − KL(q ‖ N(μ₀, P₀)). One iteration from the previous Gaussian is the explicit
scheme; its step is halved until the precision is positive definite. Plain iteration need not converge:
under a wide prior it cycles, far from the optimum. The implicit scheme is therefore found by an ascent of
this bound (`numerics.natural_gradient`), in coordinates where the previous Gaussian is N(0, I); it accepts
no step that lowers the bound.
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
from kalvi.numerics.natural_gradient import WhitenedSums, climb_gaussian
from kalvi.rules.rule import Batch, StreamRule

Vector = Float[Array, " d"]
Matrix = Float[Array, "d d"]
LogLikelihood = Callable[[Vector, Float[Array, " i"], Scalar], Scalar]

HALVINGS = 12
TOLERANCE = 1e-18
"""The ascent of a row ends when its squared natural-gradient norm is below this, in nats."""
SETTLED = 1e-6
"""A row whose squared norm stays above this has not converged."""
ROUGHNESS = 0.1
"""The bound and its gradient are computed from the same points, but agree only up to the error of the
points; a step that lowers the norm may lower the bound by this share."""


class Points(eqx.Module):
    """Points and weights that approximate expectations under N(0, I)."""

    @abstractmethod
    def standard(
        self, dim: int, key: PRNGKeyArray | None
    ) -> tuple[Float[np.ndarray | Array, "n d"], Float[np.ndarray | Array, " n"]]:
        """Points and weights for z ~ N(0, I)."""


class Sampling(Points):
    """Monte Carlo with `pairs` antithetic pairs ±z; this needs a key."""

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
    """The product rule with `order` nodes for each dimension: order^d points, for few dimensions."""

    order: int = eqx.field(static=True, default=20)

    def standard(self, dim, key):
        nodes, weights = expectations.gauss_hermite(self.order)
        grid = np.array(list(product(nodes, repeat=dim)))
        return grid, np.prod(list(product(weights, repeat=dim)), axis=1)


class Form(eqx.Module):
    """The derivatives of log p that an expectation uses."""

    @abstractmethod
    def derivatives(
        self, log_prob: Callable[[Vector], Scalar], q: Dense, z: Array, weights: Array
    ) -> tuple[Vector, Matrix]:
        """g and H under q, from the points z ~ N(0, I)."""


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
    """Derivative-free; E[log p] is subtracted first, which lowers the noise without changing the result."""

    def derivatives(self, log_prob, q, z, weights):
        values = jax.vmap(log_prob)(q.mean[None, :] + z @ q.root.T)
        excess = weights * (values - weights @ values)
        dual = z @ linalg.inverse_root(q.root).T
        return excess @ dual, dual.T @ linalg.scale_rows(excess, dual)


class GeneralRVGAState(eqx.Module):
    """A posterior with full covariance, and counts of rows that were not absorbed or did not converge."""

    posterior: Dense
    unsolved: Int[Array, ""]


class GeneralRVGA(StreamRule[GeneralRVGAState]):
    """R-VGA for log_likelihood(theta, x, y), one row at a time, O(d³) a row.

    Parameters
    ----------
    log_likelihood : callable (theta, x, y) -> log p(y | x, theta)
    form : SecondOrder(), FirstOrder() or ZerothOrder()
    points : SigmaPoints(), Sampling(pairs) or GaussHermite(order)
    iterations : 1 for the explicit scheme; more for the implicit one, which is found in at most so many
    """

    log_likelihood: LogLikelihood
    form: Form = SecondOrder()
    points: Points = SigmaPoints()
    iterations: int = eqx.field(static=True, default=50)

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

        def log_prob(theta):
            return row.weight * self.log_likelihood(theta, row.x, row.y)

        absorb = self._explicit if self.iterations == 1 else self._implicit
        q, solved = absorb(q0, log_prob, z, weights)
        present = row.weight > 0
        posterior = jax.tree.map(lambda a, b: jnp.where(present, a, b), q, q0)
        return GeneralRVGAState(posterior, state.unsolved + (present & ~solved).astype(jnp.int32))

    def _explicit(self, q0, log_prob, z, weights) -> tuple[Dense, Bool[Array, ""]]:
        """One step from the previous Gaussian."""
        precision = q0.precision.to_dense()
        gradient, hessian = self.form.derivatives(log_prob, q0, z, weights)
        hessian = (hessian + hessian.T) / 2
        shift = precision @ q0.mean
        target = precision - hessian, shift + gradient - hessian @ q0.mean
        return _towards((precision, shift), target)

    def _implicit(self, q0, log_prob, z, weights) -> tuple[Dense, Bool[Array, ""]]:
        """The ascent; u are the parameters in units of the previous Gaussian."""

        def whitened(u):
            return log_prob(q0.mean + q0.root @ u)

        def visit(mean, root):
            q = Dense.from_root(mean, root)
            gradient, hessian = self.form.derivatives(whitened, q, z, weights)
            fit = weights @ jax.vmap(whitened)(mean[None, :] + z @ root.T)
            return WhitenedSums(fit, gradient, -(hessian + hessian.T) / 2)

        eye = linalg.identity_like(q0.root)
        best, _, _ = climb_gaussian(
            visit,
            eye,
            jnp.zeros_like(q0.mean),
            rows=jnp.ones((), q0.mean.dtype),
            tolerance=TOLERANCE,
            max_passes=self.iterations,
            roughness=ROUGHNESS,
        )
        root = linalg.root_from_precision(best.precision)
        q = Dense.from_root(q0.mean + q0.root @ best.mean, q0.root @ root)
        return q, best.gap <= jnp.maximum(SETTLED, best.floor)


def _towards(
    now: tuple[Matrix, Vector], target: tuple[Matrix, Vector]
) -> tuple[Dense, Bool[Array, ""]]:
    """A step towards the target in natural parameters, shortened until the precision is positive
    definite."""
    lengths = 0.5 ** jnp.arange(HALVINGS, dtype=now[1].dtype)

    def blend(length):
        return jax.tree.map(lambda a, b: a + length * (b - a), now, target)

    finite = jax.vmap(lambda s: jnp.all(jnp.isfinite(linalg.cholesky(blend(s)[0]))))(lengths)
    precision, shift = blend(lengths[jnp.argmax(finite)])
    found = jnp.any(finite) & jnp.all(jnp.isfinite(shift))
    precision, shift = jax.tree.map(lambda a, b: jnp.where(found, a, b), (precision, shift), now)
    root = linalg.root_from_precision(precision)
    return Dense.from_root(root @ (root.T @ shift), root), found
