"""The index that TypeScript writes, read back by the small Python reader and compared with the shards themselves."""

from __future__ import annotations

import json
import struct
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from index_reader import crc32c, data_fingerprint, read_shards, read_table, table_name

ROOT = Path(__file__).resolve().parents[2]
BLOCK_BYTES = 4 * 1024 * 1024


def masked(data: bytes) -> bytes:
    crc = crc32c(data)
    return struct.pack("<I", (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF)


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def field(number: int, content: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(content)) + content


def example(ids: list[int]) -> bytes:
    values = field(3, field(1, b"".join(varint(value) for value in ids)))
    return field(1, field(1, field(1, b"input_ids") + field(2, values)))


def frame(payload: bytes) -> bytes:
    head = struct.pack("<Q", len(payload))
    return head + masked(head) + payload + masked(payload)


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
        (folder / name).write_bytes(b"".join(frame(example(ids)) for ids in records))
    (folder / "README.md").write_text("about these shards\n")
    return folder, rows


def test_rows_tables_and_fingerprint_are_those_of_the_shards(dataset: tuple[Path, dict[str, list[list[int]]]]) -> None:
    folder, rows = dataset
    printed = athanor("index", str(folder))
    manifest, shards = read_shards(folder / ".athanor/shards.bin")

    assert manifest == json.loads((folder / ".athanor/manifest.json").read_text())
    assert [shard["path"] for shard in shards] == sorted(rows, key=lambda path: path.encode())
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
        records, path = rows[shard["path"]], folder / shard["path"]
        raw, stat = path.read_bytes(), path.stat()
        assert (shard["size"], shard["mtime_ns"]) == (stat.st_size, stat.st_mtime_ns)
        assert (shard["records"], shard["tokens"]) == (len(records), sum(map(len, records)))
        assert (shard["crc32c"], shard["encoding"]) == (crc32c(raw), "plain")
        assert sum(shard["run_records"]) == len(records)
        check_table(folder, shard, [len(frame(example(ids))) for ids in records])


def check_table(folder: Path, shard: dict[str, Any], lengths: list[int]) -> None:
    table = read_table(folder / ".athanor/blocks" / table_name(shard))
    assert (table["path"], table["size"], table["crc32c"]) == (shard["path"], shard["size"], shard["crc32c"])
    starts = np.concatenate([[0], np.cumsum(lengths)])[: len(lengths)]
    blocks = np.unique(starts // BLOCK_BYTES) if lengths else np.array([])
    assert shard["blocks"] == len(blocks) == len(table["tokens"])
    assert table["first_record"].tolist() == [*np.searchsorted(starts // BLOCK_BYTES, blocks), len(lengths)]
    assert table["segment_length"].sum() == shard["size"]
    for block in range(len(blocks)):
        first, last = int(table["first_record"][block]), int(table["first_record"][block + 1])
        assert table["segment_offset"][block] == starts[first]
        restarts = table["restarts"][table["restart_start"][block] : table["restart_start"][block + 1]]
        assert restarts.tolist() == (starts[first:last:64] - starts[first]).tolist()


def test_a_damaged_index_is_seen_by_both_readers(dataset: tuple[Path, dict[str, list[list[int]]]]) -> None:
    folder, _ = dataset
    athanor("index", str(folder))
    path = folder / ".athanor/shards.bin"
    whole = bytearray(path.read_bytes())
    whole[70] ^= 1
    path.write_bytes(whole)
    with pytest.raises(ValueError, match="payload"):
        read_shards(path)
    command = ["node", str(ROOT / "dist/src/cli/main.js"), "inspect", str(folder), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 1
    assert json.loads(done.stderr)["error"]["code"] == "ATH_INDEX_CORRUPT"
    assert athanor("index", str(folder))["read"] == 3
