"""A job over Zarr folders gets the rows, in the order, that the plain Python order gives over TFRecord of the same."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

zarr = pytest.importorskip("zarr")

from zarr.codecs import BloscCodec, ZstdCodec  # noqa: E402

from athanor.errors import AthanorError  # noqa: E402
from athanor.numpy import Loader  # noqa: E402
from tfrecord_writer import write  # noqa: E402

Batch = dict[str, Any]


@pytest.fixture(autouse=True)
def live(run_dir: Path) -> Path:
    return run_dir


@pytest.fixture(scope="module")
def twins(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Path]]:
    """Twelve shards of one block each, with the same records in both formats."""
    folder = tmp_path_factory.mktemp("twins")
    random = np.random.default_rng(5)
    first = 0
    (folder / "tfrecord").mkdir()
    for shard in range(12):
        rows = int(random.integers(3, 40))
        ids = np.arange(first, first + rows)
        tokens = random.integers(0, 60_000, (rows, 9))
        weight = random.normal(size=(rows, 2)).astype("f4")
        first += rows
        name = f"{shard:02}"
        group = zarr.open_group(folder / "zarr" / f"{name}.zarr", mode="w", zarr_format=2 + shard % 2)
        options = {"compressors": [ZstdCodec(level=1)] if shard % 2 else None}
        _put(group, "input_ids", tokens.astype("u2"), (7, 4), **options)
        _put(group, "id", ids.astype("i8") + 2**40, (5,), compressors=[BloscCodec()] if shard % 2 else "auto")
        _put(group, "weight", weight, (rows, 2), **options)
        write(
            folder / "tfrecord" / f"{name}.tfrecord",
            (
                {"id": int(i) + 2**40, "input_ids": [int(t) for t in row], "weight": [float(w) for w in pair]}
                for i, row, pair in zip(ids, tokens, weight)
            ),
        )
    yield folder / "zarr", folder / "tfrecord"
    shutil.rmtree(folder)


def _put(group: Any, name: str, data: np.ndarray, chunks: tuple[int, ...], **options: Any) -> None:
    group.create_array(name, shape=data.shape, chunks=chunks, dtype=data.dtype, **options)[...] = data


def same(found: Batch, expected: Batch) -> None:
    assert sorted(found) == sorted(expected)
    for name, values in expected.items():
        np.testing.assert_array_equal(found[name], values, err_msg=name)


ORDERS: list[dict[str, Any]] = [
    {"shuffle": "none"},
    {"shuffle": "global"},
    {"shuffle": "window", "shuffle_memory": 4096, "lanes": 3},
    {"shuffle": "window", "shuffle_memory": 4096, "columns": ["input_ids", "id"]},
]


@pytest.mark.parametrize("order", ORDERS, ids=str)
def test_rows_and_order_are_those_of_the_plain_order(twins: tuple[Path, Path], order: dict[str, Any]) -> None:
    options: dict[str, Any] = {"batch_size": 8, "max_length": 9, "seed": 7, **order}
    with Loader(twins[0], **options) as loader, Loader(twins[1], agent="none", **options) as plain:
        for _ in range(2):
            found, expected = list(loader), list(plain)
            assert len(found) == len(expected)
            for batch, other in zip(found, expected):
                same(batch, other)


def test_a_run_goes_on_where_it_was(twins: tuple[Path, Path]) -> None:
    options: dict[str, Any] = {"batch_size": 8, "max_length": 9, "seed": 7, "shuffle": "window", "shuffle_memory": 4096}
    with Loader(twins[0], **options) as loader:
        whole = list(loader)
    for stop in (1, 7):
        with Loader(twins[0], **options) as loader:
            batches = iter(loader)
            for _ in range(stop):
                next(batches)
            state = loader.state_dict()
        with Loader(twins[0], **options) as loader:
            loader.load_state_dict(state)
            for batch, other in zip(loader, whole[stop:], strict=True):
                same(batch, other)


def test_a_chunk_that_changed_since_is_named(twins: tuple[Path, Path], tmp_path: Path) -> None:
    copy = shutil.copytree(twins[0], tmp_path / "zarr", ignore=shutil.ignore_patterns(".athanor"))
    options: dict[str, Any] = {"batch_size": 8, "max_length": 9, "shuffle": "none"}
    with Loader(copy, **options) as loader:
        next(iter(loader))
    chunk = copy / "01.zarr" / "input_ids" / "c" / "0" / "1"
    chunk.write_bytes(chunk.read_bytes()[:-3])
    with pytest.raises(AthanorError) as caught, Loader(copy, **options) as loader:
        list(loader)
    assert caught.value.code == "ATH_SHARD_CHANGED" and str(chunk) in str(caught.value)


def test_missing_chunks_are_counted_in_stats_and_warned_of(
    twins: tuple[Path, Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    copy = shutil.copytree(twins[0], tmp_path / "zarr", ignore=shutil.ignore_patterns(".athanor"))
    (copy / "03.zarr" / "input_ids" / "c" / "0" / "0").unlink()
    loader = Loader(copy, batch_size=8, max_length=9, shuffle="none")
    next(iter(loader))
    assert '1 chunk, the first 03.zarr: array "input_ids", chunk input_ids/c/0/0' in caplog.text
    assert loader.stats()["agent"]["missingChunks"] == 1
    loader.close()
