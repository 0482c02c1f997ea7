"""A small real trainer for the tests over MooseFS: torch, epoch after epoch, until the file `FOLDER/stop` is there.

    python moosefs_trainer.py DATA FOLDER [SECONDS A STEP]

It writes `FOLDER/steps.jsonl`, a line a step: the ids of its batch, found in the rows it trained on; and, at most once
a second, `FOLDER/stats.json`, what `loader.stats()` says. Warnings go to stderr.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from athanor.torch import Loader

TOKENS, VOCABULARY = 16, 97
BATCH = 20
OPTIONS: dict[str, Any] = {"shuffle_memory": 10_000, "lanes": 4, "window": 60, "seed": 3, "max_length": TOKENS}


def tokens_of(number: int) -> list[int]:
    return [(number * 31 + k * 7) % VOCABULARY for k in range(TOKENS)]


def batches(loader: Loader) -> Iterator[tuple[list[int], torch.Tensor]]:
    """Epoch after epoch; rows that are not those of their ids end the run."""
    for batch in loader.repeat():
        ids = [int(i) for i in batch["id"].reshape(-1)]
        rows = batch["input_ids"]
        if rows.tolist() != [tokens_of(i) for i in ids]:
            raise SystemExit(f"rows are not those of {ids}")
        yield ids, rows


def write_stats(folder: Path, loader: Loader) -> None:
    fresh = folder / "stats.new"
    fresh.write_text(json.dumps(loader.stats()))
    os.replace(fresh, folder / "stats.json")


def main() -> None:
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    data, folder, pace = sys.argv[1], Path(sys.argv[2]), float(sys.argv[3]) if len(sys.argv) > 3 else 0.0
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Embedding(VOCABULARY, 8), torch.nn.Linear(8, VOCABULARY))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    told = 0.0
    with (
        Loader(data, batch_size=BATCH, columns=["id", "input_ids"], timeout=90, **OPTIONS) as loader,
        (folder / "steps.jsonl").open("w") as log,
    ):
        for ids, rows in batches(loader):
            loss = torch.nn.functional.cross_entropy(model(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            log.write(f"{json.dumps(ids)}\n")
            log.flush()
            if time.monotonic() - told > 1:
                write_stats(folder, loader)
                told = time.monotonic()
            if (folder / "stop").exists():
                write_stats(folder, loader)
                return
            time.sleep(pace)


if __name__ == "__main__":
    main()
