"""CRC32C with numpy against the plain loop."""

from __future__ import annotations

import random

import numpy as np

from athanor.reference.crc import crc32c, crc32c_each, masked, masked_length
from tfrecord_writer import crc32c as plain
from tfrecord_writer import masked as stored


def test_one_string_of_any_length_also_in_parts() -> None:
    rng = random.Random(1)
    assert crc32c(b"123456789") == 0xE3069283
    for length in (0, 1, 255, 256, 257, 511, 512, 70_003):
        data = rng.randbytes(length)
        assert crc32c(data) == plain(data)
        cut = rng.randint(0, length)
        assert crc32c(data[cut:], crc32c(data[:cut])) == plain(data)
        assert masked(plain(data)) == int.from_bytes(stored(data), "little")
    assert masked_length(bytes(8)) == int.from_bytes(stored(bytes(8)), "little")


def test_many_strings_at_a_time() -> None:
    rng = random.Random(2)
    data = np.frombuffer(rng.randbytes(30_000), np.uint8)
    for count in (0, 1, 15, 16, 200):
        starts = np.array([rng.randint(0, 20_000) for _ in range(count)], np.int64)
        lengths = np.array([rng.choice([0, 1, 255, 256, rng.randint(0, 5000)]) for _ in range(count)], np.int64)
        expected = [plain(data[a : a + n].tobytes()) for a, n in zip(starts, lengths)]
        assert crc32c_each(data, starts, lengths).tolist() == expected
