"""Lists that hold one value in every record are columns of lists all the same."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from athanor.numpy import Loader

N = 8


def lines(folder: Path) -> None:
    (folder / "a.jsonl").write_text("".join(json.dumps({"one": i, "list": [i]}) + "\n" for i in range(N)))


def parquet(folder: Path) -> None:
    pa = pytest.importorskip("pyarrow", reason="skipped: pyarrow is not installed")
    pq = pytest.importorskip("pyarrow.parquet")
    pq.write_table(pa.table({"one": list(range(N)), "list": [[i] for i in range(N)]}), folder / "a.parquet")


def hdf5(folder: Path) -> None:
    h5py = pytest.importorskip("h5py", reason="skipped: h5py is not installed")
    with h5py.File(folder / "a.h5", "w") as file:
        # As wide in every record: such rows hold one value by their type.
        file["one"] = np.arange(N).reshape(N, 1)
        lists = file.create_dataset("list", N, dtype=h5py.vlen_dtype(np.int64))
        for i in range(N):
            lists[i] = [i]


def zarr(folder: Path) -> None:
    numcodecs = pytest.importorskip("numcodecs", reason="skipped: numcodecs is not installed")
    lists = np.empty(N, object)
    for i in range(N):
        lists[i] = np.array([i])
    codec = numcodecs.VLenArray("<i8")
    both = {"zarr_format": 2, "shape": [N], "chunks": [N], "order": "C", "compressor": None}
    for name, dtype, filters, fill, data in (
        ("one", "<i8", None, 0, np.arange(N).tobytes()),
        ("list", "|O", [codec.get_config()], None, bytes(codec.encode(lists))),
    ):
        array = folder / "a.zarr" / name
        array.mkdir(parents=True)
        (array / ".zarray").write_text(json.dumps({**both, "dtype": dtype, "filters": filters, "fill_value": fill}))
        (array / "0").write_bytes(data)
    (folder / "a.zarr" / ".zgroup").write_text('{"zarr_format":2}')


def webdataset(folder: Path) -> None:
    with tarfile.open(folder / "a.tar", "w") as archive:
        for i in range(N):
            for part, array in (("one", np.array(i)), ("list", np.array([i]))):
                stream = io.BytesIO()
                np.save(stream, array)
                member = tarfile.TarInfo(f"{i:03}.{part}.npy")
                member.size = stream.tell()
                stream.seek(0)
                archive.addfile(member, stream)


def mds(folder: Path) -> None:
    """Columns `list` (an array that tells its own type and shape) and `one`, in the order of their names."""
    samples = [b"".join((u32(11), bytes([65, 1 << 2, 1]), i64(i), i64(i))) for i in range(N)]
    header = {"column_encodings": ["ndarray", "int"], "column_names": ["list", "one"], "column_sizes": [None, 8]}
    head = json.dumps(
        {**header, "compression": None, "format": "mds", "hashes": [], "size_limit": None, "version": 2}
    ).encode()
    at = 4 + 4 * (N + 1) + len(head)
    offsets = [at + sum(map(len, samples[:i])) for i in range(N + 1)]
    (folder / "shard.00000.mds").write_bytes(
        b"".join((u32(N), np.array(offsets, "<u4").tobytes(), head, *samples)),
    )


def u32(value: int) -> bytes:
    return value.to_bytes(4, "little")


def i64(value: int) -> bytes:
    return value.to_bytes(8, "little")


@pytest.mark.parametrize("write", [lines, parquet, hdf5, zarr, webdataset, mds])
def test_lists_of_one_value_in_every_record_came_without_their_dimension(
    run_dir: Path, tmp_path: Path, write: Callable[[Path], None]
) -> None:
    write(tmp_path)
    with Loader(str(tmp_path), batch_size=N, max_length=3, columns=["one", "list"], shuffle="none") as loader:
        batch = next(iter(loader))
    assert batch["one"].tolist() == list(range(N))
    assert batch["list"].tolist() == [[i, 0, 0] for i in range(N)]


def test_an_appended_shard_that_holds_lists_makes_lists_of_all(run_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"x":1}\n')
    (tmp_path / "b.jsonl").write_text('{"x":2}\n{"x":[3]}\n')
    with Loader(str(tmp_path), batch_size=3, max_length=2, shuffle="none") as loader:
        assert next(iter(loader))["x"].tolist() == [[1, 0], [2, 0], [3, 0]]


def test_a_bad_record_says_nothing_of_lists(run_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"x":1}\n{"x":[2],}\n{"x":3}\n')
    options = {"on_corrupt": "replace", "ledger_dir": str(tmp_path / "ledger")}
    with Loader(str(tmp_path / "a.jsonl"), batch_size=3, max_length=2, shuffle="none", **options) as loader:
        assert next(iter(loader))["x"].tolist() == [1, 3, 3]


def test_one_id_a_record_had_a_mask_of_another_shape(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py", reason="skipped: h5py is not installed")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["input_ids"] = np.arange(50, dtype="u2")
    with Loader(str(tmp_path), batch_size=10, shuffle="none") as loader:
        batches = list(loader)
    assert [sorted(batch) for batch in batches] == [["input_ids"]] * 5
    assert np.array_equal(np.concatenate([batch["input_ids"] for batch in batches]), np.arange(50))
