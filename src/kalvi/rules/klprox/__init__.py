"""KL-proximal variational inference for generalised linear models and Gaussian processes.

Khan, Baqué, Fleuret & Fua (2015), "Kullback-Leibler proximal variational inference".
"""

from kalvi.rules.klprox.evidence import Gradient, evidence_gradient
from kalvi.rules.klprox.function_space import (
    Conditioned,
    KLProx,
    Latent,
    Sites,
    conditioned,
    klprox,
    predict,
    sites_at,
)
from kalvi.rules.klprox.rule import KLProximal, Proximal
from kalvi.rules.klprox.sparse import (
    Chosen,
    InducingFeatures,
    choose,
    features,
    sparse_elbo,
    sparse_klprox,
    sparse_predict,
)

__all__ = [
    "Chosen",
    "Conditioned",
    "Gradient",
    "InducingFeatures",
    "KLProx",
    "KLProximal",
    "Latent",
    "Proximal",
    "Sites",
    "choose",
    "conditioned",
    "evidence_gradient",
    "features",
    "klprox",
    "predict",
    "sites_at",
    "sparse_elbo",
    "sparse_klprox",
    "sparse_predict",
]
