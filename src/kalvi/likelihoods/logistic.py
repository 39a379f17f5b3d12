"""Gaussian integrals of the logistic function, and the implicit step they define.

Everything is written for the *margin* a = ±f, which is positive if the label is predicted correctly, with a
~ N(m, v). There are two families of integrals of the tail σ(−a):

`InverseProbit` (Lambert, Bonnabel & Bach 2022, eqs. 58-63), closed but approximate (0.018):

    E σ(−a) ≈ σ(−k m),   −dE/dm = k σ′(k m),   k = β/√(v + β²),   β² = 8/π.

`ScaleMixture`, σ(x) ≈ Σ pᵢ Φ(sᵢ x), exact to 1e-8 for every m and v, and derivatives of one function:

    E σ(−a) = Σ pᵢ Φ(−uᵢ),   −dE/dm = Σ pᵢ φ(uᵢ)/wᵢ,   wᵢ = √(v + 1/sᵢ²),   uᵢ = m/wᵢ.

The implicit R-VGA step (eqs. 64-66, with a weight ω) is the (m, v) that satisfies

    m = m₀ + ω v₀ S(m, v),    v = v₀ / (1 + ω v₀ G(m, v)),    S = E σ(−a),  G = −dS/dm.

The root is unique. It is mirrored so that m ≥ 0 (S(−m) = 1 − S(m)) and sought in u = m/Ω, Ω² = v + β²,
where S and ΩG hardly depend on v: given b = ω v₀ ΩG/β the second equation is a cubic in Ω/β with one root
above 1, and the first is a scalar equation in u. Newton steps solve it: on the logarithm right of the root,
where S decays like a Gaussian, and plain ones left of it. Rows with an ordinary variance need no search:
Newton's method from the explicit step solves them.
"""

from abc import abstractmethod
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import log_ndtr
from jaxtyping import Array, Bool, Float

from kalvi.numerics.loops import search
from kalvi.numerics.namespaces import AnyArray, Scalar, is_jax, namespace_of, scipy_of
from kalvi.numerics.platforms import is_traced_for_numpy

Values = Float[AnyArray, "*n"]
Mixed = Float[AnyArray, "*n 8"]

BETA = float(np.sqrt(8 / np.pi))
MIXTURE = np.array(
    [
        (0.001643157945195562, 0.2400053453921385),
        (0.03054814682544402, 0.3119498649522583),
        (0.138221616480501, 0.4008540422615602),
        (0.2794278698860069, 0.514174186777355),
        (0.3122082727619788, 0.6580510244591786),
        (0.1872638680977984, 0.8391727962797073),
        (0.04779240042892401, 1.068707779356095),
        (0.002894667574151283, 1.374966381149815),
    ]
)
"""(pᵢ, sᵢ) of σ(x) ≈ Σ pᵢ Φ(sᵢ x): sup error 3e-9, and 1e-8 for the derivative and the softplus."""
MILLS_CENTRE, MILLS_SHIFT = 4.5, 2.25
MILLS = (
    1.434851417983716, -0.7253823476812117, 0.43809582567339556, -0.1961266693076347,
    0.05076297609729277, 0.006121573645795148, -0.013285434599116243, 0.005934507266656431,
    -0.0006294186592311567, -0.0005631101860584467, 0.00021462988074285656,
    4.023891180893034e-05, -3.6730697548838565e-05, -2.8806781890707067e-06,
    5.996848260080749e-06, 3.420158175980525e-07, -9.90851305121353e-07,
    -6.704240335212514e-08, 1.4605694006421745e-07, 8.575484264887476e-09,
    -1.3253208223152233e-08,
)  # fmt: skip
"""(u + 2.25) Φ(−u)/φ(u) of u ≥ 0 as a polynomial in (u − 4.5)/(u + 4.5), fitted at Chebyshev's points; the
relative error is below 4e-15."""
CUBIC_STEPS = 5
TAIL_STEPS = 24  # solve variances up to 1e18 (14 would do up to 1e10)
LAGGED_STEPS = 2
NEWTON_STEPS = 4  # from the explicit step, solve margins of a variance below about 10
POLISH_STEPS = 8  # after the search; fewer do not solve some rows of weights above 300


class Tail(NamedTuple):
    """S = E σ(−a), G = −∂S/∂m, and the further derivatives that Newton's method needs."""

    value: Scalar  # S
    slope: Scalar  # G
    bend: Scalar  # −∂G/∂m
    value_by_var: Scalar  # ∂S/∂v
    slope_by_var: Scalar  # ∂G/∂v


class Margin(NamedTuple):
    """The solved step: S and G under the new distribution of the margin, and whether the equations hold."""

    tail: Scalar
    slope: Scalar
    solved: Bool[Array, ""]


class LogisticIntegrals(eqx.Module):
    """A way to integrate the logistic function against a Gaussian."""

    @abstractmethod
    def tail(self, mean: Scalar, var: Scalar) -> Tail:
        """E σ(−a) and its derivatives for the margin a ~ N(mean, var)."""

    @abstractmethod
    def value(self, mean: Values, var: Values) -> Values:
        """E σ(−a) without derivatives, for any number of margins."""

    @abstractmethod
    def _near(self, step: "_Step", far: Bool[Array, ""]) -> tuple[Scalar, Scalar]:
        """m and v close enough for Newton's method to converge, from any start; if not `far`, without a
        search."""

    def implicit(
        self, mean: Scalar, var: Scalar, weight: Scalar, *, thorough: bool = True
    ) -> Margin:
        """The implicit step from the margin's current distribution; only Newton's method if not
        `thorough`."""
        step = _mirror(mean, var, weight)
        everywhere = jnp.ones_like(step.right)
        point = self._polish(step, everywhere, step.start, step.var, NEWTON_STEPS, explicitly=True)
        if thorough:
            far = ~_is_solved(point)
            near = partial(self._near, step, far)
            point = jax.lax.cond(
                far,
                lambda: self._polish(step, far, *near(), POLISH_STEPS, explicitly=False),
                lambda: point,
            )
        return _unmirror(step, point)

    def _polish(
        self,
        step: "_Step",
        wanted: Bool[Array, ""],
        m: Scalar,
        v: Scalar,
        most: int,
        *,
        explicitly: bool,
    ) -> "_Point":
        """Newton's method from m and v until the equations hold; the first step may be the explicit one.

        Where rows go side by side, and both branches of a condition are taken, only if some row wants it.
        """
        zero = jnp.zeros_like(m)

        def advance(point: _Point) -> _Point:
            m, v, *_ = point
            tail = self.tail(m, v)
            new_m, new_v = _newton(step, m, v, tail)
            if explicitly:
                first = point.off == jnp.inf
                explicit_m, explicit_v = _explicit(step, tail)
                new_m, new_v = (
                    jnp.where(first, explicit_m, new_m),
                    jnp.where(first, explicit_v, new_v),
                )
            value = tail.value - tail.slope * (new_m - m) + tail.value_by_var * (new_v - v)
            slope = tail.slope - tail.bend * (new_m - m) + tail.slope_by_var * (new_v - v)
            return _Point(new_m, new_v, value, slope, _residual(step, m, v, tail.value, tail.slope))

        start = _Point(m, v, zero, zero, jnp.where(wanted, jnp.inf, zero))
        return search(lambda point: ~_is_solved(point), advance, start, most + 1)


class InverseProbit(LogisticIntegrals):
    """The closed forms of the R-VGA paper; dk/dv = −k³/(2β²)."""

    def value(self, mean: Values, var: Values) -> Values:
        xp = namespace_of(mean, var)
        return scipy_of(mean, var).special.expit(-BETA * mean / xp.sqrt(var + BETA**2))

    def tail(self, mean: Scalar, var: Scalar) -> Tail:
        k, value = BETA * jax.lax.rsqrt(var + BETA**2), self.value(mean, var)
        slope = value * jax.nn.sigmoid(k * mean)
        tanh = 1 - 2 * value  # of k·mean/2
        k_by_var = -(k**3) / (2 * BETA**2)
        return Tail(
            value,
            k * slope,
            k**2 * slope * tanh,
            -slope * mean * k_by_var,
            slope * (1 - k * mean * tanh) * k_by_var,
        )

    def _near(self, step: "_Step", far: Bool[Array, ""]) -> tuple[Scalar, Scalar]:
        u, omega, slope = _solve_tail(_logistic_tail, step, far, TAIL_STEPS, _start(step))
        return u * omega, step.var / (1 + step.gain * slope)


class ScaleMixture(LogisticIntegrals):
    """The logistic function as eight normal distribution functions; exact to 1e-8."""

    def value(self, mean: Values, var: Values) -> Values:
        p, _, u = _mixture(mean, var)
        return (p * _normal_survival(u)).sum(axis=-1)

    def tail(self, mean: Scalar, var: Scalar) -> Tail:
        p, inverse, u = _mixture(mean, var)
        density = p * inverse * _normal_density(u)
        bend = jnp.sum(density * u * inverse)
        twist = jnp.sum(density * (u**2 - 1) * inverse**2)
        value = self.value(mean, var)
        return Tail(value, jnp.sum(density), bend, bend / 2, twist / 2)  # ∂/∂v = ½ ∂²/∂m²

    def _near(self, step: "_Step", far: Bool[Array, ""]) -> tuple[Scalar, Scalar]:
        u, omega, _ = _solve_tail(_normal_tail, step, far, TAIL_STEPS, _start(step))
        u, omega, slope = _solve_tail(self._scaled_tail, step, far, LAGGED_STEPS, (u, omega, omega))
        return u * omega, step.var / (1 + step.gain * slope)

    def _scaled_tail(self, u: Scalar, omega: Scalar) -> tuple[Scalar, Scalar, Scalar]:
        tail = self.tail(u * omega, jnp.maximum(omega**2 - BETA**2, 0))
        return tail.value, tail.slope * omega, -tail.bend * omega**2


def softplus(mean: Scalar, var: Scalar) -> Scalar:
    """E log(1 + eᵃ), a ~ N(mean, var)."""
    p, inverse, u = _mixture(mean, var)
    return jnp.sum(p * (mean * _normal_survival(-u) + _normal_density(u) / inverse))


def log_sigmoid(mean: Scalar, var: Scalar) -> Scalar:
    """log E σ(a), a ~ N(mean, var), with relative accuracy even if E σ(a) ≈ E eᵃ is tiny."""
    p, _, u = _mixture(mean, var)
    total = jnp.sum(p * _normal_survival(-u))
    tiny = 1e3 * jnp.finfo(total.dtype).tiny
    mixture = jnp.where(
        total > tiny, jnp.log(jnp.maximum(total, tiny)), jnp.log(p[0]) + log_ndtr(u[0])
    )
    # E σ = E eᵃ − E e²ᵃ + …, which is closer than the mixture if the first correction is below 1e-7
    return jnp.where(mean + 1.5 * var < -16, mean + var / 2, mixture)


def _mixture(mean: Values, var: Values) -> tuple[Float[AnyArray, "... 8"], Mixed, Mixed]:
    """The weights pᵢ, 1/wᵢ and uᵢ = mean/wᵢ along the last axis; the widest component first."""
    xp = namespace_of(mean, var)
    last = (1,) * mean.ndim + (-1,)
    p, s = (xp.asarray(column, mean.dtype).reshape(last) for column in MIXTURE.T)
    inverse = 1 / xp.sqrt(var[..., None] + s**-2)
    return p, inverse, mean[..., None] * inverse


class _Step(NamedTuple):
    """The mirrored problem m = start + gain S(m, v), v = var/(1 + gain G), m ≥ 0."""

    start: Scalar
    gain: Scalar  # weight · var
    var: Scalar
    bound: Scalar  # |m₀ + gain/2| ≥ m
    right: Array  # whether it was not mirrored


class _Point(NamedTuple):
    """The next point of a search, S and G there to first order, and the error of the equations before it.

    When they hold to half of the digits, the next step and the first order give the other half.
    """

    m: Scalar
    v: Scalar
    tail: Scalar  # S
    slope: Scalar  # G
    off: Scalar  # infinite before the first step


def _mirror(mean: Scalar, var: Scalar, weight: Scalar) -> _Step:
    gain = weight * var
    middle = mean + gain / 2
    right = middle >= 0
    return _Step(jnp.where(right, mean, -mean - gain), gain, var, jnp.abs(middle), right)


def _is_solved(point: _Point) -> Bool[Array, ""]:
    return point.off < float(jnp.finfo(point.tail.dtype).eps) ** 0.5


def _unmirror(step: _Step, point: _Point) -> Margin:
    tail = jnp.where(step.right, point.tail, 1 - point.tail)
    return Margin(tail, point.slope, _is_solved(point))


def _explicit(step: _Step, tail: Tail) -> tuple[Scalar, Scalar]:
    """m and v after the explicit step."""
    growth = 1 + step.gain * tail.slope
    return step.start + step.gain * tail.value / growth, step.var / growth


def _newton(step: _Step, m: Scalar, v: Scalar, tail: Tail) -> tuple[Scalar, Scalar]:
    """One Newton step on m − start − gain S = 0 and v (1 + gain G) − v₀ = 0."""
    growth = 1 + step.gain * tail.slope
    f1 = m - step.start - step.gain * tail.value
    f2 = v * growth - step.var
    j12 = -step.gain * tail.value_by_var
    j21 = -step.gain * v * tail.bend
    j22 = growth + step.gain * v * tail.slope_by_var
    scale = 1 / (growth * j22 - j12 * j21)
    new_v = v - (growth * f2 - j21 * f1) * scale
    return m - (f1 * j22 - j12 * f2) * scale, jnp.clip(new_v, v / 4, step.var)


def _residual(step: _Step, m: Scalar, v: Scalar, tail: Scalar, slope: Scalar) -> Scalar:
    """The errors of the two equations, relative to their terms."""
    scale = jnp.abs(step.start) + step.gain * tail + jnp.finfo(m.dtype).tiny
    first = jnp.abs(m - step.start - step.gain * tail) / scale
    second = jnp.abs(v - step.var / (1 + step.gain * slope)) / (
        v + BETA**2
    )  # v is used for nothing else
    return jnp.maximum(first, second)


def _start(step: _Step) -> tuple[Scalar, Scalar, Scalar]:
    """An upper bound on u: the smaller of the bounds by the logistic and by the normal tail."""
    v = step.var / (1 + step.gain / (4 * jnp.sqrt(1 + step.var / BETA**2)))
    omega = jnp.sqrt(v + BETA**2)
    k = BETA / omega
    tiny = jnp.finfo(v.dtype).tiny
    logistic = jnp.logaddexp(k * step.start, jnp.log(k * step.gain + tiny)) / BETA
    logistic = jnp.minimum(logistic, step.bound / omega)
    normal = jnp.hypot(
        jnp.maximum(step.start / omega, 0), jnp.sqrt(2 * jnp.log1p(step.gain / (2 * omega)))
    )
    return jnp.clip(logistic, 0, normal), omega, omega


def _solve_tail(
    scaled_tail: Callable[[Scalar, Scalar], tuple[Scalar, Scalar, Scalar]],
    step: _Step,
    far: Bool[Array, ""],
    steps: int,
    point: tuple[Scalar, Scalar, Scalar],
) -> tuple[Scalar, Scalar, Scalar]:
    """Newton steps in u on m − start = gain S, Ω following from the cubic; returns u, Ω and G.

    `scaled_tail(u, Ω)` gives S, ΩG and d(ΩG)/du at m = uΩ.
    """
    tiny = jnp.finfo(step.gain.dtype).tiny

    def advance(point):
        u, omega, _ = point
        value, density, density_slope = scaled_tail(u, omega)
        slope = density / omega
        b = step.gain * density / BETA
        w = _cubic(b, step.var / BETA**2)
        dw = -(w**2 - 1) * step.gain / BETA * density_slope / (2 * w**2 + b * w + b / w)
        omega = BETA * w
        travel = u * omega - step.start
        rise = omega + u * BETA * dw
        reach = step.gain * value
        plain = (travel - reach) / (rise + step.gain * density)
        ratio = jnp.maximum(travel, tiny) / jnp.maximum(reach, tiny)
        logarithmic = jnp.log(ratio) / (
            rise / jnp.maximum(travel, tiny) + density / jnp.maximum(value, tiny)
        )
        move = jnp.where((travel > reach) & (reach > tiny), logarithmic, plain)
        return jnp.where(u < move, u / 2, jnp.minimum(u - move, 2 * u + 1)), omega, slope

    return search(lambda _: far, advance, point, steps)


def _cubic(b: Scalar, n: Scalar) -> Scalar:
    """The root w ≥ 1 of (w² − 1)(w + b) = n w: Newton from above, monotone and without cancellation."""
    top = 1 + n + b
    w = 2 * top / (b + jnp.sqrt(b**2 + 4 * top))
    for _ in range(CUBIC_STEPS):
        w = (2 * w**3 + b * w**2 + b) / (3 * w**2 + 2 * b * w - 1 - n)
    return w


def _normal_survival(u: Values) -> Values:
    """Φ(−u). Compiled by the exponential that the density needs too, which saves most of the erfc."""
    if not is_jax(u) or is_traced_for_numpy():
        return scipy_of(u).special.erfc(u * np.sqrt(0.5).item()) / 2
    far = jnp.where(u < 0, -u, u)
    upper = _normal_density(u) * _mills_ratio(far)
    return jnp.where(u < 0, 1 - upper, upper)


def _mills_ratio(u: Float[Array, "*k"]) -> Float[Array, "*k"]:
    """Φ(−u)/φ(u) of u ≥ 0; even and odd powers apart, so that neither waits for the other."""
    t = 1 - 2 * MILLS_CENTRE / (u + MILLS_CENTRE)  # where u is infinite too
    even, odd = (_polynomial(MILLS[first::2], t**2) for first in (0, 1))
    return (even + t * odd) / (u + MILLS_SHIFT)


def _polynomial(coefficients: tuple[float, ...], x: Float[Array, "*k"]) -> Float[Array, "*k"]:
    total = jnp.full_like(x, coefficients[-1])
    for coefficient in coefficients[-2::-1]:
        total = total * x + coefficient
    return total


def _normal_density(u: Float[Array, "*k"]) -> Float[Array, "*k"]:
    return jnp.exp(-(u**2) / 2) / float(np.sqrt(2 * np.pi))


def _normal_tail(u: Scalar, omega: Scalar) -> tuple[Scalar, Scalar, Scalar]:
    density = _normal_density(u)
    return _normal_survival(u), density, -u * density


def _logistic_tail(u: Scalar, omega: Scalar) -> tuple[Scalar, Scalar, Scalar]:
    value = jax.nn.sigmoid(-BETA * u)
    slope = value * (1 - value)
    return value, BETA * slope, -(BETA**2) * slope * jnp.tanh(BETA * u / 2)
