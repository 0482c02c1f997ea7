"""Sessions opened and closed on one agent, one after the other and side by side: what of it stays.

    python sessions.py [--count 10000] [--json]        `npm run test:sessions`; some minutes on two cores

Each is a loader of its own order that takes a batch or two and then closes, is dropped without a word, or seeks first.
Looked at ten times: descriptors, threads and resident memory of agent and client. Exit code 1: one of them grows.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "python/src"), str(ROOT / "python/tests")]

from athanor.numpy import Loader  # noqa: E402
from tfrecord_writer import write  # noqa: E402

SHARDS, RECORDS, BATCH = 4, 60, 12
LOOKS = 10
WARM = 3  # looks before which pools fill up
# What may come and go beside the sessions, and how fast memory may grow: allocators round, collectors are late.
SPARE = {"descriptors": 12, "threads": 4}
MIB_PER_THOUSAND = 4.0


def look(pid: int) -> dict[str, float]:
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":" in line)
    return {
        "descriptors": len(os.listdir(f"/proc/{pid}/fd")),
        "threads": int(status["Threads"]),
        "MiB": int(status["VmRSS"].split()[0]) / 1024,
    }


def session(source: str, number: int) -> None:
    order: dict[str, Any] = {"shuffle_memory": 1, "window": 20} if number % 3 == 0 else {}
    loader = Loader(source, batch_size=BATCH, columns=["id"], seed=number, timeout=60, **order)
    next(iter(loader))
    if number % 4 == 1:
        loader.set_epoch(1)
        next(iter(loader))
    if number % 2 == 0:
        loader.close()
    else:
        loader._hang_up()  # as the kernel does for one that is killed


def slope(values: list[float]) -> float:
    """Of the least squares line, a step."""
    mean_x, mean_y = (len(values) - 1) / 2, sum(values) / len(values)
    above = sum((x - mean_x) * (y - mean_y) for x, y in enumerate(values))
    return above / sum((x - mean_x) ** 2 for x in range(len(values)))


def measure(count: int, say: Any) -> dict[str, Any]:
    folder = Path(tempfile.mkdtemp(prefix="ath-", dir="/tmp"))
    for name in [name for name in os.environ if name.startswith("ATHANOR_")]:
        if name not in ("ATHANOR_NODE", "ATHANOR_AGENT_JS"):
            del os.environ[name]
    os.environ.update(ATHANOR_RUN_DIR=str(folder / "run"), ATHANOR_AGENT_GRACE="1s")
    (folder / "data").mkdir()
    for number in range(SHARDS):
        rows = ({"id": number * RECORDS + i} for i in range(RECORDS))
        write(folder / "data" / f"{number}.tfrecord", rows)
    source = str(folder / "data")
    try:
        with Loader(source, batch_size=BATCH, columns=["id"], timeout=60) as stays, ThreadPoolExecutor(4) as pool:
            next(iter(stays))
            agent = int(stays.stats()["agent"]["pid"])
            looks: dict[str, list[dict[str, float]]] = {"agent": [], "client": []}
            began = time.monotonic()
            for part in range(LOOKS):
                numbers = range(part * count // LOOKS, (part + 1) * count // LOOKS)
                for _ in pool.map(session, [source] * len(numbers), numbers):
                    pass
                time.sleep(0.3)  # ends are seen a moment later
                looks["agent"].append(look(agent))
                looks["client"].append(look(os.getpid()))
                say(f"{numbers.stop:>6} sessions  agent {looks['agent'][-1]}  client {looks['client'][-1]}")
            seconds = time.monotonic() - began
            sessions = stays.stats()["agent"]["sessions"]
    finally:
        shutil.rmtree(folder)
    told: dict[str, Any] = {"count": count, "seconds": round(seconds, 1), "left": sessions - 1, "grows": []}
    for who, found in looks.items():
        for what in found[0]:
            values = [each[what] for each in found[WARM:]]
            per_thousand = slope(values) * LOOKS / count * 1000
            told[f"{who} {what}"] = {"first": values[0], "last": values[-1], "per 1000": round(per_thousand, 2)}
            if what == "MiB":
                # Short runs are mostly warming up: those only show what leaks by the session.
                grows = per_thousand > MIB_PER_THOUSAND and values[-1] - values[0] > 32
            else:
                grows = values[-1] - values[0] > SPARE[what]
            if grows:
                told["grows"].append(f"{who} {what}")
    return told


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--json", action="store_true", help="only the last line, as JSON")
    args = parser.parse_args()
    told = measure(args.count, (lambda text: None) if args.json else print)
    print(json.dumps(told))
    return 1 if told["grows"] or told["left"] else 0


if __name__ == "__main__":
    sys.exit(main())
