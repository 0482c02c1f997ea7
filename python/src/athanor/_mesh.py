"""Which rows this process takes in a job with tensor, context or pipeline parallelism.

The order deals rows to *data-parallel* ranks. Processes with one data-parallel rank are peers: they take the same rows,
and the agent keeps a row until the last of them on its node has it, so it has to know how many there are.

>>> find(5, 8, mesh={"dp": (1, 2), "tp": (1, 4)}).ranks[:2]
(1, 2)
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from . import _ranks
from ._ranks import Ranks

# Names that frameworks give to dimensions (torch's tutorials, torchtitan, Megatron, DeepSpeed).
_NAMES = {
    "dp": ("dp", "data", "data_parallel", "batch", "dp_replicate", "dp_shard", "replicate", "shard", "fsdp", "ddp"),
    "cp": ("cp", "context", "context_parallel"),
    "tp": ("tp", "model", "tensor", "tensor_parallel"),
    "pp": ("pp", "pipe", "pipeline", "pipeline_parallel", "stage"),
}
# Arguments of `find`.
OPTIONS = (*("rank", "world_size", "local_rank", "dp_rank", "dp_world_size", "dp_group", "mesh", "cp_rank", "cp_size"),)
_KIND = {name: kind for kind, names in _NAMES.items() for name in names}


class Spot(NamedTuple):
    """Coordinates of a process."""

    dp: int
    cp: int
    tp: int
    pp: int


class Place(NamedTuple):
    ranks: Ranks  # rank and world are the data-parallel ones, the rest is the process's
    here: tuple[int, ...]  # data-parallel ranks of this node, one entry for each process that takes data
    builds: bool  # this node makes a missing index
    proves: bool | None  # of all peers it is this process that writes the proof; None: not known
    cp_rank: int
    cp_size: int

    def proof_folder(self, proof_dir: str | os.PathLike[str] | None) -> str | None:
        """Where this process writes the proof: peers get the same rows, so one of them does."""
        if proof_dir is not None and self.proves is None:
            raise ValueError(
                "mesh must hold all dimensions of the job when proof_dir is given: of the processes with one "
                f"data-parallel rank one writes, got {self.ranks.world} × {self.cp_size} processes of a larger job"
            )
        return os.path.abspath(proof_dir) if proof_dir is not None and self.proves else None


def find(
    rank: int | None = None,
    world_size: int | None = None,
    local_rank: int | None = None,
    *,
    dp_rank: int | None = None,
    dp_world_size: int | None = None,
    dp_group: Any = None,
    mesh: Any = None,
    cp_rank: int | None = None,
    cp_size: int | None = None,
) -> Place:
    """`rank`, `world_size`, `local_rank`: of the process (default: the launcher's). Raises ValueError."""
    process = _ranks.resolve(rank, world_size, local_rank)
    ways = [("mesh", mesh), ("dp_group", dp_group), ("dp_rank", dp_rank if dp_rank is not None else dp_world_size)]
    given = [name for name, value in ways if value is not None]
    if len(given) > 1:
        raise ValueError(f"{given[1]} must be left out when {given[0]} is given, got both")
    cp = _pair("cp_rank", "cp_size", (cp_rank, cp_size)) if (cp_rank, cp_size) != (None, None) else None
    if not given:
        if cp is not None and cp[1] > 1:
            raise ValueError("dp_rank and dp_world_size, or mesh, must be given with cp_rank and cp_size, got neither")
        return Place(process, process.here, process.rank == process.local_rank, True, 0, 1)
    spots: Callable[[int], Spot | None]
    if hasattr(mesh, "mesh_dim_names"):
        sizes, table = _of_device_mesh(mesh)
        own = table.get(process.rank)
        if own is None:
            raise ValueError(f"mesh must hold this process, rank {process.rank}, got {mesh}")
        spots = table.get
    else:
        axes = _of_group(dp_group) if dp_group is not None else _of_numbers(mesh, (dp_rank, dp_world_size))
        if cp is not None and mesh is None:
            axes["cp"] = cp
        sizes = {kind: axes.get(kind, (0, 1))[1] for kind in _NAMES}
        own = Spot(*(axes.get(kind, (0, 1))[0] for kind in Spot._fields))
        spots = _as_usual(sizes)
    if cp is not None and mesh is not None and cp != (own.cp, sizes["cp"]):
        raise ValueError(f"cp_rank and cp_size must be left out when mesh is given, got {cp[0]} and {cp[1]}")
    processes = math.prod(sizes.values())
    alone = process.origin == "single process"  # no launcher has said who else there is
    complete = alone or processes == process.world
    if not complete:
        # Tensor-parallel peers that were not named: of all placements this is the usual one.
        spots = _as_usual({**sizes, "tp": sizes["tp"] * max(1, process.world // processes)})
    return Place(
        ranks=Ranks(own.dp, sizes["dp"], process.local_rank, process.local_world, process.origin),
        here=_here(process, own, spots, sizes["pp"]),
        builds=own == Spot(0, 0, 0, 0) if alone else process.rank == process.local_rank,
        proves=(own.cp, own.tp, own.pp) == (0, 0, 0) if complete else None,
        cp_rank=own.cp,
        cp_size=sizes["cp"],
    )


def _here(process: Ranks, own: Spot, spots: Callable[[int], Spot | None], stages: int) -> tuple[int, ...]:
    """Of pipeline stages the first and the last take data. A placement that is not as thought costs reading twice, or
    some seconds of waiting for peers that do not come, and no more."""
    mine = spots(process.rank)
    if mine is None or (mine.dp, mine.cp) != (own.dp, own.cp):
        return (own.dp,)
    first = process.rank - process.local_rank
    found = [spots(other) for other in range(first, min(first + process.local_world, process.world))]
    here = tuple(spot.dp for spot in found if spot is not None and spot.pp in (0, stages - 1))
    return here if own.dp in here else (*here, own.dp)


def _as_usual(sizes: Mapping[str, int]) -> Callable[[int], Spot]:
    """Ranks as Megatron, DeepSpeed and torchtitan number them: tp innermost, then cp, dp, pp."""

    def spot(rank: int) -> Spot:
        rest, tp = divmod(rank, sizes["tp"])
        rest, cp = divmod(rest, sizes["cp"])
        pp, dp = divmod(rest, sizes["dp"])
        return Spot(dp, cp, tp, pp)

    return spot


def _of_device_mesh(mesh: Any) -> tuple[dict[str, int], dict[int, Spot]]:
    """Sizes, and the coordinates of each global rank, of a torch DeviceMesh."""
    names = mesh.mesh_dim_names
    if not names:
        raise ValueError("mesh must name its dimensions (mesh_dim_names), got a mesh without names")
    kinds = [_kind(name) for name in names]
    ranks = np.array(mesh.mesh.tolist())
    sizes = dict.fromkeys(_NAMES, 1)
    for kind, size in zip(kinds, ranks.shape):
        sizes[kind] *= size
    table = {}
    for coordinates in np.ndindex(*ranks.shape):
        at = dict.fromkeys(_NAMES, 0)
        # Several dimensions of one kind (dp_replicate, dp_shard) count as one, the first outermost.
        for kind, size, coordinate in zip(kinds, ranks.shape, coordinates):
            at[kind] = at[kind] * size + coordinate
        table[int(ranks[coordinates])] = Spot(**at)
    return sizes, table


def _of_numbers(mesh: Any, dp: tuple[int | None, int | None]) -> dict[str, tuple[int, int]]:
    if mesh is None:
        return {"dp": _pair("dp_rank", "dp_world_size", dp)}
    if not isinstance(mesh, Mapping):
        raise ValueError(f'mesh must be a DeviceMesh, or numbers like {{"dp": (rank, size), "tp": (…)}}, got {mesh!r}')
    axes: dict[str, tuple[int, int]] = {}
    for name, pair in mesh.items():
        kind = _kind(name)
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise ValueError(f"mesh[{name!r}] must be (rank, size), got {pair!r}")
        at, size = _pair(f"mesh[{name!r}][0]", f"mesh[{name!r}][1]", pair)
        outer, count = axes.get(kind, (0, 1))
        axes[kind] = (outer * size + at, count * size)
    return axes


def _of_group(group: Any) -> dict[str, tuple[int, int]]:
    dist = sys.modules.get("torch.distributed")
    if dist is None:
        raise ValueError(f"dp_group must be a group of torch.distributed, got {group!r}")
    return {"dp": _pair("dp_group's rank", "its size", (dist.get_rank(group), dist.get_world_size(group)))}


def _kind(name: object) -> str:
    kind = _KIND.get(name) if isinstance(name, str) else None
    if kind is None:
        raise ValueError(f"mesh must have dimensions named {', '.join(_KIND)}, got {name!r}")
    return kind


def _pair(rank_name: str, size_name: str, pair: tuple[int | None, int | None]) -> tuple[int, int]:
    rank, size = pair
    if rank is None or size is None:
        raise ValueError(f"{rank_name} and {size_name} must be given together, got {rank} and {size}")
    for name, value in ((rank_name, rank), (size_name, size)):
        if not isinstance(value, int) or isinstance(value, bool):
            raise ValueError(f"{name} must be a whole number, got {value!r}")
    if size < 1 or not 0 <= rank < size:
        raise ValueError(f"{rank_name} must be in 0..{size - 1}, got {rank}")
    return rank, size
