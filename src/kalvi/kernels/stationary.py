"""Kernels that depend on the distance between two rows.

The squared distance, in units of the length scales, comes from one matrix product of centred inputs: a² +
b² − 2ab, with an error of at most 2 (i + 2) eps (a² + b²) for i inputs. Values below this error are set to
zero, so that equal rows have distance zero exactly. No array has more than n · m entries.
"""

from abc import abstractmethod

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from kalvi.kernels.kernel import (
    Cross,
    Kernel,
    Number,
    Numbers,
    Others,
    PerRow,
    Rows,
    as_text,
    checked_positive,
    per_input,
)


class Stationary(Kernel):
    """A function of the distance between two rows in units of the length scales; its variance is 1."""

    length_scale: eqx.AbstractVar[Numbers]

    @abstractmethod
    def profile(self, square: Cross) -> Cross:
        """The covariance at a squared distance."""

    def __call__(self, x: Rows, z: Others) -> Cross:
        scale = per_input(self, "length_scale", x)
        x, z = _centred(x, z)
        return self.profile(_squares(x / scale, z / scale))

    def diagonal(self, x: Rows) -> PerRow:
        return jnp.ones(x.shape[0], x.dtype)


class RBF(Stationary):
    """exp(−d²/2), d = |(x − z) / length_scale|: smooth functions.

    Parameters
    ----------
    length_scale : positive number, or a vector with one for each input (ARD)

    Examples
    --------
    >>> from kalvi import kernels
    >>> 1.44 * kernels.RBF([2.0, 0.5]) + kernels.White(0.1)
    1.44 * RBF(length_scale=[2, 0.5]) + White(variance=0.1)
    """

    length_scale: Numbers

    def __init__(self, length_scale=1.0):
        self.length_scale = checked_positive(length_scale, "RBF's length_scale", vector=True)

    def profile(self, square: Cross) -> Cross:
        return jnp.exp(-square / 2)

    def __repr__(self) -> str:
        return as_text(self, "length_scale")


class Matern12(Stationary):
    """exp(−d): continuous functions without derivatives (the Ornstein–Uhlenbeck process)."""

    length_scale: Numbers

    def __init__(self, length_scale=1.0):
        self.length_scale = checked_positive(length_scale, "Matern12's length_scale", vector=True)

    def profile(self, square: Cross) -> Cross:
        return jnp.exp(-_root(square))

    def __repr__(self) -> str:
        return as_text(self, "length_scale")


class Matern32(Stationary):
    """(1 + √3 d) exp(−√3 d): functions with one derivative."""

    length_scale: Numbers

    def __init__(self, length_scale=1.0):
        self.length_scale = checked_positive(length_scale, "Matern32's length_scale", vector=True)

    def profile(self, square: Cross) -> Cross:
        d = _root(3 * square)
        return (1 + d) * jnp.exp(-d)

    def __repr__(self) -> str:
        return as_text(self, "length_scale")


class Matern52(Stationary):
    """(1 + √5 d + 5d²/3) exp(−√5 d): functions with two derivatives."""

    length_scale: Numbers

    def __init__(self, length_scale=1.0):
        self.length_scale = checked_positive(length_scale, "Matern52's length_scale", vector=True)

    def profile(self, square: Cross) -> Cross:
        d = _root(5 * square)
        return (1 + d + d**2 / 3) * jnp.exp(-d)

    def __repr__(self) -> str:
        return as_text(self, "length_scale")


class RationalQuadratic(Stationary):
    """(1 + d²/(2 alpha))^(−alpha): a mixture of RBF kernels with many length scales, wider for smaller
    alpha."""

    alpha: Number
    length_scale: Numbers

    def __init__(self, length_scale=1.0, alpha=1.0):
        self.length_scale = checked_positive(
            length_scale, "RationalQuadratic's length_scale", vector=True
        )
        self.alpha = checked_positive(alpha, "RationalQuadratic's alpha")

    def profile(self, square: Cross) -> Cross:
        alpha = jnp.asarray(self.alpha, square.dtype)
        return jnp.exp(-alpha * jnp.log1p(square / (2 * alpha)))

    def __repr__(self) -> str:
        return as_text(self, "length_scale", "alpha")


class Periodic(Kernel):
    """∏ᵢ exp(−2 sin²(π (xᵢ − zᵢ)/periodᵢ) / length_scaleᵢ²), MacKay (1998), a factor for each input.

    It is the RBF kernel of points on circles, since |e^{ia} − e^{ib}|² = 4 sin²((a − b)/2). With several
    inputs it differs from scikit-learn's ExpSineSquared, which takes the sine of the Euclidean distance
    and is then not positive semidefinite.
    """

    length_scale: Numbers
    period: Numbers

    def __init__(self, length_scale=1.0, period=1.0):
        self.length_scale = checked_positive(length_scale, "Periodic's length_scale", vector=True)
        self.period = checked_positive(period, "Periodic's period", vector=True)

    def __call__(self, x: Rows, z: Others) -> Cross:
        scale, period = (per_input(self, name, x) for name in ("length_scale", "period"))

        def circles(rows: Rows) -> Float[Array, "n j"]:
            angle = 2 * np.pi * (rows / period)
            return jnp.concatenate([jnp.cos(angle) / scale, jnp.sin(angle) / scale], axis=1)

        x, z = _centred(x, z)
        return jnp.exp(-_squares(circles(x), circles(z)) / 2)

    def diagonal(self, x: Rows) -> PerRow:
        return jnp.ones(x.shape[0], x.dtype)

    def __repr__(self) -> str:
        return as_text(self, "length_scale", "period")


def _centred(x: Rows, z: Others) -> tuple[Rows, Others]:
    """Both sets of rows, less the mean of the second, so that differences keep their digits."""
    centre = jax.lax.stop_gradient(jnp.mean(z, axis=0))[None]
    return x - centre, z - centre


def _squares(a: Float[Array, "n j"], b: Float[Array, "m j"]) -> Cross:
    """|a − b|² of all pairs; zero if it is within rounding of zero."""
    sizes = jnp.sum(a**2, axis=1)[:, None] + jnp.sum(b**2, axis=1)[None, :]
    square = sizes - 2 * (a @ b.T)
    rounding = 2 * (a.shape[1] + 2) * float(jnp.finfo(a.dtype).eps)
    return jnp.where(square > rounding * sizes, square, 0)


def _root(square: Cross) -> Cross:
    """√square, with a derivative of zero at zero."""
    away = square > 0
    return jnp.where(away, jnp.sqrt(jnp.where(away, square, 1)), 0)
