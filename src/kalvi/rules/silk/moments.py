"""Moments of factors in the form that entries need, and upper triangles of small symmetric matrices.

The logit of an entry is ψ = ⟨u, α⟩ with u and α independent, so

    E ψ² = ⟨E uuᵀ, E ααᵀ⟩,

which is (E ψ)² + Σ (E u²) var α + Σ var u (E α)² if factors have no covariances. Both are products of
features of the two sides.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

Sequence = Float[Array, "n k"]
Blocks = Float[Array, "n k k"]
Upper = Float[Array, "n f"]  # f = k(k+1)/2


class Moments(NamedTuple):
    """Moments of the factors of one side, as features whose products give those of the logits."""

    mean: Sequence
    left: Float[Array, "n g"]  # its product with `right` of the other side is E ψ² or var ψ
    right: Float[Array, "n g"]
    second: Upper  # E uuᵀ

    def at(self, index: Array) -> "Moments":
        """The moments of the rows with these indices."""
        return Moments(*(part[index] for part in self))


def factorised_moments(mean: Sequence, var: Sequence) -> Moments:
    """The moments of independent factors; their products give var ψ."""
    left = jnp.concatenate([mean**2 + var, var], axis=1)
    right = jnp.concatenate([var, mean**2], axis=1)
    return Moments(mean, left, right, packed_outer(mean).at[:, diagonal(mean.shape[1])].add(var))


def coupled_moments(mean: Sequence, cov: Blocks) -> Moments:
    """The moments of factors with covariances; their products give E ψ²."""
    i, j = upper(mean.shape[1])
    second = packed_outer(mean) + cov[:, i, j]
    twice = jnp.asarray(np.where(i == j, 1.0, 2.0), mean.dtype)
    return Moments(mean, second * twice[None], second, second)


def packed_outer(mean: Sequence) -> Upper:
    """The upper triangles of mean meanᵀ of every row."""
    i, j = upper(mean.shape[1])
    return mean[:, i] * mean[:, j]


def unpack_triangles(triangles: Upper) -> Blocks:
    """Symmetric blocks from their upper triangles."""
    k = (round((8 * triangles.shape[1] + 1) ** 0.5) - 1) // 2
    i, j = upper(k)
    place = np.zeros((k, k), int)
    place[i, j] = place[j, i] = np.arange(len(i))
    return triangles[:, place]


def upper(k: int) -> tuple[np.ndarray, np.ndarray]:
    """The row and column indices of the upper triangle."""
    return np.triu_indices(k)


def diagonal(k: int) -> np.ndarray:
    """The positions of the diagonal among the entries of an upper triangle."""
    i, j = upper(k)
    return np.flatnonzero(i == j)
