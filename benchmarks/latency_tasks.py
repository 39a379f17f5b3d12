"""What `benchmarks.latency` times: python -m benchmarks.latency_tasks TASK CONTENDER [ARGUMENT ...].

Each task is the first thing that its process does. It prints seconds by name, as JSON.
"""

import json
import sys
import time
from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple

COLUMNS, CLASSES, VARIANCE = 10, 4, 4.0
WARM = 100
"""Calls before those that count for the quantiles."""

IMPORTS = {
    "kalvi": "from kalvi import LogisticRegression",
    "jax, scikit-learn": "import jax, sklearn.linear_model",
    "scikit-learn": "import sklearn.linear_model",
    "river": "import river.linear_model",
    "bayesianbandits": "import bayesianbandits",
}


class Model(NamedTuple):
    """A class by name, and its parameters."""

    module: str
    name: str
    parameters: dict[str, Any]

    def make(self) -> Any:
        return getattr(import_module(self.module), self.name)(**self.parameters)


def named(module: str, name: str, **parameters: Any) -> Model:
    return Model(module, name, parameters)


class FirstFit(NamedTuple):
    """The first fit of a model of kalvi, beside that of a model of scikit-learn, to y of some kind."""

    ours: Model
    theirs: Model
    kind: str


LINEAR, PROCESS = "sklearn.linear_model", "sklearn.gaussian_process"
NETWORK = "sklearn.neural_network"
LOGISTIC, PEER = named("kalvi", "LogisticRegression"), named(LINEAR, "LogisticRegression")
FITS = {
    "linear": FirstFit(
        named("kalvi", "LinearRegression"), named(LINEAR, "BayesianRidge"), "number"
    ),
    "logistic": FirstFit(LOGISTIC, PEER, "label"),
    "Poisson": FirstFit(
        named("kalvi", "PoissonRegression"), named(LINEAR, "PoissonRegressor"), "count"
    ),
    "low rank": FirstFit(named("kalvi", "LogisticRegression", rank=5), PEER, "label"),
    "four classes": FirstFit(LOGISTIC, PEER, "class"),
    "process, regression": FirstFit(
        named("kalvi", "GaussianProcessRegressor"),
        named(PROCESS, "GaussianProcessRegressor"),
        "number",
    ),
    "process, classes": FirstFit(
        named("kalvi", "GaussianProcessClassifier"),
        named(PROCESS, "GaussianProcessClassifier"),
        "label",
    ),
    "network, regression": FirstFit(
        named("kalvi", "NeuralRegressor"), named(NETWORK, "MLPRegressor"), "number"
    ),
    "network, classes": FirstFit(
        named("kalvi", "NeuralClassifier"), named(NETWORK, "MLPClassifier"), "label"
    ),
    "factor analysis": FirstFit(
        named("kalvi", "FactorAnalysis", n_components=2),
        named("sklearn.decomposition", "FactorAnalysis", n_components=2),
        "nothing",
    ),
    "binary matrix": FirstFit(
        named("kalvi", "BinaryFactorization", n_factors=2),
        named("sklearn.decomposition", "NMF", n_components=2),
        "matrix",
    ),
}


def problem(kind: str, n: int, columns: int = COLUMNS) -> tuple[Any, ...]:
    """Made-up rows, and what is to be predicted of them."""
    import numpy as np

    rng = np.random.default_rng(0)
    x = rng.normal(size=(n, columns))
    f = x[:, 0] - x[:, 1]
    match kind:
        case "number":
            return x, f + rng.normal(size=n)
        case "label":
            return x, (f + rng.logistic(size=n) > 0).astype(int)
        case "count":
            return x, rng.poisson(np.exp(f / 2))
        case "class":
            return x, np.argmax(x[:, :CLASSES] + rng.gumbel(size=(n, CLASSES)), axis=1)
        case "matrix":
            return (
                (np.outer(f, x[:COLUMNS, 0]) + rng.logistic(size=(n, COLUMNS)) > 0).astype(float),
            )
    return (x,)


def seconds(run: Callable, *args: Any) -> float:
    began = time.perf_counter()
    run(*args)
    return time.perf_counter() - began


def imports(who: str) -> dict[str, float]:
    return {"import": seconds(exec, IMPORTS[who], {})}


def first_fit(who: str, name: str, rows: str) -> dict[str, float]:
    fit = FITS[name]
    model = (fit.ours if who == "kalvi" else fit.theirs).make()
    return {"first fit": seconds(model.fit, *problem(fit.kind, int(rows)))}


def one_row(who: str, calls: str) -> dict[str, float]:
    """Rows learned and predicted one at a time, the first ones included."""
    import numpy as np

    x, y = problem("label", WARM + int(calls))
    learn, predict = LEARNERS[who]()
    rows: Any = [(x[i : i + 1], y[i : i + 1]) for i in range(len(y))]
    rows = _as_dictionaries(x, y) if who == "river" else rows
    learned = [seconds(learn, *row) for row in rows]
    predicted = [seconds(predict, row[0]) for row in rows]
    later = {"learning": learned[WARM:], "predicting": predicted[WARM:]}
    quantiles = {
        f"{name}, p{share}": float(np.percentile(times, share))
        for name, times in later.items()
        for share in (50, 99)
    }
    firsts = {"learning, first": learned[0], "learning, hundredth": learned[WARM - 1]}
    return firsts | {"predicting, first": predicted[0]} | quantiles


def _as_dictionaries(x: Any, y: Any) -> list[tuple[dict, bool]]:
    return [
        (dict(enumerate(row)), bool(label))
        for row, label in zip(x.tolist(), y.tolist(), strict=True)
    ]


def _by_kalvi() -> tuple[Callable, Callable]:
    model = LOGISTIC.make()
    return lambda x, y: model.partial_fit(x, y, classes=[0, 1]), model.predict_proba


def _by_sgd() -> tuple[Callable, Callable]:
    model = named(LINEAR, "SGDClassifier", loss="log_loss").make()
    return lambda x, y: model.partial_fit(x, y, classes=[0, 1]), model.predict_proba


def _by_river() -> tuple[Callable, Callable]:
    model = named("river.linear_model", "LogisticRegression").make()
    return model.learn_one, model.predict_proba_one


def _by_bandits() -> tuple[Callable, Callable]:
    from bayesianbandits import BayesianGLM, RVGAApproximator

    model = BayesianGLM(1 / VARIANCE, approximator=RVGAApproximator())
    return model.partial_fit, model.predict


LEARNERS = {
    "kalvi": _by_kalvi,
    "scikit-learn SGD": _by_sgd,
    "river": _by_river,
    "bayesianbandits": _by_bandits,
}


def write(who: str, path: str) -> dict[str, float]:
    """A fitted model as a file, for `load`."""
    import joblib

    import kalvi

    model = (LOGISTIC if who == "kalvi" else PEER).make().fit(*problem("label", 1000))
    if who == "kalvi":
        kalvi.save(path, model)
    else:
        joblib.dump(model, path)
    return {}


def load(who: str, path: str) -> dict[str, float]:
    """All that a process does which answers one question: its imports are part of it."""
    row = problem("label", 1)[0]

    def answer() -> None:
        module = import_module("kalvi" if who == "kalvi" else "joblib")
        module.load(path).predict_proba(row)

    return {"imports and first prediction": seconds(answer)}


def grid_search(who: str) -> dict[str, float]:
    from sklearn.model_selection import GridSearchCV

    ours = who == "kalvi"
    model = (LOGISTIC if ours else PEER).make()
    grid = {"prior_scale": [0.3, 1.0, 3.0]} if ours else {"C": [0.1, 1.0, 10.0]}
    search = GridSearchCV(model, grid, cv=3, n_jobs=2)
    return {"grid search": seconds(search.fit, *problem("label", 1000))}


def selection(who: str, features: str) -> dict[str, float]:
    from sklearn.feature_selection import SequentialFeatureSelector

    model = (LOGISTIC if who == "kalvi" else PEER).make()
    chosen = SequentialFeatureSelector(model, n_features_to_select=int(features), cv=3)
    return {"selection": seconds(chosen.fit, *problem("label", 1000, columns=13))}


TASKS = {
    task.__name__: task
    for task in (imports, first_fit, one_row, write, load, grid_search, selection)
}

if __name__ == "__main__":
    task, *arguments = sys.argv[1:]
    print(json.dumps(TASKS[task](*arguments)))
