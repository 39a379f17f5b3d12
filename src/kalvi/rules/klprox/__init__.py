"""KL-proximal variational inference for generalised linear models and Gaussian processes.

Khan, Baqué, Fleuret & Fua (2015), "Kullback-Leibler proximal variational inference".
"""

from kalvi.rules.klprox.evidence import EvidenceGradient, evidence_gradient
from kalvi.rules.klprox.function_space import (
    ConditioningFactors,
    KLProx,
    LatentPrior,
    Sites,
    condition,
    klprox,
    predict,
    sites_at,
)
from kalvi.rules.klprox.rule import KLProximal, ProximalState
from kalvi.rules.klprox.sparse import (
    InducingChoice,
    InducingFeatures,
    choose_inducing,
    inducing_features,
    sparse_elbo,
    sparse_klprox,
    sparse_predict,
)

__all__ = [
    "ConditioningFactors",
    "EvidenceGradient",
    "InducingChoice",
    "InducingFeatures",
    "KLProx",
    "KLProximal",
    "LatentPrior",
    "ProximalState",
    "Sites",
    "choose_inducing",
    "condition",
    "evidence_gradient",
    "inducing_features",
    "klprox",
    "predict",
    "sites_at",
    "sparse_elbo",
    "sparse_klprox",
    "sparse_predict",
]
