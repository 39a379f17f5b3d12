"""KL-proximal variational inference for generalised linear models and Gaussian processes.

Khan, Baqué, Fleuret & Fua (2015), "Kullback-Leibler proximal variational inference".
"""

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

__all__ = [
    "Conditioned",
    "KLProx",
    "Latent",
    "Sites",
    "conditioned",
    "klprox",
    "predict",
    "sites_at",
]
