"""The likelihood of an observation with many outputs along a few directions of f, to absorb fewer rows.

A softmax of ten classes has ten rows of a Jacobian, and the cost of absorbing them grows with their number
squared. Most of the information of an observation lies along few directions: the gradient g = ∇ log p(y |
f) moves the mean, and the leading eigenvectors of the Fisher information carry the curvature. With r such
directions as the orthonormal columns of B,

    f ≈ f₀ + B u,     p(y | u) = p(y | f₀ + B u),

and the other directions stay at f₀. Every observation has its own f₀ and B, and so its own likelihood.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from kalvi.likelihoods.implicit import solve_implicit, solve_implicit_vector
from kalvi.likelihoods.likelihood import Likelihood, Unbounded
from kalvi.likelihoods.sites import Expected, Site, at
from kalvi.numerics.namespaces import Scalar

Vector = Float[Array, "*r"]  # a number if there is one direction
Matrix = Float[Array, "*rr"]


class Projected(Unbounded):
    """A likelihood of c predictors as a likelihood of r coordinates u, for one observation.

    Parameters
    ----------
    likelihood : Likelihood of c predictors
    origin : array of shape (c,), f₀
    frame : array of shape (c, r), B
    """

    likelihood: Likelihood
    origin: Float[Array, "*n c"]
    frame: Float[Array, "*n c r"]

    @property
    def outputs(self) -> int:
        return self.frame.shape[-1]

    @property
    def label_shape(self) -> tuple[int, ...] | None:
        return self.likelihood.label_shape

    def log_prob(self, f: Vector, y: Array) -> Scalar:
        return self.likelihood.log_prob(self._whole(f), y)

    def moments(self, f: Vector) -> tuple[Array, Array]:
        return self.likelihood.moments(self._whole(f))

    def information(self, f: Vector) -> Matrix:
        whole = self.likelihood.information(self._whole(f))
        return (self.frame.T @ whole @ self.frame).reshape(2 * f.shape)

    def expect(self, y: Array, mean: Vector, var: Matrix) -> Expected:
        value, gradient, curvature = self.likelihood.expect(y, *self._law(mean, var))
        inside = self.frame.T @ gradient, self.frame.T @ curvature @ self.frame
        return Expected(value, inside[0].reshape(mean.shape), inside[1].reshape(var.shape))

    def implicit(
        self, y: Array, mean: Vector, var: Matrix, weight: Scalar, *, thorough: bool = True
    ) -> Site:
        def expect(mean: Vector, var: Matrix) -> Expected:
            return self.expect(y, mean, var)

        if self.outputs > 1:
            return solve_implicit_vector(expect, mean, var, weight)
        return solve_implicit(expect, mean, var, weight, mean, thorough)

    def predict(self, mean: Vector, var: Matrix) -> tuple[Array, Array]:
        return self.likelihood.predict(*self._law(mean, var))

    def noise(self, mean: Vector, var: Matrix) -> Float[Array, " c"]:
        return self.likelihood.noise(*self._law(mean, var))

    def log_predictive(
        self, y: Array, mean: Vector, var: Matrix, weight: Scalar | float = 1.0
    ) -> Scalar:
        return self.likelihood.log_predictive(y, *self._law(mean, var), weight)

    def _whole(self, u: Vector) -> Float[Array, " c"]:
        return self.origin + self.frame @ u.reshape(-1)

    def _law(self, mean: Vector, var: Matrix) -> tuple[Float[Array, " c"], Float[Array, "c c"]]:
        inner = var.reshape(self.outputs, self.outputs)
        return self._whole(mean), self.frame @ inner @ self.frame.T


def leading_directions(
    likelihood: Likelihood, directions: int, f: Float[Array, "n c"], y: Float[Array, "n *o"]
) -> Float[Array, "n c r"]:
    """The frame B of each observation: its gradient at f, then leading eigenvectors of the Fisher
    information."""

    def one(f, y):
        _, gradient, information = at(likelihood, y, f)
        # the eigenvectors of Γ with the gradient put first: orthonormal columns by Gram and Schmidt
        leading = jnp.linalg.eigh(information)[1][:, ::-1]
        return jnp.linalg.qr(jnp.column_stack([gradient, leading[:, : directions - 1]]))[0]

    return jax.vmap(one)(f, y)
