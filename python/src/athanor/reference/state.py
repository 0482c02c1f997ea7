"""The order's state: made, checked, and turned into an order again (docs/reference/order.md, "State").

>>> state_of(resolved, 40960, "data", "0123456789abcdef0123456789abcdef", 10_000_000)["position"]
'40960'
"""

from __future__ import annotations

import re
from typing import Any

from .._state import State, checked
from ..errors import AthanorError, error
from .order import GIB, Resolved, Totals, is_held, refuse_streams, resolve

_WEIGHT_SUM = 65536
_MOST = 2**53 - 1
_DECIMAL = re.compile(r"0|[1-9][0-9]{0,19}")
_MODES = {"shuffle": ("window", "global", "none"), "last": ("carry", "drop", "pad")}


def state_of(resolved: Resolved, position: int, name: str, view: str, samples: int) -> State:
    """One source in one segment, at a position."""
    return {
        "version": 1,
        "seed": str(resolved.seed),
        "position": str(position),
        "sources": [{"name": name, "view": view, "samples": str(samples)}],
        "segments": [
            {
                "from": str(resolved.start),
                # No earlier segment: every lane had delivered nothing of the source.
                "sources": [{"view": 0, "weight": _WEIGHT_SUM, "offset": []}],
                "L": resolved.lanes,
                "window": resolved.window,
                "extent": resolved.extent,
                "shuffle": resolved.shuffle,
                "last": resolved.last,
                "G": resolved.global_batch,
            }
        ],
    }


def order_of(
    totals: Totals, fingerprint: str, order: dict[str, Any], state: State | None, override: bool
) -> tuple[Resolved, int]:
    """The order to go by and the position where it goes on.

    `order`: the hello's field; what the segment of `state` holds wins over it. Raises ATH_STATE_INVALID, and
    ATH_STATE_MISMATCH for another view, seed or global batch, unless `override`: then a new order begins at the next
    optimizer-batch border."""
    options = {name: value for name, value in order.items() if value is not None}
    options["seed"] = int(options["seed"])
    if state is None:
        resolved = resolve(totals, **options)
        return resolved, resolved.start
    state = _valid(state)
    source, segment = state["sources"][0], state["segments"][0]
    position, start = int(state["position"]), int(segment["from"])
    if len(state["segments"]) > 1 or len(state["sources"]) > 1:
        raise error(
            "ATH_STATE_MISMATCH",
            f"state has {len(state['sources'])} sources and {len(state['segments'])} segments; this version reads one "
            "of each",
            remedy="use the version of Athanor that wrote it",
        )
    if position < start:
        raise _invalid(f"position {position} lies before its segment, which begins at {start}")
    differs = [
        f"{what}: state has {found}, this job has {expected}"
        for what, found, expected in (
            ("view fingerprint (data, columns, max_length or tokenizer)", source["view"], fingerprint),
            ("samples", source["samples"], str(totals.samples)),
            ("seed", state["seed"], str(options["seed"])),
            ("samples of one optimizer batch", segment["G"], options["global_batch"]),
        )
        if found != expected
    ]
    if differs and not override:
        raise error(
            "ATH_STATE_MISMATCH",
            f"the state belongs to another order ({'; '.join(differs)})",
            remedy="use the data, seed and global batch of the run that wrote it, or override=True to begin a new "
            "order here",
        )
    if differs:
        begin = start + -(-(position - start) // segment["G"]) * segment["G"]
        return resolve(totals, **options, start=begin), begin
    held = segment["shuffle"] == "global" and is_held(totals, options.get("shuffle_memory", GIB))
    refuse_streams(totals, segment["shuffle"], held)
    resolved = Resolved(
        options["seed"],
        segment["shuffle"],
        held,
        segment["L"],
        segment["window"],
        segment["extent"],
        segment["last"],
        segment["G"],
        start,
    )
    return resolved, position


def _valid(state: State) -> State:
    """The state, every field of the type and range that it must have."""
    state = checked(state)
    _decimal(state, "seed", 2**64 - 1)
    _decimal(state, "position")
    _fields(state, "sources", {"name", "view", "samples"})
    _fields(state, "segments", {"from", "sources", "L", "window", "extent", "shuffle", "last", "G"})
    for source in state["sources"]:
        _decimal(source, "samples")
        if not isinstance(source["name"], str) or not re.fullmatch(r"[0-9a-f]{32}", str(source["view"])):
            raise _invalid("a source must have a name and a view of 32 hex digits")
    for segment in state["segments"]:
        _decimal(segment, "from")
        for name, least in (("L", 1), ("window", 1), ("extent", 0), ("G", 1)):
            value = segment[name]
            if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= _MOST:
                raise _invalid(f"{name} must be a whole number of at least {least}, got {value!r}")
        for name, allowed in _MODES.items():
            if segment[name] not in allowed:
                raise _invalid(f"{name} must be one of {', '.join(allowed)}, got {segment[name]!r}")
        _fields(segment, "sources", {"view", "weight", "offset"})
        for part in segment["sources"]:
            if part["view"] not in range(len(state["sources"])):
                raise _invalid(f"a segment names source {part['view']!r}, but there are {len(state['sources'])}")
    return state


def _decimal(holder: dict[str, Any], name: str, most: int = _MOST) -> None:
    value = holder[name]
    if not isinstance(value, str) or not _DECIMAL.fullmatch(value) or int(value) > most:
        raise _invalid(f"{name} must be a decimal string of at most {most}, got {value!r}")


def _fields(holder: dict[str, Any], name: str, keys: set[str]) -> None:
    parts = holder[name]
    if not isinstance(parts, list) or not parts:
        raise _invalid(f"{name} must be a list that is not empty, got {parts!r}")
    for part in parts:
        if not isinstance(part, dict) or set(part) != keys:
            raise _invalid(f"{name} must hold {', '.join(sorted(keys))}, got {part!r}")


def _invalid(what: str) -> AthanorError:
    return error(
        "ATH_STATE_INVALID", f"this is not a state: {what}", remedy="give what `state_dict()` returned, unchanged"
    )
