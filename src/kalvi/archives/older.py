"""Translates the names and fields in files of older versions into those of today.

A module, a package or a class may have moved (`MODULES`, `PACKAGES`, `CLASSES`); a class may have had other
fields, or may no longer exist (`CHANGES`). An old name must not be used for anything else. A new field that
has a default needs no entry.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

Parts = dict[str, Any]

REVISIT = "kalvi.rules.revisit:Revisit"

PACKAGES = {
    "kalvi.algorithms": "kalvi.rules",
}
"""Packages that moved with their modules, except for the modules in `MODULES`."""

MODULES = {
    "kalvi.algorithms.base": "kalvi.rules.rule",
    "kalvi.algorithms.silk.places": "kalvi.rules.silk.locations",
    "kalvi.algorithms.sites": "kalvi.rules.schemes",
    "kalvi.custom": "kalvi.likelihoods.custom",
    "kalvi.estimators.binary_factorization": "kalvi.estimators.binary_factorization.model",
    "kalvi.estimators.binary_places": "kalvi.estimators.binary_factorization.locations",
    "kalvi.estimators.factor_analysis": "kalvi.estimators.factor_analysis.model",
    "kalvi.estimators.gaussian_process": "kalvi.estimators.gaussian_process.models",
    "kalvi.estimators.gp_covariances": "kalvi.estimators.gaussian_process.covariances",
    "kalvi.estimators.gp_fits": "kalvi.estimators.gaussian_process.exact",
    "kalvi.estimators.gp_sparse": "kalvi.estimators.gaussian_process.sparse",
    "kalvi.estimators.linear": "kalvi.estimators.linear.models",
    "kalvi.estimators.neural": "kalvi.estimators.neural.models",
    "kalvi.estimators.neural_fits": "kalvi.estimators.neural.problem",
    "kalvi.gaussians.base": "kalvi.gaussians.gaussian",
    "kalvi.gaussians.full": "kalvi.gaussians.dense",
    "kalvi.implicit": "kalvi.likelihoods.implicit",
    "kalvi.kernels.base": "kalvi.kernels.kernel",
    "kalvi.kernels.others": "kalvi.kernels.without_distance",
    "kalvi.likelihoods": "kalvi.likelihoods.scalar",
    "kalvi.likelihoods.base": "kalvi.likelihoods.likelihood",
    "kalvi.linalg": "kalvi.numerics.linalg",
    "kalvi.logistic": "kalvi.likelihoods.logistic",
    "kalvi.models": "kalvi.predictors.models",
    "kalvi.networks": "kalvi.predictors.networks",
    "kalvi.predictors": "kalvi.predictors.linear",
    "kalvi.predictors.base": "kalvi.predictors.predictor",
    "kalvi.projections": "kalvi.numerics.projections",
    "kalvi.rules.base": "kalvi.rules.rule",
    "kalvi.rules.silk.places": "kalvi.rules.silk.locations",
    "kalvi.streams": "kalvi.streams.blocks",
    "kalvi.tabular.factor": "kalvi.tabular.factor_analysis",
    "kalvi.tabular.matrix": "kalvi.tabular.binary_matrix",
    "kalvi.tabular.model": "kalvi.tabular.choices",
    "kalvi.tridiagonal": "kalvi.numerics.tridiagonal",
    "kalvi.vectors": "kalvi.likelihoods.vector",
}

BINARY = "kalvi.estimators.binary_factorization"
GP = "kalvi.estimators.gaussian_process"
FA = "kalvi.rules.factor_analysis"
KLPROX = "kalvi.rules.klprox"

CLASSES = {
    "kalvi.columns.encoder:Settings": "kalvi.columns.encoder:EncoderSettings",
    "kalvi.columns.numbers:Moments": "kalvi.columns.numbers:ColumnMoments",
    "kalvi.columns.numbers:Numbers": "kalvi.columns.numbers:NumberColumns",
    f"{BINARY}.locations:Axis": f"{BINARY}.locations:SortedAxis",
    f"{GP}.covariances:Foreign": f"{GP}.covariances:SklearnKernel",
    f"{GP}.covariances:Own": f"{GP}.covariances:KalviKernel",
    f"{GP}.exact:Exact": f"{GP}.exact:ExactFit",
    f"{GP}.exact:Hyper": f"{GP}.hyperparameters:Hyperparameters",
    f"{GP}.exact:Mean": f"{GP}.hyperparameters:PriorMean",
    f"{GP}.sparse:Sparse": f"{GP}.sparse:SparseFit",
    "kalvi.estimators.neural.problem:Fitted": "kalvi.estimators.neural.problem:LearnedNetwork",
    "kalvi.gaussians.dense:Diagonal": "kalvi.gaussians.diagonal:Diagonal",
    "kalvi.gaussians.low_rank:LowRankCovariance": "kalvi.gaussians.low_rank_covariance:LowRankCovariance",
    "kalvi.likelihoods.implicit:Expected": "kalvi.likelihoods.sites:Expected",
    "kalvi.likelihoods.implicit:Site": "kalvi.likelihoods.sites:Site",
    "kalvi.likelihoods.vector:VectorExpected": "kalvi.likelihoods.sites:Expected",
    "kalvi.likelihoods.vector:VectorSite": "kalvi.likelihoods.sites:Site",
    "kalvi.rules.klprox.rule:Carried": "kalvi.predictors.linear:OffsetLinear",
    f"{KLPROX}.rule:Gathered": f"{KLPROX}.rule:PassSums",
    "kalvi.rules.klprox.rule:Given": "kalvi.predictors.linear:Linear",
    "kalvi.rules.evidence:Hyper": "kalvi.rules.evidence:PriorAndNoise",
    f"{FA}.batch:Optimum": f"{FA}.batch:FactorOptimum",
    f"{FA}.gradient:Climbing": f"{FA}.gradient:SGAState",
    f"{FA}.online:Averaged": f"{FA}.online:OnlineEMState",
    f"{FA}.online:Model": f"{FA}.online:FactorParameters",
    f"{FA}.online:Statistics": f"{FA}.online:EMStatistics",
    f"{FA}.recursive:Factored": f"{FA}.recursive:RecursiveFAState",
    "kalvi.rules.general:General": "kalvi.rules.general:GeneralRVGAState",
    f"{KLPROX}.evidence:Gradient": f"{KLPROX}.evidence:EvidenceGradient",
    f"{KLPROX}.function_space:Conditioned": f"{KLPROX}.function_space:ConditioningFactors",
    f"{KLPROX}.function_space:Latent": f"{KLPROX}.function_space:LatentPrior",
    f"{KLPROX}.rule:Place": f"{KLPROX}.rule:WhitenedGaussian",
    f"{KLPROX}.rule:Proximal": f"{KLPROX}.rule:ProximalState",
    f"{KLPROX}.sparse:Chosen": f"{KLPROX}.sparse:InducingChoice",
    f"{KLPROX}.weights:Weights": f"{KLPROX}.weights:WeightOptimum",
    "kalvi.rules.revisit:AddedUp": "kalvi.rules.revisit:SumPass",
    "kalvi.rules.revisit:Revisiting": "kalvi.rules.revisit:RevisitState",
    "kalvi.rules.silk.anderson:Past": "kalvi.rules.silk.anderson:SweepHistory",
    "kalvi.rules.silk.locations:Places": "kalvi.rules.silk.locations:Locations",
    "kalvi.rules.silk.posteriors:Sites": "kalvi.rules.silk.posteriors:SideSites",
    "kalvi.rules.silk.rule:Swept": "kalvi.rules.silk.rule:SILKState",
    "kalvi.rules.silk.stochastic:Remembered": "kalvi.rules.silk.stochastic:RememberedSites",
    "kalvi.rules.silk.stochastic:Sampled": "kalvi.rules.silk.stochastic:StochasticSILKState",
    "kalvi.rules.swag:Waiting": "kalvi.rules.swag:WaitingIterates",
    "kalvi.rules.training:Trained": "kalvi.rules.training:TrainingState",
    "kalvi.rules.visits:Visit": "kalvi.rules.visits:BatchVisit",
}
"""Classes that moved by themselves or were renamed; keys are names after `MODULES` was applied."""


class Rebuilt(NamedTuple):
    """An object that has not been put together yet: the name of its class, and its fields."""

    name: Any  # a text, unless the file is malicious
    parts: Parts


class Change(NamedTuple):
    """An older version of a class, recognised by its fields, and what such an object becomes.

    `now` gets the fields and returns a value, or an object to be `Rebuilt`, which is checked as if it came
    from a file. Arrays are NumPy's in an estimator's file and JAX's in a state's.
    """

    name: str  # of any version
    had: str  # the names of its fields then, separated by spaces
    now: Callable[[Parts], Any]


def _streaming_of_network(had: Parts) -> Rebuilt:
    noise = {"variance": had["noise"], "blocks": had["blocks"]}
    return Rebuilt(
        "kalvi.rules.rvga:Streaming",
        {
            "posterior": had["posterior"],
            "log_evidence": had["log_evidence"],
            "rows": had["rows"],
            "innovations": had["rows"] * 0,
            "unsolved": had["unsolved"],
            "clipped": had["unsolved"] * 0,
            "noise": Rebuilt("kalvi.rules.learned_noise:LearnedNoise", noise),
        },
    )


def _rule_of_network(had: Parts) -> Rebuilt:
    kept = {name: part for name, part in had.items() if name != "model"}
    model = {"likelihood": had["model"].likelihood, "predictor": had["model"].predictor}
    return Rebuilt("kalvi.rules.rvga:RVGA", kept | model)


def _proximal_with_predictor(had: Parts) -> Rebuilt:
    kept = {name: part for name, part in had.items() if name != "design"}
    return Rebuilt("kalvi.rules.klprox.rule:KLProximal", kept | {"predictor": had["design"]})


def _revisit_of_likelihood(had: Parts) -> Rebuilt:
    likelihood = had["likelihood"]
    outputs = likelihood.outputs
    predictor = (
        Rebuilt("kalvi.predictors.linear:Linear", {})
        if outputs == 1
        else Rebuilt("kalvi.predictors.linear:MultiLinear", {"outputs": outputs})
    )
    model = {"predictor": predictor, "likelihood": likelihood}
    return Rebuilt(REVISIT, {"model": Rebuilt("kalvi.predictors.models:Model", model)})


def _keyed_column(had: Parts, keys: str, slots: Rebuilt) -> Rebuilt:
    kept = {name: had[name] for name in ("name", "rows", "missing")}
    parts = kept | {"keys": Rebuilt(f"kalvi.columns.keys:{keys}", {}), "slots": slots}
    return Rebuilt("kalvi.columns.keyed:KeyedColumn", parts)


def _with_own_slots(keys: str, field: str) -> Callable[[Parts], Rebuilt]:
    """The change of columns of levels or words, whose keys were in `field`."""

    def now(had: Parts) -> Rebuilt:
        parts = {name: had[name] for name in ("slots", "counts", "unknown")}
        slots = Rebuilt("kalvi.columns.slots:OwnSlots", parts | {"keys": had[field]})
        return _keyed_column(had, keys, slots)

    return now


def _with_hashed_slots(keys: str) -> Callable[[Parts], Rebuilt]:
    def now(had: Parts) -> Rebuilt:
        slots = Rebuilt("kalvi.columns.slots:HashedSlots", {k: had[k] for k in ("bits", "start")})
        return _keyed_column(had, keys, slots)

    return now


def _sparse_column(had: Parts) -> Rebuilt:
    """A sparse column had an array of slots by index, −1 where there was none."""
    places = np.asarray(had["places"])
    index = np.flatnonzero(places >= 0)
    index = index[np.argsort(places[index], kind="stable")]
    parts = {"keys": tuple(index.tolist()), "slots": places[index]}
    slots = Rebuilt("kalvi.columns.slots:OwnSlots", parts | {"counts": np.zeros(len(index), int)})
    return _keyed_column(had, "Indices", slots)


OWN, HASHED = "name rows missing unknown slots counts", "name rows missing bits start"
TABLE_MODELS = {
    "logistic": "kalvi.tabular.linear:LogisticRegressionModel",
    "linear": "kalvi.tabular.linear:LinearRegressionModel",
    "poisson": "kalvi.tabular.linear:PoissonRegressionModel",
    "gp": "kalvi.tabular.gaussian_process:GaussianProcessModel",
    "neural": "kalvi.tabular.neural:NeuralModel",
}
"""The class that a `TableModel` became, by its kind."""


def _model_of_a_kind(had: Parts) -> Rebuilt:
    kind = had["model"]
    return Rebuilt(TABLE_MODELS.get(kind) if isinstance(kind, str) else None, had)


TABLE_MODEL = "model choices target encoder estimator record"

CHANGES = (
    Change("kalvi.models:OneOutput", "likelihood", lambda had: had["likelihood"]),
    Change(
        "kalvi.algorithms.sites:Implicit",
        "thorough",
        lambda had: Rebuilt("kalvi.rules.schemes:Implicit", {}),
    ),
    Change(
        "kalvi.algorithms.nonlinear:Passing",
        "posterior noise log_evidence rows blocks unsolved",
        _streaming_of_network,
    ),
    Change(
        "kalvi.algorithms.nonlinear:NetworkRVGA",
        "model scheme look_ahead directions samples learn_noise block_size",
        _rule_of_network,
    ),
    Change(
        "kalvi.algorithms.klprox.rule:KLProximal",
        "likelihood beta rows natural decay design",
        _proximal_with_predictor,
    ),
    Change("kalvi.algorithms.revisit:Revisit", "likelihood", _revisit_of_likelihood),
    Change(
        "kalvi.algorithms.vifa.full:FullVI",
        "model prior_precision step_size",
        lambda had: Rebuilt(REVISIT, {"model": had["model"]}),
    ),
    Change("kalvi.columns.groups:Levels", f"{OWN} levels", _with_own_slots("Levels", "levels")),
    Change("kalvi.columns.groups:Sparse", "name rows missing places", _sparse_column),
    Change("kalvi.columns.groups:Hashed", HASHED, _with_hashed_slots("Levels")),
    Change("kalvi.columns.groups:HashedSparse", HASHED, _with_hashed_slots("Indices")),
    Change("kalvi.columns.words:Text", f"{OWN} words", _with_own_slots("Words", "words")),
    Change("kalvi.columns.words:HashedText", HASHED, _with_hashed_slots("Words")),
    *(
        Change("kalvi.tabular.model:TableModel", f"{TABLE_MODEL}{later}", _model_of_a_kind)
        for later in ("", " run", " run notation")
    ),
)
"""The oldest first, because a change may apply to the result of an earlier one."""


def moved(name: Any) -> Any:
    """Today's name of a class or a function; anything but a text is returned as it is."""
    if not isinstance(name, str):
        return name
    module, colon, own = name.partition(":")
    new = f"{MODULES.get(module) or _in_package(module)}{colon}{own}"
    return CLASSES.get(new, new)


def _in_package(module: str) -> str:
    for old, new in PACKAGES.items():
        if module.startswith(f"{old}."):
            return new + module.removeprefix(old)
    return module


def upgraded(name: Any, parts: Parts) -> Any:
    """Today's form of an object of any version: an object to be `Rebuilt`, or a value in its place."""
    found: Any = Rebuilt(moved(name), parts)
    for change in CHANGES:
        if isinstance(found, Rebuilt) and _applies(change, found):
            found = change.now(found.parts)
    return found


def _applies(change: Change, found: Rebuilt) -> bool:
    return moved(change.name) == found.name and set(change.had.split()) == set(found.parts)
