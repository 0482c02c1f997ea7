"""CRC32C (Castagnoli) with numpy: strings are cut into pieces of 256 bytes, of which all go forward one byte at a time.

CRC is linear: the state after 256 more zero bytes is a function of four tables, so the pieces of a string are joined
afterwards. Some 70 MB/s; a plain loop over the bytes makes 8.

>>> crc32c(b"123456789") == 0xE3069283
True
"""

from __future__ import annotations

from typing import Any, Union

import numpy as np

U8 = np.ndarray[Any, np.dtype[np.uint8]]
U32 = np.ndarray[Any, np.dtype[np.uint32]]
Ints = np.ndarray[Any, np.dtype[np.int64]]
Bytes = Union[bytes, bytearray, memoryview, U8]

_FULL = 0xFFFFFFFF
_PIECE = 256
# Of fewer strings the rests are short work for a loop.
_FEW = 16


def _table() -> list[int]:
    table = []
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
        table.append(crc)
    return table


_TABLE = _table()
_ARRAY = np.array(_TABLE, np.uint32)


def _shift_tables() -> list[list[int]]:
    """One table for each byte of a state: what it is after a piece of zeros."""
    states = np.concatenate([np.arange(256, dtype=np.uint32) << np.uint32(8 * byte) for byte in range(4)])
    for _ in range(_PIECE):
        states = _ARRAY[states & 255] ^ states >> 8
    return [part.tolist() for part in states.reshape(4, 256)]


_SHIFT = _shift_tables()


def crc32c(data: Bytes, seed: int = 0) -> int:
    """`seed`: the CRC of what came before."""
    if len(data) < _PIECE:
        return _plain(bytes(data), seed ^ _FULL) ^ _FULL
    view = np.frombuffer(data, np.uint8)
    return int(crc32c_each(view, np.zeros(1, np.int64), np.array([len(view)]), seed)[0])


def crc32c_each(data: U8, starts: Ints, lengths: Ints, seed: int = 0) -> U32:
    """CRC of each data[start : start + length]."""
    full = lengths // _PIECE
    first = np.cumsum(full) - full
    number = np.arange(int(full.sum())) - np.repeat(first, full)  # of a piece in its string
    pieces = _forward(
        np.zeros(len(number), np.uint32), data, np.repeat(starts, full) + number * _PIECE, _PIECE
    ).tolist()
    states = np.empty(len(starts), np.uint32)
    a, b, c, d = _SHIFT
    for i, (at, count) in enumerate(zip(first.tolist(), full.tolist())):
        state = seed ^ _FULL
        for piece in pieces[at : at + count]:
            state = a[state & 255] ^ b[state >> 8 & 255] ^ c[state >> 16 & 255] ^ d[state >> 24] ^ piece
        states[i] = state
    begin, rest = starts + full * _PIECE, lengths % _PIECE
    if len(starts) < _FEW:
        for i, state in enumerate(states.tolist()):
            states[i] = _plain(data[begin[i] : begin[i] + rest[i]].tobytes(), state)
    else:
        # The longest first: those that still have a byte at `at` are the first ones.
        order = np.argsort(-rest, kind="stable")
        begin, live = begin[order], np.searchsorted(-rest[order], -np.arange(int(rest.max())), "left")
        states = states[order]
        for at, n in enumerate(live.tolist()):
            states[:n] = _forward(states[:n], data, begin[:n] + at, 1)
        states[order] = states.copy()
    found: U32 = states ^ np.uint32(_FULL)
    return found


def _forward(states: U32, data: U8, starts: Ints, count: int) -> U32:
    """Each state after `count` bytes of its own."""
    for at in range(count):
        states = _ARRAY[(states ^ data[starts + at]) & 255] ^ states >> 8
    return states


def masked(crc: int) -> int:
    """As TFRecord stores it: rotated, so that a CRC of bytes that hold CRCs is not 0."""
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & _FULL


def masked_length(length: bytes) -> int:
    """The masked CRC of the 8 length bytes of a record."""
    return masked(_plain(length, _FULL) ^ _FULL)


def _plain(data: bytes, state: int) -> int:
    for byte in data:
        state = state >> 8 ^ _TABLE[(state ^ byte) & 255]
    return state
