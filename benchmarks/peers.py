"""What others would run instead of streaming logistic regression, for a prior N(0, VARIANCE I).

Each is a function of rows x and labels y that gives a function: the probabilities of new rows.
"""

import functools
import warnings

import jax
import jax.numpy as jnp
import numpy as np
from bayesianbandits import BayesianGLM, RVGAApproximator
from river.linear_model import LogisticRegression
from scipy.optimize import root
from scipy.special import expit
from sklearn.linear_model import SGDClassifier

BETA2 = 8 / np.pi
VARIANCE = 4.0
"""The prior variance of every weight, for every contender that has a prior."""


def numpy_rvga(x, y):
    """Implicit R-VGA as its paper describes it (eqs. 73-77), row by row."""
    d = x.shape[1]
    mean, cov = np.zeros(d), VARIANCE * np.eye(d)
    for row, label in zip(x, y, strict=True):
        cov_x = cov @ row
        mean0, var0 = row @ mean, row @ cov_x
        alpha, var = solve_implicit(mean0, var0, label)
        k = np.sqrt(BETA2 / (var + BETA2))
        p = expit(k * alpha)
        mean = mean + cov_x * (label - p)
        cov = cov - np.outer(cov_x, cov_x) / (1 / (k * p * (1 - p)) + var0)
    return _probit(mean, cov)


def _probit(mean, cov):
    """The usual approximation of a logistic Gaussian integral (the paper's inverse probit)."""

    def predict(new):
        var = np.einsum("nd,nd->n", new @ np.asarray(cov), new)
        return expit(new @ np.asarray(mean) * np.sqrt(BETA2 / (BETA2 + var)))

    return predict


def solve_implicit(mean0, var0, y):
    """The roots α, ν of eqs. 69-70: Powell's hybrid method in (α, log ν) from mid-bounds."""

    def equations(unknowns):
        alpha, var = unknowns[0], np.exp(unknowns[1])
        k = np.sqrt(BETA2 / (var + BETA2))
        dk = -k * var / (2 * (var + BETA2))  # per log ν
        p = expit(alpha * k)
        slope = p * (1 - p)
        bend = slope * (1 - 2 * p)
        shrunk = var0 / (1 + var0 * k * slope)
        values = [alpha + var0 * p - mean0 - var0 * y, var - shrunk]
        jacobian = [
            [1 + var0 * slope * k, var0 * slope * alpha * dk],
            [shrunk**2 * k**2 * bend, var + shrunk**2 * dk * (slope + k * bend * alpha)],
        ]
        return np.array(values), np.array(jacobian)

    low = var0 * (1 - var0 / (4 + var0))
    start = [mean0 + var0 * (y - 0.5), np.log((low + var0) / 2)]
    alpha, log_var = root(equations, start, jac=True, method="hybr", tol=1e-6).x
    return alpha, np.exp(log_var)


@jax.jit
def _ekf(x, y, mean, cov):
    def absorb(state, row):
        mean, cov = state
        x, y = row
        cov_x = cov @ x
        p = jax.nn.sigmoid(x @ mean)
        gain = cov_x / (1 / (p * (1 - p)) + x @ cov_x)
        return (mean + gain * (y - p) / (p * (1 - p)), cov - jnp.outer(gain, cov_x)), None

    return jax.lax.scan(absorb, (mean, cov), (x, y))[0]


def jax_ekf(x, y):
    """The extended Kalman filter as one would write it in JAX: a jitted scan over rows."""
    d = x.shape[1]
    prior = jnp.zeros(d, x.dtype), VARIANCE * jnp.eye(d, dtype=x.dtype)
    return _probit(*jax.block_until_ready(_ekf(jnp.asarray(x), jnp.asarray(y), *prior)))


def bandits(size):
    """bayesianbandits' R-VGA, batches of `size` rows, each one joint update."""

    def run(x, y):
        model = bandits_model(x, y, size)
        return lambda new: _quiet(model.predict, new)

    return run


def bandits_model(x, y, size, variance=VARIANCE, **options):
    """The fitted model."""
    model = BayesianGLM(1 / variance, approximator=RVGAApproximator(**options))
    for start in range(0, len(y), size):
        _quiet(model.partial_fit, x[start : start + size], y[start : start + size])
    return model


def _quiet(function, *args):
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        return function(*args)


def river(x, y):
    """river's logistic regression by SGD, one row at a time."""
    model = LogisticRegression()
    for row, label in zip(x.tolist(), y.tolist(), strict=True):
        model.learn_one(dict(enumerate(row)), bool(label))

    def predict(new):
        rows = (dict(enumerate(row)) for row in new.tolist())
        return np.array([model.predict_proba_one(row)[True] for row in rows])

    return predict


def sgd(x, y, size=1024):
    """scikit-learn's SGD in partial fits of `size` rows."""
    model = SGDClassifier(loss="log_loss", random_state=0)
    for start in range(0, len(y), size):
        model.partial_fit(x[start : start + size], y[start : start + size], classes=[0, 1])
    return lambda new: model.predict_proba(new)[:, 1]


STEPS, SUBSAMPLE, RATE, DRAWS = 2000, 256, 0.01, 500
"""Of NumPyro."""


def numpyro_low_rank(x, y):
    """NumPyro's AutoLowRankMultivariateNormal; predictions average draws of the coefficients."""
    x, y = jnp.asarray(x), jnp.asarray(y)
    guide, climb = _compiled(x.shape)
    params = jax.block_until_ready(climb(jax.random.key(0), x, y))
    with jax.numpy_rank_promotion("allow"):
        draws = guide.sample_posterior(jax.random.key(1), params, sample_shape=(DRAWS,))["theta"]
    return lambda new: np.asarray(jax.nn.sigmoid(draws @ jnp.asarray(new).T).mean(axis=0))


@functools.cache
def _compiled(shape):
    """The guide, and the whole loop as one compiled function of the key and the data."""
    import numpyro
    from numpyro import distributions as dist
    from numpyro.infer import SVI, Trace_ELBO
    from numpyro.infer.autoguide import AutoLowRankMultivariateNormal

    def model(x, y):
        prior = dist.Normal(0, VARIANCE**0.5).expand([shape[1]]).to_event(1)
        theta = numpyro.sample("theta", prior)
        with numpyro.plate("rows", shape[0], subsample_size=min(SUBSAMPLE, shape[0])) as rows:
            numpyro.sample("y", dist.Bernoulli(logits=x[rows] @ theta), obs=y[rows])

    guide = AutoLowRankMultivariateNormal(model)
    svi = SVI(model, guide, numpyro.optim.Adam(RATE), Trace_ELBO())

    @jax.jit
    def climb(key, x, y):
        state = svi.init(key, x, y)
        step = lambda state, _: svi.update(state, x, y)  # noqa: E731
        return svi.get_params(jax.lax.scan(step, state, None, length=STEPS)[0])

    return guide, climb
