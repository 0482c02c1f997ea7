#!/usr/bin/env python3
"""Large shards in little memory: `npm run test:large [-- --only parquet,jsonl-gz --gigabytes 2 --keep DIR]`.

Makes one shard a format (a Parquet file of one row group, a gzip JSONL, an HDF5 file, a JSON array on one line),
indexes it and feeds it from its start and from its middle, looks at the rows, and holds the peak of resident memory of
the index's process and of the agent against 600 MB. Takes minutes a format and as much disk as it makes; exit 1 when a
bar is missed or a row is wrong.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "python" / "src")]

LIMIT = 600_000_000
WIDTH = 512
BLOCK = 4096


def rows_of(first: int, count: int) -> np.ndarray[Any, np.dtype[np.int32]]:
    """Row n begins with n; the rest follows from it and does not compress away."""
    numbers = np.arange(first, first + count, dtype=np.int64)[:, None]
    rows = (numbers * 2_654_435_761 + np.arange(WIDTH) * (numbers % 1013 + 7) * 40_503) % 102_400
    rows[:, 0] = numbers[:, 0]
    return rows.astype(np.int32)


def blocks(total: int) -> Iterator[np.ndarray[Any, np.dtype[np.int32]]]:
    for first in range(0, total, BLOCK):
        yield rows_of(first, min(BLOCK, total - first))


def parquet(path: Path, size: int) -> int:
    import pyarrow as pa
    import pyarrow.parquet as pq

    total = size // (WIDTH * 4)
    field = pa.schema([("input_ids", pa.list_(pa.int32()))])
    # One row group: written column by column from one table, which is made of views.
    parts = []
    for rows in blocks(total):
        ends = np.arange(0, rows.size + 1, WIDTH, dtype=np.int32)
        parts.append(pa.ListArray.from_arrays(ends, pa.array(rows.ravel())))
    table = pa.Table.from_arrays([pa.chunked_array(parts)], schema=field)
    pq.write_table(table, path, compression="snappy", use_dictionary=False, row_group_size=total)
    return total


def jsonl_gz(path: Path, size: int) -> int:
    total = 0
    with open(path, "wb") as raw, gzip.GzipFile(fileobj=raw, mode="wb", compresslevel=1, mtime=0) as file:
        for rows in blocks(1 << 40):
            file.write("".join(f'{{"input_ids":{row.tolist()}}}\n' for row in rows).encode())
            total += len(rows)
            if raw.tell() >= size:
                break
    return total


def json_array(path: Path, size: int) -> int:
    total = 0
    with open(path, "wb") as file:
        file.write(b"[")
        for rows in blocks(1 << 40):
            text = ",".join(f'{{"input_ids":{row.tolist()}}}' for row in rows)
            file.write((("," if total else "") + text).encode())
            total += len(rows)
            if file.tell() >= size:
                break
        file.write(b"]")
    return total


def hdf5(path: Path, size: int) -> int:
    import h5py

    total = size // (WIDTH * 4)
    with h5py.File(path, "w") as file:
        data = file.create_dataset("input_ids", (total, WIDTH), np.int32, chunks=(256, WIDTH))
        at = 0
        for rows in blocks(total):
            data[at : at + len(rows)] = rows
            at += len(rows)
    return total


#: name → file, share of --gigabytes, writer
SHARDS: dict[str, tuple[str, float, Callable[[Path, int], int]]] = {
    "parquet": ("big.parquet", 1.0, parquet),
    "jsonl-gz": ("big.jsonl.gz", 1.0, jsonl_gz),
    "hdf5": ("big.h5", 1.0, hdf5),
    "json-array": ("big.json", 0.5, json_array),
}


def peak(pid: int) -> int:
    with open(f"/proc/{pid}/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmHWM"))


def index(folder: Path) -> tuple[float, int]:
    """Seconds, and the peak of memory of the process."""
    begin = time.monotonic()
    process = subprocess.Popen(["node", str(ROOT / "bin" / "athanor.mjs"), "index", str(folder)])
    highest = 0
    # `ru_maxrss` would be that of this process, which has written the file: it is handed on through fork.
    while process.poll() is None:
        with contextlib.suppress(OSError, StopIteration):
            highest = max(highest, peak(process.pid))
        time.sleep(0.05)
    if process.returncode != 0:
        raise SystemExit(f"index failed: {process.returncode}")
    return time.monotonic() - begin, highest


def feed(folder: Path, total: int, batches: int) -> tuple[float, int]:
    """Samples a second, and the agent's peak, over two loaders: from the start, and from the middle of the epoch."""
    from athanor.numpy import Loader

    highest = 0
    given = 0
    begin = time.monotonic()
    state = None
    for _ in range(2):
        loader = Loader(
            str(folder),
            batch_size=32,
            max_length=WIDTH,
            columns=["input_ids"],
            seed=3,
            shuffle_memory=64 << 20,
            lanes=8,  # 64 lanes hold a window and a read each, whatever the format
            state=state,
            rank=0,
            world_size=1,
            timeout=1800,
        )
        stream = loader.repeat()
        for _ in range(batches):
            rows = next(stream)["input_ids"]
            if rows.shape != (32, WIDTH):
                raise SystemExit(f"a batch of shape {rows.shape}")
            for row in rows:
                if not (row == rows_of(int(row[0]), 1)[0]).all():
                    raise SystemExit(f"row {row[0]} is not what was written")
        given += batches * 32
        highest = max(highest, peak(loader.stats()["agent"]["pid"]))
        state = loader.state_dict()
        state["position"] = str(total // 2 // 32 * 32)
        loader.close()
    return given / (time.monotonic() - begin), highest


def main() -> int:
    parser = argparse.ArgumentParser(prog="npm run test:large --")
    parser.add_argument("--only", default=",".join(SHARDS), help="some of " + ", ".join(SHARDS))
    parser.add_argument("--gigabytes", type=float, default=2.0, help="of a shard (half of it for the JSON array)")
    parser.add_argument("--batches", type=int, default=1500, help="of 32 rows, from the start and from the middle")
    parser.add_argument("--keep", type=Path, help="folder for the files, which stay there")
    args = parser.parse_args()
    home = args.keep or Path(tempfile.mkdtemp(prefix="athanor-large-"))
    wrong = 0
    try:
        for name in args.only.split(","):
            file, share, write = SHARDS[name]
            folder = home / name
            folder.mkdir(parents=True, exist_ok=True)
            os.environ["ATHANOR_JOB_ID"] = f"large-{os.getpid()}-{name}"
            total = write(folder / file, int(args.gigabytes * share * 1e9))
            size = (folder / file).stat().st_size
            seconds, indexing = index(folder)
            rate, feeding = feed(folder, total, args.batches)
            ok = max(indexing, feeding) <= LIMIT
            wrong += not ok
            print(
                f"{'PASS' if ok else 'FAIL'}  {name}: {size / 1e9:.2f} GB, {total} rows; "
                f"index {seconds:.0f} s, peak {indexing / 1e6:.0f} MB; "
                f"feed {rate:.0f} samples/s, agent's peak {feeding / 1e6:.0f} MB (at most {LIMIT / 1e6:.0f})",
                flush=True,
            )
            if args.keep is None:
                shutil.rmtree(folder)
    finally:
        if args.keep is None:
            shutil.rmtree(home, ignore_errors=True)
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(f"(this process, which writes the files: {own / 1e3:.0f} MB)")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
