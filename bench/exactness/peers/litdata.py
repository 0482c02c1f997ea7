"""LitData: README "Pause, resume & elastic training": `StreamingDataLoader.state_dict()` / `load_state_dict()` over
`StreamingDataset(shuffle=True)`; world size may change, the global batch stays the same "for a matching loss curve".
The README saves on rank 0 and loads on all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ["LITDATA_DISABLE_VERSION_CHECK"] = "1"

import numpy as np
import torch  # noqa: F401
from litdata import StreamingDataLoader, StreamingDataset, optimize
from rank import Place
from rows import Rows, rows_of

TITLE = "LitData"
PACKAGES = ("litdata",)
WORKERS = (0, 2)
PROCESS_GROUP = True
HOW = (
    "`StreamingDataset(shuffle=True)` under `StreamingDataLoader`; state of rank 0; "
    "world size may change, says its README"
)


def _row(number: int) -> Any:
    return rows_of([number])[0]


def prepare(data: Path, rows: Rows) -> None:
    optimize(
        fn=_row,
        inputs=list(range(len(rows))),
        output_dir=str(data / "litdata"),
        chunk_size=200,
        num_workers=1,
        start_method="fork",
    )


class Loader:
    def __init__(self, place: Place) -> None:
        dataset = StreamingDataset(str(place.data / "litdata"), shuffle=True, seed=place.seed)
        self._loader = StreamingDataLoader(dataset, batch_size=place.batch, num_workers=place.workers)
        if place.states is not None:
            self._loader.load_state_dict(place.states[0])

    def epoch(self, number: int) -> Iterator[Any]:
        for batch in self._loader:
            yield np.asarray(batch)

    def state(self) -> Any:
        return self._loader.state_dict()

    def close(self) -> None:
        del self._loader
