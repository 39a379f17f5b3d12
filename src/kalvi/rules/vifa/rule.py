"""Variational inference with a factor-analysis posterior (VIFA), from batches of any size.

Brownlie (2021), "Extending the Bayesian deep learning method MultiSWAG", section 4.3 and Algorithm 3,
corrected. q = N(c, F Fᵀ + diag ψ) minimises

    E_q[log q] − E_q[log N(θ; m₀, diag α⁻¹)] − E_q[log p(D | θ)].

With A = Ψ⁻¹ F and C = S⁻¹ F = A (I + Fᵀ A)⁻¹ the first two terms have the exact gradients

    c: α (c − m₀),    F: −C + α F,    β = log ψ: −½ + ½ ψ rowsum(C ∘ A) + ½ α ψ,

(−C in this form, because the printed −A + C Bᵀ cancels if factors dominate). The third comes from
`gradients`, and `steps` says how q moves.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Int, Key, PRNGKeyArray

from kalvi.gaussians import Gaussian, LowRankCovariance
from kalvi.numerics import linalg
from kalvi.numerics.namespaces import Setting, as_setting
from kalvi.numerics.precision import is_traced
from kalvi.predictors.models import LogLikelihood, Model
from kalvi.rules.rule import Batch, IterativeRule
from kalvi.rules.vifa.gradients import (
    Antithetic,
    Estimator,
    GaussNewton,
    Slopes,
    curvature_diagonal,
)
from kalvi.rules.vifa.steps import Preconditioned, Step


class Descent(eqx.Module):
    """The current q, the memory of the steps, and their number so far."""

    posterior: Gaussian
    memory: Any
    steps: Int[Array, ""]


class VIFA(IterativeRule[Descent]):
    """Variational inference with a factor-analysis covariance, batch by batch.

    Parameters
    ----------
    model : Model or LogLikelihood
    n_samples : float
        N, the total weight of the rows of which a batch is a sample.
    prior_precision : float or array of shape (d,)
        α of the prior N(prior_mean, diag α⁻¹); the mean is 0 unless given.
    estimator : Estimator, default Antithetic()
        The estimator of the gradient of the expected log-likelihood. `GaussNewton()`, for models with a
        predictor, is far less noisy.
    step : Step, default Preconditioned()
    batch_size : int or None, default None
        Longer blocks are shuffled and cut into batches of this size (a remainder is left out); None takes
        every block as one batch.
    """

    model: Any
    n_samples: Setting = eqx.field(converter=as_setting)
    prior_precision: Setting = eqx.field(converter=as_setting, default=1.0)
    prior_mean: Setting = eqx.field(converter=as_setting, default=0.0)
    estimator: Estimator = Antithetic()
    step: Step = eqx.field(default_factory=Preconditioned)  # the import must not start JAX
    batch_size: int | None = eqx.field(static=True, default=None)

    def __check_init__(self):
        if isinstance(self.estimator, GaussNewton):
            need_predictor(self.model, "GaussNewton")
        elif not isinstance(self.model, Model | LogLikelihood):
            raise TypeError(
                f"VIFA needs a Model or a LogLikelihood; got {type(self.model).__name__}. "
                "Wrap a function log_prob(theta, x, y) in LogLikelihood."
            )

    def init(self, prior: Gaussian, *, key: PRNGKeyArray | None = None) -> Descent:
        """The state at a first q."""
        if not isinstance(prior, LowRankCovariance):
            raise TypeError(
                f"VIFA starts from a LowRankCovariance; got {type(prior).__name__}. "
                "`VIFA.start` makes one."
            )
        return Descent(prior, self.step.init(prior), jnp.zeros((), jnp.int32))

    def start(
        self, mean: Float[Array, " d"], rank: int, batch: Batch, *, key: PRNGKeyArray
    ) -> LowRankCovariance:
        """A first q: ψ = 1/(α + diag H) from one batch, and F = ½ ψ^{1/2} Q with orthonormal columns Q."""
        if not 0 < rank <= len(mean):
            raise ValueError(f"rank must be between 1 and the {len(mean)} parameters; got {rank}.")
        values = jax.vmap(lambda x, y: self.model.log_prob(mean, x, y))(batch.x, batch.y)
        if not is_traced(values) and not bool(jnp.all(jnp.isfinite(values))):
            raise ValueError(
                "the log-likelihood of some rows is not finite at the first mean; start from another."
            )
        total = jnp.asarray(self.n_samples, mean.dtype)
        diag = 1 / (self.prior_precision + curvature_diagonal(self.model, mean, batch, total))
        directions = jnp.linalg.qr(jr.normal(key, (len(mean), rank), mean.dtype))[0]
        return LowRankCovariance(mean, linalg.scale_rows(jnp.sqrt(diag) / 2, directions), diag)

    def update(self, state: Descent, batch: Batch, *, key: PRNGKeyArray | None = None) -> Descent:
        return in_batches(lambda *args: self._descend(*args), state, batch, self.batch_size, key)

    def _descend(self, state: Descent, batch: Batch, key: PRNGKeyArray) -> Descent:
        q: Any = state.posterior
        total = jnp.asarray(self.n_samples, q.mean.dtype)
        found = self.estimator(self.model, q, batch, total, key=key)
        own = divergence_slopes(q, self.prior_precision, self.prior_mean)
        slopes = jax.tree.map(jnp.add, own, found.slopes)
        q, memory = self.step(
            q, slopes, state.memory, state.steps, found.curved, self.prior_precision
        )
        return Descent(q, memory, state.steps + 1)


def need_predictor(model: Any, name: str) -> None:
    """Refuse a model that has no predictor to linearise."""
    if not isinstance(model, Model):
        raise TypeError(
            f"{name} linearises a predictor and needs a Model; got {type(model).__name__}. "
            "Any log-likelihood goes with VIFA and Antithetic()."
        )


def divergence_slopes(q: LowRankCovariance, precision: Setting, prior_mean: Setting) -> Slopes:
    """Gradients of KL(q ‖ N(m₀, diag α⁻¹)) in c, F and log ψ."""
    factor, diag = q.covariance.factor, q.covariance.diag
    alpha = jnp.broadcast_to(precision, diag.shape).astype(diag.dtype)
    scaled = linalg.scale_rows(1 / diag, factor)
    inner = linalg.inner(factor, scaled)
    root = linalg.steady_cholesky(linalg.identity_like(inner) + inner)
    solved = linalg.cho_solve(root, scaled.T).T
    entropy = (jnp.sum(solved * scaled, axis=1) * diag - 1) / 2
    return Slopes(
        alpha * (q.mean - prior_mean),
        linalg.scale_rows(alpha, factor) - solved,
        entropy + alpha * diag / 2,
    )


def in_batches(
    descend: Callable[[Any, Batch, PRNGKeyArray], Any],
    state: Any,
    batch: Batch,
    size: int | None,
    key: PRNGKeyArray | None,
) -> Any:
    """The state after a block: as one batch, or shuffled and cut into batches of one size."""
    if key is None:
        raise ValueError(
            "variational inference draws batches and samples and needs a key; got None."
        )
    if size is None or len(batch.weight) <= size:
        return descend(state, batch, key)
    batches, keys = shuffle_batches(batch, size, key)
    return jax.lax.scan(lambda s, drawn: (descend(s, *drawn), None), state, (batches, keys))[0]


def shuffle_batches(batch: Batch, size: int, key: PRNGKeyArray) -> tuple[Batch, Key[Array, " n"]]:
    """The rows in random order as batches of one size, with a key for each; a remainder is left out."""
    key_order, key_batches = jr.split(key)
    whole = len(batch.weight) // size
    order = jr.permutation(key_order, len(batch.weight))[: whole * size]
    cut = jax.tree.map(lambda a: a[order].reshape(whole, size, *a.shape[1:]), batch)
    return cut, jr.split(key_batches, whole)
