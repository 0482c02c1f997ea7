"""The parts of examples/deepseek that need no training: corpus, configuration, the way to a checkpoint."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from pathlib import Path

import crc32c
import pytest
from runs import EXAMPLES, ROOT, make_data

sys.path.insert(0, str(EXAMPLES))

import checkpoint
from model import deepspeed_config


def records(path: Path) -> list[bytes]:
    """Payloads of a TFRecord file; both checksums are checked with a library of their own."""

    def masked(data: bytes) -> int:
        crc = crc32c.crc32c(data)
        return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF

    data, at, found = path.read_bytes(), 0, []
    while at < len(data):
        length, length_crc = struct.unpack_from("<QI", data, at)
        payload = data[at + 12 : at + 12 + length]
        assert masked(data[at : at + 8]) == length_crc
        assert struct.unpack_from("<I", data, at + 12 + length) == (masked(payload),)
        found.append(payload)
        at += 16 + length
    return found


def test_corpus_is_whole_and_numbered(tmp_path: Path) -> None:
    data = make_data(tmp_path / "a", samples=300)
    assert sum(len(records(path)) for path in data.glob("*.tfrecord")) == 300
    athanor = ["node", str(ROOT / "dist" / "src" / "cli" / "main.js")]
    subprocess.run([*athanor, "index", str(data)], check=True, capture_output=True)
    cat = subprocess.run([*athanor, "cat", str(data)], check=True, capture_output=True, text=True)
    rows = [json.loads(line) for line in cat.stdout.splitlines()]
    ids = [sum(token * 251**digit for digit, token in enumerate(row["input_ids"][:4])) for row in rows]
    assert ids == list(range(300))
    assert {len(row["input_ids"]) for row in rows} == {len(row["attention_mask"]) for row in rows} == {64}
    # The same text gives the same bytes.
    again = make_data(tmp_path / "b", samples=300)
    assert [p.read_bytes() for p in sorted(again.glob("*.tfrecord"))] == [
        p.read_bytes() for p in sorted(data.glob("*.tfrecord"))
    ]


def test_last_sample_is_padded(tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.mkdir()
    (text / "a.txt").write_text("the furnace feeds itself " * 40)
    command = [sys.executable, str(EXAMPLES / "make_corpus.py"), "--out", str(tmp_path), "--source", str(text)]
    command += ["--max_length", "16", "--shards", "1", "--vocab", "260"]
    told = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    assert told["documents"] == 1 and told["tokens"] % 16 != 0
    cat = ["node", str(ROOT / "dist" / "src" / "cli" / "main.js"), "cat", str(tmp_path / "data")]
    rows = [json.loads(line) for line in subprocess.run(cat, check=True, capture_output=True).stdout.splitlines()]
    assert [sum(row["attention_mask"]) for row in rows[:-1]] == [16] * (len(rows) - 1)
    real = told["tokens"] % 16
    assert rows[-1]["attention_mask"] == [1] * real + [0] * (16 - real)
    assert rows[-1]["input_ids"][real - 1 :] == [1] + [0] * (16 - real)  # end of text, then padding


def test_configuration_is_completed_and_said() -> None:
    path = str(EXAMPLES / "ds_config.json")
    said: list[str] = []
    config = deepspeed_config(path, micro_batch=32, grad_accum=4, lr=3e-4, warmup=None, on_cpu=False, say=said.append)
    story = json.loads(Path(path).read_text())
    assert "train_micro_batch_size_per_gpu" not in story
    assert {key: config[key] for key in story} == story
    assert (config["train_micro_batch_size_per_gpu"], config["gradient_accumulation_steps"]) == (32, 4)
    assert len(said) == 1 and "32" in said[0] and "4" in said[0]

    said.clear()
    config = deepspeed_config(path, micro_batch=1, grad_accum=1, lr=1e-3, warmup=9, on_cpu=True, say=said.append)
    assert "fp16" not in config and config["bf16"] == {"enabled": True}
    assert config["optimizer"]["params"] | {"lr": 1e-3, "torch_adam": True} == config["optimizer"]["params"]
    assert (config["scheduler"]["params"]["warmup_max_lr"], config["scheduler"]["params"]["warmup_num_steps"]) == (
        1e-3,
        9,
    )
    for word in ("fp16", "torch_adam", "lr is", "warmup_max_lr", "warmup_num_steps"):
        assert any(word in text for text in said), word


def test_only_whole_checkpoints_are_found(tmp_path: Path) -> None:
    output = str(tmp_path)
    assert checkpoint.find(output) is None
    for name in ("checkpoint-9", "checkpoint-10", ".checkpoint-11.tmp", ".checkpoint-9-universal.tmp", "proof"):
        (tmp_path / name).mkdir()
    for step in (9, 10):
        facts = {"step": step, "world": 2, "global_batch": 16}
        (tmp_path / f"checkpoint-{step}" / "athanor.json").write_text(json.dumps(facts))
    assert checkpoint.find(output) == (str(tmp_path / "checkpoint-10"), 10, 2, 16)
    assert checkpoint.find(output, "checkpoint-9") == (str(tmp_path / "checkpoint-9"), 9, 2, 16)
    with pytest.raises(SystemExit, match=r"no athanor\.json"):
        checkpoint.find(output, "proof")
    checkpoint.sweep(output)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["checkpoint-10", "checkpoint-9", "proof"]


def test_the_moved_state_of_a_checkpoint_wins(tmp_path: Path) -> None:
    client = {"loader": {"position": "64"}, "step": 4}
    assert checkpoint.loader_state(str(tmp_path), client) == {"position": "64"}
    (tmp_path / "loader_state.json").write_text('{"position": "96"}')
    assert checkpoint.loader_state(str(tmp_path), client) == {"position": "96"}
