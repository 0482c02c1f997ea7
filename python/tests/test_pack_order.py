"""Packed rows over orders and world sizes: the same rows in the same order, resumed at any step, and proved."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from athanor.numpy import Loader
from conftest import athanor
from packed_sets import MAX, documents, expected, naive, packed_rows, write_jsonl

pytestmark = pytest.mark.usefixtures("run_dir")


def world_rows(data: Path, world: int, batch: int, steps: range, state: Any, proof: Path) -> tuple[list[Any], Any]:
    """Rows of steps by position, of all ranks of a world; and the state behind them."""
    found: dict[int, Any] = {}
    states = []
    options = {"max_length": MAX, "sample_rule": "pack", "seed": 3, "shuffle_memory": 60_000, "global_batch_size": 12}
    loaders = [
        Loader(
            str(data), batch_size=batch, rank=rank, world_size=world, local_rank=rank, identities=True,
            proof_dir=str(proof), state=state, **options,
        )
        for rank in range(world)
    ]  # fmt: skip
    try:
        iterators = [iter(loader) for loader in loaders]
        for _ in steps:
            for iterator in iterators:
                taken = next(iterator)
                for position, row in zip(taken["_position"].tolist(), naive(taken, MAX)):
                    found[position] = row
        states = [loader.state_dict() for loader in loaders]
    finally:
        for loader in loaders:
            loader.close()
    assert all(one == states[0] for one in states)
    return [found[position] for position in sorted(found)], states[0]


def test_one_order_at_any_world_size_resumed_at_any_step_and_proved(tmp_path: Path) -> None:
    records = documents(1500, seed=9)
    data = write_jsonl(tmp_path / "data", [records[:900], records[900:]], 9000)
    assert len(packed_rows(data)) > 600
    wanted = sorted(expected(data, records, "pack"))
    steps = len(wanted) // 12
    whole, _ = world_rows(data, 1, 12, range(steps), None, tmp_path / "whole" / "proof")
    assert whole != sorted(whole)
    flat = sorted(whole)
    assert all(row in wanted for row in flat)
    assert len({json.dumps(row) for row in flat}) == len(flat)
    draw = random.Random(2)
    for _ in range(3):
        proof = tmp_path / f"cut-{draw.random()}" / "proof"
        cut = draw.randrange(1, steps - 1)
        first, state = world_rows(data, 2, 3, range(cut * 2), None, proof)
        rest, _ = world_rows(data, 3, 4, range(steps - cut), state, proof)
        assert first + rest == whole
        checked = athanor("state", "verify", proof.parent, "--data", data)
        assert checked.returncode == 0, checked.stdout + checked.stderr
    # Without the rows that were kept (an index that nobody may write has none): the proof says how they are made.
    (kept,) = (data / ".athanor" / "views").glob("*.bin")
    kept.unlink()
    checked = athanor("state", "verify", tmp_path / "whole", "--data", data)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert not kept.exists()
    # One that does not say so names the file that is missing; without counts, too.
    line = next(iter(sorted((tmp_path / "whole" / "proof").glob("*.jsonl"))))
    said = line.read_text()
    head, rest = said.split("\n", 1)
    line.write_text(json.dumps({k: v for k, v in json.loads(head).items() if k != "pieces"}) + "\n" + rest)
    missing = athanor("state", "verify", tmp_path / "whole", "--data", data, "--json")
    error = json.loads(missing.stderr)["error"]
    assert (error["code"], error["file"]) == ("ATH_VIEW_MISSING", str(kept))
    assert "athanor index --view" in error["remedy"]
    line.write_text(said)
    (folder,) = (path for path in (data / ".athanor" / "views").iterdir() if path.is_dir())
    folder.rename(tmp_path / "counts")
    missing = athanor("state", "verify", tmp_path / "whole", "--data", data, "--json")
    assert json.loads(missing.stderr)["error"]["code"] == "ATH_VIEW_MISSING"
    (tmp_path / "counts").rename(folder)
    # A proof of other rows is not taken.
    line = next(iter(sorted((tmp_path / "whole" / "proof").glob("*.jsonl"))))
    text = line.read_text().splitlines()
    entry = json.loads(text[-1])
    entry["sum"] = str((int(entry["sum"], 0) + 1) % 2**64) if isinstance(entry["sum"], str) else entry["sum"] + 1
    line.write_text("\n".join([*text[:-1], json.dumps(entry)]) + "\n")
    assert athanor("state", "verify", tmp_path / "whole", "--data", data).returncode == 1
