"""Files that someone changed on purpose, settings that mean nothing: one sentence, nothing left behind."""

import copy
import json
import random
import warnings

import numpy as np
import pytest
from click.testing import CliRunner

from kalvi import cli
from kalvi.archives import container
from kalvi.tabular import learn as learning
from kalvi.tabular.prefetch import Interrupted

VALUES = (
    *(None, 0, -1, 10**12, 2**70, 1.5, "x", "", True, [], {}, ["float", "nan"]),
    *(["tuple", ["each", []]], ["list", ["each", [1]]], "kalvi.cli:main", "../../etc/passwd"),
)
KINDS = {
    "logistic": ("fit", "-t", "y"),
    "classes": ("fit", "-t", "city", "--missing", "impute"),
    "hashed": ("fit", "-t", "y", "--hash-bits", 3, "--rank", 2),
    "linear": ("fit", "-t", "price"),
    "poisson": ("fit", "-t", "k", "-m", "poisson", "--set", "prior_scale=auto"),
    "gp": ("fit", "-t", "price", "-m", "gp", "-f", "size"),
    "neural": ("fit", "-t", "y", "-m", "neural", "--set", "hidden_sizes=[3]"),
    "factor": ("factor", "-k", 1),
    "silk": ("silk", "-k", 1, "--unordered-rows"),
}


def run(*arguments):
    return CliRunner().invoke(cli.main, [str(a) for a in arguments])


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder, rng = tmp_path_factory.mktemp("hostile"), np.random.default_rng(0)
    lines = ["size,old,city,y,price,k"]
    for size in rng.normal(3, 2, 60):
        old, city = rng.integers(2), rng.choice(["Bonn", "Ulm", "Köln"])
        y, price, k = rng.integers(2), 2 * size + rng.normal(), rng.poisson(2)
        lines.append(f"{size:.6f},{old},{city},{y},{price:.6f},{k}")
    (folder / "rows.csv").write_text("\n".join(lines))
    table = ["r,a,b,c", *(f"r{i},{i % 2},{i // 2 % 2},{i % 3 // 2}" for i in range(6))]
    (folder / "table.csv").write_text("\n".join(table))
    return folder


def fitted(data, kind):
    command, *how = KINDS[kind]
    out = data / f"{kind}.kalvi"
    rows = data / ("table.csv" if kind == "silk" else "rows.csv")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert run(command, rows, *how, "-q", "--force", "-o", out).exit_code == 0
    return out


def places(node, path=()):
    """The leaves of a tree of JSON, each with the way to it."""
    if isinstance(node, dict | list):
        inner = node.items() if isinstance(node, dict) else enumerate(node)
        return [found for key, part in inner for found in places(part, (*path, key))]
    return [path]


def edited(path, count, seed):
    """Write `count` files beside `path`, in each of which one leaf is something else, one after another."""
    texts, arrays = container.read(path)
    texts = {name: text for name, text in texts.items() if name != "sha256"}
    tree, choose = json.loads(texts["structure"]), random.Random(seed)
    ways, other = places(tree), path.with_name(f"edited-{path.name}")
    for _ in range(count):
        way, value, new = choose.choice(ways), choose.choice(VALUES), copy.deepcopy(tree)
        node = new
        for key in way[:-1]:
            node = node[key]
        node[way[-1]] = value
        container.write(other, arrays, texts | {"structure": json.dumps(new)})
        yield other, f"{'.'.join(map(str, way))} = {value!r}"


def check(result, what, path=None):
    assert result.exit_code in (0, 2), f"{what}: {result.exception!r}"
    assert isinstance(result.exception, SystemExit | None), f"{what}: {result.exception!r}"
    if result.exit_code == 2 and path is not None:
        said = result.stderr.strip()
        assert said.startswith(f"Error: {path} ") and "\n" not in said, f"{what}: {said}"


def campaign(data, kind, count, seed):
    """How many changed files were taken for models."""
    rows, taken = () if kind == "silk" else (data / "rows.csv",), 0
    for path, what in edited(fitted(data, kind), count, seed):
        result = run("inspect", path, "--json")
        check(result, what, path)
        if result.exit_code == 0:
            taken += 1
            check(run("predict", path, *rows, "-q"), what)
    return taken


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["logistic"])
def test_changed_models(data, kind):
    assert 0 < campaign(data, kind, 100, 0) < 50


@pytest.mark.slow(reason="six hundred changed models a case")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("gp", "neural")])
def test_thousands_of_changed_models(data, kind):
    assert 0 < campaign(data, kind, 600, 1) < 300


@pytest.mark.slow(reason="four hundred and fifty commands a case")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["logistic", "factor"])
def test_changed_models_are_updated_merged_and_drawn(data, kind):
    model = fitted(data, kind)
    whole = data / "whole.kalvi"
    whole.write_bytes(model.read_bytes())
    for path, what in edited(model, 150, 2):
        new = data / "new.kalvi"
        check(run("update", path, data / "rows.csv", "-q", "-o", new), what)
        new.unlink(missing_ok=True)
        check(run("merge", whole, path, "-q", "-o", new), what)
        new.unlink(missing_ok=True)
        check(run("report", path, "-q", "-o", data / "page.html"), what)
        assert not [file for file in data.iterdir() if file.name.startswith("new.kalvi")], what


@pytest.mark.slow(reason="five hundred changed checkpoints")
@pytest.mark.filterwarnings("ignore")
def test_changed_checkpoints(data, monkeypatch):
    def stopped(*_):
        raise Interrupted

    out = data / "stopped.kalvi"
    monkeypatch.setattr(learning, "_learn_stream", stopped)
    assert run("fit", data / "rows.csv", "-t", "y", "-q", "-o", out).exit_code == 1
    monkeypatch.undo()
    run_of = data / f"edited-{out.name}"
    for path, what in edited(learning.checkpoint_of(out), 500, 3):
        result = run("resume", run_of, "-q")
        check(result, what, path if "is damaged" in result.stderr else None)
        run_of.unlink(missing_ok=True)
    learning.checkpoint_of(out).unlink()


def test_sizes_that_nothing_has(data):
    """What would be allocated or divided by: refused by name before it is."""
    model = fitted(data, "logistic")
    texts, arrays = container.read(model)
    texts = {name: text for name, text in texts.items() if name != "sha256"}
    for old, new in (
        ('"width": 16', '"width": 2000000000'),
        ('"width": 16', '"width": 0'),
        ('"model": "logistic"', '"model": "x"'),
        ('"weight": 60.0', '"weight": 0'),
        ('"used": 8', '"used": 80'),
        ('"labels": ["tuple", ["each", ["0", "1"]]]', '"labels": ["tuple", ["each", ["0", 1.5]]]'),
        ('"max_width": 1048576', '"max_width": 0'),
        ('"hash_bits": null', '"hash_bits": 1000000000000'),
    ):
        assert old in texts["structure"], old
        changed = texts["structure"].replace(old, new)
        container.write(data / "changed.kalvi", arrays, texts | {"structure": changed})
        result = run("inspect", data / "changed.kalvi")
        assert result.exit_code == 2, (old, new)
        check(result, new, data / "changed.kalvi")


@pytest.mark.parametrize(
    ("model", "setting", "said"),
    [
        ("logistic", "prior=3", "prior must be a Gaussian"),
        ("logistic", "prior_mean={}", "prior_mean must be a number"),
        ("linear", "prior_scale={}", "prior_scale must be positive and finite"),
        ("linear", "dtype=foo", "dtype must be"),
        ("poisson", "scheme={}", "scheme must be one of"),
        ("gp", "kernel=x", "kernel must be one of"),
        ("neural", "activation={}", "activation must be one of"),
        ("factor", "prior_rows={}", "prior_rows must be"),
    ],
)
def test_settings_that_mean_nothing(data, tmp_path, model, setting, said):
    command = ("factor", "-k", 1) if model == "factor" else ("fit", "-t", "k", "-m", model)
    out = tmp_path / "m.kalvi"
    result = run(*command, data / "rows.csv", "--set", setting, "-o", out, "-q")
    assert result.exit_code == 2 and isinstance(result.exception, SystemExit)
    assert said in result.stderr and result.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("quiet", [True, False])
def test_quiet_is_without_notes(data, tmp_path, monkeypatch, quiet):
    def warned(*_):
        warnings.warn("something to know", UserWarning, stacklevel=2)

    monkeypatch.setattr("sys.warnoptions", [])
    monkeypatch.setattr(learning, "_remove_temporary_files", warned)
    more = ("-q",) if quiet else ("--json",)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        result = run("fit", data / "rows.csv", "-t", "y", "-o", tmp_path / "m.kalvi", *more)
    assert result.exit_code == 0
    assert ("note: something to know" in result.stderr) is not quiet
