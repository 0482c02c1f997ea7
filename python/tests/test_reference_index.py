"""The index that TypeScript writes, read by the plain Python reader, compared with the shards and with its own scan."""

from __future__ import annotations

import gzip
import json
import os
import random
import subprocess
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from athanor.errors import AthanorError
from athanor.reference.files import discover
from athanor.reference.index import Shard, data_fingerprint, read_shards, read_table, table_name
from athanor.reference.scan import scan_all, scan_shard
from tfrecord_writer import crc32c, example, frame, write

ROOT = Path(__file__).resolve().parents[2]
BLOCK_BYTES = 4 * 1024 * 1024


def athanor(*arguments: str) -> dict[str, Any]:
    command = ["node", str(ROOT / "dist/src/cli/main.js"), *arguments, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    if done.returncode != 0:
        pytest.fail(done.stderr)
    printed: dict[str, Any] = json.loads(done.stdout)
    return printed


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, list[list[int]]]]:
    folder = tmp_path_factory.mktemp("set")
    (folder / "sub").mkdir()
    rows = {
        "a.tfrecord": [[record, 70000 + record, 1] for record in range(150)],
        "empty.tfrecord": [],
        "sub/\u00e9.tfrecord": [[1, 2], [], [3]],
    }
    for name, records in rows.items():
        (folder / name).write_bytes(b"".join(frame(example({"input_ids": ids})) for ids in records))
    (folder / "README.md").write_text("about these shards\n")
    return folder, rows


def test_rows_tables_and_fingerprint_are_those_of_the_shards(dataset: tuple[Path, dict[str, list[list[int]]]]) -> None:
    folder, rows = dataset
    printed = athanor("index", str(folder))
    manifest, shards = read_shards(folder / ".athanor/shards.bin")

    assert manifest == json.loads((folder / ".athanor/manifest.json").read_text())
    assert [shard.path for shard in shards] == sorted(rows, key=lambda path: path.encode())
    assert manifest["fingerprint"] == printed["fingerprint"] == data_fingerprint(shards)
    assert manifest["ignored"][0]["path"] == "README.md"
    assert manifest["totals"]["records"] == sum(map(len, rows.values()))
    assert manifest["schema"]["fields"] == [
        {
            "name": "input_ids",
            "kind": "int64",
            "present": 153,
            "minLength": 0,
            "maxLength": 3,
            "values": 453,
            "min": "0",
            "max": "70149",
            "prefixMask": False,
        }
    ]
    for shard in shards:
        records, path = rows[shard.path], folder / shard.path
        raw, stat = path.read_bytes(), path.stat()
        assert (shard.size, shard.mtime_ns) == (stat.st_size, stat.st_mtime_ns)
        assert (shard.records, shard.tokens) == (len(records), sum(map(len, records)))
        assert (shard.crc32c, shard.encoding) == (crc32c(raw), "plain")
        assert sum(shard.run_records) == len(records)
        check_table(folder, shard, [len(frame(example({"input_ids": ids}))) for ids in records])


def check_table(folder: Path, shard: Shard, lengths: list[int]) -> None:
    table, identity = read_table(folder / ".athanor/blocks" / table_name(shard))
    assert (identity["path"], identity["size"], identity["crc32c"]) == (shard.path, shard.size, shard.crc32c)
    starts = np.concatenate([[0], np.cumsum(lengths)])[: len(lengths)]
    blocks = np.unique(starts // BLOCK_BYTES) if lengths else np.array([])
    assert shard.blocks == len(blocks)
    assert table.first_record.tolist() == [*np.searchsorted(starts // BLOCK_BYTES, blocks), len(lengths)]
    assert table.segment_length.sum() == shard.size
    for block in range(len(blocks)):
        first, last = int(table.first_record[block]), int(table.first_record[block + 1])
        assert table.segment_offset[block] == starts[first]
        restarts = table.restarts[table.restart_start[block] : table.restart_start[block + 1]]
        assert restarts.tolist() == (starts[first:last:64] - starts[first]).tolist()


def test_a_damaged_index_is_seen_by_both_readers(dataset: tuple[Path, dict[str, list[list[int]]]]) -> None:
    folder, _ = dataset
    athanor("index", str(folder))
    path = folder / ".athanor/shards.bin"
    whole = bytearray(path.read_bytes())
    whole[70] ^= 1
    path.write_bytes(whole)
    with pytest.raises(AthanorError, match="ATH_INDEX_CORRUPT"):
        read_shards(path)
    command = ["node", str(ROOT / "dist/src/cli/main.js"), "inspect", str(folder), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 1
    assert json.loads(done.stderr)["error"]["code"] == "ATH_INDEX_CORRUPT"
    assert athanor("index", str(folder))["read"] == 3


def random_record(rng: random.Random, number: int) -> dict[str, Any]:
    record: dict[str, Any] = {
        "id": number,
        "input_ids": [rng.choice([0, 5, 127, 128, 70_000, 2**31]) for _ in range(rng.randint(0, 9))],
        "mask": [1] * rng.randint(0, 3) + [0] * rng.randint(0, 3),
        "weight": [rng.random() for _ in range(rng.randint(1, 3))],
    }
    if rng.random() < 0.3:
        record["text"] = "ein Text"
    if rng.random() < 0.3:
        record["rare"] = rng.choice([None, [], [-3], [2**63 - 1, -(2**63)]])
    return record


@pytest.mark.parametrize("seed", range(4))
def test_an_index_made_in_memory_is_the_one_that_typescript_writes(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    for shard in range(rng.randint(1, 5)):
        path = tmp_path / f"{rng.choice(['x', 'y/z', 'é'])}-{shard}.tfrecord"
        path.parent.mkdir(exist_ok=True)
        write(path, (random_record(rng, i) for i in range(rng.choice([0, 3, 300]))))
        kind, raw = rng.choice(["plain", "gzip", "zlib"]), path.read_bytes()
        if kind == "gzip":  # of several members, and padded
            path.write_bytes(gzip.compress(raw[:1000]) + gzip.compress(raw[1000:]) + bytes(7))
        elif kind == "zlib":
            path.write_bytes(zlib.compress(raw))
    write(tmp_path / "z.tfrecord", (random_record(rng, i) for i in range(100)))
    (tmp_path / "notes.txt").write_text("none of the data")
    found = discover(str(tmp_path))
    made = scan_all(found, str(tmp_path))
    assert not (tmp_path / ".athanor").exists()

    athanor("index", str(tmp_path))
    manifest, shards = read_shards(tmp_path / ".athanor/shards.bin")
    assert made.shards == shards
    assert made.fields == manifest["schema"]["fields"]
    assert made.fingerprint == manifest["fingerprint"]
    for number, shard in enumerate(shards):
        stored, _ = read_table(tmp_path / ".athanor/blocks" / table_name(shard))
        for column, values in vars(made.table(number)).items():
            assert values.tolist() == vars(stored)[column].tolist(), (shard.path, column)


def test_blocks_of_a_shard_above_4_mib_are_those_of_typescript(tmp_path: Path) -> None:
    length = 70_000  # of values that take two bytes: 66 records and more a block, so that a block has two restarts
    payload = example({"input_ids": [300] * (length // 2)})
    (tmp_path / "a.tfrecord").write_bytes(frame(payload) * 150)
    made = scan_all(discover(str(tmp_path)), str(tmp_path))
    athanor("index", str(tmp_path))
    (shard,) = read_shards(tmp_path / ".athanor/shards.bin")[1]
    stored, _ = read_table(tmp_path / ".athanor/blocks" / table_name(shard))
    assert made.shards == [shard]
    assert shard.blocks == 3
    for column, values in vars(made.table(0)).items():
        assert values.tolist() == vars(stored)[column].tolist(), column


EXAMPLES = b"".join(frame(example({"input_ids": [i] * 20})) for i in range(5))


def damaged(raw: bytes) -> dict[str, bytes]:
    first = 16 + int.from_bytes(raw[:8], "little")
    flipped = lambda at: raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1 :]  # noqa: E731
    packed = gzip.compress(raw)
    return {
        "payload": flipped(first + 20),
        "length": flipped(first + 2),
        "stored-crc": flipped(2 * first - 1),
        "cut-payload": raw[: first + 30],
        "cut-header": raw[: first + 5],
        "cut-crc": raw[: 2 * first - 2],
        "no-format": b"once upon a time" * 9,
        "no-protobuf": raw + frame(b"\xff\xff\xff"),
        "too-long-field": raw + frame(b"\x0a\x7f\x01"),
        "sequence-example": raw + frame(b"\x12\x00"),
        "other-kind": raw + frame(example({"input_ids": [1.5]})),
        "cut-gzip": packed[:-20],
        "cut-trailer": packed[:-3],
        "dirt-behind-gzip": packed + b"\0\0dirt",
        "no-member-behind-gzip": packed + b"dirt",
        "damaged-gzip": packed[:40] + bytes(40) + packed[80:],
        "dirt-behind-zlib": zlib.compress(raw) + b"x",
        "damage-in-gzip": gzip.compress(flipped(first + 20)),
    }


@pytest.mark.parametrize("name", list(damaged(EXAMPLES)))
def test_a_damaged_shard_is_refused_with_the_error_of_typescript(tmp_path: Path, name: str) -> None:
    path = tmp_path / "a.tfrecord"
    path.write_bytes(damaged(EXAMPLES)[name])
    command = ["node", str(ROOT / "dist/src/cli/main.js"), "index", str(tmp_path), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    expected = json.loads(done.stderr)["error"]
    with pytest.raises(AthanorError) as caught:
        scan_shard(str(tmp_path), "a.tfrecord")
    error = caught.value
    found = (error.code, error.file, error.record, error.byte_offset)
    assert found == (expected["code"], expected["file"], expected.get("record"), expected.get("byteOffset"))
    if name not in ("no-format", "damaged-gzip", "no-member-behind-gzip", "other-kind"):  # said in other words
        assert error.what == expected["message"]


@pytest.mark.parametrize(
    "glob",
    ["*.tfrecord", "**/*.tfrecord", "[ab]*", "[!a]*/**", "{a,sub/}*", "sub", "a.tfrecord", "none*", "missing", "s?b/*"],
)
def test_a_source_names_the_same_files_in_both_languages(
    dataset: tuple[Path, dict[str, list[list[int]]]], glob: str
) -> None:
    link = dataset[0] / "sub/broken"  # only a glob that matches it fails
    if not link.is_symlink():
        link.symlink_to("nowhere")
        (dataset[0] / "up").symlink_to("..")  # brings nothing of what is around
    source = str(dataset[0] / glob)
    command = ["node", str(ROOT / "dist/src/cli/main.js"), "index", source, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    try:
        found = discover(source)
    except AthanorError as error:
        assert error.code == json.loads(done.stderr)["error"]["code"]
        return
    shards = read_shards(Path(found.index_dir) / "shards.bin")[1]
    assert [shard.path for shard in shards] == [path for path in found.paths if path != "README.md"]


def test_a_name_that_is_no_utf8_is_refused_as_the_agent_does(tmp_path: Path) -> None:
    (tmp_path / "a.tfrecord").write_bytes(b"")
    (Path(os.fsdecode(os.fsencode(tmp_path) + b"/b\xff.tfrecord"))).write_bytes(b"")
    with pytest.raises(AthanorError, match="ATH_FILE_NAME") as raised:
        discover(str(tmp_path))
    assert str(raised.value.file) == f"{tmp_path}/b\\xff.tfrecord"
    assert discover(f"{tmp_path}/a*").paths == ["a.tfrecord"]
