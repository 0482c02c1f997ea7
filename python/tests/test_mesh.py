"""Where a process stands in a model-parallel job, and which slices of a row it gets."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

from athanor._mesh import Place, find
from athanor._slices import Slices

Monkey = pytest.MonkeyPatch


class FakeMesh(NamedTuple):
    """As much of torch's DeviceMesh as is looked at."""

    mesh: Any
    mesh_dim_names: tuple[str, ...] | None


def launched(monkeypatch: Monkey, rank: int, world: int, local_world: int) -> None:
    for name, value in (("RANK", rank), ("WORLD_SIZE", world), ("LOCAL_RANK", rank % local_world)):
        monkeypatch.setenv(name, str(value))
    monkeypatch.setenv("LOCAL_WORLD_SIZE", str(local_world))


def everywhere(monkeypatch: Monkey, world: int, local_world: int, **sizes: int) -> list[Place]:
    """Places of all processes of a job with the usual placement, from explicit numbers."""
    places = []
    for rank in range(world):
        launched(monkeypatch, rank, world, local_world)
        numbers, rest = {}, rank
        for kind in ("tp", "cp", "dp", "pp"):
            size = sizes.get(kind, 1)
            numbers[kind] = (rest % size, size)
            rest //= size
        places.append(find(mesh=numbers))
    return places


@pytest.mark.parametrize(
    ("world", "local_world", "sizes", "nodes"),
    [
        (8, 8, {"dp": 8}, [[0, 1, 2, 3, 4, 5, 6, 7]]),
        (8, 8, {"dp": 2, "tp": 4}, [[0, 0, 0, 0, 1, 1, 1, 1]]),
        (16, 8, {"dp": 2, "tp": 4, "pp": 2}, [[0, 0, 0, 0, 1, 1, 1, 1]] * 2),
        (8, 8, {"dp": 1, "tp": 2, "pp": 4}, [[0, 0, 0, 0]]),  # of four stages the middle ones need nothing
        (16, 4, {"dp": 2, "tp": 8}, [[0] * 4, [0] * 4, [1] * 4, [1] * 4]),  # tensor parallelism over two nodes
        (8, 8, {"dp": 2, "tp": 2, "cp": 2}, [[0, 0, 0, 0, 1, 1, 1, 1]]),
    ],
)
def test_whose_rows_a_node_takes(
    monkeypatch: Monkey, world: int, local_world: int, sizes: dict[str, int], nodes: list[list[int]]
) -> None:
    places = everywhere(monkeypatch, world, local_world, **sizes)
    for rank, place in enumerate(places):
        assert list(place.here) == nodes[rank // local_world]
        assert place.ranks.world == sizes["dp"] and place.ranks.local_rank == rank % local_world
        assert place.builds == (rank < local_world)
    # One process of each data-parallel rank writes the proof.
    assert sorted(place.ranks.rank for place in places if place.proves) == list(range(sizes["dp"]))


def test_a_device_mesh_says_it_for_any_placement(monkeypatch: Monkey) -> None:
    # Data-parallel innermost: not what is usual.
    ranks = np.arange(8).reshape(2, 2, 2)
    mesh = FakeMesh(ranks, ("tp", "dp_replicate", "dp_shard"))
    for rank in range(8):
        launched(monkeypatch, rank, 8, 4)
        place = find(mesh=mesh)
        assert place.ranks[:2] == (rank % 4, 4)
        assert place.here == (0, 1, 2, 3)
        assert place.proves == (rank < 4)
    launched(monkeypatch, 5, 16, 8)
    part = find(mesh=FakeMesh(np.array([1, 5, 9, 13]), ("dp",)))  # mesh["dp"] of a larger mesh: its peers are guessed
    assert part.ranks[:2] == (1, 4) and part.here == (0, 0, 0, 0, 1, 1, 1, 1) and part.proves is None


def test_only_the_data_parallel_numbers(monkeypatch: Monkey) -> None:
    launched(monkeypatch, 5, 8, 8)
    assert find(dp_rank=1, dp_world_size=2).here == (0, 0, 0, 0, 1, 1, 1, 1)
    assert find(dp_rank=1, dp_world_size=2).proves is None
    assert find(dp_rank=2, dp_world_size=4, cp_rank=1, cp_size=2)[1:] == ((0, 0, 1, 1, 2, 2, 3, 3), True, False, 1, 2)
    assert find(dp_rank=0, dp_world_size=2).here == (0,)  # placed in another way: its own rows only
    monkeypatch.delenv("RANK")
    monkeypatch.delenv("WORLD_SIZE")
    alone = find(dp_rank=1, dp_world_size=2)
    assert alone.ranks[:2] == (1, 2) and alone.here == (1,) and alone.proves and not alone.builds


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"dp_rank": 1}, "dp_rank and dp_world_size must be given together"),
        ({"dp_rank": 2, "dp_world_size": 2}, r"dp_rank must be in 0\.\.1, got 2"),
        ({"dp_rank": 0, "dp_world_size": 1, "mesh": {}}, "dp_rank must be left out when mesh is given"),
        ({"cp_rank": 0, "cp_size": 2}, "dp_rank and dp_world_size, or mesh, must be given with cp_rank"),
        ({"dp_rank": 0, "dp_world_size": 1, "cp_rank": 1}, "cp_rank and cp_size must be given together"),
        ({"mesh": {"dp": (0, 2), "cp": (0, 2)}, "cp_rank": 1, "cp_size": 2}, "must be left out when mesh is given"),
        ({"mesh": {"ep": (0, 2)}}, "mesh must have dimensions named dp, .*, got 'ep'"),
        ({"mesh": {"dp": 2}}, r"mesh\['dp'\] must be \(rank, size\), got 2"),
        ({"mesh": 7}, "mesh must be a DeviceMesh, or numbers"),
        ({"mesh": FakeMesh(np.arange(2), None)}, "mesh must name its dimensions"),
        ({"mesh": FakeMesh(np.arange(2) + 3, ("dp",))}, "mesh must hold this process, rank 0"),
    ],
)
def test_wrong_arguments(monkeypatch: Monkey, options: dict[str, Any], text: str) -> None:
    for name in ("RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ValueError, match=text):
        find(**options)


def test_slices() -> None:
    row = np.arange(24).reshape(1, 24)
    for size in (1, 2, 3, 4):
        for split in ("contiguous", "zigzag"):
            seen = []
            for rank in range(size):
                cut = Slices(24, rank, size, split)
                target = np.zeros((1, cut.width), np.int64)
                cut.copy(target, row)
                assert target[0].tolist() == cut.positions.tolist()
                seen += cut.positions.tolist()
            assert sorted(seen) == list(range(24))
    # The halves of Megatron's get_batch_on_this_cp_rank: chunk r, and chunk 2·cp − 1 − r.
    assert Slices(16, 1, 4, "zigzag").positions.tolist() == [2, 3, 12, 13]
    assert Slices(16, 1, 4, "contiguous").positions.tolist() == [4, 5, 6, 7]
    with pytest.raises(ValueError, match='max_length must be a multiple of 8 for 4 .* cp_split="zigzag", got 12'):
        Slices(12, 0, 4, "zigzag")
