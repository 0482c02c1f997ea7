"""JSON Lines and JSON arrays as `athanor cat` reads them against Python's json, and a Loader over shards of them."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path
from typing import Any

import pytest

from athanor import AthanorError
from athanor.torch import Loader
from conftest import athanor
from format_feed import cat

zstandard = pytest.importorskip("zstandard")

TEXT = ["", "plain", '"\\/\b\f\n\r\t', "é 语料 😀", "\u2028\u0085\0\x7f", "\ud83d", "\udc00x", "a" * 5000]


def plain(value: Any) -> Any:
    """A value as `cat` prints it."""
    if isinstance(value, dict):
        return {plain(key): plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, str):
        # A pair that was escaped by halves is one character; half a pair is none.
        return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > 2**53 - 1:
        return str(value)
    return value


def same(got: Any, wanted: Any) -> bool:
    """Equal, where `cat` prints whole floats without a point."""
    if isinstance(wanted, dict):
        return isinstance(got, dict) and got.keys() == wanted.keys() and all(same(got[k], wanted[k]) for k in wanted)
    if isinstance(wanted, list):
        return isinstance(got, list) and len(got) == len(wanted) and all(map(same, got, wanted))
    if isinstance(wanted, float):
        return isinstance(got, (int, float)) and float(got) == wanted
    return type(got) is type(wanted) and bool(got == wanted)


def value(rng: random.Random, wide: bool, depth: int = 0) -> Any:
    """`wide`: integers of all of int64 and no fractions: one field cannot hold both exactly."""
    kind = rng.randrange(8 if depth < 3 else 6)
    if kind == 0:
        return rng.choice([None, True, False])
    if kind == 1 or (kind == 2 and wide):
        limit = 2**63 if wide else 2**53
        return rng.choice([rng.randrange(200000), rng.randrange(-(2**31), 2**32), rng.randrange(-limit, limit)])
    if kind == 2:
        return rng.choice([0.5, -1e-300, 1.7976931348623157e308, 5e-324, rng.random() * 1e-19, rng.random() * 1e19])
    if kind in (3, 4):
        return "".join(rng.choice(TEXT) for _ in range(rng.randrange(3)))
    if kind == 5:
        return [rng.randrange(100000) for _ in range(rng.randrange(40))]
    if kind == 6:
        return [value(rng, wide, depth + 1) for _ in range(rng.randrange(4))]
    keys = ["k", "é", "\u2029", 'q"', "__proto__"]
    return {rng.choice(keys): value(rng, wide, depth + 1) for _ in range(rng.randrange(3))}


def written(rng: random.Random, name: str, data: bytes) -> bytes:
    """The bytes of a file of that name: gzip members and Zstandard frames end anywhere."""
    if name.endswith(".gz"):
        cut = rng.randrange(len(data) + 1)
        return gzip.compress(data[:cut]) + gzip.compress(data[cut:]) + b"\0" * rng.randrange(3)
    if name.endswith(".zst"):
        cut = rng.randrange(len(data) + 1)
        size, checksum = rng.random() < 0.5, rng.random() < 0.5
        frames = zstandard.ZstdCompressor(level=rng.choice([1, 9]), write_checksum=checksum, write_content_size=size)
        skippable = b"\x5a\x2a\x4d\x18\x03\0\0\0abc"
        return frames.compress(data[:cut]) + rng.choice([b"", skippable]) + frames.compress(data[cut:])
    return data


def test_random_records_are_read_as_python_reads_them(tmp_path: Path) -> None:
    rng = random.Random(20240911)
    expected = []
    for number in range(120):
        # Kinds of a key can differ from record to record: `cat` shows what is there.
        names = [f"f{i}" for i in range(rng.randrange(1, 6))]
        wide = rng.random() < 0.5
        records = [{key: value(rng, wide) for key in names if rng.random() < 0.9} for _ in range(rng.randrange(1, 60))]
        array = rng.random() < 0.4
        ascii_only = rng.random() < 0.5
        if array:
            text = json.dumps(records, ensure_ascii=ascii_only, indent=rng.choice([None, 1]))
        else:
            ends = [rng.choice(["\n", "\r\n", "\n\n", " \t\n"]) for _ in records]
            text = "".join(
                json.dumps(record, ensure_ascii=ascii_only) + end for record, end in zip(records, ends, strict=True)
            )
        name = f"{number:03}.{'json' if array else 'jsonl'}{rng.choice(['', '.gz', '.zst'])}"
        data = text.encode("utf-8", "strict" if ascii_only else "replace")
        (tmp_path / name).write_bytes(written(rng, name, data))
        lines = data.decode().split("\n")
        expected += json.loads(data) if array else [json.loads(line) for line in lines if line.strip() != ""]
    found = cat(tmp_path)
    assert len(found) == len(expected)
    for i, (got, wanted) in enumerate(zip(found, expected, strict=True)):
        assert same(got, plain(wanted)), f"record {i}: {got} {wanted}"


def shards(folder: Path) -> list[dict[str, Any]]:
    """Lines, an array, gzip and Zstandard, with blank lines and fractions that come late; all records."""
    rng = random.Random(3)
    records = []
    for number, ending in enumerate(["jsonl", "json", "jsonl.gz", "jsonl.zst", "ndjson"]):
        own = []
        for _ in range(rng.randrange(150, 400)):
            own.append(
                {
                    "id": len(records) + len(own),
                    "input_ids": [rng.randrange(120000) for _ in range(rng.randrange(1, 40))],
                    "score": rng.choice([1, 2]) if number < 2 else rng.choice([1, 0.25]),
                    "text": rng.choice(TEXT[:5]),
                    "meta": {"tags": ["x"]},
                }
            )
        records += own
        name = f"part-{number}.{ending}"
        array = ending == "json"
        data = json.dumps(own, indent=1) if array else "\n\n".join(json.dumps(record) for record in own)
        (folder / name).write_bytes(written(rng, name, data.encode()))
    return records


def test_a_loader_delivers_every_record_in_order_and_resumes(run_dir: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    records = shards(data)
    options: dict[str, Any] = {
        "batch_size": 8,
        "max_length": 48,
        "columns": ["id", "input_ids", "attention_mask", "score"],
        "shuffle": "none",
        "last": "pad",
    }
    with Loader(str(data), **options) as loader:
        batches = list(loader)
    rows = [(batch, i) for batch in batches for i in range(8) if "valid" not in batch or bool(batch["valid"][i])]
    assert len(rows) == len(records)
    for (batch, i), record in zip(rows, records, strict=True):
        ids = record["input_ids"]
        assert int(batch["id"][i]) == record["id"]
        assert batch["input_ids"][i].tolist() == ids + [0] * (48 - len(ids))
        assert batch["attention_mask"][i].tolist() == [1] * len(ids) + [0] * (48 - len(ids))
        assert float(batch["score"][i]) == record["score"]

    # In a shuffled order, stopped and gone on with.
    shuffled = options | {"shuffle": "window", "seed": 7}
    with Loader(str(data), **shuffled) as loader:
        whole = [batch["id"].tolist() for batch in loader]
    assert sorted(i for ids in whole for i in ids)[-1] == len(records) - 1
    with Loader(str(data), **shuffled) as loader:
        iterator = iter(loader)
        first = [next(iterator)["id"].tolist() for _ in range(30)]
        state = loader.state_dict()
    with Loader(str(data), **shuffled) as loader:
        loader.load_state_dict(state)
        rest = [batch["id"].tolist() for batch in loader]
    assert first + rest == whole


def test_fields_that_are_no_columns_say_why(run_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"input_ids":[1],"meta":{"a":1},"x":1}\n{"input_ids":[2],"x":"one"}\n')
    for column, why in [("meta", "holds objects"), ("x", "holds int64 values and text")]:
        with (
            pytest.raises(AthanorError, match=why),
            Loader(str(tmp_path), batch_size=1, max_length=4, columns=[column]) as loader,
        ):
            next(iter(loader))


def test_fields_that_are_no_columns_are_told_of_unasked(
    run_dir: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "a.jsonl").write_text('{"input_ids":[1],"label":1}\n{"input_ids":[2],"label":"2"}\n')
    ran = athanor("inspect", tmp_path)
    assert "no column: label holds int64 values and text\n" in ran.stdout, ran.stderr
    with caplog.at_level("WARNING", "athanor"), Loader(str(tmp_path), batch_size=1, max_length=4) as loader:
        next(iter(loader))
    assert "fields that are no columns: label (holds int64 values and text)" in caplog.text

    (tmp_path / "a.jsonl").write_text('{"label":1}\n{"label":"2"}\n')
    with (
        pytest.raises(AthanorError, match="found label, which holds int64 values and text"),
        Loader(str(tmp_path), batch_size=1, index_dir=str(tmp_path / "other")) as loader,
    ):
        next(iter(loader))


def test_agent_none_names_the_format_that_it_does_not_read(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"input_ids":[1],"id":1}\n')
    for code, made in [("ATH_NOT_FORMAT", False), ("ATH_FORMAT_UNSUPPORTED", True)]:
        if made:
            assert athanor("index", tmp_path).returncode == 0
        with (
            pytest.raises(AthanorError, match='agent="none"') as refused,
            Loader(str(tmp_path), batch_size=1, agent="none", rank=0, world_size=1) as loader,
        ):
            next(iter(loader))
        assert refused.value.code == code
