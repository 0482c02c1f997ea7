"""Connecting to the agent of this node, and starting it where there is none (design §4.6).

ATHANOR_AGENT=auto (default): the first local rank that finds no agent starts one under a lock. `external`: wait for
one that somebody else starts. The agent is `node agent.js`; node is ATHANOR_NODE or on PATH (20.19 or later), agent.js
is ATHANOR_AGENT_JS, or the one in this package, or that of a repository checkout, or beside `athanor` on PATH.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import os
import re
import shutil
import socket
import struct
import subprocess
import time
from pathlib import Path

from . import _sweep
from .errors import AthanorError

NODE_NEEDED = (20, 19)
# Node and its bundle may come from a home directory on Lustre; a healthy start takes 0.2 s.
START_TIMEOUT = 60.0
_CONNECT_TIMEOUT = 10.0
# An agent that a signal ended before it listened is started again; one that something ends each time is an error.
_STARTS = 3

# Agents started by this process. They are polled so that a dead one leaves no zombie.
_children: list[subprocess.Popen[bytes]] = []


class _Ended(Exception):
    """The agent that was being started was ended from outside."""

    def __init__(self, error: AthanorError) -> None:
        super().__init__(str(error))
        self.error = error


def connect(run_dir: str, job: str, mode: str, timeout: float) -> socket.socket:
    """A control connection; starts the agent when `mode` is "auto" and none answers. `timeout` in seconds."""
    end = time.monotonic() + timeout
    path = os.path.join(run_dir, "agent.sock")
    ended = 0
    while True:
        reap()
        found = try_connect(path)
        if found is not None:
            return found
        if mode == "auto":
            try:
                found = _spawn_locked(run_dir, job, path, min(end, time.monotonic() + START_TIMEOUT))
            except _Ended as gone:
                ended += 1
                if ended == _STARTS:
                    raise gone.error from None
                continue
            if found is not None:
                return found
        if time.monotonic() > end:
            tidy(run_dir)
            raise AthanorError(
                "ATH_AGENT_START",
                f"no agent answered within {timeout:.0f} s",
                file=path,
                remedy="start one with `athanor agent`, or unset ATHANOR_AGENT=external"
                if mode == "external"
                else "read agent.log beside the socket",
            )
        time.sleep(0.01)


def try_connect(path: str) -> socket.socket | None:
    """None when nobody listens there. An agent that is there and busy is waited for: its socket must not be removed."""
    end = time.monotonic() + _CONNECT_TIMEOUT
    while True:
        peer = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        peer.setblocking(False)
        try:
            peer.connect(path)
        except (FileNotFoundError, ConnectionRefusedError, ConnectionResetError):
            peer.close()
            return None
        except OSError as error:
            peer.close()
            if isinstance(error, BlockingIOError) and time.monotonic() < end:
                time.sleep(0.01)  # its queue of connections is full
                continue
            raise AthanorError(
                "ATH_AGENT_START",
                f"cannot connect to the agent: {error.strerror}",
                file=path,
                remedy="the agent hangs or the socket is not ours: end that process, or set ATHANOR_RUN_DIR",
            ) from error
        if is_dead(peer):
            peer.close()
            return None
        return peer


def peer_pid(peer: socket.socket) -> int:
    """The process that listens at the other end; 0 when it is in a pid namespace that cannot be seen from here."""
    return int(struct.unpack("3i", peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0])


def is_dead(peer: socket.socket) -> bool:
    """Was the agent killed, though its socket takes connections? A thread of it in an uninterruptible call, as a read
    of a lost Lustre target is, keeps all its descriptors open until that returns."""
    try:
        with open(f"/proc/{peer_pid(peer)}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return False


def reap() -> None:
    _children[:] = [child for child in _children if child.poll() is None]


@atexit.register
def _let_go() -> None:
    """The agent outlives this process, which Popen would warn about."""
    for child in _children:
        child.returncode = 0


def log_tail(run_dir: str, start: int = 0, limit: int = 2000) -> str:
    """The end of agent.log from byte `start` on; "" when there is none."""
    try:
        with open(os.path.join(run_dir, "agent.log"), "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(start, size - limit))
            return file.read().decode("utf-8", "replace").strip()
    except OSError:
        return ""


def _spawn_locked(run_dir: str, job: str, path: str, end: float) -> socket.socket | None:
    """Starts the agent unless another rank is doing so; then None, and the caller looks again."""
    name = os.path.join(run_dir, "spawn.lock")
    try:
        lock = os.open(name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except FileNotFoundError:  # an agent that left took the run directory with it
        for folder in (os.path.dirname(run_dir), run_dir):  # makedirs would give the mode to the last one only
            with contextlib.suppress(FileExistsError):
                os.mkdir(folder, 0o700)
        return None
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.stat(name).st_ino != os.fstat(lock).st_ino:
                return None
        except (BlockingIOError, FileNotFoundError):
            return None  # held by another rank, or removed by an agent that left
        found = try_connect(path)  # the one who held the lock before may have started it
        if found is not None:
            return found
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)  # nobody answers on it, and nobody but the lock's holder makes one
        log_start = _log_size(run_dir)
        began = time.monotonic()
        try:
            child = start(run_dir, job)
        except FileNotFoundError:
            return None  # an agent that left took the run directory with it
        while time.monotonic() < end:
            found = try_connect(path)
            if found is not None:
                _sweep.sweep(run_dir)
                return found
            if child.poll() is not None:
                found = try_connect(path)
                if found is not None:
                    return found  # another one was quicker
                error = _start_error(run_dir, log_start, f"the agent ended at its start (exit code {child.returncode})")
                if child.returncode <= 0:  # 0: it leaves on SIGTERM; a fault of its own has another code
                    raise _Ended(error)
                raise error
            time.sleep(0.005)
        child.kill()
        child.wait()
        raise _start_error(run_dir, log_start, f"the agent did not listen within {time.monotonic() - began:.1f} s")
    except AthanorError:
        with contextlib.suppress(OSError):
            os.unlink(name)  # we hold it: nothing of a start that failed stays, save a log that says why
        tidy(run_dir)
        raise
    finally:
        os.close(lock)


def tidy(run_dir: str) -> None:
    """Removes a run directory that holds nothing, and the user's folder of run directories if that was the last."""
    parent = os.path.dirname(run_dir)
    if os.path.basename(parent) == f"athanor-{os.getuid()}":
        with contextlib.suppress(OSError):
            os.rmdir(run_dir)
            os.rmdir(parent)


def start(run_dir: str, job: str) -> subprocess.Popen[bytes]:
    """Starts an agent that outlives this process group: own session, own log, no descriptors of ours."""
    command = [find_node(), find_agent(), "--run-dir", run_dir, "--job", job]
    for name, flag in (("ATHANOR_AGENT_GRACE", "--grace"), ("ATHANOR_AGENT_MEMORY", "--memory")):
        if os.environ.get(name):
            command.append(f"{flag}={os.environ[name]}")  # -5 alone would be read as a flag
    log = os.open(os.path.join(run_dir, "agent.log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    pinned = os.sched_getaffinity(0)
    try:
        # A rank is often pinned to few cores; the child inherits the mask of this thread. The kernel cuts what we ask
        # for down to the job's cpuset.
        with contextlib.suppress(OSError):  # forbidden by a sandbox: the agent then keeps the rank's mask
            os.sched_setaffinity(0, range(max(os.cpu_count() or 1, os.sysconf("SC_NPROCESSORS_CONF"))))
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            close_fds=True,
            start_new_session=True,
            cwd="/",
            env=clean_environment(dict(os.environ)),
        )
    except OSError as error:
        raise AthanorError(
            "ATH_AGENT_START",
            f"cannot start the agent: {error.strerror}",
            file=command[0],
            remedy="set ATHANOR_NODE to a Node.js of version 20.19 or later",
        ) from error
    finally:
        with contextlib.suppress(OSError):
            os.sched_setaffinity(0, pinned)
        os.close(log)
    _children.append(child)
    return child


def clean_environment(env: dict[str, str]) -> dict[str, str]:
    """Without what is meant for the training process only; libuv's pool is for file calls, four threads are enough."""
    for name in list(env):
        if name in ("LD_PRELOAD", "CUDA_VISIBLE_DEVICES") or name.startswith("OMP_"):
            del env[name]
    env["UV_THREADPOOL_SIZE"] = "4"
    return env


def find_node() -> str:
    """Path of a Node.js that is new enough. Raises ATH_NODE."""
    needed = ".".join(str(part) for part in NODE_NEEDED)
    remedy = f"install Node.js {needed} or later and put it on PATH, or set ATHANOR_NODE"
    node = os.environ.get("ATHANOR_NODE") or shutil.which("node")
    if node is None:
        raise AthanorError("ATH_NODE", "the agent needs Node.js, and there is no `node` on PATH", remedy=remedy)
    try:
        for _ in range(3):  # what ends agents may end this too, which says nothing about the version
            asked = subprocess.run([node, "--version"], capture_output=True, text=True, timeout=30, check=False)
            if asked.returncode >= 0:
                break
    except (OSError, subprocess.TimeoutExpired) as error:
        raise AthanorError("ATH_NODE", f"`node --version` failed: {error}", file=node, remedy=remedy) from error
    match = re.match(r"v(\d+)\.(\d+)\.", asked.stdout)
    if match is None:
        told = (asked.stderr or asked.stdout).strip()[-200:] or "no output"
        what = f"`node --version` ended with {asked.returncode} and no version: {told}"
        raise AthanorError("ATH_NODE", what, file=node, remedy=remedy)
    if (int(match.group(1)), int(match.group(2))) < NODE_NEEDED:
        what = f"Node.js is too old: found {asked.stdout.strip()}, needed {needed}"
        raise AthanorError("ATH_NODE", what, file=node, remedy=remedy)
    return node


def find_agent() -> str:
    """Path of agent.js. Raises ATH_AGENT_JS."""
    explicit = os.environ.get("ATHANOR_AGENT_JS")
    here = Path(__file__).resolve().parent
    candidates = (
        [Path(explicit).absolute()]
        if explicit
        else [
            here.parents[2] / "dist" / "agent.js",  # python/src/athanor in a checkout
            here / "_agent" / "agent.js",  # an installed wheel
        ]
    )
    command = None if explicit else shutil.which("athanor")
    if command is not None:
        # The command is …/bin/athanor.mjs of the npm package.
        candidates.append(Path(command).resolve().parents[1] / "dist" / "agent.js")
    for candidate in candidates:
        if candidate.is_file():
            return str(candidate)
    raise AthanorError(
        "ATH_AGENT_JS",
        f"the agent was not found; looked at {', '.join(str(c) for c in candidates)}",
        remedy="run `npm run setup` in the checkout (before `pip install ./python`), install the npm package "
        "`athanor`, or set ATHANOR_AGENT_JS",
    )


def _log_size(run_dir: str) -> int:
    try:
        return os.stat(os.path.join(run_dir, "agent.log")).st_size
    except FileNotFoundError:
        return 0


def _start_error(run_dir: str, log_start: int, what: str) -> AthanorError:
    tail = log_tail(run_dir, log_start)
    try:
        room = os.statvfs(run_dir)
        full = room.f_bavail == 0 or (room.f_files > 0 and room.f_favail == 0)
    except OSError:
        full = False
    if full:
        return AthanorError(
            "ATH_RUN_DIR",
            f"the file system of the run directory is full ({what})",
            file=run_dir,
            remedy="free some of it (in a pod: raise the size of /dev/shm), or set ATHANOR_RUN_DIR to a local disk",
        )
    return AthanorError(
        "ATH_AGENT_START",
        f"{what}; end of its log:\n{tail}" if tail else what,
        file=os.path.join(run_dir, "agent.log"),
        remedy="the log says why; ATHANOR_POLITE or ATHANOR_AGENT_… may be wrong, or Node.js broken",
    )
