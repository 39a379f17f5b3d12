"""Every class of kalvi that holds values may be saved; none that a file should bring back is forgotten.

The classes are found by walking through the package. Only how one is made has to be said: a new rule,
state, posterior or estimator is one row of `INSTANCES`, and the tests fail without it.
"""

import inspect
import pkgutil
from collections.abc import Callable
from importlib import import_module
from typing import Any, get_origin

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from sklearn.base import BaseEstimator

import kalvi
from kalvi.archives import registry
from kalvi.gaussians import Dense, Diagonal, Gaussian, LowRankCovariance, LowRankPrecision, ascents
from kalvi.gaussians.mixture import Mixture
from kalvi.likelihoods import Bernoulli, Normal
from kalvi.predictors import Linear
from kalvi.predictors.models import Model
from kalvi.predictors.networks import Perceptron
from kalvi.rules import (
    factor_analysis,
    general,
    revisit,
    rvga,
    swag,
    training,
    vifa,
)
from kalvi.rules.factor_analysis import gradient, online, recursive
from kalvi.rules.klprox import rule as klprox
from kalvi.rules.revisit import SumPass
from kalvi.rules.rule import Rule
from kalvi.rules.silk import expected, posteriors, stochastic
from kalvi.rules.silk import rule as silk
from kalvi.rules.vifa import rule as descent
from tests.archives.older.cases import file_of
from tests.archives.test_files import same

THETA, PLACES = jnp.arange(3.0), jnp.zeros((4, 2))


def _dense() -> Dense:
    return Dense(np.arange(3.0), np.eye(3))


def _covariance() -> LowRankCovariance:
    return LowRankCovariance(np.arange(3.0), np.ones((3, 1)), np.ones(3))


def _precision() -> LowRankPrecision:
    return LowRankPrecision(np.arange(3.0), np.ones((3, 1)), np.ones(3))


def _model() -> Model:
    return Model(Perceptron((1, 1, 1)).network(jr.key(0), jnp.float64)[0], Normal(0.5))


def _revisit() -> revisit.Revisit:
    return revisit.Revisit(Model(Linear(), Bernoulli()))


def _general() -> general.GeneralRVGA:
    return general.GeneralRVGA(jnp.tanh)  # of functions those can be saved that the registry names


def _silk() -> Any:
    return kalvi.load(file_of("matrix")).posterior_


INSTANCES: dict[type, Callable[[], Any]] = {
    # posteriors
    Dense: _dense,
    Diagonal: lambda: Diagonal(np.zeros(3), np.ones(3)),
    LowRankCovariance: _covariance,
    LowRankPrecision: _precision,
    Mixture: lambda: Mixture([_dense(), _covariance()]),
    posteriors.MeanField: lambda: posteriors.MeanField.independent(PLACES, 1 + PLACES),
    posteriors.Chains: lambda: posteriors.Chains.independent(PLACES, 1 + PLACES),
    posteriors.Coupled: lambda: posteriors.Coupled.independent(PLACES, 1 + PLACES),
    # rules
    rvga.RVGA: lambda: rvga.RVGA(Bernoulli(), forgetting=0.9),
    general.GeneralRVGA: _general,
    revisit.Revisit: lambda: _revisit(),
    SumPass: lambda: SumPass(_model(), _dense()),
    klprox.KLProximal: lambda: klprox.KLProximal(Bernoulli(), rows=20),
    recursive.RecursiveFA: lambda: recursive.RecursiveFA(),
    online.OnlineEM: lambda: online.OnlineEM(),
    gradient.SGA: lambda: gradient.SGA(),
    swag.SWA: lambda: swag.SWA(variance=True),
    swag.SWAG: lambda: swag.SWAG(2),
    swag.FASWAG: lambda: swag.FASWAG(factor_analysis.RecursiveFA(), 2),
    swag.WindowAverage: lambda: swag.WindowAverage(swag.SWAG(2), 3),
    training.Training: lambda: training.Training(_model(), 20, horizon=5),
    vifa.VIFA: lambda: vifa.VIFA(_model(), 20),
    vifa.PrecisionVI: lambda: vifa.PrecisionVI(_model(), 20),
    silk.SILK: lambda: silk.SILK(),
    expected.ExpectedSILK: lambda: expected.ExpectedSILK(),
    stochastic.StochasticSILK: lambda: stochastic.StochasticSILK(2, 2),
    # states
    rvga.Streaming: lambda: rvga.RVGA(Bernoulli()).init(_dense()),
    general.GeneralRVGAState: lambda: _general().init(_dense()),
    revisit.RevisitState: lambda: _revisit().init(_precision(), start=_precision()),
    ascents.NaturalAscent: lambda: _revisit().init(_dense(), start=_dense()).ascent,
    ascents.QuasiNewtonAscent: lambda: _precision().ascent(_precision()),
    ascents.RowSums: lambda: ascents.zero_sums(_dense()),
    klprox.ProximalState: lambda: klprox.KLProximal(Bernoulli()).init(_dense()),
    recursive.RecursiveFAState: lambda: recursive.RecursiveFA().init(_covariance()),
    online.OnlineEMState: lambda: online.OnlineEM().init(_covariance()),
    gradient.SGAState: lambda: gradient.SGA().init(_covariance()),
    swag.Path: lambda: swag.SWAG(2).init(THETA),
    swag.WaitingIterates: lambda: swag.FASWAG(factor_analysis.RecursiveFA(), 2).init(THETA),
    training.TrainingState: lambda: training.Training(_model(), 20).init(THETA),
    descent.Descent: lambda: vifa.VIFA(_model(), 20).init(_covariance()),
    silk.SILKState: lambda: silk.SILK().init(_silk()),
    expected.ExpectedSILKState: lambda: expected.ExpectedSILK().init(_silk()),
    stochastic.StochasticSILKState: lambda: stochastic.StochasticSILK(2, 2).init(_silk()),
    # estimators, fitted by an older version; `estimators/test_saving.py` has those of today
    kalvi.LinearRegression: lambda: kalvi.load(file_of("linear")),
    kalvi.LogisticRegression: lambda: kalvi.load(file_of("low_rank")),
    kalvi.PoissonRegression: lambda: kalvi.load(file_of("counts")),
    kalvi.GaussianProcessRegressor: lambda: kalvi.load(file_of("process")),
    kalvi.GaussianProcessClassifier: lambda: kalvi.load(file_of("process_classes")),
    kalvi.NeuralRegressor: lambda: kalvi.load(file_of("network")),
    kalvi.NeuralClassifier: lambda: kalvi.load(file_of("network_classes")),
    kalvi.FactorAnalysis: lambda: kalvi.load(file_of("factors")),
    kalvi.BinaryFactorization: lambda: kalvi.load(file_of("matrix")),
}


def _modules() -> list[str]:
    walked = pkgutil.walk_packages(kalvi.__path__, "kalvi.")
    return [found.name for found in walked if not found.name.endswith("__main__")]


def _is_edge(name: str) -> bool:
    return any(name == edge or name.startswith(f"{edge}.") for edge in registry.EDGES)


def _is_record(cls: Any) -> bool:
    return issubclass(cls, tuple) and hasattr(cls, "_fields")


def _is_abstract(cls: type) -> bool:
    parts = [getattr(cls, name, None) for name in dir(cls)]
    return any(getattr(part, "__isabstractmethod__", False) for part in parts)


def _defined(name: str) -> list[type]:
    """The public classes of values that a module defines, but for what others are made of."""
    parts = vars(import_module(name)).items()
    own = [
        cls
        for key, cls in parts
        if isinstance(cls, type) and (cls.__module__, cls.__name__) == (name, key)
    ]
    values = [cls for cls in own if issubclass(cls, eqx.Module | BaseEstimator) or _is_record(cls)]
    return [cls for cls in values if not cls.__name__.startswith("_") and not _is_abstract(cls)]


def _states(rules: list[Any]) -> set[type]:
    """What `init` of the rules gives."""
    given = {inspect.signature(rule.init).return_annotation for rule in rules}
    found = {get_origin(state) or state for state in given}
    return {state for state in found if isinstance(state, type) and state is not Any}


DEFINED = [cls for name in _modules() for cls in _defined(name)]
WANTED = (Rule, Gaussian, posteriors.Posterior, BaseEstimator)
"""Whose concrete classes are to be saved and loaded whole, beside the states of rules."""


def _wanted() -> list[type]:
    whole = [cls for cls in DEFINED if issubclass(cls, WANTED)]
    return sorted(
        {*whole, *_states([cls for cls in whole if issubclass(cls, Rule)])}, key=registry.name_of
    )


def test_the_walk_finds_what_there_is():
    assert {rvga.RVGA, Dense, kalvi.LinearRegression, kalvi.Batch} <= set(DEFINED)
    assert {rvga.Streaming, revisit.RevisitState, swag.WaitingIterates} <= set(_wanted())


@pytest.mark.parametrize(
    "cls", [c for c in DEFINED if not _is_edge(c.__module__)], ids=registry.name_of
)
def test_a_file_may_speak_of_every_class_of_values(cls):
    kind = registry.kind_of(cls)
    assert kind in ("module", "record", "estimator")
    assert registry.find(registry.name_of(cls), kind) is cls


def test_the_edges_hold_nothing_that_is_to_be_saved():
    assert not [cls for cls in _wanted() if _is_edge(cls.__module__)]
    assert all(_is_edge(name) != registry.is_module(name) for name in _modules())


@pytest.mark.parametrize("cls", _wanted(), ids=registry.name_of)
def test_it_comes_back_bit_for_bit(cls, tmp_path):
    assert cls in INSTANCES, f"how is a {cls.__name__} made? Add it to INSTANCES"
    value = INSTANCES[cls]()
    assert type(value) is cls
    kalvi.save(tmp_path / "value", value)
    same(value, kalvi.load(tmp_path / "value"))
