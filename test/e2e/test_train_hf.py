"""examples/deepseek/train_hf.py: two ranks to a checkpoint, one rank from there on, in the loader's own order."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from runs import EXAMPLES, environment, free_port, kill_agents, make_data

sys.path.insert(0, str(EXAMPLES.parents[1] / "python" / "src"))

SAMPLES, MICRO, ACCUM, STEP = 60, 2, 2, 8
TINY = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 1024, "hidden_size": 16,
    "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "max_position_embeddings": 64,
}  # fmt: skip


def train(job: str, ranks: int, folder: Path, accum: int, *flags: str) -> str:
    launch = [] if ranks == 1 else ["-m", "torch.distributed.run", f"--nproc_per_node={ranks}"]
    launch += [] if ranks == 1 else [f"--master_port={free_port()}"]
    command = [sys.executable, *launch, str(EXAMPLES / "train_hf.py"), "--data_dir", str(folder / "data")]
    command += [
        "--model_name_or_path",
        str(folder / "model"),
        "--output_dir",
        str(folder / "out"),
        "--max_length",
        "64",
    ]
    command += ["--per_device_train_batch_size", str(MICRO), "--gradient_accumulation_steps", str(accum), "--seed", "3"]
    command += ["--log_ids", str(folder / f"ids{ranks}"), "--report_to", "none", "--use_cpu", "True", *flags]
    env = environment(ATHANOR_JOB_ID=job)
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=420, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def ids_of(folder: Path, ranks: int, accum: int) -> list[list[int]]:
    """Sorted ids of each optimizer step over all ranks."""
    logs = [
        [json.loads(line) for line in (folder / f"ids{ranks}.rank{rank}").read_text().splitlines()]
        for rank in range(ranks)
    ]
    batches = [sorted(i for log in logs for i in log[k]) for k in range(len(logs[0]))]
    return [sorted(sum(batches[k : k + accum], [])) for k in range(0, len(batches), accum)]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hf")
    make_data(folder, samples=SAMPLES)
    (folder / "model").mkdir()
    (folder / "model" / "config.json").write_text(json.dumps(TINY))
    job = f"test-hf-{free_port()}"
    try:
        evaluate = ["--eval_dir", str(folder / "data"), "--eval_strategy", "steps", "--eval_steps", "5"]
        assert "'eval_loss': " in train(job, 2, folder, ACCUM, "--max_steps", "5", "--save_steps", "5", *evaluate)
        # On one rank, to the end of two epochs: 60 samples are 7.5 optimizer steps, both together 15.
        resume = ["--resume_from_checkpoint", str(folder / "out" / "checkpoint-5")]
        train(job, 1, folder, 2 * ACCUM, "--num_train_epochs", "2", "--save_steps", "100", *resume)
    finally:
        kill_agents(job)
    return folder


def test_two_ranks_then_one_walk_the_loaders_order(runs: Path) -> None:
    from athanor.numpy import Loader

    with Loader(runs / "data", batch_size=STEP, max_length=64, columns=["input_ids"], seed=3, agent="none") as alone:
        batches = alone.repeat()
        digits = [next(batches)["input_ids"][:, :4].tolist() for _ in range(15)]
    expected = [sorted(sum(t * 251**p for p, t in enumerate(row)) for row in rows) for rows in digits]
    # Nothing is sharded twice on two ranks, and nothing skipped or repeated behind the checkpoint.
    assert ids_of(runs, 2, ACCUM) == expected[:5]
    assert ids_of(runs, 1, 2 * ACCUM) == expected[5:]


def test_the_checkpoint_holds_the_state_and_training_ends_with_the_data(runs: Path) -> None:
    from athanor._elastic import state_of

    saved = json.loads((runs / "out" / "checkpoint-5" / "trainer_state.json").read_text())
    assert state_of(saved)["position"] == str(5 * STEP)
    # Two epochs are 15 steps, and not the Trainer's 2 × 8.
    last = json.loads((runs / "out" / "checkpoint-15" / "trainer_state.json").read_text())
    assert (last["global_step"], last["max_steps"]) == (15, 15) and state_of(last)["position"] == str(15 * STEP)
