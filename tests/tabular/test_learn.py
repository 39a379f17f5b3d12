"""A pass over files: what is learned, kept, interrupted, resumed and merged."""

import jax
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy import stats
from sklearn import metrics
from sklearn.preprocessing import StandardScaler

import kalvi
from kalvi.readers.source import open_data
from kalvi.tabular import learn as learning
from kalvi.tabular import progressive, record
from kalvi.tabular.choices import Choices
from kalvi.tabular.merge import merge_table_models
from kalvi.tabular.predictions import PredictOptions
from kalvi.tabular.report.document import page
from kalvi.tabular.table_kinds import new_model

PIECE, ROWS = 64, 400


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    monkeypatch.setattr(learning, "PIECE_ROWS", PIECE)


@pytest.fixture(scope="module")
def frame():
    rng = np.random.default_rng(0)
    size, city = rng.normal(3, 2, ROWS), rng.choice(["Bonn", "Köln", "Ulm"], ROWS)
    f = 0.8 * (size - 3) + (city == "Ulm") - 0.5
    return pd.DataFrame(
        {
            "size": size,
            "city": city,
            "sold": np.where(rng.random(ROWS) < 1 / (1 + np.exp(-f)), "yes", "no"),
            "price": 2 * size + 3 * (city == "Ulm") + rng.normal(0, 0.5, ROWS),
        }
    )


@pytest.fixture(scope="module")
def file(frame, tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "rows.parquet"
    pq.write_table(pa.Table.from_pandas(frame), path, row_group_size=100)
    return path


def fit(file, out, tell=lambda *_: None, *, every=10**9, learned=False, **choices):
    """A fit whose settings are given unless they are to be learned on the way."""
    source = open_data(file)
    if not learned and choices.get("model") in (None, "logistic", "linear", "poisson"):
        choices["parameters"] = {"drift": 1} | choices.get("parameters", {})
    model = new_model(source, Choices(**choices))
    job = learning.new_job(
        model, source, out, data=(str(file),), format=None, every_rows=every, every_seconds=1e9
    )
    return learning.learn(model, source, job, tell)


def bits(model):
    """Everything that was learned, as bytes; the clock aside."""
    record = model.record._replace(seconds=0.0)
    state = model.estimator.fit_.state
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(state)]
    rows = None if record.sample.x is None else record.sample.x.toarray()
    told = (record.curve, record.checks, record.scores, record.losses, record.sample[1:])
    kept = [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves((told, rows))] + [
        str(model.encoder)
    ]
    return [leaf.tobytes() for leaf in leaves] + [*kept, record.rows, record.examples]


def test_it_learns_what_the_estimator_does(file, frame, tmp_path):
    model = fit(file, tmp_path / "m", target="sold", drop=("price",))
    x = np.column_stack(
        [
            StandardScaler().fit_transform(frame[["size"]]),
            *[frame["city"] == name for name in ("Bonn", "Köln", "Ulm")],
        ]
    ).astype(float)
    own = kalvi.LogisticRegression().fit(x, frame["sold"] == "yes")
    named = dict(zip(model.encoder.names(), model.estimator.coef_[0], strict=True))
    found = [named[name] for name in ("size", "city=Bonn", "city=Köln", "city=Ulm")]
    np.testing.assert_allclose(found, own.coef_[0], rtol=1e-8)
    np.testing.assert_allclose(model.estimator.log_evidence_, own.log_evidence_, rtol=1e-10)
    loss = model.describe("m")["log_loss"]
    np.testing.assert_allclose(loss, -own.log_evidence_ / ROWS, rtol=1e-10)


def test_settings_learned_on_the_way_are_reported(file, tmp_path):
    choices = {"target": "sold", "drop": ("price",)}
    model = fit(file, tmp_path / "m", learned=True, **choices)
    summary = model.describe("m")
    learned = summary["learned_settings"]
    assert learned["rows"][:2] == [64, 128] and learned["rows"][-1] == ROWS
    assert len(learned["changing"]) == len(learned["rows"])
    shown = page(summary)
    assert "Settings learned on the way" in shown and learned["words"][0] in shown
    given = fit(file, tmp_path / "n", **choices).describe("n")
    assert given["learned_settings"] is None
    assert "Settings learned on the way" not in page(given)


def test_what_is_written_is_what_was_learned(file, tmp_path):
    out = tmp_path / "m.kalvi"
    model = fit(file, out, target="sold", drop=("price",), every=PIECE)
    assert bits(kalvi.load(out)) == bits(model)
    assert [p.name for p in tmp_path.iterdir()] == ["m.kalvi"]
    assert learning.find_unfinished_run(out) is None


@pytest.mark.parametrize(
    "rank", [None, pytest.param(2, marks=pytest.mark.slow(reason="compiles a low-rank stream"))]
)
def test_an_interrupted_run_goes_on_to_the_same_bits(file, tmp_path, rank):
    choices = {
        "target": "sold",
        "drop": ("price",),
        "parameters": {"rank": rank},
        "keep_rows": True,
        "learned": True,
    }
    whole = fit(file, tmp_path / "whole", **choices)
    for stop_after in (1, 4, 7) if rank is None else (4,):
        out = tmp_path / f"part{stop_after}"

        def end(model, rows, fraction, last=stop_after):
            if rows >= min(last * PIECE, ROWS):
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            fit(file, out, end, every=PIECE, **choices)
        assert not out.exists()
        held = learning.find_unfinished_run(out)
        assert held.job.done == (stop_after - 1) * PIECE  # told before the checkpoint of that piece
        resumed = learning.learn(held.model, learning.reopen(held.job), held.job, lambda *_: None)
        assert bits(resumed) == bits(whole)
        assert learning.find_unfinished_run(out) is None


def test_a_run_that_ended_leaves_nothing_to_resume(file, tmp_path, monkeypatch):
    """Killed between the model's writing and the checkpoint's removal."""
    out, kept = tmp_path / "m", tmp_path / "kept"

    def keep(model, rows, fraction):
        if rows == ROWS:
            kept.write_bytes(learning.checkpoint_of(out).read_bytes())

    fit(file, out, keep, every=PIECE, target="sold", drop=("price",))
    learning.checkpoint_of(out).write_bytes(kept.read_bytes())
    assert learning.find_unfinished_run(out) is None
    assert not learning.checkpoint_of(out).exists()


def test_a_changed_file_is_not_resumed(file, frame, tmp_path):
    own = tmp_path / "rows.parquet"
    own.write_bytes(file.read_bytes())

    def end(model, rows, fraction):
        if rows > PIECE:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fit(own, tmp_path / "m", end, every=PIECE, target="sold", drop=("price",))
    pq.write_table(pa.Table.from_pandas(frame[::-1]), own)
    held = learning.find_unfinished_run(tmp_path / "m")
    with pytest.raises(ValueError, match=r"rows\.parquet is not the file the run began with"):
        learning.reopen(held.job)


def test_shards_merge_to_the_model_of_all(file, frame, tmp_path):
    """Exact for linear models with a known noise, also where a shard lacks a level."""
    settings = {
        "target": "price",
        "drop": ("sold",),
        "parameters": {"noise_scale": 0.5, "prior_scale": 1.0},
    }
    frame = frame.sort_values("city", kind="stable")
    files = []
    for i, part in enumerate((frame, frame[:150], frame[150:])):
        files.append(tmp_path / f"{i}.parquet")
        pq.write_table(pa.Table.from_pandas(part, preserve_index=False), files[-1])
    whole = fit(files[0], tmp_path / "whole", **settings)
    shards = []
    for path in files[1:]:
        source = open_data(path)
        model = whole.fresh()
        job = learning.new_job(
            model,
            source,
            path.with_suffix(""),
            data=(str(path),),
            format=None,
            every_rows=10**9,
            every_seconds=1e9,
        )
        shards.append(learning.learn(model, source, job, lambda *_: None))
    both = merge_table_models(shards, ["a", "b"])
    assert both.record.rows == ROWS
    assert both.record.scores.rows() == sum(m.record.scores.rows() for m in shards)
    assert both.record.scores.learned == ROWS
    q, p = both.estimator.posterior_, whole.estimator.posterior_
    np.testing.assert_allclose(q.mean, p.mean, rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(q.cov, p.cov, rtol=1e-9, atol=1e-12)
    about, all_ = both.encoder.describe(), whole.encoder.describe()
    assert sorted(map(tuple, about[1]["commonest"])) == sorted(map(tuple, all_[1]["commonest"]))


@pytest.mark.slow(reason="compiles the fits of two numbers of columns")
def test_models_of_other_units_do_not_merge(file, tmp_path):
    one = fit(file, tmp_path / "a", target="sold", drop=("price",))
    other = fit(file, tmp_path / "b", target="sold", drop=("price", "city"))
    with pytest.raises(ValueError, match=r"b and a differ in .*--like a"):
        merge_table_models([one, other], ["a", "b"])


def test_effects_against_the_mean_of_their_column(file, tmp_path):
    model = fit(file, tmp_path / "m", target="sold", drop=("price",))
    q = model.estimator.posterior_
    names = [*model.encoder.names(), "intercept"]
    counts = dict(map(tuple, model.encoder.describe()[1]["commonest"]))
    about = model.describe("m")
    for effect in [*about["effects"], {"name": "intercept", **about["intercept"][0]}]:
        row = np.zeros(len(names))
        if effect["name"] == "intercept":
            row[-1] = 1
        if effect["name"].startswith("city=") or effect["name"] == "intercept":
            sign = 1 if effect["name"] == "intercept" else -1
            for level, n in counts.items():
                row[names.index(f"city={level}")] += sign * n / ROWS
        if effect["name"] != "intercept":
            row[names.index(effect["name"])] += 1
        mean, var = row @ np.asarray(q.mean), row @ np.asarray(q.cov) @ row
        np.testing.assert_allclose([effect["mean"], effect["std"]], [mean, np.sqrt(var)], rtol=1e-9)
        np.testing.assert_allclose(
            effect["upper"], mean + 1.959963984540054 * np.sqrt(var), rtol=1e-9
        )


def columns_of(model, frame):
    """The rows of x, made by hand."""
    names = model.encoder.names()
    x = np.zeros((len(frame), model.encoder.width))
    x[:, names.index("size")] = StandardScaler().fit_transform(frame[["size"]])[:, 0]
    for level in ("Bonn", "Köln", "Ulm"):
        x[:, names.index(f"city={level}")] = frame["city"] == level
    return x


def blocks_of(n, piece):
    """Where the blocks of a stream begin and end: 16 rows, then half of those before, in pieces."""
    start = 0
    while start < n:
        size = max(16, start // 2 // 16 * 16)
        end = min(start + size, n, (start // piece + 1) * piece)
        yield start, end
        start = end


def test_every_row_after_the_first_few_is_predicted_before_it_is_learned(file, frame, tmp_path):
    model = fit(file, tmp_path / "m", target="price", drop=("sold",))
    own, predicted = kalvi.LinearRegression(drift=1), []
    centre, scale = (
        frame["price"].mean(),
        frame["price"].std(ddof=0),
    )  # the target too is in deviations
    x, y = columns_of(model, frame), frame["price"].to_numpy()
    for start, end in blocks_of(ROWS, PIECE):
        if start:
            predicted.append(np.array(own.predict(x[start:end], return_std=True)) * scale)
        own.partial_fit(x[start:end], (y[start:end] - centre) / scale)
    (mean, std), y = np.concatenate(predicted, axis=1), y[16:]
    mean = mean + centre
    about = model.describe("m")
    for level, share in zip(about["coverage"]["level"], about["coverage"]["observed"], strict=True):
        inside = np.abs(y - mean) <= stats.norm.ppf((1 + level) / 2) * std
        assert share == np.mean(inside)
    scores = {m["name"]: m["value"] for m in about["scores"]["measures"]}
    assert about["scores"]["rows"] == ROWS - 16 and not about["scores"]["in_sample"]
    np.testing.assert_allclose(scores["R²"], metrics.r2_score(y, mean), rtol=1e-9)
    np.testing.assert_allclose(scores["MAE"], metrics.mean_absolute_error(y, mean), rtol=1e-9)


def test_scores_of_classes_are_of_every_row_after_the_first_few(file, frame, tmp_path):
    model = fit(file, tmp_path / "m", target="sold", drop=("price",))
    own, p = kalvi.LogisticRegression(drift=1), []
    x, y = columns_of(model, frame), (frame["sold"] == "yes").to_numpy().astype(int)
    for start, end in blocks_of(ROWS, PIECE):
        if start:
            p.append(own.predict_proba(x[start:end])[:, 1])
        own.partial_fit(x[start:end], y[start:end], classes=[0, 1])
    p, y = np.concatenate(p), y[16:]
    about = model.describe("m")
    scores = {m["name"]: m["value"] for m in about["scores"]["measures"]}
    np.testing.assert_allclose(scores["accuracy"], np.mean((p > 0.5) == y))
    np.testing.assert_allclose(scores["AUC"], metrics.roc_auc_score(y, p), atol=1e-3)
    np.testing.assert_allclose(scores["log loss"], metrics.log_loss(y, p), rtol=1e-9)
    assert about["calibration"]["class"] == "yes"
    assert sum(about["calibration"]["count"]) == ROWS - 16
    assert len(about["curve"]["rows"]) == len(list(blocks_of(ROWS, PIECE)))


@pytest.mark.parametrize(
    "target, parameters",
    [("sold", {}), ("sold", {"rank": 2}), ("price", {}), ("city", {})],
    ids=["full", "rank", "linear", "classes"],
)
def test_what_is_learned_does_not_depend_on_how_rows_are_cut(
    file, tmp_path, monkeypatch, target, parameters
):
    choices = {"target": target, "drop": ("price",) * (target == "sold"), "parameters": parameters}
    cut = fit(file, tmp_path / "cut", **choices)
    monkeypatch.setattr("kalvi.tabular.table_model.block_size", lambda learned, first, left: left)
    whole = fit(file, tmp_path / "whole", **choices)
    assert len(whole.record.curve.rows) < len(cut.record.curve.rows)
    q, p = (m.estimator.posterior_ for m in (cut, whole))
    np.testing.assert_allclose(q.mean, p.mean, rtol=1e-7, atol=1e-10)
    np.testing.assert_allclose(q.variance(), p.variance(), rtol=1e-7)
    evidence = [m.estimator.log_evidence_ for m in (cut, whole)]
    np.testing.assert_allclose(*evidence, rtol=1e-9)


def test_long_streams_are_predicted_in_part(file, tmp_path, monkeypatch):
    monkeypatch.setattr(progressive, "ALL_ROWS", 128)
    monkeypatch.setattr(progressive, "CHECKED", 10)
    model = fit(file, tmp_path / "m", target="sold", drop=("price",))
    later = [end - start for start, end in blocks_of(ROWS, PIECE) if start >= 128]
    assert model.record.scores.rows() == 128 - 16 + sum(min(size, 10) for size in later)


def test_scores_begin_when_there_are_rows_enough(file, tmp_path, monkeypatch):
    monkeypatch.setattr(progressive, "PER_INPUT", 10)
    model = fit(file, tmp_path / "m", target="sold", drop=("price",))
    inputs = len(model.encoder.columns())  # a column of levels is one, however many it has
    first = next(s for s, _ in blocks_of(ROWS, PIECE) if s >= 10 * inputs)
    assert model.record.scores.rows() == ROWS - first


def test_no_row_stays_in_a_model_unless_it_was_asked_for(frame, tmp_path):
    frame = frame.assign(size=frame["size"] + 1e3)  # numbers that nothing else can be
    path, out = tmp_path / "rows.csv", tmp_path / "m.kalvi"
    frame.to_csv(path, index=False)

    def rows_in(**choices):
        model = fit(path, out, target="sold", drop=("price",), **choices)
        held = kalvi.load(out)
        raw = held.estimator.fit_.buffer.waiting
        assert raw is None  # a full covariance keeps no row waiting
        centre, scale = model.encoder.numbers.centre[0], model.encoder.numbers.scale[0]
        data = out.read_bytes()
        numbers = (frame["size"].to_numpy(), ((frame["size"] - centre) / scale).to_numpy())
        return sum(value.tobytes() in data for part in numbers for value in part)

    ends = {frame["size"].min(), frame["size"].max()}
    assert rows_in() <= len(ends)  # the extremes of the column, which its description has
    assert kalvi.load(out).record.examples == ()
    assert rows_in(keep_rows=True) > ROWS / 2
    assert len(kalvi.load(out).record.examples) == 8
    assert kalvi.load(out).record.files[0]["path"] == "rows.csv"


def test_low_rank_models_keep_the_rows_that_wait_for_a_block(file, tmp_path):
    """Documented, and fewer than a block."""
    parameters = {"rank": 2, "block_size": 96, "passes": 1}
    model = fit(file, tmp_path / "m", target="sold", drop=("price",), parameters=parameters)
    waiting = kalvi.load(tmp_path / "m").estimator.fit_.buffer.waiting
    assert waiting[0].shape[0] == ROWS % 96
    assert model.record.sample.x is None


def test_a_network_is_scored_before_it_learns(file, tmp_path):
    parameters = {"hidden_sizes": [3]}
    model = fit(file, tmp_path / "m", target="price", model="neural", parameters=parameters)
    about = model.describe("m")
    assert (
        about["scores"]["rows"] == ROWS - PIECE
    )  # of the first 256 rows, those of the first piece
    assert about["shape"]["layers"][1:] == [3, 1] and about["coverage"]["count"] == ROWS - PIECE


def test_a_diagnosis_is_stored_without_its_rows(file, tmp_path):
    model = fit(file, tmp_path / "m", target="sold", drop=("price",), diagnose=True)
    assert model.record.sample.x is None
    held = kalvi.load(tmp_path / "m")
    assert held.record.diagnosis["rows"] == ROWS
    assert held.describe("m", diagnose=True)["diagnosis"] == held.record.diagnosis
    assert fit(file, tmp_path / "n", target="sold", drop=("price",)).diagnosed() is None


def test_a_model_that_forgets_has_no_diagnosis(file, tmp_path):
    choices = {"target": "sold", "drop": ("price",), "parameters": {"forgetting": 0.99}}
    with pytest.raises(ValueError, match=r"--diagnose is for .* models that do not forget"):
        fit(file, tmp_path / "m", diagnose=True, **choices)
    assert fit(file, tmp_path / "m", keep_rows=True, **choices).diagnosed() is None


def test_effects_in_the_units_of_the_columns(file, frame, tmp_path):
    """Against a straight line through the data as they came."""
    model = fit(file, tmp_path / "m", target="price", drop=("sold", "city"))
    about = model.describe("m")
    (effect,), (intercept,) = about["effects"], about["intercept"]
    slope, level = np.polyfit(frame["size"], frame["price"], 1)
    np.testing.assert_allclose(effect["original"]["mean"], slope, rtol=1e-4)
    np.testing.assert_allclose(effect["mean"], slope * frame["size"].std(ddof=0), rtol=1e-4)
    np.testing.assert_allclose(intercept["original"]["mean"], level, rtol=1e-3)
    np.testing.assert_allclose(intercept["mean"], frame["price"].mean(), rtol=1e-4)
    line = stats.linregress(frame["size"], frame["price"])
    np.testing.assert_allclose(effect["original"]["std"], line.stderr, rtol=0.02)
    np.testing.assert_allclose(intercept["original"]["std"], line.intercept_stderr, rtol=0.02)
    assert effect["unit"] == "unit"


def test_a_stream_that_changes_is_said_to(frame, tmp_path):
    frame = pd.concat([frame] * 3, ignore_index=True)
    late = np.arange(3 * ROWS) >= 0.9 * 3 * ROWS
    frame["sold"] = np.where(late, np.where(frame["size"] > 3, "no", "yes"), frame["sold"])
    frame.to_csv(tmp_path / "rows.csv", index=False)
    model = fit(tmp_path / "rows.csv", tmp_path / "m", target="sold", drop=("price",))
    about = model.describe("m")
    assert about["drift"]["sure"] and about["drift"]["change"] > 0.5
    said = about["drift"]["words"]
    assert "above that of the tenth before: the stream may have changed; see drift" in said
    assert said in about["warnings"]


def test_what_never_occurred_has_no_effect(frame, tmp_path):
    frame = frame.assign(age=np.where(np.arange(ROWS) % 9 == 0, np.nan, frame["price"]), one=1.0)
    frame.to_csv(tmp_path / "rows.csv", index=False)
    choices = {"target": "sold", "drop": ("price",), "missing": "impute"}
    model = fit(tmp_path / "rows.csv", tmp_path / "m", **choices)
    about = model.describe("m")
    names = {effect["name"] for effect in about["effects"]}
    assert "age is missing" in names and about["effects_total"] == len(names)
    assert not {"size is missing", "one is missing", "one", "intercept"} & names


def test_models_of_all_rows_at_once_are_scored_on_what_they_learned(file, frame, tmp_path):
    parameters = {"optimizer": None}
    how = {"target": "sold", "drop": ("price",), "model": "gp"}
    model = fit(file, tmp_path / "m", **how, parameters=parameters)
    scores = model.describe("m")["scores"]
    assert scores["in_sample"] and scores["rows"] == ROWS
    p = model.estimator.predict_proba(columns_of(model, frame))[:, 1]
    found = {m["name"]: m["value"] for m in scores["measures"]}
    np.testing.assert_allclose(found["log loss"], metrics.log_loss(frame["sold"] == "yes", p))


def test_the_sample_has_every_row_with_the_same_chance():
    chosen = np.zeros(3 * record.SAMPLE_ROWS)
    for trial in range(40):
        sample = record.Sample.none()
        for start in range(0, len(chosen), 500):
            rows = np.arange(start, start + 500)
            piece = (rows[:, None] + 1.0, rows.astype(float), np.ones(500))
            sample = sample.add(piece, start + 10**6 * trial)
        assert len(sample.y) == record.SAMPLE_ROWS
        chosen[sample.y.astype(int)] += 1
    early, late = chosen[:3000].mean(), chosen[3000:].mean()
    np.testing.assert_allclose([early, late], 40 / 3, atol=5 * np.sqrt(40 * 2 / 9 / 3000))


@pytest.mark.slow(reason="compiles a fit, its passes and 400 draws")
def test_a_diagnosis_of_the_sample(file, tmp_path):
    model = fit(file, tmp_path / "m", target="sold", drop=("price",), keep_rows=True)
    found = model.diagnosed(draws=400)
    assert found["rows"] == ROWS
    assert found["pareto_k"] < 0.7


def test_predictions_of_a_file(file, frame, tmp_path):
    model = fit(file, tmp_path / "m", target="sold", drop=("price",))
    other = frame.assign(city=["Bonn"] * (ROWS - 2) + ["Trier", "Trier"])
    path = tmp_path / "new.csv"
    other.to_csv(path, index=False)
    (piece,) = model.predictions(open_data(path), PredictOptions(keep=("size",), level=0.9))
    table = piece.table.to_pandas()
    assert piece.outcome.unseen == {"city": {"Trier": 2}}
    assert piece.outcome.ignored == ("price",)
    x, _ = model.inputs(open_data(path).sample, str)
    p = model.estimator.predict_proba(x)[:, 1]
    np.testing.assert_array_equal(table["p_yes"], p)
    np.testing.assert_array_equal(table["predicted"], np.where(p > 0.5, "yes", "no"))
    q = model.estimator.posterior_
    f = np.column_stack([x, np.ones(ROWS)])
    std = np.sqrt(np.einsum("ni,ij,nj->n", f, q.cov, f))
    for name, z in (("lower", -1.6448536269514722), ("upper", 1.6448536269514722)):
        odds = f @ np.asarray(q.mean) + z * std
        np.testing.assert_allclose(table[f"{name}_yes"], 1 / (1 + np.exp(-odds)), rtol=1e-9)
    f[-1, model.encoder.names().index("city=(new level)")] = 0
    without = f[-1] @ np.asarray(q.cov) @ f[-1]
    np.testing.assert_allclose(std[-1] ** 2, without + 1, rtol=1e-9)  # the prior of a new level
    own = np.where(frame["sold"] == "yes", p, 1 - p)
    np.testing.assert_allclose(piece.outcome.score, -np.mean(np.log(own)), rtol=1e-12)
