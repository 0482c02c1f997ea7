"""Tokens of a shard that is nothing but tokens, one behind another (`.npy`, Megatron): where they lie, and how a view
cuts them into samples (docs/reference/formats.md).

    rule "stream"     cut every max_length tokens from the shard's first one on
    rule "document"   each document cut by itself; one without tokens gives no sample

The last piece is shorter and padded: every token lies in exactly one sample.

>>> cut = Cut(tokens, "stream", 512)
>>> starts, stops = cut.spans(np.arange(cut.samples))
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import AthanorError
from .chance import I64
from .files import DataFile

BLOCK_BYTES = 4 << 20


@dataclass(frozen=True)
class Tokens:
    """`count` tokens from byte `offset` of `path` on. `version`: size and mtime in ns. `documents`: the first token of
    each, and `count`; None: a format without documents, in which each token is a record."""

    path: str
    version: tuple[int, int]
    offset: int
    dtype: np.dtype[Any]
    count: int
    documents: I64 | None = None

    @property
    def records(self) -> int:
        return self.count if self.documents is None else len(self.documents) - 1

    def record_of(self, token: int) -> tuple[int, int]:
        """(record in which a token lies, its place there)."""
        if self.documents is None:
            return token, 0
        record = int(np.searchsorted(self.documents, token, "right")) - 1
        return record, token - int(self.documents[record])

    def blocks(self) -> I64:
        """The first token of each block, and `count`: block k holds the tokens whose first byte is in
        [k · 4 MiB, (k + 1) · 4 MiB) of the file."""
        size = self.dtype.itemsize
        if self.count == 0:
            return np.zeros(1, np.int64)
        first, last = self.offset // BLOCK_BYTES, (self.offset + (self.count - 1) * size) // BLOCK_BYTES
        borders = np.arange(first, last + 2, dtype=np.int64) * BLOCK_BYTES - self.offset
        return np.clip(-(-borders // size), 0, self.count)

    def read(self, file: DataFile, start: int, stop: int) -> I64:
        """Tokens [start, stop) as int64. Raises ATH_VALUE_RANGE for what is no token id."""
        size = self.dtype.itemsize
        raw = np.frombuffer(file.read(self.offset + start * size, (stop - start) * size), self.dtype)
        self.check(raw, start)
        return raw.astype(np.int64)

    def check(self, raw: np.ndarray[Any, np.dtype[Any]], start: int) -> None:
        """Refuses values below 0 or beyond 63 bits; `start`: the first one's number."""
        bad = raw < 0 if self.dtype.kind == "i" else raw > 2**63 - 1 if self.dtype.itemsize == 8 else None
        if bad is None or not bad.any():
            return
        at = int(np.argmax(bad))
        record = self.record_of(start + at)[0]
        raise AthanorError(
            "ATH_VALUE_RANGE",
            f"token id {int(raw[at])} is "
            + (f"negative (uint{8 * self.dtype.itemsize} data under a signed type?)" if raw[at] < 0 else "too large"),
            file=self.path,
            record=record,
            byte_offset=self.offset + (start + at) * self.dtype.itemsize,
            remedy="write the shard again with the type that the ids have",
        )


class Cut:
    """The samples of one shard, by number in file order."""

    def __init__(self, tokens: Tokens, rule: str, length: int) -> None:
        whole = np.array([0, tokens.count], np.int64)
        self._first_token = whole if rule == "stream" or tokens.documents is None else tokens.documents
        pieces = -(-np.diff(self._first_token) // length)
        self._first_sample = np.concatenate([np.zeros(1, np.int64), np.cumsum(pieces, dtype=np.int64)])
        self._length = length
        self.samples = int(self._first_sample[-1])

    def spans(self, numbers: I64) -> tuple[I64, I64]:
        """(first tokens, ends) of samples."""
        document = np.searchsorted(self._first_sample, numbers, "right") - 1
        starts = self._first_token[document] + (numbers - self._first_sample[document]) * self._length
        return starts, np.minimum(starts + self._length, self._first_token[document + 1])

    def before(self, tokens: I64) -> I64:
        """How many samples begin before each of `tokens`."""
        document = np.maximum(np.searchsorted(self._first_token, tokens, "left") - 1, 0)
        inside = np.maximum(tokens - self._first_token[document], 0)
        return np.asarray(self._first_sample[document] + -(-inside // self._length))
