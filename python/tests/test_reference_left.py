"""Sources that left a job, and sets that an index has forgotten: `Loader(agent="none")` goes on as the agent does."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from athanor.errors import AthanorError
from athanor.numpy import Loader
from tfrecord_writer import write

ROOT = Path(__file__).resolve().parents[2]
AGENTS = ("auto", "none")
Rows = dict[int, int]
State = dict[str, Any]


@pytest.fixture(autouse=True)
def live(run_dir: Path) -> Path:
    return run_dir


@pytest.fixture
def data(tmp_path: Path) -> Path:
    for source, (name, count) in enumerate({"web": 90, "code": 50, "math": 20, "data": 30}.items()):
        shard(tmp_path / name, "a", source * 1000, count)
    return tmp_path


def shard(folder: Path, name: str, first: int, count: int) -> None:
    folder.mkdir(exist_ok=True)
    write(folder / f"{name}.tfrecord", ({"id": first + i} for i in range(count)))


def index(folder: Path) -> None:
    command = ["node", str(ROOT / "dist/src/cli/main.js"), "index", str(folder)]
    subprocess.run(command, check=True, capture_output=True, timeout=100)


def mix(data: Path, **folders: str) -> dict[str, Any]:
    return {"sources": {name: {"path": str(data / folder), "weight": 1} for name, folder in folders.items()}}


def loader(agent: str, state: State | None, source: Any, **more: Any) -> Loader:
    kind = {"mix": source} if isinstance(source, dict) else {"source": source}
    options = {"batch_size": 4, "global_batch_size": 12, "seed": 7, "identities": True, **more}
    return Loader(**kind, state=state, agent=agent, **options)


def rows(batch: dict[str, Any]) -> Rows:
    return dict(zip(batch["_position"].tolist(), batch["id"].tolist()))


def walk(agent: str, state: State | None, steps: int, source: Any, **more: Any) -> tuple[Rows, State]:
    found: Rows = {}
    with loader(agent, state, source, **more) as run:
        batches = run.repeat()
        for _ in range(steps):
            found |= rows(next(batches))
        return found, json.loads(json.dumps(run.state_dict()))


def both(state: State | None, steps: int, source: Any, **more: Any) -> tuple[Rows, State]:
    expected = walk("auto", state, steps, source, **more)
    assert walk("none", state, steps, source, **more) == expected
    return expected


def refusals(action: Callable[[str], object]) -> AthanorError:
    """Both agents refuse in the same words."""
    found = []
    for agent in AGENTS:
        with pytest.raises(AthanorError) as caught:
            action(agent)
        found.append(caught.value)
    assert str(found[1]) == str(found[0])
    return found[1]


@pytest.mark.parametrize(
    "after",
    [
        {"web": "web"},
        {"web": "web", "math": "math"},
        {"web": "web", "renamed": "code"},
        {"math": "math", "code": "code"},
    ],
)
def test_a_source_taken_out_of_a_mix_is_left_behind_without_a_key_error(data: Path, after: dict[str, str]) -> None:
    before, state = both(None, 9, mix(data, web="web", code="code"))
    assert {i // 1000 for i in before.values()} == {0, 1}
    found, later = both(state, 9, mix(data, **after))
    # Another time, with what has left in the state's list; and with what had left back again.
    both(later, 9, mix(data, **after))
    both(later, 9, mix(data, web="web", code="code"))
    assert min(found) == 36


def test_a_source_that_is_due_to_the_end_of_its_batch_must_be_named(data: Path) -> None:
    _, state = both(None, 10, mix(data, web="web", code="code"))
    refused = refusals(lambda agent: walk(agent, state, 1, mix(data, web="web", math="math")))
    assert refused.code == "ATH_STATE_MISMATCH"
    assert "source code from position 40, and this job has no source of that name" in str(refused)


def test_going_back_to_where_a_source_was_due_that_has_left_is_refused(data: Path) -> None:
    _, state = walk("none", None, 36, mix(data, web="web", code="code"))
    assert state["position"] == "144"

    def back(agent: str) -> None:
        with loader(agent, state, mix(data, web="web")) as run:
            next(run.repeat())
            run.set_epoch(0)
            next(iter(run))

    refused = refusals(back)
    assert refused.code == "ATH_ORDER_POSITION"


@pytest.mark.parametrize("mixed", [False, True])
def test_a_set_that_the_index_has_forgotten_is_no_key_error(data: Path, mixed: bool) -> None:
    web = data / "web"
    source = mix(data, web="web", code="code") if mixed else str(web)
    index(web)
    _, state = walk("none", None, 6, source)
    shard(web, "b", 90, 10)
    index(web)
    _, state = walk("none", state, 3, source)  # in the pass that was begun over the old set
    _, over = walk("none", state, 60, source)
    assert len({entry["view"] for entry in state["sources"] if entry["name"] in ("web", "data")}) == 2
    shutil.rmtree(web / ".athanor")
    index(web)
    refused = refusals(lambda agent: walk(agent, state, 1, source))
    assert refused.code == "ATH_STATE_MISMATCH"
    assert "as it was before shards were appended, from position 36, and its index does not know" in str(refused)
    both(over, 6, source)
