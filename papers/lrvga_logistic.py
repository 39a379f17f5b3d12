"""What figures 3 and 4 of the L-RVGA paper share: a logistic problem, its references and its filters.

KL(q ‖ p(θ | Y)) is unnormalised (Z = 1) and computed by one-dimensional integrals, where the paper draws
four or five samples. The filters use the paper's inverse-probit integrals unless they sample.
"""

from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from kalvi.evaluation import metrics
from kalvi.gaussians import Dense, Diagonal, LowRankPrecision
from kalvi.likelihoods import Bernoulli, Likelihood
from kalvi.likelihoods.implicit import Site
from kalvi.likelihoods.logistic import InverseProbit
from kalvi.numerics.namespaces import Scalar
from kalvi.numerics.projections import Projection
from kalvi.rules.laplace import laplace
from kalvi.rules.rule import Batch
from kalvi.rules.rvga import RVGA
from kalvi.rules.schemes import Scheme
from kalvi.rules.vga import vga
from kalvi.streams import Schedule, run
from papers.lrvga_as_coded import MirrorProxAsCoded
from papers.lrvga_data import SEED, Rows, logistic_rows
from papers.lrvga_history import History, follow, follow_growing, whole

PROBIT, ACCURATE = Bernoulli(InverseProbit()), Bernoulli()
GAP = 1e-8
"""Nats: how near to the best Gaussian the search ends."""


class PrintedMirrorProx(Scheme):
    """Mirror prox as in eqs. 137-143, without the term γ̂ (m̂ − m₀) that makes it exact in linear models."""

    takes_samples: ClassVar[bool] = True

    extra_covariance: bool = eqx.field(static=True, default=True)

    def site(
        self,
        likelihood: Likelihood,
        y: Scalar,
        mean: Scalar,
        var: Scalar,
        weight: Scalar,
        *,
        thorough: bool = True,
    ) -> Site:
        _, gradient, first = likelihood.expect(y, mean, var)
        ahead = var / (1 + weight * first * var)
        _, gradient, second = likelihood.expect(y, mean + weight * gradient * ahead, ahead)
        curvature = weight * (second if self.extra_covariance else first)
        return Site(weight * gradient / (1 + curvature * var), curvature, jnp.asarray(True))


class Problem(NamedTuple):
    """Rows of two classes under the prior N(0, std² I)."""

    rows: Rows
    batch: Batch
    std: float
    seed: int = SEED

    @property
    def dim(self) -> int:
        """The number of parameters."""
        return self.rows.x.shape[1]

    def divergence(self, state: Any) -> float:
        """The unnormalised KL of a state's posterior."""
        return self.divergence_of(state.posterior)

    def divergence_of(self, q: Any) -> float:
        """The unnormalised KL of a Gaussian."""
        prior = Diagonal(jnp.zeros(self.dim), jnp.full(self.dim, self.std**2))
        return -float(run.call(metrics.elbo, q, prior, ACCURATE, self.batch))

    def dense_prior(self) -> Dense:
        """The prior, ready for every correlation."""
        return Dense(jnp.zeros(self.dim), self.std**2 * jnp.eye(self.dim))

    def low_rank(self, rank: int, spread: float, projection: Projection | None) -> LowRankPrecision:
        """The prior with factors drawn from N(0, spread²), as the authors' scripts start EM."""
        factor = spread * jr.normal(jr.key(self.seed), (self.dim, rank))
        diag = jnp.full(self.dim, self.std**-2)
        return LowRankPrecision(jnp.zeros(self.dim), factor, diag, projection)

    def stream(
        self, scheme: Scheme, prior: LowRankPrecision, samples: int | None = None
    ) -> History:
        """One pass, a row at a time."""
        likelihood = PROBIT if samples is None else ACCURATE
        rule = RVGA(likelihood, scheme, block_size=1, samples=samples)
        key = None if samples is None else jr.key(self.seed)
        return follow(rule, prior, self.batch, self.divergence, key=key)

    def stream_as_coded(
        self, prior: LowRankPrecision, samples: int | None = None, extra_covariance: bool = False
    ) -> History:
        """One pass of mirror prox as the authors' scripts run it."""
        rule = MirrorProxAsCoded(samples, extra_covariance, jr.key(self.seed))
        return follow(rule, prior, self.batch, self.divergence)

    def growing(self, scheme: Scheme, rank: int, largest: int) -> History:
        """One pass of the library's default: growing blocks and the eigen projection."""
        rule = RVGA(PROBIT, scheme, block_size=largest)
        prior = self.low_rank(rank, 0.0, None)
        return follow_growing(rule, prior, *self.rows, Schedule(largest), self.divergence)


class References(NamedTuple):
    """Divergences of methods that keep every correlation."""

    laplace: float
    full: float  # one pass of R-VGA
    best: float  # the optimum over all Gaussians


def problem(d: int, n: int, exponent: float, std: float, seed: int = SEED) -> Problem:
    """Two classes d^−exponent apart."""
    rows = logistic_rows(d, n, d**-exponent, seed=seed)
    return Problem(rows, whole(*rows), std, seed)


def mode(p: Problem) -> Dense:
    """Laplace's approximation."""
    return run.call(laplace, ACCURATE, p.dense_prior(), p.batch).posterior


def references(p: Problem, scheme: Scheme) -> References:
    """Laplace, one pass of full R-VGA, and from there the best Gaussian."""
    prior, newton = p.dense_prior(), mode(p)
    full = run.fit(RVGA(PROBIT, scheme, block_size=32), prior, [p.batch]).posterior
    assert isinstance(full, Dense)
    best = run.call(_best, ACCURATE, prior, p.batch, full)
    return References(*(p.divergence_of(q) for q in (newton, full, best)))


def _best(likelihood: Likelihood, prior: Dense, batch: Batch, start: Dense) -> Dense:
    return vga(likelihood, prior, batch, start, tolerance=GAP).posterior


def shown(history: History, floor: float) -> np.ndarray:
    """Nats above the floor, for a logarithmic axis."""
    return np.maximum(history.values - floor, 1e-2)
