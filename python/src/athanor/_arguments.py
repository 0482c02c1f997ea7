"""Checks of arguments: ValueError("x must be …, got …")."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._mix import Mix


def view_request(
    source: str | os.PathLike[str] | None,
    mix: Mix | None,
    index_dir: str | os.PathLike[str] | None,
    columns: Sequence[str] | None,
    max_length: int,
    pad_id: int | None,
    strict: bool,
    sample_rule: str | None = None,
    tokenizer: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """The `view` field of the hello."""
    if (source is None) == (mix is None):
        raise ValueError(f"source must be given, or mix instead of it, got {'neither' if source is None else 'both'}")
    if mix is not None and index_dir is not None:
        raise ValueError(f"index_dir must stand beside each path in the mix, got {index_dir!r}")
    text = "mix" if source is None else os.fspath(source)
    if not isinstance(text, str) or not text:
        raise ValueError(f"source must be a path, got {source!r}")
    if any("\ud800" <= letter <= "\udfff" for letter in text):
        raise ValueError(f"source must be a path in UTF-8, got {source!r}: rename it")
    at_least_one("max_length", max_length, 1 << 24)
    if pad_id is None and tokenizer is None:
        pad_id = 0
    if pad_id is not None and (not isinstance(pad_id, int) or not -(2**31) <= pad_id < 2**31):
        raise ValueError(f"pad_id must be a whole number of 32 bits, got {pad_id!r}")
    if columns is not None and (len(columns) == 0 or not all(isinstance(name, str) for name in columns)):
        raise ValueError(f"columns must name at least one feature, got {columns!r}")
    if columns is not None and len(set(columns)) < len(columns):
        raise ValueError(f"columns must name each feature once, got {columns!r}")
    if sample_rule is not None:
        one_of("sample_rule", sample_rule, ("record", "document", "stream", "split", "pack"))
    rule: dict[str, Any] = {} if sample_rule is None else {"sample_rule": sample_rule}
    if tokenizer is not None:
        rule["tokenizer"] = tokenizer
    return {
        "source": text if mix is not None or "://" in text else os.path.abspath(text),
        "index_dir": None if index_dir is None else os.path.abspath(index_dir),
        "columns": None if columns is None else list(columns),
        "max_length": max_length,
        "pad_id": pad_id,
        "strict": strict,
        **rule,
    }


def refuse_unusable(columns: object, transform: object) -> None:
    """What would fail, or be taken for something else, only later."""
    if isinstance(columns, str):
        raise ValueError(f"columns must be a list of names, got {columns!r}")
    if transform is not None and not callable(transform):
        raise ValueError(f"transform must be a function of a batch, got {transform!r}")


def flags(**given: object) -> None:
    """Text such as "no" would count as True."""
    for name, value in given.items():
        if not isinstance(value, bool):
            raise ValueError(f"{name} must be True or False, got {value!r}")


def agent_mode(agent: str | None) -> str:
    mode = agent or os.environ.get("ATHANOR_AGENT") or "auto"
    one_of("agent (or ATHANOR_AGENT)", mode, ("auto", "external", "none"))
    return mode


def one_of(name: str, value: object, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(repr(a) for a in allowed)}, got {value!r}")


def at_least_one(name: str, value: object, most: int = 2**53 - 1) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{name} must be a whole number of at least 1, got {value!r}")
    if value > most:
        raise ValueError(f"{name} must be at most {most}, got {value}")


def positive(name: str, value: float) -> float:
    if not isinstance(value, (int, float)) or not value > 0:
        raise ValueError(f"{name} must be a number of seconds above 0, got {value!r}")
    return float(value)


_UNITS = {"": 1, "b": 1}
for _power, _letter in enumerate("kmgtp", 1):
    _UNITS |= {_letter: 1024**_power, f"{_letter}ib": 1024**_power, f"{_letter}b": 1000**_power}


def size(name: str, value: int | str) -> int:
    """Bytes: a whole number, or text as commands take it: "64MiB" and "64M" are 2^26, "64MB" is 64 million."""
    if isinstance(value, str):
        match = re.fullmatch(r"\s*(\d+(?:\.\d+)?(?:e\d+)?)\s*([a-z]*)\s*", value.lower())
        unit = None if match is None else _UNITS.get(match[2])
        if match is None or unit is None:
            raise ValueError(f"{name} must be a number of bytes or a size such as 64MiB or 2GB, got {value!r}")
        value = round(float(match[1]) * unit)
    at_least_one(name, value)
    return value
