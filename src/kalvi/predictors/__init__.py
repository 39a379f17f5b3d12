"""Predictors: the functions f(θ, x) of the parameters θ and a row x.

predictor the interface of every predictor, and the moments of its values under a Gaussian
linear    f = xᵀθ, with an offset, or of several outputs
networks  any function of a tree of parameters
models    a predictor together with a likelihood
"""

from kalvi.predictors.linear import Linear, MultiLinear, OffsetLinear, linear_predictor
from kalvi.predictors.predictor import Linearised, Predictor, moments_of, predictor_moments

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
