from collections import OrderedDict

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kalvi.numerics.pytrees import Flattener


class Tensor:
    """What a PyTorch tensor shows of itself to be read."""

    __module__ = "torch"

    def __init__(self, array, dtype=None):
        self.array = np.asarray(array)
        self.shape, self.device = self.array.shape, "cpu"
        self.dtype = f"torch.{dtype or self.array.dtype.name}"

    def is_floating_point(self):
        return "float" in self.dtype

    def detach(self):
        return self

    def cpu(self):
        return self

    def float(self):
        return Tensor(self.array.astype(np.float32))

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


class Network(eqx.Module):
    weight: jax.Array
    bias: jax.Array
    steps: int = 3
    activation: object = jax.nn.relu


RNG = np.random.default_rng(0)
WEIGHT, BIAS = RNG.normal(size=(2, 3)), RNG.normal(size=3)
KINDS = {
    "numpy": {"a": WEIGHT, "b": BIAS},
    "jax": {"a": jnp.asarray(WEIGHT), "b": jnp.asarray(BIAS)},
    "nested": {"a": {"kernel": WEIGHT}, "b": [BIAS]},
    "equinox": Network(jnp.asarray(WEIGHT), jnp.asarray(BIAS)),
    "tensors": OrderedDict(weight=Tensor(WEIGHT), bias=Tensor(BIAS)),
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_vector_is_the_leaves_in_order(kind):
    tree = KINDS[kind]
    vector = Flattener(tree).flatten(tree)
    assert vector.dtype == np.float64
    np.testing.assert_array_equal(vector, np.concatenate([WEIGHT.ravel(), BIAS]))


@pytest.mark.parametrize("kind", ["numpy", "jax", "nested", "equinox"])
def test_there_and_back(kind):
    flat = Flattener(KINDS[kind])
    moved = flat.unflatten(flat.flatten(KINDS[kind]) + 1)
    assert jax.tree.structure(moved) == jax.tree.structure(KINDS[kind])
    for new, old in zip(jax.tree.leaves(moved), jax.tree.leaves(KINDS[kind]), strict=True):
        if eqx.is_inexact_array_like(old):
            assert type(new) is type(old)
            np.testing.assert_array_equal(new, old + 1)
        else:
            assert new is old  # functions and counts are carried


def test_a_vector_is_a_tree_of_one_leaf():
    flat = Flattener(BIAS.astype(np.float32))
    assert flat.dtype == np.float32
    np.testing.assert_array_equal(flat.flatten(BIAS.astype(np.float32)), BIAS.astype(np.float32))
    assert flat.unflatten(BIAS).dtype == np.float32


def test_generators_of_tensors_and_of_named_tensors():
    first = Flattener(Tensor(a) for a in (WEIGHT, BIAS))
    vector = np.concatenate([WEIGHT.ravel(), BIAS])
    np.testing.assert_array_equal(first.flatten(iter([Tensor(WEIGHT), Tensor(BIAS)])), vector)
    named = [("z", Tensor(BIAS)), ("a", Tensor(WEIGHT))]
    np.testing.assert_array_equal(Flattener(iter(named)).flatten(iter(named)), vector)  # by name


def test_half_precision_is_widened_and_comes_back_half():
    tree = {"a": jnp.asarray([1.5, 2.5], jnp.bfloat16), "b": np.array([0.5], np.float16)}
    flat = Flattener(tree)
    vector = flat.flatten(tree)
    assert vector.dtype == np.float32
    np.testing.assert_array_equal(vector, [1.5, 2.5, 0.5])
    back = flat.unflatten(vector)
    assert back["a"].dtype == jnp.bfloat16 and back["b"].dtype == np.float16
    half = {"a": Tensor(np.array([1.5]), "bfloat16")}
    assert Flattener(half).flatten(half).dtype == np.float32


def test_integers_are_carried():
    tree = {"a": BIAS, "n": np.array(7), "t": Tensor(np.array(3))}
    flat = Flattener(tree)
    assert flat.size == 3
    back = flat.unflatten(np.zeros(3))
    assert back["n"] is tree["n"] and back["t"] is tree["t"]
    np.testing.assert_array_equal(flat.flatten(tree | {"n": np.array(8)}), BIAS)


def test_double_precision_whatever_the_global_setting():
    with jax.enable_x64(False):
        vector = Flattener(KINDS["numpy"]).flatten(KINDS["numpy"])
        assert Flattener(KINDS["equinox"]).unflatten(vector).weight.dtype == np.float64
    assert vector.dtype == np.float64


@pytest.mark.parametrize("kind", ["numpy", "equinox"])
def test_leaves_have_memory_of_their_own(kind):
    flat, vector = Flattener(KINDS[kind]), np.zeros(9)
    leaf = next(leaf for leaf in jax.tree.leaves(flat.unflatten(vector)) if np.shape(leaf))
    vector += 1
    np.testing.assert_array_equal(leaf, 0)


def test_gradients_pass_through():
    flat = Flattener(KINDS["numpy"])
    vector = flat.flatten(KINDS["numpy"])

    def loss(theta):
        tree = flat.unflatten(theta)
        return jnp.sum(flat.flatten(tree) ** 2) + jnp.sum(tree["b"])

    expected = 2 * vector + np.repeat([0.0, 1.0], [6, 3])
    np.testing.assert_allclose(jax.jit(jax.grad(loss))(vector), expected, rtol=1e-15)


@pytest.mark.parametrize(
    ("later", "message"),
    [
        ({"a": WEIGHT}, r"\['b'\] is gone"),
        ({"a": WEIGHT, "b": BIAS, "c": BIAS}, r"\['c'\] is new"),
        ({"a": WEIGHT.T, "b": BIAS}, r"\['a'\] was float64\[2, 3\] and is float64\[3, 2\]"),
        ({"a": WEIGHT, "b": np.float32(BIAS)}, r"\['b'\] was float64\[3\] and is float32\[3\]"),
        (
            dict.fromkeys("bcdef", BIAS),
            r"is gone; .* is new; .* is new and 2 changes more\. Start anew",
        ),
        (OrderedDict(b=BIAS, a=WEIGHT), "the leaves came in another order"),
        ({"a": WEIGHT, "b": np.array([0, np.nan, 0])}, r"must be finite; \['b'\] holds nan"),
        ({"a": WEIGHT * np.inf, "b": BIAS}, r"must be finite; \['a'\] holds -?inf"),
    ],
)
def test_refused(later, message):
    with pytest.raises(ValueError, match=message):
        Flattener(KINDS["numpy"]).flatten(later)


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ({"n": np.arange(3)}, r"\['n'\]: ndarray of int64"),
        (None, "no leaf at all"),
        (np.ones(2, complex), "the vector: ndarray of complex128"),
    ],
)
def test_without_floating_leaves(tree, message):
    with pytest.raises(TypeError, match=rf"at least one floating-point array; got {message}"):
        Flattener(tree)


def test_a_vector_of_another_length_is_refused():
    with pytest.raises(ValueError, match=r"shape \(9,\); got \(8,\)"):
        Flattener(KINDS["numpy"]).unflatten(np.zeros(8))


def test_torch():
    torch = pytest.importorskip("torch", reason="torch is not installed: its tensors are not tried")
    model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3)).double()
    flat = Flattener(model.state_dict())
    vector = flat.flatten(model.state_dict())
    parts = [v for v in model.state_dict().values() if v.is_floating_point()]
    np.testing.assert_array_equal(vector, torch.cat([p.ravel() for p in parts]).numpy())
    back = flat.unflatten(np.asarray(vector) + 1)
    assert type(back) is OrderedDict
    model.load_state_dict(back)
    np.testing.assert_array_equal(flat.flatten(model.state_dict()), vector + 1)
    half = model.to(torch.bfloat16)
    named = Flattener(half.named_parameters())
    assert named.flatten(half.named_parameters()).dtype == np.float32
    assert all(t.dtype == torch.bfloat16 for t in named.unflatten(np.zeros(named.size)).values())
    assert Flattener(half.parameters()).size == named.size == 15
