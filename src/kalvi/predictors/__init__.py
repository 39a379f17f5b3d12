"""How parameters meet inputs: the predictors f(θ, x) of a block of rows.

base      what every predictor says of itself, and the law of its values under a Gaussian
linear    f = xᵀθ, with an offset, or of several outputs
networks  any function of a tree of parameters
models    a predictor with the likelihood of what it predicts
"""

from kalvi.predictors.base import Linearised, Predictor, moments_of, predictor_moments
from kalvi.predictors.linear import Linear, MultiLinear, OffsetLinear, linear_predictor

__all__ = [
    "Linear",
    "Linearised",
    "MultiLinear",
    "OffsetLinear",
    "Predictor",
    "linear_predictor",
    "moments_of",
    "predictor_moments",
]
