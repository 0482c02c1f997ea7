"""The peers as loaders: each gives {"input_ids", "attention_mask"}, int64 [batch, width] tensors, shuffled as its own
documentation shuffles, epoch after epoch, on one rank of `world`.

Each takes the `open` command of worker.py: `folder` (this peer's data), `memmap`, `rank`, `world`, `batch`, `width`,
`seed`, `workers` (DataLoader processes). SETUP runs once, before any rank: the imports of a library are no part of its
first batch.
"""

from __future__ import annotations

import fcntl
import glob
import importlib
import itertools
import os
import struct
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ..contenders import epochs

Batches = Iterator[dict[str, Any]]
NAMES = ("input_ids", "attention_mask")
#: Samples of a shuffle buffer, for those who shuffle in one.
BUFFER = 2000
TF_BUFFER = 10_000
_held: list[Any] = []


def _paths(c: dict[str, Any], pattern: str, shard: bool = False) -> list[str]:
    paths = sorted(glob.glob(f"{c['folder']}/{pattern}"))
    if not paths:
        raise FileNotFoundError(f"no {pattern} in {c['folder']}")
    mine = paths[c["rank"] :: c["world"]] if shard else paths
    if not mine:
        raise ValueError(f"{len(paths)} files cannot be dealt to {c['world']} ranks")
    return mine


def _again(loader: Any) -> Batches:
    while True:
        yield from loader


def _loader(dataset: Any, c: dict[str, Any], kind: Any = None, **options: Any) -> Any:
    from torch.utils.data import DataLoader

    if c["workers"] > 0:
        options.update(prefetch_factor=4, persistent_workers=True)
    return (kind or DataLoader)(dataset, batch_size=c["batch"], num_workers=c["workers"], drop_last=True, **options)


def null(c: dict[str, Any]) -> Batches:
    """Nothing at all, the same batch again and again: the memory of the process itself."""
    import torch

    batch = {name: torch.zeros((c["batch"], c["width"]), dtype=torch.int64) for name in NAMES}
    return itertools.repeat(batch)


class MegatronDataset:
    """Megatron's IndexedDataset: lengths and pointers from .idx, tokens by frombuffer over a map of .bin; the mask is
    made from the ids, which is all that the format holds."""

    def __init__(self, c: dict[str, Any]) -> None:
        self.at: list[tuple[Any, int, int]] = []
        for path in _paths(c, "*.idx"):
            with open(path, "rb") as file:
                head = file.read(34)
            magic, version, dtype, count = struct.unpack("<9sQBQ", head[:26])
            if magic != b"MMIDIDX\0\0" or version != 1 or dtype != 4:
                raise ValueError(f"{path}: not an index of int32 tokens")
            lengths = np.fromfile(path, "<i4", count, offset=34).tolist()
            pointers = np.fromfile(path, "<i8", count, offset=34 + 4 * count).tolist()
            tokens = np.memmap(path[:-3] + "bin", np.uint8, "r")
            self.at += [(tokens, length, pointer) for length, pointer in zip(lengths, pointers)]

    def __len__(self) -> int:
        return len(self.at)

    def __getitem__(self, index: int) -> dict[str, Any]:
        import torch

        tokens, length, pointer = self.at[index]
        ids = np.frombuffer(tokens, np.int32, length, pointer).astype(np.int64)
        return {"input_ids": torch.from_numpy(ids), "attention_mask": torch.from_numpy((ids != 0).astype(np.int64))}


def megatron(c: dict[str, Any]) -> Batches:
    return epochs(MegatronDataset(c), c, whole_batch=False)


def tfdata(c: dict[str, Any]) -> Batches:
    """tf.data: shards interleaved, a buffer of 10 000 shuffled, whole batches parsed, all of it prefetched."""
    import tensorflow as tf
    import torch

    files = _paths(c, "*.tfrecord", shard=True)
    spec = {name: tf.io.FixedLenFeature([c["width"]], tf.int64) for name in NAMES}
    auto = tf.data.AUTOTUNE
    d = tf.data.Dataset.from_tensor_slices(files).shuffle(len(files), seed=c["seed"]).repeat()
    d = d.interleave(tf.data.TFRecordDataset, cycle_length=4, num_parallel_calls=auto, deterministic=False)
    d = d.shuffle(TF_BUFFER, seed=c["seed"]).batch(c["batch"], drop_remainder=True)
    d = d.map(lambda x: tf.io.parse_example(x, spec), num_parallel_calls=auto, deterministic=False).prefetch(auto)
    for batch in d.as_numpy_iterator():
        yield {name: torch.from_numpy(v if v.flags.writeable else v.copy()) for name, v in batch.items()}


def tfrecord(c: dict[str, Any]) -> Batches:
    """The `tfrecord` package: shards drawn at random, a queue of 2 000 shuffled. It checks no CRC."""
    from tfrecord.torch.dataset import MultiTFRecordDataset

    files = _paths(c, "*.tfrecord", shard=True)
    splits = {os.path.basename(path): 1.0 / len(files) for path in files}
    kinds = dict.fromkeys(NAMES, "int")
    dataset = MultiTFRecordDataset(c["folder"] + "/{}", None, splits, kinds, shuffle_queue_size=BUFFER, infinite=True)
    return _again(_loader(dataset, c))


def mosaic(c: dict[str, Any]) -> Batches:
    import torch
    from streaming import StreamingDataLoader, StreamingDataset

    class Dataset(StreamingDataset):
        def __getitem__(self, index: Any) -> Any:
            row = super().__getitem__(index)
            return {
                name: torch.from_numpy(np.frombuffer(row[name], kind).astype(np.int64))
                for name, kind in zip(NAMES, (np.int32, np.int8))
            }

    dataset = Dataset(local=c["folder"], shuffle=True, shuffle_seed=c["seed"], batch_size=c["batch"])
    return _again(_loader(dataset, c, StreamingDataLoader))


def litdata(c: dict[str, Any]) -> Batches:
    import torch
    from litdata import StreamingDataLoader, StreamingDataset

    class Dataset(StreamingDataset):
        def __getitem__(self, index: Any) -> Any:
            row = super().__getitem__(index)
            return {name: torch.from_numpy(np.asarray(row[name]).astype(np.int64)) for name in NAMES}

    dataset = Dataset(c["folder"], shuffle=True, drop_last=True, seed=c["seed"])
    return _again(_loader(dataset, c, StreamingDataLoader))


def webdataset(c: dict[str, Any]) -> Batches:
    import torch
    import webdataset as library

    files = _paths(c, "*.tar")
    samples: Any = library.WebDataset(
        files, shardshuffle=len(files), seed=c["seed"], empty_check=False, nodesplitter=library.split_by_node
    )
    samples = samples.repeat().shuffle(BUFFER).decode()

    def tensors(sample: dict[str, Any]) -> dict[str, Any]:
        return {name: torch.from_numpy(sample[f"{name}.npy"].astype(np.int64)) for name in NAMES}

    return _again(_loader(samples.map(tensors), c))


def grain(c: dict[str, Any]) -> Batches:
    import grain as library
    import torch

    width = c["width"]

    def decode(record: bytes) -> dict[str, Any]:
        return {
            "input_ids": np.frombuffer(record, np.int32, width).astype(np.int64),
            "attention_mask": np.frombuffer(record, np.int8, width, width * 4).astype(np.int64),
        }

    source = library.sources.ArrayRecordDataSource(_paths(c, "*.array_record"))
    d = library.MapDataset.source(source).seed(c["seed"]).shuffle()[c["rank"] :: c["world"]].map(decode)
    d = d.repeat(None).batch(c["batch"], drop_remainder=True)
    # Two cores: with the default of 16 threads it is slower.
    for batch in d.to_iter_dataset(library.ReadOptions(num_threads=2, prefetch_buffer_size=8)):
        yield {name: torch.from_numpy(batch[name]) for name in NAMES}


def hf_map(c: dict[str, Any]) -> Batches:
    import datasets

    return epochs(datasets.load_from_disk(c["folder"]).with_format("torch"), c, whole_batch=False)


def hf_stream(c: dict[str, Any]) -> Batches:
    import datasets
    import torch
    from datasets.distributed import split_dataset_by_node

    files = _paths(c, "*.parquet")
    d: Any = datasets.load_dataset("parquet", data_files=files, split="train", streaming=True)
    d = split_dataset_by_node(d, rank=c["rank"], world_size=c["world"])
    d = d.shuffle(seed=c["seed"], buffer_size=BUFFER).with_format("torch")

    def collate(rows: Any) -> dict[str, Any]:
        return {name: torch.stack([row[name] for row in rows]).long() for name in NAMES}

    return _again(_loader(d, c, collate_fn=collate))


def _setup_mosaic() -> None:
    """Holds the lock of `bench:exactness` for the life of this process: two of them sweep each other's files from
    /dev/shm. What a killed run left there is swept once. ATHANOR_BENCH_LOCKED: held by whoever started this."""
    if "ATHANOR_BENCH_LOCKED" in os.environ:
        importlib.import_module("streaming")
        return
    lock = open(os.path.join(tempfile.gettempdir(), f"athanor-exactness-{os.getuid()}.lock"), "w")  # noqa: SIM115
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise RuntimeError("another comparison with MosaicML Streaming is running on this machine") from None
    _held.append(lock)
    importlib.import_module("streaming")
    importlib.import_module("streaming.base.util").clean_stale_shared_memory()


def _setup_litdata() -> None:
    os.environ["LITDATA_DISABLE_VERSION_CHECK"] = "1"
    importlib.import_module("litdata")


def _imports(*names: str) -> Callable[[], None]:
    def setup() -> None:
        for name in names:
            importlib.import_module(name)

    return setup


def _setup_tf() -> None:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
    importlib.import_module("tensorflow")


PEERS: dict[str, Callable[[dict[str, Any]], Batches]] = {
    "null": null,
    "megatron": megatron,
    "tfdata": tfdata,
    "tfrecord": tfrecord,
    "mosaic": mosaic,
    "litdata": litdata,
    "webdataset": webdataset,
    "grain": grain,
    "hf_map": hf_map,
    "hf_stream": hf_stream,
}

SETUP: dict[str, Callable[[], None]] = {
    "null": _imports(),
    "megatron": _imports(),
    "tfdata": _setup_tf,
    "tfrecord": _imports("tfrecord.torch.dataset"),
    "mosaic": _setup_mosaic,
    "litdata": _setup_litdata,
    "webdataset": _imports("webdataset"),
    "grain": _imports("grain", "array_record.python.array_record_data_source"),
    "hf_map": _imports("datasets"),
    "hf_stream": _imports("datasets", "pyarrow.parquet"),
}
