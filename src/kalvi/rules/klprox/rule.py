"""KL-proximal inference in weight space: the document's iteration, on a whole table or on minibatches.

Khan, Baqué, Fleuret & Fua (2015), "Kullback-Leibler proximal variational inference", eqs. (15)-(17). With
the signs of (12), α = −E[∂ log p] and γ = −E[∂² log p] under the marginals of q = N(m, V), and r = 1/(1 +
β),

    V⁻¹ ← r V⁻¹ + (1 − r) (Σ⁻¹ + Xᵀ diag(γ) X),                                                   (16)
    m ← [(1 − r) Σ⁻¹ + r V⁻¹]⁻¹ [(1 − r)(Σ⁻¹μ − Xᵀα) + r V⁻¹m],                                    (17)

is the argmax of the subproblem (15) (which lacks a logarithm in print). The matrix in (17) contains nothing
of the new curvature, so long steps (β above about 1) overshoot, and β = ∞ is Picard's iteration, not
Newton's.
With `natural` the mean moves in natural parameters instead,

    V⁻¹m ← r V⁻¹m + (1 − r) (Σ⁻¹μ + Xᵀ(γ ∘ X m − α)),

with the new V⁻¹ on the left: a natural-gradient step of length 1 − r, with the same optimum, and one
factorisation instead of two.

Minibatches. A step starts at the Gaussian where the pass over the rows began, and uses the sums of the rows
seen since then, each evaluated at the Gaussian of its time. After a share s of the `rows` its length is s
β/(1 + β): the document's step with β_t = s β/(1 + β (1 − s)). The sums of a batch are not scaled up to the
whole table. So a pass over every row, in any order, ends with a step to which each row has contributed
once, without sampling noise; the first pass from the prior with β = ∞ is a streaming pass. Batches that do
not form whole passes (drawn with replacement) leave an error of about d/2 nats, which `decay` averages over
the passes once they have settled.

The first steps from a wide prior can be wild where curvatures vary widely (Poisson, narrow Laplace,
Student): start from the posterior of a stream (`start`), which solves the equations of every row.

All computations use coordinates where the prior is N(0, I). With γ ≥ 0 the precision stays positive by
construction. Likelihoods that are not log-concave may make it indefinite. Then the negative curvatures of
the batch are set to zero, which the state counts and the next pass corrects. A step that still leads to no
Gaussian, or to numbers that are not finite, is rejected and counted; the rest of the pass continues from
the Gaussian before it.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from kalvi.gaussians import Dense, Gaussian
from kalvi.gaussians.ascents import whiten
from kalvi.likelihoods import Likelihood
from kalvi.likelihoods.sites import positive_part
from kalvi.numerics import linalg
from kalvi.numerics.namespaces import Scalar, Setting, as_setting
from kalvi.numerics.precision import is_traced
from kalvi.predictors import Linear, Predictor
from kalvi.predictors.models import Model, need_same_outputs
from kalvi.rules.rule import Batch, IterativeRule
from kalvi.rules.visits import BatchVisit, visit

Vector = Float[Array, " d"]
Matrix = Float[Array, "d d"]

WHOLE = 1 - 1e-5
"""The share of the rows that counts as a whole pass, because sums of weights are rounded."""

AVERAGING = 0.5
"""The `decay` for minibatches: it averages fluctuations between passes and forgets early passes."""
FAR = 2.0
"""A pass has not settled if it moves the mean by this many standard deviations (root mean square)."""


def step_length(beta: Setting, decay: Setting, steps: Int[Array, ""]) -> Scalar:
    """β_t/(1 + β_t), where 1/β_t = 1/β + decay · t; 1 for an infinite β."""
    return 1 / (1 + 1 / beta + decay * steps)


def check_steps(beta: Any, decay: Any, rows: Any) -> None:
    """Refuse step sizes that cannot work, if they are known numbers."""
    if not is_traced(beta) and not bool(beta > 0):
        raise ValueError(f"beta must be positive (infinity is the whole step); got {beta}.")
    if not is_traced(decay) and not bool((decay >= 0) & np.isfinite(decay)):
        raise ValueError(f"decay must be 0 (none) or more, and finite; got {decay}.")
    if rows is not None and not is_traced(rows) and not bool((rows > 0) & np.isfinite(rows)):
        raise ValueError(f"rows must be the number of rows in all, or None; got {rows}.")


class WhitenedGaussian(NamedTuple):
    """A Gaussian in units of the prior."""

    precision: Matrix
    mean: Vector


class PassSums(NamedTuple):
    """Sums over the rows of a pass so far."""

    pull: Vector
    curvature: Matrix
    weight: Scalar


class ProximalState(eqx.Module):
    """The current Gaussian, the Gaussian where its pass began, and the sums of the pass."""

    prior: Dense
    here: WhitenedGaussian
    root: Matrix  # R, where R Rᵀ is the current covariance
    began: WhitenedGaussian
    gathered: PassSums
    seen: Scalar  # the share of the table that the pass has seen, used or not
    passes: Int[Array, ""]
    settled: Int[Array, ""]  # passes that moved the mean by little
    clipped: Int[Array, ""]  # batches whose negative curvatures were set to zero
    refused: Int[Array, ""]  # batches whose step would lead to no Gaussian

    @property
    def posterior(self) -> Dense:
        return Dense.from_root(
            self.prior.mean + self.prior.root @ self.here.mean, self.prior.root @ self.root
        )


class KLProximal(IterativeRule[ProximalState]):
    """KL-proximal steps for a likelihood of xᵀθ with a full covariance.

    Parameters
    ----------
    likelihood : Likelihood
    beta : float, default 1
        A step goes β/(1 + β) of the way. The document uses 0.25 for logistic and 1 for Laplace likelihoods;
        infinity, the whole way, is for `natural` only.
    rows : float or None, default None
        The total weight of the table, if batches are parts of it; None if every batch is the whole table.
    natural : bool, default True
        Whether the mean moves in natural parameters; otherwise by the document's (17).
    decay : float, default 0
        Each pass that moves the mean by less than two deviations adds this to 1/β: 1 averages such passes,
        0 keeps the step.
    predictor : Predictor, default Linear()
        The predictor, such as the features of inducing points.
    """

    likelihood: Likelihood
    beta: Setting = eqx.field(converter=as_setting, default=1.0)
    rows: Setting | None = eqx.field(converter=as_setting, default=None)
    natural: bool = eqx.field(static=True, default=True)
    decay: Setting = eqx.field(converter=as_setting, default=0.0)
    predictor: Predictor = Linear()

    def __check_init__(self):
        need_same_outputs(self.predictor, self.likelihood)
        check_steps(self.beta, self.decay, self.rows)
        if not self.natural and not is_traced(self.beta) and bool(np.isinf(self.beta)):
            raise ValueError("an infinite beta needs natural=True; got natural=False.")

    @classmethod
    def stochastic(
        cls,
        likelihood: Likelihood,
        rows: float | int | Scalar,
        *,
        predictor: Predictor | None = None,
    ) -> "KLProximal":
        """For minibatches: whole natural steps until the passes settle, then a share 1/(1 + t/2) in pass t.

        There is no step to tune. Settled passes are averaged with weights that grow in proportion to their
        number.
        """
        return cls(likelihood, np.inf, rows, True, AVERAGING, predictor or Linear())

    def init(self, prior: Gaussian, *, key: PRNGKeyArray | None = None) -> ProximalState:
        return self.start(prior, prior)

    def start(self, prior: Gaussian, posterior: Gaussian) -> ProximalState:
        """The state at any Gaussian, such as a stream's posterior, or the optimum of a similar prior."""
        if prior.dim != posterior.dim:
            raise ValueError(
                f"prior and posterior need the same number of parameters; got {prior.dim} and "
                f"{posterior.dim}."
            )
        base, q = prior.to_dense(), posterior.to_dense()
        here = WhitenedGaussian(*whiten(base, q))
        none = jnp.zeros((), jnp.int32)
        root = linalg.root_from_precision(here.precision)
        nothing = _zero_sums(here)
        return ProximalState(
            base, here, root, here, nothing, nothing.weight, none, none, none, none
        )

    def update(
        self, state: ProximalState, batch: Batch, *, key: PRNGKeyArray | None = None
    ) -> ProximalState:
        rows, weight = self._batch_sums(state, batch), jnp.sum(batch.weight)
        moved, good = self._try_step(state, rows, weight)
        if not self.likelihood.log_concave:
            least = eqx.tree_at(lambda r: r.curvature, rows, positive_part(rows.curvature))
            moved, good = jax.lax.cond(
                good, lambda: (moved, good), lambda: self._try_step(_clip(state), least, weight)
            )
        return self._begin_next_pass(_choose(good, moved, _drop_sums(state)), weight)

    def _begin_next_pass(self, state: ProximalState, weight: Scalar) -> ProximalState:
        """The state, moved on to the next pass if this one is over."""
        seen = state.seen + weight
        rows = seen if self.rows is None else jnp.asarray(self.rows, seen.dtype)
        whole = (seen > 0) & (seen >= WHOLE * rows)
        move = state.here.mean - state.began.mean
        settled = move @ (state.here.precision @ move) <= FAR**2 * len(move)
        return eqx.tree_at(
            lambda s: (s.began, s.gathered, s.seen, s.passes, s.settled),
            state,
            (
                _choose(whole, state.here, state.began),
                _choose(whole, _zero_sums(state.here), state.gathered),
                jnp.where(whole, 0, seen),
                state.passes + whole.astype(jnp.int32),
                state.settled + (whole & settled).astype(jnp.int32),
            ),
        )

    def _batch_sums(self, state: ProximalState, batch: Batch) -> BatchVisit:
        """The sums over a batch at the current Gaussian, in units of the prior."""
        predictor, x = self.predictor.whitened(state.prior, batch.x)
        q = Dense.from_root(state.here.mean, state.root)
        return visit(Model(predictor, self.likelihood), q, batch._replace(x=x))

    def _try_step(
        self, state: ProximalState, rows: BatchVisit, weight: Scalar
    ) -> tuple[ProximalState, Bool[Array, ""]]:
        """The state after the step of the rows, and whether it is a Gaussian."""
        pull = rows.force() + rows.matvec(state.here.mean) if self.natural else rows.force()
        new = PassSums(pull, rows.to_dense(), weight)
        gathered = jax.tree.map(jnp.add, state.gathered, new)
        there, root = self._step(state, gathered)
        moved = eqx.tree_at(lambda s: (s.here, s.root, s.gathered), state, (there, root, gathered))
        return moved, jnp.all(jnp.isfinite(root)) & jnp.all(jnp.isfinite(there.mean))

    def _step(self, state: ProximalState, gathered: PassSums) -> tuple[WhitenedGaussian, Matrix]:
        """A step from the Gaussian where the pass began; its length depends on the share of rows seen since
        then."""
        seen = gathered.weight
        rows = seen if self.rows is None else jnp.asarray(self.rows, seen.dtype)
        share = jnp.where(seen > 0, jnp.minimum(seen / jnp.where(rows > 0, rows, 1), 1), 0)
        length = step_length(self.beta, self.decay, state.settled).astype(seen.dtype)
        # more rows than the whole table count as one table
        worth = length * jnp.minimum(1, rows / jnp.where(seen > 0, seen, 1))
        own = length * share * linalg.identity_like(state.root)
        kept = (1 - length * share) * state.began.precision
        precision = kept + own + worth * gathered.curvature
        shift = kept @ state.began.mean + worth * gathered.pull
        root = linalg.root_from_precision(precision)
        if self.natural:
            mean = root @ (root.T @ shift)
        else:
            mean = linalg.cho_solve(linalg.cholesky(kept + own), shift)
        return WhitenedGaussian(precision, mean), root


def _clip(state: ProximalState) -> ProximalState:
    return eqx.tree_at(lambda s: s.clipped, state, state.clipped + 1)


def _drop_sums(state: ProximalState) -> ProximalState:
    """The state at the same Gaussian, without the sums that led to no Gaussian."""
    return eqx.tree_at(
        lambda s: (s.began, s.gathered, s.refused),
        state,
        (state.here, _zero_sums(state.here), state.refused + 1),
    )


def _zero_sums(place: WhitenedGaussian) -> PassSums:
    return PassSums(
        jnp.zeros_like(place.mean), jnp.zeros_like(place.precision), jnp.zeros_like(place.mean[0])
    )


def _choose(which: Bool[Array, ""], yes, no):
    return jax.tree.map(lambda a, b: jnp.where(which, a, b), yes, no)
