"""Sets of documents for the tests of packing: made, served, and cut into rows by an independent packer (`views`)."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path
from typing import Any

import numpy as np

import views
from athanor.numpy import Loader
from conftest import ROOT

TOKENIZER = ROOT / "test/fixtures/tokenizer/deepseek"
MAX = 48


def documents(count: int, seed: int = 1) -> list[list[int]]:
    """Ids that tell record and place; some are empty, some far longer than a row."""
    draw = random.Random(seed)
    lengths = [int(draw.lognormvariate(2.6, 1.3)) for _ in range(count)]
    return [[1000 * i + k % 1000 for k in range(n)] for i, n in enumerate(lengths)]


def write_jsonl(folder: Path, shards: list[list[list[int]]], ballast: int = 0, packed: bool = False) -> Path:
    folder.mkdir(exist_ok=True)
    for number, records in enumerate(shards):
        lines = [{"input_ids": ids, "labels": [-n for n in ids], "pad": "x" * ballast} for ids in records]
        text = "".join(json.dumps(line) + "\n" for line in lines).encode()
        name = folder / f"{number}.jsonl{'.gz' if packed else ''}"
        name.write_bytes(gzip.compress(text) if packed else text)
    return folder


def blocks_of(data: Path, index: Path | None = None) -> list[list[int]]:
    """Counts of all blocks of the set, in its order, as they are stored."""
    (folder,) = (path for path in ((index or data / ".athanor") / "views").iterdir() if path.is_dir())
    found = sorted((views.counts(file) for file in folder.iterdir()), key=lambda pair: str(pair[0]["path"]))
    return [block for _, blocks in found for block in blocks]


def expected(data: Path, records: list[list[int]], rule: str, most: int = MAX) -> list[list[list[int]]]:
    """Documents of each row, in file order."""
    rows = []
    first = 0
    for lengths in blocks_of(data):
        assert lengths == [len(ids) for ids in records[first : first + len(lengths)]]
        for row in (views.pack if rule == "pack" else views.split)(lengths, most):
            rows.append([records[first + i][at : at + n] for i, at, n in row])
        first += len(lengths)
    assert first == len(records)
    return rows


def naive(batch: dict[str, Any], most: int) -> list[list[list[int]]]:
    """Documents of each row by its borders alone; checks positions, mask and padding against a plain loop."""
    ids, mask, places = (np.asarray(batch[name]) for name in ("input_ids", "attention_mask", "position_ids"))
    borders = np.asarray(batch["cu_seqlens"])
    assert (borders.dtype, places.dtype, ids.dtype) == (np.int32, np.int64, np.int64)
    rows: list[list[list[int]]] = [[] for _ in ids]
    longest = 0
    assert borders[0] == 0
    assert borders[-1] == ids.size
    for begin, end in zip(borders[:-1].tolist(), borders[1:].tolist()):
        assert begin <= end
        if begin == end:
            assert end == ids.size, "only the end is repeated"
            continue
        longest = max(longest, end - begin)
        row, at = divmod(begin, most)
        assert (end - 1) // most == row, "no sequence crosses a row"
        stretch = slice(at, at + end - begin)
        assert places[row, stretch].tolist() == list(range(end - begin))
        assert len(set(mask[row, stretch].tolist())) == 1
        if mask[row, at]:
            rows[row].append(ids[row, stretch].tolist())
        else:
            assert at + end - begin == most, "padding is the tail"
            assert not ids[row, stretch].any()
    assert isinstance(batch["max_seqlen"], int)
    assert batch["max_seqlen"] == longest
    return rows


def packed_rows(data: Path, **options: Any) -> list[list[list[int]]]:
    given = {"batch_size": 4, "max_length": MAX, "shuffle": "none", "last": "pad", "sample_rule": "pack"} | options
    rows = []
    with Loader(str(data), **given) as loader:
        for batch in loader:
            taken = naive(batch, given["max_length"])
            rows += [row for row, valid in zip(taken, batch["valid"]) if valid]
    return rows
