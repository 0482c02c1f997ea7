"""Batches on a late device (`late_device.py`) against the real agent: columns of all kinds, slices, packed rows, and
none. They are those of a loader without a device."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from packed_sets import MAX, documents
from tfrecord_writer import write

torch = pytest.importorskip("torch")

from athanor.torch import Loader  # noqa: E402
from late_device import LateDevice  # noqa: E402
from test_device import assert_equal, use  # noqa: E402

pytestmark = pytest.mark.usefixtures("run_dir")
WIDE = {"columns": ["id", "input_ids", "labels", "weight", "hash", "attention_mask"]}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("device")
    records = [
        {
            "id": i,
            "input_ids": ids,
            "labels": [-n for n in ids],
            "weight": [n / 4 for n in ids],
            "hash": [2**40 + n for n in ids],
        }
        for i, ids in enumerate(filter(None, documents(150)))
    ]
    for shard in range(3):
        write(folder / f"{shard}.tfrecord", records[shard::3])
    return str(folder)


@pytest.mark.parametrize("refusal", [None, "no"])
@pytest.mark.parametrize(
    "options",
    [
        {**WIDE, "identities": True},
        {**WIDE, "dp_rank": 0, "dp_world_size": 1, "cp_rank": 1, "cp_size": 2},
        {**WIDE, "dp_rank": 0, "dp_world_size": 1, "cp_rank": 0, "cp_size": 2, "cp_split": "contiguous"},
        {"padding": "longest", "pad_to_multiple_of": 8},
        {"agent": "none", **WIDE, "last": "pad"},
    ],
)
def test_batches_are_the_same(data: str, monkeypatch: Any, options: dict[str, Any], refusal: str | None) -> None:
    compare(data, monkeypatch, {"batch_size": 8, "max_length": MAX, "seed": 3, **options}, refusal)


def test_packed_rows_are_the_same(tmp_path: Path, monkeypatch: Any) -> None:
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    pq.write_table(pa.table({"input_ids": pa.array(documents(300), pa.list_(pa.int64()))}), tmp_path / "a.parquet")
    options = {"batch_size": 4, "max_length": MAX, "sample_rule": "pack", "columns": ["input_ids", "attention_mask"]}
    compare(str(tmp_path), monkeypatch, options, None)


def compare(data: str, monkeypatch: Any, options: dict[str, Any], refusal: str | None) -> None:
    device = use(monkeypatch, LateDevice(1, refusal=refusal))
    with Loader(data, **options) as loader:
        expected = [batch for _ in range(2) for batch in loader]
    assert len(expected) > 8
    with Loader(data, **options, device="cuda") as loader:
        held = [batch for _ in range(2) for batch in loader]
    device.read()
    for one, other in zip(held, expected):
        assert one.pop("max_seqlen", None) == other.pop("max_seqlen", None)
    assert_equal(held, expected)
    assert all(device.holds(value) for batch in held for value in batch.values())
    assert device.registered == []
