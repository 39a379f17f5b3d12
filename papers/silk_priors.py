"""The document's two separate updates of a smoothness prior; `silk.with_best_prior` makes both at once.

Document 004, "Scaleable inference for logistic Kalmans" (2019), sections 5 and 6. Neither lowers the bound.
"""

from jaxtyping import Array, Float

from kalvi.rules.silk import Side, with_best_prior
from kalvi.rules.silk.priors import (
    PriorCandidates,
    PriorMoments,
    evaluate_prior,
    with_best_candidate,
)


def gaussian(side: Side) -> Side:
    """The best mean and variance at the present rate (5.1, 5.2)."""
    unordered = Side(side.prior, side.posterior, side.spot, ordered=False)
    return side.with_prior(with_best_prior(unordered).prior)


def smoothing(side: Side) -> Side:
    """The best rate, given mean and variance (6)."""
    prior = side.prior

    def at(sums: PriorMoments, rate: Float[Array, " k"]) -> PriorCandidates:
        return evaluate_prior(sums, prior.mean, prior.variance, rate)

    return with_best_candidate(side, at)
