"""LO-FI (Chang et al. 2023, "Low-rank extended Kalman filtering for online learning of neural networks").

Its posterior has the precision Υ + W Wᵀ as well. A block of rows makes W̃ = [W, Xᵀ √γ]; LO-FI keeps the
p leading singular vectors of W̃ itself (ours: of Ψ^{-1/2} W̃, shrunk) and adds the diagonal of what it
drops to Υ. The mean moves by the extended Kalman filter with the precision before truncation, as here.
So LO-FI is the rule `RVGA(likelihood, EKF())` with this projection, and its steady (drift-free) form.
"""

import jax.numpy as jnp

from kalvi.numerics import linalg, projections
from kalvi.numerics.projections import Projection, ProjectionTarget


class LoFi(Projection):
    """Truncation by singular values in the plain metric."""

    def start(self, target: ProjectionTarget) -> projections._FirstIterate:
        """W₁ = W̃ V_p, ψ₁ = ψ + diag(W̃ Q Qᵀ W̃ᵀ)."""
        plain = projections.gram(target.factor, jnp.ones_like(target.diag), target.x)
        mixed = linalg.scale_blocks_transposed(target.scale, plain.mixed.T).T
        rows = linalg.scale_blocks_transposed(
            target.scale, linalg.scale_blocks_transposed(target.scale, plain.rows).T
        )
        vectors = jnp.linalg.eigh(jnp.block([[plain.factor, mixed], [mixed.T, rows]]))[1]
        dropped, kept = jnp.split(vectors, [target.x.shape[0]], axis=1)
        shared = jnp.zeros(kept.shape[1], kept.dtype)
        return projections._FirstIterate(kept, shared, dropped, jnp.asarray(False))

    def steps(self, target: ProjectionTarget) -> int:
        return 0
