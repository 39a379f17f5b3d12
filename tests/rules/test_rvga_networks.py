"""One pass of L-RVGA over networks, against exact filters, SciPy and the update written out."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest
from scipy import special
from scipy.optimize import minimize

from kalvi.gaussians import Dense, LowRankPrecision
from kalvi.likelihoods import Bernoulli, Normal
from kalvi.likelihoods.vector import MultiNormal, Softmax
from kalvi.predictors import MultiLinear
from kalvi.predictors.models import Model
from kalvi.predictors.networks import Perceptron, make_network
from kalvi.rules.rule import Batch
from kalvi.rules.rvga import RVGA
from kalvi.rules.schemes import EKF, Implicit
from kalvi.rules.training import Training
from kalvi.streams import run
from tests import laws

D = 4


def over(model, scheme=None, look_ahead=1, block_size=8, **settings):
    """The streaming rule for a network."""
    settings |= {"look_ahead": look_ahead, "block_size": block_size}
    return RVGA(model.likelihood, scheme or Implicit(), predictor=model.predictor, **settings)


def rows(n=24, d=D, outputs=None, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, d))
    shape = d if outputs is None else (d, outputs)
    y = x @ rng.normal(size=shape)
    y = y + 0.3 * rng.normal(size=y.shape)
    return Batch(jnp.asarray(x), jnp.asarray(y), jnp.ones(n))


def linear(d=D, outputs=None):
    if outputs is None:
        return make_network(lambda w, x: w @ x, jnp.zeros(d), jnp.zeros(d))[0]
    return make_network(lambda w, x: w @ x, jnp.zeros((outputs, d)), jnp.zeros(d))[0]


@pytest.mark.parametrize("look_ahead", [0, 2])
def test_linear_models_are_exact(look_ahead):
    """Whatever the look-ahead: the network is linear already. Two outputs, each its own regression."""
    batch = rows(outputs=2)
    model = Model(linear(outputs=2), MultiNormal(jnp.asarray([0.09, 0.5])))
    rule = over(model, look_ahead=look_ahead)
    prior = Dense(np.zeros(2 * D), np.eye(2 * D))
    state = run.fit(rule, prior, [batch])
    x, y = np.asarray(batch.x), np.asarray(batch.y)
    means, covs = [], []
    for k, variance in enumerate([0.09, 0.5]):
        cov = np.linalg.inv(np.eye(D) + x.T @ x / variance)
        means.append(cov @ x.T @ y[:, k] / variance)
        covs.append(cov)
    zero = np.zeros((D, D))
    laws.same_gaussian(
        state.posterior, np.concatenate(means), np.block([[covs[0], zero], [zero, covs[1]]])
    )


def _frame(gradient, information, directions):
    """An orthonormal basis of the gradient and the leading eigenvectors, by Gram and Schmidt."""
    basis = []
    for v in [gradient, *np.linalg.eigh(information)[1].T[::-1]][:directions]:
        v = v - sum((b @ v) * b for b in basis)
        basis.append(v / np.linalg.norm(v))
    return np.stack(basis, axis=1)


@pytest.mark.parametrize("directions", [None, 1, 2])
def test_rows_of_classes_along_directions_written_out(directions):
    """The EKF of a linear network of three classes, dense; the directions are those at the block's mean."""
    rng = np.random.default_rng(0)
    x, y, d = rng.normal(size=(2, 2)), np.array([2.0, 0.0]), 6
    batch = Batch(jnp.asarray(x), jnp.asarray(y), jnp.ones(2))
    start, cov = rng.normal(size=d), np.diag(np.linspace(0.5, 3, d))
    rule = over(
        Model(linear(2, 3), Softmax(3)), EKF(), look_ahead=0, block_size=2, directions=directions
    )
    state = run.fit(rule, Dense(start, cov), [batch])
    mean = start
    for row, label in zip(x, y, strict=True):
        whole = np.kron(np.eye(3), row)

        def local(f, label=label):
            p = special.softmax(f)
            return np.eye(3)[int(label)] - p, np.diag(p) - np.outer(p, p)

        origin = whole @ start
        frame = np.eye(3) if directions is None else _frame(*local(origin), directions)
        gradient, curvature = local(origin + frame @ frame.T @ whole @ (mean - start))
        rows_ = frame.T @ whole
        cov = np.linalg.inv(np.linalg.inv(cov) + rows_.T @ frame.T @ curvature @ frame @ rows_)
        mean = mean + cov @ rows_.T @ frame.T @ gradient
    laws.same_gaussian(state.posterior, mean, cov)


@pytest.mark.slow(reason="compiles the streams of a network and of a softmax")
def test_a_linear_classifier_is_that_of_rvga():
    batch = rows()
    labels = jnp.asarray(np.random.default_rng(1).integers(0, 3, 24).astype(float))
    prior = Dense(np.zeros(3 * D), np.eye(3 * D))
    batch = batch._replace(y=labels)
    one = run.fit(over(Model(linear(outputs=3), Softmax(3)), look_ahead=0), prior, [batch])
    two = run.fit(RVGA(Softmax(3), predictor=MultiLinear(3), block_size=8), prior, [batch])
    laws.same_gaussian(one.posterior, two.posterior.mean, two.posterior.cov)
    laws.assert_close(one.log_evidence, two.log_evidence, 1e-9)


@pytest.mark.slow(reason="compiles five streams")
def test_directions():
    """Two directions hold all that three classes can say; one holds less, but the gradient whole."""
    batch = rows()._replace(
        y=jnp.asarray(np.random.default_rng(1).integers(0, 3, 24).astype(float))
    )
    model, prior = Model(linear(outputs=3), Softmax(3)), Dense(np.zeros(3 * D), np.eye(3 * D))
    whole, two, one = (
        run.fit(over(model, EKF(), directions=directions), prior, [batch])
        for directions in (None, 2, 1)
    )
    laws.same_gaussian(two.posterior, whole.posterior.mean, whole.posterior.cov)
    assert np.all(np.linalg.eigvalsh(one.posterior.cov - whole.posterior.cov) > -1e-9)
    first = jax.tree.map(lambda a: a[:1], batch)
    steps = [
        run.fit(over(model, EKF(), directions=k, look_ahead=0), prior, [first]).posterior.mean
        for k in (None, 1)
    ]
    # three equally likely classes have the same curvature in every direction: the same step
    np.testing.assert_allclose(steps[0], steps[1], atol=1e-12)


def bent(w, x):
    """A perceptron of one hidden unit: its values, and by hand their derivatives (rows)."""
    hidden = np.tanh(w[0] * x + w[1])
    slope = w[2] * (1 - hidden**2)
    return w[2] * hidden + w[3], np.column_stack([slope * x, slope, hidden, np.ones_like(x)])


START = np.array([0.8, -0.2, 1.5, 0.1])
FEW = Batch(jnp.asarray([[-1.0], [1.5]]), jnp.asarray([1.0, 0.0]), jnp.ones(2))


def test_look_ahead_written_out():
    """Three further linearisations, each of the block from the start: dense gains of a Kalman filter."""
    net = Perceptron((1, 1, 1)).network(jr.key(0), jnp.float64)[0]
    x, y, variance = np.asarray(FEW.x)[:, 0], np.asarray(FEW.y), 0.2
    prior = Dense(START, np.diag([0.5, 1.0, 2.0, 0.3]))
    state = run.fit(over(Model(net, Normal(variance)), look_ahead=3), prior, [FEW])
    cov, centre, means = np.asarray(prior.cov), START, []
    for _ in range(4):
        f, rows_ = bent(centre, x)
        gain = cov @ rows_.T @ np.linalg.inv(rows_ @ cov @ rows_.T + variance * np.eye(2))
        centre = START + gain @ (y - f - rows_ @ (START - centre))
        means.append(centre)
    laws.same_gaussian(state.posterior, centre, cov - gain @ rows_ @ cov)
    away = np.linalg.norm(np.diff(means, axis=0), axis=1)
    assert np.all(away > 1e-3)  # each linearisation matters


@pytest.mark.slow(reason="sixty linearisations, and SciPy's optimum")
def test_look_ahead_ends_at_the_most_likely_parameters():
    """Linearised again and again, one block is Gauss–Newton for log p(θ | y), here with SciPy's optimum."""
    net, theta = Perceptron((1, 2, 1), jnp.tanh).network(jr.key(1), jnp.float64)
    x = jnp.linspace(-2, 2, 8)[:, None]
    batch = Batch(x, jnp.sin(x[:, 0]), jnp.ones(8))
    rule = over(Model(net, Normal(0.5)), look_ahead=60)
    d = len(theta)
    state = run.fit(rule, Dense(theta, 0.25 * np.eye(d)), [batch])

    def loss(t):
        f = jax.vmap(lambda one: net(t, one))(x)
        return jnp.sum((batch.y - f) ** 2) + 2 * jnp.sum((t - theta) ** 2)

    best = minimize(jax.jit(loss), theta, jac=jax.jit(jax.grad(loss)), tol=1e-12)
    np.testing.assert_allclose(state.posterior.mean, best.x, atol=1e-6)
    rows_ = jax.jacobian(lambda t: jax.vmap(lambda one: net(t, one))(x))(jnp.asarray(best.x))
    np.testing.assert_allclose(
        np.linalg.inv(state.posterior.cov),
        4 * np.eye(d) + rows_.T @ rows_ / 0.5,
        rtol=1e-4,
        atol=1e-4,
    )


@pytest.mark.parametrize("look_ahead", [0, 1])
def test_sampled_step_of_one_hidden_unit_written_out(look_ahead):
    """Equations 42-45 with two draws, dense; ahead, the same draws about the mean found."""
    net = Perceptron((1, 1, 1)).network(jr.key(0), jnp.float64)[0]
    x, y = np.asarray(FEW.x)[:, 0], np.asarray(FEW.y)
    prior = Dense(START, np.diag([0.5, 1.0, 2.0, 0.3]))
    rule = over(Model(net, Bernoulli()), samples=2, look_ahead=look_ahead, block_size=2)
    key = jr.key(5)
    state = jax.jit(rule.update)(rule.init(prior), FEW, key=key)
    noise = np.asarray(jr.normal(jr.split(key, 2)[0], (2, 4)))
    away, centre = noise @ np.sqrt(np.asarray(prior.cov)), START
    for _ in range(1 + look_ahead):
        precision, force = np.linalg.inv(prior.cov), np.zeros(4)
        for draw in centre + away:
            f, rows_ = bent(draw, x)
            p = special.expit(f)
            bend = p * (1 - p) / 2
            precision = precision + rows_.T @ (bend[:, None] * rows_)
            force = force + rows_.T @ ((y - p) / 2 + bend * (rows_ @ (centre - START)))
        centre = START + np.linalg.solve(precision, force)
    laws.same_gaussian(state.posterior, centre, np.linalg.inv(precision))


@pytest.mark.slow(reason="Jacobians of a network, draw by draw and row by row")
def test_sampled_step_written_out():
    """Equations 42-45 with the draws, dense."""
    net, theta = Perceptron((2, 2), jnp.tanh).network(jr.key(0), jnp.float64)
    d, batch = len(theta), rows(4, 2)
    batch = batch._replace(y=(batch.y > 0).astype(float))
    q = LowRankPrecision(theta, 0.3 * np.ones((d, 1)), np.full(d, 2.0))
    rule = over(Model(net, Softmax(2)), samples=3, look_ahead=0, block_size=4)
    key = jr.key(5)
    state = rule.update(rule.init(Dense(q.mean, q.covariance.to_dense())), batch, key=key)
    draws = Dense(q.mean, q.covariance.to_dense()).sample(jr.split(key, 4)[0], 3)
    precision, force = np.asarray(q.precision.to_dense()), np.zeros(d)
    for draw in draws:
        for x, y in zip(batch.x, batch.y, strict=True):
            jacobian = np.asarray(jax.jacobian(lambda t, x=x: net(t, x))(draw))
            p = np.asarray(jax.nn.softmax(net(draw, x)))
            precision = precision + jacobian.T @ (np.diag(p) - np.outer(p, p)) @ jacobian / 3
            force = force + jacobian.T @ (np.eye(2)[int(y)] - p) / 3
    cov = np.linalg.inv(precision)
    laws.same_gaussian(state.posterior, np.asarray(q.mean) + cov @ force, cov)


def test_noise_is_learned():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(4000, D))
    y = x @ np.arange(D) + 0.7 * rng.normal(size=4000)
    batch = Batch(jnp.asarray(x), jnp.asarray(y), jnp.ones(4000))
    rule = over(Model(linear(), Normal(5.0)), learn_noise=True, look_ahead=0)
    state = run.fit(rule, Dense(np.zeros(D), 9 * np.eye(D)), [batch])
    # an average over about 4000^0.6 blocks of 8 rows: a relative error of 6 %
    assert abs(float(state.noise.variance[0]) / 0.49 - 1) < 0.2


def test_rows_without_weight_change_nothing():
    batch = rows()
    rule = over(Model(linear(), Normal(0.09)), learn_noise=True)
    prior = Dense(np.zeros(D), np.eye(D))
    some = jax.tree.map(lambda a: a[:16], batch)
    none = batch._replace(weight=jnp.where(jnp.arange(24) < 16, 1.0, 0.0))
    one, two = run.fit(rule, prior, [some]), run.fit(rule, prior, [none])
    laws.same_gaussian(one.posterior, two.posterior.mean, two.posterior.cov)
    laws.assert_close(one.log_evidence, two.log_evidence, 1e-12)
    laws.assert_close(one.noise.variance, two.noise.variance, 1e-12)
    assert int(one.noise.blocks) == int(two.noise.blocks) == 2


def test_a_network_learns_in_one_pass():
    """A rank-2 posterior in float32 ends far below the loss of the start, and stays positive."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(1024, 2)).astype(np.float32)
    y = (np.sum(x**2, axis=1) > 1.4).astype(np.float32)
    net, theta = Perceptron((2, 20, 1), jnp.tanh).network(jr.key(0), jnp.float32)
    prior = LowRankPrecision(theta, jnp.zeros((len(theta), 2), jnp.float32), jnp.ones_like(theta))
    rule = over(Model(net, Bernoulli()), EKF(), look_ahead=0)
    batch = Batch(jnp.asarray(x), jnp.asarray(y), jnp.ones(1024, jnp.float32))
    state = run.fit(rule, prior, [batch])
    assert -float(state.log_evidence) / 1024 < 0.4  # 0.69 for a coin
    f = np.asarray(net.values(state.posterior.mean, batch.x))
    assert np.mean((f > 0) == y) > 0.93
    laws.positive_definite(state.posterior)


def test_memory_is_linear():
    d = 500
    batch = rows(4, d)
    rule = over(Model(linear(d), Normal(1.0)), EKF(), block_size=4)
    state = rule.init(LowRankPrecision(jnp.zeros(d), jnp.zeros((d, 2)), jnp.ones(d)))
    assert laws.largest_array(lambda s: rule.update(s, batch), state) <= 20 * d


def test_training_is_gradient_descent():
    """One step of plain descent, against the gradient by hand, and the optimum of a ridge regression."""
    batch = rows()
    rule = Training(Model(linear(), Normal(1.0)), 24.0, 2.0, rate=0.1, direction=optax.identity())
    state = rule.update(rule.init(jnp.ones(D)), batch, key=jr.key(0))
    x, y = np.asarray(batch.x), np.asarray(batch.y)
    slope = (2 * np.ones(D) - x.T @ (y - x @ np.ones(D))) / 24
    np.testing.assert_allclose(state.theta, 1 - 0.1 * slope, rtol=1e-12)
    state = run.resume(rule, state, [batch] * 2000, key=jr.key(0))
    np.testing.assert_allclose(
        state.theta, np.linalg.solve(x.T @ x + 2 * np.eye(D), x.T @ y), rtol=1e-6
    )


def test_refusals():
    model = Model(linear(), Normal(1.0))
    prior = Dense(np.zeros(D), np.eye(D))
    rule = over(model, samples=2)
    with pytest.raises(ValueError, match=r"RVGA\(samples=2\) draws samples and needs a key"):
        rule.update(rule.init(prior), rows())
    tall = rows()._replace(y=rows().y[:, None])
    with pytest.raises(ValueError, match=r"one number a row; got shape \(24, 1\)"):
        over(model).update(over(model).init(prior), tall)
    with pytest.raises(ValueError, match="samples must be at least 1; got 0"):
        over(model, samples=0)
    with pytest.raises(ValueError, match="directions= is for classes"):
        over(model, learn_noise=True, directions=1)
    with pytest.raises(TypeError, match="needs a likelihood with a noise variance"):
        over(Model(linear(), Bernoulli()), learn_noise=True)


def test_sampled_blocks_of_a_network_forget_row_by_row():
    """Of a linear network with normal noise every draw has the same curvature: the precision is exact."""
    batch = rows(6)
    model, prior = Model(linear(), Normal(0.5)), Dense(np.zeros(D), np.eye(D))
    rule = over(model, samples=2, look_ahead=0, block_size=6, forgetting=0.8)
    state = run.fit(rule, prior, [batch], key=jr.key(0))
    precision = np.eye(D)
    for row in np.asarray(batch.x):
        precision = 0.8 * precision + 0.2 * np.eye(D) + np.outer(row, row) / 0.5
    laws.assert_close(state.posterior.cov, np.linalg.inv(precision), 1e-10)
