"""Rows of files as batches, for a training loop of your own."""

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from kalvi import streams
from kalvi.columns.encoder import Encoder, EncoderSettings, kinds_of
from kalvi.columns.targets import Target
from kalvi.numerics.precision import matching_precision
from kalvi.rules.rule import Batch
from kalvi.tabular.choices import Choices, any_target
from kalvi.tabular.rows import weights
from kalvi.tabular.sources import open_source, split_drops


class BatchLayout(NamedTuple):
    """The shape and the type of batches."""

    block_size: int
    intercept: bool
    dtype: str


class FileStream:
    """The rows of files as batches of one shape, the last padded with rows of weight 0.

    Attributes
    ----------
    dim : int
        The number of features, including the intercept, which comes last.
    names : list of str
        The name of each feature.
    encoder : Encoder
        Turns columns into numbers. Units and levels are those of the first rows; all other levels of a
        column share one feature, "(new level)".
    target : Target
        Turns the target column into y. For classes, `target.labels` lists them in order.
    """

    encoder: Encoder
    target: Target

    def __init__(self, data: Any, choices: Choices, layout: BatchLayout, **files: Any):
        self._choices, self._layout = choices, layout
        self._open = lambda: open_source(data, choices, **files)
        source = self._open()
        sample = source.sample
        taken = {choices.target, *choices.beside()}
        if absent := taken - set(sample.column_names):
            raise ValueError(
                f"the data have no column '{absent.pop()}', but {sample.column_names}."
            )
        kinds = kinds_of(sample.schema, choices.features, choices.drop, taken)
        settings = EncoderSettings(choices.missing == "impute", choices.hash_bits, fixed=True)
        self.target = any_target(choices.target, sample[choices.target], choices.classes)
        self.encoder = Encoder.begin(kinds, sample, settings)
        self._first: Any = source  # standard input can be read only once

    @property
    def dim(self) -> int:
        return self.encoder.width + self._layout.intercept

    @property
    def names(self) -> list[str]:
        return [*self.encoder.names(), *["intercept"] * self._layout.intercept]

    def __iter__(self) -> Iterator[Batch]:
        source, self._first = self._first or self._open(), None
        choices, layout, encoder = self._choices, self._layout, self.encoder
        for piece in source.pieces(layout.block_size):
            y, there = self.target.read(piece.table, piece.locate, skip=choices.skip_unlabelled)
            weight = weights(piece.table, piece.locate, choices.weight) * there
            x, encoder, _ = encoder.encode(piece.table, piece.locate, learn=True)
            with matching_precision(layout.dtype):
                (batch,) = streams.array_batches(x, y, weight, **layout._asdict())
            yield batch
        source.close()


def stream(
    data: str | Path | Sequence[str | Path],
    target: str,
    *,
    block_size: int = 4096,
    features: Sequence[str] = (),
    drop: Sequence[str] = (),
    weight: str | None = None,
    classes: Sequence[str] = (),
    missing: str = "error",
    skip_unlabelled: bool = False,
    hash_bits: int | None = None,
    intercept: bool = True,
    dtype: str | None = None,
    types: Mapping[str, str] | None = None,
    format: str | None = None,
) -> FileStream:
    """Stream the rows of a file, a directory, a pattern or several of these as batches.

    The rows are never all in memory, and every loop over the result starts again at the first row. All
    formats of `kalvi fit` are read. Numbers are standardised by the mean and deviation of the first rows,
    categories are one-hot encoded or hashed into 2^hash_bits features, labels are numbered in sorted order.
    `missing` is "error", or "impute", which adds an indicator of what was filled in. `types` says what
    columns are: "number", "category", "time", "text" or "drop", also with the notation of their entries
    ("number:1.234,5", "time:%d/%m/%Y"). `dtype` is JAX's default float unless given. A batch has
    `block_size` rows.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> import numpy as np
    >>> import kalvi
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "rows.csv"
    >>> _ = file.write_text("size,colour,sold\\n1,red,yes\\n2,blue,no\\n3,red,yes\\n")
    >>> rows = kalvi.stream(file, "sold", block_size=4)
    >>> rows.names
    ['size', 'colour=(new level)', 'colour=red', 'colour=blue', 'intercept']
    >>> prior = kalvi.Diagonal(np.zeros(rows.dim), np.ones(rows.dim)).to_dense()
    >>> state = kalvi.fit(kalvi.RVGA(kalvi.likelihoods.Bernoulli()), prior, rows)
    >>> float(state.rows)
    3.0
    """
    if not isinstance(data, str | os.PathLike | Sequence):
        raise TypeError(
            f"data must be a path, a pattern or several of them; got {type(data).__name__}. Write a table "
            "to a file first (a data frame with .to_parquet, a LazyFrame with .sink_parquet)."
        )
    if missing not in ("error", "impute"):
        raise ValueError(f"missing must be 'error' or 'impute'; got {missing!r}.")
    if not isinstance(block_size, int | np.integer) or block_size < 1:
        raise ValueError(f"block_size must be 1 or more; got {block_size!r}.")
    words, dropped = split_drops(types or {})
    choices = Choices(
        target,
        features=tuple(features),
        drop=(*drop, *dropped),
        weight=weight,
        classes=tuple(classes),
        missing=missing,
        skip_unlabelled=skip_unlabelled,
        hash_bits=hash_bits,
    )
    dtype = dtype or str(jax.dtypes.canonicalize_dtype(float))
    layout = BatchLayout(int(block_size), bool(intercept), dtype)
    return FileStream(data, choices, layout, format=format, types=words)
