"""Observation models p(y | f): what an observation says about its predictors f.

likelihood  the interface of every likelihood (`Likelihood`)
sites       the algebra of one observation: numbers for one predictor, matrices for several
implicit    the search for the optimal site
scalar      one predictor: Normal, Bernoulli, Probit, Poisson, Gamma, Laplace, StudentT
logit_sums  one predictor, sums of logistic terms: Binomial, NegativeBinomial, Ordinal
logistic    the Gaussian integrals of the logistic function, accurate or as in the paper
vector      several predictors: Softmax, MultiNormal
correlated  several numbers with correlated noise: CorrelatedNormal
custom      from a log-probability (Custom), or with averages over draws (Sampled)
projected   several predictors along a few directions (Projected)
"""

from kalvi.likelihoods.correlated import CorrelatedNormal
from kalvi.likelihoods.custom import Custom
from kalvi.likelihoods.likelihood import Likelihood
from kalvi.likelihoods.logistic import InverseProbit, ScaleMixture
from kalvi.likelihoods.logit_sums import Binomial, NegativeBinomial, Ordinal
from kalvi.likelihoods.scalar import (
    Bernoulli,
    Gamma,
    Laplace,
    Normal,
    Poisson,
    Probit,
    StudentT,
)
from kalvi.likelihoods.vector import MultiNormal, Softmax

__all__ = [
    "Bernoulli",
    "Binomial",
    "CorrelatedNormal",
    "Custom",
    "Gamma",
    "InverseProbit",
    "Laplace",
    "Likelihood",
    "MultiNormal",
    "NegativeBinomial",
    "Normal",
    "Ordinal",
    "Poisson",
    "Probit",
    "ScaleMixture",
    "Softmax",
    "StudentT",
]
