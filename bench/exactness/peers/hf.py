"""Hugging Face datasets, streaming: docs "Stream", sections "Save a dataset checkpoint and resume iteration" and "Use
with PyTorch": `split_dataset_by_node`, `shuffle(seed, buffer_size)`, `set_epoch`, under torchdata's
`StatefulDataLoader`. The docs say of a resume that examples of the shuffle buffer are lost. 24 files: divided by the
world sizes and workers, which is the best case."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch  # noqa: F401
from datasets import load_dataset
from datasets.distributed import split_dataset_by_node
from rank import Place
from rows import WIDTH, Rows
from torchdata.stateful_dataloader import StatefulDataLoader

TITLE = "HF datasets, shuffle buffer of 256"
PACKAGES = ("datasets", "torchdata")
WORKERS = (0, 2)
PROCESS_GROUP = False
HOW = (
    "`load_dataset(streaming=True)`, `.shuffle(seed, buffer_size=256)`, `split_dataset_by_node`, "
    "`StatefulDataLoader`; state of each rank; "
    "its docs promise no other world size, and say that a resume loses the shuffle buffer"
)
SHARDS = 24
BUFFER: int | None = 256


def prepare(data: Path, rows: Rows) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder = data / "parquet"
    folder.mkdir()
    for shard, part in enumerate(rows.reshape(SHARDS, -1, WIDTH)):
        pq.write_table(pa.table({"row": part.tolist()}), folder / f"train-{shard:03}.parquet")


class Loader:
    def __init__(self, place: Place, buffer: int | None = BUFFER) -> None:
        files = sorted(str(path) for path in (place.data / "parquet").glob("*.parquet"))
        cache = str(place.data / "hf-cache")
        dataset = load_dataset("parquet", data_files=files, split="train", streaming=True, cache_dir=cache)
        if buffer is not None:
            dataset = dataset.shuffle(seed=place.seed, buffer_size=buffer)
        self._dataset = split_dataset_by_node(dataset, rank=place.rank, world_size=place.world)
        self._loader = StatefulDataLoader(self._dataset, batch_size=place.batch, num_workers=place.workers)
        self._states, self._rank = place.states, place.rank

    def epoch(self, number: int) -> Iterator[Any]:
        self._dataset.set_epoch(number)
        if self._states is not None:
            self._loader.load_state_dict(self._states[self._rank])
            self._states = None
        for batch in self._loader:
            # The default collation of lists: one tensor a column.
            yield np.stack([np.asarray(column) for column in batch["row"]], axis=1)

    def state(self) -> Any:
        return self._loader.state_dict()

    def close(self) -> None:
        del self._loader
