"""KL-proximal inference in weight space: the document's iteration, on the whole table or by minibatches.

Khan, Baqué, Fleuret & Fua (2015), "Kullback-Leibler proximal variational inference", eqs. (15)-(17). With
the signs of (12), α = −E[∂ log p] and γ = −E[∂² log p] at the marginals of q = N(m, V), and r = 1/(1 + β),

    V⁻¹ ← r V⁻¹ + (1 − r) (Σ⁻¹ + Xᵀ diag(γ) X),                                                   (16)
    m ← [(1 − r) Σ⁻¹ + r V⁻¹]⁻¹ [(1 − r)(Σ⁻¹μ − Xᵀα) + r V⁻¹m],                                    (17)

is the argmax of the subproblem (15) (where the print lacks a logarithm). The matrix in (17) has none of the
new curvature, so that long steps (β above 1 or so) overshoot, and β = ∞ is Picard's map, not Newton's.
With `natural` the mean moves in natural parameters instead,

    V⁻¹m ← r V⁻¹m + (1 − r) (Σ⁻¹μ + Xᵀ(γ ∘ X m − α)),

on the left the new V⁻¹: a natural-gradient step of length 1 − r, with the same optimum and with one
factorisation instead of two.

Minibatches. The step is taken from where the pass over the rows began, towards what the rows seen since
then say, each at the Gaussian of its time. After a share s of the `rows` its length is s β/(1 + β): the
document's step with β_t = s β/(1 + β (1 − s)). No batch's sums stand for the whole table's, so that a pass
over every row, in any order, ends with a step to which each row has contributed once, and no sampling
noise is left; the first pass from the prior with β = ∞ is a streaming one. Batches that do not make up
whole passes (drawn with replacement) leave some d/2 nats, which `decay` averages over the passes, once they
have settled.

The first steps from a wide prior can be wild where curvatures vary widely (Poisson, narrow Laplace,
Student): start from the posterior of a stream (`start`), which solves for every row.

All is done in coordinates where the prior is N(0, I). With γ ≥ 0 the precision stays positive by
construction. Curvatures of likelihoods that are not log-concave may leave it indefinite: then the negative
ones of the batch are set to zero, which the state counts and the next pass mends. A step that leads to no
Gaussian even so, or to numbers that are not finite, is refused and counted; the rest of the pass then
goes on from the Gaussian before it.
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
from kalvi.rules.base import Batch, IterativeRule
from kalvi.rules.visits import BatchVisit, visit

Vector = Float[Array, " d"]
Matrix = Float[Array, "d d"]

WHOLE = 1 - 1e-5
"""The share of the rows at which a pass counts as one: their weights are sums of rounded numbers."""

AVERAGING = 0.5
"""`decay` for minibatches: what fluctuates within passes is averaged, and early passes are forgotten."""
FAR = 2.0
"""A pass that moves the mean by so many standard deviations (root mean square) has not settled."""


def step_length(beta: Setting, decay: Setting, steps: Int[Array, ""]) -> Scalar:
    """β_t/(1 + β_t), where 1/β_t = 1/β + decay · t; 1 for an infinite β."""
    return 1 / (1 + 1 / beta + decay * steps)


def check_steps(beta: Any, decay: Any, rows: Any) -> None:
    """Refuse step sizes that cannot work, where they are known numbers."""
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
    """The present Gaussian, where its pass began, and what the pass has gathered."""

    prior: Dense
    here: WhitenedGaussian
    root: Matrix  # R, R Rᵀ the inverse of the present precision
    began: WhitenedGaussian
    gathered: PassSums
    seen: Scalar  # the share of the table that the pass has seen, gathered or not
    passes: Int[Array, ""]
    settled: Int[Array, ""]  # those that moved the mean by little
    clipped: Int[Array, ""]  # batches whose negative curvatures were set to zero
    refused: Int[Array, ""]  # batches whose step would have left no Gaussian

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
        The step is β/(1 + β) of the way. The document takes 0.25 for logistic and 1 for Laplace
        likelihoods; infinity, the whole way, is for `natural` only.
    rows : float or None, default None
        The total weight of the table of which batches are parts; None where every batch is the whole table.
    natural : bool, default True
        Whether the mean moves in natural parameters, or by the document's (17).
    decay : float, default 0
        1/β grows by this with each pass that moves the mean by less than two deviations: 1 averages such
        passes, 0 keeps the step.
    predictor : Predictor, default Linear()
        How inputs become rows of predictors, such as the features of inducing points.
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
        """For minibatches: whole natural steps until the passes settle, then 1/(1 + t/2) of them in pass t.

        It has no step to tune. Settled passes are averaged with weights that grow as their number does.
        """
        return cls(likelihood, np.inf, rows, True, AVERAGING, predictor or Linear())

    def init(self, prior: Gaussian, *, key: PRNGKeyArray | None = None) -> ProximalState:
        return self.start(prior, prior)

    def start(self, prior: Gaussian, posterior: Gaussian) -> ProximalState:
        """The state at any Gaussian, such as a stream's posterior, or the optimum of a similar prior."""
        if prior.dim != posterior.dim:
            raise ValueError(
                f"prior and posterior need as many parameters; got {prior.dim} and {posterior.dim}."
            )
        base, q = prior.to_dense(), posterior.to_dense()
        here = WhitenedGaussian(*whiten(base, q))
        none = jnp.zeros((), jnp.int32)
        root = linalg.root_from_precision(here.precision)
        nothing = _nothing(here)
        return ProximalState(
            base, here, root, here, nothing, nothing.weight, none, none, none, none
        )

    def update(
        self, state: ProximalState, batch: Batch, *, key: PRNGKeyArray | None = None
    ) -> ProximalState:
        rows, weight = self._look(state, batch), jnp.sum(batch.weight)
        moved, good = self._moved(state, rows, weight)
        if not self.likelihood.log_concave:
            least = eqx.tree_at(lambda r: r.curvature, rows, positive_part(rows.curvature))
            moved, good = jax.lax.cond(
                good, lambda: (moved, good), lambda: self._moved(_clip(state), least, weight)
            )
        return self._turn(_choose(good, moved, _stay(state)), weight)

    def _turn(self, state: ProximalState, weight: Scalar) -> ProximalState:
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
                _choose(whole, _nothing(state.here), state.gathered),
                jnp.where(whole, 0, seen),
                state.passes + whole.astype(jnp.int32),
                state.settled + (whole & settled).astype(jnp.int32),
            ),
        )

    def _look(self, state: ProximalState, batch: Batch) -> BatchVisit:
        """The sums over a batch at the present Gaussian, in units of the prior."""
        predictor, x = self.predictor.whitened(state.prior, batch.x)
        q = Dense.from_root(state.here.mean, state.root)
        return visit(Model(predictor, self.likelihood), q, batch._replace(x=x))

    def _moved(
        self, state: ProximalState, rows: BatchVisit, weight: Scalar
    ) -> tuple[ProximalState, Bool[Array, ""]]:
        """The state with the rows' step taken, and whether that leaves a Gaussian."""
        pull = rows.force() + rows.matvec(state.here.mean) if self.natural else rows.force()
        new = PassSums(pull, rows.to_dense(), weight)
        gathered = jax.tree.map(jnp.add, state.gathered, new)
        there, root = self._step(state, gathered)
        moved = eqx.tree_at(lambda s: (s.here, s.root, s.gathered), state, (there, root, gathered))
        return moved, jnp.all(jnp.isfinite(root)) & jnp.all(jnp.isfinite(there.mean))

    def _step(self, state: ProximalState, gathered: PassSums) -> tuple[WhitenedGaussian, Matrix]:
        """A step from where the pass began, its length by the share of the rows seen since then."""
        seen = gathered.weight
        rows = seen if self.rows is None else jnp.asarray(self.rows, seen.dtype)
        share = jnp.where(seen > 0, jnp.minimum(seen / jnp.where(rows > 0, rows, 1), 1), 0)
        length = step_length(self.beta, self.decay, state.settled).astype(seen.dtype)
        # more than the whole table counts as the table once
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


def _stay(state: ProximalState) -> ProximalState:
    """The state at the same Gaussian, without what was gathered, which leads to no Gaussian."""
    return eqx.tree_at(
        lambda s: (s.began, s.gathered, s.refused),
        state,
        (state.here, _nothing(state.here), state.refused + 1),
    )


def _nothing(place: WhitenedGaussian) -> PassSums:
    return PassSums(
        jnp.zeros_like(place.mean), jnp.zeros_like(place.precision), jnp.zeros_like(place.mean[0])
    )


def _choose(which: Bool[Array, ""], yes, no):
    return jax.tree.map(lambda a, b: jnp.where(which, a, b), yes, no)
