"""Bytes of a shard from one offset on: plain, or out of a gzip or zlib stream.

A stream that is cut, damaged or followed by other bytes than zeros is ATH_STREAM_CORRUPT; it never ends quietly.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable

from ..errors import AthanorError
from .files import DataFile

# zlib names no place of a fault: it lies in the piece in work.
_PIECE = 64 * 1024
_TRAILER = 8
_REMEDY = "the file is damaged or was not copied to its end: copy it again"
_WINDOW_BITS = {"gzip": 31, "zlib": 15}


class PlainBytes:
    """[offset, end) of a plain shard. `seen` gets every stored byte, in order."""

    def __init__(self, file: DataFile, offset: int, end: int, seen: Callable[[bytes], None] | None = None) -> None:
        self.file = file
        self.offset = offset
        self.left: int | None = end - offset
        self._seen = seen

    def read(self, length: int) -> bytes:
        """At most `length` bytes; none at the end."""
        data = self.file.read(self.offset, min(length, self.left or 0))
        self.offset += len(data)
        self.left = (self.left or 0) - len(data)
        if self._seen is not None:
            self._seen(data)
        return data


class StreamBytes:
    """A gzip (all its members) or zlib stream from its beginning."""

    left: int | None = None  # not known before the end

    def __init__(self, file: DataFile, encoding: str, seen: Callable[[bytes], None] | None = None) -> None:
        self.file = file
        self._encoding = encoding
        self._seen = seen
        self._at = 0  # compressed bytes read
        self._zlib = zlib.decompressobj(_WINDOW_BITS[encoding])
        self._input = b""
        self._over = False

    def read(self, length: int) -> bytes:
        while True:
            if not self._input:
                piece = self.file.read(self._at, min(_PIECE, self.file.size - self._at))
                self._at += len(piece)
                if self._seen is not None:
                    self._seen(piece)
                if not piece:
                    # zlib may hold back what did not fit an earlier answer.
                    held = b"" if self._over else self._zlib.decompress(b"", length)
                    if held:
                        return held
                    if self._over or self._zlib.eof:
                        return b""
                    raise self._corrupt(
                        f"the {self._encoding} stream is cut: the file ends at compressed byte {self._at}, inside the "
                        "stream",
                        self._at,
                    )
                self._input = piece
            if self._over:
                self._check_tail()
                continue
            try:
                data = self._zlib.decompress(self._input, length)
            except zlib.error as error:
                begin = max(0, self._at - len(self._input))
                trailer = self.file.size - _TRAILER
                # The trailer is a piece of its own.
                at, size = (trailer, _TRAILER) if 0 <= trailer <= begin else (begin // _PIECE * _PIECE, _PIECE)
                raise self._corrupt(
                    f"the {self._encoding} stream is damaged within the {size} bytes from compressed byte {at}: "
                    f"{error}",
                    at,
                ) from error
            self._input = self._zlib.unconsumed_tail
            if self._zlib.eof:
                self._input = self._zlib.unused_data
                self._member_ended()
            if data:
                return data

    def _member_ended(self) -> None:
        if self._encoding == "gzip" and not self._input:
            self._input = self.file.read(self._at, min(_PIECE, self.file.size - self._at))
            self._at += len(self._input)
            if self._seen is not None:
                self._seen(self._input)
        if self._encoding == "gzip" and self._input and self._input[0] != 0:
            self._zlib = zlib.decompressobj(_WINDOW_BITS["gzip"])
        else:
            self._over = True

    def _check_tail(self) -> None:
        """What is behind the stream must be zeros."""
        tail = self._input.lstrip(b"\0")
        if tail:
            at = self._at - len(tail)
            raise self._corrupt(
                f"bytes behind the end of the {self._encoding} stream, at compressed byte {at}: found "
                f"0x{tail[0]:02x}, expected the end of the file (or zeros)",
                at,
            )
        self._input = b""

    def _corrupt(self, what: str, at: int) -> AthanorError:
        return AthanorError("ATH_STREAM_CORRUPT", what, file=self.file.path, byte_offset=at, remedy=_REMEDY)


def compression(head: bytes) -> str | None:
    """What the first two bytes say."""
    if len(head) < 2:
        return None
    if head[:2] == b"\x1f\x8b":
        return "gzip"
    # RFC 1950: deflate, window ≤ 32 KiB, no dictionary, check bits.
    a, b = head[0], head[1]
    return "zlib" if a & 15 == 8 and a >> 4 <= 7 and b & 32 == 0 and (a * 256 + b) % 31 == 0 else None


def inflate_head(head: bytes, encoding: str) -> tuple[bytes, bool] | None:
    """(what the first bytes of a stream inflate to, whether the stream ends there); None: it cannot be inflated."""
    out = b""
    first = head
    try:
        while True:
            member = zlib.decompressobj(_WINDOW_BITS[encoding])
            out += member.decompress(head, 1 << 26)
            head = member.unused_data
            if not member.eof or encoding != "gzip" or not head or head[0] == 0:
                return out, member.eof
    except zlib.error:
        return _first_member(first, encoding)


def _first_member(head: bytes, encoding: str) -> tuple[bytes, bool] | None:
    """What stands behind the first stream, or in its checksum, may be wrong: its content is there all the same."""
    try:
        content = zlib.decompressobj(-15).decompress(head[_gzip_header(head) if encoding == "gzip" else 2 :], 1 << 26)
    except zlib.error:
        return None
    return (content, False) if content else None


def _gzip_header(head: bytes) -> int:
    """Bytes of a gzip header (RFC 1952 §2.3)."""
    flags = head[3] if len(head) > 3 else 0
    at = 10
    if flags & 4:
        at += 2 + int.from_bytes(head[at : at + 2], "little")
    for text in (8, 16):
        if flags & text:
            at = head.find(b"\0", at) + 1 or len(head)
    return at + 2 if flags & 2 else at
