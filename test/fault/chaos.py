#!/usr/bin/env python3
"""Random kills of agent and ranks, and the proof that no sample was lost or repeated: `npm run test:chaos`.

    npm run test:chaos -- --trials 200 --seed 1            200 trials
    npm run test:chaos -- --seed 1 --trial 17 --keep DIR   one of them again; its files stay in DIR

Each trial (chaos_trial.py) runs 2 to 8 ranks, some with peers, over a small data set, strikes 1 to 5 times (kill -9,
SIGTERM, SIGSTOP and SIGCONT of the agent, of ranks, of everything), starts the job again from the newest state that all
ranks have, sometimes in another world size, and then checks: counts of ids, ids of each step and proofs against an
unbroken run, evaluations, leftovers. Exit 1 when a trial failed, or a start that nothing disturbed took 2 s or more.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "python" / "src"), str(ROOT / "python" / "tests")]

import chaos_checks as checks  # noqa: E402
import chaos_processes as processes  # noqa: E402
import views  # noqa: E402
from chaos_rank import KNOWN, MAX_LENGTH, Board, Spec, document, know, know_rows, tokens_of  # noqa: E402
from chaos_trial import Data, Plan, Result, Trial, environment, evaluating, plan, start_rank  # noqa: E402
from format_writer import WRITERS, write_shard  # noqa: E402

SAMPLES, SHARDS = 1950, 7  # 2.4 MB; no optimizer batch of the plans divides it, so epochs end inside one
EVAL_SAMPLES = 7
START_LIMIT = 2.0
FORMAT_HELP = "of the data; mixture: three, mixed; packed: documents packed into rows"
_NOT_OURS = ("ATHANOR_", "SLURM_", "OMPI_", "PMI_", "RANK", "WORLD_SIZE", "LOCAL_", "MASTER_", "TORCHELASTIC_")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="npm run test:chaos --", description="random kills; nothing lost or repeated")
    add = parser.add_argument
    add("--trials", type=int, default=20, help="how many (default 20)")
    add("--seed", type=int, default=1, help="of the whole run (default 1)")
    add("--trial", type=int, help="only this one: what a failed trial prints")
    add("--seconds", type=float, help="begin no further trial after this time; three are run in any case")
    add("--evaluate", type=int, metavar="RANKS", help="evaluate in every trial, on so many ranks (2 to 8)")
    add("--format", default="tfrecord", choices=[*WRITERS, "mixture", "packed"], help=FORMAT_HELP)
    add("--keep", type=Path, help="folder for the files of trials, which stay there")
    add("--no-start-limit", action="store_true", help=f"starts of {START_LIMIT:.0f} s or more are no failure")
    return parser.parse_args()


def forget_outer_job() -> None:
    for name in [name for name in os.environ if name.startswith(_NOT_OURS)]:
        del os.environ[name]


def made_data(scratch: Path, name: str) -> Data:
    """The data of all trials, in one format or in three, or packed."""
    if name == "packed":
        folder = make_data(scratch / "data", 3 * SAMPLES, SHARDS, "jsonl", tokens=document)
        know_rows([row for shard in range(SHARDS) for row in packed_rows(folder / f"part-{shard}.jsonl")])
        return Data(str(folder), tokens_only=True, packed=True)
    if name != "mixture":
        folder = make_data(scratch / "data", SAMPLES, SHARDS, name)
        return Data(str(folder), tokens_only=name == "megatron")
    sources = {}
    for number, (form, weight) in enumerate({"parquet": 0.5, "jsonl": 0.3, "webdataset": 0.2}.items()):
        first = SAMPLES * number // 3
        folder = make_data(scratch / form, SAMPLES // 3, SHARDS, form, first)
        sources[form] = {"path": str(folder), "weight": weight}
    return Data(None, mix={"sources": sources})


def packed_rows(shard: Path) -> list[list[int]]:
    """Documents of the rows of a shard, which is one block."""
    records = [json.loads(line) for line in shard.read_text().splitlines()]
    rows = views.pack([len(record["input_ids"]) for record in records], MAX_LENGTH)
    return [[records[number]["id"] for number, _, _ in row] for row in rows]


def make_data(
    folder: Path, samples: int, shards: int, form: str = "tfrecord", first: int = 0, tokens: Any = tokens_of
) -> Path:
    """Shards of unequal size whose rows are functions of their ids, which begin with `first`."""
    folder.mkdir()
    numbers = list(range(first, first + samples))
    begin = 0
    for shard in range(shards):
        end = samples if shard == shards - 1 else begin + (shard + 1) * 2 * samples // (shards * (shards + 1))
        write_shard(
            form,
            folder / f"part-{shard}",
            (
                {"id": n, "input_ids": tokens(n).tolist(), "attention_mask": [1] * len(tokens(n))}
                for n in numbers[begin:end]
            ),
        )
        begin = end
    return folder


class Unbroken:
    """The same run on one rank that nobody touches: what the broken one must have been given."""

    def __init__(self, folder: Path, data: Data) -> None:
        self._folder = folder
        self._data = data

    def run(self, wanted: Plan) -> tuple[checks.Steps, Path]:
        folder = self._folder / f"unbroken-{wanted.trial}"
        folder.mkdir()
        job = f"chaos-{os.getpid()}-whole"
        spec = Spec(
            folder=str(folder),
            job=job,
            generation=0,
            world=1,
            peers=1,
            batch_size=wanted.global_batch,
            global_batch=wanted.global_batch,
            steps=wanted.steps,
            save_every=wanted.steps,
            pace=0.0,
            launcher=False,
            polite=True,
            evaluate=None,
            data=self._data.path,
            options=wanted.options | self._data.options,
            state=None,
            step=0,
            environment=environment(job, "200ms"),
            tokens_only=self._data.tokens_only,
        )
        _, status = os.waitpid(start_rank(spec, 0, Board(1)), 0)
        left = processes.leftovers(job, 6.0)
        if status != 0 or left:
            raise checks.Wrong(f"the unbroken run failed: {(folder / 'rank-0-0.log').read_text()}{left}")
        whole = checks.Generation(0, 1, wanted.global_batch, 0)
        return checks.delivered(folder, [whole], wanted.steps, wanted.global_batch), folder / "proof"


def main() -> int:
    args = arguments()
    forget_outer_job()
    processes.become_reaper()
    know(SAMPLES)
    scratch = Path(tempfile.mkdtemp(prefix="athanor-chaos-"))
    home = args.keep or scratch
    home.mkdir(parents=True, exist_ok=True)
    try:
        data = made_data(scratch, args.format)
        evaluation = make_data(scratch / "eval", EVAL_SAMPLES, 2)
        return trials(args, home, data, evaluation)
    finally:
        shutil.rmtree(scratch)


def trials(args: argparse.Namespace, home: Path, data: Data, evaluation: Path) -> int:
    unbroken = Unbroken(home, data)
    began = time.monotonic()
    results: list[Result] = []
    failed: list[int] = []
    numbers = range(args.trials) if args.trial is None else [args.trial]
    for number in numbers:
        if args.seconds is not None and time.monotonic() - began > args.seconds and len(results) + len(failed) >= 3:
            break
        wanted = plan(args.seed, number)
        if args.evaluate is not None:
            wanted = evaluating(wanted, args.evaluate)
        folder = home / f"trial-{args.seed}-{number}"
        folder.mkdir()
        try:
            steps, proof = unbroken.run(wanted)
            trial = Trial(wanted, folder, data, evaluation, len(KNOWN), EVAL_SAMPLES)
            result = trial.run(steps, proof)
        except checks.Wrong as error:
            failed.append(number)
            print(f"trial {number} FAILED: {wanted.text()}\n{error}", flush=True)
            again = f"--seed {args.seed} --trial {number}" + (f" --evaluate {args.evaluate}" if args.evaluate else "")
            again += f" --format {args.format}" if args.format != "tfrecord" else ""
            print(f"again: npm run test:chaos -- {again} --keep DIR", flush=True)
            continue
        results.append(result)
        start = f"{max(result.starts):.2f} s" if result.starts else "-"
        print(
            f"trial {number}: ok in {result.seconds:.1f} s, ranks {'-'.join(map(str, result.worlds))}, "
            f"{result.blows} blows, slowest start {start}: {wanted.text()}",
            flush=True,
        )
        if args.keep is None:
            shutil.rmtree(folder)
            shutil.rmtree(proof.parent)
    return summary(args, results, failed, time.monotonic() - began)


def summary(args: argparse.Namespace, results: list[Result], failed: list[int], seconds: float) -> int:
    starts = [start for result in results for start in result.starts]
    slow = [start for start in starts if start >= START_LIMIT]
    if starts:
        print(f"starts: {len(starts)}, median {statistics.median(starts):.2f} s, slowest {max(starts):.2f} s")
    print(
        json.dumps(
            {
                "seed": args.seed,
                "trials": len(results) + len(failed),
                "failed": failed,
                "blows": sum(result.blows for result in results),
                "launches": sum(len(result.worlds) for result in results),
                "slow_starts": len(slow),
                "evaluations": sum(len(result.evaluations) for result in results),
                "evaluations_on_8_ranks": sum(result.evaluations.count(8) for result in results),
                "seconds": round(seconds, 1),
            }
        )
    )
    if slow and not args.no_start_limit:
        print(f"{len(slow)} starts took {START_LIMIT:.0f} s or more")
    return 1 if failed or not results or (slow and not args.no_start_limit) else 0


if __name__ == "__main__":
    sys.exit(main())
