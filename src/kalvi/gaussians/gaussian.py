"""The interface of every Gaussian, and of those that a stream can update."""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from kalvi.numerics.linalg import LowRankPlusDiagonal, SymmetricMatrix
from kalvi.numerics.namespaces import AnyArray, Scalar, Values, is_jax
from kalvi.numerics.precision import matching_precision, own_precision
from kalvi.numerics.rows import Curvature as RowCurvature
from kalvi.numerics.rows import JacobianRows
from kalvi.numerics.sparse_rows import Rows

ON_HOST = "arrays of numpy"
"""An entry of a pickled Gaussian besides its fields; older pickles do not have it."""

Block = Rows
PerRow = Float[AnyArray, " b"]
Between = Float[AnyArray, "b b"]
Curvature = PerRow | Float[Array, "n c c"]  # γ of each row, or a root of γ for every c rows


class Gaussian(eqx.Module):
    """N(mean, covariance), where the covariance is a diagonal matrix plus one of some rank up to d."""

    mean: eqx.AbstractVar[Float[Array, " d"]]
    covariance: eqx.AbstractVar[LowRankPlusDiagonal]
    precision: eqx.AbstractVar[SymmetricMatrix]

    @property
    @abstractmethod
    def rank(self) -> int | None:
        """The number of columns of the precision's factor; 0 if it is diagonal, None if it has no
        factor."""

    @abstractmethod
    def has_correlations(self) -> bool:
        """Whether parameters may be correlated."""

    @abstractmethod
    def with_rank(self, rank: int) -> Any:
        """The same distribution with a precision of this rank, if that is possible."""

    @abstractmethod
    def widths(self) -> tuple[Float[AnyArray, "*g d"], ...]:
        """The arrays that hold a nonnegative number for each parameter, such as variances."""

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
        """The fields as NumPy arrays, so that unpickling does not depend on JAX's global precision."""
        return jax.tree.map(np.asarray, dict(self.__dict__)) | {ON_HOST: not is_jax(self.mean)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore JAX arrays; NumPy arrays, as in a model that only predicts, stay NumPy arrays."""
        state = dict(state)
        if not state.pop(ON_HOST, False):
            with matching_precision(state["mean"].dtype):
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

    @abstractmethod
    def predictor_covariances(self, rows: JacobianRows) -> RowCurvature:
        """The (co)variance of the predictors of each observation, without those between observations."""

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
        """Draws for ArviZ: a DataTree whose posterior has one variable, with a name for each parameter.

        The draws are independent. If possible they are cut into four chains, because ArviZ compares chains.
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
    """The predictors of a block of rows under a Gaussian, and a function that learns from the block."""

    mean: PerRow
    cov: Between
    absorb: Callable[[PerRow, Curvature], "Updatable"]  # of coefficients c and curvature γ


class Gathered(NamedTuple):
    """The parts of a precision matrix that a structure needs: its diagonal, and whatever else it can
    hold."""

    diagonal: Float[Array, " d"]
    rest: Any = ()


class Updatable(Gaussian):
    """A Gaussian that a stream of rows can update within its structure."""

    @abstractmethod
    def view(self, x: Block) -> View:
        """The predictors of the rows, with a function that adds xᵀ diag(γ) x to Σ⁻¹ and Σ xᵀ c to μ."""

    @abstractmethod
    def prepared(self, blocks: int = 1) -> "Updatable":
        """The same Gaussian with the sums over all d parameters that sparse rows need; `absorb` updates
        them.

        About so many blocks follow, and only views and `absorb` until it is `unprepared`.
        """

    @abstractmethod
    def unprepared(self) -> "Updatable":
        """The same Gaussian without the sums of `prepared`."""

    @own_precision
    def marginal(self, x: Block) -> tuple[PerRow, Between]:
        return self.view(x)[:2]

    @own_precision
    def absorb(self, x: Block, coefficients: PerRow, curvature: Curvature) -> "Updatable":
        """Add xᵀ diag(curvature) x to the precision and Σ xᵀ coefficients to the mean.

        If each of n observations has c rows, the curvature is n roots of shape (c, c).
        """
        return self.view(x).absorb(coefficients, curvature)

    @abstractmethod
    def absorb_exactly(self, x: Block, coefficients: PerRow, curvature: PerRow) -> Gaussian:
        """`absorb` without a projection: the result has a structure that can hold it."""

    @abstractmethod
    def compact(self) -> "Updatable":
        """The same Gaussian without the zero columns of its factor; cannot be traced."""

    @abstractmethod
    def merged_with(self, others: Any, prior: Gaussian) -> "Updatable":
        """The posterior of all shards from this one, those of other shards and their common prior."""

    @abstractmethod
    def rescale(self, factor: Scalar) -> "Updatable":
        """Multiply the precision by factor, exactly: a change of units."""

    @abstractmethod
    def anchor(self) -> "Updatable":
        """The part of this prior to which a drift returns."""

    @abstractmethod
    def blocks_per_step(self) -> int:
        """The number of blocks of rows for which one step of a drift should serve, given their costs."""

    @abstractmethod
    def fade(self, keep: Scalar, anchor: Any, strength: Scalar) -> "Updatable":
        """The product q^keep p₀^strength, p₀ the anchor: Λ ← keep Λ + strength Λ₀."""

    @abstractmethod
    def relax(self, keep: Values, anchor: Any) -> "Updatable":
        """θ ← μ₀ + a (θ − μ₀) + √(1 − a²) ε, ε from the anchor N(μ₀, Σ₀): Σ ← a² Σ + (1 − a²) Σ₀.

        a is `keep`: a number, or a vector if the anchor has no correlations.
        """

    @abstractmethod
    def gather(self, matrix: Any) -> Any:
        """The parts of a d × d matrix that an ascent from here needs; it has matvec, diagonal and to_dense.

        The result is `Gathered`, or the matrix itself if the structure can hold any. It is linear: the
        parts of a sum are the sum of the parts.
        """

    @abstractmethod
    def toward(self, target: Any, prior: Any) -> "Updatable":
        """A better precision of this structure, closer to the matrix whose gathered parts are `target`.

        The mean does not change. `prior` is the Gaussian whose precision is part of the target.
        """

    @abstractmethod
    def ascent(self, prior: Any) -> Any:
        """An ascent of the variational bound with this prior, starting here (`gaussians.ascents`)."""

    @abstractmethod
    def embed(self, others: Any, places: Int[AnyArray, " d"]) -> "Updatable":
        """A Gaussian over more parameters: these at `places`, the remaining ones as in `others`.

        `others` is a Gaussian of the same kind over all parameters, without correlations.
        """


def added_shifts(posteriors: Sequence[Gaussian], prior: Gaussian) -> Float[Array, " d"]:
    """Σₖ Λₖ μₖ − (K − 1) Λ₀ μ₀, so that the prior of K posteriors counts once."""
    return sum(q.solve(q.mean) for q in posteriors) - (len(posteriors) - 1) * prior.solve(
        prior.mean
    )


def no_such_rank(q: Gaussian, rank: int) -> ValueError:
    """The error that a Gaussian does not have this rank."""
    return ValueError(
        f"prior is {type(q).__name__} of rank {q.rank}, but rank={rank}; "
        "use rank=None, or the posterior_ of a model with that rank."
    )


def scale_of(curvature: Curvature) -> Curvature:
    """√γ, the factor by which rows are multiplied."""
    return jnp.sqrt(curvature) if curvature.ndim == 1 else curvature


def unchecked(cls, **fields):
    """An instance whose fields are known to be valid, made without conversions or checks, also under
    tracing."""
    new = object.__new__(cls)
    for name, value in fields.items():
        object.__setattr__(new, name, value)
    return new
