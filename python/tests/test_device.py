"""Batches on an accelerator, with one that does its work as late as it may: a slot given back too early, or a batch
handed out without a wait, is wrong data here. What a GPU does with it is `test_gpu.py`."""

from __future__ import annotations

import gc
import logging
import os
import pickle
import signal
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from conftest import agents_in
from test_protocol import ids

torch = pytest.importorskip("torch")

import athanor.torch as module  # noqa: E402
from athanor import _layout as layout  # noqa: E402
from athanor import _sending  # noqa: E402
from athanor._columns import Column  # noqa: E402
from athanor._device import Sender  # noqa: E402
from athanor._segment import Segment  # noqa: E402
from athanor._slices import Slices  # noqa: E402
from athanor._tensors import PLAIN  # noqa: E402
from athanor.bench import device as bench  # noqa: E402
from athanor.errors import AthanorError  # noqa: E402
from athanor.torch import AthanorDataset, Loader  # noqa: E402
from late_device import LateDevice  # noqa: E402

Monkey = pytest.MonkeyPatch
WIDTH, ROWS = 8, 5
CP = {"dp_rank": 0, "dp_world_size": 1, "cp_rank": 1, "cp_size": 2}
MASKS = ("prefix", "length")
STORAGES = [("i32", "int64"), ("i64", "int64"), ("f32", "float32"), ("prefix", "int64"), ("length", "int64")]


def use(monkeypatch: Monkey, device: LateDevice) -> LateDevice:
    monkeypatch.setattr(module, "_open_device", lambda asked: device)
    monkeypatch.setattr(_sending, "_said", set())
    return device


def wait_for_agent(loader: Any) -> None:
    """Until the agent has written wherever it may."""
    connection = loader._session._connection
    slots = connection.segment.slots
    for n in range(connection.next_seq, connection.next_seq + slots):
        w = connection._slot_words[(n - 1) % slots]
        end = time.monotonic() + 10
        while connection._words[w] < n <= connection._words[w + _sending._RELEASED] + slots:
            if time.monotonic() > end:
                raise RuntimeError(f"the agent does not write batch {n}")
            time.sleep(0.0002)


def plain(source: str = "/d", epochs: int = 1, **options: Any) -> list[dict[str, Any]]:
    with Loader(source, batch_size=4, max_length=8, **options) as loader:
        return [batch for _ in range(epochs) for batch in loader]


def assert_equal(found: list[dict[str, Any]], expected: list[dict[str, Any]]) -> None:
    assert len(found) == len(expected)
    for one, other in zip(found, expected):
        assert list(one) == list(other)
        for name in other:
            assert one[name].dtype == other[name].dtype and torch.equal(one[name], other[name]), name


# -- one slot


@pytest.mark.parametrize(
    "storage, dtype, scalar",
    [(*each, scalar) for each in STORAGES for scalar in (False, True) if not (scalar and each[0] in MASKS)],
)
@pytest.mark.parametrize("cut", [(0, 1, "contiguous"), (1, 2, "contiguous"), (0, 2, "zigzag"), (1, 2, "zigzag")])
@pytest.mark.parametrize("refusal", [None, "no"])
def test_every_storage_is_widened_as_in_this_process(
    storage: str, dtype: str, scalar: bool, cut: tuple[int, int, str], refusal: str | None
) -> None:
    mask = storage in MASKS
    random = np.random.default_rng(1)
    width = 1 if scalar else WIDTH
    base = -(-(layout.SLOT["identities"] + ROWS * layout.IDENTITY_BYTES) // 64) * 64
    kind = {"i32": "<i4", "i64": "<i8", "f32": "<f4"}.get(storage, "<u4")
    size = ROWS * (1 if mask else width) * np.dtype(kind).itemsize
    ahead = 64  # another column lies before it
    slot_bytes = -(-(base + ahead + size) // 64) * 64
    specs = [
        {"name": "first", "storage": "i32", "width": 1, "scalar": True, "dtype": "int64", "offset": base},
        {"name": "x", "storage": storage, "width": width, "scalar": scalar, "dtype": dtype, "offset": base + ahead},
    ]
    slices = Slices(WIDTH, *cut)
    columns = [Column(spec, slot_bytes, ROWS, slices) for spec in specs]
    segment = Segment.anonymous(3, slot_bytes)
    starts = [layout.HEADER_BYTES + slot * slot_bytes for slot in range(3)]
    for start in starts:
        values = random.integers(0, WIDTH + 1, size // np.dtype(kind).itemsize)
        if not mask:
            values = random.integers(-(2**31), 2**31, len(values)) * (2**31 if storage == "i64" else 1)
        segment.map[start + base + ahead : start + base + ahead + size] = values.astype(kind).tobytes()
    for column in columns:
        column.map(segment.map, starts, ROWS)
    device = LateDevice(refusal=refusal)
    sender = Sender(device, segment, columns, ROWS)
    for slot in (2, 0, 1):
        sent = sender.send(slot)
        assert (sent.copied is None) == (refusal is not None)
        sent.ready.synchronize()
        for column in columns:
            expected = column.take(PLAIN, slot, ROWS)
            assert sent.batch[column.name].dtype == expected.dtype
            assert torch.equal(sent.batch[column.name], expected)
    assert device.outside == 0
    sender.close()
    sender.close()
    assert device.registered == []
    for column in columns:
        column.unmap()
    segment.close()
    assert segment.map.closed


# -- a loader


@pytest.mark.parametrize("progress", [0, 1, 2, 9])
@pytest.mark.parametrize("refusal", [None, "no"])
@pytest.mark.parametrize("options", [{}, {"last": "pad", "identities": True}, {"padding": "longest"}, CP])
def test_batches_are_those_of_a_loader_without_a_device(
    fake: Path, monkeypatch: Monkey, progress: int, refusal: str | None, options: dict[str, Any]
) -> None:
    device = use(monkeypatch, LateDevice(progress, seed=progress, refusal=refusal))
    expected = plain(epochs=3, **options)
    held: list[dict[str, Any]] = []
    with Loader("/d", batch_size=4, max_length=8, device="cuda", timeout=20, **options) as loader:
        for number in range(3):
            for step, batch in enumerate(loader):
                assert all(device.holds(value) for value in batch.values())
                if step % 3 == number:
                    wait_for_agent(loader)  # the agent writes wherever it may
                held.append(batch)
                if step % 7 == 6:
                    device.read()  # as late as a user may
    device.read()
    assert_equal(held, expected)
    kept = {tensor.untyped_storage().data_ptr() for tensor in device.in_use}
    assert all(value.untyped_storage().data_ptr() in kept for batch in held for value in batch.values())
    assert device.outside == 0 and device.registered == []


def test_a_slot_is_the_agents_when_its_copy_is_done(fake: Path, monkeypatch: Monkey) -> None:
    device = use(monkeypatch, LateDevice())
    with Loader("/d", batch_size=4, max_length=8, device="cuda") as loader:
        batches = iter(loader)
        first = next(batches)
        wait_for_agent(loader)
        second = next(batches)
        connection = loader._session._connection  # type: ignore[union-attr]
        released = [connection._words[w + _sending._RELEASED] for w in connection._slot_words]
        assert released == [0] * 8 and connection.next_seq > 3  # more are on their way
        assert ids([first]) != [0, 1, 2, 3]  # nobody has waited for it
        device.read()
        assert ids([first, second]) == list(range(8))
        next(batches)
        assert connection._words[connection._slot_words[0] + _sending._RELEASED] == 1


def test_two_batches_are_on_their_way_while_a_step_runs(fake: Path, monkeypatch: Monkey) -> None:
    use(monkeypatch, LateDevice())
    with Loader("/d", batch_size=4, max_length=8, device="cuda") as loader:
        batches = iter(loader)
        next(batches)
        wait_for_agent(loader)
        next(batches)
        connection: Any = loader._session._connection  # type: ignore[union-attr]
        assert len(connection._flights) == 2 and len(connection._copies) == 4
        assert loader.state_dict()["position"] == "8"  # sent ahead is not handed out


def test_a_slow_agent_gets_its_slots_before_it_is_waited_for(fake: Path, monkeypatch: Monkey) -> None:
    monkeypatch.setenv("FAKE_FAULT", "slow:0.005")
    device = use(monkeypatch, LateDevice())  # copies end only when they are waited for
    with Loader("/d", batch_size=4, max_length=8, device="cuda", timeout=20) as loader:
        held = list(loader)
    assert device.synced > 0
    device.read()
    assert ids(held) == list(range(100))


def test_two_slots_are_enough(fake: Path, monkeypatch: Monkey) -> None:
    monkeypatch.setattr("athanor._session._SLOTS", 2)
    device = use(monkeypatch, LateDevice())
    with Loader("/d", batch_size=4, max_length=8, device="cuda", timeout=20) as loader:
        held = list(loader)
    device.read()
    assert ids(held) == list(range(100))


def test_a_state_leaves_out_what_was_only_sent(fake: Path, monkeypatch: Monkey) -> None:
    device = use(monkeypatch, LateDevice(1))
    expected = plain(epochs=2)
    with Loader("/d", batch_size=4, max_length=8, device="cuda") as loader:
        batches = iter(loader)
        held = [next(batches) for _ in range(10)]
        wait_for_agent(loader)
        held.append(next(batches))
        state = loader.state_dict()
        loader.load_state_dict(state)  # with two batches under way
        held += loader
        loader.set_epoch(0)
        again = next(iter(loader))
        loader.set_epoch(1)
        held += loader
    with Loader("/d", batch_size=4, max_length=8, device="cuda", state=state) as loader:
        rest = list(loader)
    device.read()
    assert_equal(held, expected)
    assert_equal([again], expected[:1])
    assert_equal(rest, expected[11:25])


@pytest.mark.parametrize("refusal", [None, "no"])
def test_a_new_agent_gets_memory_that_is_registered_anew(fake: Path, monkeypatch: Monkey, refusal: str | None) -> None:
    device = use(monkeypatch, LateDevice(refusal=refusal))
    with Loader("/d", batch_size=4, max_length=8, device="cuda") as loader:
        held = []
        for step, batch in zip(range(50), loader.repeat()):
            held.append(batch)
            if step in (5, 25):  # what is there of a dead agent is at most ten batches
                wait_for_agent(loader)
                for pid in agents_in(fake):
                    os.kill(pid, signal.SIGKILL)
        assert loader.stats()["agent_deaths"] >= 2
        assert len(device.registered) == (refusal is None)
    device.read()
    assert ids(held) == [*range(100), *range(100)]
    assert device.registered == []
    assert device.registrations >= 3 if refusal is None else device.registrations == 0


def test_an_agent_that_dies_in_between_loses_no_batch(fake: Path, monkeypatch: Monkey) -> None:
    monkeypatch.setenv("FAKE_FAULT", "die:9")
    device = use(monkeypatch, LateDevice(2))
    with Loader("/d", batch_size=4, max_length=8, device="cuda") as loader:
        held = list(loader)
    device.read()
    assert ids(held) == list(range(100))


def test_nothing_is_read_behind_close(fake: Path, monkeypatch: Monkey) -> None:
    device = use(monkeypatch, LateDevice())
    loader = Loader("/d", batch_size=4, max_length=8, device="cuda")
    held = [batch for batch, _ in zip(loader, range(3))]
    segment = loader._session._connection.segment  # type: ignore[union-attr]
    loader.close()
    assert segment.map.closed  # no tensor keeps it
    assert device.registered == []
    assert ids(held) == list(range(12))  # all copies were waited for
    again = Loader("/d", batch_size=4, max_length=8, device="cuda")
    next(iter(again))
    assert len(device.registered) == 1
    del again
    gc.collect()
    assert device.registered == []


def test_an_agent_that_writes_into_a_slot_under_way_is_refused(fake: Path, monkeypatch: Monkey) -> None:
    use(monkeypatch, LateDevice())
    with Loader("/d", batch_size=4, max_length=8, device="cuda") as loader:
        batches = iter(loader)
        next(batches)
        connection = loader._session._connection  # type: ignore[union-attr]
        connection._words[connection._slot_words[0]] = 17
        with pytest.raises(AthanorError, match="over batch 1 while it was being copied"):
            list(batches)


def test_a_length_beyond_the_width_is_refused(fake: Path, monkeypatch: Monkey) -> None:
    use(monkeypatch, LateDevice())
    with Loader("/d", batch_size=4, max_length=8, device="cuda") as loader:
        batches = iter(loader)
        next(batches)
        wait_for_agent(loader)
        connection = loader._session._connection  # type: ignore[union-attr]
        n = connection.next_seq
        connection._columns[2]._views[(n - 1) % 8][0] = 9
        with pytest.raises(AthanorError, match="length 9 in a width of 8"):
            list(batches)


def test_memory_that_cannot_be_registered_is_said_once(
    fake: Path, monkeypatch: Monkey, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "athanor")
    use(monkeypatch, LateDevice(refusal="cudaHostRegister: out of memory (2)"))
    for _ in range(2):
        with Loader("/d", batch_size=4, max_length=8, device="cuda") as loader:
            next(iter(loader))
    told = [record.getMessage() for record in caplog.records if "pinned" in record.getMessage()]
    assert len(told) == 1 and "cudaHostRegister: out of memory (2)" in told[0]


def test_a_forked_child_leaves_the_device_alone(fake: Path, monkeypatch: Monkey) -> None:
    device = use(monkeypatch, LateDevice())
    loader = Loader("/d", batch_size=4, max_length=8, device="cuda")
    batches = iter(loader)
    held = [next(batches)]
    child = os.fork()
    if child == 0:
        loader.close()
        os._exit(0 if device.done == 0 and len(device.registered) == 1 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    held += batches
    loader.close()
    device.read()
    assert ids(held) == list(range(100))


def test_transform_and_evaluation_are_on_the_device(fake: Path, monkeypatch: Monkey) -> None:
    device = use(monkeypatch, LateDevice(9))
    seen: list[bool] = []

    def transform(batch: dict[str, Any]) -> dict[str, Any]:
        seen.append(all(device.holds(value) for value in batch.values()))
        return batch

    with Loader("/d", batch_size=4, max_length=8, device="cuda", transform=transform) as loader:
        next(iter(loader))
        with loader.eval("/e") as evaluation:
            held = list(evaluation)
    device.read()
    assert ids(held) == list(range(100)) and all(seen) and len(seen) == 26
    assert all(bool(batch["valid"].all()) for batch in held)


# -- what is refused


@pytest.mark.parametrize("device", ["gpu", "mps", 1.5, "cuda:x"])
def test_other_devices_are_refused(fake: Path, device: object) -> None:
    with pytest.raises(ValueError, match="device must be"):
        Loader("/d", batch_size=4, device=device)


def test_the_cpu_is_no_device(fake: Path) -> None:
    with Loader("/d", batch_size=4, max_length=8, device="cpu") as loader:
        assert ids(loader) == list(range(100))


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_device_that_is_not_there_is_said(fake: Path) -> None:
    with Loader("/d", batch_size=4, device="cuda") as loader:
        with pytest.raises(ValueError, match="device must be one that torch can use in this process, got cuda: "):
            next(iter(loader))
        assert agents_in(fake) == []


def test_numpy_has_no_devices(fake: Path) -> None:
    from athanor.numpy import Loader as Numpy

    with pytest.raises(ValueError, match="device must be left out with numpy"):
        Numpy("/d", batch_size=4, device="cuda")


def test_workers_have_no_devices(fake: Path, monkeypatch: Monkey) -> None:
    dataset = AthanorDataset("/d", batch_size=4, max_length=8, device="cuda")
    assert len(dataset) == 25  # known without the device
    monkeypatch.setattr(module, "get_worker_info", lambda: SimpleNamespace(id=0, num_workers=1))
    with pytest.raises(ValueError, match="device must be left out with num_workers above 0"):
        iter(dataset)
    loader = Loader("/d", batch_size=4, device="cuda")
    with pytest.raises(ValueError, match="device must be left out in a DataLoader's worker"):
        next(iter(loader))


def test_a_loader_with_a_device_is_pickled_without_it(fake: Path, monkeypatch: Monkey) -> None:
    device = use(monkeypatch, LateDevice(9))
    with Loader("/d", batch_size=4, max_length=8, device="cuda:0") as loader:
        next(iter(loader))
        again = pickle.loads(pickle.dumps(loader))
    assert again._opened_device is None and again._device == torch.device("cuda", 0)
    held = list(again)
    again.close()
    device.read()
    assert ids(held) == list(range(100))


# -- what is run where there is a GPU


def test_the_benchmark_compares_and_counts(fake: Path, monkeypatch: Monkey) -> None:
    device = use(monkeypatch, LateDevice(2))
    options = {"batch_size": 4, "max_length": 8}
    lines = list(bench.bench("/d", options, 30, 2, {"direct": device}, device.read))
    assert [line["batches_equal"] for line in lines] == [30] and lines[0]["samples_s"]["median"] > 0
    with Loader("/d", **options, seed=1) as one, Loader("/d", **options) as other:
        wrong = ({**batch, "input_ids": batch["input_ids"] + (batch["id"][:, None] == 9)} for batch in one)
        with pytest.raises(ValueError, match="batch 2: input_ids differs"):
            bench.compared(iter(wrong), iter(other), device.read)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_the_benchmark_says_that_there_is_no_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    assert bench.main(["/d"]) == 2
    assert "device must be one that torch can use" in capsys.readouterr().err
