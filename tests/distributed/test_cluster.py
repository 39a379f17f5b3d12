"""Dask collections, on this thread and on a cluster of two processes."""

import os
import signal
import subprocess
import sys
from contextlib import contextmanager

import dask
import dask.array as da
import dask.bag as db
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from distributed import Client, LocalCluster

import kalvi
from kalvi import distributed
from tests import problems

N, D, CHUNK = 240, 3, 30
ROWS = problems.binary(n=N, d=D)
X, Y = ROWS.x, ROWS.y.astype(int)
WEIGHT = np.where(np.arange(N) % 5 == 0, 2.0, 1.0)


@pytest.fixture(autouse=True, scope="module")
def here():
    with dask.config.set(scheduler="sync"):
        yield


def rows(x=X, y=Y, chunk=CHUNK):
    return da.from_array(x, chunks=(chunk, -1)), da.from_array(y, chunks=chunk)


def numbers(model):
    posterior = model.posterior_
    return [np.asarray(a) for a in (posterior.mean, posterior.root, model.log_evidence_)]


def same_bits(a, b):
    assert all(np.array_equal(one, other) for one, other in zip(a, b, strict=True))


def by_hand(refine):
    """The four shards that the collections below are cut into, streamed and merged without Dask."""
    first = distributed.Learn(kalvi.LogisticRegression(), classes=[0, 1])
    shards = [[(X[s], Y[s], WEIGHT[s]) for s in pair] for pair in pairs()]
    model = first.finish(distributed.tree(first.join, [first.over(shard) for shard in shards]))
    climb = distributed.Refinement(model)
    for _ in range(refine + bool(refine)):
        visit = climb.visit()
        climb = climb.turn(distributed.tree(visit.join, [visit.over(shard) for shard in shards]))
    return climb.finish() if refine else model


def pairs():
    pieces = [slice(i, i + CHUNK) for i in range(0, N, CHUNK)]
    return [pieces[i : i + 2] for i in range(0, len(pieces), 2)]


def collections():
    x, y = rows()
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    whole = dd.from_pandas(frame.assign(late=Y, weight=WEIGHT), npartitions=N // CHUNK)
    batches = [(X[s], Y[s], WEIGHT[s]) for pair in pairs() for s in pair]
    records = [tuple(row) for row in np.column_stack([X, Y, WEIGHT])]
    weight = da.from_array(WEIGHT, chunks=50)  # brought into the chunks of X
    return {
        "array": ((x, y, weight), {}),
        "array beside NumPy": ((x, Y, WEIGHT), {}),
        "data frame": ((whole, "late", "weight"), {}),
        "columns beside it": ((whole[["a", "b", "c"]], whole["late"], whole["weight"]), {}),
        "bag of batches": ((db.from_sequence(batches, npartitions=8),), {}),
        "bag of records": ((db.from_sequence(records, npartitions=8),), {"to_rows": to_rows}),
    }


def to_rows(records):
    table = np.array(records)
    return table[:, :D], table[:, D].astype(int), table[:, D + 1]


@pytest.mark.parametrize("name", collections())
def test_every_collection_is_the_same_rows(name):
    given, how = collections()[name]
    model = distributed.fit(kalvi.LogisticRegression(), *given, shards=4, **how)
    same_bits(numbers(model), numbers(by_hand(1)))
    assert model.elbo_ == by_hand(1).elbo_


def test_names_of_columns_are_kept():
    frame = pd.DataFrame(X, columns=["a", "b", "c"]).assign(late=Y)
    model = distributed.fit(
        kalvi.LogisticRegression(), dd.from_pandas(frame, npartitions=3), "late", refine=0
    )
    assert list(model.feature_names_in_) == ["a", "b", "c"]
    assert model.predict_proba(frame[["a", "b", "c"]]).shape == (N, 2)


LINEAR = kalvi.LinearRegression(noise_scale=1.0, prior_scale=2.0)
"""Compiles fastest, in each of the processes."""


@contextmanager
def workers(address):
    """Two processes of one thread each, which nobody replaces when they die."""
    command = [sys.executable, "-m", "dask", "worker", address, "--no-nanny", "--nthreads", "1"]
    command += ["--no-dashboard"]
    running = [subprocess.Popen(command, stderr=subprocess.DEVNULL) for _ in range(2)]
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()


@pytest.mark.parametrize(
    ("model", "refine"),
    [
        (LINEAR, 0),
        pytest.param(
            kalvi.LogisticRegression(),
            1,
            marks=pytest.mark.slow(reason="three processes compile stream and pass"),
        ),
    ],
)
def test_a_killed_worker_loses_nothing(tmp_path, model, refine):
    x, y = rows()
    calm = distributed.fit(model, x, y, shards=2, refine=refine)
    marker = tmp_path / "died"

    def die(block, block_info):  # the first process that wants the third chunk
        if block_info[0]["chunk-location"][0] == 2 and not marker.exists():
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return block

    deadly = x.map_blocks(die, dtype=x.dtype, meta=np.zeros((0, 0)))
    with (
        dask.config.set(scheduler=None),
        LocalCluster(n_workers=0, dashboard_address=":0") as cluster,
        Client(cluster) as client,
        workers(cluster.scheduler_address),
    ):
        client.wait_for_workers(2, timeout=60)
        found = distributed.fit(model, deadly, y, shards=2, refine=refine, client=client)
    assert marker.exists()
    same_bits(numbers(found), numbers(calm))


def refused():
    x, y = rows()
    frame = dd.from_pandas(pd.DataFrame(X, columns=["a", "b", "c"]).assign(late=Y), npartitions=3)
    bag = db.from_sequence([(X, Y)])
    unknown = x[x[:, 0] > 0]
    return [
        ((X, Y), {}, TypeError, "X must be a Dask array, data frame or bag; got ndarray"),
        ((y, y), {}, ValueError, r"rows and a known number of columns; got shape \(240,\)"),
        (
            (x.rechunk((60, 2)), y),
            {},
            ValueError,
            r"all 3 columns; got 2 chunks.*rechunk\(\{1: -1\}",
        ),
        ((x,), {}, ValueError, "y is missing"),
        ((x, y[:-1]), {}, ValueError, "X has 240 rows and y has 239"),
        ((x, x), {}, ValueError, r"y needs one number a row; got shape \(240, 3\)"),
        ((unknown, Y), {}, ValueError, "lengths of the chunks of X are not known"),
        ((unknown, y[:30]), {}, ValueError, "X has 8 chunks of rows and y has 1"),
        ((x, y), {"to_rows": len}, ValueError, "to_rows= is for the records of a bag"),
        ((frame,), {}, ValueError, "y is missing: name the target, one of a, b, c, late"),
        ((frame, "early"), {}, ValueError, "no column 'early'; there are a, b, c, late"),
        ((frame, Y), {}, ValueError, "a column in the 3 partitions of X"),
        ((bag, Y), {}, ValueError, "leave out y and sample_weight"),
        ((x, y), {"refine": -1}, ValueError, "refine must be an integer, 0 or more; got -1"),
        ((x, y), {"shards": 0}, ValueError, "shards must be an integer, 1 or more; got 0"),
    ]


@pytest.mark.parametrize(("given", "how", "error", "message"), refused())
def test_refused(given, how, error, message):
    with pytest.raises(error, match=message):
        distributed.fit(kalvi.LogisticRegression(), *given, **how)


KNOWN = kalvi.LinearRegression(noise_scale=1.0, prior_scale=2.0).partial_fit(X[:, :2], Y)


def frame_of(**columns):
    return dd.from_pandas(pd.DataFrame({"a": X[:, 0], **columns}), npartitions=3)


def misread():
    holed = X.copy()
    holed[CHUNK + 4, 1] = np.nan
    names = pd.Series(np.where(Y, "yes", "no"), dtype="string")
    names[100] = pd.NA
    wide = db.from_sequence([(X, Y)])
    classes = {"classes": ["no", "yes"]}
    logistic = kalvi.LogisticRegression()
    bag = db.from_sequence([{"a": 1.0, "late": 0}] * 4, npartitions=2)
    lost = r"piece 1 of 3, counted from 0: Input y contains NaN or None in row 20 \(1 such"
    return [
        (
            LINEAR,
            rows(holed),
            {},
            ValueError,
            "piece 1 of 8, counted from 0: .*NaN in row 4, column 1",
        ),
        (logistic, (frame_of(late=names), "late"), {}, ValueError, lost),
        (logistic, (frame_of(late=names), "late"), classes, ValueError, lost),
        (
            logistic,
            (bag,),
            {},
            TypeError,
            r"piece . of 2.*a tuple .X, y.*got dict.*give to_rows=",
        ),
        (
            LINEAR,
            (bag,),
            {},
            TypeError,
            r"piece . of 2.*a tuple .X, y.*got dict.*give to_rows=",
        ),
        (KNOWN, (wide,), {}, ValueError, "X has 3 features, but LinearRegression is expecting 2"),
    ]


@pytest.mark.parametrize(("model", "given", "how", "error", "message"), misread())
def test_refused_where_the_rows_are(model, given, how, error, message):
    with pytest.raises(error, match=message):
        distributed.fit(model, *given, **how)


EKF = kalvi.LogisticRegression(scheme="ekf")


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (EKF, r"got scheme='ekf'.*or refine=0"),
        (KNOWN, r"X has 3 features.*learned from 2"),
    ],
)
def test_refused_before_rows_are_read(model, message):
    x, y = rows()
    unread = x.map_blocks(lambda _: pytest.fail("rows were read"), dtype=x.dtype, meta=x._meta)
    with pytest.raises(ValueError, match=message):
        distributed.fit(model, unread, y)


def test_the_name_of_a_column_may_be_a_number():
    frame = dd.from_pandas(pd.DataFrame(np.column_stack([X, Y])), npartitions=8)
    found = distributed.fit(LINEAR, frame, 3, shards=2)
    same_bits(numbers(found), numbers(distributed.fit(LINEAR, *rows(), shards=2)))


def test_chunks_of_unknown_length_are_fine():
    x, y = rows()
    some = x[:, 0] > 0
    found = distributed.fit(LINEAR, x[some], y[some], shards=2)
    keep = X[:, 0] > 0
    whole = kalvi.LinearRegression(noise_scale=1.0, prior_scale=2.0).fit(X[keep], Y[keep])
    np.testing.assert_allclose(found.coef_, whole.coef_, rtol=1e-9)
