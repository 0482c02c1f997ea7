"""The loader under accelerate, transformers' Trainer and torch.distributed.checkpoint: nothing is dealt out or skipped
twice, and the state comes back whole, on another number of ranks too."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from conftest import ROOT
from test_protocol import ids
from tfrecord_writer import write

torch = pytest.importorskip("torch")
accelerate = pytest.importorskip("accelerate")
transformers = pytest.importorskip("transformers")

import torch.distributed.checkpoint as dcp  # noqa: E402
from torch.utils.data import DataLoader  # noqa: E402

from athanor import _state  # noqa: E402
from athanor.torch import AthanorDataset, Loader, for_trainer, state_of  # noqa: E402

COUNT, STEP = 48, 8


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("frameworks")
    for shard in range(2):
        rows = range(shard * COUNT // 2, (shard + 1) * COUNT // 2)
        write(folder / f"{shard}.tfrecord", ({"id": i, "input_ids": [i]} for i in rows))
    return str(folder)


def test_two_ranks_under_accelerate_and_a_checkpoint_for_one(data: str, run_dir: Path, tmp_path: Path) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    env = {**os.environ, "PYTHONPATH": str(ROOT / "python/src"), "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1",
           "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2",
           "LOCAL_WORLD_SIZE": "2"}  # fmt: skip
    program = [sys.executable, str(ROOT / "python/tests/torch_frameworks.py"), data, str(tmp_path / "checkpoint")]
    ranks = [
        subprocess.Popen(program, env={**env, "RANK": str(rank), "LOCAL_RANK": str(rank)}, stdout=subprocess.PIPE,
                         stderr=subprocess.PIPE, text=True)
        for rank in range(2)
    ]  # fmt: skip
    found: list[dict[str, Any]] = []
    for process in ranks:
        out, err = process.communicate(timeout=300)
        assert process.returncode == 0, err[-3000:]
        found.append(json.loads(out.splitlines()[-1]))
    with Loader(data, batch_size=STEP, columns=["id"], seed=5, agent="none") as loader:
        expected = [sorted(batch["id"].tolist()) for batch in loader]
        for number, name in ((0, "ids"), (3, "after"), (3, "again")):
            steps = [sorted(found[0][name][k] + found[1][name][k]) for k in range(3)]
            assert steps == expected[number : number + 3], name
        # The same checkpoint on one rank: `loader` itself, and a state that is a dict of its own.
        loader.set_epoch(0)
        state: dict[str, Any] = {"model": {"weight": torch.zeros(4)}, "loader": loader}
        dcp.load(state, checkpoint_id=tmp_path / "checkpoint")
        assert state["model"]["weight"].tolist() == [7.0] * 4
        assert [sorted(batch["id"].tolist()) for batch in loader] == expected[3:]
    for rank in found:
        assert rank["untouched"] is True
        for text in rank["refused"]:
            assert "ATH_SHARDED_TWICE" in text and "model, optimizer = accelerator.prepare(model, optimizer)" in text
    assert sorted(found[0]["mapped"] + found[1]["mapped"]) == list(range(COUNT))


def test_a_state_with_more_segments_than_the_loader_has_survives_a_checkpoint(tmp_path: Path) -> None:
    """torch.distributed.checkpoint loads only entries that the dict given to it has: lists would come back short."""
    segment = {"from": "0", "G": 8, "sources": [{"view": 0, "weight": 65536, "offset": ["0"]}]}
    state = {"version": 1, "seed": "0", "sources": [{"name": "d"}], "position": "64", "segments": [segment]}
    longer = {**state, "segments": [segment, {**segment, "from": "32"}]}
    dcp.save({"loader": _state.given_out(longer, 64)}, checkpoint_id=tmp_path / "checkpoint")
    read = {"loader": _state.given_out(state, 0)}
    dcp.load(read, checkpoint_id=tmp_path / "checkpoint")
    assert _state.checked(read["loader"]) == longer


@pytest.mark.parametrize("workers", [0, 1])
def test_accelerate_is_refused_on_one_process_too(fake: Path, workers: int) -> None:
    # Its loaders read a batch ahead: the data set's state would be a batch ahead of training.
    accelerator = accelerate.Accelerator(cpu=True)
    dataset = AthanorDataset("/d", batch_size=8, max_length=8)
    prepared = accelerator.prepare(DataLoader(dataset, batch_size=None, num_workers=workers))
    with pytest.raises(ValueError, match=r"accelerator.prepare\(model, optimizer\)"):
        next(iter(prepared))
    # What is not prepared is not touched, in the same process.
    assert len(list(DataLoader(dataset, batch_size=None))) == 13
    dataset.close()


@pytest.mark.parametrize("workers", [0, 1])
def test_batches_are_skipped_once(fake: Path, workers: int) -> None:
    accelerate.Accelerator(cpu=True)
    with Loader("/d", batch_size=8, max_length=8) as loader:
        expected = ids(loader)
        state = loader.state_dict()
        with pytest.raises(AttributeError, match="write loader.load_state_dict"):
            accelerate.skip_first_batches(loader, 2)
    dataset = AthanorDataset("/d", batch_size=8, max_length=8)
    data = DataLoader(dataset, batch_size=None, num_workers=workers)
    assert ids(accelerate.skip_first_batches(data, 2)) == expected[16:]
    dataset.load_state_dict(state)
    with pytest.raises((ValueError, RuntimeError), match="leave skip_first_batches out"):  # as a worker wraps it
        next(iter(accelerate.skip_first_batches(data, 2)))
    dataset.close()


def trainer(folder: Path, **options: Any) -> Any:
    args = transformers.TrainingArguments(str(folder), per_device_train_batch_size=8, use_cpu=True, report_to="none")
    return transformers.Trainer(model=torch.nn.Linear(1, 1), args=args, **options)


def test_the_trainer_is_refused_with_the_line_to_write(fake: Path, tmp_path: Path) -> None:
    for size in (1, 8):
        dataset = AthanorDataset("/d", batch_size=size, max_length=8)
        with pytest.raises(ValueError, match=r"athanor.torch.for_trainer\(Trainer\(model=model, args=args\)"):
            trainer(tmp_path, train_dataset=dataset).train()
        dataset.close()


def test_loader_and_trainer_mean_the_same_step(fake: Path, tmp_path: Path) -> None:
    for options, text in (
        ({"batch_size": 4}, "batch_size of the loader must be 8, .* got 4"),
        ({"batch_size": 8, "grad_accum": 2}, "grad_accum of the loader must be 1, .* got 2"),
        ({"batch_size": 8, "rank": 0, "world_size": 2}, "world_size of the loader must be 1, .* got 2"),
    ):
        with Loader("/d", max_length=8, **options) as loader, pytest.raises(ValueError, match=text):
            for_trainer(trainer(tmp_path), loader).train()


def test_the_trainers_epochs_follow_one_another(fake: Path, tmp_path: Path) -> None:
    """13 batches each, in the loader's own order over its borders; the rest of one after a resume."""
    with Loader("/d", batch_size=8, max_length=8) as loader:
        given = for_trainer(trainer(tmp_path), loader)
        data = given.get_train_dataloader()
        (callback,) = [one for one in given.callback_handler.callbacks if type(one).__name__ == "StateCallback"]
        state, args = given.state, given.args
        assert len(data) == 13 and args.ignore_data_skip
        list(data)  # as include_tokens_per_second does before training
        callback.on_train_begin(args, state, given.control)
        first = [ids([batch]) for batch in data]
        second = []
        for step, batch in enumerate(data, 14):
            second.append(ids([batch]))
            if step == 16:
                state.global_step = step
                callback.on_step_end(args, state, given.control)
                saved = json.loads(json.dumps(state.stateful_callbacks))
    assert state.epoch == 16 / 13 and state_of(saved)["position"] == "128"
    with Loader("/d", batch_size=8, max_length=8) as loader:
        endless = loader.repeat()
        assert first + second == [ids([next(endless)]) for _ in range(26)]
    with Loader("/d", batch_size=8, max_length=8) as loader:
        again = for_trainer(trainer(tmp_path), loader)
        data = again.get_train_dataloader()
        (callback,) = [one for one in again.callback_handler.callbacks if type(one).__name__ == "StateCallback"]
        again.state.global_step = 16
        with pytest.raises(ValueError, match="the checkpoint of step 16 must hold the state of a loader"):
            callback.on_train_begin(args, again.state, again.control)
        again.state.stateful_callbacks = saved
        callback.on_train_begin(args, again.state, again.control)
        assert [ids([batch]) for batch in data] == second[3:]
