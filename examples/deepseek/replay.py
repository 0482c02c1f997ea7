#!/usr/bin/env python3
"""What a trainer should have been given: the same order through the same agent, without a model and without a stop.

    python replay.py --data_dir D --world 2 --batch_size 2 --global_batch_size 8 --steps 40 --proof_dir P

Each rank is a process of its own (numpy only). `--compare RUN/proof` then holds this proof against the one that a
training run left, at every optimizer step. `--state FILE` starts at the state in FILE, if it exists, and leaves the
state at the end there; `--log_ids FILE` is that of train.py. Exit 1 when the proofs differ.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys

from athanor._proof import proof_total

ID_BASE, ID_TOKENS = 251, 4  # make_corpus.py --ids


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="run the loader alone")
    add = parser.add_argument
    add("--data_dir", required=True)
    add("--world", type=int, default=1, help="ranks, one process each")
    add("--batch_size", type=int, required=True, help="samples a rank and step")
    add("--global_batch_size", type=int, required=True, help="samples of one optimizer step")
    add("--steps", type=int, required=True, help="optimizer steps to run")
    add("--max_length", type=int, default=512)
    add("--seed", type=int, default=1234)
    add("--lanes", type=int, help="the loader's option")
    add("--window", type=int, help="the loader's option")
    add("--proof_dir", help="where the proof goes")
    add("--compare", help="proof folder of a training run")
    add("--state", help="file to start from and to end in")
    add("--log_ids", help="FILE: write the ids of make_corpus.py --ids, found in the batches, to FILE.rankN")
    return parser.parse_args()


def rank_main(args: argparse.Namespace, rank: int) -> None:
    import numpy as np
    from athanor.numpy import Loader

    loader = Loader(
        args.data_dir,
        batch_size=args.batch_size,
        global_batch_size=args.global_batch_size,
        max_length=args.max_length,
        columns=["input_ids", "attention_mask"],
        seed=args.seed,
        lanes=args.lanes,
        window=args.window,
        proof_dir=args.proof_dir,
    )
    step = 0
    if args.state and os.path.exists(args.state):
        with open(args.state, encoding="utf-8") as file:
            saved = json.load(file)
        loader.load_state_dict(saved["loader"])
        step = saved["step"]
    end = step + args.steps
    accum = args.global_batch_size // (args.batch_size * args.world)
    base = ID_BASE ** np.arange(ID_TOKENS)
    ids: list[int] = []
    micro = 0
    while step < end:
        for batch in loader:
            ids += (batch["input_ids"][:, :ID_TOKENS] * base).sum(axis=1).tolist()
            micro += 1
            if micro % accum:
                continue
            step += 1
            if args.log_ids:
                with open(f"{args.log_ids}.rank{rank}", "a", encoding="utf-8") as file:
                    file.write(json.dumps({"step": step, "rank": rank, "ids": ids}) + "\n")
            ids = []
            if step == end:
                break
    state = loader.state_dict()
    loader.close()
    if args.state and rank == 0:
        temporary = f"{args.state}.tmp"
        with open(temporary, "w", encoding="utf-8") as file:
            json.dump({"step": step, "loader": state}, file)
        os.replace(temporary, args.state)


def main() -> int:
    args = arguments()
    if "RANK" in os.environ:
        rank_main(args, int(os.environ["RANK"]))
        return 0
    common = {**os.environ, "WORLD_SIZE": str(args.world), "LOCAL_WORLD_SIZE": str(args.world)}
    common.setdefault("ATHANOR_JOB_ID", f"replay-{os.getpid()}")
    ranks = [
        subprocess.Popen([sys.executable, *sys.argv], env={**common, "RANK": str(rank), "LOCAL_RANK": str(rank)})
        for rank in range(args.world)
    ]
    try:
        codes = [process.wait() for process in ranks]
    finally:
        for process in ranks:
            process.kill()
    if any(codes):
        print(f"replay: ranks ended with {codes}", file=sys.stderr)
        return 1
    return compare(args) if args.compare else 0


def compare(args: argparse.Namespace) -> int:
    for step in range(1, args.steps + 1):
        position = step * args.global_batch_size
        want, got = proof_total(args.proof_dir, position), proof_total(args.compare, position)
        if want != got:
            print(f"proofs differ first at step {step} (position {position}): {got} in {args.compare}, {want} here")
            return 1
    print(f"equal proof at each of {args.steps} steps: {got.rows} samples, sum {got.sum:016x}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
