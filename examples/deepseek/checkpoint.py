"""Checkpoints that appear whole or not at all, and the way back from them.

    output_dir/
      checkpoint-20/           DeepSpeed's files, renamed into place by rank 0 when all ranks have written theirs
        athanor.json           {"step", "world", "global_batch"}: read before DeepSpeed starts
        loader_state.json      the loader's state (the same on all ranks); `athanor state show|diff|skip` reads it
      latest                   the newest tag, written after the rename
      .checkpoint-30.tmp/      an unfinished one (or a conversion): removed at the next start

The loader's state lies in DeepSpeed's `client_state` too, but `loader_state.json` is what a resumed run takes, so that
`athanor state skip CHECKPOINT --in-place` has an effect. At another world size the checkpoint goes through DeepSpeed's
Universal Checkpoint; where that fails, only the weights are taken and the output says so. The order of the data is
exact either way.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import torch.distributed as dist

Say = Callable[[str], None]
LOADER_STATE = "loader_state.json"


class Found(NamedTuple):
    """A whole checkpoint."""

    folder: str
    step: int
    world: int
    global_batch: int


def find(output_dir: str, named: str | None = None) -> Found | None:
    """The checkpoint `named`, else the newest whole one, else None."""
    if named is not None:
        folder = named if os.path.isdir(named) else os.path.join(output_dir, named)
        if not os.path.isfile(os.path.join(folder, "athanor.json")):
            raise SystemExit(f"--resume: {named} is not a checkpoint of train.py (no athanor.json in it)")
    else:
        tags = [t for t in os.listdir(output_dir) if re.fullmatch(r"checkpoint-\d+", t)]
        if not tags:
            return None
        folder = os.path.join(output_dir, max(tags, key=lambda tag: int(tag.split("-")[1])))
    with open(os.path.join(folder, "athanor.json"), encoding="utf-8") as file:
        facts = json.load(file)
    return Found(os.path.abspath(folder), facts["step"], facts["world"], facts["global_batch"])


def sweep(output_dir: str) -> None:
    """Removes what a killed run left unfinished. Rank 0, before the others start."""
    for name in os.listdir(output_dir):
        if re.fullmatch(r"\.checkpoint-\d+(-universal)?\.tmp", name):
            shutil.rmtree(os.path.join(output_dir, name))


def save(engine: Any, output_dir: str, step: int, client_state: dict[str, Any], global_batch: int) -> str:
    """Called by all ranks after optimizer step `step`. Returns the folder."""
    tag = f"checkpoint-{step}"
    temporary, final = os.path.join(output_dir, f".{tag}.tmp"), os.path.join(output_dir, tag)
    engine.save_checkpoint(output_dir, tag=os.path.basename(temporary), client_state=client_state, save_latest=False)
    dist.barrier()
    if dist.get_rank() == 0:
        facts = {"step": step, "world": dist.get_world_size(), "global_batch": global_batch}
        _write_json(os.path.join(temporary, "athanor.json"), facts)
        _write_json(os.path.join(temporary, LOADER_STATE), client_state["loader"])
        for name in os.listdir(temporary):
            _fsync(os.path.join(temporary, name))
        _fsync(temporary)
        if os.path.exists(final):  # a run that was resumed from an older checkpoint comes by here again
            shutil.rmtree(final)
        os.rename(temporary, final)
        _write_latest(output_dir, tag)
    dist.barrier()
    return final


def make_universal(found: Found, output_dir: str) -> str | None:
    """Converts a checkpoint for another world size into a folder to load and then remove. Rank 0 only; None when
    DeepSpeed cannot."""
    folder = os.path.join(output_dir, f".checkpoint-{found.step}-universal.tmp")
    command = [sys.executable, "-m", "deepspeed.checkpoint.ds_to_universal", "--inject_missing_state"]
    command += ["--num_extract_workers", "1", "--num_merge_workers", "1"]
    command += ["--input_folder", found.folder, "--output_folder", folder]
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(os.path.join(output_dir, "latest_universal"))  # names the folder that will be removed
    if done.returncode != 0:
        print(done.stderr[-2000:], file=sys.stderr)
        return None
    return folder


def load(engine: Any, folder: str, *, weights_only: bool) -> dict[str, Any]:
    """Loads into the engine and returns the client state."""
    parent, tag = os.path.split(folder)
    path, client_state = engine.load_checkpoint(parent, tag=tag, load_module_only=weights_only)
    if path is None:
        raise SystemExit(f"DeepSpeed could not load {folder}")
    return client_state


def loader_state(folder: str, client_state: dict[str, Any]) -> dict[str, Any]:
    """The loader's state of a checkpoint: of its file, else (older checkpoints) of the client state."""
    try:
        with open(os.path.join(folder, LOADER_STATE), encoding="utf-8") as file:
            state: dict[str, Any] = json.load(file)
    except FileNotFoundError:
        return dict(client_state["loader"])
    return state


def _write_json(path: str, value: dict[str, Any]) -> None:
    with open(path, "w", encoding="utf-8") as file:
        json.dump(value, file)


def _write_latest(output_dir: str, tag: str) -> None:
    temporary = os.path.join(output_dir, ".latest.tmp")
    with open(temporary, "w", encoding="utf-8") as file:
        file.write(tag)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, os.path.join(output_dir, "latest"))
    _fsync(output_dir)


def _fsync(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
