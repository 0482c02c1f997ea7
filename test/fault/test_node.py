"""Several jobs, users, versions and namespaces on one node, and shared memory that is full: live, with the real agent.

For each: training goes on with exactly the right samples, or an error comes that names the culprit; nothing is left.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path

import pytest
from conftest import ROOT
from node_rig import BATCH, SAMPLES, Node, Rank, data, ids_of, node, other_user, unshare  # noqa: F401  (fixtures)

EVERY_ID = list(range(SAMPLES))


def whole(node: Node, data: Path, **options: object) -> list[list[int]]:  # noqa: F811
    rank = node.rank(data, **options)
    steps = rank.epoch()
    rank.end()
    return steps


def in_shell(words: list[str], script: str) -> list[str]:
    """A command that runs `script` in its namespaces before what follows."""
    return [*words, "sh", "-c", f'set -e\n{script}\nexec "$@"', "sh"]


# -- two jobs, two users, two versions


def test_two_jobs_do_not_disturb_each_other(node: Node, data: Path) -> None:  # noqa: F811
    jobs = [f"{node.name}-0", f"{node.name}-1"]
    want = [whole(node, data, job=f"{node.name}-2", seed=seed) for seed in (3, 4)]
    first, second = (node.rank(data, job=job, seed=seed) for job, seed in zip(jobs, (3, 4)))
    seen = [[rank.next() for _ in range(5)] for rank in (first, second)]
    agents = [node.agents(job) for job in jobs]
    assert [len(found) for found in agents] == [1, 1] and agents[0] != agents[1]
    first.kill()
    os.kill(agents[0][0], 9)
    assert seen[1] + second.epoch() == want[1] != want[0]
    assert second.tell("stats")["agent_deaths"] == 0
    node.ranks.remove(first)
    node.finish(jobs[1])


def test_same_job_name_of_two_users(node: Node, data: Path) -> None:  # noqa: F811
    user = other_user()
    theirs = {"ATHANOR_TEST_UID": str(user), "ATHANOR_AGENT_JS": node.agent_js()}
    mine, other = node.rank(data), node.rank(data, env=theirs, seed=4)
    steps = [mine.next()], [other.next()]
    agents = node.agents()
    assert sorted(os.stat(f"/proc/{pid}").st_uid for pid in agents) == [0, user]
    for pid in agents:
        if os.stat(f"/proc/{pid}").st_uid == user:
            os.kill(pid, 9)
    for seen, rank in zip(steps, (mine, other)):
        assert sorted(ids_of(seen + rank.epoch())) == EVERY_ID
    assert [rank.tell("stats")["agent_deaths"] for rank in (mine, other)] == [0, 1]
    assert steps[0] != steps[1]
    node.finish()
    assert not Path(f"/dev/shm/athanor-{user}").exists()


def test_the_wrong_user_gets_no_data(node: Node, data: Path) -> None:  # noqa: F811
    """EACCES on run directory, socket and segment, and an error of the loader that says whose the directory is."""
    user = other_user()
    mine = node.rank(data)
    mine.next()
    run_dir = f"/dev/shm/athanor-0/{node.name}"
    segment = next(
        fd for fd in Path(f"/proc/{mine.pid}/fd").iterdir() if os.readlink(fd).startswith("/memfd:athanor-segment")
    )
    program = (
        "import os, socket, sys; os.setgroups([]); os.setgid(int(sys.argv[1])); os.setuid(int(sys.argv[1]))\n"
        "for place in sys.argv[2:]:\n"
        "    try:\n"
        "        if place.endswith('.sock'): socket.socket(socket.AF_UNIX).connect(place)\n"
        "        else: os.listdir(place) if not place[-1].isdigit() else open(place, 'rb')\n"
        "        print('open', place)\n"
        "    except PermissionError: print('EACCES')\n"
    )
    places = [f"{run_dir}/agent.sock", f"{run_dir}/", str(segment)]
    done = subprocess.run(["python3", "-c", program, str(user), *places], capture_output=True, text=True)
    assert done.stdout.split("\n") == ["EACCES"] * 3 + [""], done
    theirs = {"ATHANOR_TEST_UID": str(user), "ATHANOR_AGENT_JS": node.agent_js(), "ATHANOR_RUN_DIR": run_dir}
    told = node.rank(data, env=theirs).tell("next")
    assert told["error"] == "ATH_RUN_DIR" and "Permission denied" in told["text"] and told["file"] == run_dir
    # The name of their folder taken by somebody else: an error that names both, not another place.
    taken = Path(f"/dev/shm/athanor-{user}")
    taken.mkdir(mode=0o777)
    try:
        del theirs["ATHANOR_RUN_DIR"]
        told = node.rank(data, env=theirs).tell("next")
        assert told["error"] == "ATH_RUN_DIR" and told["file"] == str(taken)
        assert f"directory of user {user} with mode 0700, found owner 0" in told["text"]
    finally:
        taken.rmdir()
    node.finish()


def test_permission_lost_between_epochs(node: Node, data: Path) -> None:  # noqa: F811
    user = other_user()
    copy = Path(shutil.copytree(data, data.parent / "lost"))
    theirs = {"ATHANOR_TEST_UID": str(user), "ATHANOR_AGENT_JS": node.agent_js()}
    rank = node.rank(copy, env=theirs, shuffle_memory=1, window=20, lanes=1)
    assert sorted(ids_of(rank.epoch())) == EVERY_ID
    (agent,) = node.agents()
    (copy / "s2.tfrecord").chmod(0)
    os.kill(agent, 9)  # a new one has no shard open
    seen = []
    while "ids" in (told := rank.tell("next")):
        seen += ids_of([told["ids"]])
    assert told["error"] == "ATH_ACCESS_DENIED" and told["file"] == str(copy / "s2.tfrecord"), told
    (copy / "s2.tfrecord").chmod(0o644)
    assert sorted(seen + ids_of(rank.epoch())) == EVERY_ID
    node.finish()


def another_version(folder: Path) -> dict[str, str]:
    """Client and agent of the next protocol."""
    shutil.copytree(ROOT / "python/src/athanor", folder / "athanor", ignore=shutil.ignore_patterns("_agent", "*.pyc"))
    for name, text in (
        (ROOT / "dist" / "agent.js", r'(protocol"?: ?)1,'),
        (folder / "athanor" / "_layout.json", r'("protocol": )1,'),
    ):
        changed, count = re.subn(text, r"\g<1>2,", name.read_text())
        assert count == 1, f"{name} names its protocol {count} times"
        (folder / name.name if name.suffix == ".js" else name).write_text(changed)
    for part in ("agent-io.js", "agent-decode.js", "kernels.wasm"):
        shutil.copy(ROOT / "dist" / part, folder)
    return {"PYTHONPATH": str(folder), "ATHANOR_AGENT_JS": str(folder / "agent.js")}


def test_two_versions_side_by_side(node: Node, data: Path) -> None:  # noqa: F811
    newer = another_version(node.folder)
    jobs = [f"{node.name}-0", f"{node.name}-1"]
    old, new = node.rank(data, job=jobs[0]), node.rank(data, job=jobs[1], env=newer)
    seen = [old.next(), new.next()]
    # Each meets the other's agent under its job name: refused before any batch, with both named.
    for job, env in ((jobs[0], newer), (jobs[1], {})):
        told = node.rank(data, job=job, env=env).tell("next")
        assert (
            told["error"] == "ATH_PROTOCOL_MISMATCH" and "protocol 1" in told["text"] and "protocol 2" in told["text"]
        )
    assert [seen[0], *old.epoch()] == [seen[1], *new.epoch()]
    node.finish(*jobs)


# -- namespaces


def private_memory(kind: str) -> str:
    if kind == "/dev/shm":
        return "mount -t tmpfs -o mode=1777 tmpfs /dev/shm"
    # The fallback: no /dev/shm to write to, and a /tmp of one's own (what is in it here stays in sight).
    mine = f"/tmp/athanor-{os.getuid()}"
    return f"mount -t tmpfs -o ro tmpfs /dev/shm; mkdir -pm 700 {mine}; mount -t tmpfs -o mode=0700 tmpfs {mine}"


def two_ranks(node: Node, data: Path, before: Iterable[str] = (), alone: str = "500ms") -> list[Rank]:  # noqa: F811
    """As a launcher starts them; their agent soon says who is missing."""
    impatient = node.node_with(options=f"--alone {alone}")
    return [
        node.rank(
            data,
            before,
            env={
                "ATHANOR_NODE": impatient,
                **{"RANK": f"{rank}", "WORLD_SIZE": "2", "LOCAL_RANK": f"{rank}", "LOCAL_WORLD_SIZE": "2"},
            },
        )
        for rank in range(2)
    ]


@pytest.mark.parametrize("kind", ["/dev/shm", "/tmp"])
def test_ranks_that_do_not_see_each_other_are_told(node: Node, data: Path, kind: str) -> None:  # noqa: F811
    before = in_shell(unshare("-m"), private_memory(kind))
    ranks = two_ranks(node, data, before)
    seen = [rank.next() for rank in ranks]
    assert len(node.agents()) == 2
    time.sleep(0.8)
    for number, rank in enumerate(ranks):
        assert rank.tell("stats")["agent_deaths"] == 0
        (line,) = [line for line in rank.errors().splitlines() if "have not come" in line]
        assert f"1 of the 2 ranks of this node have not come to this agent: {1 - number}." in line
        assert f"{kind}/athanor-{os.getuid()}/{node.name}" in line and "ATHANOR_RUN_DIR" in line
    rest = [rank.epoch() for rank in ranks]
    assert sorted(ids_of(seen + rest[0] + rest[1])) == EVERY_ID
    node.finish()


def test_ranks_that_see_each_other_are_told_nothing(node: Node, data: Path) -> None:  # noqa: F811
    ranks = two_ranks(node, data, alone="2s")
    for rank in ranks:
        rank.ask("next")  # both at once: their first batches are no measure of a busy machine
    for rank in ranks:
        assert "ids" in rank.answer()
    time.sleep(2.3)
    for rank in ranks:
        rank.tell("stats")
        assert rank.errors() == ""
    node.finish()


class ExternalAgent:
    """`athanor agent` in a pid namespace of its own; clients come from outside."""

    def __init__(self, node: Node, run_dir: Path, words: list[str]) -> None:  # noqa: F811
        command = [*words, "node", str(ROOT / "dist" / "agent.js"), "--run-dir", str(run_dir), "--job", node.name]
        self.process = subprocess.Popen([*command, "--grace", "300ms"], env=node.environment)
        node.others.append(self.process)
        self.run_dir = run_dir
        self.env = {"ATHANOR_RUN_DIR": str(run_dir), "ATHANOR_AGENT": "external"}
        end = time.monotonic() + 20
        while not (run_dir / "agent.sock").exists():
            assert time.monotonic() < end and self.process.poll() is None
            time.sleep(0.01)

    def segments(self) -> list[Path]:
        return sorted(self.run_dir.glob("seg-*"))


def test_agent_in_a_pid_namespace_of_its_own(node: Node, data: Path) -> None:  # noqa: F811
    """/proc/PID/fd/N of the client is somebody else there: the segment gets a name for as long as it is in use."""
    words = unshare("-p", "-f", "--mount-proc", "--kill-child")
    run_dir = node.folder / "run"
    run_dir.mkdir(mode=0o700)
    agent = ExternalAgent(node, run_dir, words)
    ranks = [node.rank(data, env=agent.env, rank=r, world_size=2) for r in range(2)]
    seen = [rank.next() for rank in ranks]
    assert len(agent.segments()) == 2 and {path.stat().st_mode & 0o777 for path in agent.segments()} == {0o600}
    ranks[1].kill()  # its file stays; the next one sweeps it
    back = node.rank(data, env=agent.env, rank=1, world_size=2)
    assert back.next() == seen[1]
    assert len(agent.segments()) == 2
    assert sorted(ids_of(seen + ranks[0].epoch() + back.epoch())) == EVERY_ID
    for rank in (ranks[0], back):
        rank.end()
    assert agent.process.wait(timeout=10) == 0
    assert list(run_dir.iterdir()) == []


def test_everything_in_a_pid_namespace(node: Node, data: Path) -> None:  # noqa: F811
    """A container: the rank starts its agent inside, and both go with the namespace; the next job sweeps."""
    words = unshare("-p", "-f", "--mount-proc", "--kill-child")
    job = f"{node.name}-0"
    rank = node.rank(data, words, job=job)
    assert sorted(ids_of(rank.epoch())) == EVERY_ID
    assert "error" not in rank.tell("stats")
    rank.process.kill()  # unshare; the kernel ends all that is in the namespace
    rank.process.wait()
    left = Path(f"/dev/shm/athanor-{os.getuid()}/{job}")
    end = time.monotonic() + 20
    while node.agents(job):
        assert time.monotonic() < end
        time.sleep(0.05)
    assert (left / "agent.sock").exists()
    os.utime(left, (time.time() - 60,) * 2)
    node.ranks.remove(rank)
    after = node.rank(data)
    after.next()
    assert not left.exists()
    node.finish(node.name, job)


# -- shared memory that is full

FILL = "dd if=/dev/zero of=/dev/shm/fill bs=4k 2>/dev/null || true"


@pytest.mark.parametrize("what", ["bytes", "files"])
def test_full_shared_memory_at_the_start(node: Node, data: Path, what: str) -> None:  # noqa: F811
    """Batches go through memfds, which no mount limits: a full /dev/shm holds no run directory, /tmp does."""
    small = "mount -t tmpfs -o mode=1777,size=1m,nr_inodes=9 tmpfs /dev/shm; "
    fill = (
        FILL
        if what == "bytes"
        else "touch /dev/shm/1 /dev/shm/2 /dev/shm/3 /dev/shm/4 /dev/shm/5 /dev/shm/6 /dev/shm/7 /dev/shm/8 || true"
    )
    rank = node.rank(data, in_shell(unshare("-m"), small + fill))
    assert sorted(ids_of(rank.epoch())) == EVERY_ID
    assert Path(f"/tmp/athanor-{os.getuid()}/{node.name}").exists() == (what == "files")
    assert rank.errors() == ""
    node.finish()


def fill(path: Path) -> None:
    """Until nothing goes in any more."""
    with pytest.raises(OSError, match="No space"), path.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))


def test_named_segments_and_shared_memory_that_is_full(node: Node, data: Path) -> None:  # noqa: F811
    """Full at the start: an error with place, size, free and need. Full later: nothing happens, all was reserved."""
    run_dir = node.folder / "run"
    run_dir.mkdir(mode=0o700)
    words = unshare("-m", "-p", "-f", "--mount-proc", "--kill-child")
    # A mount that this test makes and takes away again, for agent and clients alike.
    subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=0700,size=256k", "tmpfs", str(run_dir)], check=True)
    try:
        agent = ExternalAgent(node, run_dir, words)
        fill(run_dir / "fill")
        os.truncate(run_dir / "fill", (run_dir / "fill").stat().st_size - 4096)
        rank = node.rank(data, env=agent.env)
        told = rank.tell("next")
        assert told["error"] == "ATH_SHM_FULL", told
        found = re.search(
            rf"reserve (\d+) bytes.*; {re.escape(str(run_dir))} has (\d+) free of 262144 bytes", told["text"]
        )
        assert found is not None and int(found[1]) > int(found[2]), told
        assert agent.segments() == []
        (run_dir / "fill").unlink()
        seen = [rank.next()]
        fill(run_dir / "fill")
        for _ in range(3):  # all slots are written again and again
            seen += rank.epoch()
        assert sorted(ids_of(seen)) == sorted(EVERY_ID * 3)
        assert rank.tell("stats")["agent_deaths"] == 0
        rank.end()
        assert agent.process.wait(timeout=10) == 0
        assert [path.name for path in run_dir.iterdir()] == ["fill"]
    finally:
        subprocess.run(["umount", "-l", str(run_dir)], check=True)


def test_memory_for_a_segment_that_is_refused(node: Node, data: Path) -> None:  # noqa: F811
    before = ["prlimit", "--fsize=8000", "--"]
    if shutil.which("prlimit") is None:
        pytest.skip("skipped: no prlimit (util-linux)")
    told = node.rank(data, before).tell("next")
    assert told["error"] == "ATH_SHM_FULL" and re.search(r"reserve \d+ bytes", told["text"]), told
    node.finish()


# -- a pinned rank, and clocks


def test_a_pinned_rank_does_not_pin_the_agent(node: Node, data: Path) -> None:  # noqa: F811
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        pytest.skip("skipped: one core")
    rank = node.rank(data, ["taskset", "-c", str(cores[0])])
    rank.next()
    (agent,) = node.agents()
    assert os.sched_getaffinity(rank.pid) == {cores[0]}
    for thread in Path(f"/proc/{agent}/task").iterdir():
        allowed = re.search(r"Cpus_allowed_list:\s*(\S+)", (thread / "status").read_text())
        assert allowed is not None and os.sched_getaffinity(int(thread.name)) >= set(cores), allowed
    node.finish()


def test_clocks_that_leap(node: Node, data: Path) -> None:  # noqa: F811
    """Wall clocks of agent and rank leap by a day with every look: order, waits and counters do not mind."""
    want = whole(node, data, job=f"{node.name}-2", shuffle_memory=1, window=20)
    script = node.folder / "leap.mjs"
    script.write_text("const real = Date.now; let sign = 1; Date.now = () => real() + (sign = -sign) * 86400e3;\n")
    env = {"ATHANOR_NODE": node.node_with(f"--import {script}"), "ATHANOR_TEST_CLOCK": "86400"}
    rank = node.rank(data, env=env, shuffle_memory=1, window=20, proof_dir=str(node.folder / "proof"))
    assert rank.epoch() == want
    stats = rank.tell("stats")
    assert 0 <= stats["agent"]["uptimeMs"] < 60_000 and 0 <= stats["stall_s"] < 60
    assert all(0 <= entry["seconds"] < 60 for entry in stats["agent"]["waits"])
    assert rank.errors() == ""
    node.finish()


def test_monotonic_clocks_that_differ(node: Node, data: Path) -> None:  # noqa: F811
    """A restored container: the agent's monotonic clock is 12 days ahead of the rank's."""
    ahead = unshare("-T", "--fork", "--monotonic", "1000000", "--boottime", "1000000")
    run_dir = node.folder / "run"
    run_dir.mkdir(mode=0o700)
    agent = ExternalAgent(node, run_dir, ahead)
    rank = node.rank(data, env=agent.env)
    assert sorted(ids_of(rank.epoch())) == EVERY_ID
    stats = rank.tell("stats")
    assert 0 <= stats["agent"]["uptimeMs"] < 60_000
    rank.end()
    assert agent.process.wait(timeout=10) == 0
