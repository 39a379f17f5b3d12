"""What every Gaussian can do, and what a stream asks of one."""

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
"""What a pickled Gaussian says beside its fields; older pickles do not have it."""

Block = Rows
PerRow = Float[AnyArray, " b"]
Between = Float[AnyArray, "b b"]
Curvature = PerRow | Float[Array, "n c c"]  # γ of each row, or a root of each c rows' γ


class Gaussian(eqx.Module):
    """N(mean, covariance); the covariance is a matrix of low rank, up to d, plus a diagonal one."""

    mean: eqx.AbstractVar[Float[Array, " d"]]
    covariance: eqx.AbstractVar[LowRankPlusDiagonal]
    precision: eqx.AbstractVar[SymmetricMatrix]

    @property
    @abstractmethod
    def rank(self) -> int | None:
        """The number of columns of its precision's factor; 0 if diagonal, None if there is no factor."""

    @abstractmethod
    def has_correlations(self) -> bool:
        """Whether any two parameters may be correlated."""

    @abstractmethod
    def with_rank(self, rank: int) -> Any:
        """The same distribution with a precision of this rank, if it has or can have that."""

    @abstractmethod
    def widths(self) -> tuple[Float[AnyArray, "*g d"], ...]:
        """Those of its arrays that have a number for each parameter, none of them negative."""

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
        """Restore JAX's arrays; those that were NumPy's, as in a model that only predicts, stay so."""
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


class Gathered(NamedTuple):
    """What a structure keeps of a precision matrix: its diagonal, and whatever else it can hold of it."""

    diagonal: Float[Array, " d"]
    rest: Any = ()


class Updatable(Gaussian):
    """A structure that stays the same structure when a stream of rows updates it."""

    @abstractmethod
    def view(self, x: Block) -> View:
        """The predictors of the rows, and the verb that adds xᵀ diag(γ) x to Σ⁻¹ and Σ xᵀ c to μ."""

    @abstractmethod
    def prepared(self) -> "Updatable":
        """The same with what sparse rows need of all d parameters; `absorb` keeps it up to date."""

    @abstractmethod
    def unprepared(self) -> "Updatable":
        """The same without that."""

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
    def absorb_exactly(self, x: Block, coefficients: PerRow, curvature: PerRow) -> Gaussian:
        """The same without a projection: a Gaussian of whatever structure can hold the result."""

    @abstractmethod
    def compact(self) -> "Updatable":
        """The same without columns of a factor that are zero; not to be traced."""

    @abstractmethod
    def merged_with(self, others: Any, prior: Gaussian) -> "Updatable":
        """The posterior of all shards from this one, those of other shards and their common prior."""

    @abstractmethod
    def rescale(self, factor: Scalar) -> "Updatable":
        """Multiply the precision by factor, exactly: a change of units."""

    @abstractmethod
    def anchor(self) -> "Updatable":
        """What a drift from this prior keeps of it, to come back to."""

    @abstractmethod
    def blocks_per_step(self) -> int:
        """For how many blocks of rows one step of a drift should be taken, by what either costs."""

    @abstractmethod
    def fade(self, keep: Scalar, anchor: Any, strength: Scalar) -> "Updatable":
        """The product q^keep p₀^strength, p₀ the anchor: Λ ← keep Λ + strength Λ₀."""

    @abstractmethod
    def relax(self, keep: Values, anchor: Any) -> "Updatable":
        """θ ← μ₀ + a (θ − μ₀) + √(1 − a²) ε, ε from the anchor N(μ₀, Σ₀): Σ ← a² Σ + (1 − a²) Σ₀.

        a is `keep`, a number, or one a parameter where the anchor has no correlations.
        """

    @abstractmethod
    def gather(self, matrix: Any) -> Any:
        """What an ascent from here needs of a d × d matrix, known by matvec, diagonal and to_dense.

        That of a sum is the sum: `Gathered`, or the matrix itself where the structure can hold any.
        """

    @abstractmethod
    def toward(self, target: Any, prior: Any) -> "Updatable":
        """A better precision of this structure, where the best of all has the gathered `target`.

        The mean stays. `prior` is the Gaussian whose precision is part of the target.
        """

    @abstractmethod
    def ascent(self, prior: Any) -> Any:
        """An ascent of the variational bound with this prior, from here (`gaussians.ascents`)."""

    @abstractmethod
    def embed(self, others: Any, places: Int[AnyArray, " d"]) -> "Updatable":
        """These parameters at `places` among more, which have no correlations and keep those of `others`.

        `others` is a Gaussian of the same kind over all of them, without correlations.
        """


def added_shifts(posteriors: Sequence[Gaussian], prior: Gaussian) -> Float[Array, " d"]:
    """Σₖ Λₖ μₖ − (K − 1) Λ₀ μ₀: the prior of K posteriors counts once."""
    return sum(q.solve(q.mean) for q in posteriors) - (len(posteriors) - 1) * prior.solve(
        prior.mean
    )


def no_such_rank(q: Gaussian, rank: int) -> ValueError:
    """The error about a Gaussian that is not of this rank."""
    return ValueError(
        f"prior is {type(q).__name__} of rank {q.rank}, but rank={rank}; "
        "use rank=None, or the posterior_ of a model with that rank."
    )


def scale_of(curvature: Curvature) -> Curvature:
    """√γ, the factor by which rows are multiplied."""
    return jnp.sqrt(curvature) if curvature.ndim == 1 else curvature


def unchecked(cls, **fields):
    """An instance whose fields are known to be right: no conversion, no checks, also under tracing."""
    new = object.__new__(cls)
    for name, value in fields.items():
        object.__setattr__(new, name, value)
    return new
