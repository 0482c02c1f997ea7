"""The same optimizer batch trains on the same samples in the same optimizer steps at any world size, also when the
world size changes on the way. Clients without torch; ids are decoded from the batches."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from athanor._proof import proof_total
from runs import EXAMPLES, environment, ids_by_step, make_data

SAMPLES, GLOBAL, STEPS = 410, 16, 30  # optimizer batch 26 holds the end of the first epoch and the start of the second
ORDERS = {"global": [], "window": ["--lanes", "4", "--window", "32"]}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_data(tmp_path_factory.mktemp("world"), SAMPLES)


def replay(data: Path, out: Path, world: int, batch: int, steps: int, more: list[str]) -> dict[int, list[int]]:
    command = [sys.executable, str(EXAMPLES / "replay.py"), "--data_dir", str(data), "--world", str(world)]
    command += ["--batch_size", str(batch), "--global_batch_size", str(GLOBAL), "--steps", str(steps)]
    command += ["--max_length", "64", "--proof_dir", str(out / "proof"), "--log_ids", str(out / f"ids{world}")]
    done = subprocess.run([*command, *more], env=environment(), capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    return ids_by_step(out / f"ids{world}", world)


@pytest.mark.parametrize("order", sorted(ORDERS))
def test_same_ids_in_the_same_steps(data: Path, tmp_path: Path, order: str) -> None:
    flags = ORDERS[order]
    runs = {}
    for world, batch in ((1, 8), (2, 4), (4, 2)):
        out = tmp_path / str(world)
        out.mkdir()
        runs[world] = replay(data, out, world, batch, STEPS, flags)
    steps = runs[1]
    assert sorted(steps) == list(range(1, STEPS + 1))
    assert runs[2] == steps and runs[4] == steps
    # Nothing lost and nothing repeated over the border: 26 × 16 = 416 rows are the whole epoch and 6 rows of the next.
    seen = Counter(i for step in range(1, 27) for i in steps[step])
    assert sorted(seen) == list(range(SAMPLES))
    assert sorted(seen.values())[-7:] == [1, 2, 2, 2, 2, 2, 2]
    for step in range(1, STEPS + 1):
        totals = {proof_total(str(tmp_path / str(world) / "proof"), step * GLOBAL) for world in runs}
        assert len(totals) == 1 and totals.pop().rows == step * GLOBAL

    # 2 ranks, then 4 from their state, then 1 from theirs.
    changed: dict[int, list[int]] = {}
    resume = [*flags, "--state", str(tmp_path / "state.json")]
    mixed = tmp_path / "mixed"
    mixed.mkdir()
    for world, batch, count in ((2, 8, 9), (4, 4, 11), (1, 2, 10)):
        changed |= replay(data, mixed, world, batch, count, resume)
    assert changed == steps
    unbroken = proof_total(str(tmp_path / "1" / "proof"), STEPS * GLOBAL)
    assert proof_total(str(mixed / "proof"), STEPS * GLOBAL) == unbroken
