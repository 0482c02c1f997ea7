"""Chance: every random choice of the order (docs/reference/order.md, "Chance").

>>> mix(1234, WINDOW, 0, 0, 0, 0, 0)          # one number of 64 bits
>>> permutation((1234, WINDOW, 0, 0, 0, 0), 5)  # perm[k]: the item in place k
"""

from __future__ import annotations

from typing import Any

import numpy as np

U64 = np.ndarray[Any, np.dtype[np.uint64]]
I64 = np.ndarray[Any, np.dtype[np.int64]]

MASK = (1 << 64) - 1
EXTENTS, WINDOW, FEISTEL = 1, 2, 3
_GOLDEN = 0x9E3779B97F4A7C15
_M1, _M2 = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


def fmix64(z: int) -> int:
    z ^= z >> 30
    z = z * _M1 & MASK
    z ^= z >> 27
    z = z * _M2 & MASK
    return z ^ z >> 31


def mix(*fields: int) -> int:
    h = 0
    for field in fields:
        h = fmix64(((h ^ field & MASK) + _GOLDEN) & MASK)
    return h


def mix_each(prefix: tuple[int, ...], last: U64) -> U64:
    """mix(*prefix, x) for each x of `last`."""
    z = (np.uint64(mix(*prefix)) ^ last) + np.uint64(_GOLDEN)  # arrays wrap modulo 2^64
    z ^= z >> np.uint64(30)
    z *= np.uint64(_M1)
    z ^= z >> np.uint64(27)
    z *= np.uint64(_M2)
    return np.asarray(z ^ z >> np.uint64(31))


def permutation(prefix: tuple[int, ...], n: int) -> I64:
    """0 … n − 1 by (mix, i)."""
    return np.argsort(mix_each(prefix, np.arange(n, dtype=np.uint64)), kind="stable")


def feistel(seed: int, source: int, epoch: int, n: int, places: I64) -> I64:
    """The item of each place in a permutation of n items: eight rounds, walking on while the value is beyond n."""
    bits = max(2, (n - 1).bit_length())
    half = np.uint64((bits + bits % 2) // 2)
    mask = np.uint64((1 << int(half)) - 1)
    value = places.astype(np.uint64)
    walking = np.arange(len(value))
    while len(walking) > 0:
        left, right = value[walking] >> half, value[walking] & mask
        for i in range(8):
            left, right = right, left ^ mix_each((seed, FEISTEL, source, epoch, 0, i), right) & mask
        value[walking] = left << half | right
        walking = walking[value[walking] >= n]
    return value.astype(np.int64)
