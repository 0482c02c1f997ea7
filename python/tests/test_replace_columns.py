"""Bad records of column formats with on_corrupt="replace": pages, chunks and values of Parquet, Zarr and HDF5."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from athanor.errors import AthanorError
from athanor.numpy import Loader


@pytest.fixture(autouse=True)
def live(run_dir: Path) -> Path:
    return run_dir


OPTIONS: dict[str, Any] = {"batch_size": 10, "shuffle": "none", "columns": ["id"], "on_corrupt": "replace"}


def served(data: Path, ledger: Path, steps: int | None = None, **options: Any) -> list[int]:
    with Loader(str(data), ledger_dir=ledger, **{**OPTIONS, **options}) as loader:
        found: list[int] = []
        for step, batch in enumerate(loader):
            if step == steps:
                break
            found += [int(number) for number in batch["id"].reshape(-1)]
    return found


def change(path: Path, at: int) -> None:
    """One byte, under the same size and mtime."""
    found = os.stat(path)
    data = bytearray(path.read_bytes())
    data[at] ^= 0x10
    path.write_bytes(data)
    os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))


def index(data: Path) -> None:
    with Loader(str(data), batch_size=10, columns=["id"]) as loader:
        next(iter(loader))


@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_a_damaged_parquet_page_ended_a_run_that_was_to_replace(tmp_path: Path, compression: str) -> None:
    pa = pytest.importorskip("pyarrow", reason="skipped: pyarrow is not installed")
    pq = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "data" / "a.parquet"
    path.parent.mkdir()
    table = pa.table({"id": pa.array(range(200), pa.int64())})
    pq.write_table(
        table, path, row_group_size=50, compression=compression, use_dictionary=False, write_page_checksum=True
    )
    index(path.parent)
    chunk = pq.ParquetFile(path).metadata.row_group(2).column(0)
    change(path, chunk.data_page_offset + chunk.total_compressed_size - 20)
    with pytest.raises(AthanorError) as raised:
        served(path.parent, tmp_path / "ledger", on_corrupt="raise")
    assert raised.value.code == "ATH_RECORD_CRC"
    # No record of the row group is good: those of the one before stand in.
    expected = [number - 50 if 100 <= number < 150 else number for number in range(200)]
    assert served(path.parent, tmp_path / "ledger") == expected
    lines = [json.loads(line) for file in (tmp_path / "ledger").iterdir() for line in file.open()]
    assert {line["code"] for line in lines} == {"ATH_RECORD_CRC"}
    assert [line["record"] for line in lines] == list(range(100, 150))


def test_a_null_in_one_list_of_a_parquet_block_hid_the_field(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow", reason="skipped: pyarrow is not installed")
    pq = pytest.importorskip("pyarrow.parquet")
    data = tmp_path / "data"
    data.mkdir()
    lists: list[list[int | None]] = [[i, 2**40] for i in range(100)]
    lists[40] = [1, None, 3]
    pq.write_table(pa.table({"id": range(100), "input_ids": pa.array(lists, pa.list_(pa.int64()))}), data / "a.parquet")
    options: dict[str, Any] = {"columns": ["id", "input_ids"], "max_length": 3}
    with Loader(str(data), ledger_dir=tmp_path / "ledger", **{**OPTIONS, "batch_size": 100, **options}) as loader:
        batch = next(iter(loader))
    expected = [41 if i == 40 else i for i in range(100)]
    assert batch["id"].reshape(-1).tolist() == expected
    assert batch["input_ids"].tolist() == [[i, 2**40, 0] for i in expected]
    with pytest.raises(AthanorError) as raised:
        served(data, tmp_path / "ledger", on_corrupt="raise", **options)
    assert (raised.value.code, raised.value.record) == ("ATH_RECORD_MALFORMED", 40)


def test_an_hdf5_value_that_is_too_large_left_a_ledger_that_no_run_could_read(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py", reason="skipped: h5py is not installed")
    path = tmp_path / "data" / "a.h5"
    path.parent.mkdir()
    numbers = np.arange(100, dtype="u8")
    numbers[[7, 60]] = 2**63 + 5
    with h5py.File(path, "w") as file:
        file["id"] = numbers
    expected = [{7: 8, 60: 61}.get(number, number) for number in range(100)]
    for _ in range(2):
        assert served(path.parent, tmp_path / "ledger") == expected


def test_a_damaged_zarr_chunk_of_many_rows_kept_the_agent_busy_for_minutes(tmp_path: Path) -> None:
    zarr = pytest.importorskip("zarr", reason="skipped: zarr is not installed")
    numcodecs = pytest.importorskip("numcodecs")
    rows, chunk = 150_000, 60_000
    group = zarr.open_group(str(tmp_path / "data" / "a.zarr"), mode="w", zarr_format=2)
    made = group.create_array("id", shape=(rows,), chunks=(chunk,), dtype="i4", compressors=[numcodecs.GZip(1)])
    made[:] = np.arange(rows, dtype="i4")
    index(tmp_path / "data")
    path = tmp_path / "data" / "a.zarr" / "id" / "1"
    change(path, path.stat().st_size // 2)
    with pytest.raises(AthanorError) as raised:
        served(tmp_path / "data", tmp_path / "few", batch_size=1000)
    assert raised.value.code == "ATH_QUARANTINE_QUOTA"
    began = time.monotonic()
    found = served(tmp_path / "data", tmp_path / "ledger", batch_size=1000, corrupt_quota=rows)
    assert time.monotonic() - began < 60
    expected = [number - chunk if chunk <= number < 2 * chunk else number for number in range(rows)]
    assert found == expected
