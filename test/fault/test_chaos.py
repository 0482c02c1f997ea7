"""A short chaos run for `npm test` (the long one: `npm run test:chaos`), and checks that its checks can fail."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import chaos_checks as checks  # noqa: E402
from athanor._proof import ProofFile  # noqa: E402
from chaos_checks import Generation, Wrong  # noqa: E402
from chaos_rank import check_rows, tokens_of  # noqa: E402
from chaos_trial import plan  # noqa: E402


def test_short_chaos() -> None:
    """What fits in half a minute; a failure prints the line that replays it."""
    command = [sys.executable, str(HERE / "chaos.py"), "--seed", "4", "--trials", "12", "--seconds", "25"]
    done = subprocess.run([*command, "--no-start-limit"], capture_output=True, text=True, timeout=300)
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    counts = json.loads(done.stdout.splitlines()[-1])
    assert counts["trials"] >= 3 and counts["blows"] >= 3


@pytest.mark.parametrize(
    "name", ["jsonl", "parquet", "hdf5", "zarr", "mds", "webdataset", "megatron", "mixture", "packed"]
)
def test_chaos_over_every_format(name: str) -> None:
    """The same blows over data of each format, and over three of them mixed, and packed."""
    command = [sys.executable, str(HERE / "chaos.py"), "--seed", "6", "--trials", "2", "--format", name]
    done = subprocess.run([*command, "--no-start-limit"], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    counts = json.loads(done.stdout.splitlines()[-1])
    assert counts["trials"] == 2 and counts["blows"] >= 2


def test_seven_samples_on_eight_ranks_every_ten_steps() -> None:
    """An evaluation of fewer samples than ranks, again and again beside training that is being killed."""
    command = [sys.executable, str(HERE / "chaos.py"), "--seed", "5", "--trials", "4", "--seconds", "15"]
    done = subprocess.run(
        [*command, "--evaluate", "8", "--no-start-limit"], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    counts = json.loads(done.stdout.splitlines()[-1])
    assert counts["evaluations_on_8_ranks"] == counts["evaluations"] >= 3 and counts["blows"] >= 1


def test_a_plan_is_a_function_of_seed_and_trial() -> None:
    assert plan(7, 3) == plan(7, 3) != plan(7, 4)
    kinds = {blow.kind for trial in range(40) for blow in plan(7, trial).blows}
    assert len(kinds) == 9
    assert {plan(7, trial).mode for trial in range(40)} == {"window", "held", "global", "none"}


def ranks_wrote(folder: Path, generation: Generation, steps: dict[int, list[int]]) -> None:
    """Rank r of W has the r-th run of a step's ids, in one batch."""
    for rank in range(generation.world):
        rows = [
            [step, 0, *ids[rank * generation.batch_size : (rank + 1) * generation.batch_size]]
            for step, ids in steps.items()
        ]
        np.array(rows, np.int64).tofile(folder / f"ids-{generation.number}-{rank}.bin")


def test_lost_repeated_exchanged_and_half_steps_are_seen(tmp_path: Path) -> None:
    first, second = Generation(0, 2, 2, 0), Generation(1, 1, 4, 2)
    whole = {1: [0, 1, 2, 3], 2: [4, 5, 6, 7], 3: [8, 9, 0, 1], 4: [2, 3, 4, 5]}
    ranks_wrote(tmp_path, first, {1: whole[1], 2: whole[2], 3: [9, 9, 9, 9]})  # step 3 was done again by the second
    ranks_wrote(tmp_path, second, {3: whole[3], 4: whole[4]})
    steps = checks.delivered(tmp_path, [first, second], 4, 4)
    assert steps == {step: sorted(ids) for step, ids in whole.items()}
    checks.check_counts(steps, 10, 4, "carry")
    checks.check_same(steps, steps)
    with pytest.raises(Wrong, match=r"after step 3: 1 lost \[8\], 1 repeated \[1\]"):
        checks.check_counts({**steps, 3: [0, 1, 1, 9]}, 10, 4, "carry")
    with pytest.raises(Wrong, match="1 repeated"):
        checks.check_counts({1: [0, 1, 2, 3], 2: [3, 4, 5, 6]}, 10, 4, "drop")
    checks.check_counts({1: [0, 1, 2, 3], 2: [4, 5, 6, 7], 3: [9, 3, 4, 5]}, 10, 4, "drop")
    with pytest.raises(Wrong, match=r"step 4 is not that of the unbroken run: \[5\]"):
        checks.check_same({**steps, 4: [2, 3, 4, 6]}, steps)
    ranks_wrote(tmp_path, second, {3: whole[3]})
    with pytest.raises(Wrong, match="step 4 of generation 1 has 0 of 4 rows"):
        checks.delivered(tmp_path, [first, second], 4, 4)
    np.array([[1, 0, 0, 1], [2, 0, 4, 5]], np.int64).tofile(tmp_path / "ids-0-0.1.bin")
    checks.check_peers(tmp_path, [first, second])
    np.array([[1, 0, 0, 1], [2, 0, 4, 6]], np.int64).tofile(tmp_path / "ids-0-0.1.bin")
    with pytest.raises(Wrong, match=r"ids-0-0.1.bin has \[4, 6\] in step 2, and ids-0-0.bin \[4, 5\]"):
        checks.check_peers(tmp_path, [first, second])


def test_rows_mixed_up_are_seen() -> None:
    known = [tokens_of(n) for n in range(3)]
    ids = np.zeros((2, 512), np.int64)
    mask = np.zeros((2, 512), np.int64)
    for row, number in enumerate((2, 1)):
        ids[row, : len(known[number])] = known[number]
        mask[row, : len(known[number])] = 1
    batch = {"id": np.array([2, 1]), "input_ids": ids, "attention_mask": mask}
    check_rows(batch, known)
    for spoilt in (
        {**batch, "id": np.array([1, 2])},
        {**batch, "attention_mask": mask[::-1]},
        {**batch, "input_ids": np.roll(ids, 1, axis=1)},
    ):
        with pytest.raises(RuntimeError, match="row 0 does not hold"):
            check_rows(spoilt, known)


def test_states_that_differ_and_the_newest_common_one(tmp_path: Path) -> None:
    def save(rank: int, *lines: dict[str, object]) -> None:
        (tmp_path / f"state-0-{rank}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"st')

    generation = Generation(0, 2, 2, 0)
    save(0, {"step": 1, "state": {"position": "4"}}, {"step": 2, "state": {"position": "8"}})
    assert checks.newest_state(tmp_path, [generation]) == (0, None)
    save(1, {"step": 1, "state": {"position": "4"}})
    assert checks.newest_state(tmp_path, [generation]) == (1, {"position": "4"})
    save(1, {"step": 1, "state": {"position": "5"}})
    with pytest.raises(Wrong, match="different states after step 1"):
        checks.newest_state(tmp_path, [generation])


def test_evaluations_and_proofs_that_differ_are_seen(tmp_path: Path) -> None:
    generation = Generation(0, 2, 2, 0)
    for rank, numbers in enumerate(([0, 2], [1, -1])):
        np.array([[10, micro, n] for micro, n in enumerate(numbers)], np.int64).tofile(tmp_path / f"eval-0-{rank}.bin")
    assert checks.check_evaluations(tmp_path, [generation], 10, 10, 3) == [2]
    with pytest.raises(Wrong, match="evaluation after step 10"):
        checks.check_evaluations(tmp_path, [generation], 10, 10, 4)
    for name, last in (("a", 4), ("b", 4), ("c", 5)):
        proof = ProofFile(str(tmp_path / name), 0, 1, 0, "v", {}, {})
        for step in range(4):
            proof.add(step, np.array([[step, 0, last if step == 3 else step, 1 << 32]], np.uint64))
        proof.close()
    checks.check_proofs(tmp_path / "b", tmp_path / "a", 4, 1)
    with pytest.raises(Wrong, match="differ first after step 4"):
        checks.check_proofs(tmp_path / "c", tmp_path / "a", 4, 1)
