"""Against the fake agent: what a loader does with a good one, a dying one, and one that breaks the protocol."""

from __future__ import annotations

import os
import pickle
import signal
import time
from pathlib import Path

import numpy as np
import pytest

import athanor
from athanor._proof import proof_total
from athanor.numpy import Loader
from conftest import agents_in

Monkey = pytest.MonkeyPatch


def ids(batches: object) -> list[int]:
    return [int(i) for batch in batches for i in batch["id"]]  # type: ignore[attr-defined]


def test_batches_are_int64_copies_with_masks(fake: Path) -> None:
    with Loader("/d", batch_size=4, max_length=8) as loader:
        assert len(loader) == 25
        batches = list(loader)
        assert ids(batches) == list(range(100))
        batch = batches[2]
        assert batch["id"].shape == (4,) and batch["input_ids"].shape == (4, 8)
        assert {a.dtype for a in batch.values()} == {np.dtype(np.int64)}
        for row in range(4):
            n = int(batch["id"][row])
            assert batch["attention_mask"][row].tolist() == [1] * (n % 9) + [0] * (8 - n % 9)
            assert batch["input_ids"][row].tolist() == [n] * (n % 9) + [0] * (8 - n % 9)
        stats = loader.stats()
        assert stats["batches"] == 25 and stats["agent"] == {"reads": 1} and stats["stall_s"] > 0


def test_carry_keeps_every_sample_over_epoch_borders(fake: Path) -> None:
    with Loader("/d", batch_size=8, max_length=8) as loader:
        epochs = [ids(loader) for _ in range(3)]
        assert [len(e) for e in epochs] == [104, 96, 104]
        assert [i for epoch in epochs for i in epoch] == [p % 100 for p in range(304)]
        assert loader.epoch == 3 and loader.position == 304


def test_pad_marks_repeated_rows_and_ends_with_the_epoch(fake: Path) -> None:
    with Loader("/d", batch_size=8, max_length=8, last="pad") as loader:
        for _ in range(2):
            batches = list(loader)
            assert len(batches) == len(loader) == 13
            kept = [int(i) for b in batches for i, v in zip(b["id"], b["valid"]) if v]
            assert kept == list(range(100))
        assert loader.state_dict()["position"] == "200"


def test_ranks_share_a_step(fake: Path) -> None:
    loaders = [Loader("/d", batch_size=5, max_length=8, rank=r, world_size=2) for r in range(2)]
    both = [ids(loader) for loader in loaders]
    assert sorted(both[0] + both[1]) == list(range(100))
    assert len(agents_in(fake)) == 1
    for loader in loaders:
        loader.close()


def test_break_starts_the_epoch_anew_and_set_epoch_moves(fake: Path) -> None:
    with Loader("/d", batch_size=4, max_length=8) as loader:
        for batch in loader:
            if batch["id"][0] == 12:
                break
        assert loader.state_dict()["position"] == "16"
        loader.set_epoch(0)  # already there: does not move
        assert loader.state_dict()["position"] == "16"
        assert ids(loader) == list(range(100))
        loader.set_epoch(5)
        assert loader.position == 500
        iterator = iter(loader)
        next(iterator)
        iter(loader)
        with pytest.raises(RuntimeError, match="stale"):
            next(iterator)


def test_break_after_the_last_batch_is_the_end_of_the_epoch(fake: Path) -> None:
    with Loader("/d", batch_size=50, max_length=8) as loader:
        for batch in loader:
            if batch["id"][-1] == 99:
                break
        assert loader.epoch == 1


def test_state_goes_on_everywhere(fake: Path) -> None:
    with Loader("/d", batch_size=4, max_length=8) as loader:
        iterator = iter(loader)
        first = [next(iterator) for _ in range(10)]
        state = loader.state_dict()
        early = loader.state_dict(steps=3)
        with pytest.raises(ValueError, match="steps must"):
            loader.state_dict(steps=11)
        rest = ids(iterator)
        loader.load_state_dict(state)
        assert loader.state_dict() == state
        assert ids(loader) == rest
        loader.load_state_dict(early)
        assert ids(loader) == ids(first[3:]) + rest
    with Loader("/d", batch_size=2, global_batch_size=4, max_length=8, state=state) as loader:
        assert ids(loader) == rest
        assert loader.grad_accum == 2 and loader.epoch == 1
    with pytest.raises(RuntimeError, match="closed"):
        next(iter(loader))


def test_state_of_another_seed_is_refused(fake: Path) -> None:
    with Loader("/d", batch_size=4, max_length=8) as loader:
        state = loader.state_dict()
    with Loader("/d", batch_size=4, max_length=8, seed=2) as other, pytest.raises(ValueError, match="seed") as caught:
        other.load_state_dict(state)
    assert isinstance(caught.value, athanor.AthanorError) and caught.value.code == "ATH_STATE_MISMATCH"
    with Loader("/d", batch_size=4) as loader, pytest.raises(ValueError, match="not a state"):
        loader.load_state_dict({"version": 1})


def test_repeat_has_no_end(fake: Path) -> None:
    with Loader("/d", batch_size=50, max_length=8) as loader:
        steps = loader.repeat()
        assert ids(next(steps) for _ in range(7)) == [p % 100 for p in range(350)]
        assert loader.state_dict(steps=6)["position"] == "300"


def test_killed_agent_is_a_pause(fake: Path) -> None:
    with Loader("/d", batch_size=4, max_length=8) as loader:
        seen = []
        for step, batch in enumerate(loader):
            seen += ids([batch])
            if step in (3, 14):
                (agent,) = agents_in(fake)
                os.kill(agent, signal.SIGKILL)
        assert seen == list(range(100))
        assert loader.stats()["agent_deaths"] == 2


def test_three_deaths_without_a_batch_are_an_error(fake: Path, monkeypatch: Monkey) -> None:
    monkeypatch.setenv("FAKE_FAULT", "die:0")
    with Loader("/d", batch_size=4) as loader, pytest.raises(athanor.AthanorError, match="3 times") as caught:
        next(iter(loader))
    assert caught.value.code == "ATH_AGENT_DIED"


def test_agent_that_keeps_dying_but_gives_batches_goes_on(fake: Path, monkeypatch: Monkey) -> None:
    monkeypatch.setenv("FAKE_FAULT", "die:9")
    with Loader("/d", batch_size=5, max_length=8) as loader:
        assert ids(loader) == list(range(100))
        assert loader.stats()["agent_deaths"] >= 2


@pytest.mark.parametrize(
    ("fault", "code", "text"),
    [
        ("version", "ATH_PROTOCOL_MISMATCH", "version 9.9.9.*protocol 2.*version 0.1.0.*speaks 1"),
        ("garbage", "ATH_PROTOCOL", "not json"),
        ("position", "ATH_PROTOCOL", "expected position 0"),
        ("overwrite", "ATH_PROTOCOL", "where batch 1 was due"),
        ("start", "ATH_AGENT_START", "cannot start: no such block"),
    ],
)
def test_faults_are_named(fake: Path, monkeypatch: Monkey, fault: str, code: str, text: str) -> None:
    monkeypatch.setenv("FAKE_FAULT", fault)
    with Loader("/d", batch_size=4) as loader, pytest.raises(athanor.AthanorError, match=text) as caught:
        next(iter(loader))
    assert caught.value.code == code
    again = pickle.loads(pickle.dumps(caught.value))
    assert str(again) == str(caught.value) and again.code == code


def test_old_client_is_refused_by_the_agent(fake: Path, monkeypatch: Monkey) -> None:
    monkeypatch.setattr("athanor._layout.PROTOCOL", 0)
    with Loader("/d", batch_size=4) as loader, pytest.raises(athanor.AthanorError, match="0 and 1") as caught:
        len(loader)
    assert caught.value.code == "ATH_PROTOCOL_MISMATCH"


def test_timeout_names_the_culprit(fake: Path, monkeypatch: Monkey) -> None:
    monkeypatch.setenv("FAKE_FAULT", "slow:3")
    with Loader("/d", batch_size=4, timeout=0.5) as loader, pytest.raises(athanor.AthanorError) as caught:
        len(loader)
        next(iter(loader))
    assert caught.value.code == "ATH_TIMEOUT"


def test_slow_batches_are_warned_about(fake: Path, monkeypatch: Monkey, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setenv("FAKE_FAULT", "mute:3")
    monkeypatch.setattr("athanor._connection._WARN_AT", (0.2, 60.0))
    monkeypatch.setattr("athanor._connection._ANSWER_WAIT", 0.3)
    with Loader("/d", batch_size=4) as loader:
        assert next(iter(loader))["id"].tolist() == [0, 1, 2, 3]
        assert loader.stall_seconds > 2
    assert "has waited" in caplog.text and "does not answer" in caplog.text


def test_named_segment_where_the_memfd_cannot_be_opened(fake: Path, monkeypatch: Monkey) -> None:
    monkeypatch.setenv("FAKE_FAULT", "nofd")
    with Loader("/d", batch_size=4, max_length=8) as loader:
        assert ids(loader) == list(range(100))
        assert len(list(fake.glob("seg-*"))) == 1
    assert not list(fake.glob("seg-*"))


def test_forked_child_opens_its_own_session(fake: Path) -> None:
    with Loader("/d", batch_size=4, max_length=8) as loader:
        iterator = iter(loader)
        next(iterator)
        pid = os.fork()
        if pid == 0:
            os._exit(0 if ids(iterator) == list(range(4, 100)) else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert ids(iterator) == list(range(4, 100))


def test_proof_does_not_depend_on_world_size_or_deaths(fake: Path, tmp_path: Path) -> None:
    def run(folder: Path, world: int, batch: int) -> None:
        for rank in range(world):
            with Loader("/d", batch_size=batch, max_length=8, rank=rank, world_size=world, proof_dir=folder) as loader:
                for step, _ in enumerate(loader):
                    if step == 1:
                        os.kill(agents_in(fake)[0], signal.SIGKILL)

    run(tmp_path / "a", 1, 20)
    run(tmp_path / "b", 2, 10)
    assert proof_total(str(tmp_path / "a")) == proof_total(str(tmp_path / "b"))
    assert proof_total(str(tmp_path / "a")).rows == 100
    assert proof_total(str(tmp_path / "a"), upto=40).rows == 40
    with Loader("/d", batch_size=20, max_length=8, proof_dir=tmp_path / "c") as loader:
        iterator = iter(loader)
        for _ in range(3):
            next(iterator)
        state = loader.state_dict(steps=2)
    time.sleep(0.002)
    with Loader(
        "/d", batch_size=10, global_batch_size=20, max_length=8, proof_dir=tmp_path / "c", state=state
    ) as loader:
        assert len(list(loader)) == 6
    assert proof_total(str(tmp_path / "c")) == proof_total(str(tmp_path / "a"))


def test_external_agent_is_waited_for(fake: Path) -> None:
    with (
        Loader("/d", batch_size=4, agent="external", timeout=0.3) as loader,
        pytest.raises(athanor.AthanorError, match="no agent answered"),
    ):
        len(loader)


def test_identities_and_transform(fake: Path) -> None:
    with Loader("/d", batch_size=4, identities=True, transform=lambda b: {**b, "n": len(b)}, max_length=8) as loader:
        batch = next(iter(loader))
    assert batch["_position"].tolist() == [0, 1, 2, 3] and batch["_shard_key"].tolist() == [7] * 4
    assert batch["_record"].tolist() == [0, 1, 2, 3] and batch["n"] == 7
    assert batch["_source"].tolist() == [0] * 4


def test_strided_sessions_cut_an_epoch_into_turns(fake: Path) -> None:
    for last in ("carry", "pad"):
        loaders = [Loader("/d", batch_size=8, max_length=8, last=last, _stride=3, _offset=w) for w in range(3)]
        for epoch in range(2):
            parts = [[b["id"].tolist() for b in loader] for loader in loaders]
            with Loader("/d", batch_size=8, max_length=8, last=last) as plain:
                plain.set_epoch(epoch)
                whole = [b["id"].tolist() for b in plain]
            assert [parts[i % 3][i // 3] for i in range(len(whole))] == whole
            assert [len(part) for part in parts] == [len(range(w, len(whole), 3)) for w in range(3)]
        for loader in loaders:
            loader.close()
