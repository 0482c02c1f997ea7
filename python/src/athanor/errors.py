"""Errors: one class, a stable `code`, and a message that says what, where and what to do.

Match `error.code`, never the text; every code is listed in docs/reference/errors.md.

>>> try:
...     next(iter(loader))
... except AthanorError as error:
...     print(error.code, error.file, error.record, error.byte_offset)
"""

from __future__ import annotations

from typing import Any

__all__ = ["AthanorError", "AthanorValueError"]


class AthanorError(Exception):
    """Anything that Athanor reports. Records and byte offsets start at 0; fields that do not apply are None."""

    def __init__(
        self,
        code: str,
        what: str,
        *,
        file: str | None = None,
        record: int | None = None,
        byte_offset: int | None = None,
        remedy: str | None = None,
        cause: str | None = None,
    ) -> None:
        place = ", ".join(
            part
            for part in (
                file,
                None if record is None else f"record {record}",
                None if byte_offset is None else f"byte {byte_offset}",
            )
            if part is not None
        )
        message = (f"{place}: " if place else "") + what
        if cause is not None and cause not in what:
            message += f"; cause: {cause}"
        if remedy is not None:
            message += f" ({remedy})"
        super().__init__(f"{message} [{code}]")
        self.code = code
        self.what = what
        self.file = file
        self.record = record
        self.byte_offset = byte_offset
        self.remedy = remedy
        self.cause = cause

    def __reduce__(self) -> Any:
        """Survives the way out of a DataLoader worker, which pickles exceptions."""
        return _rebuild, (
            type(self),
            self.code,
            self.what,
            self.file,
            self.record,
            self.byte_offset,
            self.remedy,
            self.cause,
        )


class AthanorValueError(AthanorError, ValueError):
    """An AthanorError that comes from a wrong argument or a state that does not fit."""


# Causes that lie in what the caller gave; the rest are faults of data, machine or agent.
_VALUE_CODES = frozenset(
    {
        "ATH_STATE_MISMATCH",
        "ATH_STATE_INVALID",
        "ATH_BATCH_ARITHMETIC",
        "ATH_ORDER_OPTION",
        "ATH_COLUMN_UNKNOWN",
        "ATH_SAMPLE_RULE",
    }
)


def error(code: str, what: str, **fields: Any) -> AthanorError:
    """An AthanorError of the class that its code has."""
    return (AthanorValueError if code in _VALUE_CODES else AthanorError)(code, what, **fields)


def from_record(record: dict[str, Any]) -> AthanorError:
    """The error that an agent sent as `{"code", "message", "file", "record", "byteOffset", "remedy", "cause"}`."""
    return error(
        str(record.get("code", "ATH_INTERNAL")),
        str(record.get("message", "the agent gave no message")),
        file=record.get("file"),
        record=record.get("record"),
        byte_offset=record.get("byteOffset"),
        remedy=record.get("remedy"),
        cause=record.get("cause"),
    )


def _rebuild(
    kind: type[AthanorError],
    code: str,
    what: str,
    file: str | None,
    record: int | None,
    byte_offset: int | None,
    remedy: str | None,
    cause: str | None,
) -> AthanorError:
    return kind(code, what, file=file, record=record, byte_offset=byte_offset, remedy=remedy, cause=cause)
