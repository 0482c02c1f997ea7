"""A real MooseFS of this test alone: a master, four chunk servers and a mount, in namespaces of their own.

Contract: nothing outside sees it, and nothing of it is left: the mount and the addresses belong to namespaces that end
with the last process in them, and every process is ended by its id (and dies with this one, whatever ends that).
Chunk servers refuse a master on 127.0.0.1 and are told apart by address alone, so the namespace has five others.

>>> with MooseFs(tmp_path) as fs:
...     subprocess.run([*fs.inside, "cp", "a.tfrecord", str(fs.mount)])
...     fs.servers[2].pause()
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

MASTER = "10.77.0.1"
SERVERS = 4
PORT = 9422
TOOLS = ("ip", "unshare", "nsenter", "setpriv", "mfsmaster", "mfschunkserver", "mfsmount", "mfsfileinfo", "mfssetgoal")
#: As Debian's packages install it.
EMPTY = Path("/var/lib/mfs/metadata.mfs.empty")


def missing() -> str | None:
    """Why no MooseFS can run here."""
    absent = [tool for tool in TOOLS if shutil.which(tool, path=search_path()) is None]
    if absent:
        return f"not installed: {', '.join(absent)}"
    if not EMPTY.exists():
        return f"there is no {EMPTY}"
    if os.getuid() != 0:
        return "only root can make its namespaces"
    try:
        os.close(os.open("/dev/fuse", os.O_RDWR))
    except OSError as error:
        return f"/dev/fuse: {error.strerror}"
    done = subprocess.run(["unshare", "--net", "--mount", "true"], capture_output=True, text=True)
    return None if done.returncode == 0 else f"no namespaces: {done.stderr.strip()}"


def search_path() -> str:
    return f"{os.environ['PATH']}{os.pathsep}/usr/sbin{os.pathsep}/sbin"


class Daemon:
    """One process of it."""

    def __init__(self, command: list[str], log: Path) -> None:
        self._command = command
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                # Ends with this process, also where nobody could tidy up.
                ["setpriv", "--pdeathsig", "KILL", *self._command],
                env={**os.environ, "PATH": search_path()},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    @property
    def pid(self) -> int:
        if self._process is None:
            raise RuntimeError("not running")
        return self._process.pid

    @property
    def runs(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def pause(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def stop(self, limit: float = 20) -> None:
        """As an admin stops it."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait(timeout=limit)
            self._process = None

    def log(self) -> str:
        return self._log.read_text(errors="replace")


class MooseFs:
    """`mount`: its path, seen by processes started with `inside` in front of them only."""

    def __init__(self, base: Path, copies: int = 1) -> None:
        self.base = base
        self.mount = base / "mfs"
        self._copies = copies
        self._running: list[Daemon] = []
        self.servers: list[Daemon] = []
        self.addresses = [f"10.77.0.{11 + number}:{PORT}" for number in range(SERVERS)]

    def __enter__(self) -> MooseFs:
        try:
            self._begin()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(self, *words: object, limit: float = 60) -> str:
        """What a command inside prints; raises where it fails."""
        done = subprocess.run([*self.inside, *map(str, words)], capture_output=True, text=True, timeout=limit)
        if done.returncode != 0:
            raise RuntimeError(f"{words[0]}: {done.stderr or done.stdout}")
        return done.stdout

    def close(self) -> None:
        for daemon in reversed(self._running):
            daemon.kill()
        self._running.clear()

    def _begin(self) -> None:
        self.mount.mkdir(parents=True)
        # Holds the namespaces until the others are in them, and beyond a restart of any of them.
        holder = Daemon(
            ["unshare", "--net", "--mount", "--propagation", "private", "sleep", "infinity"], self.base / "ns"
        )
        self._running.append(holder)
        mine = os.readlink("/proc/self/ns/mnt")
        self._until(lambda: _namespace(holder.pid) not in (None, mine), "no namespaces")
        # Each becomes the tool itself: its pid is the daemon's.
        self.inside = ["nsenter", "--target", str(holder.pid), "--net", "--mount", "--"]
        self.run("ip", "link", "set", "lo", "up")
        for address in (MASTER, *(place.partition(":")[0] for place in self.addresses)):
            self.run("ip", "address", "add", f"{address}/32", "dev", "lo")
        self.master = self._daemon("master", self._master_config(), "mfsmaster", "-a")
        self.servers = [
            self._daemon(f"server{number}", self._server_config(number), "mfschunkserver") for number in range(SERVERS)
        ]
        self._until(self._master_listens, "the master does not listen")
        # Nothing is kept between two opens, and reads bypass the page cache: what is read comes from a server.
        options = "mfscachemode=DIRECT,mfsreadaheadsize=16,mfsattrcacheto=0.0"
        command = [*self.inside, "mfsmount", str(self.mount), "-f", "-H", MASTER, "-o", options]
        self._running.append(Daemon(command, self.base / "mfsmount.log"))
        self._until(self._is_mounted, "not mounted")
        self.run("mfssetgoal", self._copies, self.mount)
        self._until(self._take_chunks, "not all chunk servers take files")

    def _daemon(self, name: str, config: str, tool: str, *flags: str) -> Daemon:
        path = self.base / f"{name}.cfg"
        path.write_text(config)
        # -f: in the foreground, so that the process that was started is the daemon.
        daemon = Daemon([*self.inside, tool, "-f", "-c", str(path), *flags, "start"], self.base / f"{name}.log")
        self._running.append(daemon)
        return daemon

    def _master_config(self) -> str:
        data = self.base / "master"
        data.mkdir()
        shutil.copy(EMPTY, data / "metadata.mfs")
        (self.base / "exports.cfg").write_text("* / rw,alldirs,maproot=0\n* . rw\n")
        (self.base / "topology.cfg").touch()
        return self._config(
            DATA_PATH=data,
            EXPORTS_FILENAME=self.base / "exports.cfg",
            TOPOLOGY_FILENAME=self.base / "topology.cfg",
            MATOML_LISTEN_HOST=MASTER,
            MATOCS_LISTEN_HOST=MASTER,
            MATOCL_LISTEN_HOST=MASTER,
        )

    def _server_config(self, number: int) -> str:
        folder = self.base / f"server{number}"
        (folder / "chunks").mkdir(parents=True)
        (folder / "data").mkdir()
        (folder / "hdd.cfg").write_text(f"{folder / 'chunks'}\n")
        address = self.addresses[number].partition(":")[0]
        return self._config(
            DATA_PATH=folder / "data",
            HDD_CONF_FILENAME=folder / "hdd.cfg",
            HDD_LEAVE_SPACE_DEFAULT="0.25GiB",
            MASTER_HOST=MASTER,
            MASTER_RECONNECTION_DELAY=1,
            BIND_HOST=address,
            CSSERV_LISTEN_HOST=address,
            CSSERV_LISTEN_PORT=PORT,
        )

    @staticmethod
    def _config(**settings: object) -> str:
        common = {"WORKING_USER": "root", "WORKING_GROUP": "root", "NICE_LEVEL": 0, "DISABLE_OOM_KILLER": 0}
        return "".join(f"{name} = {value}\n" for name, value in {**common, **settings}.items())

    def _is_mounted(self) -> bool:
        return f" {self.mount} " in Path(f"/proc/{self._running[0].pid}/mountinfo").read_text()

    def _master_listens(self) -> bool:
        lines = Path(f"/proc/{self.master.pid}/net/tcp").read_text().splitlines()[1:]
        return any(line.split()[1].endswith(f":{9421:04X}") for line in lines)

    def _take_chunks(self) -> bool:
        """Do all chunk servers take new files? One that is registered may still be looking through its disk."""
        probes = [self.mount / f"probe{number}" for number in range(2 * SERVERS)]
        self.run("sh", "-c", 'for file in "$@"; do echo probe > "$file" || exit 1; done', "sh", *probes)
        told = self.run("mfsfileinfo", *probes)
        self.run("rm", *probes)
        return all(f" {address} " in told for address in self.addresses)

    def _until(self, holds: Callable[[], bool], what: str, limit: float = 30) -> None:
        deadline = time.monotonic() + limit
        while not holds():
            for daemon in self._running:
                if not daemon.runs:
                    raise RuntimeError(f"{what}: a process ended: {daemon.log()}")
            if time.monotonic() > deadline:
                raise RuntimeError(f"{what} after {limit} s")
            time.sleep(0.1)


def _namespace(pid: int) -> str | None:
    try:
        return os.readlink(f"/proc/{pid}/ns/mnt")
    except OSError:
        return None
