"""States that were edited by hand: the reference refuses what the agent refuses, and says what was expected."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from athanor.errors import AthanorError
from athanor.numpy import Loader
from athanor.reference import run_of
from tfrecord_writer import write

State = dict[str, Any]
MIXED: State = {
    "version": 1,
    "seed": "7",
    "position": "24",
    "sources": [
        {"name": "web", "view": "0" * 32, "samples": "90", "L": 2, "window": 8, "extent": 1, "shuffle": "window"},
        {"name": "code", "view": "1" * 32, "samples": "50", "L": 1, "window": 50, "extent": 1, "shuffle": "global"},
    ],
    "segments": [
        {"from": "0", "sources": [0], "weights": [65536], "L": 2, "last": "carry", "G": 8},
        {"from": "16", "sources": [0, 1], "weights": [32768, 32768], "L": 2, "last": "carry", "G": 8},
    ],
}
PLAIN: State = {**MIXED, "sources": MIXED["sources"][:1], "segments": MIXED["segments"][:1]}
PAD = {"from": "0", "sources": [0], "weights": [65536], "L": 2, "last": "pad", "G": 8}


def edited(state: State, path: str, value: object) -> State:
    found = copy.deepcopy(state)
    *way, last = (int(step) if step.isdigit() else step for step in path.split("."))
    holder: Any = found
    for step in way:
        holder = holder[step]
    holder[last] = value
    return found


WRONG: list[tuple[str, object, str]] = [
    ("sources.0.L", 10**9, "sources.0.L must be a whole number of 1 to 65536, got 1000000000"),
    ("sources.1.L", 0, "sources.1.L must be a whole number of 1 to 65536, got 0"),
    ("sources.0.L", 3, "segments.1.L must be a multiple of the 3 lanes of source 0, got 2"),
    ("sources.0.window", 2**60, "sources.0.window must be a whole number of 1 to 9007199254740991"),
    ("sources.0.extent", -1, "sources.0.extent must be a whole number of 0 to"),
    ("sources.0.samples", "-1", "sources.0.samples must be a decimal string of at most 9007199254740991, got '-1'"),
    ("sources.0.shuffle", "all", "sources.0.shuffle must be one of window, global, none, got 'all'"),
    ("sources.0.view", "g" * 32, "sources.0.view must be 32 hex digits"),
    ("sources.0.name", "x" * 5000, "sources.0.name must be a string of at most 4096 characters"),
    ("sources", [MIXED["sources"][0]] * 1025, "sources must be a list of 1 to 1024, got 1025 of them"),
    ("segments.0.L", 10**9, "segments.0.L must be a whole number of 1 to 65536, got 1000000000"),
    ("segments.1.G", 0, "segments.1.G must be a whole number of 1 to"),
    ("segments.1.sources", [0, 2], "segments.1.sources.1 must be a whole number of 0 to 1, got 2"),
    ("segments.1.sources", [0, 0], "segments.1 must name each source once"),
    ("segments.1.weights", [1, 2], "the weights of segments.1 must add up to 65536, got 3"),
    ("segments.1.weights", [65536], "segments.1 must have as many weights as sources"),
    ("segments.1.from", "0", r"segments must ascend, got \[0, 0\]"),
    ("segments.1.last", "drop", "segments.1.last must be 'carry', as before, got 'drop'"),
    ("segments", [PAD, {**PAD, "from": "16"}], "segments.0 must be all there is, and of one source"),
    ("segments", [{**MIXED["segments"][1], "last": "pad"}], "segments.0 must be all there is, and of one source"),
    ("segments", [PAD] * 4097, "segments must be a list of 1 to 4096, got 4097 of them"),
]


@pytest.mark.parametrize(("path", "value", "text"), WRONG)
def test_a_state_edited_by_hand_is_refused_at_once_by_its_field(path: str, value: object, text: str) -> None:
    run_of(MIXED)
    with pytest.raises(AthanorError, match=f"this is not a state: {text}") as caught:
        run_of(edited(MIXED, path, value))
    assert caught.value.code == "ATH_STATE_INVALID"


def test_an_evaluation_goes_on_without_an_agent_in_its_state_of_one_segment() -> None:
    run_of({**PLAIN, "segments": [PAD]})


@pytest.mark.parametrize(
    "edit",
    [
        ("sources.0.L", 10**9),
        ("segments.0.L", 10**9),
        ("segments.0.last", "pad"),
        ("sources.0.L", 1 << 15),
        ("sources.0.samples", "0"),
    ],
    ids=str,
)
def test_agent_and_none_refuse_the_same_edited_states_of_a_mixture(
    tmp_path: Path, run_dir: Path, edit: tuple[str, object]
) -> None:
    for source, name in enumerate(("web", "code")):
        (tmp_path / name).mkdir()
        write(tmp_path / name / "a.tfrecord", ({"id": source * 1000 + i} for i in range(60)))
    content = {"sources": {name: {"path": str(tmp_path / name), "weight": 1} for name in ("web", "code")}}
    job: dict[str, Any] = {"mix": content, "batch_size": 4, "lanes": 2, "window": 8, "seed": 3, "timeout": 30}
    with Loader(agent="none", **job) as loader:
        next(loader.repeat())
        state = loader.state_dict()

    def outcome(agent: str) -> str:
        try:
            with Loader(agent=agent, state=edited(lists(state), *edit), **job) as loader:
                return str(next(loader.repeat())["id"].tolist())
        except AthanorError as error:
            return error.code

    refused = outcome("none")
    assert refused == outcome("auto")
    assert refused.startswith("ATH_")


def lists(value: Any) -> Any:
    """States hold tuples."""
    if isinstance(value, dict):
        return {key: lists(inner) for key, inner in value.items()}
    return [lists(inner) for inner in value] if isinstance(value, tuple) else value
