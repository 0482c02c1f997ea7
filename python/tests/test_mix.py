"""Data-mix files, and loaders over mixes and ramps against the fake agent."""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import athanor
from athanor._mix import mix_of
from athanor._proof import step_sum
from athanor.numpy import Loader
from conftest import ROOT, agents_in

Monkey = pytest.MonkeyPatch
TWO = {"web": {"path": "/d/web", "weight": 3}, "code": {"path": "/d/code", "weight": 1}}


def mix(**more: Any) -> dict[str, Any]:
    return {"version": 1, "sources": TWO, **more}


def later(**more: Any) -> dict[str, Any]:
    return {"weights": {"web": 1, "code": 1}, **more}


def test_a_file_and_a_dict_are_the_same(tmp_path: Path, monkeypatch: Monkey) -> None:
    sources = {"web": {"path": "web", "weight": 0.7}, "code": {"path": "/d/../d/code", "weight": 0, "index_dir": "i"}}
    content = {"version": 1, "weights_by": "tokens", "sources": sources,
               "phases": [{"after_samples": 10, "weights": {"code": 1, "web": 2}},
                          {"after_tokens": 5121, "weights": {"web": 0, "code": 1}}]}  # fmt: skip
    (tmp_path / "mix.json").write_text(json.dumps(content))
    expected = {
        "sources": [
            {"name": "web", "path": str(tmp_path / "web"), "index_dir": None},
            {"name": "code", "path": "/d/code", "index_dir": str(tmp_path / "i")},
        ],
        "by": "tokens",
        "phases": [
            {"from": 0, "weights": [0.7, 0.0]},
            {"from": 10, "weights": [2.0, 1.0]},
            {"from": 11, "weights": [0.0, 1.0]},
        ],
    }
    assert mix_of(tmp_path / "mix.json").request(512) == expected
    del content["version"]  # a dict can only be of this version
    monkeypatch.chdir(tmp_path)
    assert mix_of(content).request(512) == expected
    assert mix_of(mix_of(content)) == mix_of(content)


def test_yaml_is_read_where_pyyaml_is(tmp_path: Path, monkeypatch: Monkey) -> None:
    path = tmp_path / "mix.yaml"
    path.write_text(
        "version: 1\nsources:\n  web: {path: s3://b/web, weight: 0.5}\n  code: {path: ../code, weight: 0.5}\n"
        "phases:\n- after_tokens: 2_000_000_000\n  weights: {web: 1, code: 3}\n"
    )
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(ValueError, match="pip install pyyaml"):
        mix_of(path)
    monkeypatch.undo()
    pytest.importorskip("yaml", reason="skipped: PyYAML is not installed")
    request = mix_of(path).request(4096)
    assert [source["path"] for source in request["sources"]] == ["s3://b/web", str(tmp_path.parent / "code")]
    assert request["by"] == "samples" and request["phases"][1] == {"from": 488282, "weights": [1.0, 3.0]}
    path.write_text(path.read_text().replace("  code: {path", "  web: {path"))
    with pytest.raises(ValueError, match=f"data-mix file {path}: web must stand once"):
        mix_of(path)
    for text, message in (
        ("{version: 1, sources: {a: {path: x, weight: 1e-1}}}",
         r"sources\.a\.weight must be .*: write 0\.1\), got '1e-1'"),
        ("{version: 1, sources: {a: {path: x, weight: 1}}, phases: [{after_tokens: 2e9, weights: {a: 1}}]}",
         r"after_tokens must be a whole number.*: write 2\.0e\+9\), got '2e9'"),
        ("version: 1\nsources:\n  no: {path: x, weight: 1}", r'line 3 must be in quotes \("no"\), got no, .* bool'),
        ("version: 1\nsources:\n  2024: {path: x, weight: 1}",
         r'line 3 must be in quotes \("2024"\), got 2024, .* int'),
    ):  # fmt: skip
        path.write_text(text)
        with pytest.raises(ValueError, match=f"data-mix file {path}: .*{message}"):
            mix_of(path)
    path.write_text(
        'version: 1\nsources:\n  "no": {path: x, weight: 1.0e-1}\nphases:\n- {after_tokens: 2.0e+9, weights: {"no": 1}}'
    )
    assert mix_of(path).request(1)["phases"] == [{"from": 0, "weights": [0.1]}, {"from": 2 * 10**9, "weights": [1.0]}]
    path.write_text("version: [1")
    with pytest.raises(ValueError, match="must be YAML, got"):
        mix_of(path)


WRONG: list[tuple[Any, str]] = [
    (mix(version=2), "version must be 1, got 2"),
    (mix(source=1), "source must be one of phases, sources, version, weights_by, got an unknown key"),
    (mix(weights_by="bytes"), "weights_by must be .*, got 'bytes'"),
    (mix(sources={}), "sources must be one or more sources by name"),
    (mix(sources={"a/b": {"path": "x", "weight": 1}}), "the name of sources.a/b must be letters"),
    (mix(sources={"a": {"path": "x"}}), "sources.a.weight must be given, got none"),
    (mix(sources={"a": {"path": "", "weight": 1}}), "sources.a.path must be a path, got ''"),
    (mix(sources={"a": "x"}), "sources.a must be a mapping with path, weight, got 'x'"),
    (mix(sources={"a": {"path": "x", "weight": 1, "Weight": 1}}), "sources.a.Weight must be one of"),
    (mix(sources={"a": {"path": "x", "weight": -1}}), "sources.a.weight must be a number of at least 0, got -1"),
    (mix(sources={"a": {"path": "x", "weight": True}}), "sources.a.weight must be a number"),
    (mix(sources={"a": {"path": "x", "weight": "1"}}), "sources.a.weight must be a number"),
    (mix(sources={"a": {"path": "x", "weight": float("nan")}}), "sources.a.weight must be a number"),
    (mix(sources={"a": {"path": "x", "weight": 0}}), r"sources must be given one weight above 0"),
    (mix(sources={"a": {"path": "x", "weight": 1e-9}, "b": {"path": "y", "weight": 1}}),
     r"sources.a.weight must be at least 1/65536 of the sum of the weights \(1.0.*\), or 0, got 1e-09"),
    (mix(sources={"a": {"path": "x", "weight": 1e308}, "b": {"path": "y", "weight": 1e308}}),
     r"sources.a.weight must be smaller: the sum of the weights is too large, got 1e\+308"),
    (mix(phases=[{"after_samples": 1, "weights": {"web": 1, "code": 1e-9}}]),
     r"phases\[0\].weights.code must be at least 1/65536 of the sum of the weights"),
    (mix(sources={"a": {"path": "x", "weight": 1}, "b": {"path": "./x", "weight": 1}}),
     "sources.b.path must be another one than sources.a.path"),
    (mix(phases={}), "phases must be a list"),
    (mix(phases=[{"weights": {}}]), r"phases\[0\] must be given one of after_tokens and after_samples"),
    (mix(phases=[later(after_tokens=1, after_samples=1)]), r"phases\[0\] must be given one of"),
    (mix(phases=[later(after_samples=0)]), r"phases\[0\].after_samples must be a whole number"),
    (mix(phases=[later(after_samples="2e9")]), r"phases\[0\].after_samples must be a whole number"),
    (mix(phases=[later(after_samples=9), later(after_samples=9)]),
     r"phases\[1\].after_samples must be more than 9, that of the phase before, got 9"),
    (mix(phases=[{"after_samples": 1, "weights": {"web": 1}}]), r"phases\[0\].weights.code must be given"),
    (mix(phases=[{"after_samples": 1, "weights": {"web": 1, "code": 1, "math": 1}}]),
     r"phases\[0\].weights.math must be one of code, web"),
    (mix(phases=[{"after_samples": 1, "weights": {"web": -1, "code": 1}}]), r"phases\[0\].weights.web must be"),
    (mix(phases=[{"after_samples": 1, "weights": {"web": 0, "code": 0}}]), r"phases\[0\].weights must be given one"),
    ([], "the content must be a mapping"),
]  # fmt: skip


@pytest.mark.parametrize(("content", "text"), WRONG)
def test_what_is_wrong_is_named_with_file_and_key(tmp_path: Path, content: Any, text: str) -> None:
    path = tmp_path / "mix.json"
    path.write_text(json.dumps(content))
    with pytest.raises(ValueError, match=f"^data-mix file {path}: {text}"):
        mix_of(path)
    if isinstance(content, dict):
        with pytest.raises(ValueError, match=f"^mix: {text}"):
            mix_of(content)


def allows(schema: dict[str, Any], value: Any) -> bool:
    """The part of JSON Schema that the data mix's uses; a word that is not known here fails."""
    types = {"object": dict, "array": list, "string": str, "number": (int, float), "integer": int}
    for word, rule in schema.items():
        if word in ("$schema", "title", "description", "default"):
            continue
        if word == "type":
            good = isinstance(value, types[rule]) and not isinstance(value, bool)
        elif word == "const":
            good = value == rule and not isinstance(value, bool)
        elif word == "enum":
            good = value in rule
        elif word == "minimum":
            good = not isinstance(value, (int, float)) or value >= rule
        elif word in ("minLength", "minProperties"):
            good = not hasattr(value, "__len__") or len(value) >= rule
        elif word == "required":
            good = not isinstance(value, dict) or set(rule) <= value.keys()
        elif word == "oneOf":
            good = sum(allows(one, value) for one in rule) == 1
        elif word == "items":
            good = not isinstance(value, list) or all(allows(rule, item) for item in value)
        elif word == "propertyNames":
            good = not isinstance(value, dict) or all(re.search(rule["pattern"], name) for name in value)
        elif word == "properties":
            good = not isinstance(value, dict) or all(allows(rule[k], v) for k, v in value.items() if k in rule)
        elif word == "additionalProperties":
            others = (
                [v for k, v in value.items() if k not in schema.get("properties", {})]
                if hasattr(value, "items")
                else []
            )
            good = not others if rule is False else all(allows(rule, other) for other in others)
        else:
            raise ValueError(f"word of the schema that this test does not know: {word}")
        if not good:
            return False
    return True


def test_the_schema_says_what_the_loader_reads() -> None:
    schema = json.loads((ROOT / "docs/reference/data-mix.schema.json").read_text())
    guide = (ROOT / "docs/guides/mixtures.md").read_text()
    good = [mix(), mix(weights_by="tokens", phases=[later(after_samples=3), later(after_tokens=9000)])]
    yaml = pytest.importorskip("yaml", reason="skipped: PyYAML is not installed")
    good.append(yaml.safe_load(re.findall(r"```yaml\n(.*?)```", guide, re.S)[0]))
    for content in good:
        assert mix_of(content).request(512)["phases"] and allows(schema, content)
    # What hangs together with the rest of the file is beyond a schema, and so is NaN.
    beyond = (
        "another one than|above 0|phase before|weights must be given one|weights.code must be given|one of code"
        "|sum of the weights"
    )
    for content, text in WRONG:
        if not re.search(beyond, text) and "NaN" not in json.dumps(content):
            assert not allows(schema, content), text


def test_phases_that_meet_in_samples_are_refused(tmp_path: Path) -> None:
    phases = mix_of(mix(phases=[later(after_samples=10), later(after_tokens=5000)]))
    assert [phase["from"] for phase in phases.request(400)["phases"]] == [0, 10, 13]
    with pytest.raises(ValueError, match=r"phases\[1\] must begin behind the one before it, got sample 10 behind"):
        phases.request(512)
    with pytest.raises(ValueError, match="must be readable text, got"):
        mix_of(tmp_path / "missing.yaml")
    (tmp_path / "twice.json").write_text('{"version": 1, "version": 1}')
    with pytest.raises(ValueError, match="version must stand once"):
        mix_of(tmp_path / "twice.json")
    with pytest.raises(ValueError, match="mix must be the path"):
        mix_of(1)  # type: ignore[arg-type]


def test_arguments_that_cannot_be_meant_are_refused_at_once() -> None:
    for arguments, text in (
        ({}, "got neither"),
        ({"source": "/d", "mix": mix()}, "got both"),
        ({"mix": mix(), "index_dir": "/i"}, "index_dir must stand beside each path in the mix"),
        ({"mix": mix(), "last": "pad"}, "last must be .* with a mix"),
        ({"source": "/d", "transform": 5}, "^transform must be a function of a batch, got 5"),
        ({"source": "/d", "deliver": "no"}, "^deliver must be True or False, got 'no'"),
        ({"source": "/d", "drop_last": True, "global_batch_size": [(0, 8), (9, 16)]}, "last must be .* with a ramp"),
    ):
        with pytest.raises(ValueError, match=text):
            Loader(batch_size=4, **arguments)  # type: ignore[arg-type]


def test_identities_and_counts_say_the_source(fake: Path) -> None:
    with Loader(mix=mix(), batch_size=4, max_length=8, identities=True) as loader:
        steps = loader.repeat()
        assert next(steps)["_source"].tolist() == [0, 1, 0, 1]
        for _ in range(4):
            next(steps)
        assert loader.stats()["sources"] == {"web": 10, "code": 10}
        assert [source["name"] for source in loader.state_dict()["sources"]] == ["web", "code"]
    with Loader(mix=mix(), batch_size=5, max_length=8) as loader:
        next(iter(loader))
        assert loader.stats()["sources"] == {"web": 3, "code": 2}
    with Loader("/d", batch_size=4, max_length=8) as loader:
        next(iter(loader))
        assert loader.stats()["sources"] == {}


def test_a_source_number_makes_no_row_valid() -> None:
    ids = np.array([[0, 7, 0, 1 << 32 | 1 << 33], [1, 7, 1, 5 << 33], [2, 7, 2, 1 << 32]], np.uint64)
    assert step_sum(ids) == step_sum(ids[[0, 2]]) and step_sum(ids)[0] == 2


def test_a_ramp_changes_the_accumulation(fake: Path) -> None:
    with Loader("/d", batch_size=4, max_length=8, global_batch_size=[(0, 8), (20, 16), (60, 32)]) as loader:
        steps, seen = loader.repeat(), []
        for _ in range(6):
            seen.append((loader.position, loader.global_batch_size, loader.grad_accum))
            for _ in range(loader.grad_accum):
                next(steps)
        # 20 lies inside a batch of 8, 60 inside one of 16: the next border counts.
        assert seen == [(0, 8, 2), (8, 8, 2), (16, 8, 2), (24, 16, 4), (40, 16, 4), (56, 16, 4)]
        assert (loader.position, loader.grad_accum) == (72, 8)
        state = loader.state_dict()
        assert [segment["from"] for segment in state["segments"]] == ["0", "24", "72"]
    # Entries that the run has left need not fit the present world.
    ramp = [(0, 8), (20, 16), (60, 32)]
    with Loader("/d", batch_size=16, world_size=2, rank=0, global_batch_size=ramp, max_length=8, state=state) as loader:
        assert loader.grad_accum == 1
        assert next(iter(loader))["id"][0] == 72
        with pytest.raises(athanor.AthanorError, match="optimizer batch of 8 samples .* from position 0 on") as caught:
            loader.set_epoch(0)
            next(iter(loader))
            next(iter(loader))
        assert caught.value.code == "ATH_BATCH_ARITHMETIC"


def test_megatrons_ramp_is_taken(fake: Path) -> None:
    options: dict[str, Any] = {"rampup_batch_size": (8, 8, 40), "global_batch_size": 24}
    with Loader("/d", batch_size=4, max_length=8, **options) as loader:
        steps, sizes = loader.repeat(), []
        while loader.position < 64:
            sizes.append(loader.global_batch_size)
            for _ in range(loader.grad_accum):
                next(steps)
        assert sizes == [8, 8, 8, 16, 24]


def test_another_global_batch_goes_on_from_the_next_border(fake: Path, caplog: pytest.LogCaptureFixture) -> None:
    def rest(**options: Any) -> list[int]:
        with Loader("/d", max_length=8, state=state, **options) as loader:
            return [int(i) for batch in loader for i in batch["id"]]

    with Loader("/d", batch_size=4, grad_accum=3, max_length=8) as loader:
        iterator = iter(loader)
        for _ in range(4):
            next(iterator)
        state = loader.state_dict()  # position 16 in a batch of 12 .. 24
    caplog.set_level(logging.WARNING, "athanor")
    with Loader("/d", batch_size=4, global_batch_size=32, max_length=8, state=state) as loader:
        assert (loader.global_batch_size, loader.grad_accum) == (12, 3)  # of the batch that was begun
        iterator = iter(loader)
        assert [int(next(iterator)["id"][0]) for _ in range(2)] == [16, 20]
        assert (loader.position, loader.global_batch_size, loader.grad_accum) == (24, 32, 8)
        assert len(loader) == 30  # 0 .. 24 + 3 * 32
    assert not caplog.records
    assert rest(batch_size=4) == list(range(16, 100))
    assert "from 12 to 4 samples" in caplog.text and "global_batch_size=12 keeps" in caplog.text


def test_a_batch_that_the_new_step_cannot_end_is_refused(fake: Path) -> None:
    with Loader("/d", batch_size=4, grad_accum=3, max_length=8) as loader:
        iterator = iter(loader)
        for _ in range(4):
            next(iterator)
        state = loader.state_dict()
    with Loader("/d", batch_size=8, max_length=8, state=state) as loader, pytest.raises(ValueError) as caught:
        next(iter(loader))
    assert "does not divide the optimizer batch of 12" in str(caught.value)


def test_data_that_changes_under_a_running_job_is_refused(fake: Path, monkeypatch: Monkey) -> None:
    with Loader("/d", batch_size=4, max_length=8) as loader:
        iterator = iter(loader)
        next(iterator)
        monkeypatch.setenv("FAKE_VIEW", "1" * 32)  # shards were appended and indexed; then the agent dies
        os.kill(agents_in(fake)[0], signal.SIGKILL)
        with pytest.raises(ValueError, match="the data changed while the job ran") as caught:
            for _ in iterator:
                pass
    assert caught.value.code == "ATH_STATE_MISMATCH"  # type: ignore[attr-defined]


def test_workers_do_not_read_the_mix_again(fake: Path, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from athanor.torch import AthanorDataset

    path = tmp_path / "mix.json"
    path.write_text(json.dumps(mix()))
    dataset = AthanorDataset(mix=path, batch_size=10, max_length=8)
    path.unlink()
    assert [batch["id"][0] for batch in dataset] == list(range(0, 100, 10))
    dataset.close()
