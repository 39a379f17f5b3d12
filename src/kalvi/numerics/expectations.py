"""Integrals against a scalar Gaussian, f ~ N(mean, var).

`panels` is the library's quadrature: Gauss–Legendre on panels that cover mean ± 9 std evenly and
crowd geometrically around one point of interest (the kink of a probit, the peak of a Student-t), so
that a feature a million times narrower than the Gaussian is still resolved. `gauss_hermite` and
`sigma_points` serve integrands that are smooth on the Gaussian's own scale.
"""

from collections.abc import Callable
from itertools import combinations

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import log_ndtr
from jaxtyping import Array, Float

from kalvi.numerics.namespaces import Scalar

REACH = 9.0
"""Standard deviations covered by `panels`; the mass beyond is 2e-19."""
EVEN_BREAKS = np.linspace(-REACH, REACH, 9)
GEOMETRIC_BREAKS = np.concatenate([[0.0], 3.0 ** np.arange(-1, 14)])
NODES, NODE_WEIGHTS = np.polynomial.legendre.leggauss(10)


def panels(
    mean: Scalar, std: Scalar, centre: Scalar, width: Scalar
) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
    """Points f and weights (which sum to one) for E[fn(f)], where fn has a feature at centre ± width."""
    std = jnp.maximum(std, jnp.finfo(std.dtype).tiny)
    offsets = jnp.asarray(np.concatenate([-GEOMETRIC_BREAKS, GEOMETRIC_BREAKS]), std.dtype)
    around = (centre + width * offsets - mean) / std
    breaks = jnp.concatenate([jnp.asarray(EVEN_BREAKS, std.dtype), jnp.clip(around, -REACH, REACH)])
    breaks = jnp.sort(breaks)
    half = (breaks[1:] - breaks[:-1]) / 2
    z = (breaks[:-1] + half)[:, None] + half[:, None] * jnp.asarray(NODES, std.dtype)[None, :]
    weights = half[:, None] * jnp.asarray(NODE_WEIGHTS, std.dtype)[None, :] * jnp.exp(-(z**2) / 2)
    return mean + std * z.ravel(), (weights / jnp.sum(weights)).ravel()


def log_expect_exp(
    fn: Callable[[Scalar], Scalar], mean: Scalar, std: Scalar, centre: Scalar, width: Scalar
) -> Scalar:
    """log E[exp fn(f)], where exp fn has a peak at centre ± width."""
    points, weights = panels(mean, std, centre, width)
    return jax.nn.logsumexp(jax.vmap(fn)(points), b=weights)


def gauss_hermite(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights of E[fn(z)], z ~ N(0, 1), exact for polynomials of degree 2n − 1."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(n)
    return nodes, weights / weights.sum()


def sigma_points(dim: int) -> tuple[np.ndarray, np.ndarray]:
    """Points (n, dim) and weights for z ~ N(0, I), exact for polynomials of degree 5.

    2 dim² + 1 points: the origin, ±√3 along each axis and ±√3 along each pair of axes.
    """
    axis = np.sqrt(3.0) * np.eye(dim)
    pairs = [
        s * axis[i] + t * axis[j]
        for i, j in combinations(range(dim), 2)
        for s in (1, -1)
        for t in (1, -1)
    ]
    points = np.concatenate([np.zeros((1, dim)), axis, -axis, np.reshape(pairs, (-1, dim))])
    weights = np.full(len(points), 1 / 36)
    weights[: 2 * dim + 1] = (4 - dim) / 18
    weights[0] = 1 + (dim**2 - 7 * dim) / 18
    return points, weights


def mills_ratio(a: Scalar) -> tuple[Scalar, Scalar]:
    """h = φ(a)/Φ(a) and h + a; far in the left tail by the continued fraction, which does not cancel."""
    near = jnp.maximum(a, -8.0)
    direct = jnp.exp(-(near**2) / 2 - log_ndtr(near)) / float(np.sqrt(2 * np.pi))
    x = jnp.maximum(-a, 8.0)
    fraction = x
    for level in range(16, 1, -1):
        fraction = x + level / fraction
    excess = jnp.where(a < -8, 1 / fraction, direct + a)
    return jnp.where(a < -8, x + 1 / fraction, direct), excess
