"""Grain: docs "Dataset basics" and "Checkpointing": `MapDataset.source(ArrayRecordDataSource)`, `.seed`, `.shuffle`,
sliced by rank, `.batch`, `.to_iter_dataset()`, with workers `.mp_prefetch`; `get_state`/`set_state` of the iterator,
one a rank."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grain
import numpy as np
from rank import Place
from rows import WIDTH, Rows

TITLE = "Grain, sliced by rank"
PACKAGES = ("grain", "array-record")
WORKERS = (0, 2)
PROCESS_GROUP = False
HOW = (
    "`MapDataset` over ArrayRecord, `.seed().shuffle()[rank::world].batch()`, `.mp_prefetch`; "
    "`get_state` of each rank; for the same number of shards only"
)
SHARDS = 24


def prepare(data: Path, rows: Rows) -> None:
    from array_record.python.array_record_module import ArrayRecordWriter

    folder = data / "arrayrecord"
    folder.mkdir()
    for shard, part in enumerate(rows.reshape(SHARDS, -1, WIDTH)):
        writer = ArrayRecordWriter(str(folder / f"train-{shard:03}.arrayrecord"), "group_size:1")
        for row in part:
            writer.write(row.tobytes())
        writer.close()


def _decode(record: bytes) -> Any:
    return np.frombuffer(record, np.int64)


def shuffled(place: Place, epoch: int) -> Any:
    """Endless data sets shuffle anew by themselves; a finite one for each epoch ends with the epoch."""
    files = sorted(str(path) for path in (place.data / "arrayrecord").glob("*.arrayrecord"))
    source = grain.sources.ArrayRecordDataSource(files)
    return grain.MapDataset.source(source).seed(place.seed + epoch).shuffle().map(_decode)


class Loader:
    def __init__(self, place: Place) -> None:
        self._place = place
        self._workers = grain.MultiprocessingOptions(num_workers=place.workers) if place.workers > 0 else None
        self._iterator: Any = None

    def epoch(self, number: int) -> Iterator[Any]:
        self._iterator = self._iterator_of(shuffled(self._place, number))
        if self._place.states is not None and number == self._place.epoch:
            self._iterator.set_state(self._own(self._place.states))
        return self._iterator

    def _iterator_of(self, dataset: Any) -> Any:
        place = self._place
        dataset = dataset[place.rank :: place.world].batch(place.batch, drop_remainder=True).to_iter_dataset()
        return iter(dataset if self._workers is None else dataset.mp_prefetch(self._workers))

    def _own(self, states: list[Any]) -> Any:
        return states[self._place.rank]

    def state(self) -> Any:
        return self._iterator.get_state()

    def close(self) -> None:
        self._iterator.close()
