"""Summaries of models of every kind: many effects, few, next to nothing, and hostile ones."""

import math
from typing import Any

import numpy as np


def logistic() -> dict[str, Any]:
    """A classifier of flights with hundreds of coefficients."""
    rng = np.random.default_rng(0)
    rows = [round(1000 * 3000 ** (i / 39)) for i in range(40)]
    loss = [0.43 + 0.25 * (1000 / r) ** 0.4 for r in rows]
    predicted = [0.05 + 0.1 * i for i in range(10)]
    codes = ["".join(rng.choice(list("ABCDEFGHIJKLMNOP"), 3)) for _ in range(195)]
    names = ["distance", "hour", "day of week=6", "carrier=WN", *(f"origin={c}" for c in codes)]
    means = sorted(rng.normal(0, 0.6, len(names)), key=abs, reverse=True)
    stds = rng.uniform(0.03, 0.25, len(names))
    return {
        "kalvi": "0.1.0",
        "name": "flights.kalvi",
        "model": "logistic",
        "target": "late",
        "classes": ["no", "yes"],
        "rows": 3_000_000,
        "weight": 3.0e6,
        "seconds": 61.2,
        "passes": 1,
        "parameters": 491,
        "rank": None,
        "log_loss": 0.4321,
        "log_evidence": -1_296_300.4,
        "noise_scale": None,
        "files": [{"path": "flights.parquet", "bytes": 48_123_456}],
        "settings": {"rank": None, "prior_scale": 1.0, "missing": "error", "standardise": True},
        "columns": [
            _number("distance", 727.3, 574.2, 31, 4962),
            _number("hour", 13.2, 4.9, 0, 23),
            _category("carrier", 14, ["WN", "DL", "AA", "OO", "UA"]),
            _category("origin", 229, ["ORD", "ATL", "DFW", "DEN", "LAX"]),
            {"name": "when", "kind": "time", "missing": 1234},
        ],
        "curve": {
            "rows": rows,
            "loss": loss,
            "recent": [v - 0.02 + 0.03 * math.sin(5 * i) / (1 + i / 9) for i, v in enumerate(loss)],
        },
        "calibration": {
            "predicted": predicted,
            "observed": [p + 0.04 * math.sin(6 * p) for p in predicted],
            "count": [
                1_200_000,
                900_000,
                420_000,
                210_000,
                130_000,
                80_000,
                40_000,
                15_000,
                4_000,
                90,
            ],
        },
        "coverage": None,
        "scores": {
            "rows": 2_999_090,
            "in_sample": False,
            "measures": [
                _measure("accuracy", 0.8123, 0.7871, "always 'no', the commonest class", "higher"),
                _measure("AUC", 0.7213, 0.5, "a random order", "higher"),
                _measure("Brier score", 0.1681, 0.1676, "the shares of the classes", "lower"),
                _measure("log loss", 0.4321, 0.4321, "the shares of the classes", "lower"),
            ],
        },
        "drift": {
            "change": 0.12,
            "sure": True,
            "words": "The log loss of the last tenth of the rows is 12 % above that of the tenth before: "
            "the stream may have changed; see drift (--set drift=0.999).",
        },
        "effects_of": "the log odds of yes",
        "effects_total": 490,
        "effects": [_effect(n, m, s) for n, m, s in zip(names, means, stds, strict=True)],
        "intercept": [_effect("intercept", -12.5, 0.04)],
        "examples": [
            {
                "row": {
                    "distance": "1,000",
                    "hour": str(6 + 2 * i),
                    "carrier": "WN",
                    "origin": "ORD",
                },
                "observed": "yes" if i % 3 == 0 else "no",
                "predicted": 0.12 + 0.09 * i,
                "lower": 0.09 + 0.08 * i,
                "upper": 0.16 + 0.1 * i,
            }
            for i in range(8)
        ],
        "shape": None,
        "diagnosis_absent": None,
        "diagnosis": {
            "pareto_k": 0.21,
            "verdict": "good",
            "draws": 1000,
            "rows": 2000,
            "ess": 903.2,
        },
        "warnings": ["Column 'when' had 1,234 missing values; their indicator is a coefficient."],
    }


def linear() -> dict[str, Any]:
    """A regression on three columns."""
    rows = [256 * i for i in range(1, 9)]
    return {
        **dict.fromkeys(logistic()),
        "kalvi": "0.1.0",
        "name": "houses.kalvi",
        "model": "linear",
        "target": "price",
        "rows": 2048,
        "seconds": 0.84,
        "passes": 2,
        "parameters": 4,
        "log_loss": 1.2345,
        "log_evidence": -2530.1,
        "noise_scale": 0.7312,
        "files": [{"path": "houses-1.csv", "bytes": 81_234, "rows": 1024}] * 2,
        "settings": {"rank": None, "prior_scale": 10.0},
        "columns": [_number(name, 3.1, 1.2, -1.5, 9.25) for name in ("rooms", "age", "income")],
        "curve": {
            "rows": rows,
            "loss": [math.inf, *(1.2 + 9 / r for r in rows[1:])],
            "recent": None,
        },
        "coverage": {
            "level": [0.5, 0.8, 0.9, 0.95],
            "observed": [0.47, 0.79, 0.91, 0.962],
            "count": 2048,
        },
        "scores": {
            "rows": 2000,
            "in_sample": True,
            "measures": [
                _measure("R²", 0.71, 0.0, "the mean of these rows", "higher"),
                _measure("RMSE", 0.73, 1.36, "the mean of the rows", "lower"),
                _measure("coverage of 95 % intervals", 0.962, 0.95, "the nominal level", "nearer"),
            ],
        },
        "effects_of": "the mean of price",
        "effects": [
            _effect("income", 0.8123, 0.021),
            _effect("rooms", -0.24, 0.05),
            _effect("age", 0.004, 0.02),
        ],
        "examples": [
            {
                "row": {"rooms": "4"},
                "observed": o,
                "predicted": p,
                "lower": p - 1.4,
                "upper": p + 1.4,
            }
            for o, p in (("2.3", 2.1), ("-1", 0.2), ("4.75", 3.9))
        ],
        "diagnosis": {
            "pareto_k": 0.83,
            "verdict": "poor",
            "draws": 1000,
            "rows": 2000,
            "ess": 31.0,
        },
    }


def process() -> dict[str, Any]:
    """A Gaussian process of three classes."""
    latent = {
        "kernel": "Constant × RBF",
        "likelihood": "Bernoulli",
        "mean": 0.0,
        "hyperparameters": {"Constant.variance": 2.273, "RBF.length_scale": [6.1, 0.4]},
    }
    shape = {"kind": "process", "latent": [latent] * 3, "regime": "sparse", "inducing": 64}
    flights = logistic()
    return {
        **{key: flights[key] for key in ("kalvi", "target", "calibration", "columns")},
        "name": "process.kalvi",
        "model": "gp",
        "classes": ["early", "late", "very late indeed"],
        "rows": 600,
        "seconds": 13.1,
        "parameters": 0,
        "scores": linear()["scores"],
        "shape": shape | {"bound": -312.21, "gap": None},
        "settings": {"target": "late", "model": "gp"},
    }


def network() -> dict[str, Any]:
    """A network of numbers."""
    shape = {
        "kind": "network",
        "layers": [12, 50, 50, 1],
        "activation": "tanh",
        "method": "vifa",
        "posterior": "LowRankPrecision",
        "parameters": 3251,
        "bound": -1234.5,
    }
    houses = linear()
    kept = ("kalvi", "target", "rows", "seconds", "coverage", "scores", "columns", "settings")
    return {
        **{key: houses[key] for key in kept},
        "name": "network.kalvi",
        "model": "neural",
        "rank": "auto",
        "shape": shape,
        "parameters": 3251,
    }


def factor() -> dict[str, Any]:
    """A factor analysis of eight columns."""
    names = [f"sensor {i} of the northern station" for i in range(8)]
    loadings = [[name, math.cos(i)] for i, name in enumerate(names)]
    rows = [256 * i for i in range(1, 12)]
    return {
        "kalvi": "0.1.0",
        "name": "sensors.kalvi",
        "model": "factor",
        "components": 2,
        "method": "eigen",
        "rows": 5000,
        "seconds": 2.3,
        "parameters": 32,
        "log_density": -9.87,
        "explained": 0.594,
        "factors": [
            {"name": f"factor_{k}", "share": 0.3, "sd": 0.23, "loadings": loadings} for k in (1, 2)
        ],
        "noise": [[name, abs(math.sin(i))] for i, name in enumerate(names)],
        "sample": {"rows": 2000, "log_density": -9.5, "quantiles": [[0.001, -17.4], [0.5, -8.9]]},
        "files": [{"path": "sensors.parquet", "bytes": 273_000}],
        "columns": [_number(name, 0.1, 1.2, -4.0, 5.0) for name in names],
        "curve": {"rows": rows, "loss": [9 + 9 / r for r in rows], "recent": None},
        "settings": {"components": 2, "method": "eigen"},
        "warnings": [],
    }


def silk() -> dict[str, Any]:
    """A matrix of votes by day."""
    days = [19_723.0 + i for i in range(120)]
    wave = [math.sin((d - days[0]) / 12) for d in days]
    members = [f"member {i} of the upper house" for i in range(30)]
    heights = [3 * math.cos(i) for i in range(30)]
    return {
        "kalvi": "0.1.0",
        "name": "votes.kalvi",
        "model": "silk",
        "rows": 120,
        "cols": 30,
        "observed": 2879,
        "ones": 1362,
        "n_factors": 2,
        "factors": [
            {"name": f"factor_{k}", "share": 0.5, "row_length": 49.4, "col_length": 2.0}
            for k in (1, 2)
        ],
        "row_axis": {"kind": "dates", "least": "2024-01-01", "most": "2024-04-29"},
        "col_axis": {"kind": "unordered", "least": "", "most": ""},
        "row_factors": {
            "kind": "dates",
            "names": [str(d) for d in days],
            "position": days,
            "mean": [wave, wave[::-1]],
            "std": [[0.2] * 120] * 2,
        },
        "col_factors": {
            "kind": "unordered",
            "names": members,
            "position": [float(i) for i in range(30)],
            "mean": [heights, heights[::-1]],
            "std": [[0.4] * 30] * 2,
        },
        "bound": -1478.9,
        "bound_per_entry": -0.5137,
        "history": [-1900.0, -1500.0, -1480.0, -1479.0, -1478.9],
        "sweeps": 4,
        "converged": True,
        "seconds": 4.9,
        "files": [{"path": "votes.csv"}],
        "settings": {"n_factors": "auto", "tol": 1e-5},
        "warnings": [],
    }


def hostile_shapes() -> dict[str, Any]:
    """Everything that the other kinds of models tell, hostile and at once."""
    evil, nan, inf = hostile()["name"], math.nan, math.inf
    side = {"kind": evil, "names": [evil, "b"], "position": [1e300, -inf], "mean": [[nan, 1.0]]}
    loading = [[evil, 0.5], [evil, nan], ["w" * 5000, -inf], evil]
    latent = {"kernel": evil, "likelihood": evil, "hyperparameters": {evil: evil, "a": [nan, 1.0]}}
    return {
        **hostile(),
        "scores": {"rows": inf, "measures": [_measure(evil, nan, inf, evil, evil), evil]},
        "drift": {"words": evil},
        "diagnosis": None,
        "diagnosis_absent": evil,
        "intercept": [{"class": evil, "mean": evil, "original": {"mean": nan}}],
        "shape": {"kind": "process", "latent": [latent, evil], "regime": evil},
        "factors": [{"name": evil, "share": inf, "sd": nan, "loadings": loading}],
        "noise": loading,
        "sample": {"quantiles": loading},
        "row_factors": side | {"std": [[1.0, inf]]},
        "col_factors": side | {"kind": "unordered", "std": [[1.0, nan]]},
        "row_axis": {"kind": evil, "least": evil},
        "history": [1.0, inf, nan, 2.0],
        "files": [{"path": evil}],
    }


def hostile_factor() -> dict[str, Any]:
    """The same of a factor analysis."""
    return hostile_shapes() | {"model": "factor"}


def hostile_silk() -> dict[str, Any]:
    """The same of a matrix."""
    return hostile_shapes() | {"model": "silk", "rows": 0, "cols": math.nan}


def bare() -> dict[str, Any]:
    """A model that was stopped before it learned anything."""
    return {"kalvi": "0.1.0", "name": "new.kalvi", "model": "poisson", "target": "n", "rows": 0}


def hostile() -> dict[str, Any]:
    """The flights with markup, control characters and numbers that are none, everywhere."""
    evil = "<script>alert(1)</script>\"'&\x00\x1b\ud800\u202eabc"
    nan, inf = math.nan, math.inf
    flights = logistic()
    return {
        **flights,
        "name": evil,
        "target": evil,
        "model": evil,
        "classes": [evil, evil + "2", "c"],
        "kalvi": evil,
        "seconds": nan,
        "log_loss": inf,
        "log_evidence": -inf,
        "settings": {evil: evil, "list": [evil, 1], "none": None},
        "files": [{"path": evil, "bytes": None}],
        "columns": [
            {
                "name": evil,
                "kind": evil,
                "missing": nan,
                "levels": 3,
                "commonest": [[evil, 3], [evil]],
            },
            {"name": "w" * 5000, "kind": "number", "mean": nan, "least": 1.0, "most": 1.0},
            {"name": "ĸαλβι 学习 கல்வி", "kind": "vector", "width": 784},
        ],
        "curve": {
            "rows": [1, 10, 100, 1000],
            "loss": [nan, 1.0, inf, 0.5],
            "recent": [2, None, 1, 1e308],
        },
        "calibration": {"predicted": [0.1, nan], "observed": [0.1, nan], "count": [5, 0]},
        "effects": [
            {"name": evil, "mean": 1e9, "std": 1e9, "lower": -inf, "upper": inf, "class": evil},
            {"name": "w" * 5000, "mean": nan, "std": nan, "lower": nan, "upper": nan, "class": "b"},
            {"name": "constant", "mean": 0.0, "std": 0.0, "lower": 0.0, "upper": 0.0, "class": "b"},
        ],
        "examples": [{"row": {evil: evil}, "observed": evil, "predicted": evil, "lower": None}],
        "diagnosis": {"pareto_k": inf, "verdict": evil},
        "warnings": [evil],
    }


def _number(name: str, mean: float, std: float, least: float, most: float) -> dict[str, Any]:
    kind = {"name": name, "kind": "number", "missing": 0}
    return {**kind, "mean": mean, "std": std, "least": least, "most": most}


def _category(name: str, levels: int, commonest: list[str]) -> dict[str, Any]:
    counts = [[level, 400_000 // (i + 1)] for i, level in enumerate(commonest)]
    kind = {"name": name, "kind": "category", "missing": 0}
    return {**kind, "levels": levels, "commonest": counts, "hashed": False}


def _effect(name: str, mean: float, std: float) -> dict[str, Any]:
    ends = {"lower": float(mean - 1.96 * std), "upper": float(mean + 1.96 * std)}
    law = {"mean": float(mean), "std": float(std), **ends}
    original = {key: value / 570 for key, value in law.items()}
    unit = None if "=" in name else "unit"
    return {"name": name, **law, "original": original, "unit": unit, "class": None}


def _measure(name: str, value: float, base: float, what: str, better: str) -> dict[str, Any]:
    told = {"name": name, "value": value, "baseline": base}
    return {**told, "baseline_is": what, "better": better}
