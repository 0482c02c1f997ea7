from __future__ import annotations

import pytest

from athanor._ranks import resolve


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({}, (0, 1, 0, 1, "single process")),
        ({"RANK": "9", "WORLD_SIZE": "16", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "8"},
         (9, 16, 1, 8, "RANK/WORLD_SIZE")),
        ({"SLURM_STEP_ID": "0", "SLURM_PROCID": "3", "SLURM_STEP_NUM_TASKS": "4", "SLURM_LOCALID": "1"},
         (3, 4, 0, 1, "Slurm")),  # who else is on this node is not known
        ({"SLURM_STEP_ID": "0", "SLURM_PROCID": "9", "SLURM_STEP_NUM_TASKS": "14", "SLURM_LOCALID": "1",
          "SLURM_NODEID": "2", "SLURM_STEP_TASKS_PER_NODE": "4(x2),6"}, (9, 14, 1, 6, "Slurm")),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "64"}, (0, 1, 0, 1, "single process")),  # a batch script is no rank
        ({"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_RANK": "0",
          "OMPI_COMM_WORLD_LOCAL_SIZE": "2"}, (2, 4, 0, 2, "Open MPI")),
        ({"PMI_RANK": "1", "PMI_SIZE": "2"}, (1, 2, 0, 1, "PMI")),
        ({"RANK": "0", "WORLD_SIZE": "2", "SLURM_STEP_ID": "0", "SLURM_PROCID": "7", "SLURM_NTASKS": "8"},
         (0, 2, 0, 1, "RANK/WORLD_SIZE")),
    ],
)  # fmt: skip
def test_launchers(env: dict[str, str], expected: tuple[int, int, int, int, str]) -> None:
    assert resolve(environ=env) == expected


def test_the_launcher_speaks_for_its_own_ranks_only() -> None:
    env = {"RANK": "9", "WORLD_SIZE": "16", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "8"}
    assert resolve(9, 16, environ=env) == (9, 16, 1, 8, "arguments")
    assert resolve(0, 1, environ=env) == (0, 1, 0, 1, "arguments")
    assert resolve(2, 4, environ=env) == (2, 4, 0, 1, "arguments")


def test_arguments_win_and_are_checked() -> None:
    assert resolve(1, 2, environ={"RANK": "0", "WORLD_SIZE": "8"}).world == 2
    with pytest.raises(ValueError, match="given together, got rank=1"):
        resolve(rank=1, environ={})
    with pytest.raises(ValueError, match=r"rank must be in 0\.\.1, got 2"):
        resolve(2, 2, environ={})
    with pytest.raises(ValueError, match="^rank must be a whole number, got '0'"):
        resolve("0", "1", environ={})  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"^world_size must be a whole number, got 2\.0"):
        resolve(0, 2.0, environ={})  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="^local_rank must be a whole number, got '0'"):
        resolve(0, 2, "0", environ={})  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="WORLD_SIZE must both be set"):
        resolve(environ={"RANK": "1"})
    with pytest.raises(ValueError, match="RANK must be a whole number, got 'x'"):
        resolve(environ={"RANK": "x", "WORLD_SIZE": "2"})
