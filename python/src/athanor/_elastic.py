"""The state that fits any world size, out of what loaders, data sets and StatefulDataLoaders return as theirs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from . import _state

_ORDER = frozenset({"version", "seed", "sources", "segments", "position"})
_TURN = frozenset({"epoch", "over", "end", "step", "workers"})
# StatefulDataLoader with snapshot_every_n_steps above 1: batches given since the workers' states were taken.
_SINCE = "_steps_since_snapshot"


def state_of(state: Any) -> _state.State:
    """The elastic state inside what `Loader.state_dict()`, `AthanorDataset.state_dict()` or a StatefulDataLoader over
    it returned: good for any world size. Of several workers' states the earliest counts: that is the next batch."""
    found = list(_walk(state))
    states = [_state.checked(one) for one in found if one.keys() >= _ORDER]
    if not states:
        raise ValueError(f"state must hold the state of an Athanor loader, got {type(state).__name__} without one")
    first = min(states, key=_state.position_of)
    if any(not _state.same_order(first, other) for other in states):
        raise ValueError("state must hold one loader, got states of several orders")
    since = sum(one[_SINCE] for one in found if _SINCE in one)
    if since == 0:
        return first
    turns = [one for one in found if one.keys() == _TURN]
    if not turns:
        raise ValueError(
            f"state must hold what the data set's iterator returned, got {since} steps since a snapshot without it"
        )
    # They are steps of one epoch; the last one of a padded epoch is short.
    ends = [turn["end"] for turn in turns if turn["end"] is not None]
    position = _state.position_of(first) + since * int(turns[0]["step"])
    return _state.at(first, min([position, *ends]))


def _walk(value: Any) -> Iterator[dict[str, Any]]:
    """The dicts of interest in nested dicts, lists and tuples."""
    if isinstance(value, dict):
        if value.keys() >= _ORDER or value.keys() == _TURN:
            yield value
            return
        if _SINCE in value:
            yield value
        for inner in value.values():
            yield from _walk(inner)
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from _walk(inner)
