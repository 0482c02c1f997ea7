"""The formats' own readers, as a user who knows them writes a loader: files in order, one row group or chunk at a time,
shuffled in memory, whole batches out of it, no collate. Written before Athanor's readers were tuned.

Each takes (folder, batch, width, seed) and gives one epoch of (input_ids, attention_mask), int64 tensors
[batch, width]; the rest of a group that is smaller than a batch is left out. Streams of tokens have no mask: the peer
gives ones.
"""

from __future__ import annotations

import glob
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

Batches = Iterator[tuple[Any, Any]]


def _batches(ids: np.ndarray, mask: np.ndarray, batch: int, rng: np.random.Generator) -> Batches:
    import torch

    order = rng.permutation(len(ids))
    for at in range(0, len(ids) - batch + 1, batch):
        rows = order[at : at + batch]
        yield torch.from_numpy(ids[rows].astype(np.int64)), torch.from_numpy(mask[rows].astype(np.int64))


def parquet(folder: str, batch: int, width: int, seed: int) -> Batches:
    import pyarrow.parquet as pq

    rng = np.random.default_rng(seed)
    for path in sorted(glob.glob(f"{folder}/*.parquet")):
        file = pq.ParquetFile(path)
        for group in range(file.num_row_groups):
            table = file.read_row_group(group, columns=["input_ids", "attention_mask"], use_threads=False)
            ids, mask = (
                table.column(name).combine_chunks().flatten().to_numpy(zero_copy_only=False).reshape(-1, width)
                for name in ("input_ids", "attention_mask")
            )
            yield from _batches(ids, mask, batch, rng)


def hdf5(folder: str, batch: int, width: int, seed: int) -> Batches:
    import h5py

    rng = np.random.default_rng(seed)
    for path in sorted(glob.glob(f"{folder}/*.h5")):
        with h5py.File(path, "r") as file:
            ids, mask = file["input_ids"], file["attention_mask"]
            step = ids.chunks[0]
            for at in range(0, len(ids), step):
                yield from _batches(ids[at : at + step], mask[at : at + step], batch, rng)


def zarr(folder: str, batch: int, width: int, seed: int) -> Batches:
    import zarr as library

    rng = np.random.default_rng(seed)
    for path in sorted(glob.glob(f"{folder}/*.zarr")):
        group: Any = library.open_group(path, mode="r")
        ids, mask = group["input_ids"], group["attention_mask"]
        step = ids.chunks[0]
        for at in range(0, ids.shape[0], step):
            yield from _batches(ids[at : at + step], mask[at : at + step], batch, rng)


def mds(folder: str, batch: int, width: int, seed: int) -> Batches:
    """MosaicML Streaming as its documentation shows it: StreamingDataset under a DataLoader."""
    import torch
    from streaming import StreamingDataset

    dataset = StreamingDataset(local=folder, shuffle=True, shuffle_seed=seed, batch_size=batch)
    loader: Any = torch.utils.data.DataLoader(dataset, batch_size=batch, drop_last=True)
    for rows in loader:
        yield rows["input_ids"].to(torch.int64), rows["attention_mask"].to(torch.int64)


def webdataset(folder: str, batch: int, width: int, seed: int) -> Batches:
    import torch
    import webdataset as library

    paths = sorted(glob.glob(f"{folder}/*.tar"))
    samples: Any = library.WebDataset(paths, shardshuffle=False, seed=seed).shuffle(1000).decode()
    names = ("input_ids.npy", "attention_mask.npy")
    for rows in samples.to_tuple(*names).batched(batch, collation_fn=None, partial=False):
        ids, mask = (np.stack(column).astype(np.int64) for column in zip(*rows))
        yield torch.from_numpy(ids), torch.from_numpy(mask)


def jsonl(folder: str, batch: int, width: int, seed: int) -> Batches:
    """orjson, 1 000 lines at a time."""
    import orjson

    rng = np.random.default_rng(seed)
    for path in sorted(glob.glob(f"{folder}/*.jsonl")):
        with open(path, "rb") as file:
            while lines := list(itertools.islice(file, 1000)):
                rows = [orjson.loads(line) for line in lines]
                ids = np.array([row["input_ids"] for row in rows], np.int64)
                mask = np.array([row["attention_mask"] for row in rows], np.int64)
                yield from _batches(ids, mask, batch, rng)


def _stream(paths: list[str], batch: int, width: int, seed: int, open_file: Callable[[str], np.ndarray]) -> Batches:
    """The whole-batch memory map: one fancy index a batch over all samples of all files."""
    import torch

    files = [open_file(path).reshape(-1, width) for path in paths]
    first = np.cumsum([0, *(len(file) for file in files)])
    order = np.random.default_rng(seed).permutation(first[-1])
    ones = torch.ones((batch, width), dtype=torch.int64)
    for at in range(0, len(order) - batch + 1, batch):
        rows = order[at : at + batch]
        out = np.empty((batch, width), np.int64)
        which = np.searchsorted(first, rows, side="right") - 1
        for number in np.unique(which):
            here = which == number
            out[here] = files[number][rows[here] - first[number]]
        yield torch.from_numpy(out), ones.clone()


def megatron(folder: str, batch: int, width: int, seed: int) -> Batches:
    paths = sorted(glob.glob(f"{folder}/*.bin"))
    return _stream(paths, batch, width, seed, lambda path: np.memmap(path, np.int32, "r"))


def npy(folder: str, batch: int, width: int, seed: int) -> Batches:
    paths = sorted(glob.glob(f"{folder}/*.npy"))
    return _stream(paths, batch, width, seed, lambda path: np.load(path, mmap_mode="r"))


#: Who reads each format, and the module without which it is left out.
PEERS: dict[str, tuple[str, str, Callable[[str, int, int, int], Batches]]] = {
    "parquet": ("pyarrow", "pyarrow", parquet),
    "hdf5-gzip": ("h5py", "h5py", hdf5),
    "hdf5-raw": ("h5py", "h5py", hdf5),
    "zarr": ("zarr-python", "zarr", zarr),
    "mds": ("MosaicML Streaming", "streaming", mds),
    "webdataset": ("webdataset", "webdataset", webdataset),
    "jsonl": ("orjson", "orjson", jsonl),
    "megatron": ("memory map", "numpy", megatron),
    "npy": ("memory map", "numpy", npy),
}
