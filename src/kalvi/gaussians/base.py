"""What every Gaussian can do, and what a stream asks of one."""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from kalvi.linalg import LowRankPlusDiagonal
from kalvi.namespaces import AnyArray, is_jax
from kalvi.precision import matching, own_precision

ON_HOST = "arrays of numpy"
"""What a pickled Gaussian says beside its fields; older pickles do not have it."""

Scalar = Float[AnyArray, ""]
Block = Float[AnyArray, "b d"]
PerRow = Float[AnyArray, " b"]
Between = Float[AnyArray, "b b"]
Curvature = PerRow | Float[Array, "n c c"]  # γ of each row, or a root of each c rows' γ


class Gaussian(eqx.Module):
    """N(mean, covariance); the covariance and the precision are low-rank-plus-diagonal matrices."""

    mean: eqx.AbstractVar[Float[Array, " d"]]
    covariance: eqx.AbstractVar[LowRankPlusDiagonal]
    precision: eqx.AbstractVar[LowRankPlusDiagonal]

    @abstractmethod
    def logdet(self) -> Scalar:
        """log|Σ|."""

    @abstractmethod
    def sample(self, key: PRNGKeyArray, n: int) -> Float[Array, "n d"]:
        """n independent draws."""

    @abstractmethod
    def marginal(self, x: Block) -> tuple[PerRow, Between]:
        """Mean and covariance of the predictors x θ of a block of rows."""

    @abstractmethod
    def to_dense(self) -> Any:
        """The same distribution as a `Dense` one."""

    def __getstate__(self) -> dict[str, Any]:
        """NumPy arrays, so that unpickling does not depend on JAX's global precision."""
        return jax.tree.map(np.asarray, dict(self.__dict__)) | {ON_HOST: not is_jax(self.mean)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """JAX's arrays again, unless they were NumPy's, as in a model that only predicts."""
        state = dict(state)
        if not state.pop(ON_HOST, False):
            with matching(state["mean"].dtype):
                state = jax.tree.map(jnp.asarray, state)
        for name, value in state.items():
            object.__setattr__(self, name, value)

    @property
    def dim(self) -> int:
        """The number of parameters."""
        return self.mean.shape[0]

    @own_precision
    def matvec(self, v: Float[Array, "d *k"]) -> Float[Array, "d *k"]:
        """Σ v."""
        return self.covariance.matvec(v)

    @own_precision
    def solve(self, v: Float[Array, "d *k"]) -> Float[Array, "d *k"]:
        """Σ⁻¹ v."""
        return self.precision.matvec(v)

    @abstractmethod
    def variance(self) -> Float[Array, " d"]:
        """diag Σ."""

    @abstractmethod
    def marginal_variance(self, x: Block) -> PerRow:
        """The variance of each predictor xᵢ θ, without their covariances."""

    @own_precision
    def log_prob(self, theta: Float[Array, " d"]) -> Scalar:
        """The log density at theta."""
        away = theta - self.mean
        square = away @ self.precision.matvec(away)
        return -(square + self.logdet() + self.dim * float(np.log(2 * np.pi))) / 2

    def to_arviz(
        self,
        n_draws: int = 1000,
        names: Sequence[str] | None = None,
        variable: str = "theta",
        *,
        key: PRNGKeyArray,
    ) -> Any:
        """Draws as ArviZ takes them: a DataTree whose posterior has one variable, each parameter named.

        They are independent, and are cut into four chains where they can be, because ArviZ compares chains.
        Needs `pip install 'kalvi[arviz]'`.
        """
        try:
            import arviz_base
        except ImportError as error:
            raise ImportError("to_arviz needs ArviZ: pip install 'kalvi[arviz]'.") from error
        named = [str(i) for i in range(self.dim)] if names is None else [str(n) for n in names]
        if len(named) != self.dim or len(set(named)) < self.dim:
            raise ValueError(
                f"names must be {self.dim} different ones, one a parameter; got {len(named)}."
            )
        chains = 4 if n_draws % 4 == 0 else 1
        draws = np.asarray(self.sample(key, n_draws)).reshape(chains, -1, self.dim)
        dim = f"{variable}_dim"
        return arviz_base.from_dict(
            {"posterior": {variable: draws}}, coords={dim: named}, dims={variable: [dim]}
        )


class View(NamedTuple):
    """A block of rows as a Gaussian sees it: the law of its predictors, and how to learn from them."""

    mean: PerRow
    cov: Between
    absorb: Callable[[PerRow, Curvature], "Updatable"]  # of coefficients c and curvature γ


class Updatable(Gaussian):
    """A structure that a stream of rows can update in place of itself."""

    @abstractmethod
    def view(self, x: Block) -> View:
        """The predictors of the rows, and the verb that adds xᵀ diag(γ) x to Σ⁻¹ and Σ xᵀ c to μ."""

    @own_precision
    def marginal(self, x: Block) -> tuple[PerRow, Between]:
        return self.view(x)[:2]

    @own_precision
    def absorb(self, x: Block, coefficients: PerRow, curvature: Curvature) -> "Updatable":
        """Add xᵀ diag(curvature) x to the precision and Σ xᵀ coefficients to the mean.

        Where n observations have c rows each, the curvature is given by n roots, each (c, c).
        """
        return self.view(x).absorb(coefficients, curvature)

    @abstractmethod
    def rescale(self, factor: Scalar) -> "Updatable":
        """Multiply the precision by factor, exactly: a change of units."""

    @abstractmethod
    def temper(self, factor: Scalar) -> "Updatable":
        """Multiply the precision by factor, standard deviations never beyond `linalg.MAX_STD`."""

    @abstractmethod
    def diffuse(self, variance: Scalar) -> "Updatable":
        """Add variance · I to the covariance."""

    @abstractmethod
    def among(self, others: Any, places: Int[Array, " d"]) -> "Updatable":
        """These parameters at `places` among more, which have no correlations and keep those of `others`.

        `others` is a Gaussian of the same kind over all of them, without correlations.
        """


def scale_of(curvature: Curvature) -> Curvature:
    """√γ: what is multiplied with the rows."""
    return jnp.sqrt(curvature) if curvature.ndim == 1 else curvature


def unchecked(cls, **fields):
    """An instance whose fields are known to be right: no conversion, no checks, also under tracing."""
    new = object.__new__(cls)
    for name, value in fields.items():
        object.__setattr__(new, name, value)
    return new
