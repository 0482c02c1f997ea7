"""From a schema and a view to the columns of a batch, and records into them.

The rules of `src/feed/columns.ts`: a feature of one value in every record is a scalar; a list of ones and then zeros is
kept as its length; `attention_mask` of data that stores none is the length of `input_ids`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from .._columns import Factory
from .._slices import Slices
from ..errors import AthanorError, error
from .chance import I64
from .example import Feature, example_of
from .tfrecord import Batch

MASK = "attention_mask"
_MAX_COLUMNS = 64
_STORED = {"i32": np.int32, "i64": np.int64, "f32": np.float32, "prefix": np.uint32, "length": np.uint32}
Array = np.ndarray[Any, np.dtype[Any]]
FieldInfo = dict[str, Any]


class Wrong(NamedTuple):
    """What is wrong with a feature of a record: parts of the error."""

    code: str
    words: str
    remedy: str


@dataclass(frozen=True)
class Column:
    """`storage`: i32, i64, f32: `width` values, padded; prefix, length: a 0/1 matrix by its leading ones."""

    name: str
    feature: str
    storage: str
    width: int
    scalar: bool
    pad: int

    @property
    def is_mask(self) -> bool:
        return self.storage in ("prefix", "length")

    def empty(self, rows: int) -> Array:
        shape = (rows,) if self.is_mask or self.scalar else (rows, self.width)
        return np.zeros(shape, _STORED[self.storage])

    def memory(self, factory: Factory, rows: int, slices: Slices) -> tuple[Any, Array]:
        """Memory of the user for so many rows, of lists their `slices`; and a view of it."""
        shape = (rows,) if self.scalar and not self.is_mask else (rows, slices.width)
        return factory(shape, np.dtype(np.float32 if self.storage == "f32" else np.int64))

    def deliver(self, stored: Array, target: Array, rows: I64, slices: Slices) -> None:
        """`stored`: rows of `empty`'s kind → these rows of the user's memory, as int64 or float32."""
        if self.is_mask:
            target[rows] = slices.positions < stored[:, None]
        elif self.scalar:
            target[rows] = stored
        else:
            part = np.empty((len(rows), slices.width), target.dtype)
            slices.copy(part, stored)
            target[rows] = part

    def put(self, feature: Feature | None, target: Array, row: int) -> tuple[bool, Wrong | None]:
        """Writes one record's feature; (was it cut, what is wrong with it)."""
        wanted = {"f32": "float", "length": ""}.get(self.storage, "int64")
        count, values = (0, None) if feature is None else (feature.size, feature.values)
        if feature is not None and wanted and feature.kind != wanted:
            return False, self._wrong("ATH_FEATURE_KIND", f"holds a list of {feature.kind}, expected {wanted}")
        if self.scalar and count == 0:
            return False, self._wrong(
                "ATH_VALUE_MISSING",
                "has no value in this record, and one in others (null, or left out)",
                "write a value there, or leave the column out with columns=",
            )
        kept = min(count, self.width)
        if self.storage == "length":
            target[row] = kept
        elif self.storage == "prefix":
            ones = 0 if values is None else int(np.count_nonzero(values == 1))
            if values is not None and ((values[:ones] != 1).any() or (values[ones:] != 0).any()):
                return False, self._wrong("ATH_VALUE_RANGE", "breaks the mask, which must be ones followed by zeros")
            target[row] = min(ones, self.width)
        else:
            if values is not None and self.storage == "i32" and (values != values.astype(np.int32)).any():
                return False, self._wrong("ATH_VALUE_RANGE", "has a value that does not fit int32")
            line = target[row : row + 1] if self.scalar else target[row]
            line[kept:] = self.pad
            if values is not None:
                line[:kept] = values[:kept]
        return count > self.width, None

    def _wrong(self, code: str, words: str, remedy: str = "run `athanor index` again: the shard has changed") -> Wrong:
        return Wrong(code, f'feature "{self.feature}" {words}', remedy)


def columns_of(fields: list[FieldInfo], view: dict[str, Any], own: Sequence[str], root: str) -> list[Column]:
    """Delivered columns; `view`: the hello's; `own`: what the loader makes, left out by default.

    Raises ATH_COLUMN_UNKNOWN."""
    numeric = [field for field in fields if field["kind"] != "bytes"]
    names = view["columns"]
    if names is None:
        names = [field["name"] for field in numeric]
        if not names:
            found = ", ".join(f"{field['name']} ({field['kind']})" for field in fields) or "no feature at all"
            raise error(
                "ATH_COLUMN_UNKNOWN",
                f"no numeric feature to train on: found {found}",
                file=root,
                remedy="text has to be tokenised first",
            )
        names = [name for name in names if name not in own]
        if not names:
            raise error(
                "ATH_COLUMN_UNKNOWN",
                f"no column to train on but {', '.join(own)}, which the loader makes itself",
                file=root,
                remedy="give the field another name",
            )
        ids = next((field for field in numeric if field["name"] == "input_ids"), None)
        # One id a record needs no mask: none is padded.
        if ids is not None and not _is_scalar(ids) and MASK not in names:
            names = [*names, MASK]
    if len(names) > _MAX_COLUMNS:
        raise error(
            "ATH_COLUMN_UNKNOWN",
            f"{len(names)} columns are too many: at most {_MAX_COLUMNS} can be delivered",
            file=root,
            remedy="name those that training needs with columns=",
        )
    return [_column(name, fields, numeric, view, root) for name in names]


def _column(name: str, fields: list[FieldInfo], numeric: list[FieldInfo], view: dict[str, Any], root: str) -> Column:
    width = int(view["max_length"])
    field = next((field for field in fields if field["name"] == name), None)
    if field is None:
        ids = next((other for other in numeric if other["name"] == "input_ids"), numeric[0] if numeric else None)
        if name == MASK and ids is not None:
            return Column(name, ids["name"], "length", width, False, 0)
        found = ", ".join(other["name"] for other in fields)
        raise error(
            "ATH_COLUMN_UNKNOWN",
            f"column {name} is not in the data: found {found}",
            file=root,
            remedy="see `athanor inspect`",
        )
    if field["kind"] == "bytes":
        raise error(
            "ATH_COLUMN_UNKNOWN",
            f"column {name} holds text or bytes, which cannot be delivered as numbers",
            file=root,
            remedy="leave it out of columns, or tokenise the data first",
        )
    scalar = _is_scalar(field)
    pad = int(view["pad_id"]) if name in ("input_ids", "labels") else 0
    if field["kind"] == "float":
        storage = "f32"
    elif field.get("prefixMask") is True and not scalar:
        storage = "prefix"
    else:
        low, high = int(field.get("min", "0")), int(field.get("max", "0"))
        storage = "i32" if low >= -(2**31) and high < 2**31 else "i64"
    return Column(name, name, storage, 1 if scalar else width, scalar, pad)


def _is_scalar(field: FieldInfo) -> bool:
    return bool(field["minLength"] == 1 and field["maxLength"] == 1)


class Rows:
    """Decoded samples: stored columns, and the identity of each row."""

    def __init__(self, columns: list[Column], count: int) -> None:
        self.columns = columns
        self.stored = [column.empty(count) for column in columns]
        self.ids = np.zeros((count, 4), np.uint64)  # position (not known here), shard key, record, token
        self.truncated = np.zeros(count, bool)
        self.replaced = np.zeros(count, bool)  # another record stands in for a bad one
        self._names = {column.feature.encode() for column in columns}
        self._filled = 0

    def add(self, file: str, key: int, batch: Batch, i: int, strict: bool) -> None:
        """Record i of a batch as the next row. Raises ATH_RECORD_MALFORMED, ATH_FEATURE_KIND, ATH_VALUE_RANGE,
        ATH_VALUE_MISSING and, if `strict`, ATH_ROW_TOO_LONG."""
        wrong = self.put(key, batch.record + i, 0, example_of(file, batch, i, self._names))
        if wrong is not None:
            raise AthanorError(
                wrong.code,
                wrong.words,
                file=file,
                record=batch.record + i,
                byte_offset=batch.record_offset(i),
                remedy=wrong.remedy,
            )
        if strict and self.truncated[self._filled - 1]:
            raise AthanorError(
                "ATH_ROW_TOO_LONG",
                "a list is longer than max_length, and strict=True forbids cutting it",
                file=file,
                record=batch.record + i,
                remedy="raise max_length or set strict=False",
            )

    @property
    def filled(self) -> int:
        return self._filled

    def back_to(self, filled: int) -> None:
        """Forgets the rows behind."""
        self._filled = filled
        self.truncated[filled:] = False

    def put(self, key: int, record: int, token: int, features: Mapping[bytes, Feature | None]) -> Wrong | None:
        """A sample as the next row, by its identity and its features; what is wrong with it."""
        row = self._filled
        for column, target in zip(self.columns, self.stored):
            cut, wrong = column.put(features.get(column.feature.encode()), target, row)
            self.truncated[row] |= cut
            if wrong is not None:
                return wrong
        self.ids[row, 1:] = key, record, token
        self._filled = row + 1
        return None
