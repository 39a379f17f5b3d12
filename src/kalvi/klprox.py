"""KL-proximal inference: the optimum of the variational bound for linear models and Gaussian processes."""

from kalvi.rules.klprox import (
    InducingFeatures,
    KLProximal,
    choose_inducing,
    evidence_gradient,
    inducing_features,
    klprox,
    predict,
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
