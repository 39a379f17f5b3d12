"""Networks as functions of one flat vector of parameters.

Any function (params, x) → f of a parameter pytree and one input becomes a predictor f(θ, x) with θ in ℝᵈ.
The rows of its Jacobian ∂f/∂θ come from reverse differentiation of each output.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PRNGKeyArray

from kalvi.gaussians import Dense
from kalvi.numerics.namespaces import AnyArray, namespace_of
from kalvi.numerics.rows import DenseRows, PerObservation
from kalvi.predictors.predictor import Linearised, Predictor, Whitened

ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "tanh": jnp.tanh,
    "relu": jax.nn.relu,
    "gelu": jax.nn.gelu,
    "silu": jax.nn.silu,
    "softplus": jax.nn.softplus,
    "sin": jnp.sin,
}


class Layout(NamedTuple):
    """The layout of a pytree in a vector. Equal networks have equal layouts, so that they compile once."""

    tree: Any
    shapes: tuple[tuple[int, ...], ...]

    def unravel(self, theta: Float[Array, " d"]) -> Any:
        """The pytree of a vector."""
        ends = np.cumsum([int(np.prod(shape)) for shape in self.shapes])
        parts = jnp.split(theta, ends[:-1].tolist())
        leaves = [part.reshape(shape) for part, shape in zip(parts, self.shapes, strict=True)]
        return jax.tree.unflatten(self.tree, leaves)


class Network(Predictor):
    """f(θ, x) from a function of a pytree, which takes one input and gives `outputs` numbers."""

    function: Callable[[Any, Array], Array] = eqx.field(static=True)
    layout: Layout = eqx.field(static=True)
    outputs: int = eqx.field(static=True)

    def values(self, theta: Float[Array, " d"], x: Float[Array, "n ..."]) -> PerObservation:
        return jax.vmap(lambda one: self(theta, one))(x)

    def linearise(self, theta: Float[Array, " d"], x: Float[Array, "n ..."]) -> Linearised:
        if self.outputs == 1:
            f, rows = jax.vmap(jax.value_and_grad(lambda theta, one: self(theta, one)), (None, 0))(
                theta, x
            )
            return Linearised(f, DenseRows(rows))
        identity = jnp.eye(self.outputs, dtype=theta.dtype)
        return self.linearise_along(theta, x, jnp.broadcast_to(identity, (len(x), *identity.shape)))

    def linearise_along(
        self, theta: Float[Array, " d"], x: Float[Array, "n ..."], frames: Float[Array, "n c r"]
    ) -> Linearised:
        """f of each input, and the rows Bᵀ ∂f/∂θ for r directions of the outputs, the columns of B."""

        def one(x, frame):
            f, pull = jax.vjp(lambda theta: self(theta, x), theta)
            return f, jax.vmap(lambda direction: pull(direction)[0])(frame.T)

        f, rows = jax.vmap(one)(x, frames)
        return Linearised(f, DenseRows(rows.reshape(-1, theta.shape[0]), frames.shape[-1]))

    @property
    def linear(self) -> bool:
        return False

    def whitened(self, prior: Dense, x: Float[Array, "n ..."]) -> tuple[Predictor, Array]:
        return Whitened(self, prior), x

    def __call__(self, theta: Float[Array, " d"], x: Float[Array, "..."]) -> Float[Array, "*c"]:
        shape = () if self.outputs == 1 else (self.outputs,)
        return jnp.reshape(self.function(self.layout.unravel(theta), x), shape)


def make_network(
    function: Callable[[Any, Array], Array], params: Any, example: Any
) -> tuple[Network, Float[AnyArray, " d"]]:
    """The network of function(params, x), and its parameters as a vector.

    `params` is any pytree of floating arrays; for an Equinox module give `eqx.partition(module,
    eqx.is_inexact_array)[0]`. `example` is one input, with the same shape as all others.
    """
    leaves = jax.tree.leaves(params)
    odd = [leaf for leaf in leaves if not jnp.issubdtype(jnp.result_type(leaf), jnp.floating)]
    if not leaves or odd:
        found = f"a leaf of type {jnp.result_type(odd[0])}" if odd else "no leaf"
        raise TypeError(f"params must be a pytree of floating arrays; it has {found}.")
    xp = namespace_of(*leaves)
    theta = ravel_pytree(params)[0] if xp is jnp else np.concatenate([np.ravel(a) for a in leaves])
    layout = Layout(jax.tree.structure(params), tuple(jnp.shape(leaf) for leaf in leaves))
    if not bool(xp.all(xp.isfinite(theta))):
        raise ValueError("params must be finite; start from other parameters.")
    shape = jax.eval_shape(function, params, example).shape
    if len(shape) > 1:
        raise ValueError(
            f"the function must map one input to a number or a vector of outputs; it gave shape {shape}. "
            "Give it one row, not a batch: kalvi does the vmap."
        )
    return Network(function, layout, int(np.prod(shape))), theta


class Perceptron(eqx.Module):
    """Layers of the given sizes with an activation between them; the parameters are (weights, bias)
    pairs."""

    sizes: tuple[int, ...] = eqx.field(static=True)
    activation: str | Callable[[Array], Array] = eqx.field(static=True, default="tanh")

    def init(self, key: PRNGKeyArray, dtype: Any) -> list[tuple[Array, Array]]:
        """Weights of variance 1/inputs, biases zero."""
        keys = jr.split(key, len(self.sizes) - 1)
        shapes: Sequence[tuple[int, int]] = list(zip(self.sizes[:-1], self.sizes[1:], strict=True))
        return [
            (jr.normal(k, (o, i), dtype) / float(np.sqrt(max(i, 1))), jnp.zeros(o, dtype))
            for k, (i, o) in zip(keys, shapes, strict=True)
        ]

    def __call__(self, params: Any, x: Float[Array, " i"]) -> Float[Array, " c"]:
        chosen = self.activation
        activate = ACTIVATIONS[chosen] if isinstance(chosen, str) else chosen
        for weights, bias in params[:-1]:
            x = activate(weights @ x + bias)
        weights, bias = params[-1]
        return weights @ x + bias

    def network(self, key: PRNGKeyArray, dtype: Any) -> tuple[Network, Float[Array, " d"]]:
        """The perceptron as a network, and random parameters to start from."""
        return make_network(self, self.init(key, dtype), jnp.zeros(self.sizes[0], dtype))

    def n_parameters(self) -> int:
        """The number of parameters."""
        return sum((i + 1) * o for i, o in zip(self.sizes[:-1], self.sizes[1:], strict=True))

    def groups(self) -> np.ndarray:
        """For each parameter the number of the array that it belongs to."""
        sizes = [
            n for i, o in zip(self.sizes[:-1], self.sizes[1:], strict=True) for n in (o * i, o)
        ]
        return np.repeat(np.arange(len(sizes)), sizes)

    def fan_in(self) -> np.ndarray:
        """The number of inputs of each weight's layer, 1 for a bias. For weights these are the precisions
        of `init`."""
        pairs = zip(self.sizes[:-1], self.sizes[1:], strict=True)
        return np.concatenate([np.repeat([float(max(i, 1)), 1.0], [o * i, o]) for i, o in pairs])
