"""A hash of 64 bits without sign made a whole HDF5 or Zarr set unreadable: the records are good but for that field."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from athanor.errors import AthanorError
from athanor.numpy import Loader
from conftest import athanor

N = 300
FIRST = 7
IDS = np.arange(N * 4, dtype=np.int32).reshape(N, 4)
HASH = np.where(np.arange(N) % 3 == 1, np.arange(N, dtype=np.uint64) + np.uint64(2**63), np.arange(N, dtype=np.uint64))
HASH[:FIRST] = 1
BEYOND = [i for i in range(FIRST, N) if i % 3 == 1]


@pytest.fixture(autouse=True)
def live(run_dir: Path) -> Path:
    return run_dir


def write(folder: Path, kind: str) -> str:
    folder.mkdir()
    if kind == "hdf5":
        h5py = pytest.importorskip("h5py", reason="skipped: h5py is not installed")
        with h5py.File(folder / "a.h5", "w") as file:
            file["input_ids"] = IDS
            file.create_dataset("hash", data=HASH, chunks=(50,), compression="gzip")
            file["id"] = np.arange(N)
    elif kind == "zarr":
        zarr = pytest.importorskip("zarr", reason="skipped: zarr is not installed")
        zarr.save_group(str(folder / "a.zarr"), input_ids=IDS, hash=HASH, id=np.arange(N))
    else:
        pa = pytest.importorskip("pyarrow", reason="skipped: pyarrow is not installed")
        pq = pytest.importorskip("pyarrow.parquet")
        table = pa.table({"input_ids": IDS.tolist(), "hash": HASH, "id": np.arange(N)})
        pq.write_table(table, folder / "a.parquet")
    return str(folder)


KINDS = pytest.mark.parametrize("kind", ["hdf5", "zarr", "parquet"])


@KINDS
def test_other_fields_are_not_touched(tmp_path: Path, kind: str, caplog: pytest.LogCaptureFixture) -> None:
    data = write(tmp_path / "data", kind)
    for columns in (["input_ids", "id"], None):
        with Loader(data, batch_size=30, shuffle="none", columns=columns, max_length=4) as loader:
            batches = list(loader)
        assert "hash" not in batches[0]
        assert np.array_equal(np.concatenate([batch["input_ids"] for batch in batches]), IDS)
        assert np.array_equal(np.concatenate([batch["id"] for batch in batches]), np.arange(N))
    assert f"not delivered (numbers beyond int64): hash (record {FIRST} of a." in caplog.text
    assert f"; {len(BEYOND)} such records)" in caplog.text and "ATH_VALUE_MISSING" not in caplog.text


@KINDS
def test_whoever_asks_for_it_gets_the_record(tmp_path: Path, kind: str, caplog: pytest.LogCaptureFixture) -> None:
    data = write(tmp_path / "data", kind)
    asking = Loader(data, batch_size=30, shuffle="none", columns=["id", "hash"])
    with asking as loader, pytest.raises(AthanorError) as raised:
        list(loader)
    assert (raised.value.code, raised.value.record) == ("ATH_VALUE_RANGE", FIRST)
    assert f"hash has values beyond int64 in {len(BEYOND)} of {N} records" in caplog.text
    assert "ATH_VALUE_MISSING" not in caplog.text
    options = {"on_corrupt": "replace", "corrupt_quota": N, "ledger_dir": str(tmp_path / "ledger")}
    with Loader(data, batch_size=30, shuffle="none", columns=["id", "hash"], **options) as loader:
        found = [(int(i), int(h)) for batch in loader for i, h in zip(batch["id"], batch["hash"])]
    assert all(h == HASH[i] and i not in BEYOND for i, h in found) and len(found) == N


@KINDS
def test_inspect_and_cat_say_what_is_there(tmp_path: Path, kind: str) -> None:
    data = write(tmp_path / "data", kind)
    shown = athanor("inspect", data)
    assert shown.returncode == 0, shown.stderr
    line = f"not delivered unless asked for: hash ({len(BEYOND)} records beyond int64): record {FIRST} of a."
    assert line in shown.stdout
    rows = [json.loads(row) for row in athanor("cat", data).stdout.splitlines()]
    assert [int(row["hash"]) for row in rows] == HASH.tolist()
    assert athanor("verify", data).returncode == 0
