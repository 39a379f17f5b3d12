"""Files of older versions: what they hold is loaded, says what it said then, and can be saved again."""

import json

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import kalvi
from kalvi.archives import container, older
from kalvi.rules.rvga import RVGA, Streaming
from kalvi.streams import Buffer
from tests.archives.older.cases import ANSWERS, CASES, FOLDER, answers, file_of

SAID = json.loads(ANSWERS.read_text())


def check_answers(name, value):
    found = answers(CASES[name], value)
    for one, other in zip(found, SAID[name], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", CASES)
def test_it_says_what_it_said_and_can_be_saved_again(name, tmp_path):
    value = kalvi.load(file_of(name))
    check_answers(name, value)
    kalvi.save(tmp_path / "again", value)
    assert "kalvi.algorithms" not in container.read_texts(tmp_path / "again")["structure"]
    check_answers(name, kalvi.load(tmp_path / "again"))


def test_every_file_is_tested_and_small():
    files = {path.stem: path.stat().st_size for path in FOLDER.glob("*.kalvi")}
    assert set(files) == set(CASES)
    assert max(files.values()) < 25_000


def written(path, structure, arrays=None):
    texts = {"format": "1", "version": "0.1.0", "structure": json.dumps(structure)}
    container.write(path, arrays or {}, texts)
    return path


OLD = "kalvi.estimators"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("kalvi.likelihoods:Bernoulli", "kalvi.likelihoods.scalar:Bernoulli"),
        ("kalvi.algorithms.rvga:RVGA", "kalvi.rules.rvga:RVGA"),
        ("kalvi.algorithms.sites:EKF", "kalvi.rules.schemes:EKF"),
        ("kalvi.algorithms.silk.model:Side", "kalvi.rules.silk.model:Side"),
        ("kalvi.streams:Buffer", "kalvi.streams.blocks:Buffer"),
        (f"{OLD}.gp_covariances:Own", f"{OLD}.gaussian_process.covariances:KalviKernel"),
        (f"{OLD}.gp_covariances:Foreign", f"{OLD}.gaussian_process.covariances:SklearnKernel"),
        (f"{OLD}.gp_fits:Exact", f"{OLD}.gaussian_process.exact:ExactFit"),
        (f"{OLD}.gp_fits:Hyper", f"{OLD}.gaussian_process.hyperparameters:Hyperparameters"),
        (f"{OLD}.gp_fits:Mean", f"{OLD}.gaussian_process.hyperparameters:PriorMean"),
        (f"{OLD}.gp_sparse:Sparse", f"{OLD}.gaussian_process.sparse:SparseFit"),
        (f"{OLD}.neural_fits:Fitted", f"{OLD}.neural.problem:LearnedNetwork"),
        (f"{OLD}.binary_places:Axis", f"{OLD}.binary_factorization.locations:SortedAxis"),
        (f"{OLD}.neural:NeuralRegressor", f"{OLD}.neural.models:NeuralRegressor"),
        ("kalvi.algorithms.silk.places:Places", "kalvi.rules.silk.locations:Locations"),
        ("kalvi.rules.silk.places:Places", "kalvi.rules.silk.locations:Locations"),
        ("kalvi.networks:tanh", "kalvi.predictors.networks:tanh"),
        ("kalvi.streams.blocks:Buffer", "kalvi.streams.blocks:Buffer"),
        ("kalvi.tabular.model:Choices", "kalvi.tabular.choices:Choices"),
        ("kalvi.tabular.matrix:Axis", "kalvi.tabular.binary_matrix:Axis"),
        ("kalvi.algorithmsx:Y", "kalvi.algorithmsx:Y"),
        ("no name", "no name"),
        (["no text"], ["no text"]),
    ],
)
def test_names_that_moved(old, new):
    assert older.moved(old) == new
    assert older.moved(new) == new


def test_a_class_that_moved_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(
        older, "CLASSES", {"kalvi.rules.old:Waiting": "kalvi.streams.blocks:Buffer"}
    )
    path = written(tmp_path / "f", ["record", "kalvi.algorithms.old:Waiting", {"seen": 3}])
    assert kalvi.load(path) == Buffer(3)


# classes with other fields, by entries made up for the purpose ------------------------------------------


def _streaming(had):
    zero = had["rows"] * 0
    kept = {name: had[name] for name in ("posterior", "log_evidence", "rows", "unsolved")}
    count = had["unsolved"] * 0
    return older.Rebuilt(
        "kalvi.rules.rvga:Streaming", kept | {"innovations": zero, "clipped": count}
    )


MADE_UP = (
    older.Change("kalvi.algorithms.past:One", "likelihood", lambda had: had["likelihood"]),
    older.Change(
        "kalvi.algorithms.past:Passing", "posterior log_evidence rows unsolved", _streaming
    ),
    older.Change(
        "kalvi.algorithms.past:PastRVGA",
        "model scheme",
        lambda had: older.Rebuilt(
            "kalvi.rules.past:Interim", {"likelihood": had["model"], "way": had["scheme"]}
        ),
    ),
    older.Change(
        "kalvi.rules.past:Interim",
        "likelihood way",
        lambda had: older.Rebuilt(
            "kalvi.rules.rvga:RVGA", {"likelihood": had["likelihood"], "scheme": had["way"]}
        ),
    ),
)
ONE = [
    "module",
    "kalvi.algorithms.past:One",
    {"likelihood": ["module", "kalvi.likelihoods:Poisson", {}]},
]
EKF = ["module", "kalvi.algorithms.sites:EKF", {}]
DENSE = ["module", "kalvi.gaussians.full:Dense", {"mean": ["jax", "0"], "root": ["jax", "1"]}]
PASSING = {
    "posterior": DENSE,
    "log_evidence": ["jax", "2"],
    "rows": ["jax", "2"],
    "unsolved": ["jax", "3"],
}
ARRAYS = {"0": np.ones(2), "1": np.eye(2), "2": np.array(4.0), "3": np.array(1, np.int32)}


@pytest.fixture
def made_up(monkeypatch):
    monkeypatch.setattr(older, "CHANGES", MADE_UP)


def test_a_class_that_became_another(made_up, tmp_path):
    node = ["module", "kalvi.algorithms.past:Passing", PASSING]
    state = kalvi.load(written(tmp_path / "f", node, ARRAYS))
    assert type(state) is Streaming
    assert (float(state.rows), float(state.innovations), int(state.unsolved)) == (4, 0, 1)
    assert state.clipped.dtype == jnp.int32
    node[1] = "kalvi.rules.past:Passing"  # under the name that its module has now too
    assert type(kalvi.load(written(tmp_path / "f", node, ARRAYS))) is Streaming


def test_a_class_in_whose_place_is_a_part_of_it_and_one_that_changed_twice(made_up, tmp_path):
    node = ["module", "kalvi.algorithms.past:PastRVGA", {"model": ONE, "scheme": EKF}]
    rule = kalvi.load(written(tmp_path / "f", node))
    new = RVGA(kalvi.likelihoods.Poisson(), kalvi.schemes.EKF())
    assert type(rule) is RVGA
    assert bool(eqx.tree_equal(rule, new))
    assert jax.tree.structure(rule) == jax.tree.structure(new)


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("kalvi.algorithms.past:Passing", PASSING | {"more": 1}),
        ("kalvi.algorithms.past:Passing", {"posterior": DENSE}),
        ("kalvi.algorithms.past:Passing", PASSING | {"posterior": "none"}),
        ("kalvi.algorithms.past:Passing", PASSING | {"rows": "many"}),
        ("kalvi.algorithms.past:Passing", [PASSING]),
        ("kalvi.algorithms.past:PastRVGA", {"model": EKF, "scheme": ONE}),
    ],
)
def test_what_an_older_class_never_was(made_up, name, fields, tmp_path):
    written(tmp_path / "f", ["module", name, fields], ARRAYS)
    with pytest.raises(ValueError, match="f is not a saved state: "):
        kalvi.load(tmp_path / "f")


def test_fields_that_came_later_are_those_of_a_new_object(tmp_path):
    likelihood = {"likelihood": ["module", "kalvi.likelihoods:Poisson", {}]}
    rule = kalvi.load(written(tmp_path / "f", ["module", "kalvi.algorithms.rvga:RVGA", likelihood]))
    assert bool(eqx.tree_equal(rule, RVGA(kalvi.likelihoods.Poisson())))
    rates = kalvi.load(written(tmp_path / "f", ["module", "kalvi.rules.vifa.steps:Plain", {}]))
    assert bool(eqx.tree_equal(rates, kalvi.rules.Plain()))  # converted as in a new one
    name = "kalvi.estimators.linear:LinearRegression"
    model = kalvi.load(written(tmp_path / "f", ["estimator", name, {"rank": 3}]))
    assert repr(model) == repr(kalvi.LinearRegression(rank=3))


def test_fields_without_a_default_are_needed(tmp_path):
    for word, name in (
        ("module", "kalvi.algorithms.rvga:RVGA"),
        ("record", "kalvi.rules.rule:Batch"),
    ):
        written(tmp_path / "f", [word, name, {}])
        with pytest.raises(ValueError, match="an object has other fields than its class"):
            kalvi.load(tmp_path / "f")
    written(tmp_path / "f", ["module", "kalvi.algorithms.rvga:RVGA", None])
    with pytest.raises(ValueError, match="parts that describe no value"):
        kalvi.load(tmp_path / "f")
    written(tmp_path / "f", ["estimator", "kalvi.estimators.linear:LinearRegression", {}])
    with pytest.raises(ValueError, match="LinearRegression has none of its settings"):
        kalvi.load(tmp_path / "f")
