"""Columns out of a slot, against what the protocol says of each storage; all of it without an agent."""

from __future__ import annotations

import mmap
import socket
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from athanor._columns import Column, Factory, NumpyFactory
from athanor._connection import Connection
from athanor._segment import Segment
from athanor._slices import Slices
from athanor._tensors import PLAIN
from athanor.errors import AthanorError

OFFSET = 65536
SLOTS = 2
FACTORIES = [NumpyFactory(), PLAIN]
SOURCE = {"i32": np.int32, "i64": np.int64, "f32": np.float32, "prefix": np.uint32, "length": np.uint32}


class Slot:
    """Slots of one column in shared memory, as an agent fills them."""

    def __init__(self, storage: str, rows: int, width: int, slices: Slices | None = None, scalar: bool = False) -> None:
        self.mask = storage in ("prefix", "length")
        self.shape = (rows,) if self.mask or scalar else (rows, width)
        self.dtype = np.dtype(SOURCE[storage])
        size = OFFSET + int(np.prod(self.shape)) * self.dtype.itemsize
        self.memory = mmap.mmap(-1, SLOTS * size)
        self.starts = [slot * size for slot in range(SLOTS)]
        dtype = "float32" if storage == "f32" else "int64"
        spec = {
            "name": "c",
            "storage": storage,
            "dtype": dtype,
            "width": 1 if scalar else width,
            "scalar": scalar,
            "offset": OFFSET,
        }
        self.column = Column(spec, size, rows, slices or Slices(width, 0, 1, "contiguous"))
        self.column.map(self.memory, self.starts, rows)

    def fill(self, slot: int, values: Any) -> None:
        data = np.broadcast_to(np.asarray(values, self.dtype), self.shape).tobytes()
        start = self.starts[slot] + OFFSET
        self.memory[start : start + len(data)] = data


@pytest.fixture
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize("factory", FACTORIES)
@pytest.mark.parametrize("cp_size", [1, 2])
@pytest.mark.parametrize("width", [8, 512, 2048])
@pytest.mark.parametrize("storage", list(SOURCE))
def test_a_copy_holds_what_the_slot_held(storage: str, width: int, cp_size: int, factory: Factory) -> None:
    """Small copies, those that torch would share among threads, and masks wider than their table; parts of a slot."""
    rows = 70
    slices = Slices(width, 1 if cp_size == 2 else 0, cp_size, "zigzag")
    slot = Slot(storage, rows, width, slices)
    random = np.random.default_rng(3)
    for turn in range(4):
        if slot.mask:
            values = random.integers(0, width + 1, rows)
            values[:2] = (0, width)
            whole = (np.arange(width) < values[:, None]).astype(np.int64)
        else:
            top = 2**62 if storage == "i64" else 2**31 - 1
            values = random.integers(-top, top, (rows, width)).astype(slot.dtype)
            whole = values.astype(np.float32 if storage == "f32" else np.int64)
        slot.fill(turn % SLOTS, values)
        for wanted in (rows, 3):
            found = np.asarray(slot.column.take(factory, turn % SLOTS, wanted))
            assert found.dtype == whole.dtype
            assert np.array_equal(found, whole[:wanted][:, slices.positions])


@pytest.mark.parametrize("factory", FACTORIES)
@pytest.mark.parametrize("storage", ["i64", "f32", "i32"])
def test_scalars_are_one_value_a_row(storage: str, factory: Factory) -> None:
    slot = Slot(storage, 4, 16, Slices(16, 0, 2, "zigzag"), scalar=True)
    slot.fill(1, [3, 1, 4, 1])
    assert slot.column.take(factory, 1, 4).tolist() == [3, 1, 4, 1]
    assert slot.column.take(factory, 1, 2).tolist() == [3, 1]


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize("factory", FACTORIES)
@pytest.mark.parametrize("width", [8, 512, 2048])
@pytest.mark.parametrize("storage", list(SOURCE))
def test_a_batch_does_not_change_when_its_slot_does(storage: str, width: int, factory: Factory) -> None:
    """Also where the delivered type is the stored one, so that a cast alone would be no copy."""
    slot = Slot(storage, 70, width)
    slot.fill(0, 1)
    held = slot.column.take(factory, 0, 70)
    before = np.asarray(held).copy()
    slot.fill(0, 7)
    again = slot.column.take(factory, 0, 70)
    assert np.array_equal(np.asarray(held), before)
    assert not np.array_equal(np.asarray(again), before)
    held[:] = 5  # it is the user's to write
    assert np.array_equal(np.asarray(slot.column.take(factory, 0, 70)), np.asarray(again))
    slot.column.unmap()
    slot.memory.close()  # BufferError if anything that was handed out still lay in it


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize("factory", FACTORIES)
@pytest.mark.parametrize("width", [8, 512, 2048])
@pytest.mark.parametrize("length", [1, 2**31 - 1, 2**31, 2**32 - 1])
@pytest.mark.parametrize("rows", [3, 70])
def test_a_length_beyond_the_width_is_refused(rows: int, length: int, width: int, factory: Factory) -> None:
    found = width + length if length == 1 else length
    slot = Slot("prefix", 70, width)
    slot.fill(0, [0, 1, found] + [0] * 67)
    with pytest.raises(AthanorError, match=f"column c: length {found} in a width of {width}") as caught:
        slot.column.take(factory, 0, rows)
    assert caught.value.code == "ATH_PROTOCOL"


def test_who_waited_long_sleeps_at_once_the_next_time(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = socket.socketpair()
    connection = Connection(ours, "", 1.0, "rank 0")
    connection.segment = segment = Segment.anonymous(2, 4096)
    connection._words = words = segment.words
    slept: list[float] = []
    clocks: list[int] = []

    def clock() -> int:
        clocks.append(0)
        return len(clocks) * 1000  # a microsecond a look

    def sleep(n: int, w: int) -> None:
        clocks.extend([0] * int(slept[-1] / 1e-6))
        words[w] = n

    monkeypatch.setattr(time, "perf_counter_ns", clock)
    monkeypatch.setattr(connection, "_sleep", sleep)
    looks = []
    for n, seconds in enumerate([0.001, 0.001, 0.00001, 0.00001], 1):
        slept.append(seconds)
        before = len(clocks)
        connection._wait(n, 512)
        looks.append(len(clocks) - before - int(seconds / 1e-6))
    # Spins 50 µs; sleeps at once after 1 ms; again after 1 ms; spins, since the wait before was short.
    assert looks[0] > 40 and looks[1] < 5 and looks[2] < 5 and looks[3] > 40
    connection.close(polite=False)
    theirs.close()
