"""A Lustre for the agent: a mount that /proc calls one, and a Python that tells on which OST each file lies.

>>> scene = Scene(run_dir, fs.mount, {"train-0.tfrecord": 3})
>>> for name, value in scene.environment().items(): monkeypatch.setenv(name, value)
"""

from __future__ import annotations

import json
import os
import struct
import sys
from pathlib import Path

STRIPE = 4 << 20


def lov(ost: int, released: bool = False) -> bytes:
    """The xattr of a file on one OST."""
    pattern = 0x8000_0001 if released else 1
    head = struct.pack("<II16sIHH", 0x0BD10BD0, pattern, bytes(16), STRIPE, 1, 0xFFFF)
    return head + struct.pack("<16sII", bytes(16), 0, ost)


class Scene:
    """`osts`: by the name of a file."""

    def __init__(self, base: Path, mount: Path, osts: dict[str, int]) -> None:
        self._root = base / "host"
        self._python = base / "python"
        (self._root / "proc/self").mkdir(parents=True)
        lines = ["21 1 8:1 / / rw - ext4 /dev/vda rw", f"44 21 0:44 / {mount} rw - lustre 10.0.2.15@tcp:/fs rw,flock"]
        (self._root / "proc/self/mountinfo").write_text("\n".join(lines) + "\n")
        (self._root / "sys/fs/lustre").mkdir(parents=True)
        (self._root / "sys/fs/lustre/version").write_text("2.17.0\n")
        for ost in sorted(set(osts.values())):
            self.set_active(ost, True)
        self._asked = base / "asked"
        self._asked.touch()
        self._osts = osts
        self._told = told = base / "layouts.json"
        self.set_released(set())
        self._tools = base / "tools"
        self._tools.mkdir()
        self._restores = base / "restores"
        self._restores.touch()
        numbers = sorted(set(osts.values()))
        (base / "osts").write_text("OBDS:\n" + "".join(f"{ost}: fs-OST{ost:04x}_UUID ACTIVE\n" for ost in numbers))
        rows = (f"fs-OST{ost:04x}_UUID 100000000 1000 99999000 1% {mount}[OST:{ost}]\n" for ost in numbers)
        (base / "df").write_text("UUID 1K-blocks Used Available Use% Mounted on\n" + "".join(rows))
        lfs = self._tools / "lfs"
        asked = f'osts|df) cat "{base}/$1" ;;'
        lfs.write_text(f'#!/bin/sh\ncase "$1" in\n{asked}\n*) echo "$@" >> "{self._restores}" ;;\nesac\n')
        lfs.chmod(0o755)
        patch = base / "patch.py"
        patch.write_text(
            "import json, os, time\n"
            f"_told = json.load(open({str(told)!r}))\n"
            f"_lost = os.path.exists({str(base / 'lost')!r})\n"
            "def _get(path, name):\n"
            f"    with open({str(self._asked)!r}, 'a') as log: log.write(path + chr(10))\n"
            "    if _lost: time.sleep(600)\n"
            "    return bytes.fromhex(_told[os.path.basename(path)])\n"
            "os.getxattr = _get\n"
        )
        # The agent calls `python -I -S -c SCRIPT RATE`.
        self._python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$1" "$2" "$3" "$(cat "{patch}")\n$4" "$5"\n')
        self._python.chmod(0o755)

    def environment(self) -> dict[str, str]:
        path = f"{self._tools}{os.pathsep}{os.environ['PATH']}"
        return {"ATHANOR_HOST_ROOT": str(self._root), "ATHANOR_PYTHON": str(self._python), "PATH": path}

    def asked(self) -> list[str]:
        """Files whose layouts were asked for."""
        return self._asked.read_text().splitlines()

    def set_released(self, names: set[str]) -> None:
        """HSM has released these files, and has all others here."""
        layouts = {name: lov(ost, name in names).hex() for name, ost in self._osts.items()}
        fresh = self._told.with_suffix(".new")
        fresh.write_text(json.dumps(layouts))
        fresh.rename(self._told)

    def lose_metadata(self) -> None:
        """Nobody is told on which OST a file lies any more."""
        (self._told.parent / "lost").touch()

    def restores(self) -> list[str]:
        """What `lfs` was called with, questions left out."""
        return self._restores.read_text().splitlines()

    def count(self, reads: dict[int, tuple[int, int, int]]) -> None:
        """From now on `lctl` prints requests, bytes and microseconds of these OSTs; as for a user it ends with 2."""
        parts = [
            f"osc.fs-OST{ost:04x}-osc-ffff8881.stats=\n"
            f"ost_read {requests} samples [usecs] 1 9 {usecs} 9\n"
            f"read_bytes {requests} samples [bytes] 1 9 {size} 9\n"
            for ost, (requests, size, usecs) in reads.items()
        ]
        self._write("counters.new", "".join(parts), "counters")
        self._write(
            "lctl.new",
            f'#!/bin/sh\necho "$@" >> "{self._tools}/counted"\ncat "{self._tools}/counters"\nexit 2\n',
            "lctl",
        )

    def counted(self) -> int:
        """How often `lctl` was asked."""
        log = self._tools / "counted"
        return len(log.read_text().splitlines()) if log.exists() else 0

    def _write(self, name: str, text: str, final: str) -> None:
        (self._tools / name).write_text(text)
        (self._tools / name).chmod(0o755)
        (self._tools / name).rename(self._tools / final)

    def set_active(self, ost: int, active: bool) -> None:
        """As `lctl set_param osc.….active` does."""
        device = self._root / f"sys/fs/lustre/osc/fs-OST{ost:04x}-osc-ffff8881"
        device.mkdir(parents=True, exist_ok=True)
        (device / "active").write_text(f"{int(active)}\n")
