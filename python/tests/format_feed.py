"""A set of any format through a Loader: every record once, in file order; a shuffled run stopped and gone on with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from athanor.numpy import Loader
from conftest import athanor

MAX = 48


def cat(path: Path) -> list[dict[str, Any]]:
    """What `athanor cat` prints of a set."""
    ran = athanor("cat", path)
    assert ran.returncode == 0, ran.stderr
    assert ran.stderr == ""
    # `splitlines` would split at U+2028, too.
    return [json.loads(line) for line in ran.stdout.split("\n") if line]


def check_feed(data: Path, id_column: str, ids_column: str, expected: list[tuple[int, list[int]]]) -> None:
    """`expected`: the id and the token ids of each record, in file order."""
    options: dict[str, Any] = {"batch_size": 8, "max_length": MAX, "columns": [id_column, ids_column]}
    with Loader(str(data), shuffle="none", last="pad", **options) as loader:
        batches = list(loader)
    rows = [(batch, i) for batch in batches for i in range(8) if "valid" not in batch or bool(batch["valid"][i])]
    assert len(rows) == len(expected)
    for (batch, i), (number, ids) in zip(rows, expected):
        assert int(batch[id_column].reshape(8, -1)[i, 0]) == number
        assert batch[ids_column][i].tolist() == ids + [0] * (MAX - len(ids))
    shuffled = dict(options, shuffle="window", seed=7, last="drop", shuffle_memory=20_000)

    def numbers(batch: dict[str, Any]) -> list[int]:
        return [int(number) for number in batch[id_column].reshape(8, -1)[:, 0]]

    with Loader(str(data), **shuffled) as loader:
        whole = [numbers(batch) for batch in loader]
    flat = [number for some in whole for number in some]
    assert len(set(flat)) == len(flat) == len(expected) // 8 * 8
    assert flat != sorted(flat)
    with Loader(str(data), **shuffled) as loader:
        iterator = iter(loader)
        first = [numbers(next(iterator)) for _ in range(len(whole) // 2)]
        state = loader.state_dict()
    with Loader(str(data), **shuffled) as loader:
        loader.load_state_dict(state)
        assert first + [numbers(batch) for batch in loader] == whole


def steps_of(
    source: Path, state: dict[str, Any] | None = None, steps: int = 10**9, **options: Any
) -> tuple[list[Any], Any]:
    """Batches of one epoch, at most so many, and the state behind them."""
    with Loader(str(source), **options) as loader:
        if state is not None:
            loader.load_state_dict(state)
        found: list[Any] = []
        for batch in loader:
            found.append({name: np.array(values) for name, values in batch.items()})
            if len(found) == steps:
                break
        return found, loader.state_dict()


def equal(ours: list[Any], theirs: list[Any]) -> None:
    assert len(ours) == len(theirs) > 0
    for a, b in zip(ours, theirs):
        assert a.keys() == b.keys()
        for name in a:
            np.testing.assert_array_equal(a[name], b[name], err_msg=name)
