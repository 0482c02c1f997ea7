"""Random Zarr folders of zarr-python's, read by `athanor cat`: equal values."""

from __future__ import annotations

import json
import os
import random
import subprocess
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("zarr")

from zarr_writer import write

ROOT = Path(__file__).resolve().parents[2]
SHARDS = int(os.environ.get("ATHANOR_TEST_ZARRS", "120"))


def cat(folder: Path) -> list[Any]:
    ran = subprocess.run(
        ["node", str(ROOT / "dist" / "src" / "cli" / "main.js"), "cat", str(folder)],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return [json.loads(line) for line in ran.stdout.splitlines()]


@pytest.mark.parametrize("seed", [1, 2])
def test_random_folders_give_the_values_of_zarr_python(tmp_path: Path, seed: int) -> None:
    expected = []
    names = []
    for number in range(SHARDS):
        fields = write(random.Random(f"{seed} {number}"), tmp_path / f"{number:06}.zarr")
        for row in range(len(next(iter(fields.values())))):
            expected.append({name: values[row] for name, values in fields.items()})
            names.append((number, row))
    found = cat(tmp_path)
    for place, record, other in zip(names, expected, found):
        assert other == record, f"seed {seed}, shard and row {place}"
    assert len(found) == len(expected)
