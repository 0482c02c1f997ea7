from __future__ import annotations

import os
import socket
import stat
import threading
import time
from pathlib import Path

import pytest

from athanor import AthanorError, _rundir, _spawn
from conftest import agents_in

Monkey = pytest.MonkeyPatch


def test_job_ids_in_the_order_of_the_design() -> None:
    env = {"MASTER_ADDR": "node1", "MASTER_PORT": "29500"}
    assert _rundir.job_id(env) == "master-node1-29500"
    env["TORCHELASTIC_RUN_ID"] = "none"  # torchrun's default: the same for every job
    assert _rundir.job_id(env) == "master-node1-29500"
    env["TORCHELASTIC_RUN_ID"] = "r7"
    assert _rundir.job_id(env) == "elastic-r7"
    env.update(SLURM_JOB_ID="12", SLURM_STEP_ID="0")
    assert _rundir.job_id(env) == "slurm-12.0"
    env["ATHANOR_JOB_ID"] = "mine"
    assert _rundir.job_id(env) == "mine"
    assert _rundir.job_id({}).startswith(f"pid-{os.getppid()}-")
    odd = [_rundir.job_id({"ATHANOR_JOB_ID": name}) for name in ("a/b", "a_b", "../x", "x" * 300, "x" * 301)]
    assert len(set(odd)) == 5 and all("/" not in name and len(name) <= 48 and name[0] != "." for name in odd)


def test_run_dir_is_ours_alone(tmp_path: Path) -> None:
    path = _rundir.run_dir("j", {"ATHANOR_RUN_DIR": str(tmp_path / "r")})
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o700
    os.chmod(path, 0o755)
    with pytest.raises(AthanorError, match=r"mode 0700, found owner .* mode drwxr-xr-x") as caught:
        _rundir.run_dir("j", {"ATHANOR_RUN_DIR": path})
    assert caught.value.code == "ATH_RUN_DIR"
    os.symlink(tmp_path, tmp_path / "link")
    with pytest.raises(AthanorError, match="must be a directory"):
        _rundir.run_dir("j", {"ATHANOR_RUN_DIR": str(tmp_path / "link")})
    with pytest.raises(AthanorError, match="the kernel takes 107"):
        _rundir.run_dir("j", {"ATHANOR_RUN_DIR": str(tmp_path / ("n" * 100))})
    with pytest.raises(AthanorError, match="No such file"):
        _rundir.run_dir("j", {"ATHANOR_RUN_DIR": str(tmp_path / "no" / "where")})


def test_run_dir_on_a_network_file_system_is_refused(tmp_path: Path, monkeypatch: Monkey) -> None:
    assert _rundir.filesystem_of("/proc/self") == "proc"
    monkeypatch.setattr(_rundir, "filesystem_of", lambda path: "lustre")
    with pytest.raises(AthanorError, match=r"network file system \(lustre\)"):
        _rundir.run_dir("j", {"ATHANOR_RUN_DIR": str(tmp_path / "r")})


def test_default_run_dir() -> None:
    path = _rundir.run_dir("athanor-test-job", {})
    assert path == f"/dev/shm/athanor-{os.getuid()}/athanor-test-job"
    os.rmdir(path)


def test_environment_is_cleaned() -> None:
    env = {"LD_PRELOAD": "x", "CUDA_VISIBLE_DEVICES": "0", "OMP_NUM_THREADS": "1", "OMP_PROC_BIND": "1", "HOME": "/h"}
    assert _spawn.clean_environment(env) == {"HOME": "/h", "UV_THREADPOOL_SIZE": "4"}


def test_node_is_looked_for_and_its_age_checked(tmp_path: Path, monkeypatch: Monkey) -> None:
    monkeypatch.delenv("ATHANOR_NODE", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(AthanorError, match="no `node` on PATH") as caught:
        _spawn.find_node()
    assert caught.value.code == "ATH_NODE"
    node = tmp_path / "node"
    node.write_text("#!/bin/sh\necho v18.20.4\n")
    node.chmod(0o755)
    with pytest.raises(AthanorError, match=r"found v18\.20\.4, needed 20\.19"):
        _spawn.find_node()


def test_a_kill_while_the_version_is_asked_for_is_not_an_old_node(tmp_path: Path, monkeypatch: Monkey) -> None:
    node, asked = tmp_path / "node", tmp_path / "asked"
    node.write_text(f"#!/bin/sh\n[ -e {asked} ] && echo v22.1.0 && exit\ntouch {asked}\nkill -TERM $$\n")
    node.chmod(0o755)
    monkeypatch.setenv("ATHANOR_NODE", str(node))
    assert _spawn.find_node() == str(node)
    assert asked.exists()
    node.write_text("#!/bin/sh\necho 'no such library' >&2\nexit 127\n")
    with pytest.raises(AthanorError, match="ended with 127 and no version: no such library"):
        _spawn.find_node()


def test_agent_is_looked_for(tmp_path: Path, monkeypatch: Monkey) -> None:
    monkeypatch.setenv("ATHANOR_AGENT_JS", str(tmp_path / "none.js"))
    with pytest.raises(AthanorError, match=r"none\.js.*npm run setup") as caught:
        _spawn.find_agent()
    assert caught.value.code == "ATH_AGENT_JS"


def test_one_agent_for_many_ranks_and_a_stale_socket(fake: Path) -> None:
    stale = socket.socket(socket.AF_UNIX)
    stale.bind(str(fake / "agent.sock"))
    stale.close()
    peers: list[socket.socket] = []
    threads = [
        threading.Thread(target=lambda: peers.append(_spawn.connect(str(fake), "j", "auto", 20))) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(peers) == 8 and len(agents_in(fake)) == 1
    for peer in peers:
        peer.close()


def test_agent_is_free_of_this_process(fake: Path, monkeypatch: Monkey) -> None:
    pinned = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(pinned)})
    leak = os.open("/dev/null", os.O_RDONLY)
    os.set_inheritable(leak, True)
    try:
        _spawn.connect(str(fake), "j", "auto", 20).close()
        assert os.sched_getaffinity(0) == {min(pinned)}
    finally:
        os.sched_setaffinity(0, pinned)
        os.close(leak)
    (agent,) = agents_in(fake)
    assert os.sched_getaffinity(agent) >= pinned
    assert os.getsid(agent) == agent
    assert stat.S_IMODE(os.stat(fake / "agent.log").st_mode) == 0o600
    links = {os.readlink(f"/proc/{agent}/fd/{fd}") for fd in (0, 1, 2)}
    assert links == {"/dev/null", str(fake / "agent.log")}
    assert not os.path.exists(f"/proc/{agent}/fd/{leak}") or os.readlink(f"/proc/{agent}/fd/{leak}") != "/dev/null"


def test_agent_that_never_listens(fake: Path, monkeypatch: Monkey) -> None:
    (fake / "node").write_text('#!/bin/sh\n[ "$1" = --version ] && echo v20.19.0 && exit 0\necho busy; exec sleep 60\n')
    monkeypatch.setattr(_spawn, "START_TIMEOUT", 0.5)
    began = time.monotonic()
    with pytest.raises(AthanorError, match=r"did not listen.*\nbusy"):
        _spawn.connect(str(fake), "j", "auto", 20)
    assert time.monotonic() - began < 10


@pytest.mark.parametrize("deaths", [2, 3])
def test_agent_ended_at_its_start_is_started_again(fake: Path, monkeypatch: Monkey, deaths: int) -> None:
    node = fake / "node"
    head, exec_line = node.read_text().rstrip().rsplit("\n", 1)
    count = fake / "count"
    # The first deaths end by SIGKILL, the second with exit code 0, as after SIGTERM.
    node.write_text(
        f'{head}\necho x >> "{count}"\nn=$(wc -l < "{count}")\n[ $n -gt {deaths} ] || [ $n -eq 2 ] || kill -9 $$\n'
        f"[ $n -gt {deaths} ] || exit 0\n{exec_line}\n"
    )
    if deaths == 2:
        _spawn.connect(str(fake), "j", "auto", 20).close()
    else:
        with pytest.raises(AthanorError, match="ended at its start") as caught:
            _spawn.connect(str(fake), "j", "auto", 20)
        assert caught.value.code == "ATH_AGENT_START"
    assert count.read_text() == "x\n" * 3


def test_run_directories_that_a_leaving_agent_took_are_made_again_for_us_alone(fake: Path) -> None:
    run_dir = fake / "user" / "job"
    _spawn.connect(str(run_dir), "j", "auto", 20).close()
    assert [stat.S_IMODE(path.stat().st_mode) for path in (run_dir.parent, run_dir)] == [0o700, 0o700]
