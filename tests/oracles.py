"""Textbook algorithms in dense NumPy and SciPy; they share no code with the library.

Formula numbers are those of Lambert, Bonnabel & Bach (2022), "R-VGA", unless marked L (2023, L-RVGA).
"""

import warnings
from functools import lru_cache
from itertools import pairwise

import numpy as np
from scipy import integrate, linalg, optimize, special, stats

BETA = np.sqrt(8 / np.pi)


# Gaussians ---------------------------------------------------------------------------------------


def gaussian_kl(mean_q, cov_q, mean_p, cov_p):
    """KL(N(mean_q, cov_q) ‖ N(mean_p, cov_p))."""
    inverse, away = np.linalg.inv(cov_p), mean_p - mean_q
    logdets = np.linalg.slogdet(cov_p)[1] - np.linalg.slogdet(cov_q)[1]
    return (np.trace(inverse @ cov_q) + away @ inverse @ away - len(away) + logdets) / 2


def gaussian_w2(mean_q, cov_q, mean_p, cov_p):
    """The 2-Wasserstein distance, by matrix square roots."""
    half = linalg.sqrtm(cov_q)
    cross = linalg.sqrtm(half @ cov_p @ half)
    square = np.sum((mean_q - mean_p) ** 2) + np.trace(cov_q + cov_p - 2 * cross)
    return np.sqrt(np.real(square))


def add_rows(mean, cov, x, coefficients, curvature):
    """The mean and covariance after `absorb`, by inverting matrices."""
    precision = np.linalg.inv(cov) + x.T @ np.diag(curvature) @ x
    return mean + cov @ x.T @ coefficients, np.linalg.inv(precision)


# One-dimensional integrals -----------------------------------------------------------------------


def expect(fn, mean, var, points=()):
    """E[fn(f)], f ~ N(mean, var), by adaptive quadrature that breaks at the given points."""
    std = np.sqrt(var)
    cuts = {float(z) for p in points for z in [(p - mean) / std] if abs(z) < 12}
    edges = np.array(sorted({-12.0, -6.0, -2.0, 0.0, 2.0, 6.0, 12.0} | cuts))

    def panel(low, high):
        density = lambda z: fn(mean + std * z) * np.exp(-(z**2) / 2)  # noqa: E731
        return integrate.quad(density, low, high, epsabs=1e-15, epsrel=1e-12, limit=400)[0]

    with warnings.catch_warnings():
        # it says when rounding keeps it from the last digit it was asked for
        warnings.simplefilter("ignore", integrate.IntegrationWarning)
        total = sum(panel(*ends) for ends in pairwise(edges))
    return total / np.sqrt(2 * np.pi)


def around(centre, widths=(0.01, 0.1, 1, 10, 100, 1000)):
    """Points at which an integrand with a feature at `centre` should be cut."""
    return [centre, *(centre + s * w for w in widths for s in (-1, 1))]


# Integrals over several predictors -----------------------------------------------------------------

REACH, SIDE = 7.5, {2: 401, 3: 61}
"""How many deviations the grid reaches, what lies beyond weighs 1e-13, and its points along an axis.

The trapezoidal rule errs by e^(−2π a/h), h the distance of points and a that of the integrand's nearest
pole, in deviations. For a softmax of three classes h = 0.25 and a = π/s, s the deviation of a difference
of two f: that is 1e-34 for s = 1 and 2e-8 for s = 4.5. A normal density of deviation t adds e^(−2π² t²/h²),
with h = 0.04 for two outputs nothing for t > 0.08.
"""


@lru_cache
def _grid(dim):
    """Standard normal points and their weights."""
    line = np.linspace(-REACH, REACH, SIDE[dim])
    z = np.stack(np.meshgrid(*[line] * dim, indexing="ij"), -1).reshape(-1, dim)
    weight = np.exp(-np.sum(z**2, axis=1) / 2)
    return z, weight / weight.sum()


def expect_vector(fn, mean, cov):
    """E[fn(f)], f ~ N(mean, cov), on a fine grid; fn takes the points as rows, and may give arrays."""
    z, weight = _grid(len(mean))
    return np.tensordot(weight, fn(mean + z @ np.linalg.cholesky(cov).T), 1)


# Linear regression -------------------------------------------------------------------------------
#
# Inputs are the rows of observations of one output, or of several a matrix of rows for each: arrays of
# shape (n, d) or (n, c, d). The variance of the noise is a number, or one for each output.


def _by_output(x, y, variance):
    x = x if np.ndim(x) == 3 else np.asarray(x)[:, None, :]
    y = np.reshape(y, x.shape[:2])
    return x, y, np.broadcast_to(variance, y.shape)


def linear_posterior(mean, cov, x, y, variance, weight=None):
    """Mean and covariance of Bayesian linear regression in closed form."""
    x, y, variance = _by_output(x, y, variance)
    share = (np.ones(len(y)) if weight is None else weight)[:, None] / variance
    precision = np.linalg.inv(cov)
    new = precision + np.einsum("nci,nc,ncj->ij", x, share, x)
    shift = precision @ mean + np.einsum("nci,nc->i", x, share * y)
    return np.linalg.solve(new, shift), np.linalg.inv(new)


def linear_log_evidence(mean, cov, x, y, variance):
    """log ∫ p(y | X θ) N(θ; mean, cov) dθ."""
    x, y, variance = _by_output(x, y, variance)
    whole = x.reshape(-1, len(mean))
    spread = whole @ cov @ whole.T + np.diag(variance.ravel())
    return stats.multivariate_normal(whole @ mean, spread).logpdf(y.ravel())


def discounted_ridge(mean, cov, x, y, variance, forgetting):
    """Exponentially weighted ridge: row t of n counts λ^(n − t), the prior as much as ever."""
    discount = forgetting ** np.arange(len(y) - 1, -1, -1.0)
    return linear_posterior(mean, cov, x, y, variance, discount)


def product_of_powers(one, keep, other, strength):
    """Mean and covariance of N(one)^keep · N(other)^strength."""
    precisions = [np.linalg.inv(cov) for _, cov in (one, other)]
    precision = keep * precisions[0] + strength * precisions[1]
    shift = keep * precisions[0] @ one[0] + strength * precisions[1] @ other[0]
    return np.linalg.solve(precision, shift), np.linalg.inv(precision)


def kalman_filter(mean, cov, x, y, variance, keep=1.0):
    """Predict and correct, row by row, with the gain (35-38); also the normalised innovations.

    Before each row the parameters go `keep` of the way from the prior mean, within the prior: with
    an array, each its own, and the noise that keeps their variances is independent.
    """
    mean0, innovations = mean, 0.0
    keep = keep * np.ones(len(mean))
    share = 1 - np.outer(keep, keep)
    added = share * (cov if np.ptp(keep) == 0 else np.diag(np.diag(cov)))
    for row, label, noise in zip(*_by_output(x, y, variance), strict=True):
        mean = mean0 + keep * (mean - mean0)
        cov = np.outer(keep, keep) * cov + added
        spread, away = row @ cov @ row.T + np.diag(noise), label - row @ mean
        gain = np.linalg.solve(spread, row @ cov).T
        innovations += away @ np.linalg.solve(spread, away)
        mean = mean + gain @ away
        cov = cov - gain @ row @ cov
    return mean, cov, innovations


def diagonal_filter(mean, var, x, y, variance):
    """The same with a diagonal covariance, which keeps the diagonal of the precision."""
    for row, label, noise in zip(*_by_output(x, y, variance), strict=True):
        spread = (row * var) @ row.T + np.diag(noise)
        mean = mean + var * (row.T @ np.linalg.solve(spread, label - row @ mean))
        var = 1 / (1 / var + (1 / noise) @ row**2)
    return mean, var


def online_newton(mean, cov, x, y, variance):
    """θ ← θ + H⁻¹ ∇ log p with H the sum of all Hessians so far and the prior's."""
    hessian = np.linalg.inv(cov)
    for row, label in zip(x, y, strict=True):
        hessian = hessian + np.outer(row, row) / variance
        mean = mean + np.linalg.solve(hessian, row * (label - row @ mean) / variance)
    return mean, np.linalg.inv(hessian)


# Filters for generalised linear models -----------------------------------------------------------


def run_sites(site, mean, cov, x, y):
    """μ ← μ + ξ P x, P⁻¹ ← P⁻¹ + γ x xᵀ for a map site(y, x'μ, x'Px) → (ξ, γ).

    Of several outputs x is a matrix, its rows one for each, ξ a vector and γ a matrix.
    """
    for row, label in zip(x, y, strict=True):
        step, curvature = site(label, row @ mean, row @ cov @ row.T)
        rows = np.atleast_2d(row)
        mean = mean + cov @ rows.T @ np.atleast_1d(step)
        cov = np.linalg.inv(np.linalg.inv(cov) + rows.T @ np.atleast_2d(curvature) @ rows)
        cov = (cov + cov.T) / 2
    return mean, cov


def online_natural_gradient(gradient, fisher, mean, cov, x, y):
    """(54): J ← J t/(t + 1) + F/(t + 1), μ ← μ + J⁻¹ ∇ log p/(t + 1), J₀ = P₀⁻¹; P is J⁻¹/(t + 1)."""
    information = np.linalg.inv(cov)
    for t, (row, label) in enumerate(zip(x, y, strict=True), 1):
        rate, rows, f = 1 / (t + 1), np.atleast_2d(row), row @ mean
        fresh = rows.T @ np.atleast_2d(fisher(f)) @ rows
        information = (1 - rate) * information + rate * fresh
        slope = rows.T @ np.atleast_1d(gradient(label, f))
        mean = mean + rate * np.linalg.solve(information, slope)
    return mean, np.linalg.inv(information) / (len(y) + 1)


def gain_after(gradient, curvature, cov):
    """(I + Γ V)⁻¹ g for vectors, by solving."""
    return np.linalg.solve(np.eye(len(gradient)) + curvature @ cov, gradient)


def inverse_probit(m, v):
    """(58, 62): E σ(f) and E σ'(f) of the paper for f ~ N(m, v)."""
    k = BETA / np.sqrt(v + BETA**2)
    return special.expit(k * m), k * special.expit(k * m) * special.expit(-k * m)


def ekf_site(y, m, v):
    """(81)."""
    gamma = special.expit(m) * special.expit(-m)
    return (y - special.expit(m)) / (1 + gamma * v), gamma


def explicit_site(y, m, v):
    """(78-80)."""
    p, gamma = inverse_probit(m, v)
    return (y - p) / (1 + gamma * v), gamma


def qkf_site(y, m, v):
    """(89-90)."""
    z = np.sqrt(v + m**2)
    gamma = np.tanh(z / 2) / (2 * z)
    return (y - 0.5 - gamma * m) / (1 + gamma * v), gamma


def mirror_prox_site(y, m, v):
    """(L 139-140) with the term they drop: an explicit look-ahead, then a corrected step."""
    first, gamma = explicit_site(y, m, v)
    ahead = m + v * first
    p, gamma = inverse_probit(ahead, v / (1 + gamma * v))
    return (y - p + gamma * (ahead - m)) / (1 + gamma * v), gamma


def implicit_site(y, m0, v0):
    """(64-66) by nested bracketing: the mean for a given variance, then the variance."""

    def mean_at(v):
        def off(m):
            return m - m0 - v0 * (y - inverse_probit(m, v)[0])

        return optimize.brentq(off, m0 - v0 - 1, m0 + v0 + 1, xtol=1e-15, rtol=1e-15)

    def off(log_v):
        v = np.exp(log_v)
        return log_v - np.log(v0) + np.log1p(v0 * inverse_probit(mean_at(v), v)[1])

    log_v = optimize.brentq(off, np.log(v0) - np.log1p(v0), np.log(v0) + 1e-9, xtol=1e-15)
    p, gamma = inverse_probit(mean_at(np.exp(log_v)), np.exp(log_v))
    return y - p, gamma


# Batch variational approximation -----------------------------------------------------------------


def batch_elbo(log_prob, mean, cov, prior_mean, prior_cov, x, y, nodes=80):
    """The evidence lower bound by Gauss–Hermite quadrature (for predictors that are not wide)."""
    z, w = np.polynomial.hermite_e.hermegauss(nodes)
    m, s = x @ mean, np.sqrt(np.einsum("ni,ij,nj->n", x, cov, x))
    values = log_prob(m[:, None] + s[:, None] * z[None, :], np.asarray(y)[:, None])
    fit = np.sum(values @ w) / np.sqrt(2 * np.pi)
    return fit - gaussian_kl(mean, cov, prior_mean, prior_cov)


def batch_vga(log_prob, slope, bend, prior_mean, prior_cov, x, y, nodes=80):
    """The maximiser of `batch_elbo` over means and Cholesky factors, by L-BFGS from the prior.

    `slope` and `bend` are the first two derivatives of log_prob(f, y) in f.
    """
    d = len(prior_mean)
    z, w = np.polynomial.hermite_e.hermegauss(nodes)
    w = w / w.sum()
    lower, inverse = np.tril_indices(d), np.linalg.inv(prior_cov)

    def unpack(u):
        root = np.zeros((d, d))
        root[lower] = u[d:]
        root[np.diag_indices(d)] = np.exp(np.diag(root))
        return u[:d], root

    def loss(u):
        mean, root = unpack(u)
        cov = root @ root.T
        s = np.sqrt(np.einsum("ni,ij,nj->n", x, cov, x))
        f = (x @ mean)[:, None] + s[:, None] * z[None, :]
        g, h = slope(f, y[:, None]) @ w, bend(f, y[:, None]) @ w
        by_mean = x.T @ g - inverse @ (mean - prior_mean)
        by_cov = (x.T @ (h[:, None] * x) - inverse) / 2
        by_root = 2 * by_cov @ root
        by_root[np.diag_indices(d)] *= np.diag(root)
        by_root[np.diag_indices(d)] += 1
        value = batch_elbo(log_prob, mean, cov, prior_mean, prior_cov, x, y, nodes)
        return -value, -np.concatenate([by_mean, by_root[lower]])

    root = np.linalg.cholesky(prior_cov)
    root[np.diag_indices(d)] = np.log(np.diag(root))
    start = np.concatenate([prior_mean, root[lower]])
    options = {"maxiter": 5000, "maxfun": 20000, "ftol": 1e-16, "gtol": 1e-9}
    found = optimize.minimize(loss, start, jac=True, method="L-BFGS-B", options=options)
    mean, root = unpack(found.x)
    return mean, root @ root.T, -found.fun


def factor_analysis_em(s, factor, diag, loops):
    """Dense EM for factor analysis towards the covariance s (Rubin & Thayer)."""
    for _ in range(loops):
        scaled = factor / diag[:, None]
        inverse = np.linalg.inv(np.eye(factor.shape[1]) + factor.T @ scaled)
        weights = inverse @ scaled.T  # E[z | v] = weights v
        second = inverse + weights @ s @ weights.T
        factor = s @ weights.T @ np.linalg.inv(second)
        diag = np.diag(s - factor @ weights @ s).copy()
    return factor, diag
