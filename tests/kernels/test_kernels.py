import pickle

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.spatial import distance
from sklearn.gaussian_process import kernels as reference

import kalvi
from kalvi import kernels
from kalvi.kernels import (
    RBF,
    Constant,
    Fixed,
    Function,
    Linear,
    Matern12,
    Matern32,
    Matern52,
    Periodic,
    RationalQuadratic,
    White,
)
from kalvi.streams import run
from tests.laws import assert_close, largest_array

SCALES, PERIODS = [0.7, 1.9, 3.0], [2.0, 0.9, 5.0]


def rows(n=7, seed=0):
    return jnp.asarray(np.random.default_rng(seed).normal(size=(n, 3)))


def gram_of(kernel, x):
    """The free hyperparameters, and the compiled covariance matrix as a function of them."""
    theta, rebuild = kernels.flatten(kernel)
    return theta, jax.jit(lambda t: rebuild(t).gram(x))


def slopes(fn, theta, step=1e-5):
    """Derivatives of fn with respect to theta, along the last axis, by central differences."""
    steps = step * np.eye(len(theta))
    return np.stack([(fn(theta + s) - fn(theta - s)) / (2 * step) for s in steps], axis=-1)


PAIRS = {
    "rbf": (RBF(1.3), reference.RBF(1.3)),
    "rbf ard": (RBF(SCALES), reference.RBF(SCALES)),
    "matern12": (Matern12(SCALES), reference.Matern(SCALES, nu=0.5)),
    "matern32": (Matern32(SCALES), reference.Matern(SCALES, nu=1.5)),
    "matern52": (Matern52(SCALES), reference.Matern(SCALES, nu=2.5)),
    "rational quadratic": (RationalQuadratic(1.3, 0.7), reference.RationalQuadratic(1.3, 0.7)),
    "linear": (Linear(1.0, 0.7), reference.DotProduct(np.sqrt(0.7))),
    "white": (White(0.4), reference.WhiteKernel(0.4)),
    "constant": (Constant(2.5), reference.ConstantKernel(2.5)),
    "sum and product": (
        2.0 * RBF(SCALES) * Matern32(0.8) + Linear(1.0, 0.1) * White(0.3) + 0.2,
        2.0 * reference.RBF(SCALES) * reference.Matern(0.8, nu=1.5)
        + reference.DotProduct(np.sqrt(0.1)) * reference.WhiteKernel(0.3)
        + 0.2,
    ),
}
KERNELS = [ours for ours, _ in PAIRS.values()] + [Periodic(SCALES, PERIODS)]


@pytest.mark.parametrize("name", PAIRS)
def test_values_and_gradients_are_those_of_scikit_learn(name):
    ours, theirs = PAIRS[name]
    x, z = rows(), rows(5, seed=1)
    plain, other = np.asarray(x), np.asarray(z)
    cross, variances = run.call(lambda k: (k(x, z), k.diagonal(x)), ours)
    assert_close(cross, theirs(plain, other), 1e-12)
    assert_close(variances, theirs.diag(plain), 1e-12)
    theta, gram = gram_of(ours, x)
    assert_close(gram(theta), theirs(plain), 1e-12)
    found = jax.jit(jax.jacfwd(gram))(theta)
    if name in ("linear", "sum and product"):  # theirs has other parameters
        assert_close(found, slopes(gram, theta), 1e-8)
    else:
        assert_close(found, theirs(plain, eval_gradient=True)[1], 1e-12)


def test_a_large_alpha_is_one_length_scale():
    x, z = rows(), rows(5, seed=1)
    assert_close(RationalQuadratic(SCALES, 1e9)(x, z), RBF(SCALES)(x, z), 1e-8)
    assert repr(RationalQuadratic(2.0, 0.5)) == "RationalQuadratic(length_scale=2, alpha=0.5)"
    with pytest.raises(ValueError, match="RationalQuadratic's alpha must be positive"):
        RationalQuadratic(alpha=0.0)


def test_a_period_for_each_input():
    x, z = rows(), rows(5, seed=1)
    one = Periodic(0.6, 1.7)
    wanted = reference.ExpSineSquared(0.6, 1.7)(*(np.asarray(a)[:, :1] for a in (x, z)))
    assert_close(one(x[:, :1], z[:, :1]), wanted, 1e-12)
    sines = [
        np.sin(np.pi * (np.asarray(x)[:, None, k] - np.asarray(z)[None, :, k]) / PERIODS[k])
        / SCALES[k]
        for k in range(3)
    ]
    kernel = Periodic(SCALES, PERIODS)
    assert_close(kernel(x, z), np.exp(-2 * np.sum(np.square(sines), axis=0)), 1e-12)
    theta, gram = gram_of(kernel, x)
    assert_close(np.diag(gram(theta)), np.ones(7), 0)
    assert_close(jax.jit(jax.jacfwd(gram))(theta), slopes(gram, theta), 1e-8)


def test_linear_functions_are_those_of_random_slopes():
    """The covariance of f(x) = c + Σ bᵢ xᵢ with variances of c and b, and without a constant."""
    x, z = np.asarray(rows()), np.asarray(rows(5, seed=1))
    assert_close(
        Linear(SCALES, 0.3)(rows(), rows(5, seed=1)), 0.3 + x @ np.diag(SCALES) @ z.T, 1e-13
    )
    origin = Linear(SCALES, bias=None)
    assert_close(origin.gram(rows()), x @ np.diag(SCALES) @ x.T, 1e-13)
    assert kernels.names(origin) == [f"Linear.variance[{k}]" for k in range(3)]


def test_a_function_of_ones_own():
    def cauchy(p, x, z):
        square = sum((x[:, k, None] - z[None, :, k].repeat(len(x), 0)) ** 2 for k in range(3))
        return p["size"] / (1 + square / p["scale"][0] ** 2)

    kernel = Function(cauchy, {"size": 1.5, "scale": [2.0]})
    x, z = rows(), rows(5, seed=1)
    assert_close(kernel(x, z), 1.5 / (1 + distance.cdist(x, z, "sqeuclidean") / 4), 1e-12)
    assert_close(kernel.diagonal(x), np.full(7, 1.5), 1e-12)
    assert kernels.names(kernel) == [
        "Function.parameters['scale'][0]",
        "Function.parameters['size']",
    ]
    assert_close(kernels.flatten(kernel)[0], np.log([2.0, 1.5]), 1e-14)
    assert repr(kernel) == "Function(cauchy, scale.0=2, size=1.5)"
    with pytest.raises(ValueError, match=r"must return shape \(7, 5\).*it returned \(7,\)"):
        Function(lambda p, x, z: x[:, 0])(x, z)


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_covariance_matrices_are_symmetric_and_have_no_negative_eigenvalue(kernel):
    x = jnp.concatenate([rows(30), rows(5)])  # five rows twice
    gram, variances = (
        np.asarray(a) for a in run.call(lambda k: (k.gram(x), k.diagonal(x)), kernel)
    )
    assert_close(gram, gram.T, 1e-14)
    assert np.all(np.diag(gram) == variances)
    assert np.linalg.eigvalsh(gram)[0] > -1e-13 * np.trace(gram)


def test_noise_is_new_at_every_row():
    x = jnp.concatenate([rows(3), rows(3)])
    kernel = Matern12(2.0) + White(0.3)
    gram = np.asarray(kernel.gram(x))
    assert_close(gram - np.asarray(Matern12(2.0).gram(x)), 0.3 * np.eye(6), 1e-15)
    assert np.all(
        np.diag(gram[:3, 3:]) == 1
    )  # the same place: the function agrees, the noise does not
    assert np.all(np.diag(kernel(x, x)) == 1)


@pytest.mark.parametrize("centre", [0.0, 1e8])
def test_distances_far_from_the_origin(centre):
    x, z = centre + rows(40), centre + rows(30, seed=1)
    away = distance.cdist(x, z, "sqeuclidean")  # of the rounded inputs, by differences
    assert_close(-2 * np.log(RBF(1.0)(x, z)), away, 1e-7 if centre else 1e-13)
    many = jnp.tile(x * jnp.asarray([1.0, 7.0, 1e3])[None], (4, 1))
    assert np.all(np.asarray(Matern12(0.01).gram(many)) == np.asarray(Matern12(0.01)(many, many)))
    assert np.all(np.asarray(Matern12(0.01)(many, many)[:40, 40:80].diagonal()) == 1)


@pytest.mark.parametrize("kernel", [Matern12(SCALES), Matern32(SCALES), Matern52(SCALES)], ids=repr)
def test_gradients_where_rows_meet(kernel):
    """Reverse mode, with respect to the length scales and to one of the rows."""
    x = jnp.concatenate([rows(4), rows(4)])
    theta, rebuild = kernels.flatten(kernel)
    weight = jnp.asarray(np.random.default_rng(2).normal(size=(8, 8)))

    @jax.jit
    def total(t, moved):
        return jnp.sum(weight * rebuild(t).gram(x.at[0].set(moved)))

    found = jax.jit(jax.grad(total, (0, 1)))(theta, x[0])
    assert_close(found[0], slopes(lambda t: total(t, x[0]), theta), 1e-7)
    if not isinstance(kernel, Matern12):  # whose value has a kink there
        assert_close(found[1], slopes(lambda moved: total(theta, moved), x[0], 1e-6), 1e-5)
    assert np.all(np.isfinite(found[1]))


@pytest.mark.parametrize(
    "kernel", [RBF(1.0), Matern52(1.0), Periodic(1.0, 1.0), Linear()], ids=repr
)
def test_no_array_has_more_entries_than_the_answer(kernel):
    theta, rebuild = kernels.flatten(kernel)
    x, z = jnp.ones((20, 9)), jnp.ones((30, 9))
    assert largest_array(lambda t: rebuild(t)(x, z), theta) == 600
    assert largest_array(jax.grad(lambda t: jnp.sum(rebuild(t)(x, z))), theta) == 600


def test_hyperparameters_as_a_vector():
    kernel = 1.44 * RBF([2.0, 0.5, 1.0]) + Fixed(3.0 * Matern32(0.7)) + RBF(4.0) * White(0.1)
    theta, rebuild = kernels.flatten(kernel)
    assert_close(theta, np.log([1.44, 2.0, 0.5, 1.0, 4.0, 0.1]), 1e-14)
    assert kernels.names(kernel) == [
        "Constant.variance",
        *(f"RBF1.length_scale[{k}]" for k in range(3)),
        "RBF2.length_scale",
        "White.variance",
    ]
    moved = rebuild(theta + jnp.log(2.0))
    assert repr(moved) == (
        "2.88 * RBF(length_scale=[4, 1, 2]) + Fixed(3 * Matern32(length_scale=0.7)) + "
        "RBF(length_scale=8) * White(variance=0.2)"
    )
    assert_close(rebuild(theta).gram(rows()), kernel.gram(rows()), 1e-14)
    nothing, back = kernels.flatten(Fixed(RBF(2.0)))
    assert nothing.shape == (0,) and kernels.names(Fixed(RBF(2.0))) == []
    assert_close(back(nothing).gram(rows()), RBF(2.0).gram(rows()), 0)


def test_how_kernels_are_written():
    assert repr(np.float64(2.0) * RBF() + 0.1) == "2 * RBF(length_scale=1) + 0.1"
    assert repr(3 * (RBF() + White(0.5))) == "3 * (RBF(length_scale=1) + White(variance=0.5))"
    assert repr(Constant(2.0) * Constant(3.0)) == "Constant(variance=2) * Constant(variance=3)"
    assert repr(Periodic(2.13456, 7.0)) == "Periodic(length_scale=2.13, period=7)"
    assert repr(RBF(np.arange(1, 9))) == "RBF(length_scale=[1, 2, 3, 4, 5, 6, …])"
    assert repr(Linear(2.0, None)) == "Linear(variance=2, bias=None)"
    seen = []
    jax.jit(lambda s: seen.append(repr(RBF(s))) or s)(jnp.asarray(1.0))
    assert seen == ["RBF(length_scale=float64[])"]


def test_another_value_is_not_another_program():
    traced = []

    def gram(kernel, x):
        traced.append(kernel)
        return kernel.gram(x)

    x = rows()
    first, second = run.call(gram, 2.0 * RBF(1.3), x), run.call(gram, 3.0 * RBF(0.4), x)
    assert len(traced) == 1
    assert_close(first, 2.0 * reference.RBF(1.3)(np.asarray(x)), 1e-12)
    assert_close(second, 3.0 * reference.RBF(0.4)(np.asarray(x)), 1e-12)


def test_rows_decide_the_precision():
    kernel = 1.1 * RBF(SCALES) + Periodic(1.3) * Linear(0.2, 0.1) + White(0.1)
    x = rows()
    single = kernel.gram(x.astype(jnp.float32))
    assert single.dtype == jnp.float32
    assert_close(single, kernel.gram(x), 1e-5)
    with jax.enable_x64(False):  # numbers given then keep all their digits
        kernel = RBF(1.3)
    assert_close(kernel.gram(x), reference.RBF(1.3)(np.asarray(x)), 1e-12)


def test_kernels_survive_pickling():
    kernel = 1.1 * RBF(SCALES) + Fixed(White(0.1))
    assert eqx.tree_equal(pickle.loads(pickle.dumps(kernel)), kernel)


def test_what_is_no_hyperparameter():
    with pytest.raises(ValueError, match=r"RBF's length_scale must be positive.*got \[1, -2\]"):
        RBF([1.0, -2.0])
    with pytest.raises(ValueError, match="White's variance must be positive and finite; got 0"):
        White(0.0)
    with pytest.raises(ValueError, match=r"Constant's variance must be positive.*got inf"):
        _ = RBF() + np.inf
    with pytest.raises(ValueError, match=r"a number or a vector.*got shape \(2, 2\)"):
        Matern32(np.ones((2, 2)))
    with pytest.raises(ValueError, match=r"Linear's bias must be a number; got shape \(2,\)"):
        Linear(1.0, [1.0, 2.0])
    with pytest.raises(
        TypeError, match=r"Matern12's length_scale must be a positive number; got 'a'"
    ):
        Matern12("a")
    with pytest.raises(ValueError, match="one for each of the 3 inputs of the rows; got 2"):
        RBF([1.0, 2.0])(rows(), rows())


def test_reached_from_the_package():
    assert kalvi.kernels is kernels
    assert "kernels" in kalvi.__all__
