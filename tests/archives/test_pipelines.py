"""Pipelines of scikit-learn through a file: the same bits, or a refusal that names the step."""

import json

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import ColumnTransformer, make_column_selector
from sklearn.decomposition import PCA
from sklearn.ensemble import RandomForestClassifier
from sklearn.impute import SimpleImputer
from sklearn.kernel_approximation import Nystroem
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    KBinsDiscretizer,
    MaxAbsScaler,
    MinMaxScaler,
    Normalizer,
    OneHotEncoder,
    OrdinalEncoder,
    PolynomialFeatures,
    PowerTransformer,
    QuantileTransformer,
    RobustScaler,
    StandardScaler,
)

import kalvi
from kalvi.archives import container, registry

RNG = np.random.default_rng(0)
X = RNG.lognormal(size=(40, 3))
Y = X @ [1.0, -1.0, 0.5] + RNG.normal(size=40)
FRAME = pd.DataFrame(
    {
        "size": np.where(RNG.random(40) < 0.1, np.nan, X[:, 0]),
        "weight": X[:, 1],
        "colour": RNG.choice(["red", "blue", "green"], 40),
        "grade": RNG.choice(["a", "b"], 40),
    }
)
LABELS = np.where(Y > 0, "yes", "no")


def table() -> Pipeline:
    """Numbers filled in and scaled, categories one-hot, then a classifier."""
    numbers = Pipeline([("fill", SimpleImputer(add_indicator=True)), ("scale", StandardScaler())])
    columns = ColumnTransformer(
        [
            ("numbers", numbers, ["size", "weight"]),
            ("colour", OneHotEncoder(handle_unknown="ignore", max_categories=2), ["colour"]),
            ("grade", OrdinalEncoder(), make_column_selector(pattern="^grade$")),
        ],
        remainder="drop",
    )
    return Pipeline([("columns", columns), ("model", kalvi.LogisticRegression(passes=1))])


STEPS = [
    StandardScaler(),
    MinMaxScaler((-1, 1)),
    MaxAbsScaler(),
    RobustScaler(),
    PCA(2, whiten=True),
    PowerTransformer(),
    QuantileTransformer(n_quantiles=10),
    PolynomialFeatures(2),
    Normalizer(),
    FunctionTransformer(np.log1p),
    FunctionTransformer(),
    SimpleImputer(strategy="median"),
    FeatureUnion([("scaled", StandardScaler()), ("pca", PCA(1))]),
    ColumnTransformer([("first", MinMaxScaler(), [0])], remainder="passthrough"),
    ColumnTransformer([("some", StandardScaler(), slice(0, 2))]),
]


@pytest.fixture(scope="module")
def model():
    return kalvi.LinearRegression().fit(X, Y)


def arrays(step) -> list[np.ndarray]:
    """Every array that a fitted step holds, or a step within it."""
    if isinstance(step, np.ndarray):
        return [step]
    if hasattr(step, "get_params"):
        step = vars(step)
    if isinstance(step, dict):
        step = [step[key] for key in sorted(step)]
    return [a for part in step for a in arrays(part)] if isinstance(step, list | tuple) else []


@pytest.mark.parametrize("step", STEPS, ids=lambda step: type(step).__name__)
def test_a_step_comes_back_bit_for_bit_and_transforms_alike(step, tmp_path):
    fitted = step.fit(X)
    kalvi.save(tmp_path / "step.kalvi", fitted)
    again = kalvi.load(tmp_path / "step.kalvi")
    assert type(again) is type(fitted)
    for mine, other in zip(arrays(again), arrays(fitted), strict=True):
        assert mine.dtype == other.dtype
        np.testing.assert_array_equal(mine, other)
    # a file keeps no Fortran order, in which PCA has its components: BLAS adds in another order
    np.testing.assert_allclose(
        again.transform(X * 1.1), fitted.transform(X * 1.1), rtol=1e-12, atol=1e-12
    )
    assert repr(again) == repr(fitted)


def test_a_pipeline_predicts_the_same_bits(tmp_path):
    pipeline = table().fit(FRAME, LABELS)
    kalvi.save(tmp_path / "p.kalvi", pipeline, rows=40)
    again = kalvi.load(tmp_path / "p.kalvi")
    new = FRAME.assign(colour="violet")
    for rows in (FRAME, new, FRAME[::-1]):
        np.testing.assert_array_equal(again.predict_proba(rows), pipeline.predict_proba(rows))
    assert again.classes_.tolist() == ["no", "yes"]
    assert again[:-1].get_feature_names_out().tolist() == (
        pipeline[:-1].get_feature_names_out().tolist()
    )
    again.set_params(model__passes=2)
    again.fit(FRAME, LABELS)  # it goes on as any other


def test_selectors_by_type(tmp_path, model):
    kinds = (
        make_column_selector(dtype_include=np.number),
        make_column_selector(dtype_include=object),
    )
    columns = ColumnTransformer([("n", StandardScaler(), kinds[0]), ("o", "drop", kinds[1])])
    fitted = columns.fit(FRAME[["weight", "colour"]].astype({"colour": object}))
    kalvi.save(tmp_path / "c.kalvi", fitted)
    again = kalvi.load(tmp_path / "c.kalvi")
    np.testing.assert_array_equal(again.transform(FRAME), fitted.transform(FRAME))


@pytest.mark.parametrize(
    ("pipeline", "said"),
    [
        (make_pipeline(Nystroem(n_components=2), kalvi.LinearRegression()),
         "the step 'nystroem' of Pipeline.*sklearn.kernel_approximation.Nystroem.*skops.io or joblib"),
        (make_pipeline(StandardScaler(), RandomForestClassifier(2)),
         "the step 'randomforestclassifier' .*skops.io or joblib"),
        (make_pipeline(FunctionTransformer(lambda x: x + 1), kalvi.LinearRegression()),
         "'functiontransformer' .*func is the function .*<lambda>"),
        (make_pipeline(KBinsDiscretizer(2, encode="ordinal"), kalvi.LinearRegression()),
         "'kbinsdiscretizer' .*KBinsDiscretizer"),
    ],
    ids=["unknown", "model", "lambda", "bins"],
)  # fmt: skip
def test_what_cannot_be_kept_is_named(pipeline, said, tmp_path):
    pipeline.fit(X, Y > 0) if "forest" in said else pipeline.fit(X, Y)
    with pytest.raises(TypeError, match=said):
        kalvi.save(tmp_path / "p.kalvi", pipeline)
    assert not (tmp_path / "p.kalvi").exists()


def changed(path, old: str, new: str) -> None:
    """The file with another structure, whole otherwise."""
    texts, arrays = container.read(path)
    assert old in texts["structure"]
    texts = {k: v for k, v in texts.items() if k != "sha256"}
    texts["structure"] = texts["structure"].replace(old, new)
    container.write(path, arrays, texts)


@pytest.fixture
def scaler(tmp_path):
    kalvi.save(tmp_path / "s.kalvi", StandardScaler().fit(X))
    return tmp_path / "s.kalvi"


def test_another_scikit_learn_is_refused(scaler):
    changed(scaler, json.dumps(registry.sklearn_version()), '"0.24"')
    with pytest.raises(
        ValueError, match=r"is of scikit-learn 0\.24, and this is .*fit the pipeline"
    ):
        kalvi.load(scaler)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("sklearn.preprocessing:StandardScaler", "sklearn.ensemble:RandomForestClassifier"),
        ("sklearn.preprocessing:StandardScaler", "os:system"),
        ("sklearn.preprocessing:StandardScaler", "sklearn.preprocessing:scale"),
        ('"with_mean"', '"transform"'),
        ('"with_mean"', '"__class__"'),
        ('["step"', '["estimator"'),
    ],
)
def test_hostile_steps_are_refused(scaler, old, new):
    changed(scaler, old, new)
    with pytest.raises(ValueError, match="is not a saved state"):
        kalvi.load(scaler)
