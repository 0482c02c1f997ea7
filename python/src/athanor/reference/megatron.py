"""Megatron's `.bin/.idx` (version 1): tokens of documents, and where each begins.

Source of the format: Megatron-LM, megatron/core/datasets/indexed_dataset.py. The .idx, little-endian:

    │ "MMIDIDX\\0\\0" │ u64 1 │ u8 type │ u64 sequences │ u64 documents + 1 │
    │ i32 lengths[sequences] │ i64 pointers[sequences] │ i64 borders[documents + 1] │ i8 modes[sequences], or nothing │

The .bin: the sequences, one behind another. `borders` are numbers of sequences: a document is one or several of them.

>>> for document in read_megatron("/data/text_document.bin"): ...
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from typing import Any

import numpy as np

from ..errors import AthanorError
from .crc import crc32c
from .files import DataFile
from .tokens import Tokens

MAGIC = b"MMIDIDX\0\0"
_FAIRSEQ = b"TNTIDX\0\0"
_HEAD = 34
_TYPES = {1: "u1", 2: "i1", 3: "<i2", 4: "<i4", 5: "<i8", 8: "<u2"}
_FLOATS = {6: "float64 (in older code float32)", 7: "float32 (in older code float64)"}
_AGAIN = "write or merge the pair again"
Array = np.ndarray[Any, np.dtype[Any]]


def idx_of(path: str) -> str:
    """The .idx that belongs to a .bin."""
    return path[: -len(".bin")] + ".idx"


def megatron_tokens(path: str) -> tuple[Tokens, int]:
    """The .bin of a pair, and the CRC32C of its .idx. Raises ATH_SHARD_INVALID for an .idx that contradicts itself or
    the .bin, ATH_SHARD_TRUNCATED for a file that is too short, ATH_FORMAT_UNSUPPORTED, ATH_NOT_FOUND without .idx."""
    data = DataFile(path)
    version, size = (data.size, data.mtime_ns), data.size
    data.close()
    name = idx_of(path)
    if not os.path.exists(name):
        raise half_pair(path)
    file = DataFile(name)
    raw = file.read(0, file.size)
    file.close()
    dtype, lengths, pointers, borders = _sections(name, raw)
    sequences = len(lengths)
    at_documents = _HEAD + 12 * sequences
    _check_documents(name, borders, sequences, at_documents)

    def document_of(sequence: int) -> int:
        return int(np.searchsorted(borders, sequence, "right")) - 1

    for i in np.flatnonzero(lengths < 0)[:1].tolist():
        what = f"sequence {i} has length {lengths[i]}"
        raise _invalid(name, what, _HEAD + 4 * i, document_of(i))
    begins = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)])
    for i in np.flatnonzero(pointers != begins[:-1] * dtype.itemsize)[:1].tolist():
        pointer, given = int(pointers[i]), int(begins[i]) * dtype.itemsize
        what = f"pointer {pointer} of sequence {i}, the lengths before it give {given}"
        if pointer < 0 or (given - pointer) % 2**32 == 0:
            what += " (it wraps at 2^32: a merge of more than 4 GiB in int32)"
        elif pointer % dtype.itemsize != 0:
            what += f"; it is not a multiple of the {dtype.itemsize}-byte item"
        raise _invalid(name, what, _HEAD + 4 * sequences + 8 * i, document_of(i))
    needed = int(begins[-1]) * dtype.itemsize
    if size < needed:
        i = int(np.searchsorted(begins[1:] * dtype.itemsize, size, "right"))
        raise AthanorError(
            "ATH_SHARD_TRUNCATED",
            f".bin has {size} bytes, the index needs {needed}: it ends in sequence {i}",
            file=path,
            record=document_of(i),
            byte_offset=int(begins[i]) * dtype.itemsize,
            remedy="copy the .bin again",
        )
    if size > needed:
        raise AthanorError(
            "ATH_SHARD_INVALID",
            f".bin has {size} bytes, the index knows {needed}: they are not of one pair",
            file=path,
            byte_offset=needed,
            remedy=_AGAIN,
        )
    documents = begins[borders]
    longest = int(np.diff(documents).max(initial=0))
    if longest >= 2**32:
        raise AthanorError(
            "ATH_FORMAT_UNSUPPORTED",
            f"a document of {longest} tokens, fewer than 2^32 can be read",
            file=name,
            record=int(np.argmax(np.diff(documents))),
            remedy="cut it into several documents",
        )
    return Tokens(path, version, 0, dtype, int(begins[-1]), documents), crc32c(raw)


def half_pair(path: str) -> AthanorError:
    """`path`: the .bin or .idx that is there."""
    stem, ending = os.path.splitext(path)
    other = os.path.basename(stem) + (".idx" if ending == ".bin" else ".bin")
    what = f"{other} is missing: Megatron's .bin and .idx are read together"
    return AthanorError("ATH_NOT_FOUND", what, file=path, remedy="copy it beside this file")


def read_megatron(path: str) -> Iterator[Array]:
    """Documents of a .bin in file order, as they are stored."""
    tokens, _ = megatron_tokens(path)
    file = DataFile(path, tokens.version)
    borders = [] if tokens.documents is None else tokens.documents.tolist()
    for start, stop in zip(borders, borders[1:]):
        size = tokens.dtype.itemsize
        yield np.frombuffer(file.read(start * size, (stop - start) * size), tokens.dtype)


def _sections(name: str, raw: bytes) -> tuple[np.dtype[Any], Array, Array, Array]:
    """(type, lengths, pointers, documents), sizes checked before anything is made of them."""
    if raw[: len(MAGIC)] != MAGIC:
        if raw[: len(_FAIRSEQ)] == _FAIRSEQ:
            raise _unsupported(name, "an old fairseq index (TNTIDX), expected MMIDIDX", 0)
        raise _invalid(name, f"begins with {raw[:9]!r}, expected {MAGIC!r}", 0)
    if len(raw) < _HEAD:
        raise _cut(name, len(raw), _HEAD)
    version, code, sequences, documents = struct.unpack_from("<QBQQ", raw, len(MAGIC))
    if version != 1:
        raise _unsupported(name, f"index version {version}, only 1 is known", 9)
    if code in _FLOATS:
        raise _unsupported(name, f"dtype code {code} is {_FLOATS[code]}: no token ids", 17)
    if code not in _TYPES:
        raise _unsupported(name, f"unknown dtype code {code}", 17)
    if 12 * sequences > len(raw):
        raise _invalid(name, f"sequence count {sequences} does not fit a file of {len(raw)} bytes", 18)
    if 8 * documents > len(raw):
        raise _invalid(name, f"document count {documents} does not fit a file of {len(raw)} bytes", 26)
    needed = _HEAD + 12 * sequences + 8 * documents
    if len(raw) < needed:
        raise _cut(name, len(raw), needed)
    if len(raw) not in (needed, needed + sequences):
        raise _invalid(
            name, f"has {len(raw)} bytes, its counts need {needed} (with modes {needed + sequences})", needed
        )
    at = _HEAD + 4 * sequences
    return (
        np.dtype(_TYPES[code]),
        np.frombuffer(raw, "<i4", sequences, _HEAD).astype(np.int64),
        np.frombuffer(raw, "<i8", sequences, at).astype(np.int64),
        np.frombuffer(raw, "<i8", documents, at + 8 * sequences).astype(np.int64),
    )


def _check_documents(name: str, borders: Array, sequences: int, at: int) -> None:
    if len(borders) == 0:
        raise _invalid(name, f"the document index is empty, there are {sequences} sequences", 26)
    if borders[0] != 0:
        raise _invalid(name, f"the document index starts at {borders[0]}, expected 0", at)
    for i in (np.flatnonzero(np.diff(borders) < 0)[:1] + 1).tolist():
        raise _invalid(name, f"the document index goes down: {borders[i - 1]} then {borders[i]}", at + 8 * i)
    if borders[-1] != sequences:
        what = (
            f"the document index ends at {borders[-1]}, there are {sequences} sequences (a merge lost the documents?)"
        )
        raise _invalid(name, what, at + 8 * (len(borders) - 1))


def _invalid(name: str, what: str, at: int, record: int | None = None) -> AthanorError:
    return AthanorError("ATH_SHARD_INVALID", what, file=name, record=record, byte_offset=at, remedy=_AGAIN)


def _unsupported(name: str, what: str, at: int) -> AthanorError:
    remedy = "write the pair again with integer token ids, in Megatron's present format"
    return AthanorError("ATH_FORMAT_UNSUPPORTED", what, file=name, byte_offset=at, remedy=remedy)


def _cut(name: str, found: int, needed: int) -> AthanorError:
    return AthanorError(
        "ATH_SHARD_TRUNCATED",
        f".idx has {found} bytes, its counts need {needed}",
        file=name,
        byte_offset=found,
        remedy="copy the .idx again",
    )
