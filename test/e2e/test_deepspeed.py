"""DeepSpeed, two ranks, 30 optimizer steps: unbroken, against one run that is killed and resumed twice.

Four starts of DeepSpeed in all, 10 to 40 s each on two cores. What was lost or repeated is counted from numbers that
train.py decodes from its batches; nothing here knows how Athanor orders samples.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections import Counter
from pathlib import Path

import pytest
from athanor._proof import proof_total
from runs import Training, agents_of, ids_by_step, kill_agents, losses, make_data, step_of

STEPS, SAVE, GLOBAL = 30, 7, 16
SAMPLES = 20 * GLOBAL  # the second epoch begins after step 20


@pytest.fixture(scope="module")
def flags(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("deepspeed")
    data = make_data(folder, SAMPLES)
    model = folder / "model"
    model.mkdir()
    shape = json.loads((Path(__file__).parents[2] / "examples" / "deepseek" / "tiny" / "config.json").read_text())
    shape |= {"vocab_size": 1024, "hidden_size": 64, "intermediate_size": 128, "moe_intermediate_size": 32}
    shape |= {"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 4, "kv_lora_rank": 16}
    shape |= {"qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 16, "n_routed_experts": 4}
    (model / "config.json").write_text(json.dumps(shape))
    line = ["--data_dir", str(data), "--model_name_or_path", str(model), "--max_length", "64"]
    line += ["--per_device_train_batch_size", "4", "--gradient_accumulation_steps", "2", "--learning_rate", "3e-3"]
    return [*line, "--num_train_epochs", "3", "--max_steps", str(STEPS), "--save_steps", str(SAVE)]


class Run:
    def __init__(self, output: Path, ids: Path) -> None:
        self.output = output
        self.ids = ids


@pytest.fixture(scope="module")
def unbroken(flags: list[str], tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("unbroken")
    run = Run(folder / "output", folder / "ids")
    training = Training("e2e-unbroken", run.output, [*flags, "--log_ids", str(run.ids)], folder / "log")
    assert training.follow() == 0, training.text()
    return run


@pytest.fixture(scope="module")
def killed(flags: list[str], tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("killed")
    run = Run(folder / "output", folder / "ids")
    job = f"e2e-killed-{os.getpid()}"
    line = [*flags, "--log_ids", str(run.ids)]

    # The agent dies after step 4; everything dies after step 10, past the checkpoint of step 7.
    first = Training(job, run.output, line, folder / "log")
    dead: list[int] = []

    def at_step(text: str) -> None:
        if step_of(text) == 4:
            dead.extend(kill_agents(job))
        if step_of(text) == 10:
            first.kill()
            kill_agents(job)

    assert first.follow(at_step) != 0
    assert len(dead) == 1, first.text()
    assert any("the agent is gone" in text for text in first.lines), first.text()
    assert not any(step_of(text) == STEPS for text in first.lines)

    # Everything dies while the checkpoint of step 21 is being written.
    second = Training(job, run.output, [*line, "--resume"], folder / "log")
    torn = threading.Event()
    over = threading.Event()

    def kill_in_the_save() -> None:
        while not over.is_set():
            if (run.output / ".checkpoint-21.tmp").exists():
                second.kill()
                torn.set()
                return
            time.sleep(0.001)

    watcher = threading.Thread(target=kill_in_the_save)
    watcher.start()
    code = second.follow()
    over.set()
    watcher.join()
    kill_agents(job)
    assert torn.is_set() and code != 0, second.text()
    assert any("checkpoint-7: step 7" in text for text in second.lines), second.text()

    third = Training(job, run.output, [*line, "--resume"], folder / "log")
    assert third.follow() == 0, third.text()
    # The folder of step 21 was renamed into place before the kill, or it is as if it had never been.
    assert any("checkpoint-14: step 14" in t or "checkpoint-21: step 21" in t for t in third.lines), third.text()
    assert not list(run.output.glob(".*.tmp"))
    return run


def test_equal_losses(unbroken: Run, killed: Run) -> None:
    want = losses(unbroken.output)
    assert sorted(want) == list(range(1, STEPS + 1))
    assert losses(killed.output) == want
    assert want[STEPS] < want[1]


def test_equal_proof_at_every_checkpoint(unbroken: Run, killed: Run) -> None:
    for step in [*range(SAVE, STEPS, SAVE), STEPS]:
        want = proof_total(str(unbroken.output / "proof"), step * GLOBAL)
        assert want.rows == step * GLOBAL
        assert proof_total(str(killed.output / "proof"), step * GLOBAL) == want


def test_nothing_lost_and_nothing_repeated(unbroken: Run, killed: Run) -> None:
    for run in (unbroken, killed):
        steps = ids_by_step(run.ids, world=2)
        assert sorted(steps) == list(range(1, STEPS + 1))
        for epoch in (range(1, 21), range(21, STEPS + 1)):
            seen = Counter(i for step in epoch for i in steps[step])
            repeated = sum(seen.values()) - len(seen)
            lost = len(epoch) * GLOBAL - len(seen)
            assert (lost, repeated) == (0, 0)
            assert set(seen) <= set(range(SAMPLES))
    assert ids_by_step(killed.ids, world=2) == ids_by_step(unbroken.ids, world=2)


def test_checkpoints_are_whole(killed: Run) -> None:
    tags = sorted(int(p.name.split("-")[1]) for p in killed.output.glob("checkpoint-*"))
    assert tags == [7, 14, 21, 28, STEPS]
    files = {tag: sorted(f.name for f in (killed.output / f"checkpoint-{tag}").iterdir()) for tag in tags}
    assert all(names == files[STEPS] for names in files.values())
    for tag in tags:
        state = json.loads((killed.output / f"checkpoint-{tag}" / "loader_state.json").read_text())
        assert (state["version"], state["position"]) == (1, str(tag * GLOBAL))
    assert (killed.output / "latest").read_text() == f"checkpoint-{STEPS}"


def test_nothing_is_left_behind(unbroken: Run, killed: Run) -> None:
    deadline = time.monotonic() + 60  # the agent's grace time, and a slow machine
    jobs = ["e2e-unbroken", f"e2e-killed-{os.getpid()}"]
    while any(agents_of(job) for job in jobs) and time.monotonic() < deadline:
        time.sleep(0.5)
    assert [agents_of(job) for job in jobs] == [[], []]
    ours = f"deepspeed_allreduce_buffer_{os.getuid()}_"
    assert [name for name in os.listdir("/dev/shm") if name.startswith(ours)] == []
