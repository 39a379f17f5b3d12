"""The rules, one file or folder each.

These files have what the rules share:

rule              a block of rows, and the three kinds of rules
rvga_checks       settings of `RVGA` that contradict each other are refused
row_blocks        blocks of rows of a stream, before and after their predictors are linearised
schemes           how one observation updates the distribution of its predictors
recursion         the sites of a block, one after the other
visits            the expected terms of a batch at one Gaussian
drifts            how a Gaussian changes with time
learned_noise     the variance of normal noise, learned along a stream
side_by_side      copies of a stream with different settings, weighed by their evidence
sampled_networks  blocks of rows for a network, by draws of its parameters
evidence          prior precisions and noise of a network

`revisit.Revisit` makes further passes over all rows, from the posterior of a stream to the optimum.

R-VGA: Lambert, Bonnabel & Bach (2022), "The recursive variational Gaussian approximation".
L-RVGA: Lambert, Bonnabel & Bach (2023), "The limited-memory recursive variational Gaussian
approximation".
MultiSWAG: Brownlie (2021), "Extending the Bayesian deep learning method MultiSWAG".
KL-prox: Khan, Baqué, Fleuret & Fua (2015), "Kullback-Leibler proximal variational inference".
SILK: document 004, "Scaleable inference for logistic Kalmans" (2019).

| paper  | section                                     | class or function                  |
|--------|---------------------------------------------|------------------------------------|
| R-VGA  | 3.2, 5.2: implicit scheme                   | `rvga.RVGA`, `schemes.Implicit`    |
|        | 3.2, 5.4.1: explicit scheme                 | `schemes.Explicit`                 |
|        | 4.1: Kalman filter, Theorem 2               | any scheme with `likelihoods.Normal` |
|        | 4.2, 5.4.2: EKF, natural gradient, Theorem 3 | `schemes.EKF`                     |
|        | 5.4.3: quadratic Kalman filter              | `schemes.QKF`                      |
|        | Corollary 1.1: forms of order 2, 1 and 0    | `general.GeneralRVGA`              |
|        | 6: batch Laplace, batch optimum             | `laplace.laplace`, `vga.vga`       |
| L-RVGA | 4.1: low rank, one projection a block       | `rvga.RVGA` of a `LowRankPrecision` |
|        | 4.2, appendix E: mirror prox, corrected     | `schemes.MirrorProx`               |
|        | 4.2.3, 4.2.4: networks                      | `rvga.RVGA` with a network as `predictor` |
|        | 5.1, Algorithm 1: covariance of a stream    | `factor_analysis.RecursiveFA`      |
|        | 3.1, appendix A: batch EM                   | `factor_analysis.batch_em`         |
|        | appendix C: online EM, corrected            | `factor_analysis.OnlineEM`         |
| MultiSWAG | 3: SWA, SWAG, of SGD iterates           | `swag.SWA`, `swag.SWAG`            |
|        | 4.1, 4.2: factor analysis of SGD iterates   | `swag.FASWAG`                      |
|        | 4.1, Algorithm 1; 4.2, Algorithm 2: streams | `factor_analysis.SGA`, `OnlineEM`  |
|        | 4.3, Algorithm 3: VIFA; A.2: its twin       | `vifa.VIFA`, `vifa.PrecisionVI`    |
|        | 6.1: means of windows of iterates           | `swag.WindowAverage`               |
| KL-prox | 3, Theorem 1: conjugate models           | `papers.proximal_point`            |
|        | 5, eqs. 16, 17: weight space; minibatches   | `klprox.KLProximal`                |
|        | 5, eqs. 18, 19, Algorithm 1, corrected      | `papers.klprox_fixed`              |
|        | 5: Gaussian processes, at the optimum       | `klprox.klprox`                    |
| SILK   | 2: smoothness prior                         | `kernels.OrnsteinUhlenbeck`        |
|        | 3, 4: bound, means and variances            | `silk.elbo`, `silk.update_rows`    |
|        | 5, 6: mean, variance, rate of the prior     | `silk.with_best_prior`             |
|        | 7: first guess                              | `silk.start`                       |
|        | 9: interface (table in the package)         | `silk`                             |
|        | sweeps; random pieces                       | `silk.SILK`, `silk.StochasticSILK` |
|        | 3.2 without the bound                       | `silk.ExpectedSILK`                |
"""

from importlib import import_module
from typing import Any

from kalvi.rules.laplace import laplace
from kalvi.rules.revisit import Revisit
from kalvi.rules.rule import Batch, IterativeRule, PassRule, Rule, StreamRule
from kalvi.rules.rvga import RVGA
from kalvi.rules.vga import vga

_HOMES = {
    "factor_analysis": ("SGA", "OnlineEM", "RecursiveFA", "batch_em", "random_factor_model"),
    "general": (
        "FirstOrder",
        "GaussHermite",
        "GeneralRVGA",
        "Sampling",
        "SecondOrder",
        "SigmaPoints",
        "ZerothOrder",
    ),
    "swag": ("FASWAG", "SWA", "SWAG", "PathRule", "WindowAverage"),
    "training": ("Training",),
    "vifa": (
        "VIFA",
        "Antithetic",
        "GaussNewton",
        "Plain",
        "PrecisionVI",
        "Preconditioned",
        "Single",
        "Transform",
    ),
}
"""The rules that are loaded when they are first used; a linear model needs none of them."""
_HOME = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "RVGA",
    "Batch",
    "IterativeRule",
    "PassRule",
    "Revisit",
    "Rule",
    "StreamRule",
    "laplace",
    "vga",
    *_HOME,
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f"kalvi.rules.{_HOME[name]}"), name)
    raise AttributeError(f"module 'kalvi.rules' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
