"""Values through files, and files that mean harm."""

import hashlib
import json
import math
import sys
import types
from collections import OrderedDict, namedtuple
from importlib import import_module

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest
import scipy.sparse as sp
from safetensors.numpy import load_file, save_file
from sklearn.base import BaseEstimator

import kalvi
from kalvi.archives import checkpoints, container, registry
from kalvi.estimators.gaussian_process.covariances import Covariance
from kalvi.gaussians import Dense, Diagonal, LowRankCovariance, LowRankPrecision
from kalvi.gaussians.mixture import Mixture
from kalvi.rules import training
from kalvi.rules.rule import Batch
from kalvi.streams import Buffer

LEVELS = [f"level {i} é\ud800" for i in range(40)]
TREE = {
    "texts": ["", "ä", "\x00 \ud800"],
    "levels": LEVELS,
    "counts": dict.fromkeys(LEVELS, 2),
    "numbers": (1, -(2**63), 0.1, -0.0, math.inf, -math.inf, True, None),
    "many": [0.1 * i for i in range(40)] + [math.nan],
    "whole": list(range(2**62, 2**62 + 40)),
    "mixed": [1, 2.5] * 20,
    "arrays": [
        np.arange(6.0).reshape(2, 3)[:, ::2],
        np.array(1.5, np.float16),
        np.array([True, False]),
        np.array(["a", "ünï"]),
        np.array([b"raw"]),
        np.array(["2026-01-01", "NaT"], "datetime64[D]"),
        np.array(["x", "y", None, 3], object).reshape(2, 2),
        np.zeros((0, 3), np.int32),
        np.zeros(0, "<U7"),
        np.array([1.0, 2.0], ">f8"),
    ],
    "scalars": [np.float32(0.1), np.int64(3), np.bool_(True), np.str_("s"), np.datetime64("2026")],
    "types": [np.float32, np.dtype("int16")],
    "sparse": sp.csr_array(np.eye(3)),
    "jax": [jnp.arange(3), jnp.float32(0.5), jr.key(3)],
    "functions": [jax.nn.relu, np.log1p, np.cbrt, jnp.tanh],
    "rows": Buffer(3, (np.ones((1, 2)), np.ones(1), np.ones(1))),
    "empty": [[], (), {}],
}
GAUSSIANS = [
    Dense(np.zeros(2), np.eye(2)),
    Diagonal(np.zeros(3), np.ones(3)),
    LowRankCovariance(np.zeros(3), np.ones((3, 1)), np.ones(3)),
    LowRankPrecision(np.zeros(3, np.float32), np.ones((3, 2), np.float32), np.ones(3, np.float32)),
    Mixture([Dense(np.zeros(2), np.eye(2)), Diagonal(np.ones(2), np.ones(2))]),
]


def same(one, other) -> None:
    """Equal in type, dtype, shape and every bit."""
    assert type(one) is type(other)
    if isinstance(one, jax.Array) and jnp.issubdtype(one.dtype, jax.dtypes.prng_key):
        one, other = jr.key_data(one), jr.key_data(other)
    if isinstance(one, dict):
        assert list(one) == list(other)
        one, other = list(one.values()), list(other.values())
    if isinstance(one, sp.sparray):
        one, other = (one.data, one.indices, one.indptr), (other.data, other.indices, other.indptr)
    if isinstance(one, list | tuple):
        assert len(one) == len(other)
        for pair in zip(one, other, strict=True):
            same(*pair)
    elif isinstance(one, BaseEstimator):
        same(one.__getstate__(), other.__getstate__())
    elif isinstance(one, eqx.Module | Covariance):
        same(vars(one), vars(other))
    elif isinstance(one, np.ndarray | np.generic | jax.Array):
        assert one.dtype.newbyteorder("=") == other.dtype
        assert one.shape == other.shape
        assert np.asarray(one).tolist() == np.asarray(other).tolist() or one.dtype.kind in "Mf"
        native = np.asarray(one).astype(other.dtype)
        assert one.dtype.kind == "O" or native.tobytes() == np.asarray(other).tobytes()
    else:
        assert repr(one) == repr(other)


def test_a_tree_comes_back_bit_for_bit(tmp_path):
    kalvi.save(tmp_path / "tree", TREE, note={"rows": [1, 2]})
    with jax.enable_x64(False):
        again = kalvi.load(tmp_path / "tree")
    same(TREE, again)
    assert checkpoints.metadata(tmp_path / "tree") == {"note": {"rows": [1, 2]}}


@pytest.mark.parametrize("q", GAUSSIANS, ids=lambda q: type(q).__name__)
def test_gaussians_come_back_bit_for_bit(q, tmp_path):
    kalvi.save(tmp_path / "q", q)
    with jax.enable_x64(False):
        again = kalvi.load(tmp_path / "q")
    same(q, again)


def test_the_file_is_one_that_safetensors_reads(tmp_path):
    kalvi.save(tmp_path / "q", GAUSSIANS[1])
    found = load_file(tmp_path / "q")
    assert sorted(a.tolist() for a in found.values()) == [[0.0] * 3, [1.0] * 3]


def test_the_same_value_gives_the_same_bytes(tmp_path):
    kalvi.save(tmp_path / "one", GAUSSIANS[1], note=1)
    kalvi.save(tmp_path / "two", GAUSSIANS[1], note=1)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def test_a_file_that_is_replaced_while_it_is_opened(tmp_path, monkeypatch):
    kalvi.save(tmp_path / "q", GAUSSIANS[0])
    kalvi.save(tmp_path / "later", GAUSSIANS[1])
    read_as_it_is = container.safe_open

    def replaced(path, **how):
        if (tmp_path / "later").exists():
            (tmp_path / "later").replace(tmp_path / "q")
        return read_as_it_is(path, **how)

    monkeypatch.setattr(container, "safe_open", replaced)
    same(kalvi.load(tmp_path / "q"), GAUSSIANS[1])


def test_a_header_longer_than_safetensors_takes(tmp_path, monkeypatch):
    monkeypatch.setattr(container, "MOST_HEADER", 100)
    with pytest.raises(ValueError, match=r"q would need a header of \d+ bytes; 100 is the most"):
        kalvi.save(tmp_path / "q", GAUSSIANS[1])
    assert not list(tmp_path.iterdir())


def test_files_of_arrays_alone_load_with_a_state_like_theirs(tmp_path):
    path = tmp_path / "old"
    arrays = {".mean": np.arange(3.0), ".var": np.ones(3)}
    save_file(arrays, path, {"kalvi": '{"rows": "20"}'})
    same(kalvi.load(path, GAUSSIANS[1]), Diagonal(np.arange(3.0), np.ones(3)))
    assert checkpoints.metadata(path) == {"rows": "20"}
    with pytest.raises(
        ValueError, match=r"old holds the arrays of a state only; give load a state"
    ):
        kalvi.load(path)


def test_a_state_of_ones_own_class_loads_with_one_like_it(tmp_path):
    class Mine(eqx.Module):
        count: jax.Array

    kalvi.save(tmp_path / "mine", Mine(jnp.asarray(3)))
    assert int(kalvi.load(tmp_path / "mine", Mine(jnp.asarray(0))).count) == 3


def test_an_optimiser_of_kalvi_and_what_it_remembers(tmp_path):
    direction = training.ADAM
    value = [direction, direction.init(jnp.ones(2))]
    kalvi.save(tmp_path / "value", value)
    again = kalvi.load(tmp_path / "value")
    assert again[0] is direction
    same(value[1], again[1])


def test_another_optimiser_cannot_be_saved(tmp_path):
    with pytest.raises(TypeError, match=r"Transform.optimiser is a optax.*which cannot be saved"):
        kalvi.save(tmp_path / "step", kalvi.rules.Transform(optax.adam(0.1)))


def test_a_whole_number_may_stand_for_any(tmp_path):
    kalvi.save(tmp_path / "step", kalvi.rules.Plain(mean_rate=1))
    same(kalvi.load(tmp_path / "step"), kalvi.rules.Plain(mean_rate=1))


def test_many_levels_are_no_matter(tmp_path):
    levels = {f"https://a.very.long/name/of/a/level/{i}": i for i in range(100_000)}
    kalvi.save(tmp_path / "levels", {"levels": levels})
    assert int.from_bytes((tmp_path / "levels").read_bytes()[:8], "little") < 1000
    assert kalvi.load(tmp_path / "levels")["levels"] == levels


Point = namedtuple("Point", "x y")


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"a": [object()]}, r"the value\['a'\]\[0\] is a builtins.object, which cannot be saved"),
        ({1: 2}, "the value has the key 1; only texts"),
        ([lambda x: x], r"the value\[0\] is the function .*lambda"),
        ([np.ones(2, complex)], r"the value\[0\] is an array of complex128"),
        ([2**63], r"the value\[0\] is a builtins.int"),
        ([OrderedDict(a=1)], r"the value\[0\] is a collections.OrderedDict"),
        ([Point(1, 2)], r"the value\[0\] is a .*Point"),
        ({"rng": np.random.default_rng(0)}, r"the value\['rng'\].*give a whole number as seed"),
    ],
)
def test_what_cannot_be_saved(value, message, tmp_path):
    with pytest.raises(TypeError, match=message):
        kalvi.save(tmp_path / "value", value)
    assert not list(tmp_path.iterdir())


def test_what_nests_in_itself_cannot_be_saved(tmp_path):
    value: list = []
    value.append(value)
    with pytest.raises(TypeError, match="nests deeper than 64 levels, or in itself"):
        kalvi.save(tmp_path / "value", value)


def test_what_ran_away_is_not_saved_over_what_did_not(tmp_path):
    kalvi.save(tmp_path / "q", GAUSSIANS[0])
    lost = Dense.from_root(jnp.full(2, jnp.nan), jnp.eye(2))
    with pytest.raises(ValueError, match="Dense holds numbers that are not finite"):
        kalvi.save(tmp_path / "q", lost)
    same(kalvi.load(tmp_path / "q"), GAUSSIANS[0])


@pytest.mark.parametrize("error", [OSError("no space left on device"), KeyboardInterrupt()])
def test_a_save_that_fails_leaves_the_old_file_and_no_other(error, tmp_path, monkeypatch):
    kalvi.save(tmp_path / "q", GAUSSIANS[0])

    def fail(*_):
        raise error

    monkeypatch.setattr(container.os, "replace", fail)
    with pytest.raises(type(error)):
        kalvi.save(tmp_path / "q", GAUSSIANS[1])
    monkeypatch.undo()
    assert [path.name for path in tmp_path.iterdir()] == ["q"]
    same(kalvi.load(tmp_path / "q"), GAUSSIANS[0])


def test_a_link_stays_a_link_and_a_mode_stays(tmp_path):
    kalvi.save(tmp_path / "q", GAUSSIANS[0])
    (tmp_path / "q").chmod(0o640)
    (tmp_path / "latest").symlink_to(tmp_path / "q")
    kalvi.save(tmp_path / "latest", GAUSSIANS[1])
    assert (tmp_path / "latest").is_symlink()
    assert (tmp_path / "q").stat().st_mode & 0o777 == 0o640
    same(kalvi.load(tmp_path / "q"), GAUSSIANS[1])


# hostile files ---------------------------------------------------------------------------------------


def forged(path, header, data: bytes = b"", *, length: int | None = None) -> None:
    """A file with any header, its digest right."""
    if isinstance(header, dict):
        texts = header.get("__metadata__")
        if isinstance(texts, dict) and "sha256" in texts:
            texts["sha256"] = container.UNSIGNED
        raw = json.dumps(header).encode()
        digest = hashlib.sha256(raw + data).hexdigest()
        raw = raw.replace(container.UNSIGNED.encode(), digest.encode(), 1)
    else:
        raw = header
    path.write_bytes((len(raw) if length is None else length).to_bytes(8, "little") + raw + data)


def texts_of(structure, **more) -> dict:
    found = {"format": "1", "version": "0.1.0", "structure": json.dumps(structure), "sha256": ""}
    return found | more


def one_array(shape=(2,), kind="F64", places=(0, 16), **more) -> dict:
    entry = {"dtype": kind, "shape": list(shape), "data_offsets": list(places)} | more
    return {"__metadata__": texts_of(["array", "0"]), "0": entry}


TWO = {"dtype": "F64", "shape": [1], "data_offsets": [0, 8]}
HEADERS = {
    "longer than the file": (b"{}", 2**40),
    "longer than any": (b"{}", 2**63 + 5),
    "no JSON": (b'{"a": ', None),
    "no text": (b"\xff\xfe{}", None),
    "a list": (b"[]", None),
    "deep": (b"[" * 200_000, None),
    "deep tables": (b'{"a":' * 100_000, None),
    "a name twice": (b'{"0": {}, "0": {}}', None),
    "NaN": (b'{"0": NaN}', None),
    "metadata of numbers": ({"__metadata__": {"format": 1}}, None),
    "negative axis": (one_array(shape=(-2,)), None),
    "two negative axes": (one_array(shape=(-1, -2)), None),
    "overflowing shape": (one_array(shape=(2**40, 2**40)), None),
    "shape that wraps round": (one_array(shape=(2**61 + 2,)), None),
    "huge and empty": (one_array(shape=(0, 2**70), places=(0, 0)), None),
    "fractional axis": (one_array(shape=(2.0,)), None),
    "axis of truth": (one_array(shape=(True, 2)), None),
    "many axes": (one_array(shape=[1] * 64 + [2]), None),
    "other size": (one_array(shape=(3,)), None),
    "beyond the file": (one_array(places=(16, 32)), None),
    "backwards": (one_array(places=(16, 0)), None),
    "negative place": (one_array(places=(-16, 0)), None),
    "unknown type": (one_array(kind="F128"), None),
    "type that is no text": (one_array(kind=["F64"]), None),
    "a type of no model": (one_array(kind="C64"), None),
    "a type that NumPy lacks": (one_array(shape=(8,), kind="BF16"), None),
    "overlap": ({"__metadata__": texts_of(None), "0": TWO, "1": TWO}, None),
    "no shape": ({"0": {"dtype": "F64"}}, None),
}


@pytest.mark.parametrize("name", HEADERS)
def test_headers_that_lie(name, tmp_path):
    path = tmp_path / "model.kalvi"
    header, length = HEADERS[name]
    forged(path, header, bytes(16), length=length)
    with pytest.raises(ValueError, match=r"^/.*model.kalvi is not a saved state: "):
        kalvi.load(path)
    with pytest.raises(ValueError, match=r"^/.*model.kalvi is not a saved state: "):
        kalvi.load(path, GAUSSIANS[0])


def test_gaps_and_trailing_bytes(tmp_path):
    for places, size in (((8, 24), 24), ((0, 16), 17), ((0, 16), 15)):
        forged(tmp_path / "f", one_array(places=places), bytes(size))
        with pytest.raises(ValueError, match="f is not a saved state: it was cut short or changed"):
            kalvi.load(tmp_path / "f")


def nested(depth: int):
    node: list = ["list", ["each", []]]
    for _ in range(depth):
        node = ["list", ["each", [node]]]
    return node


DENSE = "kalvi.gaussians.dense:Dense"
LINEAR = "kalvi.estimators.linear.estimator"
STRUCTURES = {
    "nothing": {},
    "empty": [],
    "no word": [1, 2],
    "unknown word": ["import", "os"],
    "missing array": ["array", "70"],
    "a path for an array": ["array", "../../etc/passwd"],
    "deep": nested(100),
    "a class of the system": ["module", "os:system", {}],
    "a class of a package": ["record", "subprocess:Popen", {}],
    "a function of kalvi": ["module", "kalvi.archives.checkpoints:load", {}],
    "a command": ["module", "kalvi.cli:main", {}],
    "something imported": ["module", "kalvi.gaussians.dense:linalg", {}],
    "a dotted name": ["module", "kalvi.gaussians.dense:Dense.__init__", {}],
    "an abstract class": ["module", "kalvi.gaussians.dense:Updatable", {}],
    "an abstract class where it is defined": ["module", "kalvi.kernels.kernel:Kernel", {}],
    "an abstract estimator": [
        "estimator",
        "kalvi.estimators.linear.estimator:LinearEstimator",
        {"rank": 1},
    ],
    "a private class": ["record", "kalvi.numerics.projections:_FirstIterate", {}],
    "a class under another name": ["estimator", "kalvi.tabular.factor:FactorAnalysis", {}],
    "an error": ["module", "kalvi.readers.errors:BadData", {}],
    "an object of no kind": ["module", "kalvi.archives.unpacking:Unpacker", {}],
    "a constant as a class": ["record", "kalvi.rules.training:ADAM", {}],
    "another optimiser": ["function", "optax:adam"],
    "an optimiser as a state": ["record", "optax:GradientTransformationState", {}],
    "a state where it is defined": ["record", "optax._src.base:EmptyState", {}],
    "an abstract kernel": ["kernel", "sklearn.gaussian_process.kernels:Kernel", {}],
    "what kernels import": ["kernel", "sklearn.gaussian_process.kernels:np", {}],
    "a kernel elsewhere": ["kernel", "sklearn.gaussian_process.kernels.np:ndarray", {}],
    "a function of two numbers": ["function", "numpy:add"],
    "a function that reads files": ["function", "numpy:load"],
    "another class of optax": ["record", "optax:GradientTransformation", {}],
    "a function under an old name": ["function", "kalvi.networks:network"],
    "an estimator as a module": ["module", "kalvi.estimators.linear:LogisticRegression", {}],
    "no fields": ["module", DENSE, {}],
    "fields of another": ["module", DENSE, {"mean": ["array", "0"], "var": ["array", "0"]}],
    "fields that are no table": ["module", DENSE, ["mean"]],
    "shapes that differ": ["module", DENSE, {"mean": ["array", "0"], "root": ["array", "0"]}],
    "a text as mean": ["module", DENSE, {"mean": "x", "root": ["array", "1"]}],
    "integers as mean": ["module", DENSE, {"mean": ["array", "2"], "root": ["array", "1"]}],
    "NaN as mean": ["module", DENSE, {"mean": ["array", "3"], "root": ["array", "1"]}],
    "loops without end": [
        "module",
        "kalvi.numerics.projections:Eigen",
        {"polish": 2**62, "shrink": True},
    ],
    "a function by its name": ["function", "os:system"],
    "an odd number": ["float", "1e999"],
    "keys twice": ["dict", ["each", ["a", "a"]], ["each", [1, 2]]],
    "keys that are numbers": ["dict", ["each", [1]], ["each", [2]]],
    "fewer values": ["dict", ["each", ["a"]], ["each", []]],
    "texts too short": ["list", ["texts", "4", "5"]],
    "negative lengths": ["list", ["texts", "4", "6"]],
    "a huge text": ["bytes", "<U999999999", [1], "4"],
    "pickled objects": ["bytes", "|O", [1], "4"],
    "records": ["bytes", "f8,f8", [1], "4"],
    "no character": ["bytes", "<U1", [2], "7"],
    "more rows than data": ["objects", [2**40], ["each", ["a"]]],
    "a matrix out of bounds": ["csr", True, [1, 1], "0", "2", "6"],
    "bits of a key": ["key", "mine", "0"],
    "a short key": ["key", "threefry2x32", "0"],
    "a tree of trees": ["treedef", ["array", "0", "0"]],
    "settings missing": ["estimator", "kalvi.estimators.linear:LogisticRegression", {}],
    "fields as a list": ["estimator", "kalvi.estimators.linear:LogisticRegression", [1]],
    "a method hidden": ["estimator", "kalvi.estimators.linear:LogisticRegression", {"fit": 1}],
    "a kernel of odd parts": ["kernel", "sklearn.gaussian_process.kernels:RBF", {"length": 1}],
}
ARRAYS = {
    "0": np.zeros(2),
    "1": np.eye(2),
    "2": np.array([0, 1]),
    "3": np.array([np.nan, 0.0]),
    "4": np.zeros(8, np.uint8),
    "5": np.array([3, 4]),
    "6": np.array([-2, 10]),
    "7": np.full(8, 255, np.uint8),
}


@pytest.mark.parametrize("name", STRUCTURES)
def test_structures_that_lie(name, tmp_path):
    path = tmp_path / "model.kalvi"
    texts = texts_of(STRUCTURES[name])
    container.write(path, ARRAYS, texts)
    with pytest.raises(ValueError, match=r"^/.*model.kalvi is not a saved state: ") as caught:
        kalvi.load(path)
    assert "\n" not in str(caught.value)


ELSEWHERE = [
    "harm:Harm",
    "kalvi.harm:Harm",
    "kalvi.rules.harm:Harm",
    "kalvi.algorithms.harm:Harm",
    "kalvi.cli:Harm",
    "kalvi.cli.fit:fit",
    "kalvi.cli.x:Harm",
    "kalvi.plots.appearance:Figure",
    "kalvi.demo:Stream",
    "kalvi.__main__:main",
    "kalvi.__init__:Harm",
    "kalvi.rules.__init__:Rule",
    "kalvi..rules.rvga:RVGA",
    "kalvi.rules..rvga:RVGA",
    ".kalvi.rules.rvga:RVGA",
    "kalvi.rules.rvga.:RVGA",
    "kalvi.Rules.rvga:RVGA",
    "kalvi/rules/rvga:RVGA",
    "kalvi.rules/rvga:RVGA",
    "kalvi.rules.rvga\x00:RVGA",
    "kalvi.numerics.linalg.np:ndarray",
    "kalvi.rules.rvga:RVGA:RVGA",
    "kalvi:Dense",
    "kalvi",
    ":RVGA",
    "kalvi" + ".rules" * 100_000 + ":RVGA",
    7,
    None,
    ["kalvi.rules.rvga:RVGA"],
]
"""Names that are none of a public module of kalvi."""


@pytest.mark.parametrize("name", ELSEWHERE, ids=lambda name: str(name)[:40])
@pytest.mark.parametrize("word", ["module", "record", "estimator"])
def test_nothing_is_imported_from_elsewhere(name, word, tmp_path, monkeypatch):
    (tmp_path / "harm.py").write_text(f"open({str(tmp_path / 'done')!r}, 'w')")
    monkeypatch.syspath_prepend(tmp_path)
    asked = []
    monkeypatch.setattr(
        registry, "import_module", lambda name: asked.append(name) or import_module(name)
    )
    container.write(tmp_path / "f", {}, texts_of([word, name, {}]))
    with pytest.raises(ValueError, match="f is not a saved state: it names"):
        kalvi.load(tmp_path / "f")
    assert not (tmp_path / "done").exists()
    assert not [name for name in asked if name != "kalvi" and not registry.is_module(name)]


def test_a_module_that_no_folder_of_kalvi_holds(monkeypatch):
    made = types.ModuleType("kalvi.made")
    made.Made = type("Made", (Batch,), {"__module__": "kalvi.made", "__qualname__": "Made"})
    monkeypatch.setitem(sys.modules, "kalvi.made", made)
    assert registry.kind_of(made.Made) is None
    with pytest.raises(ValueError, match=r"'kalvi.made:Made', which is not a class"):
        registry.find("kalvi.made:Made", "record")


def test_a_class_that_pretends_to_be_kalvis():
    pretended = type("Batch", (Batch,), {"__module__": Batch.__module__, "__qualname__": "Batch"})
    assert registry.kind_of(Batch) == "record"
    assert registry.kind_of(pretended) is None


def test_a_structure_too_deep_to_parse(tmp_path):
    for text in ("[" * 200_000, '{"a":' * 200_000, "NaN", '"\\ud8"', "1" * 5000):
        container.write(tmp_path / "f", {}, texts_of(None) | {"structure": text})
        with pytest.raises(ValueError, match="f is not a saved state: "):
            kalvi.load(tmp_path / "f")


def test_a_later_format_says_who_wrote_it(tmp_path):
    container.write(tmp_path / "f", {}, texts_of(None, format="2", version="3.4.5"))
    with pytest.raises(ValueError, match=r"f is not a saved state: it was written by kalvi 3.4.5"):
        kalvi.load(tmp_path / "f")


@pytest.fixture(scope="module")
def model_file(tmp_path_factory) -> bytes:
    """A valid file with most of what there is."""
    path = tmp_path_factory.mktemp("valid") / "model"
    model = kalvi.LogisticRegression(rank=1)
    x = np.random.default_rng(0).normal(size=(5, 2))  # too few for a block: they wait
    model.partial_fit(sp.csr_matrix(x), np.array(["a", "b", "a", "a", "b"]))
    batch = Batch(np.ones((2, 1)), np.ones(2), np.ones(2))
    value = {"model": model, "batch": batch, "tree": {k: TREE[k] for k in TREE if k != "levels"}}
    kalvi.save(path, value)
    return path.read_bytes()


def damaged(whole: bytes, rng: np.random.Generator) -> bytes:
    """Some bytes changed, dropped, doubled, or the end cut off."""
    content, kind = bytearray(whole), rng.integers(5)
    at = int(rng.integers(len(content)))
    if kind == 0:
        return bytes(content[:at])
    if kind == 1:
        content[at] ^= 1 << int(rng.integers(8))
    elif kind == 2:
        del content[at : at + int(rng.integers(1, 20))]
    elif kind == 3:
        content[at:at] = content[at : at + int(rng.integers(1, 20))] or b"x"
    else:
        content[int(rng.integers(8))] = int(rng.integers(256))
    return bytes(content)


def edited(whole: bytes, rng: np.random.Generator, path) -> None:
    """A node of the structure replaced, dropped or moved, under a right checksum."""
    length = int.from_bytes(whole[:8], "little")
    header = json.loads(whole[8 : 8 + length])
    texts = header["__metadata__"]
    structure = json.loads(texts["structure"])
    nodes = [structure]
    for node in nodes:
        parts = node.values() if isinstance(node, dict) else node
        nodes.extend(part for part in parts if isinstance(part, dict | list) and part)
    node = nodes[int(rng.integers(len(nodes)))]
    other = nodes[int(rng.integers(len(nodes)))]
    replacement = [None, -1, 2**62, "x", 0.5, [], {}, True, json.loads(json.dumps(other))]
    key = int(rng.integers(len(node)))
    key = key if isinstance(node, list) else list(node)[key]
    if rng.random() < 0.2:
        del node[key]
    else:
        node[key] = replacement[int(rng.integers(len(replacement)))]
    texts["structure"] = json.dumps(structure)
    forged(path, header, whole[8 + length :])


def check_damage(model_file: bytes, path, n: int) -> None:
    rng = np.random.default_rng(n)
    for _ in range(n):
        content = damaged(model_file, rng)
        path.write_bytes(content)
        if content != model_file:
            with pytest.raises(ValueError, match=r"^/.* (is not a saved|holds the arrays)"):
                kalvi.load(path)


def check_edits(model_file: bytes, path, n: int) -> None:
    rng, refused = np.random.default_rng(n), 0
    for _ in range(n):
        edited(model_file, rng, path)
        try:
            kalvi.load(path)
        except ValueError as error:
            refused += str(error).startswith(f"{path} is not a saved state: ")
    assert refused > n / 3  # others are other values: a setting, a number


def test_damage_is_found(model_file, tmp_path):
    check_damage(model_file, tmp_path / "model", 400)


def test_edits_are_refused_or_are_values(model_file, tmp_path):
    check_edits(model_file, tmp_path / "model", 200)


@pytest.mark.slow(reason="eight thousand damaged files")
def test_much_damage_is_found(model_file, tmp_path):
    check_damage(model_file, tmp_path / "model", 4000)
    check_edits(model_file, tmp_path / "model", 4000)
