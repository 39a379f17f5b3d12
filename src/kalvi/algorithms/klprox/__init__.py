"""KL-proximal variational inference for generalised linear models and Gaussian processes.

Khan, Baqué, Fleuret & Fua (2015), "Kullback-Leibler proximal variational inference".
"""

from kalvi.algorithms.klprox.evidence import Gradient, evidence_gradient
from kalvi.algorithms.klprox.fixed import Fixed, fixed
from kalvi.algorithms.klprox.function_space import (
    Conditioned,
    KLProx,
    Latent,
    Sites,
    conditioned,
    klprox,
    predict,
    sites_at,
)
from kalvi.algorithms.klprox.rule import Carried, Design, KLProximal, Proximal, Rows
from kalvi.algorithms.klprox.sparse import (
    Chosen,
    InducingFeatures,
    choose,
    features,
    sparse_elbo,
    sparse_klprox,
    sparse_predict,
)

__all__ = [
    "Carried",
    "Chosen",
    "Conditioned",
    "Design",
    "Fixed",
    "Gradient",
    "InducingFeatures",
    "KLProx",
    "KLProximal",
    "Latent",
    "Proximal",
    "Rows",
    "Sites",
    "choose",
    "conditioned",
    "evidence_gradient",
    "features",
    "fixed",
    "klprox",
    "predict",
    "sites_at",
    "sparse_elbo",
    "sparse_klprox",
    "sparse_predict",
]
