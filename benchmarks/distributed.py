"""Eight shards of flights, learned on Dask workers with one core each, merged in a tree and refined.

A logistic regression with a full covariance of 490 coefficients, by one stream and by shards: the
progressive log loss, the log loss of held-out rows (every tenth), and the distances of the posterior
from that of the stream and from the optimum of the variational bound of all rows. Then seconds with one
worker and with two, after compilation, for the streams, their merging and one round of refinement.
"""

import os
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import dask
import dask.bag as db
import numpy as np
import scipy.sparse as sp
from distributed import Client, LocalCluster
from sklearn.metrics import log_loss

import kalvi
from benchmarks.report import number, spread
from benchmarks.tables import design, flights
from kalvi import distributed as shards_of

ROWS, QUICK_ROWS, HELD, PIECES, SHARDS = 800_000, 20_000, 10, 32, 8
ROUNDS, QUICK_ROUNDS = 3, 1
BEST = 3
"""Rounds of refinement that are taken for the optimum: each divides the distance by a hundred."""
WITHIN = 0.01
"""The goal: the loss of shards is that of one stream within this share."""


def distributed(report, quick):
    """The losses and distances, then the seconds."""
    x, y = design(flights(QUICK_ROWS if quick else ROWS).to_pandas())
    held = np.arange(len(y)) % HELD == HELD - 1
    learned, test = (x[~held], y[~held]), (x[held], y[held])
    report.heading(f"{learned[0].shape[0]:,} flights, {SHARDS} shards")
    with tempfile.TemporaryDirectory() as folder:
        files = written(Path(folder), *learned)
        with workers(2, files[0]) as client:
            accuracy(report, files, client, learned, test)
        some = files[:: PIECES // SHARDS]  # a file of each shard
        rows = len(learned[1]) * len(some) // PIECES
        seconds(report, some, QUICK_ROUNDS if quick else ROUNDS, rows)


def accuracy(report, files, client, learned, test):
    stream = kalvi.LogisticRegression()
    for piece in np.array_split(np.arange(len(learned[1])), PIECES):
        rows = slice(piece[0], piece[-1] + 1)
        stream.partial_fit(learned[0][rows], learned[1][rows], classes=[0, 1])
    refined = [0, 1, BEST]
    models = {"one stream": stream}
    models |= {f"{SHARDS} shards, {r} rounds": fitted(files, client, r) for r in refined}
    best = models[f"{SHARDS} shards, {BEST} rounds"]
    found = {name: measured(model, stream, best, learned, test) for name, model in models.items()}
    header = ["", "progressive log loss", "test log loss", "KL to the stream", "KL to the optimum"]
    report.table(header, [[name, *map(shown, row)] for name, row in found.items()])
    alone, merged, once = (list(found.values())[i] for i in (0, 1, 2))
    worst = max(abs(merged[i] / alone[i] - 1) for i in (0, 1))
    report.line(
        f"Losses of merged shards are within {100 * worst:.2g} % of the stream's "
        f"(goal {100 * WITHIN:g} %). One round of refinement leaves {once[3] / merged[3]:.1e} of their "
        f"distance to the optimum, from which the stream itself is {alone[3]:.2g} nats away."
    )
    for what, i in (("progressive log loss", 0), ("test log loss", 1)):
        report.closer("one stream", merged[i], alone[i], f"{SHARDS} merged shards", what)


def measured(model, stream, best, learned, test):
    """Both losses, and the divergences in nats."""
    progressive = -model.log_evidence_ / len(learned[1])
    loss = log_loss(test[1], model.predict_proba(test[0]))
    away = [float(kalvi.kl(model.posterior_, other.posterior_)) for other in (stream, best)]
    return progressive, loss, *away


def shown(value):
    return f"{value:.6f}" if 1e-3 < abs(value) < 1 else f"{value:.2g}"


def seconds(report, files, rounds, rows):
    """One worker against two, in turns: the streams, their merging and a round of refinement."""
    times = {1: [], 2: []}
    for _ in range(rounds):
        for count in times:
            with workers(count, files[0]) as client:
                began = time.perf_counter()
                fitted(files, client, 1)
                times[count].append(time.perf_counter() - began)
    one, two = (np.array(times[count]) for count in (1, 2))
    header = ["seconds, 1 worker", "seconds, 2 workers", "times faster", "rows/s, 2 workers"]
    faster = [spread(one), spread(two), spread(one / two), number(rows / np.median(two))]
    report.heading(f"{rows:,} of them, after compilation")
    report.table(header, [faster])


def fitted(files, client, refine):
    parts = [dask.delayed(loader())(path) for path in files]
    bag = db.from_delayed(parts)
    return shards_of.fit(
        kalvi.LogisticRegression(),
        bag,
        classes=[0, 1],
        refine=refine,
        shards=SHARDS,
        client=client,
    )


def written(folder, x, y):
    """The rows in files, as a cluster would have them; dealt out in turn, all shards see all days."""
    files, rows = [], np.arange(len(y))
    dealt = [np.array_split(rows[k::SHARDS], PIECES // SHARDS) for k in range(SHARDS)]
    for i, rows in enumerate(piece for shard in dealt for piece in shard):
        path = folder / f"{i:03}.npz"
        sp.save_npz(path, x[rows], compressed=False)
        np.save(path.with_suffix(".npy"), y[rows])
        files.append(str(path))
    return files


def loader():
    """A function that travels by value: a worker that imported this package would share its core."""

    def load(path):
        import numpy
        import scipy.sparse

        return [(scipy.sparse.load_npz(path), numpy.load(path.replace(".npz", ".npy")))]

    return load


@contextmanager
def workers(count, file):
    """Processes of one core and one thread each, which have compiled what they will run."""
    cores = sorted(os.sched_getaffinity(0))
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    flags = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    environment = threads | {"XLA_FLAGS": flags}
    with (
        LocalCluster(
            n_workers=count, threads_per_worker=1, dashboard_address=":0", env=environment
        ) as cluster,
        Client(cluster) as client,
    ):
        client.wait_for_workers(count)
        for i, address in enumerate(sorted(client.scheduler_info(n_workers=-1)["workers"])):
            client.run(warmed(), cores[i % len(cores)], file, loader(), workers=[address])
        yield client


def warmed():
    def warm(core, file, load):
        import os

        os.sched_setaffinity(0, {core})
        import kalvi
        from kalvi import distributed

        first = distributed.Learn(kalvi.LogisticRegression(), classes=[0, 1])
        found = first.over(load(file))
        climb = distributed.Refinement(first.finish(first.join(found, found)))
        climb.visit().over(load(file))

    return warm
