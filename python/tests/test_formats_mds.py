"""MDS: random shards of an independent writer (by the public layout) come out of `athanor cat` value by value, and a
Loader delivers what was written. Shards of MosaicML's own writer are in test/fixtures/mds (its make.py)."""

from __future__ import annotations

import base64
import gzip
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import zstandard

from format_feed import cat, check_feed

Row = dict[str, Any]
CODES = {"uint8": 8, "int8": 9, "uint16": 16, "int16": 17, "float16": 18, "uint32": 32, "int32": 33}
CODES |= {"float32": 34, "uint64": 64, "int64": 65, "float64": 66}
TEXT = ["", "a", "\0", "é", "数据", "😀", '"\\', "\n", "x" * 70]


def array_of(rng: np.random.Generator, dtype: str, shape: tuple[int, ...]) -> Any:
    if dtype.startswith("float"):
        return (rng.standard_normal(shape) * 10).astype(dtype)
    info = np.iinfo(dtype)
    return rng.integers(info.min, min(info.max, 2**63 - 1), shape, dtype=dtype, endpoint=True)


def ndarray(dtype: str | None, shape: tuple[int, ...] | None, value: Any) -> bytes:
    """Type and shape stand in the value where the column does not fix them."""
    head = b"" if dtype is not None else bytes([CODES[value.dtype.name]])
    if shape is None:
        largest = max(value.shape)
        width = next(i for i in range(4) if largest < 1 << (8 << i))
        head += bytes([value.ndim << 2 | width]) + np.array(value.shape, f"<u{1 << width}").tobytes()
    return head + value.tobytes()


def column(rng: random.Random, numbers: np.random.Generator) -> tuple[str, int | None, Callable[[], Any], Any]:
    """Encoding, size, a maker of values, their encoder."""
    kind = rng.randrange(8)
    if kind == 0:
        return "int", 8, lambda: rng.randrange(-(2**63), 2**63), lambda v: np.int64(v).tobytes()
    if kind == 1:
        dtype = rng.choice(list(CODES))
        return dtype, np.dtype(dtype).itemsize, lambda: array_of(numbers, dtype, ())[()], lambda v: v.tobytes()
    if kind == 2:
        return "str", None, lambda: "".join(rng.choices(TEXT, k=rng.randrange(4))), lambda v: v.encode()
    if kind == 3:
        return rng.choice(["bytes", "jpeg", "png"]), None, lambda: rng.randbytes(rng.randrange(20)), lambda v: v
    if kind == 4:
        # A column's values are of one kind in all records.
        values: list[list[Any]] = [
            [{"a": [1, 2], "b": None, "é": "x"}, {"a": 2**60, "c": {"d": [None]}}, None, {}, "t", [{}], ["a", 1]],
            [2**60, [1], [[2], []], True, [], None],
            [[0.5, 1], -1.5e300, 1e-7, []],
        ]
        own_values = rng.choice(values)
        return "json", None, lambda: rng.choice(own_values), lambda v: json.dumps(v).encode()
    if kind == 5:
        return (
            rng.choice(["str_int", "str_float", "str_decimal"]),
            None,
            lambda: str(rng.random()),
            lambda v: v.encode(),
        )
    fixed = rng.choice(list(CODES)) if rng.random() < 0.7 else None
    shape = tuple(rng.randrange(1, 4) for _ in range(rng.randrange(1, 4))) if rng.random() < 0.4 and fixed else None
    # One type in a column whose arrays tell their own: integers and fractions do not go into one column.
    own = fixed or rng.choice(list(CODES))
    limit = rng.choice([4, 300])

    def make() -> Any:
        return array_of(numbers, own, shape or (rng.randrange(1, limit), *[1 + rng.randrange(2)] * rng.randrange(2)))

    name = "ndarray" + (f":{fixed}" if fixed else "") + (":" + ",".join(map(str, shape)) if shape else "")
    size = None if shape is None or fixed is None else int(np.prod(shape)) * np.dtype(fixed).itemsize
    return name, size, make, lambda v: ndarray(fixed, shape, v)


def shard(columns: dict[str, tuple[str, int | None, Any, Any]], rows: list[Row]) -> bytes:
    names = sorted(columns)
    config = json.dumps(
        {
            "column_encodings": [columns[name][0] for name in names],
            "column_names": names,
            "column_sizes": [columns[name][1] for name in names],
            "compression": None,
            "format": "mds",
            "hashes": [],
            "size_limit": 1 << 26,
            "version": 2,
        }
    ).encode()
    samples = []
    for row in rows:
        values = [columns[name][3](row[name]) for name in names]
        sizes = [len(value) for name, value in zip(names, values) if columns[name][1] is None]
        samples.append(np.array(sizes, "<u4").tobytes() + b"".join(values))
    begin = 4 + 4 * (len(rows) + 1) + len(config)
    offsets = begin + np.cumsum([0] + [len(sample) for sample in samples])
    return np.uint32(len(rows)).tobytes() + offsets.astype("<u4").tobytes() + config + b"".join(samples)


def packed(rng: random.Random, data: bytes) -> tuple[str, bytes]:
    kind = rng.choice(["", "", ".gz", ".zstd"])
    if kind == ".gz":
        return kind, gzip.compress(data)
    if kind == ".zstd":
        return kind, zstandard.ZstdCompressor(write_content_size=rng.random() < 0.5).compress(data)
    return kind, data


def plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, np.ndarray):
        return [plain(item) for item in value.tolist()]
    if isinstance(value, bytes):
        return {"b64": base64.b64encode(value).decode()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 2**53:
        return str(value)
    return value


def listing(shards: list[tuple[str, bytes, str, bytes, int]]) -> str:
    rows = [
        {
            "raw_data": {"basename": name, "bytes": len(raw), "hashes": {}},
            "zip_data": None if stored == name else {"basename": stored, "bytes": len(data), "hashes": {}},
            "samples": samples,
            "version": 2,
            "format": "mds",
        }
        for name, raw, stored, data, samples in shards
    ]
    return json.dumps({"shards": rows, "version": 2})


def test_random_shards_are_read_as_they_were_written(tmp_path: Path) -> None:
    rng = random.Random(20250311)
    numbers = np.random.default_rng(5)
    expected = []
    for number in range(60):
        folder = tmp_path / f"{number:03}"
        folder.mkdir()
        columns = {f"c{i}": column(rng, numbers) for i in range(rng.randrange(1, 7))}
        written = []
        for i in range(rng.randrange(1, 4)):
            rows = [{name: make() for name, (_, _, make, _) in columns.items()} for _ in range(rng.randrange(1, 90))]
            expected += rows
            raw = shard(columns, rows)
            ending, data = packed(rng, raw)
            name = f"shard.{i:05}.mds"
            (folder / f"{name}{ending}").write_bytes(data)
            written.append((name, raw, f"{name}{ending}", data, len(rows)))
        if rng.random() < 0.7:
            (folder / "index.json").write_text(listing(written))
    found = cat(tmp_path)
    assert len(found) == len(expected)
    for i, (got, wanted) in enumerate(zip(found, expected)):
        assert got == {name: plain(wanted[name]) for name in sorted(wanted)}, f"record {i}"


def test_a_loader_delivers_every_sample_in_order_and_resumes(run_dir: Path, tmp_path: Path) -> None:
    rng = random.Random(4)
    columns: dict[str, Any] = {
        "id": ("int", 8, None, lambda v: np.int64(v).tobytes()),
        "ids": ("ndarray:uint16", None, None, lambda v: ndarray("uint16", None, np.array(v, "<u2"))),
        "text": ("str", None, None, lambda v: v.encode()),
    }
    expected = []
    written = []
    for i, ending in enumerate(["", ".gz", ".zstd"]):
        rows = []
        for _ in range(rng.randrange(150, 300)):
            ids = [rng.randrange(1, 65536) for _ in range(rng.randrange(1, 40))]
            rows.append({"id": len(expected), "ids": ids, "text": "t" * rng.randrange(5)})
            expected.append((len(expected), ids))
        raw = shard(columns, rows)
        data = {"": raw, ".gz": gzip.compress(raw), ".zstd": zstandard.compress(raw)}[ending]
        name = f"shard.{i:05}.mds"
        (tmp_path / f"{name}{ending}").write_bytes(data)
        written.append((name, raw, f"{name}{ending}", data, len(rows)))
    (tmp_path / "index.json").write_text(listing(written))
    check_feed(tmp_path, "id", "ids", expected)
