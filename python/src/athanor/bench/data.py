"""Test data in the story's schema: `input_ids` and `attention_mask`, int64 lists of `seq` values a record.

Ids follow Zipf(1.05) over `vocab`; half of the samples are padded behind a uniform length of seq/4 … seq, with
id 0 and mask 0. 100 000 samples of 512 in 10 shards are 134 MB (1340 B a record). Same arguments, same bytes.

    python -m athanor.bench.data --out DIR [--n 100000] [--seq 512] [--shards 10] [--vocab 102400] [--seed 1]

Files are written under a temporary name, fsynced and renamed. Vectorised: 100 000 records take some ten seconds.
"""

from __future__ import annotations

import argparse
import os
import struct
from collections.abc import Iterator

import numpy as np

BLOCK = 4096


def samples(n: int, seq: int, vocab: int, seed: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Blocks of (ids int32 [b, seq], mask uint8 [b, seq])."""
    rng = np.random.default_rng(seed)
    weights = 1.0 / np.arange(1, vocab + 1) ** 1.05
    steps = np.cumsum(weights / weights.sum())
    for first in range(0, n, BLOCK):
        rows = min(BLOCK, n - first)
        ids = np.searchsorted(steps, rng.random((rows, seq))).astype(np.int32)
        np.minimum(ids, vocab - 1, out=ids)
        length = np.full(rows, seq)
        short = rng.random(rows) < 0.5
        length[short] = rng.integers(seq // 4, seq + 1, short.sum())
        mask = np.arange(seq)[None, :] < length[:, None]
        ids[~mask] = 0
        yield ids, mask.astype(np.uint8)


def packed(values: np.ndarray) -> list[bytes]:
    """Rows of non-negative int32 -> one packed varint list a row."""
    flat = np.ascontiguousarray(values, np.uint32).ravel()
    size = np.ones(len(flat), np.int64)
    for k in (1, 2, 3, 4):
        size += flat >= 1 << 7 * k
    start = np.concatenate(([0], np.cumsum(size)))
    out = np.zeros(start[-1], np.uint8)
    for k in range(int(size.max(initial=1))):
        wide = size > k
        more = np.where(size[wide] > k + 1, 128, 0)
        out[start[:-1][wide] + k] = ((flat[wide] >> np.uint32(7 * k)) & 127) | more.astype(np.uint32)
    data = out.tobytes()
    borders = start[:: values.shape[1]]
    return [data[a:b] for a, b in zip(borders[:-1], borders[1:])]


def example(ids: bytes, mask: bytes) -> bytes:
    """tf.train.Example of two packed Int64Lists."""

    def feature(name: bytes, values: bytes) -> bytes:
        int64_list = _field(1, values)
        return _field(1, _field(1, name) + _field(2, _field(3, int64_list)))

    return _field(1, feature(b"input_ids", ids) + feature(b"attention_mask", mask))


def crc32c(rows: list[bytes]) -> np.ndarray:
    """CRC32C of each of many byte strings, all at once: one table step for a column of bytes (uint32 [len(rows)])."""
    order = np.argsort([-len(row) for row in rows], kind="stable")
    lengths = np.array([len(rows[i]) for i in order])
    columns = np.zeros((int(lengths[0]) if len(rows) else 0, len(rows)), np.uint8)
    for j, i in enumerate(order):
        columns[: len(rows[i]), j] = np.frombuffer(rows[i], np.uint8)
    crc = np.full(len(rows), 0xFFFFFFFF, np.uint32)
    live = np.searchsorted(-lengths, -np.arange(len(columns)), side="left")
    for column, count in zip(columns, live):
        head = crc[:count]
        crc[:count] = _TABLE[(head ^ column[:count]) & 255] ^ (head >> 8)
    out = np.empty(len(rows), np.uint32)
    out[order] = crc ^ 0xFFFFFFFF
    return out


def frames(payloads: list[bytes]) -> bytes:
    """TFRecord framing of payloads, with both masked CRCs."""
    heads = [struct.pack("<Q", len(payload)) for payload in payloads]
    parts = []
    for head, payload, a, b in zip(heads, payloads, _masked(crc32c(heads)), _masked(crc32c(payloads))):
        parts += [head, struct.pack("<I", a), payload, struct.pack("<I", b)]
    return b"".join(parts)


def write(out: str, n: int, seq: int, shards: int, vocab: int, seed: int) -> None:
    os.makedirs(out, exist_ok=True)
    borders = np.linspace(0, n, shards + 1).astype(int)
    block: list[bytes] = []
    at = 0
    source = samples(n, seq, vocab, seed)
    for shard, (low, high) in enumerate(zip(borders[:-1], borders[1:])):
        path = os.path.join(out, f"train_{shard:03d}.tfrecord")
        with open(path + ".part", "wb") as file:
            while low < high:
                if at == len(block):
                    ids, mask = next(source)
                    block, at = [example(a, b) for a, b in zip(packed(ids), packed(mask))], 0
                take = min(high - low, len(block) - at)
                file.write(frames(block[at : at + take]))
                at, low = at + take, low + take
            file.flush()
            os.fsync(file.fileno())
        os.rename(path + ".part", path)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def _field(number: int, payload: bytes) -> bytes:
    return bytes([number << 3 | 2]) + _varint(len(payload)) + payload


def _masked(crc: np.ndarray) -> list[int]:
    return [int(value) for value in ((crc >> 15) | (crc << 17)) + np.uint32(0xA282EAD8)]


def _table() -> np.ndarray:
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, (table >> 1) ^ np.uint32(0x82F63B78), table >> 1)
    return table.astype(np.uint32)


_TABLE = _table()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", required=True)
    parser.add_argument("--n", type=int, default=100_000)
    parser.add_argument("--seq", type=int, default=512)
    parser.add_argument("--shards", type=int, default=10)
    parser.add_argument("--vocab", type=int, default=102_400)
    parser.add_argument("--seed", type=int, default=1)
    a = parser.parse_args()
    write(a.out, a.n, a.seq, a.shards, a.vocab, a.seed)


if __name__ == "__main__":
    main()
