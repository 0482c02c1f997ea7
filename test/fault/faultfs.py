"""A file system that fails on request: a folder passed through FUSE, with faults switched over a Unix socket.

    python faultfs.py SOURCE MOUNT SOCKET        serves until it is unmounted

Contract: nothing is cached (every read and stat of a reader arrives here, reads in pieces of at most 1 MiB), handles
stay open on the file they were opened on, and a rule may fail a call, shorten it, delay it or hold it until released.
A reader of a held call is in an uninterruptible sleep, as one of a lost Lustre target is: not even SIGKILL ends it.

>>> with FaultFs(Path("/data"), Path("/tmp/m")) as fs:
...     fs.fault("read", path="a.tfrecord", fails="EIO", times=1)
...     fs.clear()
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any


def missing() -> str | None:
    """Why no such file system can be mounted here."""
    try:
        os.close(os.open("/dev/fuse", os.O_RDWR))
    except OSError as error:
        return f"/dev/fuse: {error.strerror}"
    if shutil.which("fusermount3") is None:
        return "fuse3 is not installed"
    try:
        import mfusepy  # noqa: F401
    except (ImportError, OSError) as error:
        return f"mfusepy: {error}"
    return None


class FaultFs:
    """The mounted file system, from the outside."""

    def __init__(self, source: Path, mount: Path) -> None:
        self.mount = mount
        self._folder = tempfile.mkdtemp(prefix="faultfs-", dir="/tmp")
        self._socket = os.path.join(self._folder, "s")
        self._log = open(os.path.join(self._folder, "log"), "w+")  # noqa: SIM115
        command = [sys.executable, __file__, str(source), str(mount), self._socket]
        self._server = subprocess.Popen(command, stdout=self._log, stderr=subprocess.STDOUT)
        deadline = time.monotonic() + 20
        while not os.path.ismount(mount):
            if self._server.poll() is not None or time.monotonic() > deadline:
                self._log.seek(0)
                raise RuntimeError(f"faultfs did not mount {mount}: {self._log.read()}")
            time.sleep(0.02)

    def fault(self, call: str, **rule: Any) -> None:
        """`call`: open, stat, statfs, list, read, write, close. `path`: a file of the folder, all without; `name`: what
        is called so, in any folder. `start`, `end`: of the bytes read or written. `times`: how often. `fails`: errno
        name; `delay`: seconds; `most`: bytes given; `hold`: true. `call` told, `blocks`: what stats say that a file
        takes up."""
        self._ask({"call": call, **rule})

    def clear(self) -> None:
        """Forgets all rules and releases what is held."""
        self._ask({})

    def held(self) -> int:
        """Calls that are held now."""
        return int(self._ask({"ask": "held"})["held"])

    def calls(self) -> dict[str, int]:
        """How often each "call path" came in."""
        return dict(self._ask({"ask": "calls"})["calls"])

    def wait_for_held(self, least: int = 1, limit: float = 10) -> None:
        deadline = time.monotonic() + limit
        while self.held() < least:
            if time.monotonic() > deadline:
                raise TimeoutError(f"only {self.held()} calls are held after {limit} s, expected {least}")
            time.sleep(0.02)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.clear()
        # Lazy: a reader that a failed test has left cannot keep the mount.
        subprocess.run(["fusermount3", "-u", "-z", str(self.mount)], check=False, capture_output=True)
        try:
            self._server.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._server.kill()  # aborts the connection: calls under way fail with ENOTCONN
            self._server.wait()
        self._log.close()
        shutil.rmtree(self._folder)

    def __enter__(self) -> FaultFs:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ask(self, message: dict[str, Any]) -> dict[str, Any]:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as peer:
            peer.settimeout(10)
            peer.connect(self._socket)
            with peer.makefile("rw") as lines:
                lines.write(json.dumps(message) + "\n")
                lines.flush()
                return dict(json.loads(lines.readline()))


class Rules:
    """The faults that are switched on; used by all threads of the server."""

    def __init__(self) -> None:
        self._lock = threading.Condition()
        self._rules: list[dict[str, Any]] = []
        self._calls: dict[str, int] = {}
        self._held = 0
        self._era = 0

    def meet(self, call: str, path: str, size: int = 0, offset: int = 0) -> int:
        """Delays, holds or fails a call as the rules say; the bytes that it may give otherwise."""
        with self._lock:
            self._calls[f"{call} {path}"] = self._calls.get(f"{call} {path}", 0) + 1
            rule = next((rule for rule in self._rules if self._fits(rule, call, path, size, offset)), None)
            if rule is None:
                return size
            if "times" in rule:
                rule["times"] -= 1
            if rule.get("hold"):
                era = self._era
                self._held += 1
                self._lock.wait_for(lambda: self._era != era)
                self._held -= 1
        if "delay" in rule:
            time.sleep(rule["delay"])
        if "fails" in rule:
            raise OSError(getattr(errno, rule["fails"]), "on request")
        return min(size, rule.get("most", size))

    def told(self, path: str) -> dict[str, int]:
        """What a stat says of a file instead of the truth."""
        with self._lock:
            rules = [rule for rule in self._rules if rule["call"] == "told" and rule.get("path", path) == path]
            return {"st_blocks": rules[0]["blocks"]} if rules else {}

    def answer(self, message: dict[str, Any]) -> dict[str, Any]:
        with self._lock:
            if message.get("ask") == "held":
                return {"held": self._held}
            if message.get("ask") == "calls":
                return {"calls": self._calls}
            if "call" in message:
                self._rules.append(message)
                return {}
            self._rules = []
            self._calls = {}
            self._era += 1
            self._lock.notify_all()
            return {}

    @staticmethod
    def _fits(rule: dict[str, Any], call: str, path: str, size: int, offset: int) -> bool:
        if rule["call"] != call or rule.get("path", path) != path or rule.get("times", 1) == 0:
            return False
        if "name" in rule and rule["name"] != os.path.basename(path):
            return False
        return call not in ("read", "write") or (
            offset < rule.get("end", 1 << 62) and offset + size > rule.get("start", 0)
        )


def serve(source: str, mount: str, address: str) -> None:
    import mfusepy

    rules = Rules()

    class Passthrough(mfusepy.Operations):
        use_ns = True

        def _stat(self, found: os.stat_result) -> dict[str, int]:
            names = ("st_mode", "st_nlink", "st_size", "st_uid", "st_gid", "st_ino", "st_blocks")
            times = {f"st_{which}time": getattr(found, f"st_{which}time_ns") for which in "amc"}
            return {**{name: getattr(found, name) for name in names}, **times}

        def getattr(self, path: str, fh: int | None = None) -> dict[str, int]:
            rules.meet("stat", path[1:])
            found = self._stat(os.fstat(fh) if fh is not None else os.lstat(source + path))
            return {**found, **rules.told(path[1:])}

        def readdir(self, path: str, fh: int) -> list[tuple[str, dict[str, int], int]]:
            rules.meet("list", path[1:])
            # With their kinds: a reader of names needs no stat of each.
            return [(entry.name, self._stat(entry.stat()), 0) for entry in os.scandir(source + path)]

        def open(self, path: str, flags: int) -> int:
            rules.meet("open", path[1:])
            return os.open(source + path, flags)

        def create(self, path: str, mode: int, fi: None = None) -> int:
            return os.open(source + path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, mode)

        def read(self, path: str, size: int, offset: int, fh: int) -> bytes:
            return os.pread(fh, rules.meet("read", path[1:], size, offset), offset)

        def write(self, path: str, data: bytes, offset: int, fh: int) -> int:
            return os.pwrite(fh, data[: rules.meet("write", path[1:], len(data), offset)], offset)

        def flush(self, path: str, fh: int) -> int:
            rules.meet("close", path[1:])
            return 0

        def release(self, path: str, fh: int) -> int:
            os.close(fh)
            return 0

        def fsync(self, path: str, datasync: int, fh: int) -> int:
            os.fsync(fh)
            return 0

        def fsyncdir(self, path: str, datasync: int, fh: int) -> int:
            return 0

        def mkdir(self, path: str, mode: int) -> int:
            os.mkdir(source + path, mode)
            return 0

        def chmod(self, path: str, mode: int) -> int:
            os.chmod(source + path, mode)
            return 0

        def utimens(self, path: str, times: tuple[int, int]) -> int:
            os.utime(source + path, ns=times)
            return 0

        def rmdir(self, path: str) -> int:
            os.rmdir(source + path)
            return 0

        def rename(self, old: str, new: str) -> int:
            os.rename(source + old, source + new)
            return 0

        def unlink(self, path: str) -> int:
            os.unlink(source + path)
            return 0

        def access(self, path: str, amode: int) -> int:
            return 0

        def statfs(self, path: str) -> dict[str, int]:
            rules.meet("statfs", path[1:])
            found = os.statvfs(source + path)
            return {name: getattr(found, name) for name in ("f_bsize", "f_frsize", "f_blocks", "f_bfree", "f_bavail")}

    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(address)
    listener.listen(16)

    def control() -> None:
        while True:
            peer, _ = listener.accept()
            with peer, peer.makefile("rw") as lines:
                lines.write(json.dumps(rules.answer(json.loads(lines.readline()))) + "\n")

    threading.Thread(target=control, daemon=True).start()
    # Held calls keep their thread: enough of those for all that the tests hold.
    mfusepy.FUSE(
        Passthrough(),
        mount,
        foreground=True,
        direct_io=True,
        attr_timeout=0,
        entry_timeout=0,
        negative_timeout=0,
        max_threads=80,
        max_idle_threads=80,
    )


if __name__ == "__main__":
    serve(*sys.argv[1:])
