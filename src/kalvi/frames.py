"""Fewer rows for an observation with many outputs: its likelihood along a few directions of f.

A softmax of ten classes has ten rows of a Jacobian, and the cost of absorbing them grows with their number
squared. Most of what an observation says lies along few directions: the gradient g = ∇ log p(y | f) moves
the mean, and the leading eigenvectors of the Fisher information carry the curvature. With an orthonormal B
of those r directions,

    f ≈ f₀ + B u,     p(y | u) = p(y | f₀ + B u),

the other directions kept at f₀. The frame of each observation travels with its label.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from kalvi.vectors import VectorExpected, VectorLikelihood, VectorSite, solve_implicit

Scalar = Float[Array, ""]
Vector = Float[Array, " r"]
Matrix = Float[Array, "r r"]


class Framed(VectorLikelihood):
    """A likelihood of c predictors as one of r coordinates u in a frame that the label brings."""

    likelihood: VectorLikelihood
    directions: int = eqx.field(static=True)

    @property
    def outputs(self) -> int:
        return self.directions

    def log_prob(self, f: Vector, y: Array) -> Scalar:
        label, origin, frame = self._parts(y)
        return self.likelihood.log_prob(origin + frame @ f, label)

    def information(self, f: Vector) -> Matrix:
        raise TypeError("the information along a frame needs the label that brings it; use `at`.")

    def expect(self, y: Array, mean: Vector, cov: Matrix) -> VectorExpected:
        label, origin, frame = self._parts(y)
        value, gradient, curvature = self.likelihood.expect(
            label, origin + frame @ mean, frame @ cov @ frame.T
        )
        return VectorExpected(value, frame.T @ gradient, frame.T @ curvature @ frame)

    def at(self, y: Array, f: Vector) -> VectorExpected:
        """Value and gradient at f, and the Fisher information there."""
        label, origin, frame = self._parts(y)
        whole = origin + frame @ f
        value, gradient = jax.value_and_grad(lambda f: self.likelihood.log_prob(f, label))(whole)
        return VectorExpected(
            value, frame.T @ gradient, frame.T @ self.likelihood.information(whole) @ frame
        )

    def implicit(self, y: Array, mean: Vector, cov: Matrix, weight: Scalar) -> VectorSite:
        return solve_implicit(self, y, mean, cov, weight)

    def predict(self, mean: Vector, cov: Matrix) -> tuple[Vector, Matrix]:
        raise TypeError("predictions are made with the whole likelihood, not along a frame.")

    def log_predictive(
        self, y: Array, mean: Vector, cov: Matrix, weight: Scalar | float = 1.0
    ) -> Scalar:
        label, origin, frame = self._parts(y)
        return self.likelihood.log_predictive(
            label, origin + frame @ mean, frame @ cov @ frame.T, weight
        )

    def _parts(self, y: Array) -> tuple[Array, Float[Array, " c"], Float[Array, "c r"]]:
        """The label, f₀ and B, as `framed` packed them."""
        c, r = self.likelihood.outputs, self.directions
        size = y.shape[0] - c * (r + 1)
        label = y[0] if size == 1 else y[:size]
        return label, y[size : size + c], y[size + c :].reshape(c, r)


def framed(
    likelihood: VectorLikelihood,
    directions: int,
    f: Float[Array, "n c"],
    y: Float[Array, "n *o"],
) -> tuple[Float[Array, "n c r"], Float[Array, "n q"]]:
    """The frame of each observation at f, and labels that bring f and the frame along."""

    def one(f, y):
        _, gradient, information = likelihood.at(y, f)
        # the eigenvectors of Γ with the gradient put first: orthonormal columns by Gram and Schmidt
        leading = jnp.linalg.eigh(information)[1][:, ::-1]
        return jnp.linalg.qr(jnp.column_stack([gradient, leading[:, : directions - 1]]))[0]

    frames = jax.vmap(one)(f, y)
    labels = y.reshape(len(y), -1)
    packed = jnp.concatenate([labels, f, frames.reshape(len(y), -1)], axis=1)
    return frames, packed
