"""The bench's own data, contenders and emulated step: against independent small implementations."""

from __future__ import annotations

import struct
import time
from pathlib import Path

import numpy as np
import pytest

from athanor.bench import data, memmap, step, tfrecord


def slow_crc32c(payload: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in payload:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def test_crc_of_many_strings_at_once() -> None:
    rng = np.random.default_rng(0)
    rows = [b"123456789", b"", *(rng.bytes(int(n)) for n in rng.integers(0, 70, 40))]
    found = data.crc32c(rows)
    assert found[0] == 0xE3069283  # RFC 3720's check value
    assert found.tolist() == [slow_crc32c(row) for row in rows]


def test_written_records_come_back(tmp_path: Path) -> None:
    data.write(str(tmp_path), n=25, seq=16, shards=3, vocab=70_000, seed=3)
    paths = sorted(tmp_path.iterdir())
    assert [path.name for path in paths] == [f"train_{i:03d}.tfrecord" for i in range(3)]
    payloads = [list(tfrecord.walk(str(path))) for path in paths]
    assert [len(shard) for shard in payloads] == [8, 8, 9]
    ids, mask = next(data.samples(25, 16, 70_000, 3))
    for row, payload in enumerate(payload for shard in payloads for payload in shard):
        features = tfrecord.example(payload)
        assert features["input_ids"].tolist() == ids[row].tolist()
        assert features["attention_mask"].tolist() == mask[row].tolist()
    head = paths[0].read_bytes()[:12]
    (length, crc) = struct.unpack("<QI", head)
    raw = slow_crc32c(head[:8])
    assert crc == ((raw >> 15 | raw << 17) + 0xA282EAD8) & 0xFFFFFFFF
    assert length == len(payloads[0][0])


def test_memory_map_holds_the_samples(tmp_path: Path) -> None:
    source, out = tmp_path / "d", str(tmp_path / "map")
    data.write(str(source), n=10, seq=16, shards=2, vocab=50, seed=1)
    shards = [(str(path), 5) for path in sorted(source.iterdir())]
    memmap.make(shards, 12, out)
    got_ids, got_mask = memmap.load(out)
    ids, mask = next(data.samples(10, 16, 50, 1))
    assert np.array_equal(got_ids, ids[:, :12])
    assert np.array_equal(got_mask, mask[:, :12])


def test_memory_map_refuses_another_count_than_the_index(tmp_path: Path) -> None:
    source, out = tmp_path / "d", tmp_path / "map"
    data.write(str(source), n=4, seq=8, shards=1, vocab=50, seed=1)
    path = str(source / "train_000.tfrecord")
    for wrong in (3, 5):
        with pytest.raises(ValueError, match=f"index says {wrong} records"):
            memmap.make([(path, wrong)], 8, str(out))
    assert not out.exists() and list(tmp_path.iterdir()) == [source]


def test_cut_shard_is_an_error_with_its_place(tmp_path: Path) -> None:
    data.write(str(tmp_path), n=2, seq=8, shards=1, vocab=50, seed=1)
    path = tmp_path / "train_000.tfrecord"
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(EOFError, match="record at byte"):
        list(tfrecord.walk(str(path)))


def test_varints_of_all_widths_and_signs() -> None:
    def encode(value: int) -> bytes:
        value &= (1 << 64) - 1
        out = bytearray()
        while value > 127:
            out.append(value & 127 | 128)
            value >>= 7
        return bytes(out + bytes([value]))

    values = [0, 1, 127, 128, 16_383, 16_384, 2**31 - 1, 2**53 + 1, 2**63 - 1, -1, -(2**63)]
    assert tfrecord.varints(b"".join(map(encode, values))).tolist() == values
    assert tfrecord.varints(b"").tolist() == []
    with pytest.raises(ValueError):
        tfrecord.varints(b"\x01\x80")


def test_step_takes_at_least_its_time_and_says_how_long() -> None:
    start = time.perf_counter()
    measured = step.compute(0.01)
    assert 0.01 <= measured <= time.perf_counter() - start
    assert step.compute(0) == 0.0
