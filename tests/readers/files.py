"""One table in every format that the readers know."""

import bz2
import gzip
import io
import json

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import scipy.sparse as sp
from sklearn.datasets import dump_svmlight_file

from kalvi.readers.source import open_data


def table(n=40, seed=0):
    """Numbers, flags, text and times; some missing."""
    rng = np.random.default_rng(seed)
    amount = rng.normal(size=n).round(3)
    words = np.array(["plain", 'a "quoted" word', "a, comma", "two\nlines", "naïve"])
    return pa.table(
        {
            "amount": pa.array(amount, mask=rng.random(n) < 0.1),
            "count": pa.array(rng.integers(0, 50, n).astype(float)),
            "word": pa.array(words[rng.integers(0, 5, n)].tolist()),
            "late": pa.array(rng.random(n) < 0.5),
            "when": pa.array(
                np.datetime64("2020-01-01T00:00:00", "us") + rng.integers(0, 10**12, n)
            ),
        }
    )


def rich_table(n=40, seed=0):
    """With levels, vectors, lists of one length and sparse rows beside."""
    rows = table(n, seed)
    sparse = [[{"index": i, "value": 1.5}] * (i % 3) for i in range(n)]
    columns = {
        "level": rows.column("word").dictionary_encode(),
        "vector": pa.array([[1.0, i] for i in range(n)], pa.list_(pa.float64(), 2)),
        "list": pa.array([[1.0, i, 2.0] for i in range(n)]),
        "sparse": pa.array(sparse),
    }
    for name, column in columns.items():
        rows = rows.append_column(name, column)
    return rows


def pack(data: bytes, ending: str) -> bytes:
    """Compressed by someone else's code, where there is one."""
    if ending == ".gz":
        return gzip.compress(data)
    if ending == ".bz2":
        return bz2.compress(data)
    if ending == ".zst":
        out = pa.BufferOutputStream()
        with pa.CompressedOutputStream(out, "zstd") as stream:
            stream.write(data)
        return out.getvalue().to_pybytes()
    return data


def csv_bytes(rows, delimiter=","):
    def text(value):
        if value is None:
            return ""
        if isinstance(value, bool):
            return str(value).lower()
        if isinstance(value, float):
            return f"{value:g}"
        if not isinstance(value, str):
            return value.isoformat()
        return '"' + value.replace('"', '""') + '"' if set(value) & set(',"\n\t') else value

    names = delimiter.join(rows.schema.names)
    lines = [delimiter.join(text(row[n]) for n in rows.schema.names) for row in rows.to_pylist()]
    return ("\n".join([names, *lines]) + "\n").encode()


def json_bytes(rows):
    def line(row):
        return json.dumps(
            {k: v.isoformat() if hasattr(v, "isoformat") else v for k, v in row.items()}
        )

    return "".join(line(row) + "\n" for row in rows.to_pylist()).encode()


def parquet_bytes(rows):
    out = io.BytesIO()
    pa.parquet.write_table(rows, out, row_group_size=7)
    return out.getvalue()


def feather_bytes(rows):
    out = io.BytesIO()
    pa.feather.write_feather(rows, out, chunksize=9)
    return out.getvalue()


def stream_bytes(rows):
    out = io.BytesIO()
    with pa.ipc.new_stream(out, rows.schema) as writer:
        writer.write_table(rows, max_chunksize=9)
    return out.getvalue()


def npz_bytes(n=40, seed=0):
    rng = np.random.default_rng(seed)
    out = io.BytesIO()
    np.savez(
        out,
        x=rng.normal(size=(n, 3)),
        y=rng.integers(0, 2, n),
        name=np.array(["a", "b"] * (n // 2)),
    )
    return out.getvalue()


def sparse(n=40, seed=0):
    """A sparse matrix with an empty row, and labels."""
    rng = np.random.default_rng(seed)
    dense = np.where(rng.random((n, 30)) < 0.1, rng.normal(size=(n, 30)), 0)
    dense[3] = 0
    x = sp.csr_array(dense)
    return x, rng.integers(0, 2, n).astype(float)


VOWPAL = b"""1 2 'first|words the a:2 cat
-1 |words:0.5 the the |n age:3e1
0.5 0 tag| 7:1 nothing
|words cat
"""


def libsvm_bytes(n=40, seed=0):
    out = io.BytesIO()
    x, y = sparse(n, seed)
    dump_svmlight_file(sp.csr_matrix(x), y, out, zero_based=True)
    return out.getvalue()


def sparse_npz_bytes(n=40, seed=0):
    out = io.BytesIO()
    x, y = sparse(n, seed)
    parts = {"indices": x.indices, "indptr": x.indptr, "data": x.data, "shape": x.shape}
    np.savez_compressed(out, format=np.array(b"csr"), y=y, **parts)
    return out.getvalue()


WRITERS = {
    "csv": csv_bytes,
    "tsv": lambda rows: csv_bytes(rows, "\t"),
    "jsonl": json_bytes,
    "parquet": parquet_bytes,
    "feather": feather_bytes,
    "arrow": stream_bytes,
}


def read_all(data, size=11, **options):
    """Every piece of a source."""
    source = open_data(data, **options)
    try:
        return list(source.pieces(size))
    finally:
        source.close()


def written(path, data):
    """A path that holds the bytes."""
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return path
