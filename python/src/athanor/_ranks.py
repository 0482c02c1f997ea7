"""Which rank this process is: arguments, torch.distributed, RANK/WORLD_SIZE, Slurm, MPI, else a single process.

>>> resolve(rank=1, world_size=8)
Ranks(rank=1, world=8, local_rank=0, local_world=1, origin='arguments')
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from typing import NamedTuple


class Ranks(NamedTuple):
    rank: int
    world: int
    local_rank: int
    local_world: int
    origin: str

    @property
    def here(self) -> tuple[int, ...]:
        """Ranks of this node: launchers number them node by node."""
        first = self.rank - self.local_rank
        return tuple(range(first, min(first + self.local_world, self.world)))


# (origin, a variable that must be there, rank, world, local rank, local world)
_LAUNCHERS = (
    ("RANK/WORLD_SIZE", "RANK", "RANK", ("WORLD_SIZE",), ("LOCAL_RANK",), ("LOCAL_WORLD_SIZE", "LOCAL_SIZE")),
    # In a batch script's own shell SLURM_PROCID is 0 and SLURM_NTASKS the whole job: only a step (srun) is a rank.
    ("Slurm", "SLURM_STEP_ID", "SLURM_PROCID", ("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"), ("SLURM_LOCALID",), ()),
    (
        "Open MPI",
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_RANK",
        ("OMPI_COMM_WORLD_SIZE",),
        ("OMPI_COMM_WORLD_LOCAL_RANK",),
        ("OMPI_COMM_WORLD_LOCAL_SIZE",),
    ),
    ("PMI", "PMI_RANK", "PMI_RANK", ("PMI_SIZE",), ("MPI_LOCALRANKID",), ("MPI_LOCALNRANKS",)),
)


def resolve(
    rank: int | None = None,
    world_size: int | None = None,
    local_rank: int | None = None,
    environ: Mapping[str, str] | None = None,
) -> Ranks:
    """Rank and (data-parallel) world size. `rank` and `world_size` are given together or not at all."""
    env = os.environ if environ is None else environ
    if (rank is None) != (world_size is None):
        raise ValueError(f"rank and world_size must be given together, got rank={rank}, world_size={world_size}")
    if rank is not None and world_size is not None:
        # The launcher's word on this node holds for its own ranks only, not for a loader with ranks of its own
        # (an evaluation on rank 0, data-parallel ranks under tensor parallelism).
        launched = _number(env, ("RANK",)) == rank and _number(env, ("WORLD_SIZE",)) == world_size
        here = _number(env, ("LOCAL_WORLD_SIZE", "LOCAL_SIZE")) if launched else None
        local = local_rank if local_rank is not None or not launched else _number(env, ("LOCAL_RANK",))
        return _checked(rank, world_size, local, here, "arguments")
    # Only looked up, never imported: importing torch costs seconds and this module must work without it.
    dist = sys.modules.get("torch.distributed")
    if dist is not None and dist.is_available() and dist.is_initialized():
        local = local_rank if local_rank is not None else _number(env, ("LOCAL_RANK",))
        local_world = _number(env, ("LOCAL_WORLD_SIZE", "LOCAL_SIZE"))
        return _checked(dist.get_rank(), dist.get_world_size(), local, local_world, "torch.distributed")
    for origin, sign, rank_name, world_names, local_names, local_world_names in _LAUNCHERS:
        if not env.get(sign):
            continue
        found_rank = _number(env, (rank_name,))
        found_world = _number(env, world_names)
        if found_rank is None or found_world is None:
            raise ValueError(
                f"{rank_name} and {world_names[0]} must both be set, got {rank_name}={env.get(rank_name)!r}, "
                f"{world_names[0]}={env.get(world_names[0])!r}"
            )
        local = local_rank if local_rank is not None else _number(env, local_names)
        local_world = _slurm_local_world(env) if origin == "Slurm" else _number(env, local_world_names)
        return _checked(found_rank, found_world, local, local_world, origin)
    alone = _number(env, ("WORLD_SIZE",))
    if alone is not None and alone > 1:
        raise ValueError(f"RANK must be set when WORLD_SIZE is, got WORLD_SIZE={alone} and no RANK")
    return _checked(0, 1, local_rank, 1, "single process")


def _checked(rank: int, world: int, local_rank: int | None, local_world: int | None, origin: str) -> Ranks:
    for name, value in (("rank", rank), ("world_size", world), ("local_rank", local_rank)):
        if (value is not None or name != "local_rank") and (not isinstance(value, int) or isinstance(value, bool)):
            raise ValueError(f"{name} must be a whole number, got {value!r} (from {origin})")
    if world < 1:
        raise ValueError(f"world_size must be at least 1, got {world} (from {origin})")
    if not 0 <= rank < world:
        raise ValueError(f"rank must be in 0..{world - 1}, got {rank} (from {origin})")
    if local_world is None or local_world < 1:
        # Who else is on this node is not known: the agent must not keep rows for ranks that may never come.
        return Ranks(rank, world, 0, 1, origin)
    local = local_rank if local_rank is not None else rank % local_world
    if not 0 <= local < local_world or local > rank:
        raise ValueError(
            f"local_rank must be in 0..{min(local_world - 1, rank)} for rank {rank}, got {local} (from {origin})"
        )
    return Ranks(rank, world, local, local_world, origin)


def _slurm_local_world(env: Mapping[str, str]) -> int | None:
    """Tasks of this step on this node: entry SLURM_NODEID of a list such as "8(x3),4"."""
    node = _number(env, ("SLURM_NODEID",))
    counts: list[int] = []
    for part in env.get("SLURM_STEP_TASKS_PER_NODE", env.get("SLURM_TASKS_PER_NODE", "")).split(","):
        found = re.fullmatch(r"(\d+)(?:\(x(\d+)\))?", part)
        if found is None:
            return None
        counts += [int(found[1])] * int(found[2] or 1)
    return counts[node] if node is not None and node < len(counts) else None


def _number(env: Mapping[str, str], names: tuple[str, ...]) -> int | None:
    for name in names:
        text = env.get(name)
        if text:
            try:
                return int(text)
            except ValueError:
                raise ValueError(f"{name} must be a whole number, got {text!r}") from None
    return None
