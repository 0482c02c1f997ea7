"""The comparison of bench/exactness: its counting can see what it looks for, and Athanor's part of it runs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).resolve().parents[2] / "bench" / "exactness"
sys.path.append(str(BENCH))

import report  # noqa: E402
from count import Launch, count, rank_file, record  # noqa: E402
from rows import ids_of, rows_of  # noqa: E402


def test_athanor_loses_and_repeats_nothing(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    command = [sys.executable, str(BENCH / "run.py"), "--only", "athanor", "--workers", "0", "--kills", "1"]
    command += ["--scenarios", "unbroken,twice,elastic,shrunk", "--json", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    trials = {one["scenario"]: one for one in json.loads(out.read_text())["loaders"][0]["trials"]}
    assert trials["unbroken"]["shuffled"]
    for name in ("twice", "elastic", "shrunk"):
        one = trials[name]
        assert (one["lost"], one["repeated"], one["even"]) == (0, 0, True)
        assert one["sameOrder"] is (None if name == "shrunk" else True)  # another global batch has other steps
        assert all(saved <= kill < saved + 10 for saved, kill in zip(one["from"], one["kills"]))
    assert len(trials["twice"]["from"]) == 2


def wrote(folder: Path, launch: Launch, steps: dict[int, list[int]], epoch: int = 0) -> None:
    """Rank r of W gave the r-th run of a step's ids."""
    for rank in range(launch.world):
        parts = {step: ids[rank * launch.batch : (rank + 1) * launch.batch] for step, ids in steps.items()}
        lines = b"".join(record(epoch, step, ids, launch.batch) for step, ids in parts.items() if ids)
        with rank_file(folder, launch.number, rank).open("ab") as file:
            file.write(lines)


def test_lost_repeated_and_uneven_are_counted(tmp_path: Path) -> None:
    first, second = Launch(0, 2, 2, 0), Launch(1, 1, 4, 2)
    wrote(tmp_path, first, {1: [0, 1, 2, 3], 2: [4, 5, 6, 7], 3: [8, 9, 10, 11]})
    wrote(tmp_path, first, {3: [99, 98, 97, 96]}, epoch=1)
    wrote(tmp_path, second, {3: [8, 9, 10, 11], 4: [0, 7, 7]})
    counted = count(tmp_path, [first, second], 0, 13)
    assert (counted.lost, counted.repeated, counted.even) == (1, 3, True)
    assert counted.steps[4] == [0, 7, 7]
    wrote(tmp_path, Launch(2, 2, 2, 0), {1: [0, 1, 2, 3], 2: [4, 5]})
    assert count(tmp_path, [Launch(2, 2, 2, 0)], 0, 6)[:3] == (0, 0, False)


def test_rows_that_are_not_those_of_their_ids_are_seen() -> None:
    rows = rows_of([3, 5])
    assert ids_of(rows) == [3, 5]
    rows[1, 7] += 1
    with pytest.raises(RuntimeError, match="not those of its ids"):
        ids_of(rows)


def test_a_cell_says_the_worst_and_marks_what_is_odd(tmp_path: Path) -> None:
    ran = {"outcome": "ran", "lost": 0, "repeated": 0, "even": True, "sameOrder": True}
    assert report.cell([ran, ran]) == "0 / 0"
    assert report.cell([ran, {**ran, "lost": 3, "sameOrder": False}]) == "**3 / 0**†"
    assert report.cell([{**ran, "even": False}, {"outcome": "hang"}]) == "0 / 0‡, hang"
    loaders = [{"name": "athanor", "trials": [ran]}]
    assert report.athanor_is_exact({"loaders": loaders})
    for wrong in ({**ran, "repeated": 1}, {**ran, "even": False}, {"outcome": "hang"}):
        assert not report.athanor_is_exact({"loaders": [{"name": "athanor", "trials": [ran, wrong]}]})
    page = tmp_path / "page.md"
    page.write_text("no markers")
    with pytest.raises(ValueError, match="must have the markers"):
        report.write(page, {})
