"""Writes shards of tokens in plain Python, for tests, and cuts them as docs/reference/formats.md says."""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from athanor.reference import shard_key

TYPES = {"u1": 1, "i1": 2, "<i2": 3, "<i4": 4, "<i8": 5, "<u2": 8}


def write_pair(
    stem: Path, documents: Sequence[Sequence[int]], dtype: str, cuts: Sequence[int] = (), modes: bool = False
) -> None:
    """`cuts`: documents that are stored as two sequences."""
    sequences: list[Sequence[int]] = []
    borders = [0]
    for number, document in enumerate(documents):
        parts = [document[: len(document) // 2], document[len(document) // 2 :]] if number in cuts else [document]
        sequences += parts
        borders.append(len(sequences))
    size = np.dtype(dtype).itemsize
    lengths = [len(sequence) for sequence in sequences]
    pointers = (np.cumsum([0, *lengths])[:-1] * size).astype("<i8")
    stem.with_suffix(".bin").write_bytes(b"".join(np.array(sequence, dtype).tobytes() for sequence in sequences))
    stem.with_suffix(".idx").write_bytes(
        b"MMIDIDX\0\0"
        + struct.pack("<QBQQ", 1, TYPES[dtype], len(lengths), len(borders))
        + np.array(lengths, "<i4").tobytes()
        + pointers.tobytes()
        + np.array(borders, "<i8").tobytes()
        + bytes(len(lengths) if modes else 0)
    )


def pieces(tokens: Sequence[int], length: int) -> list[list[int]]:
    return [list(tokens[at : at + length]) for at in range(0, len(tokens), length)]


def rows_of(batch: dict[str, Any]) -> list[list[int]]:
    """Rows without their padding, which must be zeros."""
    found = []
    for ids, mask in zip(batch["input_ids"], batch["attention_mask"]):
        kept = int(mask.sum())
        assert mask.tolist() == [1] * kept + [0] * (len(mask) - kept)
        assert not ids[kept:].any()
        found.append(ids[:kept].tolist())
    return found


class Made(NamedTuple):
    rows: dict[tuple[int, int, int], list[int]]  # by identity
    options: dict[str, Any]


def make(folder: Path, rng: random.Random) -> Made:
    """A random set, and its samples, worked out here again."""
    kind, length = rng.choice(["npy", "document", "stream"]), rng.choice([1, 3, 16, 50])
    rows: dict[tuple[int, int, int], list[int]] = {}
    shards = rng.randint(1, 4)
    for number in range(shards):
        stem = folder / rng.choice(["a", "ä", "z"]) / f"s{number}"
        stem.parent.mkdir(exist_ok=True)
        path = stem.relative_to(folder).as_posix() + (".npy" if kind == "npy" else ".bin")
        key = shard_key("data", path)
        dtype = rng.choice(
            ["<i4", "<u2", "<i8", "u1", "i1", "<i2"] + (["<u4", "<u8", ">i4", ">u2"] if kind == "npy" else [])
        )
        most = min(int(np.iinfo(dtype).max), 2**63 - 1)
        token = lambda: rng.choice([0, 1, most, rng.randint(0, most)])  # noqa: B023, E731
        if kind == "npy":
            tokens = [token() for _ in range(rng.choice([int(number == 0), 1, length, rng.randint(1, 300)]))]
            np.save(stem.with_suffix(".npy"), np.array(tokens, dtype))
            for at, piece in enumerate(pieces(tokens, length)):
                rows[key, at * length, 0] = piece
            continue
        documents = [
            [token() for _ in range(rng.choice([0, 1, length, rng.randint(1, 60)]))]
            for _ in range(rng.randint(3 * (number == 0), 9))
        ]
        cuts = [d for d in range(len(documents)) if rng.random() < 0.3]
        write_pair(stem, documents, dtype, cuts, modes=rng.random() < 0.3)
        places = [(d, t) for d, document in enumerate(documents) for t in range(len(document))]
        if kind == "stream":
            flat = sum(documents, [])
            for at, piece in enumerate(pieces(flat, length)):
                rows[(key, *places[at * length])] = piece
        else:
            for d, document in enumerate(documents):
                for at, piece in enumerate(pieces(document, length)):
                    rows[key, d, at * length] = piece
    options: dict[str, Any] = {"max_length": length, "seed": rng.getrandbits(64)}
    options |= {} if kind == "npy" else {"sample_rule": kind} if kind == "stream" or rng.random() < 0.5 else {}
    options |= rng.choice(
        [{}, {"window": rng.choice([1, 7, 40])}, {"lanes": 3}, {"shuffle": "none"}, {"shuffle_memory": 64}]
    )
    return Made(rows, options)


Taken = list[tuple[int, int, int, tuple[int, ...]]]  # position, shard key, record, tokens


def step_of(walks: list[Any], padded: bool) -> Taken:
    """One step of all ranks: the rows that count, by position."""
    taken: Taken = []
    for walk in walks:
        batch = next(walk)
        columns = batch["_position"], batch["_shard_key"].view(np.uint64), batch["_record"]
        valid = batch["valid"].tolist() if padded else [True] * len(columns[0])
        rows = zip(*(column.tolist() for column in columns), map(tuple, rows_of(batch)))
        taken += [row for row, counts in zip(rows, valid) if counts]
    return sorted(taken)
