"""Values that are not there, and values that no column can hold: never zeros and infinities in silence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tfrecord_writer
from athanor.errors import AthanorError
from athanor.numpy import Loader

N = 40
BAD = 13


@pytest.fixture(autouse=True)
def live(run_dir: Path) -> Path:
    return run_dir


def records(value: Any, column: str) -> list[dict[str, Any]]:
    """Ids, and 7 in `column` but for record BAD; without it where `value` is None."""
    made: list[dict[str, Any]] = [{"id": i, "input_ids": [i, i + 1]} for i in range(N)]
    for i, record in enumerate(made):
        if i != BAD:
            record[column] = 7.5 if column == "score" else 7
        elif value is not None:
            record[column] = value
    return made


def write(folder: Path, kind: str, made: list[dict[str, Any]]) -> str:
    folder.mkdir()
    if kind == "jsonl":
        (folder / "a.jsonl").write_text("".join(json.dumps(record) + "\n" for record in made))
    elif kind == "tfrecord":
        lists = [{k: [v] if isinstance(v, float) else v for k, v in record.items()} for record in made]
        tfrecord_writer.write(folder / "a.tfrecord", lists)
    else:
        pa = pytest.importorskip("pyarrow", reason="skipped: pyarrow is not installed")
        pq = pytest.importorskip("pyarrow.parquet")
        names = sorted({name for record in made for name in record})
        pq.write_table(pa.table({k: [record.get(k) for record in made] for k in names}), folder / "a.parquet")
    return str(folder)


def served(data: str, column: str, **options: Any) -> dict[int, Any]:
    with Loader(data, batch_size=8, shuffle="none", columns=["id", column], **options) as loader:
        return {int(i): v for batch in loader for i, v in zip(batch["id"], batch[column].tolist())}


def refused(data: str, column: str, code: str, **options: Any) -> None:
    with pytest.raises(AthanorError) as raised:
        served(data, column, **options)
    assert (raised.value.code, raised.value.record) == (code, BAD)
    assert column in str(raised.value)


@pytest.mark.parametrize("column", ["label", "score"])
@pytest.mark.parametrize("kind", ["jsonl", "parquet", "tfrecord"])
def test_a_null_among_single_values_was_a_zero(
    tmp_path: Path, kind: str, column: str, caplog: pytest.LogCaptureFixture
) -> None:
    data = write(tmp_path / "data", kind, records(None, column))
    refused(data, column, "ATH_VALUE_MISSING")
    assert f"column {column} has no value in 1 of {N} records" in caplog.text
    found = served(data, column, on_corrupt="replace", ledger_dir=tmp_path / "ledger")
    assert sorted(found) == [i for i in range(N) if i != BAD] and 0 not in found.values()
    if kind == "tfrecord":
        refused(data, column, "ATH_VALUE_MISSING", agent="none")
        again = served(data, column, agent="none", on_corrupt="replace", ledger_dir=tmp_path / "ledger")
        assert again == found


def test_a_shard_without_a_column_of_single_values_gave_zeros(tmp_path: Path) -> None:
    folder = Path(write(tmp_path / "data", "parquet", records(7, "label")))
    write(tmp_path / "b", "parquet", [{"id": N + i, "input_ids": [1]} for i in range(N)])
    (tmp_path / "b" / "a.parquet").rename(folder / "b.parquet")
    with pytest.raises(AthanorError, match="ATH_VALUE_MISSING") as raised:
        served(str(folder), "label")
    assert raised.value.record == 0 and str(raised.value.file).endswith("b.parquet")


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_a_number_beyond_float32_was_an_infinity(tmp_path: Path, kind: str) -> None:
    data = write(tmp_path / "data", kind, records(-1e300, "score"))
    refused(data, "score", "ATH_VALUE_RANGE")
    largest = write(tmp_path / "fits", kind, records(3.4028235e38, "score"))
    assert served(largest, "score")[BAD] == pytest.approx(3.4028235e38)


def test_infinities_of_the_data_are_delivered(tmp_path: Path) -> None:
    data = write(tmp_path / "data", "parquet", records(float("-inf"), "score"))
    assert served(data, "score")[BAD] == float("-inf")


def test_arguments_that_the_agent_refused_in_its_own_words(tmp_path: Path) -> None:
    data = write(tmp_path / "data", "jsonl", records(7, "label"))
    with pytest.raises(ValueError, match=r"columns must name each feature once, got \['id', 'id'\]"):
        Loader(data, batch_size=8, columns=["id", "id"])
    for sizes in ({"batch_size": 10**9}, {"global_batch_size": 10**9}, {"batch_size": 10**9, "grad_accum": 2}):
        with pytest.raises(ValueError, match="batch_size must be at most 1048576, got 1000000000"):
            Loader(data, **sizes)


def test_a_damaged_field_was_told_of_as_values_missing_in_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    h5py = pytest.importorskip("h5py", reason="skipped: h5py is not installed")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["id"] = np.arange(100)
        tokens = file.create_dataset("input_ids", data=np.ones((100, 4), "i8"), chunks=(10, 4), compression="gzip")
        tokens.id.write_direct_chunk((20, 0), b"nonsense" * 20)
    options = {"on_corrupt": "replace", "corrupt_quota": 100, "ledger_dir": str(tmp_path / "ledger")}
    with Loader(str(tmp_path / "a.h5"), batch_size=10, **options) as loader:
        ids = [int(i) for batch in loader for i in batch["id"]]
    assert not set(ids) & set(range(20, 30)) and set(ids) == {*range(20), *range(30, 100)}
    assert "has no value" not in caplog.text


@pytest.mark.parametrize("kind", ["jsonl", "hdf5", "tfrecord"])
def test_a_set_without_records_was_told_that_it_needs_a_tokenizer(tmp_path: Path, kind: str) -> None:
    if kind == "hdf5":
        h5py = pytest.importorskip("h5py", reason="skipped: h5py is not installed")
        with h5py.File(tmp_path / "a.h5", "w") as file:
            file["input_ids"] = np.zeros((0, 5), "i8")
    else:
        (tmp_path / f"a.{kind}").touch()
    with pytest.raises(AthanorError, match="0 records") as raised:
        list(Loader(str(tmp_path), batch_size=4))
    assert raised.value.code == "ATH_ORDER_OPTION"
