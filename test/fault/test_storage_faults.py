"""Storage that fails: real agent and client, commands too, over a file system that fails on request (faultfs.py).

For each fault training goes on with exactly the right samples, or an error comes in time that names file, byte and
cause. Nothing hangs beyond `timeout`, no batch is half, nothing is left.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import athanor
import pytest
from athanor.numpy import Loader
from athanor.reference.ledger import read_ledger
from conftest import ROOT, agents_in, run_dir  # noqa: F401  (a fixture)
from faultfs import FaultFs, missing
from mounted import mounted
from tfrecord_writer import example, frame, write

SHARDS, RECORDS, BATCH = 8, 100, 20
STEPS = SHARDS * RECORDS // BATCH
HELD: dict[str, Any] = {}
WINDOW: dict[str, Any] = {"shuffle_memory": 10_000, "lanes": 2, "window": 50}
ORDERS = pytest.mark.parametrize("order", [HELD, WINDOW], ids=["held", "window"])

pytestmark = pytest.mark.skipif(missing() is not None, reason=f"skipped: no FUSE file system ({missing()})")


def shard(number: int) -> str:
    return f"train-{number}.tfrecord"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two sets of eight shards, indexed: data whose ids count from 0, and `other`, whose ids go on."""
    real = tmp_path_factory.mktemp("made")
    for name, first in (("data", 0), ("other", SHARDS * RECORDS)):
        (real / name).mkdir()
        for number in range(SHARDS):
            begin = first + number * RECORDS
            write(
                real / name / shard(number), ({"id": i, "input_ids": [i] * 50} for i in range(begin, begin + RECORDS))
            )
        code, _, error = run("index", str(real / name))
        assert code == 0, error
    return real


@pytest.fixture
def fs(made: Path, run_dir: Path) -> Iterator[FaultFs]:  # noqa: F811
    """A copy of the sets in a file system of its own; `real` is the folder behind it."""
    shutil.copytree(made, run_dir / "real")
    with mounted(run_dir) as fs:
        yield fs


def command(*words: str) -> list[str]:
    return ["node", str(ROOT / "bin" / "athanor.mjs"), "--json", *words]


def run(*words: str) -> tuple[int, str, dict[str, Any]]:
    """Exit code, output and error of a command."""
    done = subprocess.run(command(*words), capture_output=True, text=True, timeout=30)
    lines = [line for line in done.stderr.splitlines() if line.startswith('{"error"')]
    return done.returncode, done.stdout, json.loads(lines[-1])["error"] if lines else {}


def loader(path: Path, **options: Any) -> Loader:
    return Loader(path, **{"batch_size": BATCH, "columns": ["id"], "seed": 3, "timeout": 20, **options})


def ids(batch: dict[str, Any]) -> list[int]:
    found = [int(i) for i in batch["id"]]
    assert len(found) == BATCH
    return found


def expected(made: Path, order: dict[str, Any], data: str = "data") -> list[list[int]]:
    """An epoch of the healthy folder."""
    with loader(made / data, **order) as healthy:
        steps = [ids(batch) for batch in healthy]
    first = 0 if data == "data" else SHARDS * RECORDS
    assert sorted(sum(steps, [])) == list(range(first, first + SHARDS * RECORDS))
    return steps


TRANSIENT: dict[str, list[tuple[str, dict[str, Any]]]] = {
    "EIO once": [("read", {"fails": "EIO", "times": 1})],
    "EIO twice": [("read", {"fails": "EIO", "times": 2})],
    "ESTALE": [("read", {"fails": "ESTALE", "times": 1})],
    "ESHUTDOWN on stat": [("stat", {"fails": "ESHUTDOWN", "times": 2})],
    "ETIMEDOUT": [("read", {"fails": "ETIMEDOUT", "times": 1})],
    "EINTR": [("read", {"fails": "EINTR", "times": 6}), ("open", {"fails": "EINTR", "times": 2})],
    "short reads": [("read", {"most": 777})],
    "short, then EIO": [("read", {"most": 777, "times": 3}), ("read", {"fails": "EIO", "times": 1})],
    "slow": [("read", {"delay": 0.2})],
}


@pytest.mark.parametrize("fault", TRANSIENT)
def test_training_goes_on_exactly(made: Path, fs: FaultFs, fault: str) -> None:
    whole = expected(made, WINDOW)
    for call, rule in TRANSIENT[fault]:
        fs.fault(call, path=f"data/{shard(5)}", **rule)
    with loader(fs.mount / "data", **WINDOW) as faulty:
        assert [ids(batch) for batch in faulty] == whole
    assert fs.calls()[f"{TRANSIENT[fault][0][0]} data/{shard(5)}"] > 1 or fault == "slow"


def take_until_error(steps: Iterator[dict[str, Any]], limit: float) -> tuple[list[list[int]], athanor.AthanorError]:
    began = time.monotonic()
    seen: list[list[int]] = []
    with pytest.raises(athanor.AthanorError) as caught:
        for batch in steps:
            seen.append(ids(batch))
    assert time.monotonic() - began < limit
    return seen, caught.value


def delete(path: Path) -> None:
    path.rename(path.with_suffix(".away"))


def undelete(path: Path) -> None:
    path.with_suffix(".away").rename(path)


def replace(path: Path) -> None:
    delete(path)
    path.write_bytes(b"other bytes")


def flip(path: Path) -> None:
    """One bit of a payload, size and time kept: what a bad disk or network card does."""
    stats = path.stat()
    content = bytearray(path.read_bytes())
    content[-20] ^= 1
    path.write_bytes(content)
    os.utime(path, ns=(stats.st_atime_ns, stats.st_mtime_ns))


class Lasting(NamedTuple):
    code: str
    text: str
    rules: list[tuple[str, dict[str, Any]]] = []  # noqa: RUF012
    change: Callable[[Path], None] | None = None
    repair: Callable[[Path], None] = lambda path: None
    byte: int | None = None


SHORT = ("read", {"most": 1500, "end": 1})  # reads of the beginning give 1,500 bytes
LASTING = {
    "EIO": Lasting("ATH_STORAGE_IO", "EIO 3 times", [SHORT, ("read", {"fails": "EIO", "start": 2000})], byte=1500),
    "ESHUTDOWN on stat": Lasting("ATH_STORAGE_IO", "ESHUTDOWN 3 times", [("stat", {"fails": "ESHUTDOWN"})]),
    "end of file too early": Lasting("ATH_SHARD_TRUNCATED", "shorter than", [SHORT, ("read", {"most": 0})], byte=0),
    "permission lost": Lasting("ATH_ACCESS_DENIED", "not allowed", [("open", {"fails": "EACCES"})]),
    "deleted": Lasting("ATH_NOT_FOUND", "no such file", change=delete, repair=undelete),
    "replaced": Lasting("ATH_SHARD_CHANGED", "found 11 bytes", change=replace, repair=undelete),
    "truncated": Lasting("ATH_SHARD_CHANGED", "found 3000 bytes", change=lambda path: os.truncate(path, 3000)),
    "bytes changed": Lasting("ATH_RECORD_CRC", "", change=flip, repair=flip),
}  # fmt: skip


@pytest.mark.parametrize("fault", LASTING)
def test_a_fault_that_lasts_is_named(made: Path, fs: FaultFs, fault: str) -> None:
    case = LASTING[fault]
    whole = expected(made, WINDOW)
    # The last one of its lane: it is not read before the fault is there.
    name = f"data/{shard(whole[-1][-1] // RECORDS)}"
    real = fs.mount.parent / "real" / name
    before = real.read_bytes(), real.stat()
    with loader(fs.mount / "data", **WINDOW) as faulty:
        steps = iter(faulty)
        seen = [ids(next(steps))]
        for call, rule in case.rules:
            fs.fault(call, path=name, **rule)
        if case.change is not None:
            case.change(real)
        more, error = take_until_error(steps, 30)
        seen += more
        assert len(seen) < STEPS
        assert (error.code, error.file) == (case.code, str(fs.mount / name)), error
        assert case.text in str(error)
        assert case.byte is None or error.byte_offset == case.byte
        # The same loader goes on once the storage does.
        fs.clear()
        case.repair(real)
        if real.stat().st_size != before[1].st_size:
            real.write_bytes(before[0])
            os.utime(real, ns=(before[1].st_atime_ns, before[1].st_mtime_ns))
        assert seen == whole[: len(seen)]
        assert seen + [ids(batch) for batch in steps] == whole


def await_no_agent(fs: FaultFs, pids: list[int], limit: float) -> None:
    deadline = time.monotonic() + limit
    while any(Path("/proc", str(pid)).exists() and not is_dead(pid) for pid in pids):
        assert time.monotonic() < deadline, f"agents {pids} are still there after {limit} s"
        time.sleep(0.05)
    assert not (fs.mount.parent / "agent.sock").exists()


def is_dead(pid: int) -> bool:
    """Killed; a thread in an uninterruptible call may keep what is left of it."""
    with contextlib.suppress(OSError):
        return Path("/proc", str(pid), "stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    return True


def await_gone(pids: list[int], limit: float = 30) -> None:
    deadline = time.monotonic() + limit
    while any(Path("/proc", str(pid)).exists() for pid in pids):
        athanor._spawn.reap()
        assert time.monotonic() < deadline, f"processes {pids} are left"
        time.sleep(0.05)


@ORDERS
def test_a_read_that_hangs_is_named_and_holds_up_nobody_else(
    made: Path,
    fs: FaultFs,
    order: dict[str, Any],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("athanor._connection._WARN_AT", (0.7, 60.0))
    whole, other = expected(made, order), expected(made, order, "other")
    name = f"data/{shard(whole[-1][-1] // RECORDS)}"
    fs.fault("read", path=name, hold=True)
    with loader(fs.mount / "data", **order, timeout=1.5) as stuck, loader(fs.mount / "other", **order) as free:
        seen, error = take_until_error(iter(stuck), 20)
        assert seen == whole[: len(seen)]
        assert error.code == "ATH_TIMEOUT" and str(fs.mount / name) in str(error) and "byte 0" in str(error)
        warnings = [record.getMessage() for record in caplog.records if "has waited" in record.getMessage()]
        assert any(str(fs.mount / name) in warning for warning in warnings), warnings
        assert [ids(batch) for batch in free] == other
        agents = agents_in(fs.mount.parent)
    await_no_agent(fs, agents, 40)
    fs.clear()
    await_gone(agents)


def test_many_reads_that_hang_hold_up_nobody_else(made: Path, fs: FaultFs) -> None:
    """More than are in flight at a time: random reads over all shards of a data set, five of which do not answer."""
    other = expected(made, WINDOW, "other")
    for number in range(5):
        fs.fault("read", path=f"data/{shard(number)}", hold=True)
    with loader(fs.mount / "data", shuffle="global", shuffle_memory=1) as stuck, ThreadPoolExecutor(1) as pool:
        seen = pool.submit(lambda: [ids(batch) for batch in stuck])
        fs.wait_for_held(4)
        with loader(fs.mount / "other", **WINDOW) as free:
            assert [ids(batch) for batch in free] == other
        assert fs.held() >= 4
        fs.clear()
        assert sorted(sum(seen.result(20), [])) == list(range(SHARDS * RECORDS))


@pytest.mark.parametrize("call, path", [("stat", "data"), ("list", "data"), ("read", "data/.athanor/shards.bin")])
def test_what_hangs_while_the_data_is_opened_is_named(made: Path, fs: FaultFs, call: str, path: str) -> None:
    whole = expected(made, WINDOW)
    fs.fault(call, path=path, hold=True)
    with loader(fs.mount / "data", **WINDOW, timeout=2) as stuck:
        began = time.monotonic()
        with pytest.raises(athanor.AthanorError) as caught:
            next(iter(stuck))
        assert time.monotonic() - began < 20
        assert caught.value.code == "ATH_TIMEOUT" and str(fs.mount / path) in str(caught.value), caught.value
        fs.clear()
        assert [ids(batch) for batch in stuck] == whole


def test_a_killed_agent_whose_read_hangs_is_replaced(made: Path, fs: FaultFs) -> None:
    """Its sockets stay open as long as the read hangs: nobody answers on them, and no end is seen."""
    whole, other = expected(made, WINDOW), expected(made, WINDOW, "other")
    fs.fault("read", path=f"data/{shard(whole[-1][-1] // RECORDS)}", hold=True)
    with (
        loader(fs.mount / "data", **WINDOW, timeout=120) as stuck,
        loader(fs.mount / "other", **WINDOW) as free,
        ThreadPoolExecutor(1) as pool,
    ):
        steps = iter(free)
        seen = [ids(next(steps)) for _ in range(3)]
        waiting = pool.submit(lambda: [ids(batch) for batch in stuck])
        fs.wait_for_held()
        (agent,) = agents_in(fs.mount.parent)
        os.kill(agent, signal.SIGKILL)
        assert seen + [ids(batch) for batch in steps] == other
        # The one who waits for the read sees it too, long before its timeout.
        deadline = time.monotonic() + 60
        while stuck._session is None or stuck._session.deaths == 0:
            assert time.monotonic() < deadline and not waiting.done()
            time.sleep(0.05)
        fs.clear()
        assert waiting.result(20) == whole
    await_gone([agent])


def test_memory_that_a_read_keeps_is_not_promised_to_others(
    made: Path, fs: FaultFs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ATHANOR_AGENT_GRACE", "30s")
    with loader(made / "data", **HELD) as healthy:
        next(iter(healthy))
        stats = healthy.stats()["agent"]
    os.kill(stats["pid"], signal.SIGKILL)
    monkeypatch.setenv("ATHANOR_AGENT_MEMORY", str(stats["reserved"] * 3 // 2))
    expected(made, WINDOW)  # an agent is there now, and stays for its grace time
    fs.fault("read", path=f"data/{shard(0)}", hold=True)
    with loader(fs.mount / "data", **HELD, timeout=3) as stuck:
        take_until_error(iter(stuck), 20)
    time.sleep(2.5)
    with loader(made / "other", **HELD) as next_one:
        with pytest.raises(athanor.AthanorError, match="reads that hang keep") as caught:
            next(iter(next_one))
        assert caught.value.code == "ATH_MEMORY_BUDGET"
        fs.clear()
        deadline = time.monotonic() + 30
        while True:
            try:
                assert len(list(next_one)) == STEPS
                break
            except athanor.AthanorError:
                assert time.monotonic() < deadline, "what came back is not free again"
                time.sleep(0.05)
        assert next_one.stats()["agent"]["stuck"] == 0


def test_a_close_that_hangs_keeps_nobody(made: Path, fs: FaultFs) -> None:
    other = expected(made, WINDOW, "other")
    fs.fault("close", path="data/.athanor/shards.bin", hold=True)
    for number in range(SHARDS):
        fs.fault("close", path=f"data/{shard(number)}", hold=True)
    fs.fault("read", path=f"data/{shard(2)}", fails="EIO")
    with loader(fs.mount / "data", **HELD) as faulty:
        _, error = take_until_error(iter(faulty), 30)
        assert error.code == "ATH_STORAGE_IO"
    with loader(fs.mount / "other", **WINDOW) as free:
        assert [ids(batch) for batch in free] == other
        assert fs.held() > 0
        agents = agents_in(fs.mount.parent)
    await_no_agent(fs, agents, 40)
    fs.clear()
    await_gone(agents)


def two_ranks(path: Path, **options: Any) -> list[Loader]:
    """Each rank reads a lane of its own: four shards."""
    return [loader(path, **WINDOW, rank=rank, world_size=2, **options) for rank in range(2)]


def test_r10_a_slow_reader_keeps_its_own_pace_only(made: Path, fs: FaultFs) -> None:
    with loader(made / "data", **WINDOW, rank=1, world_size=2) as alone:
        steps = alone.repeat()
        mine = [ids(next(steps)) for _ in range(400)]
    slow, fast = two_ranks(fs.mount / "data")
    with slow, fast:
        first = ids(next(iter(slow)))
        steps = fast.repeat()
        seen = [ids(next(steps)) for _ in range(20)]
        before = fast.stats()["agent"]
        began = time.monotonic()
        seen += [ids(next(steps)) for _ in range(380)]
        assert time.monotonic() - began < 60
        after = fast.stats()["agent"]
        # Twenty epochs ahead of a rank that has taken one batch: room is waited for, nothing grows.
        assert after["reserved"] == before["reserved"] and after["rss"] < before["rss"] + 64e6
        waits = {entry["rank"]: entry["waitsFor"] for entry in after["waits"]}
        assert waits[0] == "trainer"
        assert seen == mine
        taken = [ids(batch) for batch in slow]
        assert taken[0] == first
        assert sorted(sum(taken + mine[:20], [])) == list(range(SHARDS * RECORDS))


def test_r10_a_slow_store_slows_down_and_a_stuck_shard_stops_only_its_readers(fs: FaultFs) -> None:
    with loader(fs.mount / "data", **WINDOW, rank=1, world_size=2) as alone:
        mine = [ids(batch) for batch in alone]
    stuck_shard = f"data/{shard(mine[-1][-1] // RECORDS)}"
    fs.fault("read", path=stuck_shard, hold=True)
    for number in range(SHARDS):
        fs.fault("read", path=f"data/{shard(number)}", delay=0.2)
    free, stuck = two_ranks(fs.mount / "data", timeout=3)
    with free, stuck:
        steps = iter(stuck)
        seen, error = take_until_error(steps, 30)
        assert error.code == "ATH_TIMEOUT" and str(fs.mount / stuck_shard) in str(error)
        assert seen == mine[: len(seen)]
        others = [ids(batch) for batch in free]
        assert sorted(sum(others + mine, [])) == list(range(SHARDS * RECORDS))
        fs.clear()
        assert seen + [ids(batch) for batch in steps] == mine


def test_commands_name_what_failed(fs: FaultFs) -> None:
    data, name = fs.mount / "data", f"data/{shard(5)}"
    before = {
        path.name: path.read_bytes() for path in (fs.mount.parent / "real/data/.athanor").iterdir() if path.is_file()
    }
    fs.fault("read", path=name, fails="EIO")
    for words in (["index", str(data), "--rebuild"], ["verify", str(data)], ["cat", str(data)]):
        code, out, error = run(*words)
        assert (code, error["code"], error["file"], error["byteOffset"]) == (
            3,
            "ATH_STORAGE_IO",
            str(fs.mount / name),
            0,
        )
        assert "EIO 3 times" in error["message"]
        if words[0] == "cat":  # what was readable before the fault
            assert [json.loads(line)["id"][0] for line in out.splitlines()] == list(range(5 * RECORDS))
    fs.clear()
    fs.fault("write", fails="ENOSPC")
    code, _, error = run("index", str(data), "--rebuild")
    assert code == 3 and error["code"] == "ATH_INDEX_WRITE" and "ENOSPC" in error["cause"], error
    fs.clear()
    # The old index is whole and in its place, and nothing half lies beside it.
    after = {
        path.name: path.read_bytes() for path in (fs.mount.parent / "real/data/.athanor").iterdir() if path.is_file()
    }
    assert after == before


@pytest.mark.parametrize("by", ["Ctrl-C", "a close that hangs"])
def test_commands_end_though_a_call_hangs(fs: FaultFs, by: str) -> None:
    fs.fault("close" if by == "a close that hangs" else "read", path=f"data/{shard(5)}", hold=True)
    process = subprocess.Popen(command("index", str(fs.mount / "data"), "--rebuild"), stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True)  # fmt: skip
    fs.wait_for_held()
    if by == "Ctrl-C":
        process.send_signal(signal.SIGINT)
    # Gone for its parent, a shell, too, and its pipes are closed: what the kernel keeps is no part of it.
    out, _ = process.communicate(timeout=60)
    assert fs.held() > 0
    assert process.returncode == (-signal.SIGINT if by == "Ctrl-C" else 0)
    if by == "a close that hangs":
        assert json.loads(out)["records"] == SHARDS * RECORDS


@pytest.mark.parametrize("words", ["verify", "inspect", "cat", "plan", "layout show", "doctor", "index"])
def test_ctrl_c_ends_every_command_on_a_mount_that_hangs(fs: FaultFs, words: str) -> None:
    """Whatever it was doing first: all questions about names, and all reads, do not answer."""
    for call in ("stat", "open", "list", "read", "statfs"):
        fs.fault(call, hold=True)
    process = subprocess.Popen(
        command(*words.split(), str(fs.mount / "data")), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    fs.wait_for_held()
    time.sleep(0.5)
    assert not is_dead(process.pid), "it ended by itself: nothing is tested"
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=20) == -signal.SIGINT
    assert fs.held() > 0


@pytest.mark.parametrize("by", [signal.SIGINT, signal.SIGTERM])
def test_an_agent_of_somebody_elses_ends_though_reads_hang(
    fs: FaultFs, monkeypatch: pytest.MonkeyPatch, by: signal.Signals
) -> None:
    """`athanor agent` in the foreground: gone for its supervisor, who may start the next one."""
    monkeypatch.setenv("ATHANOR_AGENT", "external")
    place = fs.mount.parent
    start = command("agent", "--run-dir", str(place))
    keeper = subprocess.Popen(start, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    fs.fault("read", path=f"data/{shard(0)}", hold=True)
    with loader(fs.mount / "data", **HELD, timeout=60) as stuck, ThreadPoolExecutor(1) as pool:
        taken = pool.submit(lambda: [ids(batch) for batch in stuck])
        fs.wait_for_held()
        began = time.monotonic()
        keeper.send_signal(by)
        assert keeper.wait(timeout=30) == 3
        assert time.monotonic() - began < 20 and fs.held() > 0
        assert not (place / "agent.sock").exists()
        following = subprocess.Popen(start, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        fs.wait_for_held(2)
        fs.clear()
        assert sorted(sum(taken.result(30), [])) == list(range(SHARDS * RECORDS))
    following.send_signal(by)
    assert following.wait(timeout=30) == 0


def big_shard(path: Path, records: int) -> int:
    """Records of some 200 KB, 20 or 21 a block. Returns their size."""
    frames = [frame(example({"id": i, "text": "x" * 200_000})) for i in range(2)]
    path.write_bytes(b"".join(frames[i % 2] for i in range(records)))
    return len(frames[0])


def error_of(path: Path, **options: Any) -> str:
    with pytest.raises(athanor.AthanorError) as caught, Loader(path, **options) as faulty:
        for _ in faulty:
            pass
    return caught.value.code


def test_blocks_that_cannot_be_read_are_replaced_on_request(fs: FaultFs, tmp_path: Path) -> None:
    (fs.mount.parent / "real" / "big").mkdir()
    size = big_shard(fs.mount.parent / "real" / "big" / "a.tfrecord", 90)
    big = fs.mount / "big"
    options: dict[str, Any] = {"batch_size": 10, "shuffle": "none", "identities": True, "columns": ["id"], "seed": 3}
    with Loader(big, **options) as healthy:
        assert [int(i) for batch in healthy for i in batch["_record"]] == list(range(90))
    # Bytes of block 1; they fail the read of all blocks together, too.
    middle = 6 << 20
    fs.fault("read", path="big/a.tfrecord", fails="EIO", start=middle, end=middle + 1)
    first, stop = (next(i for i in range(90) if i * size >= block << 22) for block in (1, 2))
    due = [(i - first) % first if first <= i < stop else i for i in range(90)]
    for agent in ("auto", "none"):
        assert error_of(big, agent=agent, **options) == "ATH_STORAGE_IO"
        ledger = tmp_path / agent
        with Loader(big, agent=agent, on_io_error="replace", ledger_dir=ledger, corrupt_quota=50, **options) as lucky:
            found = list(lucky)
            assert [int(i) for batch in found for i in batch["_record"]] == due
            assert [int(i) for batch in found for i in batch["id"]] == [i % 2 for i in due]
            assert lucky.stats()["quarantined"] == stop - first
        entries = read_ledger(str(ledger))
        assert sorted(entry["record"] for entry in entries) == list(range(first, stop))
        for entry in entries:
            assert entry["code"] == "ATH_STORAGE_IO" and entry["byteOffset"] == first * size
            assert entry["replacement"]["record"] == due[entry["record"]]
        # Fewer may be replaced than the block holds.
        few = options | {"on_io_error": "replace", "ledger_dir": tmp_path / "few", "corrupt_quota": 5}
        assert error_of(big, agent=agent, **few) == "ATH_QUARANTINE_QUOTA"
        shutil.rmtree(tmp_path / "few", ignore_errors=True)
    fs.clear()
    with Loader(big, on_io_error="replace", ledger_dir=tmp_path / "mended", **options) as healthy:
        assert [int(i) for batch in healthy for i in batch["_record"]] == list(range(90))
    assert not (tmp_path / "mended").exists()
