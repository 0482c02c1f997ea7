"""TFRecord framing, in file order, with every length CRC checked and payload CRCs on request.

Source of the format: tensorflow/core/lib/io/record_writer.h. Little-endian:

    │ u64 length │ u32 masked CRC32C of it │ payload │ u32 masked CRC32C of the payload │

>>> for payload in read_tfrecord("/data/train_000.tfrecord.gz"): ...
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, NamedTuple, Union

import numpy as np

from ..errors import AthanorError
from .crc import U8, crc32c_each, masked, masked_length
from .files import DataFile
from .inflate import PlainBytes, StreamBytes, compression, inflate_head

ByteSource = Union[PlainBytes, StreamBytes]
I64 = np.ndarray[Any, np.dtype[np.int64]]

_READ = 1 << 20
_HEAD = 4096
_MAX_PAYLOAD = 2**31 - 17
_DAMAGED = "the file is damaged: copy or write the shard again"


class Batch(NamedTuple):
    """Consecutive records: the first one's number, and where payloads lie in `data`, whose first byte is `offset`."""

    record: int
    offset: int
    data: U8
    starts: I64
    lengths: I64

    def payload(self, i: int) -> U8:
        return self.data[self.starts[i] : self.starts[i] + self.lengths[i]]

    def record_offset(self, i: int) -> int:
        return self.offset + int(self.starts[i]) - 12


def encoding_of(file: DataFile) -> str:
    """plain, gzip or zlib, by content. Raises ATH_NOT_FORMAT. A file of 0 bytes is a shard of 0 records."""
    head = file.read(0, min(_HEAD, file.size))
    if not head or begins_with_frame(head):
        return "plain"
    encoding = compression(head)
    inflated = None if encoding is None else inflate_head(head, encoding)
    if encoding is not None and inflated is not None:
        data, whole = inflated
        # Too little came out to tell: a whole stream of 0 bytes holds 0 records, a cut one is refused by its reader.
        if begins_with_frame(data) or (len(data) < 12 and not (data and whole)):
            return encoding
    raise AthanorError(
        "ATH_NOT_FORMAT",
        f'of no format that agent="none" reads (TFRecord, .npy, Megatron): the file has {file.size} bytes and begins '
        f"with {head[:16]!r}",
        file=file.path,
        record=0,
        byte_offset=0,
        remedy='leave agent="none" out for formats that the agent reads; a folder or glob must hold shards only',
    )


def batches(source: ByteSource, record: int = 0, offset: int = 0) -> Iterator[Batch]:
    """Records until the source ends; `record`, `offset`: of its first byte. Good ones come out before a fault does."""
    data = b""
    while True:
        starts: list[int] = []
        lengths: list[int] = []
        at = 0
        needed = 12
        fault: AthanorError | None = None
        while len(data) - at >= 12:
            length, crc = struct.unpack_from("<QI", data, at)
            found = masked_length(data[at : at + 8])
            place: dict[str, Any] = {
                "file": source.file.path,
                "record": record + len(starts),
                "byte_offset": offset + at,
            }
            if found != crc:
                fault = AthanorError(
                    "ATH_RECORD_CRC",
                    f"length CRC32C mismatch: found {crc:#010x}, computed {found:#010x} over the 8 length bytes",
                    remedy=_DAMAGED,
                    **place,
                )
                break
            if length > _MAX_PAYLOAD:
                fault = AthanorError(
                    "ATH_RECORD_TOO_LONG",
                    f"record of {length} payload bytes, at most {_MAX_PAYLOAD} are read",
                    remedy="split it into smaller records",
                    **place,
                )
                break
            needed = length + 16
            if len(data) - at < needed:
                break
            starts.append(at + 12)
            lengths.append(length)
            at += needed
            needed = 12
        if starts:
            view = np.frombuffer(data, np.uint8)
            yield Batch(record, offset, view, np.array(starts, np.int64), np.array(lengths, np.int64))
        if fault is not None:
            raise fault
        record += len(starts)
        offset += at
        parts = [data[at:]]
        have = len(parts[0])
        if source.left is not None and have + source.left < needed and have + source.left > 0:
            raise _truncated(source, record, offset, needed, have + source.left)
        while have < needed:
            part = source.read(max(_READ, min(needed - have, 1 << 24)))
            if not part:
                if have == 0:
                    return
                raise _truncated(source, record, offset, needed, have)
            parts.append(part)
            have += len(part)
        data = b"".join(parts)


def check_payloads(file: str, batch: Batch, first: int, stop: int) -> tuple[int, AthanorError | None]:
    """(how many from `first` on are good, the fault of the one behind them)."""
    found = crc32c_each(batch.data, batch.starts[first:stop], batch.lengths[first:stop])
    for i, crc in enumerate(found.tolist(), first):
        behind = int(batch.starts[i] + batch.lengths[i])
        stored = int.from_bytes(batch.data[behind : behind + 4].tobytes(), "little")
        if masked(crc) != stored:
            return i - first, AthanorError(
                "ATH_RECORD_CRC",
                f"payload CRC32C mismatch: found {stored:#010x} at byte {batch.offset + behind}, "
                f"computed {masked(crc):#010x}",
                file=file,
                record=batch.record + i,
                byte_offset=batch.record_offset(i),
                remedy=_DAMAGED,
            )
    return stop - first, None


def read_tfrecord(path: str) -> Iterator[bytes]:
    """Payloads of a shard in file order, every CRC checked; the good ones before a fault come first."""
    file = DataFile(path)
    encoding = encoding_of(file)
    source = PlainBytes(file, 0, file.size) if encoding == "plain" else StreamBytes(file, encoding)
    for batch in batches(source):
        good, fault = check_payloads(path, batch, 0, len(batch.starts))
        for i in range(good):
            yield batch.payload(i).tobytes()
        if fault is not None:
            raise fault


def begins_with_frame(head: bytes) -> bool:
    return len(head) >= 12 and masked_length(head[:8]) == int.from_bytes(head[8:12], "little")


def _truncated(source: ByteSource, record: int, offset: int, needed: int, found: int) -> AthanorError:
    if found < 12:
        what = f"record truncated: a header takes 12 bytes, only {found} bytes remain"
    elif found - 12 < needed - 16:
        what = f"record truncated: header says {needed - 16} payload bytes, only {found - 12} bytes remain"
    else:
        what = (
            f"record truncated: header says {needed - 16} payload bytes and a CRC of 4, only {found - 12} bytes remain "
            "for both"
        )
    return AthanorError(
        "ATH_RECORD_TRUNCATED", what, file=source.file.path, record=record, byte_offset=offset, remedy=_DAMAGED
    )
