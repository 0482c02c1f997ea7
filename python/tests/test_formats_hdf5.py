"""HDF5 as `athanor cat` reads it against h5py: random types, shapes, chunks and filters; a Loader over shards of it."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import numpy as np
import pytest

h5py = pytest.importorskip("h5py")
hdf5plugin = pytest.importorskip("hdf5plugin")

from format_feed import cat, equal, steps_of  # noqa: E402

NUMBERS = [
    "<i1",
    "<i2",
    "<i4",
    "<i8",
    ">i2",
    ">i4",
    ">i8",
    "<u1",
    "<u2",
    "<u4",
    "<u8",
    ">u4",
    "<f2",
    "<f4",
    "<f8",
    ">f4",
]


def plain(value: Any) -> Any:
    """A value as `cat` prints it."""
    if isinstance(value, np.ndarray):
        return [plain(item) for item in value.reshape(-1)]
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return {"b64": base64.b64encode(value).decode()}
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    if isinstance(value, (int, np.integer)):
        return int(value) if abs(int(value)) <= 2**53 - 1 else str(int(value))
    number = float(value)
    if number != number or number in (float("inf"), float("-inf")):
        return {"float": "NaN" if number != number else "Infinity" if number > 0 else "-Infinity"}
    return number


def numbers(rng: np.random.Generator, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    kind = np.dtype(dtype)
    if kind.kind == "f":
        values = rng.normal(size=shape).astype(kind)
        flat = values.reshape(-1)
        for special in (np.nan, np.inf, -np.inf, 6e-8):
            if flat.size and rng.random() < 0.3:
                flat[rng.integers(flat.size)] = special
        return values
    info = np.iinfo(kind)
    high = min(int(info.max), 2**63 - 1)
    if rng.random() < 0.5:
        return rng.integers(max(int(info.min), -1000), min(high, 1000), size=shape).astype(kind)
    return rng.integers(int(info.min), high, size=shape, endpoint=True, dtype=np.int64).astype(kind)


def filters(rng: np.random.Generator, integers: bool, fixed: bool) -> dict[str, Any]:
    chosen: dict[str, Any] = {}
    if fixed:
        chosen["shuffle"] = bool(rng.integers(2))
        chosen["fletcher32"] = bool(rng.integers(2))
    which = int(rng.integers(12 if fixed else 2))
    if which == 1:
        chosen["compression"] = "gzip"
    elif which == 2:
        chosen["compression"] = "lzf"
    elif which == 3:
        names = ["blosclz", "lz4", "lz4hc", "zlib", "zstd"]
        chosen.update(hdf5plugin.Blosc(names[rng.integers(5)], shuffle=int(rng.integers(3))))
    elif which == 4:
        chosen.update(hdf5plugin.Blosc2(["blosclz", "lz4", "zstd"][rng.integers(3)], filters=int(rng.integers(3))))
    elif which == 5:
        chosen.update(hdf5plugin.Zstd())
    elif which == 6:
        chosen.update(hdf5plugin.LZ4())
    elif which == 7:
        chosen.update(hdf5plugin.Bitshuffle(cname=["none", "lz4", "zstd"][rng.integers(3)]))
    elif which == 8:
        chosen.update(hdf5plugin.BZip2())
    elif which == 9 and integers:
        chosen = {"scaleoffset": 0}
    return chosen


def column(rng: np.random.Generator, group: Any, name: str, rows: int) -> list[Any]:
    """Writes a random dataset of `rows` rows; what `cat` is to print of each."""
    kind = int(rng.integers(10))
    if kind < 6:
        shape = (rows, *rng.integers(1, 6, size=int(rng.integers(3))).tolist())
        dtype = NUMBERS[rng.integers(len(NUMBERS))]
        data: Any = numbers(rng, dtype, shape) if kind < 5 else rng.integers(2, size=shape).astype(bool)
        options: dict[str, Any] = {}
        if rng.random() < 0.7:
            chunks = tuple(int(rng.integers(1, size + 1)) for size in shape)
            grows = {"maxshape": (None, *shape[1:])} if rng.random() < 0.3 else {}
            options = {"chunks": chunks, **grows, **filters(rng, data.dtype.kind in "iu", fixed=True)}
            if "scaleoffset" in options and data.dtype.kind in "iu" and data.dtype.byteorder == ">":
                del options["scaleoffset"]
        group.create_dataset(name, data=data, **options)
        return [plain(row) for row in data]
    if kind == 6:
        data = np.array([rng.bytes(int(rng.integers(9))).replace(b"\0", b"x") for _ in range(rows)], dtype="S8")
        group.create_dataset(name, data=data, chunks=(max(1, rows // 3),), **filters(rng, False, fixed=True))
        return [plain(bytes(row)) for row in data]
    chunks = {"chunks": (int(rng.integers(1, rows + 1)),), **filters(rng, False, fixed=False)}
    options = chunks if rng.random() < 0.7 else {}
    if kind == 7:
        text = [
            "".join(map(chr, rng.choice([0x41, 0xE9, 0x4E2D, 0x1F600], size=int(rng.integers(20)))))
            for _ in range(rows)
        ]
        group.create_dataset(name, data=text, dtype=h5py.string_dtype(), **options)
        return list(text)
    base = NUMBERS[rng.integers(len(NUMBERS))]
    lists = [numbers(rng, base, (int(rng.integers(12)),)) for _ in range(rows)]
    dataset = group.create_dataset(name, (rows,), dtype=h5py.vlen_dtype(np.dtype(base)), **options)
    for i, values in enumerate(lists):
        dataset[i] = values
    return [plain(values) for values in lists]


def write(path: Path, rng: np.random.Generator) -> list[dict[str, Any]]:
    rows = int(rng.integers(4, 300))
    options: dict[str, Any] = {"libver": ["earliest", "latest", "v110"][rng.integers(3)]}
    if rng.random() < 0.2:
        options["userblock_size"] = 1024
    columns: dict[str, list[Any]] = {}
    with h5py.File(path, "w", **options) as file:
        # Decides which first dimension is that of the records.
        for i in range(int(rng.integers(1, 6))):
            name = ["a", "b/c", "b/d e", "ü/x", "z"][i]
            columns[name] = column(rng, file, name, rows)
        big = rng.integers(0, 50000, size=(rows, 8)).astype("<i4")
        columns["tokens"] = [plain(row) for row in big]
        chunked = {"chunks": (int(rng.integers(1, rows + 1)), int(rng.integers(1, 9)))}
        file.create_dataset("tokens", data=big, **chunked, **filters(rng, True, fixed=True))
        # What is no column.
        file["about"] = "some words"
        file["few"] = np.arange(3)
        file["pairs"] = np.zeros(rows, dtype=[("x", "<i4"), ("y", "<f4")])
        file["nothing"] = h5py.Empty("f4")
        file["b/again"] = h5py.SoftLink("/nowhere")
    names = sorted(columns)
    return [{name: columns[name][i] for name in names} for i in range(rows)]


def test_random_files_give_what_h5py_wrote(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    expected: list[dict[str, Any]] = []
    for number in range(80):
        expected += write(tmp_path / f"{number:03}.h5", rng)
    found = cat(tmp_path)
    assert len(found) == len(expected)
    for i, (got, wanted) in enumerate(zip(found, expected)):
        assert got == wanted, f"record {i}"


ROWS = 1000


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three shards; row i of the set has id i, tokens that follow from it, and a mask."""
    folder = tmp_path_factory.mktemp("hdf5")
    ids = np.arange(ROWS)
    tokens = (ids[:, None] * 31 + np.arange(24)[None]) % 1000
    ways: list[dict[str, Any]] = [{"compression": "gzip"}, {"compression": "lzf", "shuffle": True}, {}]
    for number, (part, way) in enumerate(zip(np.array_split(ids, 3), ways)):
        with h5py.File(folder / f"{number}.h5", "w") as file:
            file.create_dataset("input_ids", data=tokens[part].astype("<i4"), chunks=(64, 24), **way)
            file["id"] = part
            file.create_dataset("text", data=[f"row {i}" for i in part], dtype=h5py.string_dtype())
    return folder


VIEW: dict[str, Any] = {"batch_size": 16, "max_length": 24, "columns": ["id", "input_ids"]}


def joined(found: list[Any], name: str) -> np.ndarray:
    return np.concatenate([batch[name].reshape(len(batch["id"]), -1) for batch in found])


@pytest.mark.parametrize("options", [{"shuffle": "none"}, {"seed": 7}])
def test_a_loader_delivers_every_row_as_h5py_wrote_it(run_dir: Path, shards: Path, options: dict[str, Any]) -> None:
    assert run_dir.exists()
    found, _ = steps_of(shards, **VIEW, **options)
    ids = joined(found, "id")[:, 0]
    if "seed" not in options:
        np.testing.assert_array_equal(ids[:ROWS], np.arange(ROWS))
    assert sorted(set(ids.tolist())) == list(range(ROWS))
    np.testing.assert_array_equal(joined(found, "input_ids"), (ids[:, None] * 31 + np.arange(24)[None]) % 1000)


def test_a_run_goes_on_where_its_state_says(run_dir: Path, shards: Path) -> None:
    assert run_dir.exists()
    whole, _ = steps_of(shards, **VIEW, seed=3)
    head, state = steps_of(shards, steps=23, **VIEW, seed=3)
    tail, _ = steps_of(shards, state=state, **VIEW, seed=3)
    equal(head + tail, whole)
