"""Zstandard files of many frames: random access, resume, damage, a copy, beside the same records in one plain file."""

from __future__ import annotations

import json
import os
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from athanor import AthanorError
from athanor.numpy import Loader
from conftest import athanor

zstandard = pytest.importorskip("zstandard")

#: Ends a group of frames.
APART = b"\x5e\x2a\x4d\x18" + (65536).to_bytes(4, "little") + bytes(65536)
RECORDS = 6000


def text() -> bytes:
    rng = random.Random(11)
    ids = [[rng.randrange(120000) for _ in range(rng.randrange(1, 40))] for _ in range(RECORDS)]
    return b"".join(json.dumps({"id": i, "input_ids": own}).encode() + b"\n" for i, own in enumerate(ids))


def framed(data: bytes, frames: int) -> bytes:
    """Frames that end anywhere, most of them in groups of their own."""
    rng = random.Random(5)
    cuts = [0, *sorted(rng.randrange(len(data)) for _ in range(frames - 1)), len(data)]
    parts = []
    for i, (begin, end) in enumerate(zip(cuts, cuts[1:], strict=False)):
        compressor = zstandard.ZstdCompressor(level=3, write_checksum=i % 3 != 0, write_content_size=i % 2 == 0)
        parts.append((APART if rng.random() < 0.8 else b"") + compressor.compress(data[begin:end]))
    return b"".join(parts)


@pytest.fixture
def sets(tmp_path: Path) -> tuple[Path, Path]:
    data = text()
    for name, content in [("plain/a.jsonl", data), ("zst/a.jsonl.zst", framed(data, 25))]:
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_bytes(content)
    return tmp_path / "plain", tmp_path / "zst"


OPTIONS: dict[str, Any] = {
    "batch_size": 16,
    "max_length": 40,
    "columns": ["id", "input_ids"],
    "seed": 3,
    "last": "pad",
    "shuffle_memory": 1 << 19,
}


def opened(data: Path, **options: Any) -> Any:
    lanes = {"lanes": 4} if options["shuffle"] == "window" else {}
    return Loader(str(data), **(OPTIONS | lanes | options))


def ids(data: Path, state: dict[str, Any] | None = None, **options: Any) -> list[list[int]]:
    with opened(data, **options) as loader:
        if state is not None:
            loader.load_state_dict(state)
        return [batch["id"].tolist() for batch in loader]


def test_the_order_over_frames_is_that_of_the_plain_file(run_dir: Path, sets: tuple[Path, Path]) -> None:
    plain, zst = sets
    for shuffle in ["none", "global"]:
        assert ids(plain, shuffle=shuffle) == ids(zst, shuffle=shuffle)
    rows = [row for batch in ids(zst, shuffle="window") for row in batch]
    assert sorted(rows) == list(range(RECORDS))
    assert rows != list(range(RECORDS))


def test_pieces_of_records_are_those_of_the_plain_file(run_dir: Path, sets: tuple[Path, Path]) -> None:
    plain, zst = sets
    options = OPTIONS | {"shuffle": "none", "sample_rule": "split", "max_length": 7, "columns": ["input_ids"]}
    found = []
    for data in (plain, zst):
        with Loader(str(data), **options) as loader:
            found.append([batch["input_ids"].tolist() for batch in loader])
    assert len(found[0]) > 2 * RECORDS // 16
    assert found[0] == found[1]


@pytest.mark.parametrize("shuffle", ["none", "window", "global"])
def test_resume_reads_from_where_it_is(run_dir: Path, sets: tuple[Path, Path], shuffle: str) -> None:
    _, zst = sets
    whole = ids(zst, shuffle=shuffle)
    with opened(zst, shuffle=shuffle) as loader:
        batches = loader.repeat()
        for _ in range(350):
            next(batches)
        state = loader.state_dict()
    assert ids(zst, state, shuffle=shuffle) == whole[350:]


def test_a_damaged_frame_makes_its_block_bad_and_no_other(run_dir: Path, sets: tuple[Path, Path]) -> None:
    _, zst = sets
    expected = ids(zst, shuffle="none")
    file = zst / "a.jsonl.zst"
    stat = file.stat()
    data = bytearray(file.read_bytes())
    frame = data.index(b"\x28\xb5\x2f\xfd", len(data) // 2)
    data[frame + 300 : frame + 340] = bytes(40)
    file.write_bytes(data)
    os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    with pytest.raises(AthanorError, match="cannot be decompressed") as raised:
        ids(zst, shuffle="none")
    assert raised.value.code == "ATH_STREAM_CORRUPT"
    found = ids(zst, shuffle="none", on_corrupt="replace", corrupt_quota=RECORDS, ledger_dir=str(run_dir / "ledger"))
    other = [i for a, b in zip(sum(expected, []), sum(found, []), strict=True) for i in [a] if a != b]
    assert 0 < len(other) < RECORDS // 4
    assert other == list(range(other[0], other[-1] + 1))


def test_a_copy_is_adopted(run_dir: Path, sets: tuple[Path, Path], tmp_path: Path) -> None:
    _, zst = sets
    assert athanor("index", zst).returncode == 0
    copy = tmp_path / "copy"
    shutil.copytree(zst, copy, copy_function=shutil.copy)
    for _ in range(5):
        ran = athanor("index", "--adopt", copy)
        assert ran.returncode == 0, ran.stderr
        os.utime(copy / "a.jsonl.zst")
    for command in ("verify", "inspect", "plan"):
        ran = athanor(command, zst)
        assert ran.returncode == 0, ran.stderr
    with (
        pytest.raises(AthanorError, match='agent="none"'),
        Loader(str(zst), batch_size=1, agent="none", rank=0, world_size=1) as loader,
    ):
        next(iter(loader))
