"""What OSTs do in trouble, to a real agent and client that know the layouts: over faultfs.py, in the guise of Lustre.

The cases are those seen on a running Lustre: switched off, lost, evicted, slow. Other OSTs' shards go on, samples are
exact, and what is wrong is named by file, OST and time.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import athanor
import pytest
from athanor.numpy import Loader
from athanor.reference.ledger import read_ledger
from conftest import agents_in, end_agents, run_dir  # noqa: F401  (a fixture)
from conftest import athanor as command
from faultfs import FaultFs, missing
from lustre_scene import Scene
from mounted import mounted
from tfrecord_writer import write

SHARDS, RECORDS, BATCH = 8, 100, 20
STEPS = SHARDS * RECORDS // BATCH
WINDOW: dict[str, Any] = {"shuffle_memory": 10_000, "lanes": 2, "window": 50}

pytestmark = pytest.mark.skipif(missing() is not None, reason=f"skipped: no FUSE file system ({missing()})")


def shard(number: int) -> str:
    return f"train-{number}.tfrecord"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two sets of shards of some 300 KB."""
    folder = tmp_path_factory.mktemp("made")
    for name, prefix in (("data", "train"), ("other", "other")):
        (folder / name).mkdir()
        for number in range(SHARDS):
            ids = range(number * RECORDS, (number + 1) * RECORDS)
            rows = ({"id": i, "input_ids": [i] * 1500} for i in ids)
            write(folder / name / f"{prefix}-{number}.tfrecord", rows)
        done = command("index", folder / name)
        assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture
def fs(made: Path, run_dir: Path) -> Iterator[FaultFs]:  # noqa: F811
    shutil.copytree(made, run_dir / "real")
    with mounted(run_dir) as fs:
        yield fs


def loader(path: Path, **options: Any) -> Loader:
    return Loader(path, **{"batch_size": BATCH, "columns": ["id"], "seed": 3, "timeout": 20, **WINDOW, **options})


def ids(batch: dict[str, Any]) -> list[int]:
    return [int(i) for i in batch["id"]]


def lustre(monkeypatch: pytest.MonkeyPatch, fs: FaultFs, osts: dict[int, int], other: int = 0) -> Scene:
    """`osts`: by the number of a shard of `data`; `other`: of all shards of that set."""
    places = {shard(number): ost for number, ost in osts.items()}
    places.update({f"other-{number}.tfrecord": other for number in range(SHARDS)})
    scene = Scene(fs.mount.parent, fs.mount, places)
    for name, value in scene.environment().items():
        monkeypatch.setenv(name, value)
    return scene


def targets(loader: Loader) -> dict[str, Any]:
    return {entry["target"]: entry for entry in loader.stats()["agent"]["storage"]["targets"]}


def until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not true():
        assert time.monotonic() < end
        time.sleep(0.05)


def await_layouts(steps: Iterator[Any], loader: Loader) -> None:
    """Reads on until reads count for their OSTs."""
    for _ in range(10 * STEPS):
        next(steps)
        if any("OST" in target for target in targets(loader)):
            return
    raise AssertionError("no layout was used")


def test_reads_count_for_their_osts_and_the_order_is_the_same(
    made: Path, fs: FaultFs, monkeypatch: pytest.MonkeyPatch
) -> None:
    with loader(made / "data") as plain:
        steps = plain.repeat()
        whole = [ids(next(steps)) for _ in range(3 * STEPS)]
    end_agents(fs.mount.parent)
    scene = lustre(monkeypatch, fs, {number: number % 4 for number in range(SHARDS)})
    with loader(fs.mount / "data") as placed:
        steps = placed.repeat()
        assert [ids(next(steps)) for _ in range(3 * STEPS)] == whole
        found = targets(placed)
        assert {f"fs-OST000{ost}" for ost in range(4)} <= set(found)
        assert all(found[f"fs-OST000{ost}"]["bytes"] > 0 for ost in range(4))
        assert placed.stats()["agent"]["storage"]["troubles"] == []
    # Each file once, whatever the epochs.
    assert sorted(scene.asked()) == sorted(str(fs.mount / "data" / shard(number)) for number in range(SHARDS))


def test_what_the_client_counts_of_each_ost_is_told(fs: FaultFs, monkeypatch: pytest.MonkeyPatch) -> None:
    scene = lustre(monkeypatch, fs, {number: number % 4 for number in range(SHARDS)})
    before = dict.fromkeys(range(4), (10, 40 << 20, 50000))
    scene.count(before)
    with loader(fs.mount / "data") as placed:
        steps = placed.repeat()
        next(steps)
        until(lambda: scene.counted() == 1)
        scene.count({**before, 1: (13, 52 << 20, 56_000)})
        until(lambda: placed.stats()["agent"]["storage"]["from"] == "client counters")
        told = {target: entry["served"] for target, entry in targets(placed).items() if "OST" in target}
        assert told["fs-OST0001"] == {"requests": 3, "bytes": 12 << 20, "meanMs": 2}
        assert all(entry["requests"] == 0 for target, entry in told.items() if target != "fs-OST0001")
        # Once at the start, once because somebody asked; not for each that asks.
        assert scene.counted() == 2


def test_counters_without_some_osts_are_left_alone(fs: FaultFs, monkeypatch: pytest.MonkeyPatch) -> None:
    scene = lustre(monkeypatch, fs, {number: number % 4 for number in range(SHARDS)})
    scene.count(dict.fromkeys(range(3), (10, 40 << 20, 50000)))
    with loader(fs.mount / "data") as placed:
        await_layouts(placed.repeat(), placed)
        storage = placed.stats()["agent"]["storage"]
        assert storage["from"] == "own reads" and scene.counted() == 1
        assert all(entry["served"]["requests"] == entry["reads"] for entry in storage["targets"])


def test_an_ost_that_is_switched_off_is_named_with_since_when(fs: FaultFs, monkeypatch: pytest.MonkeyPatch) -> None:
    scene = lustre(monkeypatch, fs, {number: number % 4 for number in range(SHARDS)})
    with loader(fs.mount / "data") as faulty:
        steps = faulty.repeat()
        await_layouts(steps, faulty)
        scene.set_active(1, False)
        for number in (1, 5):
            fs.fault("read", path=f"data/{shard(number)}", fails="EIO")
            fs.fault("stat", path=f"data/{shard(number)}", fails="ESHUTDOWN")
        with pytest.raises(athanor.AthanorError) as caught:
            for _ in range(3 * STEPS):
                next(steps)
        assert caught.value.code == "ATH_STORAGE_IO"
        text = str(caught.value)
        assert re.search(r"train-[15]\.tfrecord", text), text
        assert re.search(
            r"answered E(IO|SHUTDOWN) 4 times \(fs-OST0001 since \d\d:\d\d:\d\d, switched off on this client", text
        ), text


def test_an_evicted_client_goes_on_with_exactly_its_samples(
    made: Path, fs: FaultFs, monkeypatch: pytest.MonkeyPatch
) -> None:
    with loader(made / "data") as plain:
        steps = plain.repeat()
        whole = [ids(next(steps)) for _ in range(20 * STEPS)]
    end_agents(fs.mount.parent)
    lustre(monkeypatch, fs, {number: number % 4 for number in range(SHARDS)})
    with loader(fs.mount / "data") as faulty:
        steps = faulty.repeat()
        seen = []
        while not any("OST" in target for target in targets(faulty)):
            seen.append(ids(next(steps)))
        for number in (2, 6):
            fs.fault("read", path=f"data/{shard(number)}", fails="EIO")
        threading.Timer(2.0, fs.clear).start()
        while len(seen) < 20 * STEPS:
            seen.append(ids(next(steps)))
        storage = faulty.stats()["agent"]["storage"]
        assert storage["retries"] > 0 and storage["troubles"] == []
    assert seen == whole


def test_a_lost_ost_stops_its_own_shards_and_is_named_in_time(fs: FaultFs, monkeypatch: pytest.MonkeyPatch) -> None:
    lustre(monkeypatch, fs, dict.fromkeys(range(SHARDS), 1), other=2)
    stuck = loader(fs.mount / "data")
    free = loader(fs.mount / "other")
    with stuck, free:
        lost, fine = stuck.repeat(), free.repeat()
        await_layouts(lost, stuck)
        while "fs-OST0002" not in targets(free):
            next(fine)
        for number in range(SHARDS):
            fs.fault("read", path=f"data/{shard(number)}", hold=True)
        errors: list[athanor.AthanorError] = []

        def read_lost() -> None:
            try:
                for _ in range(5 * STEPS):
                    next(lost)
            except athanor.AthanorError as error:
                errors.append(error)

        thread = threading.Thread(target=read_lost)
        thread.start()
        fs.wait_for_held()
        before = targets(free)["fs-OST0002"]["reads"]
        for _ in range(10 * STEPS):
            next(fine)
        assert thread.is_alive(), "the other OST's shards wait for the lost one"
        assert targets(free)["fs-OST0002"]["reads"] > before
        thread.join(timeout=60)
        (error,) = errors
        assert error.code == "ATH_TIMEOUT"
        text = str(error)
        assert re.search(r"train-\d\.tfrecord at byte \d+", text) and "fs-OST0001" in text, text
        assert 0 < fs.held() <= 4
        log = (fs.mount.parent / "agent.log").read_text()
        assert re.search(r"hangs since \d\d:\d\d:\d\d \(target fs-OST0001\)", log), log
        fs.clear()
        next(lost)


def test_a_target_that_hangs_is_named_to_rank_0_and_its_agent_can_be_replaced(
    made: Path, fs: FaultFs, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Rank 0 needs nothing of it, and hears of it all the same; reads that hang keep the agent from nothing."""
    with loader(made / "data") as plain, loader(made / "other") as also:
        whole = [ids(next(steps)) for steps in [plain.repeat()] for _ in range(12 * STEPS)]
        other = [ids(next(steps)) for steps in [also.repeat()] for _ in range(4 * STEPS)]
    end_agents(fs.mount.parent)
    lustre(monkeypatch, fs, dict.fromkeys(range(SHARDS), 1), other=2)
    one = {"batch_size": BATCH // 2, "rank": 1, "world_size": 2, "timeout": 120}
    with loader(fs.mount / "data", **one) as stuck, loader(fs.mount / "other") as free:
        lost, fine = stuck.repeat(), free.repeat()
        seen, mine = [], []
        while not any("OST" in target for target in targets(stuck)):
            mine.append(ids(next(lost)))
        for number in range(SHARDS):
            fs.fault("read", path=f"data/{shard(number)}", hold=True)
        rest: list[list[int]] = []

        def read_lost() -> None:
            rest.extend(ids(next(lost)) for _ in range(12 * STEPS - len(mine)))

        thread = threading.Thread(target=read_lost)
        thread.start()
        fs.wait_for_held()
        began = time.monotonic()

        def told() -> list[str]:
            texts = [record.getMessage() for record in caplog.records]
            return [text for text in texts if "hangs since" in text and "rank 0" in text]

        while not told():
            seen.append(ids(next(fine)))
            time.sleep(0.3)  # a trainer that computes, and is never kept waiting
            assert time.monotonic() - began < 15, caplog.text
        assert re.search(r"read of .*train-\d\.tfrecord at byte \d+ hangs since .*fs-OST0001", told()[0]), told()
        (agent,) = agents_in(fs.mount.parent)
        os.kill(agent, signal.SIGTERM)
        began = time.monotonic()
        while len(seen) < len(other):
            seen.append(ids(next(fine)))
        assert time.monotonic() - began < 15, "the agent waits for reads that hang"
        assert seen == other
        # Gone, though its threads cannot end while their reads hang.
        until(lambda: agent not in agents_in(fs.mount.parent))
        assert thread.is_alive() and fs.held() > 0
        fs.clear()
        thread.join(timeout=60)
        assert mine + rest == [step[BATCH // 2 :] for step in whole]


def test_without_its_metadata_server_open_shards_are_read_on(
    made: Path, fs: FaultFs, monkeypatch: pytest.MonkeyPatch
) -> None:
    with loader(made / "data") as plain:
        steps = plain.repeat()
        whole = [ids(next(steps)) for _ in range(8 * STEPS)]
    end_agents(fs.mount.parent)
    scene = lustre(monkeypatch, fs, {number: number % 4 for number in range(SHARDS)})
    with loader(fs.mount / "data") as first:
        steps = first.repeat()
        seen = [ids(next(steps)) for _ in range(2 * STEPS)]
        scene.lose_metadata()
        fs.fault("open", hold=True)
        fs.fault("list", hold=True)
        fs.fault("stat", path="other", hold=True)
        with loader(fs.mount / "other", timeout=3) as second:
            with pytest.raises(athanor.AthanorError) as caught:
                next(iter(second))
            assert caught.value.code == "ATH_TIMEOUT"
            assert re.search(rf"storage: (stat|open|names) of {fs.mount}/other", str(caught.value)), caught.value
            while len(seen) < len(whole):
                seen.append(ids(next(steps)))
            assert seen == whole
            assert fs.held() > 0
            fs.clear()
            assert len([ids(batch) for batch in second]) == STEPS


def test_a_slow_ost_is_named_with_how_slow(fs: FaultFs, monkeypatch: pytest.MonkeyPatch) -> None:
    lustre(monkeypatch, fs, {number: number % 4 for number in range(SHARDS)})
    for number in (3, 7):
        fs.fault("read", path=f"data/{shard(number)}", delay=0.2)
    with loader(fs.mount / "data") as slow:
        steps = slow.repeat()
        deadline = time.monotonic() + 60
        while "slower" not in targets(slow).get("fs-OST0003", {}):
            next(steps)
            assert time.monotonic() < deadline, targets(slow)
        found = targets(slow)
        assert found["fs-OST0003"]["slower"] >= 3
        assert not any("slower" in found[f"fs-OST000{ost}"] for ost in range(3))


def test_released_shards_are_restored_ahead_and_read_when_they_are_back(
    made: Path, fs: FaultFs, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("athanor._connection._WARN_AT", (3.0, 60.0))
    with loader(made / "data") as plain:
        whole = [ids(batch) for batch in plain]
    end_agents(fs.mount.parent)
    scene = lustre(monkeypatch, fs, {number: number % 4 for number in range(SHARDS)})
    names = {shard(number) for number in range(SHARDS)}
    with loader(fs.mount / "other") as first:  # the agent is up, and knows nothing of the set yet
        next(iter(first))
        scene.set_released(names)
        # A read of one that is not back would hang.
        for name in names:
            fs.fault("read", path=f"data/{name}", hold=True)
            fs.fault("told", path=f"data/{name}", blocks=1)
        asked: list[int] = []

        def copytool() -> None:
            while len(scene.asked()) < len(names) or len(scene.restores()) < 4:
                time.sleep(0.05)
            time.sleep(4)
            asked.append(len(scene.restores()))
            assert fs.held() == 0, "a released shard was read"
            fs.clear()
            scene.set_released(set())

        tool = threading.Thread(target=copytool)
        tool.start()
        with loader(fs.mount / "data", timeout=60) as slow:
            seen = [ids(batch) for batch in slow]
        tool.join(timeout=10)
    assert seen == whole
    assert asked == [4], "four at a time"
    assert {line.split()[0] for line in scene.restores()} == {"hsm_restore"}
    text = caplog.text
    assert "released to HSM and restored ahead of use, at most 4 at a time" in text, text
    assert re.search(r"train-\d\.tfrecord at byte \d+ .*released to HSM, its restore was asked for", text), text


def test_without_a_copytool_a_released_shard_is_no_surprise(
    fs: FaultFs, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is said when it is noticed; no read of it begins, so that whoever waits is told why, and nothing hangs."""
    scene = lustre(monkeypatch, fs, {number: number % 4 for number in range(SHARDS)})
    away = shard(5)
    scene.set_released({away})
    fs.fault("read", path=f"data/{away}", hold=True)
    fs.fault("told", path=f"data/{away}", blocks=1)
    with loader(fs.mount / "data", timeout=4) as waits, loader(fs.mount / "other") as free:
        steps = waits.repeat()
        seen = 0
        with pytest.raises(athanor.AthanorError) as caught:
            for _ in range(STEPS):
                next(steps)
                seen += 1
        assert 0 < seen < STEPS, "other shards go on"
        assert caught.value.code == "ATH_TIMEOUT"
        text = str(caught.value)
        assert re.search(rf"{away} at byte \d+ .*released to HSM, its restore was asked for", text), text
        assert f"released to HSM and restored ahead of use, at most 4 at a time: {fs.mount}/data/{away}" in caplog.text
        assert [line.split()[1] for line in scene.restores()] == [str(fs.mount / "data" / away)]
        assert fs.held() == 0, "a released shard was read"
        assert len([ids(batch) for batch in free]) == STEPS
        (agent,) = agents_in(fs.mount.parent)
        os.kill(agent, signal.SIGTERM)
        deadline = time.monotonic() + 20
        while agent in agents_in(fs.mount.parent):
            assert time.monotonic() < deadline, "the agent waits for a restore"
            time.sleep(0.05)


def test_bulk_and_checksum_errors_that_come_late_lose_no_sample(
    made: Path, fs: FaultFs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lustre resends for a minute, then says EIO; here after 3.5 s, which is a stuck call already."""
    with loader(made / "data") as plain:
        whole = [ids(batch) for batch in plain]
    end_agents(fs.mount.parent)
    lustre(monkeypatch, fs, {number: number % 4 for number in range(SHARDS)})
    fs.fault("read", path=f"data/{shard(6)}", fails="EIO", delay=3.5, times=2)
    with loader(fs.mount / "data", timeout=60) as faulty:
        assert [ids(batch) for batch in faulty] == whole
        storage = faulty.stats()["agent"]["storage"]
        assert storage["retries"] == 2 and storage["troubles"] == [], storage


@pytest.mark.parametrize("code", ["ENOSPC", "EDQUOT"])
def test_a_full_ost_sends_what_is_written_to_a_new_file_and_a_quota_does_not(
    fs: FaultFs, monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    """The index by the command, the ledger by the agent, the proof by the rank."""
    lustre(monkeypatch, fs, {number: number % 4 for number in range(SHARDS)})
    real = fs.mount.parent / "real"
    before = sorted(path.name for path in (real / "data/.athanor").iterdir())
    # A new file on the same OST fails as well; the third one lies elsewhere.
    fs.fault("write", fails=code, times=2)
    done = command("index", fs.mount / "data", "--rebuild", "--json")
    if code == "EDQUOT":
        assert done.returncode == 3 and "ATH_INDEX_WRITE" in done.stderr, done.stderr
        assert "quota of space or of files is used up: `lfs quota" in done.stderr
    else:
        assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in (real / "data/.athanor").iterdir()) == before
    fs.clear()
    with loader(fs.mount / "data", proof_dir=fs.mount / "proof") as proven:
        steps = iter(proven)
        for _ in range(5):
            next(steps)
        fs.fault("write", fails=code, times=2)
        if code == "EDQUOT":
            with pytest.raises(athanor.AthanorError) as caught:
                next(steps)
            assert caught.value.code == "ATH_PROOF_WRITE"
            fs.clear()
        assert len([ids(batch) for batch in steps]) == STEPS - 5
    (name,) = [path.name for path in (real / "proof").iterdir()]
    assert name.endswith(".jsonl")
    assert len((real / "proof" / name).read_text().splitlines()) == STEPS + 1
    damaged = real / "data" / shard(4)
    stats, content = damaged.stat(), bytearray(damaged.read_bytes())
    content[-20] ^= 1
    damaged.write_bytes(content)
    os.utime(damaged, ns=(stats.st_atime_ns, stats.st_mtime_ns))
    fs.fault("write", fails=code, times=2)
    with loader(fs.mount / "data", on_corrupt="replace", ledger_dir=fs.mount / "ledger") as lucky:
        if code == "EDQUOT":
            with pytest.raises(athanor.AthanorError, match="quota of space or of files is used up") as caught:
                list(lucky)
            assert caught.value.code == "ATH_LEDGER_WRITE"
            fs.clear()
        else:
            assert len(list(lucky)) == STEPS
            assert len(read_ledger(str(real / "ledger"))) == 1
