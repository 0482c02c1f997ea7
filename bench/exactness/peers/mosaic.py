"""MosaicML Streaming: docs "Fast Resumption" and "Elastic Determinism": `StreamingDataset(batch_size=, shuffle=,
shuffle_seed=)` under `StreamingDataLoader`, whose `state_dict()` is taken on rank 0 and loaded on all; the global batch
stays the same. After a crash: `streaming.base.util.clean_stale_shared_memory()` (FAQ)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch  # noqa: F401
from rank import Place
from rows import Rows
from streaming import MDSWriter, StreamingDataLoader, StreamingDataset
from streaming.base.util import clean_stale_shared_memory

TITLE = "MosaicML Streaming"
PACKAGES = ("mosaicml-streaming",)
WORKERS = (0, 2)
PROCESS_GROUP = True
HOW = (
    "`StreamingDataset` in place under `StreamingDataLoader`; state of rank 0; "
    "`clean_stale_shared_memory()` after a kill; world size may change if the global batch stays, say its docs"
)


def prepare(data: Path, rows: Rows) -> None:
    with MDSWriter(out=str(data / "mds"), columns={"row": "bytes"}, size_limit=200 * 145) as out:
        for row in rows:
            out.write({"row": row.tobytes()})


class _Rows(StreamingDataset):
    def __getitem__(self, index: int) -> Any:
        return np.frombuffer(super().__getitem__(index)["row"], np.int64).copy()


class Loader:
    def __init__(self, place: Place) -> None:
        clean_stale_shared_memory()
        dataset = _Rows(local=str(place.data / "mds"), batch_size=place.batch, shuffle=True, shuffle_seed=place.seed)
        self._loader = StreamingDataLoader(dataset, batch_size=place.batch, num_workers=place.workers, drop_last=True)
        if place.states is not None:
            self._loader.load_state_dict(place.states[0])

    def epoch(self, number: int) -> Iterator[Any]:
        return iter(self._loader)

    def state(self) -> Any:
        return self._loader.state_dict()

    def close(self) -> None:
        del self._loader
