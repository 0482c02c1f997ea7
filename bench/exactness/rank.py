"""One rank of the exactness benchmark: the loop that a user writes around a loader, without a model.

Runs in a fork of `trial.py`, where the peer is imported already. It writes each batch's ids down, saves the loader's
state every few steps as a checkpoint would, and stands still at the step of the kill until that comes: the other
ranks and whatever reads ahead get there too. In the trial's folder:

    ids-LAUNCH-RANK.bin          one record a batch (count.py)
    state-LAUNCH-RANK-STEP.pkl   what the peer's state call returned
    at-LAUNCH-RANK               made when the rank stands at the step of the kill
    failed-LAUNCH-RANK.json      {"stage": "load" or "run", "text"}
"""

from __future__ import annotations

import json
import os
import pickle
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from count import rank_file, record
from rows import ids_of


@dataclass(frozen=True)
class Spec:
    """What the ranks of a launch have in common."""

    folder: Path
    data: Path
    launch: int
    world: int
    batch: int
    workers: int
    seed: int
    epochs: int
    save_every: int
    kill_at: int | None  # step of the whole run
    resume: tuple[int, int, int, int] | None  # launch, world, step and epoch of the state to load
    port: int


@dataclass(frozen=True)
class Place:
    """What a peer needs to know to open its loader on a rank."""

    data: Path
    rank: int
    world: int
    batch: int
    workers: int
    seed: int
    epoch: int  # in which the loader begins, or goes on
    states: list[Any] | None  # of all ranks of the launch before
    resumed_world: int | None  # how many those were


def state_file(folder: Path, launch: int, rank: int, step: int) -> Path:
    return folder / f"state-{launch}-{rank}-{step}.pkl"


def environment(spec: Spec, rank: int) -> dict[str, str]:
    """What torchrun sets (and GLOBAL_RANK, which LitData's workers read)."""
    return {
        "RANK": str(rank),
        "GLOBAL_RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(spec.world),
        "LOCAL_WORLD_SIZE": str(spec.world),
        "NNODES": "1",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(spec.port),
    }


def run(peer: Any, spec: Spec, rank: int) -> None:
    os.environ.update(environment(spec, rank))
    stage = "load"
    try:
        if peer.PROCESS_GROUP:
            import torch.distributed as dist

            dist.init_process_group("gloo")
        step, epoch, states, before = 0, 0, None, None
        if spec.resume is not None:
            launch, before, step, epoch = spec.resume
            files = [state_file(spec.folder, launch, other, step) for other in range(before)]
            states = [pickle.loads(file.read_bytes()) for file in files]
        place = Place(spec.data, rank, spec.world, spec.batch, spec.workers, spec.seed, epoch, states, before)
        loader = peer.Loader(place)
        descriptor = os.open(rank_file(spec.folder, spec.launch, rank), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        for number in range(epoch, spec.epochs):
            for batch in loader.epoch(number):
                stage = "run"
                step += 1
                os.write(descriptor, record(number, step, ids_of(batch), spec.batch))
                if step % spec.save_every == 0:
                    file = state_file(spec.folder, spec.launch, rank, step)
                    file.write_bytes(pickle.dumps(loader.state()))
                    file.with_suffix(".epoch").write_text(str(number))
                if step == spec.kill_at:
                    Path(spec.folder, f"at-{spec.launch}-{rank}").touch()
                    while True:
                        time.sleep(60)
        loader.close()
    except Exception as error:
        text = f"{type(error).__name__}: {error}".strip()
        Path(spec.folder, f"failed-{spec.launch}-{rank}.json").write_text(json.dumps({"stage": stage, "text": text}))
        raise


def end_quietly() -> None:
    """After the work: a process group or a worker that does not want to go is not what is measured."""
    signal.alarm(20)
