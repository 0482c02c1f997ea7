"""One rank of a chaos trial: a numpy-only trainer that writes down what it was given and where it stood.

Runs in a fork of `chaos_trial.py` (importing numpy in eight fresh processes costs more than a trial). In the trial's
folder:

    ids-GEN-RANK.bin       one record a batch, int64: step, micro step, then the ids decoded from the rows
    eval-GEN-RANK.bin      one record an evaluation batch: step, micro step, id (-1: a row that only fills up)
    state-GEN-RANK.jsonl   {"step": s, "state": …} now and then, behind the ids of that step: what a checkpoint is
    rank-GEN-RANK.log      stderr

A tensor-parallel peer of a rank writes RANK.PEER instead. The optimizer "step" counts from 1. A row's tokens are a
function of its id (`tokens_of`), so a row that was mixed up or half written is seen here.
"""

from __future__ import annotations

import faulthandler
import json
import mmap
import os
import signal
import struct
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from athanor.numpy import Loader

MAX_LENGTH = 512
LONGEST = 500  # shorter than MAX_LENGTH: no row is cut, its end is padding
EVAL_EVERY = 10
TIMEOUT = 30.0


def tokens_of(number: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """250 to 500 tokens of up to three bytes, another sequence for each id."""
    length = 250 + number * 37 % 251
    return (number * 7919 + np.arange(length, dtype=np.int64) * 104_729) % 2_000_003


def ids_of(rows: np.ndarray[Any, np.dtype[np.int64]]) -> np.ndarray[Any, np.dtype[np.int64]]:
    """The ids of rows, from their first tokens: 7919 has an inverse modulo the prime 2 000 003."""
    return rows[:, 0] * pow(7919, -1, 2_000_003) % 2_000_003


@dataclass(frozen=True)
class Spec:
    """What all ranks of a generation have in common."""

    folder: str
    job: str
    generation: int
    world: int  # data-parallel ranks
    peers: int  # processes with the rows of each
    batch_size: int
    global_batch: int
    steps: int  # of the whole run
    save_every: int
    pace: float  # seconds of "computing" a batch
    launcher: bool  # ranks from the environment, or from arguments: then the agent knows no peers
    polite: bool  # close the loader at the end, or leave that to the interpreter
    evaluate: str | None  # data set of an evaluation every EVAL_EVERY steps
    data: str | None  # None: `options` has a mix
    options: dict[str, Any]  # of the loader
    state: dict[str, Any] | None
    step: int  # that `state` was taken after
    environment: dict[str, str]
    tokens_only: bool = False  # the data has no ids: they follow from the first token

    @property
    def processes(self) -> int:
        return self.world * self.peers

    def name(self, process: int) -> str:
        """Of its files: the rank, and which of its peers if not the first."""
        rank, peer = divmod(process, self.peers)
        return f"{self.generation}-{rank}" + (f".{peer}" if peer > 0 else "")


class Board:
    """Shared with the launcher: batches that each rank has been given, and when the first came (CLOCK_MONOTONIC)."""

    def __init__(self, world: int) -> None:
        self._map = mmap.mmap(-1, 16 * world)

    def done(self, rank: int) -> int:
        return int(struct.unpack_from("<q", self._map, 16 * rank)[0])

    def first(self, rank: int) -> float:
        return float(struct.unpack_from("<d", self._map, 16 * rank + 8)[0])

    def advance(self, rank: int) -> None:
        count = self.done(rank) + 1
        if count == 1:
            struct.pack_into("<d", self._map, 16 * rank + 8, time.monotonic())
        struct.pack_into("<q", self._map, 16 * rank, count)


def append(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)


def check_rows(batch: dict[str, Any], known: list[np.ndarray[Any, np.dtype[np.int64]]]) -> None:
    """Every row is the whole row of its id."""
    for row, number in enumerate(batch["id"]):
        want = known[int(number)]
        length = len(want)
        ok = bool((batch["input_ids"][row, :length] == want).all()) and not batch["input_ids"][row, length:].any()
        if not ok or int(batch["attention_mask"][row].sum()) != length:
            raise RuntimeError(f"row {row} does not hold the tokens of its id {number}")


def run(spec: Spec, rank: int, board: Board) -> None:
    os.environ.update(spec.environment)
    world = spec.processes
    if spec.launcher:
        os.environ.update(RANK=str(rank), WORLD_SIZE=str(world), LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE=str(world))
    folder = Path(spec.folder)
    name = spec.name(rank)
    log = append(folder / f"rank-{name}.log")
    os.dup2(log, 1)
    os.dup2(log, 2)
    faulthandler.enable(sys.__stderr__)
    faulthandler.register(signal.SIGUSR1, sys.__stderr__)
    ids_file = append(folder / f"ids-{name}.bin")
    state_file = append(folder / f"state-{name}.jsonl")
    common: dict[str, Any] = {"timeout": TIMEOUT}
    if not spec.launcher:
        common |= {"rank": rank, "world_size": world}
    if spec.peers > 1:
        common["mesh"] = {"dp": (rank // spec.peers, spec.world), "tp": (rank % spec.peers, spec.peers)}
    loader = Loader(
        spec.data,
        batch_size=spec.batch_size,
        global_batch_size=spec.global_batch,
        max_length=MAX_LENGTH,
        columns=[name for name in ("id", "input_ids", "attention_mask") if name != "id" or not spec.tokens_only],
        proof_dir=folder / "proof",
        state=spec.state,
        **common,
        **spec.options,
    )
    evaluation = None
    if spec.evaluate is not None:
        evaluation = Loader(spec.evaluate, batch_size=1, columns=["id"], last="pad", shuffle="none", **common)
        eval_file = append(folder / f"eval-{name}.bin")
    accum = loader_accum(spec)
    step = spec.step
    batches = loader.repeat()
    while step < spec.steps:
        for micro in range(accum):
            batch = next(batches)
            if spec.tokens_only:
                batch["id"] = ids_of(batch["input_ids"])
            if ROWS:
                batch["id"] = np.array([ROWS[number] for number in batch["id"].tolist()])
                check_borders(batch)
            check_rows(batch, KNOWN)
            os.write(ids_file, np.array([step + 1, micro, *batch["id"]], np.int64).tobytes())
            board.advance(rank)
            if spec.pace > 0:
                time.sleep(spec.pace)
        step += 1
        if evaluation is not None and step % EVAL_EVERY == 0:
            for micro, batch in enumerate(evaluation):
                number = int(batch["id"][0]) if batch["valid"][0] else -1
                os.write(eval_file, np.array([step, micro, number], np.int64).tobytes())
            evaluation.set_epoch(0)
        if step % spec.save_every == 0 or step == spec.steps:
            line = json.dumps({"step": step, "state": loader.state_dict()})
            os.write(state_file, line.encode() + b"\n")
    if spec.polite:
        loader.close()
        if evaluation is not None:
            evaluation.close()


def loader_accum(spec: Spec) -> int:
    return spec.global_batch // (spec.world * spec.batch_size)


KNOWN: list[np.ndarray[Any, np.dtype[np.int64]]] = []
# Of packed data: where the documents of each row begin and end, and the row of a first document.
BORDERS: list[list[int]] = []
ROWS: dict[int, int] = {}


def know(samples: int) -> None:
    """Before the fork: the tokens of every id."""
    KNOWN[:] = [tokens_of(number) for number in range(samples)]


def know_rows(rows: list[list[int]]) -> None:
    """Of packed data, by its rows' documents: a row's id is its number, known by its first document."""
    KNOWN[:] = [np.concatenate([document(number) for number in row]) for row in rows]
    BORDERS[:] = [[0, *np.cumsum([len(document(number)) for number in row]).tolist()] for row in rows]
    ROWS.update({row[0]: number for number, row in enumerate(rows)})


def document(number: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """20 to 270 tokens: some rows hold many of them."""
    return tokens_of(number)[: 20 + number * 37 % 251]


def check_borders(batch: dict[str, Any]) -> None:
    """Documents of packed rows begin where they should."""
    wanted = [0]
    for row, number in enumerate(batch["id"]):
        ends = {*BORDERS[int(number)][1:], MAX_LENGTH}
        wanted += [row * MAX_LENGTH + end for end in sorted(ends)]
    found = batch["cu_seqlens"]
    if found[: len(wanted)].tolist() != wanted or (found[len(wanted) :] != wanted[-1]).any():
        raise RuntimeError(f"documents begin at {found.tolist()}, expected {wanted}")
