"""Athanor: docs/guides/training.md, "Stop and resume, exactly" and "DataLoader"."""

from __future__ import annotations

import importlib.util
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import athanor.numpy
from crc32c import crc32c
from rank import Place
from rows import WIDTH, Rows

# Before the forks, as every peer; without torch only the plain loader is there (npm test).
if importlib.util.find_spec("torchdata") is not None:
    from athanor.torch import AthanorDataset, state_of
    from torchdata.stateful_dataloader import StatefulDataLoader

TITLE = "Athanor"
PACKAGES = ()
WORKERS = (0, 2)
PROCESS_GROUP = False
HOW = (
    "`Loader`, `state_dict()`/`load_state_dict()` of rank 0; "
    "with workers `AthanorDataset` under `StatefulDataLoader`, `state_of()`"
)
SHARDS = 24


def prepare(data: Path, rows: Rows) -> None:
    """TFRecord of tf.train.Example {"input_ids": int64 list}."""

    def varint(value: int) -> bytes:
        out = bytearray()
        while value >= 0x80:
            out.append(value & 0x7F | 0x80)
            value >>= 7
        out.append(value)
        return bytes(out)

    def field(number: int, payload: bytes) -> bytes:
        return varint(number << 3 | 2) + varint(len(payload)) + payload

    def masked(payload: bytes) -> bytes:
        crc = crc32c(payload)
        return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)

    folder = data / "tfrecord"
    folder.mkdir()
    for shard, part in enumerate(rows.reshape(SHARDS, -1, WIDTH)):
        with (folder / f"train-{shard:03}.tfrecord").open("wb") as file:
            for row in part.tolist():
                values = field(3, field(1, b"".join(map(varint, row))))
                payload = field(1, field(1, field(1, b"input_ids") + field(2, values)))
                length = struct.pack("<Q", len(payload))
                file.write(length + masked(length) + payload + masked(payload))


class Loader:
    def __init__(self, place: Place) -> None:
        self._place = place
        self._state: Any = None
        options: dict[str, Any] = {
            "batch_size": place.batch,
            "max_length": WIDTH,
            "columns": ["input_ids"],
            "seed": place.seed,
        }
        if place.workers == 0:
            self._loader: Any = athanor.numpy.Loader(place.data / "tfrecord", **options)
            if place.states is not None:
                self._loader.load_state_dict(place.states[0])
            return
        if place.states is not None:
            options["state"] = state_of(place.states[0])
        self._dataset = AthanorDataset(place.data / "tfrecord", **options)
        self._loader = StatefulDataLoader(self._dataset, batch_size=None, num_workers=place.workers)

    def epoch(self, number: int) -> Iterator[Any]:
        for batch in self._loader:
            yield batch["input_ids"]

    def state(self) -> Any:
        return self._loader.state_dict()

    def close(self) -> None:
        (self._loader if self._place.workers == 0 else self._dataset).close()
