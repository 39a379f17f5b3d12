"""kalvi fit, update and resume: what they write, say and refuse."""

import gzip
import json
import random

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import kalvi
from kalvi.tabular import learn as learning
from kalvi.tabular.renderers import SupervisedRenderer
from kalvi.tabular.rows import dense
from tests.cli.commands import ROWS, ok, run, sentence


def test_fit_says_what_it_found_and_wrote(data, tmp_path):
    result = ok("fit", data, "-t", "sold", "-o", tmp_path / "m.kalvi")
    for words in (
        "types by the first 300 rows",
        "size",
        "number",
        "category  3 levels",
        "(no, yes)",
    ):
        assert words in result.stderr
    for words in ("logistic regression of sold: 300 rows", "progressive log loss 0.", "wrote"):
        assert words in result.stdout
    assert [p.name for p in tmp_path.iterdir()] == ["m.kalvi"]


def test_fit_for_scripts(data, frame, tmp_path):
    result = ok("fit", data, "-t", "sold", "-o", tmp_path / "m", "--json")
    about = json.loads(result.stdout)
    assert result.stderr == ""
    assert about["rows"] == ROWS
    assert about["classes"] == ["no", "yes"]
    assert about["log_loss"] == pytest.approx(
        -kalvi.load(tmp_path / "m").estimator.log_evidence_ / ROWS
    )


@pytest.mark.parametrize("suffix", ["csv.gz", "parquet", "jsonl", "feather"])
def test_every_format_gives_the_same_model(model, frame, tmp_path, suffix):
    path = tmp_path / f"rows.{suffix}"
    write = {
        "csv.gz": lambda: frame.to_csv(path, index=False),
        "parquet": lambda: frame.to_parquet(path),
        "jsonl": lambda: frame.to_json(path, orient="records", lines=True, double_precision=15),
        "feather": lambda: frame.to_feather(path),
    }
    write[suffix]()
    ok("fit", path, "-t", "sold", "-o", tmp_path / "m", "-q")
    found, expected = (kalvi.load(p).estimator.posterior_.mean for p in (tmp_path / "m", model))
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_standard_input(model, data, tmp_path):
    ok("fit", "-", "-t", "sold", "-o", tmp_path / "m", "-q", input=data.read_bytes())
    found, expected = (kalvi.load(p).estimator.posterior_.mean for p in (tmp_path / "m", model))
    np.testing.assert_array_equal(found, expected)


def test_update_is_fit_with_more_rows(data, frame, tmp_path):
    parts = []
    for i, part in enumerate((frame, frame[:256], frame[256:])):
        parts.append(tmp_path / f"{i}.csv")
        part.to_csv(parts[-1], index=False)
    first = tmp_path / "m.kalvi"
    fixed = "--set", "prior_scale=1"
    ok("fit", parts[1], "-t", "sold", "-o", first, "-q", "--one-pass", *fixed)
    before = first.read_bytes()
    ok("update", first, parts[2], "-o", tmp_path / "n.kalvi", "-q")
    assert first.read_bytes() == before
    ok("update", first, parts[2], "-q")
    both = [kalvi.load(tmp_path / name) for name in ("m.kalvi", "n.kalvi")]
    assert [m.record.rows for m in both] == [ROWS, ROWS]
    whole = kalvi.LogisticRegression(passes=1)
    pattern = both[0].encoder
    numbers = (frame["size"] - pattern.numbers.centre[0]) / pattern.numbers.scale[0]
    levels = [frame["city"] == name for name in ("Bonn", "Köln", "Ulm")]
    whole.fit(np.column_stack([numbers, *levels]).astype(float), frame["sold"] == "yes")
    for m in both:
        np.testing.assert_allclose(m.estimator.log_evidence_, whole.log_evidence_, rtol=1e-10)


def test_linear_and_poisson(frame, tmp_path):
    rng = np.random.default_rng(1)
    table = frame.assign(
        price=frame["size"] * 2 + rng.normal(size=ROWS), count=rng.poisson(2, ROWS)
    )
    path = tmp_path / "rows.csv"
    table.to_csv(path, index=False)
    for target, kind in (("price", "linear"), ("count", "poisson")):
        out = tmp_path / f"{kind}.kalvi"
        ok("fit", path, "-t", target, "-m", kind, "-f", "size", "-o", out, "-q")
        ok("predict", out, path, "-o", tmp_path / "p.csv", "--level", "0.8", "-q", "--force")
        said = pd.read_csv(tmp_path / "p.csv")
        assert list(said) == ["mean", "sd", "lower", "upper"]
        inside = np.mean((said["lower"] <= table[target]) & (table[target] <= said["upper"]))
        assert 0.7 < inside < 0.95  # counts are discrete: their intervals hold a little more


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["-t", "gold"], "has no column 'gold' for the target; it has size, city, sold"),
        (["-t", "sold", "-w", "w"], "has no column 'w' for the weight"),
        (["-t", "sold", "--time", "when"], "has no column 'when' for the time"),
        (["-t", "sold", "--time", "size"], "say how much of the past is kept in a unit of time"),
        (
            ["-t", "sold", "--time", "city", "--set", "drift=0.9"],
            "the time 'city' must be a column of numbers or of dates",
        ),
        (["-t", "sold", "-m", "linear"], "the target 'sold' is string, not numbers"),
        (["-t", "size", "-m", "logistic"], "'size' has 300 different values in the first rows"),
        (["-t", "size", "-m", "poisson"], "the target 'size' is '"),
        (["-t", "sold", "-d", "nothing"], "no column is called 'nothing'"),
        (
            ["-t", "sold", "--classes", "yes,maybe"],
            "the target 'sold' is 'no'; the classes are yes, maybe",
        ),
        (["-t", "sold", "--set", "prior_scale"], "--set takes NAME=VALUE; got 'prior_scale'"),
        (["-t", "sold", "--set", "prior_scale=-1"], "prior_scale must be positive"),
        (
            ["-t", "sold", "--set", "colour=1"],
            "LogisticRegression has no parameter 'colour'; it has ",
        ),
        (["-t", "sold", "--number", "city"], "rows.csv, row 1: column 'city'"),
        (["-t", "sold", "-o", "nowhere/m.kalvi"], "there is no folder nowhere"),
    ],
)
def test_what_fit_refuses(data, tmp_path, monkeypatch, arguments, words):
    monkeypatch.chdir(tmp_path)
    assert words in sentence(run("fit", data, *arguments))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("dates", [False, True])
def test_rows_with_times(frame, tmp_path, dates):
    days = np.cumsum(np.random.default_rng(2).exponential(size=ROWS)).round(3)
    when = days if not dates else pd.Timestamp("2024-01-01") + pd.to_timedelta(days, unit="D")
    table, path, out = frame.assign(when=when), tmp_path / "rows.csv", tmp_path / "m.kalvi"
    table.to_csv(path, index=False)
    ok("fit", path, "-t", "sold", "-f", "size", "--time", "when", "--set", "drift=0.98", "-o", out)
    held = kalvi.load(out)
    size = held.encoder.encode(held_table(table[["size"]]), lambda i: str(i), learn=False)[0]
    alone = kalvi.LogisticRegression(drift=0.98)
    sold = (frame["sold"] == held.labels()[1]).astype(int)
    alone.partial_fit(dense(size), sold, [0, 1], time=days)
    np.testing.assert_allclose(held.estimator.coef_, alone.coef_, rtol=0.02)
    assert held.estimator.fit_.clock == pytest.approx(days[-1] + 19723 * dates)
    # further rows must be later
    assert "time must not go back" in sentence(run("update", out, path, "--again"))


def test_a_missing_time_is_refused(frame, tmp_path):
    path = tmp_path / "rows.csv"
    frame.assign(when=np.where(np.arange(ROWS) == 5, np.nan, 1.0)).to_csv(path, index=False)
    told = sentence(run("fit", path, "-t", "sold", "--time", "when", "--set", "drift=0.9"))
    assert "when" in told and "row 6" in told


def held_table(frame):
    return pa.Table.from_pandas(frame.astype(float), preserve_index=False)


def test_no_row_to_learn_from(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("x,y,w\n1,a,0\n2,b,0\n")
    message = sentence(run("fit", path, "-t", "y", "-w", "w", "-o", tmp_path / "m"))
    assert message.startswith("nothing was learned: no row has both a target and a weight")
    assert [p.name for p in tmp_path.iterdir()] == ["rows.csv"]


def test_errors_name_the_file_and_the_row(data, own, tmp_path):
    lines = data.read_text().splitlines()
    lines[100] = "much,Bonn,yes"
    bad = tmp_path / "bad.csv"
    bad.write_text("\n".join(lines[:1] + lines[50:]))
    before = own.read_bytes()
    assert sentence(run("update", own, bad)).startswith("bad.csv, row 51: ")
    assert own.read_bytes() == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["bad.csv", "own.kalvi"]


def test_a_model_is_not_replaced_by_mistake(data, own):
    before = own.read_bytes()
    assert "exists; learn more with kalvi update" in sentence(
        run("fit", data, "-t", "sold", "-o", own)
    )
    assert own.read_bytes() == before
    ok("fit", data, "-t", "sold", "-o", own, "--force", "-q")


def test_stopped_and_resumed(data, tmp_path, monkeypatch):
    """Ctrl-C after the third piece: exit code 1, a word on how to go on, and the same model then."""
    monkeypatch.setattr(learning, "PIECE_ROWS", 64)
    whole, out = tmp_path / "whole", tmp_path / "m.kalvi"
    ok("fit", data, "-t", "sold", "-o", whole, "-q")
    stop = learning.Stop()
    monkeypatch.setattr(learning, "stoppable", lambda: _given(stop))
    monkeypatch.setattr(
        SupervisedRenderer, "progress", lambda _, record: _stop_at(stop, record, 3 * 64)
    )
    result = run("fit", data, "-t", "sold", "-o", out)
    assert result.exit_code == 1
    assert f"Go on with: kalvi resume {out}" in result.stderr
    assert not out.exists()
    message = sentence(run("fit", data, "-t", "sold", "-o", out))
    assert f"not finished; go on with kalvi resume {out}" in message
    monkeypatch.undo()
    ok("resume", out, "-q")
    a, b = (kalvi.load(path).estimator.posterior_ for path in (whole, out))
    assert np.asarray(a.root).tobytes() == np.asarray(b.root).tobytes()
    assert "is finished: there is no run to continue" in sentence(run("resume", out))
    assert "was not begun" in sentence(run("resume", tmp_path / "other"))


class _given:
    def __init__(self, value):
        self.value = value

    def __enter__(self):
        return self.value

    def __exit__(self, *_):
        return False


def _stop_at(stop, record, rows):
    stop.asked = record.rows >= rows
    return ""


MALFORMED = {
    "truncated gzip": lambda good, noise: (
        "csv.gz",
        gzip.compress(good)[: noise.randrange(20, 900)],
    ),
    "ragged": lambda good, noise: ("csv", good + b"1,Bonn\n"),
    "encoding": lambda good, noise: ("csv", good.decode().encode("latin-1")),
    "nul": lambda good, noise: ("csv", good[:500] + b"\0" + good[500:]),
    "huge field": lambda good, noise: ("csv", good + b"1," + b"x" * 3_000_000 + b",yes\n,"),
    "empty": lambda good, noise: ("csv", b""),
    "header only": lambda good, noise: ("csv", b"size,city,sold\n"),
    "mixed types": lambda good, noise: ("csv", good + b"tall,Bonn,yes\n"),
    "infinite": lambda good, noise: ("csv", good + b"inf,Bonn,yes\n"),
    "missing": lambda good, noise: ("csv", good + b"nan,Bonn,yes\n"),
    "new label": lambda good, noise: ("csv", good + b"1,Bonn,perhaps\n"),
    "duplicate": lambda good, noise: ("csv", good.replace(b"size,city", b"city,city", 1)),
    "not parquet": lambda good, noise: ("parquet", good),
    "json": lambda good, noise: ("jsonl", b'{"size": 1, "city": "Bonn", "sold": "yes"}\n[1]\n'),
}


@pytest.mark.parametrize("kind", MALFORMED)
def test_malformed_files_leave_the_model_alone(own, data, tmp_path, kind):
    suffix, content = MALFORMED[kind](data.read_bytes(), random.Random(0))
    bad = tmp_path / f"bad.{suffix}"
    bad.write_bytes(content)
    before = own.read_bytes()
    assert sentence(run("update", own, bad, "-q")).startswith(("bad.", str(bad)))
    assert own.read_bytes() == before


def mutated(content, noise):
    """Some bytes flipped, cut out, doubled or replaced."""
    content = bytearray(content)
    for _ in range(noise.randrange(1, 6)):
        at, size = noise.randrange(len(content) + 1), noise.randrange(1, 40)
        change = noise.randrange(5)
        if change == 0 and at < len(content):
            content[at] ^= 1 << noise.randrange(8)
        elif change == 1:
            del content[at : at + size]
        elif change == 2:
            content[at:at] = content[at : at + size]
        elif change == 3:
            content[at:at] = noise.choice(
                [b"\0", b'"', b",", b"\n", b"\xff", b"nan", b"1e999", b"{"]
            )
        else:
            del content[at:]
    return bytes(content)


def fuzz(own, data, tmp_path, cases, seed):
    noise, before, refused = random.Random(seed), own.read_bytes(), 0
    good = data.read_bytes()
    files = {"csv": good, "csv.gz": gzip.compress(good), "parquet": _as(data, tmp_path, "parquet")}
    for i in range(cases):
        suffix = noise.choice(list(files))
        bad = tmp_path / f"bad.{suffix}"
        bad.write_bytes(mutated(files[suffix], noise))
        result = run("update", own, bad, "-q", "--json")
        if result.exit_code == 0:
            own.write_bytes(before)
            continue
        refused += 1
        assert sentence(result).startswith(("bad.", str(bad))), (i, result.output)
        assert own.read_bytes() == before
        learning.checkpoint_of(own).unlink(missing_ok=True)
    return refused


def _as(data, tmp_path, suffix):
    path = tmp_path / f"good.{suffix}"
    pd.read_csv(data).to_parquet(path)
    return path.read_bytes()


def test_mutated_files(own, data, tmp_path):
    assert fuzz(own, data, tmp_path, 60, 0) > 15


@pytest.mark.slow(reason="three thousand mutated files")
def test_thousands_of_mutated_files(own, data, tmp_path):
    assert fuzz(own, data, tmp_path, 3000, 1) > 1000


def test_mutated_models(model, data, tmp_path):
    noise, good, bad = random.Random(3), model.read_bytes(), tmp_path / "bad.kalvi"
    for _ in range(60):
        bad.write_bytes(mutated(good, noise))
        before = bad.read_bytes()
        if before == good:
            continue
        for command in (("inspect", bad), ("predict", bad, data), ("update", bad, data, "-q")):
            assert sentence(run(*command)).startswith(str(bad))
        assert bad.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["bad.kalvi"]


def test_one_pass_or_the_optimum(data, tmp_path):
    out = tmp_path / "m.kalvi"
    said = ok("fit", data, "-t", "sold", "-o", out).stdout
    assert "posterior: at the optimum of the variational bound after" in said
    shown = ok("inspect", out).stdout
    assert "on the log evidence" in shown and "at the optimum" in shown
    stream = json.loads(
        ok("fit", data, "-t", "sold", "-o", tmp_path / "s", "--one-pass", "--json").stdout
    )
    assert stream["reached"]["how"] == "one pass" and stream["settings"]["passes"] == 1
    same = json.loads(
        ok("fit", data, "-t", "sold", "-o", tmp_path / "p", "--set", "passes=1", "--json").stdout
    )
    assert (
        same["effects"]
        == stream["effects"]
        != json.loads(ok("inspect", out, "--json").stdout)["effects"]
    )
    ok("fit", data, "-t", "sold", "-o", tmp_path / "k", "--one-pass", "--keep-rows", "-q")
    shown = ok("inspect", tmp_path / "k", "--diagnose").stdout
    assert "300 of the rows, learned alone in one pass, end up to" in shown
    ok("update", out, data, "-q", "--again")
    assert "one pass over the rows" in ok("inspect", out).stdout


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--set", "passes=3"), "--one-pass contradicts --set passes=3; leave one out."),
        (("-m", "gp"), "--one-pass is for models that stream; a Gaussian process needs all rows."),
    ],
)
def test_one_pass_where_it_means_nothing(data, tmp_path, options, message):
    command = ("fit", data, "-t", "sold", "-o", tmp_path / "m", "--one-pass", *options)
    assert sentence(run(*command)) == message
