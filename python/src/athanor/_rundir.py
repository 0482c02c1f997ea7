"""The run directory: where the agent of a job listens on this node (design §4.6).

    $ATHANOR_RUN_DIR, else /dev/shm/athanor-UID/JOB, else /tmp/athanor-UID/JOB     mode 0700, ours, on a local disk
        agent.sock   agent.log   spawn.lock   seg-…   (named segments, only where a memfd cannot be shared)

All ranks of a node come to the same directory without talking to each other.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Mapping

from .errors import AthanorError

# Where run directories lie, in this order.
BASES = ("/dev/shm", "/tmp")

# sockaddr_un holds 108 bytes with the ending NUL.
MAX_SOCKET_PATH = 107

_NETWORK = frozenset(
    (
        "nfs",
        "nfs4",
        "lustre",
        "ceph",
        "cifs",
        "smb3",
        "smbfs",
        "gpfs",
        "beegfs",
        "afs",
        "pvfs2",
        "9p",
        "fuse.sshfs",
        "fuse.ceph",
        "fuse.glusterfs",
        "glusterfs",
        "fuse.s3fs",
        "fuse.juicefs",
        "wekafs",
    )
)


def job_id(environ: Mapping[str, str] | None = None) -> str:
    """The job that this process belongs to: ATHANOR_JOB_ID, else Slurm job and step, else TORCHELASTIC_RUN_ID, else
    master address and port, else parent pid and its start time."""
    env = os.environ if environ is None else environ
    explicit = env.get("ATHANOR_JOB_ID")
    if explicit:
        return _clean(explicit)
    if env.get("SLURM_JOB_ID") and env.get("SLURM_STEP_ID"):
        return _clean(f"slurm-{env['SLURM_JOB_ID']}.{env['SLURM_STEP_ID']}")
    elastic = env.get("TORCHELASTIC_RUN_ID")
    if elastic and elastic != "none":  # torchrun's default, the same for every job
        return _clean(f"elastic-{elastic}")
    if env.get("MASTER_ADDR") and env.get("MASTER_PORT"):
        return _clean(f"master-{env['MASTER_ADDR']}-{env['MASTER_PORT']}")
    parent = os.getppid()
    return f"pid-{parent}-{_start_time(parent)}"


def _clean(job: str) -> str:
    """A file name of at most 48 characters; a name that had to change carries a hash, so that no two jobs meet."""
    name = re.sub(r"[^A-Za-z0-9_.-]", "_", job).lstrip(".")
    if name == job and len(name) <= 48:
        return name
    return f"{name[:31]}-{hashlib.sha256(job.encode()).hexdigest()[:16]}"


def _start_time(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The command may hold blanks and brackets: fields are counted after the last one. Start time is field 22.
            return file.read().rpartition(b")")[2].split()[19].decode()
    except (OSError, IndexError):
        return "0"  # a parent in another pid namespace


def run_dir(job: str, environ: Mapping[str, str] | None = None) -> str:
    """Makes (0700) and checks the run directory of a job. Raises ATH_RUN_DIR when none can be used."""
    env = os.environ if environ is None else environ
    explicit = env.get("ATHANOR_RUN_DIR")
    if explicit:
        path = os.path.abspath(explicit)
        _make(path)
        return _usable(path)
    reasons = []
    for base in BASES:
        user = f"{base}/athanor-{os.getuid()}"
        try:
            _make(user)
            _make(f"{user}/{job}")
            return _usable(f"{user}/{job}")
        except AthanorError as error:
            # A directory that someone else made in our name is an attack or a mistake, not a reason to go elsewhere:
            # the other ranks might then meet somewhere else.
            if os.path.lexists(user) and not is_ours(user):
                raise
            reasons.append(error.what)
    raise AthanorError(
        "ATH_RUN_DIR", "; ".join(reasons), remedy="set ATHANOR_RUN_DIR to a local directory of mode 0700"
    )


def _make(path: str) -> None:
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        pass
    except OSError as error:
        raise AthanorError(
            "ATH_RUN_DIR",
            f"cannot make the run directory: {error.strerror}",
            file=path,
            remedy="set ATHANOR_RUN_DIR to a local directory of mode 0700",
        ) from error
    if not is_ours(path):
        info = os.lstat(path)
        raise AthanorError(
            "ATH_RUN_DIR",
            f"the run directory must be a directory of user {os.getuid()} with mode 0700, found owner {info.st_uid}, "
            f"mode {stat.filemode(info.st_mode)}",
            file=path,
            remedy="remove it or chmod 700 it, or set ATHANOR_RUN_DIR to another directory",
        )


def is_ours(path: str) -> bool:
    """A directory (no link) of this user alone. Raises OSError when nothing is there."""
    info = os.lstat(path)
    return stat.S_ISDIR(info.st_mode) and info.st_uid == os.getuid() and stat.S_IMODE(info.st_mode) & 0o077 == 0


def _usable(path: str) -> str:
    socket_path = os.path.join(path, "agent.sock")
    length = len(os.fsencode(socket_path))
    if length > MAX_SOCKET_PATH:
        raise AthanorError(
            "ATH_RUN_DIR",
            f"the socket's path has {length} bytes, the kernel takes {MAX_SOCKET_PATH}",
            file=socket_path,
            remedy="set ATHANOR_RUN_DIR to a shorter path, such as /tmp/ath-$USER",
        )
    kind = filesystem_of(path)
    if kind in _NETWORK:
        raise AthanorError(
            "ATH_RUN_DIR",
            f"the run directory lies on a network file system ({kind}), where sockets and locks do not "
            "work across nodes",
            file=path,
            remedy="set ATHANOR_RUN_DIR to a directory on /dev/shm or a local disk",
        )
    return path


def filesystem_of(path: str) -> str:
    """The type of the file system that holds `path`, as in /proc/self/mountinfo; "" when it cannot be told."""
    real = os.path.realpath(path)
    best, kind = -1, ""
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
            for line in file:
                fields, _, rest = line.partition(" - ")
                point = re.sub(r"\\([0-7]{3})", lambda m: chr(int(m.group(1), 8)), fields.split(" ")[4])
                inside = real == point or real.startswith(point if point.endswith("/") else point + "/")
                if inside and len(point) >= best:  # the later of two mounts on one point hides the earlier
                    best, kind = len(point), rest.split(" ", 1)[0]
    except OSError:
        return ""
    return kind
