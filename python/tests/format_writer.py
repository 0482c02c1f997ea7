"""The same rows as shards of any format, written by the format's reference library where there is one; for tests.

A row: {"id": int, "input_ids": [int, …], "attention_mask": [1, …]}. Megatron has the tokens only, one document a row.
Zarr has no ragged arrays: rows are padded to `WIDTH`, the mask says how far they go.
"""

from __future__ import annotations

import io
import json
import struct
import tarfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from tfrecord_writer import write as write_tfrecord
from token_writer import write_pair

Rows = list[dict[str, Any]]
WIDTH = 512


def tfrecord(stem: Path, rows: Rows) -> None:
    write_tfrecord(stem.with_suffix(".tfrecord"), rows)


def jsonl(stem: Path, rows: Rows) -> None:
    stem.with_suffix(".jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def parquet(stem: Path, rows: Rows) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    kinds = {"id": pa.int64(), "input_ids": pa.list_(pa.int32()), "attention_mask": pa.list_(pa.int8())}
    table = pa.table({name: pa.array([row[name] for row in rows], kind) for name, kind in kinds.items()})
    pq.write_table(table, stem.with_suffix(".parquet"), compression="zstd", row_group_size=100)


def hdf5(stem: Path, rows: Rows) -> None:
    import h5py

    with h5py.File(stem.with_suffix(".h5"), "w") as file:
        file["id"] = np.array([row["id"] for row in rows])
        for name in ("input_ids", "attention_mask"):
            array = file.create_dataset(name, (len(rows),), h5py.vlen_dtype(np.int32))
            for i, row in enumerate(rows):
                array[i] = row[name]


def zarr(stem: Path, rows: Rows) -> None:
    import zarr as library

    group = library.open_group(str(stem.with_suffix(".zarr")), mode="w")
    columns = {"id": np.array([row["id"] for row in rows])}
    for name in ("input_ids", "attention_mask"):
        columns[name] = np.zeros((len(rows), WIDTH), np.int32)
        for i, row in enumerate(rows):
            columns[name][i, : len(row[name])] = row[name]
    for name, values in columns.items():
        chunks = (min(64, len(rows)), *values.shape[1:])
        group.create_array(name, shape=values.shape, chunks=chunks, dtype=values.dtype)[:] = values


def mds(stem: Path, rows: Rows) -> None:
    """MosaicML's layout: u32 rows, u32 offsets, JSON, rows of u32 sizes and values."""
    names = ["attention_mask", "id", "input_ids"]
    encodings = {"attention_mask": "ndarray:int8", "id": "int64", "input_ids": "ndarray:int32"}
    config = {
        "column_encodings": [encodings[name] for name in names],
        "column_names": names,
        "column_sizes": [None, 8, None],
        "compression": None,
        "format": "mds",
        "hashes": [],
        "size_limit": 1 << 26,
        "version": 2,
    }
    text = json.dumps(config, sort_keys=True).encode()

    def ndarray(values: list[int], kind: str) -> bytes:
        # One byte: dimensions and the width of their sizes; then the sizes; then the values.
        return struct.pack("<BI", 1 << 2 | 2, len(values)) + np.array(values, kind).tobytes()

    samples = []
    for row in rows:
        mask = ndarray(row["attention_mask"], "i1")
        ids = ndarray(row["input_ids"], "<i4")
        samples.append(struct.pack("<II", len(mask), len(ids)) + mask + struct.pack("<q", row["id"]) + ids)
    begin = 4 + 4 * (len(rows) + 1) + len(text)
    offsets = begin + np.cumsum([0, *(len(sample) for sample in samples)])
    body = struct.pack("<I", len(rows)) + offsets.astype("<u4").tobytes() + text + b"".join(samples)
    stem.with_suffix(".mds").write_bytes(body)


def webdataset(stem: Path, rows: Rows) -> None:
    with tarfile.open(stem.with_suffix(".tar"), "w", format=tarfile.USTAR_FORMAT) as tar:
        for row in rows:
            for name in ("attention_mask", "id", "input_ids"):
                buffer = io.BytesIO()
                np.save(buffer, np.array(row[name], np.int64))
                info = tarfile.TarInfo(f"{row['id']:08d}.{name}.npy")
                info.size = buffer.tell()
                buffer.seek(0)
                tar.addfile(info, buffer)


def megatron(stem: Path, rows: Rows) -> None:
    write_pair(stem, [row["input_ids"] for row in rows], "<i4")


WRITERS: dict[str, Callable[[Path, Rows], None]] = {
    "tfrecord": tfrecord,
    "jsonl": jsonl,
    "parquet": parquet,
    "hdf5": hdf5,
    "zarr": zarr,
    "mds": mds,
    "webdataset": webdataset,
    "megatron": megatron,
}


def write_shard(name: str, stem: Path, rows: Iterable[dict[str, Any]]) -> None:
    """One shard at `stem` with the format's suffix."""
    WRITERS[name](stem, list(rows))
