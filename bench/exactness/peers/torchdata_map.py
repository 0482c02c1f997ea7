"""torchdata: README of `torchdata.stateful_dataloader`: `StatefulDataLoader(dataset, sampler=…)` with
`StatefulDistributedSampler` over a map-style data set (a memory map); each rank saves and loads its own state."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rank import Place
from rows import Rows
from torchdata.stateful_dataloader import StatefulDataLoader
from torchdata.stateful_dataloader.sampler import StatefulDistributedSampler

TITLE = "torchdata `StatefulDataLoader`"
PACKAGES = ("torchdata", "torch")
WORKERS = (0, 2)
PROCESS_GROUP = False
HOW = (
    "map-style memory map, `StatefulDistributedSampler`, `set_epoch`; state of each rank; "
    "its docs promise no other world size"
)


def prepare(data: Path, rows: Rows) -> None:
    np.save(data / "rows.npy", rows)


class _Rows(torch.utils.data.Dataset[Any]):
    def __init__(self, path: Path) -> None:
        self._rows = np.load(path, mmap_mode="r")

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> Any:
        return torch.from_numpy(np.array(self._rows[index]))


class Loader:
    def __init__(self, place: Place) -> None:
        dataset = _Rows(place.data / "rows.npy")
        self._sampler = StatefulDistributedSampler(
            dataset, num_replicas=place.world, rank=place.rank, shuffle=True, seed=place.seed
        )
        self._loader = StatefulDataLoader(
            dataset, batch_size=place.batch, sampler=self._sampler, num_workers=place.workers
        )
        self._states, self._rank = place.states, place.rank

    def epoch(self, number: int) -> Iterator[Any]:
        self._sampler.set_epoch(number)
        if self._states is not None:
            self._loader.load_state_dict(self._states[self._rank])
            self._states = None
        return iter(self._loader)

    def state(self) -> Any:
        return self._loader.state_dict()

    def close(self) -> None:
        del self._loader
