"""Run directories that killed agents left behind: whoever starts an agent removes those of this user.

Only what is provably dead goes: its `spawn.lock` can be had, nobody listens on its socket, and nothing was made or
removed there for ten seconds (between the bind and the listen of an agent its socket refuses, too). A log that a person
should read stays, as it does when an agent leaves by itself. Directories without a `spawn.lock`, which are those of
agents that somebody else starts, are never touched.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import socket
import time

from . import _rundir, _segment

_QUIET_S = 10.0
# What an agent writes in any case; the mark `WARNING` and whatever else stands there is for a person.
_ROUTINE = re.compile(rb"\d{4}-[\dT:.-]+Z (?!WARNING )")


def sweep(keep: str) -> list[str]:
    """Removes dead run directories of this user, save `keep`. Returns them."""
    removed = []
    for base in _rundir.BASES:
        user = f"{base}/athanor-{os.getuid()}"
        with contextlib.suppress(OSError):  # gone, or not ours to judge
            if _rundir.is_ours(user):
                folders = [entry.path for entry in os.scandir(user) if entry.is_dir(follow_symlinks=False)]
                removed += [folder for folder in folders if folder != keep and _remove(folder)]
    return removed


def _remove(folder: str) -> bool:
    name = os.path.join(folder, "spawn.lock")
    try:
        lock = os.open(name, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        if abs(time.time() - os.stat(folder).st_mtime) < _QUIET_S:
            return False
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path = os.path.join(folder, "agent.sock")
        # The lock may have gone with an agent that left, and be another's by now.
        if os.stat(name).st_ino != os.fstat(lock).st_ino or _listens(path):
            return False
        _segment.sweep(folder)
        gone = [path, name]
        log = os.path.join(folder, "agent.log")
        if not _tells_something(log):
            gone.append(log)
        for each in gone:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(each)
        os.rmdir(folder)
        return True
    except OSError:
        return False  # held, gone, or a log or segment that stays
    finally:
        os.close(lock)


def _listens(path: str) -> bool:
    """Also true where that cannot be told, and for an agent that is stopped: its queue takes connections."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as peer:
        peer.setblocking(False)
        try:
            peer.connect(path)
        except (FileNotFoundError, ConnectionRefusedError):
            return False
        except OSError:
            pass
    return True


def _tells_something(log: str) -> bool:
    try:
        with open(log, "rb") as file:
            return not all(_ROUTINE.match(line) for line in file)
    except FileNotFoundError:
        return False
