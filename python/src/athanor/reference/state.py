"""The run's state: made, checked, and turned into a run again (docs/reference/order.md, "State").

>>> state_of(run, 40960)["position"]
'40960'
"""

from __future__ import annotations

import re
from typing import Any

from .._state import State, checked
from ..errors import AthanorError, error
from .mixture import PERIOD
from .plan import Job, begun, border, differences, plan
from .resolve import How
from .segments import Joined, Run, Segment

_MOST = 2**53 - 1
_DECIMAL = re.compile(r"0|[1-9][0-9]{0,19}")
_MODES = {"shuffle": ("window", "global", "none"), "last": ("carry", "drop", "pad")}
_SOURCE = {"name", "view", "samples", "L", "window", "extent", "shuffle"}
_SEGMENT = {"from", "sources", "weights", "L", "last", "G"}


def state_of(run: Run, position: int) -> State:
    return {
        "version": 1,
        "seed": str(run.seed),
        "position": str(position),
        "sources": [
            {
                "name": joined.name,
                "view": joined.view,
                "samples": str(joined.samples),
                "L": joined.how.lanes,
                "window": joined.how.window,
                "extent": joined.how.extent,
                "shuffle": joined.how.shuffle,
            }
            for joined in run.sources
        ],
        "segments": [
            {
                "from": str(segment.start),
                "sources": list(segment.sources),
                "weights": list(segment.weights),
                "L": segment.lanes,
                "last": segment.last,
                "G": segment.global_batch,
            }
            for segment in run.segments
        ],
    }


def run_of(state: State) -> Run:
    """Raises ATH_STATE_INVALID."""
    state = _valid(state)
    sources = tuple(
        Joined(
            source["name"],
            source["view"],
            int(source["samples"]),
            How(source["shuffle"], source["L"], source["window"], source["extent"]),
        )
        for source in state["sources"]
    )
    segments = tuple(
        Segment(
            int(segment["from"]),
            tuple(segment["sources"]),
            tuple(segment["weights"]),
            segment["L"],
            segment["last"],
            segment["G"],
        )
        for segment in state["segments"]
    )
    return Run(int(state["seed"]), sources, segments)


def go_on(job: Job, state: State | None, override: bool = False) -> tuple[Run, int]:
    """The run of a job and the position where it goes on.

    What the segments of `state` hold wins over the job. Raises ATH_STATE_INVALID, and ATH_STATE_MISMATCH for another
    seed or view, unless `override`: then a new order begins at the next optimizer-batch border."""
    if state is None:
        return plan(job), 0
    old, position = run_of(state), int(state["position"])
    if position < old.segments[0].start:
        raise _invalid(f"position {position} lies before its segment, which begins at {old.segments[0].start}")
    past = begun(old, position)
    differs = differences(job, past)
    if not differs:
        return plan(job, old, position), position
    if not override:
        raise error(
            "ATH_STATE_MISMATCH",
            f"the state belongs to another order ({'; '.join(differs)})",
            remedy="use the data and seed of the run that wrote it, or override=True to begin a new order here",
        )
    start = border(past, position)
    return plan(job, start=start), start


def _valid(state: State) -> State:
    """The state, every field of the type and range that it must have."""
    state = checked(state)
    _decimal(state, "seed", 2**64 - 1)
    _decimal(state, "position")
    _fields(state, "sources", _SOURCE)
    _fields(state, "segments", _SEGMENT)
    for source in state["sources"]:
        _decimal(source, "samples")
        if not isinstance(source["name"], str) or not re.fullmatch(r"[0-9a-f]{32}", str(source["view"])):
            raise _invalid("a source must have a name and a view of 32 hex digits")
        for name, least in (("L", 1), ("window", 1), ("extent", 0)):
            _whole(name, source[name], least)
        _mode(source, "shuffle")
    starts = []
    for segment in state["segments"]:
        _decimal(segment, "from")
        starts.append(int(segment["from"]))
        _whole("L", segment["L"], 1)
        _whole("G", segment["G"], 1)
        _mode(segment, "last")
        numbers, weights = segment["sources"], segment["weights"]
        if (
            not isinstance(numbers, list)
            or not isinstance(weights, list)
            or len(numbers) != len(weights)
            or not numbers
        ):
            raise _invalid("a segment must have as many weights as sources, and at least one")
        for number, weight in zip(numbers, weights):
            _whole("a source's number", number, 0, len(state["sources"]) - 1)
            _whole("a weight", weight, 1, PERIOD)
        if sum(weights) != PERIOD or len(set(numbers)) != len(numbers):
            raise _invalid(f"weights must add up to {PERIOD}, and sources stand once, got {numbers} and {weights}")
    if starts != sorted(set(starts)):
        raise _invalid(f"segments must ascend, got {starts}")
    if len({segment["last"] for segment in state["segments"]}) > 1:
        raise _invalid("all segments must have the same last rule")
    return state


def _decimal(holder: dict[str, Any], name: str, most: int = _MOST) -> None:
    value = holder[name]
    if not isinstance(value, str) or not _DECIMAL.fullmatch(value) or int(value) > most:
        raise _invalid(f"{name} must be a decimal string of at most {most}, got {value!r}")


def _whole(name: str, value: Any, least: int, most: int = _MOST) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise _invalid(f"{name} must be a whole number of {least} to {most}, got {value!r}")


def _mode(holder: dict[str, Any], name: str) -> None:
    if holder[name] not in _MODES[name]:
        raise _invalid(f"{name} must be one of {', '.join(_MODES[name])}, got {holder[name]!r}")


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
