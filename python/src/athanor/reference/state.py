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
_MOST_NAME = 4096
_MOST_SOURCES = 1024
_MOST_SEGMENTS = 4096
_MOST_LANES = 65536
_DECIMAL = re.compile(r"0|[1-9][0-9]{0,19}")
_VIEW = re.compile("[0-9a-f]{32}")
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
    _decimal("seed", state["seed"], 2**64 - 1)
    _decimal("position", state["position"])
    sources = _parts(state, "sources", _SOURCE, _MOST_SOURCES)
    for at, source in sources:
        name, view = source["name"], source["view"]
        if not isinstance(name, str) or len(name) > _MOST_NAME:
            raise _invalid(f"{at}.name must be a string of at most {_MOST_NAME} characters, got {name!r:.80}")
        if not isinstance(view, str) or not _VIEW.fullmatch(view):
            raise _invalid(f"{at}.view must be 32 hex digits, got {view!r:.80}")
        _decimal(f"{at}.samples", source["samples"])
        _whole(f"{at}.L", source["L"], 1, _MOST_LANES)
        _whole(f"{at}.window", source["window"], 1)
        _whole(f"{at}.extent", source["extent"], 0)
        _mode(f"{at}.shuffle", source["shuffle"])
    segments = _parts(state, "segments", _SEGMENT, _MOST_SEGMENTS)
    for at, segment in segments:
        _decimal(f"{at}.from", segment["from"])
        _whole(f"{at}.L", segment["L"], 1, _MOST_LANES)
        _whole(f"{at}.G", segment["G"], 1)
        _mode(f"{at}.last", segment["last"])
        _shares(at, segment, len(sources))
        _fits(at, segment, state)
    starts = [int(segment["from"]) for _, segment in segments]
    if starts != sorted(set(starts)):
        raise _invalid(f"segments must ascend, got {starts}")
    return state


def _shares(at: str, segment: dict[str, Any], known: int) -> None:
    numbers, weights = segment["sources"], segment["weights"]
    if not isinstance(numbers, list) or not isinstance(weights, list) or len(numbers) != len(weights) or not numbers:
        raise _invalid(
            f"{at} must have as many weights as sources, and at least one, got {numbers!r:.80} and {weights!r:.80}"
        )
    for i, (number, weight) in enumerate(zip(numbers, weights)):
        _whole(f"{at}.sources.{i}", number, 0, known - 1)
        _whole(f"{at}.weights.{i}", weight, 1, PERIOD)
    if sum(weights) != PERIOD:
        raise _invalid(f"the weights of {at} must add up to {PERIOD}, got {sum(weights)}")
    if len(set(numbers)) != len(numbers):
        raise _invalid(f"{at} must name each source once, got {numbers!r:.80}")


def _fits(at: str, segment: dict[str, Any], state: State) -> None:
    """What the arithmetic of a run relies on."""
    last, first = segment["last"], state["segments"][0]["last"]
    if last != first:
        raise _invalid(f"{at}.last must be {first!r}, as before, got {last!r}")
    several = len(segment["sources"]) > 1
    if last == "pad" and (several or len(state["segments"]) > 1):
        raise _invalid(f'{at} must be all there is, and of one source, with last="pad"')
    for number in segment["sources"] if several else ():
        lanes = state["sources"][number]["L"]
        if segment["L"] % lanes != 0:
            raise _invalid(f"{at}.L must be a multiple of the {lanes} lanes of source {number}, got {segment['L']}")


def _decimal(name: str, value: Any, most: int = _MOST) -> None:
    if not isinstance(value, str) or not _DECIMAL.fullmatch(value) or int(value) > most:
        raise _invalid(f"{name} must be a decimal string of at most {most}, got {value!r:.80}")


def _whole(name: str, value: Any, least: int, most: int = _MOST) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise _invalid(f"{name} must be a whole number of {least} to {most}, got {value!r:.80}")


def _mode(name: str, value: Any) -> None:
    modes = _MODES[name.rpartition(".")[2]]
    if value not in modes:
        raise _invalid(f"{name} must be one of {', '.join(modes)}, got {value!r:.80}")


def _parts(state: State, name: str, keys: set[str], most: int) -> list[tuple[str, dict[str, Any]]]:
    """Each with where it stands."""
    parts = state[name]
    if not isinstance(parts, list) or not 1 <= len(parts) <= most:
        found = f"{len(parts)} of them" if isinstance(parts, list) else repr(parts)[:80]
        raise _invalid(f"{name} must be a list of 1 to {most}, got {found}")
    for i, part in enumerate(parts):
        if not isinstance(part, dict) or set(part) != keys:
            raise _invalid(f"{name}.{i} must hold {', '.join(sorted(keys))}, got {part!r:.200}")
    return [(f"{name}.{i}", part) for i, part in enumerate(parts)]


def _invalid(what: str) -> AthanorError:
    return error(
        "ATH_STATE_INVALID", f"this is not a state: {what}", remedy="give what `state_dict()` returned, unchanged"
    )
