"""What `bench peers` rests on: pages really dropped, memory and CPU of a process tree, rows that are the set's."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from athanor.bench import data as tfrecords
from athanor.bench import limits, memmap, pages, tree
from athanor.bench.formats import data as formats
from athanor.bench.peers.rows import check_rows

MIB = 1 << 20


def test_dropped_pages_are_gone_and_read_ones_are_there(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(os.urandom(3 * MIB + 5))
    (tmp_path / ".athanor").mkdir()
    (tmp_path / ".athanor" / "shards.bin").write_bytes(b"x")
    (tmp_path / "empty").write_bytes(b"")
    files = pages.files(str(tmp_path))
    assert [Path(file).name for file in files] == ["a", "empty"]
    assert pages.read(files) == 3 * MIB + 5
    assert pages.resident(files) >= 3 * MIB
    assert pages.drop(files) == 3 * MIB + 5
    assert pages.resident(files) <= MIB  # a file system may keep some; tmpfs keeps all
    pages.read(files)
    assert pages.resident(files) >= 3 * MIB


def test_a_child_counts_with_its_own_memory_and_time() -> None:
    before = tree.memory(tree.descendants())
    code = "import time; x = bytearray(b'x') * (64 << 20); t = time.process_time()\n"
    code += "while time.process_time() - t < 0.2: pass\nprint('ready', flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        found = tree.descendants()
        assert child.pid in found
        assert tree.cpu_seconds([child.pid]) >= 0.19
        assert tree.memory(found)["anonymous"] - before["anonymous"] >= 64 * MIB
        child.communicate(b"\n")
    assert child.pid not in tree.descendants()


def test_a_row_that_is_none_of_the_set_is_found(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    tfrecords.write(str(tmp_path / "t"), n=50, seq=8, shards=1, vocab=900, seed=3)
    memmap.make([(str(tmp_path / "t" / "train_000.tfrecord"), 50)], 8, str(tmp_path / "m"))
    ids, mask = memmap.load(str(tmp_path / "m"))

    def batches(change: int) -> Any:
        for at in range(0, 50, 10):
            batch = {"input_ids": ids[at : at + 10], "attention_mask": mask[at : at + 10]}
            batch = {name: torch.from_numpy(rows.astype(np.int64)) for name, rows in batch.items()}
            batch["attention_mask"][4, 0] += change
            yield batch

    assert check_rows(batches(0), str(tmp_path / "m")) == 40
    assert check_rows(batches(1), str(tmp_path / "m"), masks=False) == 40
    with pytest.raises(ValueError, match="1 of 10 rows"):
        check_rows(batches(1), str(tmp_path / "m"))


def test_the_samples_of_all_formats_are_the_same(tmp_path: Path) -> None:
    made = formats.write(str(tmp_path), ["tfrecord", "megatron"], 40, 8, 2, 3)
    assert made == ["tfrecord", "megatron"]
    shards = [(str(tmp_path / "tfrecord" / f"{i:03d}.tfrecord"), 20) for i in range(2)]
    memmap.make(shards, 8, str(tmp_path / "m"))
    ids, _ = memmap.load(str(tmp_path / "m"))
    tokens = [np.fromfile(tmp_path / "megatron" / f"{i:03d}.bin", np.int32) for i in range(2)]
    assert np.array_equal(np.concatenate(tokens).reshape(-1, 8), ids)


def test_a_limit_that_fails_fails_and_does_not_count() -> None:
    with pytest.raises(FileNotFoundError):
        limits.read(["/nonexistent/athanor"], MIB)()
