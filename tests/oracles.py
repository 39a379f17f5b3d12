"""Textbook algorithms in dense NumPy and SciPy; they share no code with the library.

Formula numbers are those of Lambert, Bonnabel & Bach (2022), "R-VGA", unless marked L (2023, L-RVGA).
"""

import warnings
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


# Linear regression -------------------------------------------------------------------------------


def linear_posterior(mean, cov, x, y, variance, weight=None):
    """Mean and covariance of Bayesian linear regression in closed form."""
    weight = np.ones(len(y)) if weight is None else weight
    precision = np.linalg.inv(cov)
    new = precision + x.T @ (weight[:, None] * x) / variance
    return np.linalg.solve(new, precision @ mean + x.T @ (weight * y) / variance), np.linalg.inv(
        new
    )


def linear_log_evidence(mean, cov, x, y, variance):
    """log ∫ p(y | X θ) N(θ; mean, cov) dθ."""
    return stats.multivariate_normal(x @ mean, x @ cov @ x.T + variance * np.eye(len(y))).logpdf(y)


def discounted_ridge(mean, cov, x, y, variance, forgetting):
    """Exponentially weighted ridge: row t of n counts λ^(n − t), the prior λⁿ."""
    n = len(y)
    discount = forgetting ** np.arange(n - 1, -1, -1.0)
    precision = forgetting**n * np.linalg.inv(cov)
    new = precision + x.T @ (discount[:, None] * x) / variance
    shift = precision @ mean + x.T @ (discount * y) / variance
    return np.linalg.solve(new, shift), np.linalg.inv(new)


def kalman_filter(mean, cov, x, y, variance, process_noise=0.0):
    """Predict and correct, row by row, with the gain (35-38); also the normalised innovations."""
    innovations = 0.0
    for row, label in zip(x, y, strict=True):
        cov = cov + process_noise * np.eye(len(mean))
        spread = row @ cov @ row + variance
        gain = cov @ row / spread
        innovations += (label - row @ mean) ** 2 / spread
        mean = mean + gain * (label - row @ mean)
        cov = (np.eye(len(mean)) - np.outer(gain, row)) @ cov
    return mean, cov, innovations


def online_newton(mean, cov, x, y, variance):
    """θ ← θ + H⁻¹ ∇ log p with H the sum of all Hessians so far and the prior's."""
    hessian = np.linalg.inv(cov)
    for row, label in zip(x, y, strict=True):
        hessian = hessian + np.outer(row, row) / variance
        mean = mean + np.linalg.solve(hessian, row * (label - row @ mean) / variance)
    return mean, np.linalg.inv(hessian)


# Filters for generalised linear models -----------------------------------------------------------


def run_sites(site, mean, cov, x, y):
    """μ ← μ + ξ P x, P⁻¹ ← P⁻¹ + γ x xᵀ for a map site(y, x'μ, x'Px) → (ξ, γ)."""
    for row, label in zip(x, y, strict=True):
        step, curvature = site(label, row @ mean, row @ cov @ row)
        mean = mean + step * cov @ row
        cov = np.linalg.inv(np.linalg.inv(cov) + curvature * np.outer(row, row))
        cov = (cov + cov.T) / 2
    return mean, cov


def online_natural_gradient(gradient, fisher, mean, cov, x, y):
    """(54): J ← J t/(t + 1) + F/(t + 1), μ ← μ + J⁻¹ ∇ log p/(t + 1), J₀ = P₀⁻¹; P is J⁻¹/(t + 1)."""
    information = np.linalg.inv(cov)
    for t, (row, label) in enumerate(zip(x, y, strict=True), 1):
        rate = 1 / (t + 1)
        information = (1 - rate) * information + rate * fisher(row @ mean) * np.outer(row, row)
        mean = mean + rate * np.linalg.solve(information, gradient(label, row @ mean) * row)
    return mean, np.linalg.inv(information) / (len(y) + 1)


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
