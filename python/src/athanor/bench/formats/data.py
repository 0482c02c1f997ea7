"""The same samples in every format: `input_ids` and `attention_mask`, as `athanor.bench.data` makes them.

    python -m athanor.bench.formats.data --out DIR [--formats parquet,zarr] [--n 100000] [--seq 512] [--shards 10]

Each format is a folder of DIR, written under a temporary name and renamed. Formats of streams of tokens (Megatron,
npy) hold the ids only, padding included: a sample is `seq` tokens. Whose library is missing is left out and named on
stderr.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import shutil
import struct
import sys
import tarfile
from collections.abc import Callable
from typing import Any

import numpy as np

from .. import data as tfrecord_data

#: Rows of a row group, and of a chunk.
GROUP = 5000
CHUNK = 512

Rows = tuple[np.ndarray, np.ndarray]


def tfrecord(out: str, parts: list[Rows]) -> None:
    for i, (ids, mask) in enumerate(parts):
        payloads = [tfrecord_data.example(a, b) for a, b in zip(tfrecord_data.packed(ids), tfrecord_data.packed(mask))]
        _write(f"{out}/{i:03d}.tfrecord", tfrecord_data.frames(payloads))


def jsonl(out: str, parts: list[Rows]) -> None:
    for i, (ids, mask) in enumerate(parts):
        lines = (
            json.dumps({"input_ids": a.tolist(), "attention_mask": b.tolist()}, separators=(",", ":"))
            for a, b in zip(ids, mask)
        )
        _write(f"{out}/{i:03d}.jsonl", ("\n".join(lines) + "\n").encode())


def parquet(out: str, parts: list[Rows]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    def lists(rows: np.ndarray) -> Any:
        ends = np.arange(0, rows.size + 1, rows.shape[1], dtype=np.int32)
        return pa.ListArray.from_arrays(ends, pa.array(rows.astype(np.int32).ravel()))

    for i, (ids, mask) in enumerate(parts):
        table = pa.table({"input_ids": lists(ids), "attention_mask": lists(mask)})
        pq.write_table(table, f"{out}/{i:03d}.parquet", compression="zstd", row_group_size=GROUP)


def hdf5_gzip(out: str, parts: list[Rows]) -> None:
    """What h5py's users write: gzip of its default level behind the shuffle filter."""
    _hdf5(out, parts, {"compression": "gzip", "shuffle": True})


def hdf5_raw(out: str, parts: list[Rows]) -> None:
    _hdf5(out, parts, {})


def _hdf5(out: str, parts: list[Rows], filters: dict[str, Any]) -> None:
    import h5py

    for i, (ids, mask) in enumerate(parts):
        with h5py.File(f"{out}/{i:03d}.h5", "w") as file:
            for name, rows in (("input_ids", ids.astype(np.int32)), ("attention_mask", mask.astype(np.int8))):
                chunks = (min(CHUNK, len(rows)), rows.shape[1])
                file.create_dataset(name, data=rows, chunks=chunks, **filters)


def zarr(out: str, parts: list[Rows]) -> None:
    """Version 3 with zarr-python's own codec: zstd (its level 0 is 3)."""
    import zarr as library

    for i, (ids, mask) in enumerate(parts):
        group = library.open_group(f"{out}/{i:03d}.zarr", mode="w", zarr_format=3)
        for name, rows in (("input_ids", ids.astype(np.int32)), ("attention_mask", mask.astype(np.int8))):
            chunks = (min(CHUNK, len(rows)), rows.shape[1])
            array = group.create_array(
                name, shape=rows.shape, chunks=chunks, dtype=rows.dtype, compressors=[library.codecs.ZstdCodec(level=3)]
            )
            array[:] = rows


def mds(out: str, parts: list[Rows]) -> None:
    """MosaicML's layout, `ndarray` columns of fixed type and shape (the fastest it has), uncompressed."""
    shards = []
    for i, (ids, mask) in enumerate(parts):
        names = ["attention_mask", "input_ids"]
        width = ids.shape[1]
        encodings = [f"ndarray:int32:{width}", f"ndarray:int32:{width}"]
        sizes = [width * 4, width * 4]
        config = {
            "column_encodings": encodings,
            "column_names": names,
            "column_sizes": sizes,
            "compression": None,
            "format": "mds",
            "hashes": [],
            "size_limit": 1 << 26,
            "version": 2,
        }
        text = json.dumps(config, sort_keys=True).encode()
        rows = np.concatenate([mask.astype("<i4"), ids.astype("<i4")], axis=1)
        begin = 4 + 4 * (len(rows) + 1) + len(text)
        offsets = begin + np.arange(len(rows) + 1, dtype=np.uint32) * (width * 8)
        body = struct.pack("<I", len(rows)) + offsets.astype("<u4").tobytes() + text + rows.tobytes()
        name = f"shard.{i:05d}.mds"
        _write(f"{out}/{name}", body)
        raw = {"basename": name, "bytes": len(body), "hashes": {}}
        shards.append({**config, "raw_data": raw, "samples": len(rows), "zip_data": None})
    _write(f"{out}/index.json", json.dumps({"shards": shards, "version": 2}).encode())


def webdataset(out: str, parts: list[Rows]) -> None:
    number = 0
    for i, (ids, mask) in enumerate(parts):
        with tarfile.open(f"{out}/{i:03d}.tar", "w", format=tarfile.USTAR_FORMAT) as tar:
            for a, b in zip(ids, mask):
                for name, row in (("attention_mask", b.astype(np.int8)), ("input_ids", a.astype(np.int32))):
                    buffer = io.BytesIO()
                    np.save(buffer, row)
                    info = tarfile.TarInfo(f"{number:08d}.{name}.npy")
                    info.size = buffer.tell()
                    buffer.seek(0)
                    tar.addfile(info, buffer)
                number += 1


def megatron(out: str, parts: list[Rows]) -> None:
    """One document a sample; int32."""
    for i, (ids, _) in enumerate(parts):
        n, width = ids.shape
        _write(f"{out}/{i:03d}.bin", ids.astype("<i4").tobytes())
        head = b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 4, n, n + 1)
        lengths = np.full(n, width, "<i4").tobytes()
        pointers = (np.arange(n, dtype="<i8") * width * 4).tobytes()
        _write(f"{out}/{i:03d}.idx", head + lengths + pointers + np.arange(n + 1, dtype="<i8").tobytes())


def npy(out: str, parts: list[Rows]) -> None:
    for i, (ids, _) in enumerate(parts):
        np.save(f"{out}/{i:03d}.npy", ids.astype(np.int32).ravel())


WRITERS: dict[str, Callable[[str, list[Rows]], None]] = {
    "tfrecord": tfrecord,
    "jsonl": jsonl,
    "parquet": parquet,
    "hdf5-gzip": hdf5_gzip,
    "hdf5-raw": hdf5_raw,
    "zarr": zarr,
    "mds": mds,
    "webdataset": webdataset,
    "megatron": megatron,
    "npy": npy,
}


def _write(path: str, data: bytes) -> None:
    with open(path, "wb") as file:
        file.write(data)


def write(
    out: str,
    formats: list[str],
    n: int,
    seq: int,
    shards: int,
    seed: int,
    writers: dict[str, Callable[[str, list[Rows]], None]] = WRITERS,
) -> list[str]:
    """Writes what is not there yet; the formats that are."""
    missing = [name for name in formats if not os.path.isdir(f"{out}/{name}")]
    parts: list[Rows] = []
    if missing:
        blocks = list(tfrecord_data.samples(n, seq, 102_400, seed))
        ids, mask = (np.concatenate([block[i] for block in blocks]) for i in (0, 1))
        borders = np.linspace(0, n, shards + 1).astype(int)
        parts = [(ids[a:b], mask[a:b]) for a, b in zip(borders[:-1], borders[1:])]
    for name in missing:
        part = f"{out}/{name}.{os.getpid()}.part"
        os.makedirs(part)
        try:
            writers[name](part, parts)
            os.rename(part, f"{out}/{name}")
        except ImportError as error:
            print(f"{name} left out: {error}", file=sys.stderr)
        finally:
            shutil.rmtree(part, ignore_errors=True)
    return [name for name in formats if os.path.isdir(f"{out}/{name}")]


def main(writers: dict[str, Callable[[str, list[Rows]], None]] = WRITERS) -> None:
    parser = argparse.ArgumentParser(description="the same samples in several formats")
    parser.add_argument("--out", required=True)
    parser.add_argument("--formats", default=",".join(writers))
    parser.add_argument("--n", type=int, default=100_000)
    parser.add_argument("--seq", type=int, default=512)
    parser.add_argument("--shards", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    a = parser.parse_args()
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever a library prints goes to stderr
    made = write(a.out, a.formats.split(","), a.n, a.seq, a.shards, a.seed, writers)
    answers.write(json.dumps(made) + "\n")
    answers.close()


if __name__ == "__main__":
    main()
