"""KL-proximal inference: the optimum of the variational bound for linear models and Gaussian processes."""

from kalvi.rules.klprox.evidence import evidence_gradient
from kalvi.rules.klprox.function_space import klprox, predict
from kalvi.rules.klprox.rule import KLProximal
from kalvi.rules.klprox.sparse import (
    InducingFeatures,
    choose_inducing,
    inducing_features,
    sparse_elbo,
    sparse_klprox,
    sparse_predict,
)

__all__ = [
    "InducingFeatures",
    "KLProximal",
    "choose_inducing",
    "evidence_gradient",
    "inducing_features",
    "klprox",
    "predict",
    "sparse_elbo",
    "sparse_klprox",
    "sparse_predict",
]
