"""Text and chats in TFRecord: the same rows as of JSON Lines, and damaged records by number."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from typing import Any

import pytest

import tfrecord_writer
from athanor import AthanorError
from athanor.torch import Loader
from conftest import ROOT, athanor

FOLDER = ROOT / "test/fixtures/tokenizer/deepseek"
CHATML = ROOT / "test/fixtures/chat/chatml.jinja"
RECORDS: list[dict[str, Any]] = [
    {
        "id": i,
        "text": None if i == 7 else "" if i == 8 else f"document {i} " + "wörds 你 " * (i % 23),
        "talk": json.dumps([{"role": "user", "content": f"q{i}"}, {"role": "assistant", "content": "a" * (i % 9 + 1)}]),
    }
    for i in range(150)
]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    for name in ("plain", "gzip", "jsonl"):
        (tmp_path / name).mkdir()
    plain = tmp_path / "plain/a.tfrecord"
    tfrecord_writer.write(plain, RECORDS)
    (tmp_path / "gzip/a.tfrecord.gz").write_bytes(gzip.compress(plain.read_bytes()))
    (tmp_path / "jsonl/a.jsonl").write_text("".join(json.dumps(record) + "\n" for record in RECORDS))
    return tmp_path


def rows(source: Path, **options: Any) -> dict[int, dict[str, list[int]]]:
    options = {"batch_size": 8, "max_length": 40, "last": "pad", "shuffle": "none", "tokenizer": FOLDER} | options
    out = {}
    with Loader(source, **options) as loader:
        for batch in loader:
            for i in range(len(batch["id"])):
                if bool(batch["valid"][i]):
                    out[int(batch["id"][i])] = {name: values[i].tolist() for name, values in batch.items()}
    return out


def test_rows_are_those_of_json_lines(run_dir: Path, data: Path) -> None:
    text = {"columns": ["input_ids", "attention_mask", "id"], "text_column": "text"}
    chat = {"columns": ["input_ids", "loss_mask", "id"], "messages_column": "talk", "chat_template": CHATML}
    for options in (text, chat):
        expected = rows(data / "jsonl", **options)
        assert sorted(expected) == list(range(len(RECORDS)))
        assert rows(data / "plain", **options) == expected
        assert rows(data / "gzip", **options) == expected
        assert rows(data / "plain", **(options | {"shuffle": "global", "seed": 3})) == expected


@pytest.mark.parametrize("rule", ["split", "pack"])
def test_split_and_packed_rows_are_those_of_json_lines(run_dir: Path, data: Path, rule: str) -> None:
    options: dict[str, Any] = {"text_column": "text", "sample_rule": rule, "batch_size": 8, "max_length": 40}

    def all_rows(source: Path) -> list[dict[str, Any]]:
        with Loader(source, tokenizer=FOLDER, last="pad", shuffle="none", **options) as loader:
            return [{name: getattr(v, "tolist", lambda v=v: v)() for name, v in batch.items()} for batch in loader]

    expected = all_rows(data / "jsonl")
    tokens = sum(sum(map(sum, batch["attention_mask"])) for batch in expected)
    assert tokens > 1500 and ("cu_seqlens" in expected[0]) == (rule == "pack")
    assert all_rows(data / "plain") == expected
    assert all_rows(data / "gzip") == expected


def test_damaged_records(run_dir: Path, data: Path) -> None:
    options: dict[str, Any] = {"columns": ["input_ids", "id"], "text_column": "text"}
    whole = rows(data / "plain", **options)
    frames = [tfrecord_writer.frame(tfrecord_writer.example(record)) for record in RECORDS]
    begins = [sum(map(len, frames[:i])) for i in range(len(frames))]
    path = data / "plain/a.tfrecord"
    raw = bytearray(path.read_bytes())
    raw[begins[20] + 30] ^= 1  # a payload
    raw[begins[90]] ^= 1  # a length: the rest of its 64 records is found again, or lost with it
    mtime = path.stat().st_mtime_ns
    path.write_bytes(raw)
    os.utime(path, ns=(mtime, mtime))
    with pytest.raises(AthanorError, match="CRC") as caught:
        rows(data / "plain", **options)
    assert (caught.value.code, caught.value.record) == ("ATH_RECORD_CRC", 20)
    replaced = rows(data / "plain", **options, on_corrupt="replace", ledger_dir=data / "ledger")
    assert 20 not in replaced and 90 not in replaced
    assert {i: row for i, row in whole.items() if i in replaced} == replaced
    assert set(replaced) >= {*range(20), *range(21, 64), *range(64, 90), *range(128, 150)}


KINDS = {"bytes": 0x0A, "float": 0x12, "int64": 0x1A}


def give_another_kind(path: Path, records: list[dict[str, Any]], odd: int, name: str, kind: str) -> None:
    """Makes a list one of another kind, of the same bytes: the shard keeps its size and time, the record its CRC."""
    payloads = [tfrecord_writer.example(record) for record in records]
    payload = bytearray(payloads[odd])
    # The name, then the value's tag and length, then the tag of the list.
    tag = payload.index(tfrecord_writer.field(1, name.encode())) + len(name) + 4
    assert payload[tag] in KINDS.values()
    payload[tag] = KINDS[kind]
    payloads[odd] = bytes(payload)
    mtime = path.stat().st_mtime_ns
    path.write_bytes(b"".join(map(tfrecord_writer.frame, payloads)))
    os.utime(path, ns=(mtime, mtime))


@pytest.mark.parametrize("odd", [0, 70, 149])
@pytest.mark.parametrize("kind", ["int64", "float"])
def test_a_record_with_a_list_of_another_kind_is_bad_alone(run_dir: Path, tmp_path: Path, odd: int, kind: str) -> None:
    records = [{"id": i, "text": f"document {i:03} old"} for i in range(150)]
    path = tmp_path / "data/a.tfrecord"
    path.parent.mkdir()
    tfrecord_writer.write(path, records)
    options: dict[str, Any] = {"columns": ["input_ids", "attention_mask", "id"], "text_column": "text"}
    whole = rows(path.parent, **options)
    assert sorted(whole) == list(range(150))
    give_another_kind(path, records, odd, "text", kind)
    with pytest.raises(AthanorError, match=f"holds a list of {kind}, expected bytes") as caught:
        rows(path.parent, **options)
    assert (caught.value.code, caught.value.record) == ("ATH_FEATURE_KIND", odd)
    replaced = rows(path.parent, **options, on_corrupt="replace", ledger_dir=tmp_path / "ledger")
    assert replaced == {i: row for i, row in whole.items() if i != odd}
    command = ["index", path.parent, "--view", "--json"]
    command += ["--tokenizer", FOLDER, "--sample-rule", "pack", "--max-length", 40]
    ended = athanor(*command)
    assert ended.returncode == 1
    assert (error := json.loads(ended.stderr.splitlines()[-1])["error"])["code"] == "ATH_FEATURE_KIND"
    assert error["record"] == odd
    kept = athanor(*command, "--on-corrupt", "keep")
    facts = json.loads(kept.stdout)
    assert (facts["bad"], facts["records"]) == (1, 150)
    assert facts["tokens"] == sum(sum(row["attention_mask"]) for i, row in whole.items() if i != odd)


@pytest.mark.parametrize("rule", ["split", "pack"])
def test_floats_among_ids_are_a_bad_record_not_ids(run_dir: Path, tmp_path: Path, rule: str) -> None:
    records: list[dict[str, Any]] = [{"input_ids": [i + 1] * 8} for i in range(100)]
    path = tmp_path / "data/a.tfrecord"
    path.parent.mkdir()
    tfrecord_writer.write(path, records)
    options: dict[str, Any] = {"sample_rule": rule, "batch_size": 4, "max_length": 16, "last": "pad", "shuffle": "none"}

    def ids(**more: Any) -> set[int]:
        with Loader(path.parent, **options, **more) as loader:
            return {n for batch in loader for row in batch["input_ids"].tolist() for n in row} - {0}

    assert athanor("index", path.parent).returncode == 0
    for odd in (0, 40, 99):
        give_another_kind(path, records, odd, "input_ids", "float")
        with pytest.raises(AthanorError, match="holds a list of float, expected int64") as caught:
            ids()
        assert (caught.value.code, caught.value.record) == ("ATH_FEATURE_KIND", odd)
    assert ids(on_corrupt="replace", ledger_dir=tmp_path / "ledger") == set(range(1, 100))


def test_several_texts_in_a_feature_and_ids_beside_the_text(run_dir: Path, tmp_path: Path) -> None:
    feature = b"".join(tfrecord_writer.field(1, text) for text in (b"one", b"two"))
    entry = tfrecord_writer.field(1, b"text") + tfrecord_writer.field(2, tfrecord_writer.field(1, feature))
    payload = tfrecord_writer.field(1, tfrecord_writer.field(1, entry))
    (tmp_path / "two").mkdir()
    (tmp_path / "two/a.tfrecord").write_bytes(tfrecord_writer.frame(payload))
    with (
        pytest.raises(AthanorError, match="2 texts") as caught,
        Loader(tmp_path / "two", tokenizer=FOLDER, batch_size=1) as loader,
    ):
        next(iter(loader))
    assert (caught.value.code, caught.value.record) == ("ATH_RECORD_MALFORMED", 0)
    (tmp_path / "ids").mkdir()
    tfrecord_writer.write(tmp_path / "ids/a.tfrecord", [{"input_ids": [1, 2], "text": "x"}])
    with (
        pytest.raises(AthanorError, match="of its own beside the text") as caught,
        Loader(tmp_path / "ids", tokenizer=FOLDER, batch_size=1) as loader,
    ):
        next(iter(loader))
    assert caught.value.code == "ATH_COLUMN_UNKNOWN"
