"""WebDataset: random archives of tarfile come out of `athanor cat` as the webdataset library groups them, arrays as
numpy reads them; a Loader delivers what was written."""

from __future__ import annotations

import base64
import io
import json
import random
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import webdataset

from format_feed import cat, check_feed

FORMATS = [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]
NAMES = ["a", "train/b", "v1.0/c", "数据/é", "d" * 90 + "/" + "e" * 90]
# Of one kind in each column.
DTYPES = {"ids.npy": ["<i4", ">i2", "<i8", "|u1", "<u4", "|b1"], "w.npy": ["<f4", "<f8", "<f2", ">f4"]}


def npy(rng: np.random.Generator, pick: random.Random, ext: str) -> bytes:
    shape = tuple(pick.randrange(0, 4) for _ in range(pick.randrange(0, 4)))
    values = rng.integers(0, 200, shape)
    array = np.asarray(values.astype(pick.choice(DTYPES[ext])))
    if array.ndim > 1 and pick.random() < 0.3:
        array = np.asfortranarray(array)
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def npz(rng: np.random.Generator, pick: random.Random) -> bytes:
    buffer = io.BytesIO()
    save = pick.choice([np.savez, np.savez_compressed])
    save(buffer, x=rng.integers(-5, 5, pick.randrange(4)), y=rng.random((2, 2)))
    return buffer.getvalue()


def part(rng: np.random.Generator, pick: random.Random, ext: str) -> bytes:
    kind = ext.lower().rsplit(".", 1)[-1]
    if kind == "npy":
        return npy(rng, pick, ext)
    if kind == "npz":
        return npz(rng, pick)
    if kind == "json":
        return json.dumps(pick.choice([{"n": 1, "t": "é"}, [1, 2], {"ids": [5, 2**60]}, {}])).encode()
    if kind == "cls":
        return str(pick.randrange(-5, 1000)).encode()
    if kind == "txt":
        return pick.choice(["", "grün", "a\0b", "x" * 2000]).encode()
    return pick.randbytes(pick.randrange(1500))


def archive(path: Path, rng: np.random.Generator, pick: random.Random) -> None:
    mode = "w:gz" if path.name.endswith(".gz") else "w"
    with tarfile.open(path, mode, format=pick.choice(FORMATS)) as tar:  # type: ignore[call-overload]
        for number in range(pick.randrange(1, 80)):
            # ustar has no room for every name.
            names = NAMES if tar.format != tarfile.USTAR_FORMAT else NAMES[:4]
            key = f"{pick.choice(names)}{number}"
            exts = pick.sample(
                ["json", "TXT", "cls", "ids.npy", "w.npy", "x.npz", "jpg", "pt", "seg.txt"], pick.randrange(1, 5)
            )
            for ext in exts:
                data = part(rng, pick, ext)
                info = tarfile.TarInfo(f"{key}.{ext}")
                info.size = len(data)
                info.mtime = pick.choice([0, 1.5, 2**33 - 1])
                tar.addfile(info, io.BytesIO(data))
                if pick.random() < 0.1:
                    other = tarfile.TarInfo(f"folder{number}")
                    other.type = pick.choice([tarfile.DIRTYPE, tarfile.SYMTYPE])
                    other.linkname = "a.txt" if other.type == tarfile.SYMTYPE else ""
                    tar.addfile(other)


def plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return [plain(item) for item in value.tolist()] if value.ndim else plain(value.item())
    if isinstance(value, list):
        return [plain(item) for item in value]
    # A boolean array is 0 and 1.
    return int(value) if isinstance(value, bool) else value


def shown(name: str, data: bytes) -> Any:
    kind = name.rsplit(".", 1)[-1]
    if kind == "npy":
        return plain(np.load(io.BytesIO(data)))
    if kind == "npz":
        return {key: plain(array) for key, array in np.load(io.BytesIO(data)).items()}
    if kind == "cls":
        return int(data)
    if kind in ("json", "txt"):
        return data.decode()
    return {"b64": base64.b64encode(data).decode()}


def test_random_archives_are_read_as_webdataset_reads_them(tmp_path: Path) -> None:
    pick = random.Random(20250312)
    rng = np.random.default_rng(7)
    expected = []
    for number in range(50):
        path = tmp_path / f"{number:03}.tar{pick.choice(['', '.gz'])}"
        archive(path, rng, pick)
        for sample in webdataset.WebDataset(str(path), shardshuffle=False):
            own = {name: data for name, data in sample.items() if not name.startswith("__")}
            expected.append({"__key__": sample["__key__"]} | {name: shown(name, data) for name, data in own.items()})
    found = cat(tmp_path)
    assert len(found) == len(expected)
    for i, (got, wanted) in enumerate(zip(found, expected)):
        assert got == wanted, f"record {i}"


def test_a_loader_delivers_every_sample_in_order_and_resumes(run_dir: Path, tmp_path: Path) -> None:
    pick = random.Random(8)
    expected = []
    for shard in range(3):
        with tarfile.open(tmp_path / f"{shard}.tar{'.gz' if shard == 1 else ''}", "w:gz" if shard == 1 else "w") as tar:  # type: ignore[call-overload]
            for _ in range(pick.randrange(120, 250)):
                ids = [pick.randrange(1, 60000) for _ in range(pick.randrange(1, 40))]
                buffer = io.BytesIO()
                np.save(buffer, np.array(ids, pick.choice(["<i4", "<u2", ">i8"])))
                number = len(expected)
                parts = [("cls", str(number).encode()), ("ids.npy", buffer.getvalue()), ("txt", b"text")]
                for ext, data in parts:
                    info = tarfile.TarInfo(f"s/{number:06}.{ext}")
                    info.size = len(data)
                    tar.addfile(info, io.BytesIO(data))
                expected.append((number, ids))
    check_feed(tmp_path, "cls", "ids", expected)
