"""`.npy`: one array of token ids as a stream. Its elements are its records.

Source of the format: numpy/lib/format.py (NEP 1).

    │ "\\x93NUMPY" │ u8 major │ u8 minor │ u16 (from 2.0: u32) n │ n bytes: dict of descr, fortran_order, shape │ data │
"""

from __future__ import annotations

import ast
from typing import Any

import numpy as np

from ..errors import AthanorError
from .files import DataFile
from .tokens import Tokens

MAGIC = b"\x93NUMPY"
_MAX_HEADER = 1 << 20
_AGAIN = "write it again with numpy.save"


def npy_tokens(file: DataFile) -> Tokens:
    """Where the tokens lie. Raises ATH_FORMAT_UNSUPPORTED for other arrays than flat ones of integers,
    ATH_SHARD_TRUNCATED, and ATH_SHARD_INVALID for a header that says nothing."""
    head = file.read(0, min(12, file.size))
    if not head.startswith(MAGIC[: len(head)]) or not head:
        raise AthanorError(
            "ATH_NOT_FORMAT",
            f"not .npy: the file has {file.size} bytes and begins with {head!r}",
            file=file.path,
            byte_offset=0,
            remedy="give a folder or glob that holds .npy shards only",
        )
    if len(head) < 10:
        raise _truncated(file, 10)
    if head[6] not in (1, 2, 3):
        raise _unsupported(file, f"version {head[6]}.{head[7]} of .npy, only 1 to 3 are known", 6)
    begin = 10 if head[6] == 1 else 12
    length = int.from_bytes(head[8:begin], "little")
    offset = begin + length
    if length > _MAX_HEADER:
        raise _invalid(file, f"a header of {length} bytes", 8)
    if file.size < offset:
        raise _truncated(file, offset)
    header = _header(file, file.read(begin, length), begin)
    shape = header["shape"]
    try:
        dtype = np.dtype(header["descr"]) if isinstance(header["descr"], str) else np.dtype(object)
    except TypeError:
        raise _invalid(file, f"unknown type {header['descr']!r}", begin) from None
    if dtype.kind not in "iu":
        raise _unsupported(file, f"values of type {header['descr']!r} are no token ids, expected integers", begin)
    if len(shape) != 1:
        raise _unsupported(file, f"an array of shape {shape}, expected one dimension", begin, "save array.reshape(-1)")
    needed = offset + shape[0] * dtype.itemsize
    if file.size < needed:
        raise _truncated(file, needed)
    if file.size > needed:
        raise _invalid(file, f"{file.size} bytes, the header says {needed}", needed)
    return Tokens(file.path, (file.size, file.mtime_ns), offset, dtype, shape[0])


def _header(file: DataFile, raw: bytes, begin: int) -> dict[str, Any]:
    try:
        header = ast.literal_eval(raw.decode("utf-8").strip())
        # Data of an untrusted file: each field is of the type that it must have before it is used.
        if (
            isinstance(header["fortran_order"], bool)
            and isinstance(header["shape"], tuple)
            and all(isinstance(n, int) and 0 <= n < 2**53 for n in header["shape"])
            and "descr" in header
        ):
            return dict(header)
    except (ValueError, SyntaxError, TypeError, KeyError, MemoryError, RecursionError):
        pass
    raise _invalid(file, "a header that is no dict of descr, fortran_order and shape", begin)


def _truncated(file: DataFile, needed: int) -> AthanorError:
    return AthanorError(
        "ATH_SHARD_TRUNCATED",
        f"the array is cut: the file has {file.size} bytes, its header needs {needed}",
        file=file.path,
        byte_offset=file.size,
        remedy="copy the shard again",
    )


def _invalid(file: DataFile, what: str, at: int) -> AthanorError:
    return AthanorError("ATH_SHARD_INVALID", f"no valid .npy: {what}", file=file.path, byte_offset=at, remedy=_AGAIN)


def _unsupported(file: DataFile, what: str, at: int, remedy: str = _AGAIN) -> AthanorError:
    return AthanorError("ATH_FORMAT_UNSUPPORTED", what, file=file.path, byte_offset=at, remedy=remedy)
