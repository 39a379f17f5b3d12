"""Progress bars over rows."""

from collections.abc import Iterator

from tqdm import tqdm

from kalvi.rules.rule import Batch


def with_progress(batches: Iterator[Batch], bar: tqdm, n_rows: int) -> Iterator[Batch]:
    """The batches, with a progress bar over `n_rows` rows that follows them."""
    for batch in batches:
        yield batch
        bar.update(min(len(batch.y), n_rows - bar.n))
