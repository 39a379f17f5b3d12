"""One pass over a stream, with checkpoints: a run that was killed can be resumed, with the same result.

Rows are learned in pieces of one size, counted from the beginning of the run, and checkpoints are saved
between pieces only. So a run that is resumed does exactly what it would have done without the interruption.

The checkpoint of a model is a file beside it, `MODEL.checkpoint`. The model itself is written when all rows
are learned. Both files are written completely or not at all. Every run has an identifier, which both files
hold: if they have the same, the run has ended and the checkpoint is obsolete.
"""

import re
import secrets
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from kalvi.archives import checkpoints
from kalvi.readers.layout import refuse_invalid
from kalvi.readers.source import Source, open_data
from kalvi.tabular import sources
from kalvi.tabular.integrity import check_rules, errors_as_damage, job_rules
from kalvi.tabular.prefetch import Interrupted, Stop, prefetch, stoppable
from kalvi.tabular.rows import Rows
from kalvi.tabular.table_model import ADVICE, RowModel, TableModel

PIECE_ROWS, PIECE_NUMBERS = 8192, 2**23
"""The most rows of a piece, and the most numbers."""
PATIENCE = 20
"""Between two checkpoints, learning takes at least so many times as long as writing one."""
MOST_BYTES = 2**31
"""The most memory, in bytes, for rows that are learned together."""


class Job(NamedTuple):
    """The work of a run, and its progress."""

    run: str
    out: str
    data: tuple[str, ...]
    format: str | None
    types: dict[str, str]
    drop: tuple[str, ...]
    fingerprint: tuple[dict[str, Any], ...]
    piece: int
    every_rows: int
    every_seconds: float
    done: int = 0
    climbs: bool = False  # whether it goes on to the optimum, if the rows fit in memory


class UnfinishedRun(NamedTuple):
    """A run that has not ended."""

    model: RowModel
    job: Job


Tell = Callable[[RowModel, int, float | None], None]
"""Called after each piece with the model, the number of rows so far and the share of the bytes read."""


def new_job(
    model: RowModel,
    source: Source,
    out: Path,
    *,
    data: tuple[str, ...],
    format: str | None,
    every_rows: int,
    every_seconds: float,
) -> Job:
    """The job of a new run over a source that was just opened."""
    piece = int(np.clip(PIECE_NUMBERS // max(model.encoder.width, 1), 256, PIECE_ROWS))
    dense = model.encoder.fixed()
    return Job(
        run=secrets.token_hex(8),
        out=str(out),
        data=tuple(d if d == "-" else str(Path(d).absolute()) for d in data),
        format=format,
        types=model.column_types() | source.words(model.columns()),
        drop=sources.plain_names(model.choices.drop),
        fingerprint=tuple(source.fingerprint()),
        piece=piece if dense else PIECE_ROWS,
        every_rows=every_rows,
        every_seconds=every_seconds,
        climbs=not model.record.rows,  # the optimum is that from the prior: not that of an update
    )


def learn(model: RowModel, source: Source, job: Job, tell: Tell) -> RowModel:
    """Learn the rows of a source that have not been learned yet, then write the model."""
    before, began = model.record.seconds, time.monotonic()

    def clock() -> float:
        return before + time.monotonic() - began

    if not model.record.rows:
        _check_settings(model)
    _remove_temporary_files(Path(job.out))
    save_checkpoint(model, job)
    with stoppable() as stop:
        if model.streams():
            model = _learn_stream(model, source, job, stop, tell, clock)
        else:
            model = _learn_together(model, source, job, stop, tell)
    if not model.record.rows:
        raise ValueError("nothing was learned: no row has both a target and a weight above 0.")
    model = model.finished()
    files = (*model.record.files, *map(without_folder, job.fingerprint))
    model = model._replace(record=model.record._replace(seconds=clock(), files=files))
    finish(model, job)
    return model


def without_folder(file: dict[str, Any]) -> dict[str, Any]:
    """The fingerprint of a file without its folder, whose name may be private."""
    return {**file, "path": Path(file["path"]).name or file["path"]}


def _check_settings(model: RowModel) -> None:
    """Refuse invalid parameters of the estimator before anything is written."""
    try:
        model.estimator.check_settings()
    except TypeError as error:
        raise ValueError(str(error)) from error


def reopen(
    job: Job, data: tuple[str, ...] = (), on_invalid: Callable[[str], str] = refuse_invalid
) -> Source:
    """Open the source of an interrupted run again; files that have changed since are refused."""
    how: dict[str, Any] = {"format": job.format, "types": job.types, "drop": job.drop}
    how |= {"on_invalid": on_invalid, "advice": ADVICE}
    source = open_data(list(data or job.data), sample_rows=sources.SAMPLED, **how)
    found = source.fingerprint()
    for was, now in zip(job.fingerprint, found, strict=False):
        if was.get("head") != now.get("head"):
            raise ValueError(
                f"{now['path']} is not the file the run began with: its beginning differs; "
                "put the old one back, or start again."
            )
    if len(found) < len(job.fingerprint):
        raise ValueError(f"the run began with {len(job.fingerprint)} files; found {len(found)}.")
    return source


def checkpoint_of(path: str | Path) -> Path:
    """The path of the checkpoint of a model."""
    return Path(f"{path}.checkpoint")


def save_checkpoint(model: RowModel, job: Job) -> None:
    """Write a checkpoint: the model so far, and how far the run has got."""
    checkpoints.save(checkpoint_of(job.out), {"model": model, "job": job}, kind="checkpoint")


def finish(model: RowModel, job: Job) -> None:
    """Write the model, then remove the checkpoint."""
    save_model(job.out, model, run=job.run)
    checkpoint_of(job.out).unlink(missing_ok=True)


def save_model(path: str | Path, model: TableModel, *, run: str = "") -> None:
    """Write a model, with the identifier of the run that made it."""
    checkpoints.save(path, model._replace(run=run), kind="model")


def load_model(path: str | Path) -> TableModel:
    """Load a model; a file whose parts do not agree is refused."""
    with errors_as_damage(path):
        held = checkpoints.load(path)
    if not isinstance(held, TableModel):
        raise ValueError(f"{path} is not a model of a command, but a {type(held).__name__}.")
    check_rules(held.rules(), path)
    return held


def find_unfinished_run(path: str | Path) -> UnfinishedRun | None:
    """The unfinished run of a model, or None; the checkpoint of a run that has ended is removed."""
    checkpoint = checkpoint_of(path)
    if not checkpoint.exists():
        return None
    with errors_as_damage(checkpoint):
        held = checkpoints.load(checkpoint)
    if not (isinstance(held, dict) and isinstance(held.get("job"), Job)):
        raise ValueError(f"{checkpoint} is not a checkpoint of a run.")
    check_rules(job_rules(held["job"]), checkpoint)
    if not isinstance(held.get("model"), RowModel):
        raise ValueError(f"{checkpoint} is damaged: its parts contradict each other.")
    check_rules(held["model"].rules(), checkpoint)
    if Path(path).exists() and load_model(path).run == held["job"].run:
        checkpoint.unlink()
        return None
    return UnfinishedRun(held["model"], held["job"]._replace(out=str(path)))


def _remove_temporary_files(out: Path) -> None:
    """Remove the half-written files of a run that was killed (see `archives.container.replacing`)."""
    ours = re.compile(rf"\.{re.escape(out.name)}(\.checkpoint)?\.[0-9a-f]{{12}}\.tmp")
    for part in out.absolute().parent.iterdir():
        if ours.fullmatch(part.name):
            part.unlink(missing_ok=True)


class _KeptRows:
    """The rows of a run, kept in memory for the climb to the optimum as long as they are few enough."""

    def __init__(self, n_rows: int | None, wanted: bool):
        self.pieces: list[Rows] | None = [] if wanted else None
        self._known, self._count, self._bytes = n_rows or 0, 0, 0

    def add(self, rows: Rows, model: RowModel) -> None:
        """Keep a piece that `model` has learned, or drop everything if there are too many rows."""
        if self.pieces is None:
            return
        self._count += len(rows.y)
        limited = model.choices.parameters.get("passes", "auto") == "auto"
        full = limited and _too_many(self._bytes, rows)
        if full or not model.revisits(max(self._count, self._known)):
            self.pieces = None
            return
        self._bytes += _check_memory(self._bytes, rows)
        self.pieces.append(rows._replace(table=rows.table.schema.empty_table()))


def _learn_stream(
    model: RowModel, source: Source, job: Job, stop: Stop, tell: Tell, clock: Callable[[], float]
) -> RowModel:
    """The model after all pieces and the climb to the optimum, with checkpoints on the way."""
    done, saved_rows, saved_at, pause = job.done, job.done, clock(), job.every_seconds
    wanted = job.climbs and (not done or model.revisits(max(done, source.n_rows or 0)))
    kept = _KeptRows(source.n_rows, wanted)

    def save() -> None:
        nonlocal saved_rows, saved_at, pause
        began = clock()
        timed = model._replace(record=model.record._replace(seconds=began))
        save_checkpoint(timed, job._replace(done=done))
        saved_rows, saved_at = done, clock()
        pause = max(job.every_seconds, PATIENCE * (saved_at - began))

    try:
        for rows, end in prefetch(_encoded_pieces(model, source, job, again=wanted), stop):
            if end > job.done:
                model, done = model.learned(rows, done), end
                tell(model, done, source.fraction())
            kept.add(rows, model)
            if stop.asked:
                raise Interrupted
            if done - saved_rows >= job.every_rows or clock() - saved_at >= pause:
                save()
        if kept.pieces and model.record.rows:
            if done > saved_rows:
                save()  # what the pass has learned must not depend on the climb
            (model,) = prefetch(map(model.learn_together, [kept.pieces]), stop)
    except Interrupted:
        if done > saved_rows:
            save()
        raise
    return model


def _learn_together(model: RowModel, source: Source, job: Job, stop: Stop, tell: Tell) -> RowModel:
    """The model of all rows, which are held in memory and learned together."""
    gathered: list[Rows] = []
    size = 0
    for rows, done in prefetch(_encoded_pieces(model, source, job), stop):
        gathered.append(rows._replace(table=rows.table.schema.empty_table()))
        model = model._replace(encoder=rows.encoder)
        size += _check_memory(size, rows)
        tell(model, done, source.fraction())
        if stop.asked:
            raise Interrupted
    return model.learn_together(gathered)


def _check_memory(held: int, rows: Rows) -> int:
    """The size of a piece in bytes; refused if there is no room for it beside those already held."""
    if _too_many(held, rows):
        raise ValueError(
            f"this model needs all rows at once and they take more than {MOST_BYTES / 2**30:.0f} GiB; "
            "give it fewer rows, or have it learn them as they come (--model logistic, linear or "
            "poisson, with --one-pass)."
        )
    return _size(rows)


def _too_many(held: int, rows: Rows) -> bool:
    return held + _size(rows) > MOST_BYTES


def _size(rows: Rows) -> int:
    return 16 * rows.x.nnz if sp.issparse(rows.x) else 8 * rows.x.size


def _encoded_pieces(
    model: RowModel, source: Source, job: Job, *, again: bool = False
) -> Iterator[tuple[Rows, int]]:
    """The pieces of the stream as numbers, each with the number of rows up to its end.

    With `again`, pieces that were learned before an interruption come first. They are encoded with the
    levels known by now, which gives the same numbers as before.
    """
    encoder = model.encoder
    for piece in source.pieces(job.piece, skip=0 if again else job.done):
        rows, end = (
            model.read(piece.table, piece.locate, encoder),
            piece.start + piece.table.num_rows,
        )
        if end > job.done:
            encoder = rows.encoder
        yield rows, end
