"""Many processes of one job that start on many shards: what they ask of the file system, by strace.

    python starts.py [--clients 64] [--shards 10000]        `npm run test:starts`; some five minutes on two cores

All clients of one node start at once, with an agent, and take two epochs. Calls whose path lies in the set are
counted: opens, stats by name, listings, attributes; those of the index apart. A stat of an open descriptor is none: the
locks that came with the open or with a read answer it. The second epoch is counted from where nothing is read ahead any
more to where that is so again, so that what is read ahead cancels out. Exit code 1: a client asks more than 5 calls at
the start, or a shard is opened more than once an epoch (but for those that two lanes share, at most 63).
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "python/src"), str(ROOT / "python/tests")]

from tfrecord_writer import write  # noqa: E402

RECORDS, BATCH, EPOCHS = 8, 10, 2
MOST = 5  # calls of a client besides the index
LANES = 64
CALLS = (
    "open,openat,openat2,creat,stat,lstat,newfstatat,statx,access,faccessat,faccessat2,readlink,readlinkat,"
    "getdents,getdents64,statfs,getxattr,lgetxattr,listxattr,truncate,rename,mkdir,unlink,inotify_add_watch"
)

CLIENT = """
import json, sys
from pathlib import Path
from athanor.numpy import Loader
source, steps, epochs, batch, memory = sys.argv[1], *map(int, sys.argv[2:6])
folder, rank = Path(sys.argv[6]), int(sys.argv[7])
def meet(name):
    (folder / f"{name}-{rank}").touch()
    (folder / f"go-{name}-{rank}").read_bytes()
meet("start")
with Loader(source, batch_size=batch, columns=["id"], seed=5, shuffle_memory=memory, timeout=300) as loader:
    batches = loader.repeat()
    for epoch in range(epochs):
        ids = [i for _ in range(steps) for i in next(batches)["id"].tolist()]
        (folder / f"ids-{epoch}-{rank}").write_text(json.dumps(ids))
        meet(f"epoch{epoch}")
"""
LAUNCHER = """
import json, os, resource, subprocess, sys
words, world, limit = json.loads(sys.argv[1]), int(sys.argv[2]), int(sys.argv[4])
if limit > 0:
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
places = [{"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(world)]
clients = [subprocess.Popen([*words, place["RANK"]], env={**os.environ, **place}) for place in places]
open(sys.argv[3], "w").write(json.dumps([client.pid for client in clients]))
sys.exit(max(abs(client.wait()) for client in clients))
"""


def missing() -> str | None:
    """Why strace cannot be used here."""
    try:
        tried = subprocess.run(
            ["strace", "-f", "--seccomp-bpf", "-o", "/dev/null", "true"], capture_output=True, text=True
        )
    except FileNotFoundError:
        return "strace is not installed"
    return None if tried.returncode == 0 else tried.stderr.strip()


def make(folder: Path, shards: int) -> None:
    """In two folders, as a large set has more than one."""
    for number in range(shards):
        below = folder / f"part-{number % 2}"
        below.mkdir(parents=True, exist_ok=True)
        first = number * RECORDS
        write(below / f"train-{number:05}.tfrecord", ({"id": first + i} for i in range(RECORDS)))


def run(base: Path, clients: int, shards: int, descriptors: int = 0) -> dict[str, Any]:
    """`base`: an empty folder. An epoch must be whole steps. `descriptors`: that a process may have, 0: as here."""
    data, folder, trace, pids = base / "data", base / "told", base / "trace", base / "pids"
    folder.mkdir()
    trace.touch()
    for name in ("start", *(f"epoch{epoch}" for epoch in range(EPOCHS))):
        for rank in range(clients):
            os.mkfifo(folder / f"go-{name}-{rank}")
    make(data, shards)
    steps, rest = divmod(shards * RECORDS, clients * BATCH)
    if rest != 0:
        raise ValueError(f"{shards} shards of {RECORDS} samples are not whole steps of {clients} x {BATCH}")
    index = ["node", str(ROOT / "bin/athanor.mjs"), "index", str(data)]
    subprocess.run(index, check=True, capture_output=True, timeout=900)
    launchers = ("ATHANOR_RUN", "ATHANOR_JOB", "RANK", "WORLD", "LOCAL_", "SLURM_", "MASTER_", "TORCHELASTIC_")
    env = {name: value for name, value in os.environ.items() if not name.startswith(launchers)}
    env.update(ATHANOR_RUN_DIR=str(base / "run"), ATHANOR_JOB_ID="starts", ATHANOR_AGENT_GRACE="1s")
    env.update(PYTHONPATH=str(ROOT / "python/src"), OMP_NUM_THREADS="1")
    env.update(WORLD_SIZE=str(clients), LOCAL_WORLD_SIZE=str(clients))
    memory = shards * RECORDS  # a quarter of the view: what fits would be read once and held
    # --seccomp-bpf: only these calls stop a process. -y: the path behind a descriptor.
    strace = [
        "strace",
        "-f",
        "--seccomp-bpf",
        "-qq",
        "-y",
        "-e",
        f"trace={CALLS}",
        "-e",
        "signal=none",
        "-o",
        str(trace),
    ]
    client = [sys.executable, "-c", CLIENT, str(data), str(steps), str(EPOCHS), str(BATCH), str(memory), str(folder)]
    words = [*strace, sys.executable, "-c", LAUNCHER, json.dumps(client), str(clients), str(pids), str(descriptors)]
    traced = subprocess.Popen(words, env=env, start_new_session=True)
    try:
        marks = [meet(traced, folder, "start", clients, trace)]
        marks += [meet(traced, folder, f"epoch{epoch}", clients, trace) for epoch in range(EPOCHS)]
        if traced.wait(timeout=300) != 0:
            raise RuntimeError(f"the clients ended with {traced.returncode}")
    finally:
        if traced.poll() is None:
            os.killpg(traced.pid, signal.SIGKILL)
            traced.wait()
        for pid in json.loads(pids.read_text()) if pids.exists() else []:
            if Path(f"/proc/{pid}").exists():
                os.kill(pid, signal.SIGKILL)
    exact = [
        sorted(i for path in folder.glob(f"ids-{epoch}-*") for i in json.loads(path.read_text()))
        == list(range(shards * RECORDS))
        for epoch in range(EPOCHS)
    ]
    first, second = counted(trace, data, set(json.loads(pids.read_text())), marks)
    return {"clients": clients, "shards": shards, "exact": all(exact), "first": first, "second": second}


def meet(traced: subprocess.Popen[bytes], folder: Path, name: str, clients: int, trace: Path) -> int:
    """Waits for all clients and until nothing is read ahead any more, then lets them go on; the length of the trace."""
    end = time.monotonic() + 900
    length = -1
    while len(list(folder.glob(f"{name}-*"))) < clients or length != trace.stat().st_size:
        if traced.poll() is not None or time.monotonic() > end:
            raise RuntimeError(f"the clients did not come to {name}: {traced.returncode}")
        length = trace.stat().st_size
        time.sleep(1.5)
    for rank in range(clients):
        (folder / f"go-{name}-{rank}").write_bytes(b"")  # a client waits in its open
    return length


def counted(trace: Path, data: Path, clients: set[int], marks: list[int]) -> list[dict[str, Any]]:
    """Calls on the set between marks of a trace of `strace -f -y`."""
    # A path, or the one behind a descriptor; the second half of an interrupted call has neither.
    call = re.compile(rf'^(\d+) +(\w+)\((?:[^"<]|<(?!{re.escape(str(data))}))*["<]({re.escape(str(data))}[^">]*)')
    found = []
    with trace.open("rb") as file:
        for begin, end in zip(marks, marks[1:]):
            file.seek(begin)
            calls: Counter[str] = Counter()
            own: Counter[str] = Counter()
            opens: Counter[str] = Counter()
            for line in file.read(end - begin).decode("latin1").splitlines():
                match = call.match(line)
                if match is None or "AT_EMPTY_PATH" in line or ", AT_EMPTY" in line:
                    continue
                thread, name, path = match.groups()
                if "/.athanor" in path:
                    calls["index"] += 1
                    continue
                if path.endswith(".tfrecord") and name.startswith("open"):
                    opens[path] += 1
                else:
                    calls[name] += 1
                if int(thread) in clients:
                    own[thread] += 1
            index = calls.pop("index", 0)
            found.append(
                {
                    "most of a client": max(own.values(), default=0),
                    "of all, besides opens and index": sum(calls.values()),
                    "kinds": dict(calls),
                    "index": index,
                    "opened": len(opens),
                    "opens": sum(opens.values()),
                }
            )
    return found


def verdict(found: dict[str, Any]) -> list[str]:
    """What is wrong; nothing: all is well."""
    first, second = found["first"], found["second"]
    wrong = [] if found["exact"] else ["an epoch did not have every sample once"]
    each = first["of all, besides opens and index"] / found["clients"]
    if max(first["most of a client"], each) > MOST:
        wrong.append(f"a client asks {first['most of a client']} calls, with the agent's {each:.1f}, at most {MOST}")
    if first["opened"] != found["shards"]:
        wrong.append(f"{first['opened']} of {found['shards']} shards were opened in the first epoch")
    # Of more shards than stay open, each again; of fewer, none.
    if second["opens"] > found["shards"] + LANES - 1:
        wrong.append(f"{second['opens']} opens of {found['shards']} shards in the second epoch")
    if second["of all, besides opens and index"] + second["index"] > 0:
        wrong.append(f"an epoch of a running job asks {second['kinds']} besides its opens")
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--shards", type=int, default=10_000)
    args = parser.parse_args()
    if (why := missing()) is not None:
        print(f"this needs strace: {why}", file=sys.stderr)
        return 3
    base = Path(tempfile.mkdtemp(prefix="ath-starts-", dir="/tmp"))
    try:
        found = run(base, args.clients, args.shards)
    finally:
        shutil.rmtree(base, ignore_errors=True)
    print(json.dumps(found, indent=1))
    for line in verdict(found):
        print(f"WRONG {line}")
    return 1 if verdict(found) else 0


if __name__ == "__main__":
    sys.exit(main())
