"""Damage under packed rows: of the counts, of records, of pages; and its repair by `athanor index --view`."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from athanor import AthanorError
from athanor.numpy import Loader
from conftest import athanor
from packed_sets import MAX, TOKENIZER, blocks_of, documents, packed_rows, write_jsonl

pytestmark = pytest.mark.usefixtures("run_dir")


@pytest.mark.parametrize("damage", ["cut in the header", "cut", "count", "json", "of another shard"])
def test_damaged_counts_are_counted_again_by_the_command_that_the_loader_names(tmp_path: Path, damage: str) -> None:
    data = write_jsonl(tmp_path / "data", [documents(40), documents(41), documents(40)])
    flags = ("--max-length", MAX, "--sample-rule", "pack", "--json")
    first = json.loads(athanor("index", data, "--view", *flags).stdout)
    files = [*(data / ".athanor/views").glob("*/*.bin")]
    own, other = (next(file for file in files if name in file.read_bytes()) for name in (b'"0.jsonl"', b'"2.jsonl"'))
    whole = own.read_bytes()
    broken = {
        "cut in the header": whole[:30],
        "cut": whole[:-5],
        "count": whole[:70] + bytes([whole[70] ^ 1]) + whole[71:],
        "json": whole[:-3] + bytes([whole[-3] ^ 1]) + whole[-2:],
        "of another shard": other.read_bytes(),
    }
    own.write_bytes(broken[damage])
    with pytest.raises(AthanorError, match=r"index --view") as caught:
        list(Loader(str(data), batch_size=1, max_length=MAX, sample_rule="pack"))
    assert caught.value.code == "ATH_INDEX_CORRUPT"
    again = athanor("index", data, "--view", *flags)
    assert "counted again" in again.stderr
    assert json.loads(again.stdout)["counted"] == 1
    assert own.read_bytes() == whole
    with Loader(str(data), batch_size=1, max_length=MAX, sample_rule="pack") as loader:
        assert sum(1 for _ in loader) == first["rows"]


def test_damaged_counts_and_lists_that_do_not_go_together(tmp_path: Path) -> None:
    records = documents(50)
    data = write_jsonl(tmp_path / "data", [records])
    assert packed_rows(data)
    (folder,) = (path for path in (data / ".athanor" / "views").iterdir() if path.is_dir())
    (file,) = folder.iterdir()
    whole = bytearray(file.read_bytes())
    whole[80] ^= 1
    file.write_bytes(whole)
    with pytest.raises(AthanorError, match="damaged") as caught:
        packed_rows(data)
    assert caught.value.code == "ATH_INDEX_CORRUPT"
    assert caught.value.file == str(file)
    odd = tmp_path / "odd"
    odd.mkdir()
    lines = [{"input_ids": [1, 2], "labels": [1]}, {"input_ids": [1], "labels": [1, 2]}]
    (odd / "a.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(AthanorError, match="labels") as caught:
        packed_rows(odd)
    assert (caught.value.code, caught.value.record) == ("ATH_RECORD_MALFORMED", 0)


def test_bad_records_end_the_counting_or_are_in_no_row(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    data = tmp_path / "data"
    data.mkdir()
    texts = [b"\xff\xfe" if i % 40 == 7 else b"one two three " * (i % 9) for i in range(120)]
    pq.write_table(pa.table({"text": pa.array(texts, pa.binary())}), data / "a.parquet")
    options: dict[str, Any] = {"tokenizer": TOKENIZER, "add_special_tokens": "both"}
    replace = options | {"on_corrupt": "replace", "ledger_dir": str(tmp_path / "ledger")}
    with pytest.raises(AthanorError, match="not UTF-8") as caught:
        packed_rows(data, **options)
    assert (caught.value.code, caught.value.record) == ("ATH_RECORD_MALFORMED", 7)
    for rule in ("pack", "split"):
        with Loader(str(data), batch_size=1, max_length=16, last="pad", sample_rule=rule, **replace) as loader:
            tokens = sum(int(batch["attention_mask"].sum()) for batch in loader)
        with Loader(str(data), batch_size=1, max_length=4096, last="pad", **replace) as loader:
            whole = [int(batch["attention_mask"].sum()) for batch in loader]
        assert len(whole) == 120
        lengths = [n for block in blocks_of(data) for n in block]
        assert [i for i, n in enumerate(lengths) if n == 2**32 - 1] == [7, 47, 87]
        assert tokens == sum(n for n in lengths if n != 2**32 - 1)
    with pytest.raises(AthanorError, match="3 bad records were left out") as caught:
        packed_rows(data, **options)
    assert (caught.value.code, caught.value.record) == ("ATH_RECORD_MALFORMED", 7)
    with pytest.raises(AthanorError, match="corrupt_quota is 2") as caught:
        packed_rows(data, **(replace | {"corrupt_quota": 2}))
    assert caught.value.code == "ATH_QUARANTINE_QUOTA"
    flags = ("--tokenizer", TOKENIZER, "--add-special-tokens", "both", "--sample-rule", "pack", "--max-length", 16)
    kept = athanor("index", data, "--view", "--rebuild", "--on-corrupt", "keep", *flags)
    assert kept.returncode == 0
    assert "3 bad records in no row" in kept.stderr
    ended = athanor("index", data, "--view", "--rebuild", *flags)
    assert ended.returncode == 1
    assert "record 7" in ended.stderr


def test_counting_anew_makes_the_rows_of_a_repaired_page_anew(tmp_path: Path) -> None:
    """The footer of a Parquet file, all that names the data, is the same before and after."""
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    data = tmp_path / "data"
    data.mkdir()
    file = data / "a.parquet"
    ids = [[1000 + i] * 30 for i in range(100)]
    table = pa.table({"input_ids": pa.array(ids, pa.list_(pa.int32()))})
    pq.write_table(table, file, row_group_size=50, compression="zstd")
    flags = ("--view", "--sample-rule", "pack", "--max-length", 60, "--json")
    whole, stat = file.read_bytes(), file.stat()

    def put(content: bytes) -> None:
        file.write_bytes(content)
        os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))

    assert athanor("index", data).returncode == 0
    at = pq.ParquetFile(file).metadata.row_group(1).column(0)
    page = at.dictionary_page_offset or at.data_page_offset
    put(whole[:page] + bytes(b ^ 0xFF for b in whole[page : page + 40]) + whole[page + 40 :])
    kept = json.loads(athanor("index", data, *flags, "--on-corrupt", "keep").stdout)
    assert (kept["rows"], kept["bad"]) == (25, 50)
    put(whole)
    again = json.loads(athanor("index", data, *flags, "--rebuild").stdout)
    assert (again["view"], again["rows"], again["tokens"], again["bad"]) == (kept["view"], 50, 3000, 0)
    with Loader(str(data), batch_size=1, max_length=60, sample_rule="pack") as loader:
        found = [int(n) for batch in loader for n in batch["input_ids"].ravel()]
    assert sorted(found) == sorted(n for row in ids for n in row)
