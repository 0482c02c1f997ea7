"""Exactness side by side: `npm run bench:exactness`.

Kills 4 ranks of a training loop with -9 at a random step, goes on from the last saved state (on 4 ranks, on 3, twice,
in the second epoch), and counts by the ids in the batches which samples of the epoch were lost or repeated: for each
loader in peers/, with and without worker processes.

    npm run bench:exactness -- [--kills 3] [--seed 1] [--only athanor,litdata] [--write docs/benchmarks.md]

`--write` puts the table between the markers `<!-- exactness -->` of that file. Exit 1 when Athanor lost or
repeated one.
"""

from __future__ import annotations

import argparse
import fcntl
import importlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import report
from rows import rows_of
from trial import SAMPLES, SCENARIOS

HERE = Path(__file__).resolve().parent
PEERS = ("athanor", "mosaic", "litdata", "hf", "hf_plain", "torchdata_map", "grain_map", "grain_elastic")
# A writer of another loader's format may need what the reading one has imported.
WRITER = {"hf_plain": "hf", "grain_elastic": "grain_map"}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="npm run bench:exactness --", description="samples lost and repeated")
    add = parser.add_argument
    add("--kills", type=int, default=3, help="random kills of each scenario (default 3)")
    add("--seed", type=int, default=1, help="of the kills and of the loaders (default 1)")
    add("--only", default=",".join(PEERS), help="loaders, by the names of bench/exactness/peers")
    add("--workers", type=int, help="only this number of workers a rank")
    add("--scenarios", default=",".join(scenario.name for scenario in SCENARIOS))
    add("--json", type=Path, help="file for the results")
    add("--write", type=Path, help="Markdown file whose section between markers is replaced")
    add("--keep", type=Path, help="folder for data, logs and records, which stay there")
    return parser.parse_args()


def main() -> int:
    args = arguments()
    # Two at a time would sweep each other's files from /dev/shm.
    lock = open(Path(tempfile.gettempdir(), f"athanor-exactness-{os.getuid()}.lock"), "w")  # noqa: SIM115
    fcntl.flock(lock, fcntl.LOCK_EX)
    scratch = args.keep or Path(tempfile.mkdtemp(prefix="athanor-exactness-"))
    data = scratch / "data"
    data.mkdir(parents=True, exist_ok=True)
    found: list[dict[str, Any]] = []
    result: dict[str, Any] = {"loaders": []}
    began = time.monotonic()
    try:
        for name in args.only.split(","):
            writer = WRITER.get(name, name)
            if not (data / f"{writer}.done").exists():
                child([str(HERE / "run.py"), "--prepare", writer, str(data)])
                (data / f"{writer}.done").touch()
            about = json.loads(child([str(HERE / "run.py"), "--about", name]))
            for workers in about["workers"]:
                if args.workers in (None, workers):
                    found.append({**about, "workers": workers, "trials": trials(args, name, workers, data, scratch)})
                    result = report.whole(args, found, SAMPLES, time.monotonic() - began)
                    if args.json is not None:  # after each loader: half an hour is long
                        args.json.write_text(json.dumps(result, indent=1) + "\n")
    finally:
        if args.keep is None:
            shutil.rmtree(scratch, ignore_errors=True)
    print(report.table(result))
    if args.write is not None:
        report.write(args.write, result)
    return 0 if report.athanor_is_exact(result) else 1


def trials(args: argparse.Namespace, name: str, workers: int, data: Path, scratch: Path) -> list[dict[str, Any]]:
    work = Path(tempfile.mkdtemp(prefix=f"{name}-{workers}-", dir=scratch))
    command = [sys.executable, str(HERE / "trial.py"), name, "--workers", str(workers), "--data", str(data)]
    command += ["--scratch", str(work), "--kills", str(args.kills), "--seed", str(args.seed)]
    command += ["--scenarios", args.scenarios] + (["--keep"] if args.keep is not None else [])
    found = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment(work)) as process:
        assert process.stdout is not None
        for line in process.stdout:
            one = json.loads(line)
            found.append(one)
            told = f"{one['lost']} lost, {one['repeated']} repeated" if one["outcome"] == "ran" else one["outcome"]
            print(f"{name}, {workers} workers, {one['scenario']}: {told}", file=sys.stderr, flush=True)
    if process.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} ended with {process.returncode}")
    if args.keep is None:
        shutil.rmtree(work, ignore_errors=True)
    return found


def environment(work: Path) -> dict[str, str]:
    """Nothing of an outer job; no network; one thread a library; caches in the scratch folder."""
    outer = ("SLURM_", "OMPI_", "PMI_", "RANK", "WORLD_SIZE", "LOCAL_", "MASTER_", "TORCHELASTIC_", "ATHANOR_JOB_ID")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(outer)}
    quiet = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_DISABLE_PROGRESS_BARS": "1", "TOKENIZERS_PARALLELISM": "false"}
    own = {"TMPDIR": str(work), "HF_HOME": str(work / "hf"), "ATHANOR_AGENT_GRACE": "1s", "ATHANOR_JOB_ID": work.name}
    return {**kept, **quiet, **own, "OMP_NUM_THREADS": "1", "PYTHONPATH": kept.get("PYTHONPATH", "")}


def child(arguments: list[str]) -> str:
    """A peer is imported in a process of its own, never in this one."""
    done = subprocess.run([sys.executable, *arguments], stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(arguments)} ended with {done.returncode}")
    return done.stdout


def in_child(command: str, name: str, *rest: str) -> None:
    peer = importlib.import_module(f"peers.{name}")
    if command == "--prepare":
        print_to_stderr = os.dup(1)
        os.dup2(2, 1)
        peer.prepare(Path(rest[0]), rows_of(np.arange(SAMPLES)))
        os.dup2(print_to_stderr, 1)
        return
    about = {"name": name, "title": peer.TITLE, "how": peer.HOW, "workers": peer.WORKERS}
    print(json.dumps({**about, "versions": report.versions(peer.PACKAGES)}))


if __name__ == "__main__":
    if len(sys.argv) > 1 and sys.argv[1] in ("--prepare", "--about"):
        in_child(*sys.argv[1:])
    else:
        sys.exit(main())
