"""The loaders that `athanor bench train` compares. Each gives {"input_ids", "attention_mask"}, int64 [batch, width].

* `naive`: the story's Dataset without TensorFlow. Map-style; for each sample it opens the shard and walks its records
  from the start. CRCs are not checked, skipped records not parsed: TensorFlow does both, so this is the fast form.
* `memmap`: PyTorch map-style over a memory map, one sample a `__getitem__`, default collate, DistributedSampler.
* `memmap_batch`: the same map, one fancy index a batch, no collate: the strongest floor.
* `athanor`: the client under test, in order mode `window` or `global`.

Contract: each is endless (epoch after epoch) and takes the `open` command of worker.py; torch is imported only where
it is used.
"""

from __future__ import annotations

import bisect
import importlib
import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

from .memmap import fill, load
from .tfrecord import example, walk


class NaiveDataset:
    """Map-style over TFRecord shards without any index of records inside a shard."""

    def __init__(self, shards: list[tuple[str, int]], width: int) -> None:
        self.paths = [path for path, _ in shards]
        self.first = [0, *itertools.accumulate(records for _, records in shards)]
        self.width = width

    def __len__(self) -> int:
        return self.first[-1]

    def __getitem__(self, index: int) -> dict[str, Any]:
        import torch

        shard = bisect.bisect_right(self.first, index) - 1
        path, record = self.paths[shard], index - self.first[shard]
        payload = next(itertools.islice(walk(path), record, None))
        ids, mask = np.zeros(self.width, np.int64), np.zeros(self.width, np.int64)
        fill(example(payload), ids, mask, f"{path}, record {record}")
        return {"input_ids": torch.from_numpy(ids), "attention_mask": torch.from_numpy(mask)}


class MemmapDataset:
    def __init__(self, folder: str) -> None:
        self.ids, self.mask = load(folder)

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, index: Any) -> dict[str, Any]:
        import torch

        return {
            "input_ids": torch.from_numpy(self.ids[index].astype(np.int64)),
            "attention_mask": torch.from_numpy(self.mask[index].astype(np.int64)),
        }


def naive(c: dict[str, Any]) -> Iterator[dict[str, Any]]:
    return epochs(NaiveDataset(c["shards"], c["width"]), c, whole_batch=False)


def memmap(c: dict[str, Any]) -> Iterator[dict[str, Any]]:
    return epochs(MemmapDataset(c["memmap"]), c, whole_batch=False)


def memmap_batch(c: dict[str, Any]) -> Iterator[dict[str, Any]]:
    return epochs(MemmapDataset(c["memmap"]), c, whole_batch=True)


def epochs(dataset: Any, c: dict[str, Any], whole_batch: bool) -> Iterator[dict[str, Any]]:
    """A map-style dataset in this process, shuffled and dealt to ranks by DistributedSampler, epoch after epoch;
    ValueError when a rank has no whole batch. `whole_batch`: the dataset takes a list of indexes.
    """
    from torch.utils.data import BatchSampler, DataLoader
    from torch.utils.data.distributed import DistributedSampler

    sampler: Any = DistributedSampler(
        dataset, num_replicas=c["world"], rank=c["rank"], shuffle=True, seed=c["seed"], drop_last=True
    )
    if len(sampler) < c["batch"]:
        raise ValueError(f"a rank has {len(sampler)} samples, fewer than one batch of {c['batch']}")
    if whole_batch:
        loader = DataLoader(dataset, batch_size=None, sampler=BatchSampler(sampler, c["batch"], True), num_workers=0)
    else:
        loader = DataLoader(dataset, batch_size=c["batch"], sampler=sampler, num_workers=0, drop_last=True)
    for epoch in itertools.count():
        sampler.set_epoch(epoch)
        yield from loader


def open_athanor(c: dict[str, Any]) -> Any:
    """A Loader of the client asked for; `mode` window or global."""
    # "athanor.torch" or "athanor.numpy": the same Loader, one gives tensors, the other arrays.
    Loader = importlib.import_module(f"athanor.{c['client']}").Loader
    return Loader(
        c["source"],
        batch_size=c["batch"],
        max_length=c["width"],
        columns=["input_ids", "attention_mask"],
        seed=c["seed"],
        shuffle=c["mode"],
        shuffle_memory=c["shuffle_memory"],
        index_dir=c["index_dir"],
        job=c["job"],
    )


PLAIN = {"naive": naive, "memmap": memmap, "memmap_batch": memmap_batch}
