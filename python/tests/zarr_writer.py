"""Random Zarr folders, written by zarr-python: versions, data types, chunks, shards, orders, byte orders and codecs."""

from __future__ import annotations

import random
import warnings
from pathlib import Path
from typing import Any

import numcodecs
import numpy as np
import zarr
from zarr.codecs import (
    BloscCodec,
    BytesCodec,
    Crc32cCodec,
    GzipCodec,
    ShardingCodec,
    TransposeCodec,
    ZstdCodec,
)

INTEGERS = ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"]
NUMBERS = [*INTEGERS, "i4", "i8", "f2", "f4", "f8", "b1"]
CNAMES = ["blosclz", "lz4", "lz4hc", "zlib", "zstd"]
WORDS = ["", "a", "deep", "ünï", "语言模型", "🔥🔥", "tab\tnew\nline", "x" * 300]


def write(rng: random.Random, path: Path) -> dict[str, list[Any]]:
    """One shard of one to four arrays of as many rows, or a single array; what `athanor cat` should print, by field."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # strings and big-endian types: not in the specification of version 3 yet
        version = rng.choice([2, 3])
        rows = rng.choice([1, 2, 7, 20, 33, 64])
        if rng.random() < 0.3:
            values = _array(rng, path, None, version, rows, rng.choice(NUMBERS))
            kind = values.dtype.kind
            return {"input_ids" if kind in "iu" else "values": _plain(values)}
        group = zarr.open_group(path, mode="w", zarr_format=version)
        fields = {}
        for number in range(rng.randint(1, 4)):
            name = rng.choice(["tokens", "x", "deep/er"]) + str(number)
            dtype = rng.choice([*NUMBERS, "text", "S5", "U6"]) if number > 0 else rng.choice(INTEGERS)
            fields[name] = _plain(_array(rng, group, name, version, rows, dtype))
        if rng.random() < 0.2:
            zarr.consolidate_metadata(path, zarr_format=version)
        return fields


def _array(rng: random.Random, parent: Any, name: str | None, version: int, rows: int, dtype: str) -> np.ndarray:
    scalar = dtype in ("text", "S5", "U6")
    tail = () if scalar else rng.choice([(), (), (1,), (5,), (17,), (3, 4), (2, 3, 5)])
    shape = (rows, *tail)
    chunks = tuple(rng.randint(1, size + 2) for size in shape)
    data = _values(rng, shape, dtype)
    options: dict[str, Any] = {"shape": shape, "overwrite": True}
    if version == 2:
        options |= _options2(rng, dtype, chunks)
    else:
        options |= _options3(rng, dtype, chunks, len(shape))
    if name is None:
        array = zarr.create_array(parent, zarr_format=version, **options)
    else:
        array = parent.create_array(name, **options)
    array[...] = data
    if rng.random() < 0.2 and rows > 2:
        # Grown: what is behind was never written.
        array.resize((rows, *tail))
    if dtype != "text" and rng.random() < 0.3:
        _lose(rng, Path(str(array.store_path).removeprefix("file://")), version)
    read = zarr.open_array(array.store_path, mode="r", zarr_format=version)[...]
    return np.asarray(read)


def _values(rng: random.Random, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    numbers = np.random.default_rng(rng.getrandbits(32))
    count = int(np.prod(shape))
    if dtype == "text":
        return np.array([rng.choice(WORDS) for _ in range(count)], dtype=object).reshape(shape)
    if dtype == "S5":
        return np.array([rng.choice([b"", b"a", b"\xffab", b"12345"]) for _ in range(count)], dtype="S5").reshape(shape)
    if dtype == "U6":
        return np.array([word[:6] for word in rng.choices(WORDS, k=count)], dtype="U6").reshape(shape)
    kind = np.dtype(dtype)
    if kind.kind == "b":
        return numbers.integers(0, 2, shape).astype(bool)
    if kind.kind == "f":
        data = numbers.normal(size=shape).astype(dtype)
        data.reshape(-1)[0] = rng.choice([np.nan, np.inf, -np.inf, 0.0])
        return data
    info = np.iinfo(kind)
    most = min(int(info.max), 2**63 - 1)
    if rng.random() < 0.5:
        return numbers.integers(max(int(info.min), -50), min(most, 100), shape).astype(dtype)
    return numbers.integers(
        int(info.min), most, shape, endpoint=True, dtype=np.int64 if kind.kind == "i" else np.uint64
    ).astype(dtype)


def _fill(rng: random.Random, dtype: str) -> Any:
    if dtype in ("text", "U6"):
        return rng.choice(["", "fill"])
    if dtype == "S5":
        return rng.choice([b"", b"ab"])
    kind = np.dtype(dtype).kind
    if kind == "b":
        return rng.choice([True, False])
    if kind == "f":
        return rng.choice([0.0, float("nan"), float("inf"), -1.5, 0.1])
    info = np.iinfo(dtype)
    return rng.choice([0, 7, int(info.min), min(int(info.max), 2**63 - 1)])


def _options2(rng: random.Random, dtype: str, chunks: tuple[int, ...]) -> dict[str, Any]:
    stored = "str" if dtype == "text" else ("<U6" if dtype == "U6" else dtype)
    numeric = dtype in NUMBERS
    if numeric and np.dtype(dtype).itemsize > 1:
        stored = rng.choice("<>") + dtype
    compressor = rng.choice(
        [
            None,
            numcodecs.Zlib(rng.randint(1, 9)),
            numcodecs.GZip(rng.randint(1, 9)),
            numcodecs.Zstd(rng.randint(1, 9), checksum=rng.random() < 0.5),
            numcodecs.LZ4(),
            numcodecs.BZ2(rng.randint(1, 9)),
            *[numcodecs.Blosc(rng.choice(CNAMES), rng.randint(0, 9), rng.choice([0, 1, 2])) for _ in range(3)],
        ]
    )
    filters: list[Any] = []
    if numeric and dtype in INTEGERS and dtype != "u8" and rng.random() < 0.4:
        filters = [numcodecs.Delta(stored)]
    elif numeric and dtype in ("f4", "f8") and rng.random() < 0.3:
        filters = (
            [numcodecs.FixedScaleOffset(0, 100, stored, "<i8")]
            if dtype == "f8"
            else [numcodecs.BitRound(8)]
            if stored[0] == "<"
            else []
        )
    elif numeric and rng.random() < 0.2:
        filters = [numcodecs.Shuffle(np.dtype(dtype).itemsize)]
    if numeric and rng.random() < 0.15:
        filters.append(rng.choice([numcodecs.CRC32(), numcodecs.Adler32(), numcodecs.Zlib(1)]))
    options = {
        "dtype": stored,
        "chunks": chunks,
        "order": rng.choice("CF"),
        "compressors": compressor,
        "fill_value": _fill(rng, dtype),
        "chunk_key_encoding": {"name": "v2", "separator": rng.choice("./")},
    }
    if filters:
        options["filters"] = filters
    return options


def _options3(rng: random.Random, dtype: str, chunks: tuple[int, ...], axes: int) -> dict[str, Any]:
    stored: Any = {"text": "string", "U6": "<U6", "S5": "S5"}.get(dtype) or np.dtype(dtype)
    options: dict[str, Any] = {
        "dtype": stored,
        "chunks": chunks,
        "fill_value": _fill(rng, dtype),
        "chunk_key_encoding": {"name": rng.choice(["default", "v2"]), "separator": rng.choice("./")},
    }
    compressors: list[Any] = rng.choice(
        [
            [],
            [GzipCodec(level=rng.randint(1, 9))],
            [ZstdCodec(level=rng.randint(1, 9), checksum=rng.random() < 0.5)],
            [
                BloscCodec(
                    cname=rng.choice(CNAMES),
                    clevel=rng.randint(0, 9),
                    shuffle=rng.choice(["noshuffle", "shuffle", "bitshuffle"]),
                )
            ],
        ]
    )
    if rng.random() < 0.4:
        compressors.insert(rng.randint(0, len(compressors)), Crc32cCodec())
    options["compressors"] = compressors
    numeric = dtype in NUMBERS
    if numeric and axes > 1 and rng.random() < 0.4:
        order = list(range(axes))
        rng.shuffle(order)
        options["filters"] = [TransposeCodec(order=tuple(order))]
    if numeric and np.dtype(dtype).itemsize > 1 and rng.random() < 0.4:
        options["serializer"] = BytesCodec(endian="big")
    if rng.random() < 0.4:
        shards = tuple(size * rng.randint(1, 3) for size in chunks)
        how = rng.random()
        if how < 0.7:
            options["shards"] = {"shape": shards, "index_location": rng.choice(["start", "end"])}
        elif numeric:
            # A shard inside a shard, or in other codecs.
            inner = {k: options.pop(k) for k in ("filters", "serializer", "compressors") if k in options}
            codecs = [*inner.get("filters", []), inner.get("serializer", BytesCodec()), *inner["compressors"]]
            options["serializer"] = ShardingCodec(chunk_shape=chunks, codecs=codecs)
            options["chunks"] = shards
            options["compressors"] = rng.choice([None, [GzipCodec(level=1)], [Crc32cCodec()]])
            options["filters"] = None
    return options


def _lose(rng: random.Random, folder: Path, version: int) -> None:
    files = [
        path
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name not in ("zarr.json", ".zarray", ".zattrs")
    ]
    for path in rng.sample(files, min(len(files), rng.randint(0, 2))):
        path.unlink()


def _plain(values: np.ndarray) -> list[Any]:
    """As `athanor cat` prints them."""
    return [_value(row) for row in values]


def _value(value: Any) -> Any:
    if isinstance(value, np.ndarray) and value.ndim > 0:
        return [_value(part) for part in value]
    value = value.item() if isinstance(value, (np.generic, np.ndarray)) else value
    if isinstance(value, bytes):
        import base64

        return {"b64": base64.b64encode(value).decode()}
    if isinstance(value, float) and not np.isfinite(value):
        return {"float": "NaN" if np.isnan(value) else ("Infinity" if value > 0 else "-Infinity")}
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > 2**53 - 1:
        return str(value)
    return value
