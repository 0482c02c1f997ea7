"""The loader's state: plain JSON, the same on all ranks; 64-bit integers are decimal strings.

The agent makes it (docs/reference/order.md); the client only moves its `position`, which counts samples of the
batches that were handed to the user.
"""

from __future__ import annotations

import copy
from typing import Any

from .errors import AthanorValueError

State = dict[str, Any]

# What decides whether two states walk the same sequence.
_ORDER_KEYS = ("version", "seed", "sources", "segments")


def at(state: State, position: int) -> State:
    """A copy of `state` at another position."""
    moved = copy.deepcopy(state)
    moved["position"] = str(position)
    return moved


def given_out(state: State, position: int) -> State:
    """A copy of `state` at another position, for the user. Its lists are tuples (the same JSON), because
    torch.distributed.checkpoint takes lists apart: it would load only as many segments as the loader that loads has."""
    return {key: _with(value, tuple) for key, value in at(state, position).items()}


def _with(value: Any, sequence: type) -> Any:
    """`value` with all its lists and tuples as `sequence`."""
    if isinstance(value, dict):
        return {key: _with(inner, sequence) for key, inner in value.items()}
    return sequence(_with(inner, sequence) for inner in value) if isinstance(value, (list, tuple)) else value


def position_of(state: State) -> int:
    return int(state["position"])


def same_order(a: State, b: State) -> bool:
    return all(a.get(key) == b.get(key) for key in _ORDER_KEYS)


def batch_size_of(state: State) -> int:
    """G at the state's position."""
    begun = [segment for segment in state["segments"] if int(segment["from"]) <= position_of(state)]
    return int((begun or state["segments"])[-1]["G"])


def goes_by(mine: State, other: State) -> bool:
    """Whether `other` has nothing new: less of the past is fine."""
    return all(one in mine[key] for key in ("sources", "segments") for one in other[key])


def news(mine: State, other: State) -> str:
    """In words, what `other` has that `mine` has not."""
    known = {source["name"] for source in mine["sources"]}
    found = [
        f"{'other data or another reading' if source['name'] in known else 'a new source'}: {source['name']}"
        for source in other["sources"]
        if source not in mine["sources"]
    ]
    had = _meaning(mine, mine["segments"][-1])
    for segment in other["segments"]:
        if segment in mine["segments"]:
            continue
        has = _meaning(other, segment)
        changed = [f"{name} {has[name]} ({had[name]} in the state)" for name in has if has[name] != had[name]]
        found.append(f"from sample {segment['from']} {', '.join(changed) or 'another segment'}")
    return "; ".join(found)


def _meaning(state: State, segment: dict[str, Any]) -> dict[str, str]:
    shares = sorted(zip((state["sources"][i]["name"] for i in segment["sources"]), segment["weights"]))
    return {
        "weights": ", ".join(f"{name} {weight / 65536:.4g}" for name, weight in shares),
        "global_batch_size": str(segment["G"]),
        "last": str(segment["last"]),
    }


def refuse_other(mine: State, agents: State) -> None:
    """An agent that goes on with a run must go on with its order: less of the past is fine, anything new is not."""
    if goes_by(mine, agents):
        return
    new = [source for source in agents["sources"] if source not in mine["sources"]]
    names = ", ".join(str(source.get("name")) for source in new)
    raise AthanorValueError(
        "ATH_STATE_MISMATCH",
        f"the data changed while the job ran: a new agent sees another order than the one this job goes by ({names})",
        remedy="start the job again from its last state: what was appended joins from there on",
    )


def checked(state: Any) -> State:
    """`state` without what does not belong to the order. Raises ATH_STATE_INVALID for what is no state (version 1)."""
    if not isinstance(state, dict):
        raise _refuse(f"found {type(state).__name__}, expected a dict from state_dict()")
    missing = [key for key in (*_ORDER_KEYS, "position") if key not in state]
    if missing:
        raise _refuse(f"{', '.join(missing)} missing")
    if state["version"] != 1:
        raise _refuse(f"found version {state['version']!r}, this client reads version 1")
    position = state["position"]
    if not isinstance(position, str) or not position.isdecimal():
        raise _refuse(f"position must be a decimal string, got {position!r}")
    return {key: _with(state[key], list) for key in (*_ORDER_KEYS, "position")}


def _refuse(what: str) -> AthanorValueError:
    return AthanorValueError(
        "ATH_STATE_INVALID",
        f"this is not a state of a loader: {what}",
        remedy="pass what state_dict() returned, unchanged",
    )
