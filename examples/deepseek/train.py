#!/usr/bin/env python3
"""Pre-training of a DeepSeek-style model with PyTorch and DeepSpeed, fed by Athanor.

    deepspeed --num_gpus=8 train.py --data_dir /mnt/lustre/deepseek/data --model_name_or_path ./tiny \\
        --output_dir ./output --per_device_train_batch_size 32 --gradient_accumulation_steps 4 \\
        --learning_rate 3e-4 --num_train_epochs 3 --deepspeed ds_config.json

The same line with `--resume` goes on exactly where the newest whole checkpoint was taken: no sample is lost and none
is repeated, also after any crash and at another number of GPUs (keep the optimizer batch: `--global_batch_size`).

output_dir/
  log.jsonl         one line an optimizer step {"step", "epoch", "loss", "position", "lr"}; appended by a resumed run,
                    so the last line of a step counts
  proof/            what each rank was really given; `athanor state verify output_dir --data DATA` checks it
  checkpoint-N/     see checkpoint.py
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import sys
import time
from typing import Any

import checkpoint
import deepspeed
import torch
import torch.distributed as dist
from athanor.torch import Loader
from model import deepspeed_config, keep_gradients_in_step, load_model

ID_BASE, ID_TOKENS = 251, 4  # make_corpus.py --ids


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="pre-training with DeepSpeed, fed by Athanor")
    add = parser.add_argument
    add("--data_dir", required=True, help="folder of shards, a glob or a file")
    add("--model_name_or_path", required=True, help="folder with config.json (and weights), or a hub name")
    add("--output_dir", required=True)
    add("--per_device_train_batch_size", type=int, default=8)
    add("--gradient_accumulation_steps", type=int, help="default: 1, or what --global_batch_size needs")
    add("--global_batch_size", type=int, help="samples of one optimizer step over all ranks")
    add("--learning_rate", type=float, help="default: what the DeepSpeed configuration says")
    add("--warmup_steps", type=int, help="default: what the DeepSpeed configuration says")
    add("--num_train_epochs", type=int, default=1)
    add("--max_steps", type=int, default=-1, help="end after so many optimizer steps; -1: never")
    add("--deepspeed", default=os.path.join(os.path.dirname(__file__), "ds_config.json"), help="DeepSpeed's JSON")
    add("--max_length", type=int, default=512, help="tokens a sample")
    add("--seed", type=int, default=1234, help="of the data order and of random weights")
    add("--save_steps", type=int, default=500, help="optimizer steps between checkpoints; 0: only at the end")
    add("--resume", nargs="?", const="", help="go on from the newest whole checkpoint, or from the one named")
    add("--proof_dir", help="default: output_dir/proof")
    add("--log_ids", help="FILE: write the ids of make_corpus.py --ids, found in the batches, to FILE.rankN")
    add("--allow_hub", action="store_true", help="fetch a model name that is not a local folder")
    add("--local_rank", type=int, default=int(os.environ.get("LOCAL_RANK", "0")), help="set by the launcher")
    return parser.parse_args()


def accumulation(args: argparse.Namespace, world: int) -> int:
    step = args.per_device_train_batch_size * world
    if args.global_batch_size is None:
        return int(args.gradient_accumulation_steps or 1)
    if args.global_batch_size % step:
        raise SystemExit(
            f"--global_batch_size must be a multiple of {step} ({world} ranks × {args.per_device_train_batch_size} "
            f"samples), got {args.global_batch_size}"
        )
    steps = args.global_batch_size // step
    if args.gradient_accumulation_steps not in (None, steps):
        raise SystemExit(
            f"--gradient_accumulation_steps {args.gradient_accumulation_steps} and --global_batch_size "
            f"{args.global_batch_size} disagree: it takes {steps} accumulation steps; give one of the two"
        )
    return int(steps)


def plan_resume(args: argparse.Namespace, world: int, global_batch: int) -> checkpoint.Found | None:
    found = checkpoint.find(args.output_dir, args.resume or None)
    if args.resume is None:
        if found is not None:
            raise SystemExit(f"{args.output_dir} holds {found.folder}: add --resume, or choose another --output_dir")
        return None
    if found is not None and found.global_batch != global_batch:
        raise SystemExit(
            f"{found.folder} was trained with an optimizer batch of {found.global_batch} samples, these flags give "
            f"{global_batch} on {world} ranks: pass --global_batch_size {found.global_batch}"
        )
    return found


def append_line(path: str, line: dict[str, Any]) -> None:
    with open(path, "a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


def remove_shared_memory_names(rank: int) -> None:
    """DeepSpeed's CPU all-reduce leaves 66 MiB a rank in /dev/shm, also after a clean end. All ranks have mapped the
    files by now, so their names can go, and nothing is left after any kill."""
    address, port = os.environ.get("MASTER_ADDR", ""), os.environ.get("MASTER_PORT", "")
    with contextlib.suppress(FileNotFoundError):
        os.unlink(f"/dev/shm/deepspeed_allreduce_buffer_{os.getuid()}_{address}_{port}_{rank}")


def decoded_ids(input_ids: torch.Tensor) -> list[int]:
    base = torch.tensor([ID_BASE**digit for digit in range(ID_TOKENS)])
    return [int(i) for i in (input_ids[:, :ID_TOKENS] * base).sum(dim=1)]


def train(args: argparse.Namespace) -> None:
    deepspeed.init_distributed()
    rank, world = dist.get_rank(), dist.get_world_size()
    on_cpu = deepspeed.accelerator.get_accelerator().device_name() == "cpu"
    micro, accum = args.per_device_train_batch_size, accumulation(args, world)
    global_batch = micro * accum * world

    dist.barrier()
    remove_shared_memory_names(rank)
    if rank == 0:
        os.makedirs(args.output_dir, exist_ok=True)
        checkpoint.sweep(args.output_dir)
    dist.barrier()

    def say(text: str) -> None:
        if rank == 0:
            print(f"[train] {text}", flush=True)

    found = plan_resume(args, world, global_batch)
    if args.resume is not None and found is None:
        say(f"--resume: no checkpoint in {args.output_dir} yet, starting at step 0")

    config = deepspeed_config(
        args.deepspeed,
        micro_batch=micro,
        grad_accum=accum,
        lr=args.learning_rate,
        warmup=args.warmup_steps,
        on_cpu=on_cpu,
        say=say,
    )
    universal: list[str | None] = [None]
    if found is not None and found.world != world:
        say(f"{found.folder} comes from {found.world} ranks, this run has {world}: Universal Checkpoint")
        if rank == 0:
            universal[0] = checkpoint.make_universal(found, args.output_dir)
        dist.broadcast_object_list(universal)
        if universal[0] is not None:
            config["checkpoint"] = {"load_universal": True}

    model = load_model(args.model_name_or_path, allow_hub=args.allow_hub, seed=args.seed, say=say)
    keep_gradients_in_step(model)
    vocabulary = model.get_input_embeddings().num_embeddings
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)

    loader = Loader(
        args.data_dir,
        batch_size=micro,
        grad_accum=accum,
        max_length=args.max_length,
        columns=["input_ids", "attention_mask"],
        seed=args.seed,
        proof_dir=args.proof_dir or os.path.join(args.output_dir, "proof"),
    )
    step = epoch = 0
    if found is not None:
        weights_only = found.world != world and universal[0] is None
        if weights_only:
            say("notice: the Universal Checkpoint failed: weights only, optimizer and schedule start anew")
        client = checkpoint.load(engine, universal[0] or found.folder, weights_only=weights_only)
        dist.barrier()
        if rank == 0:
            checkpoint.sweep(args.output_dir)  # the converted copy
        state, saved_at = checkpoint.loader_state(found.folder, client), client["loader"]["position"]
        loader.load_state_dict(state)
        step, epoch = client["step"], loader.epoch
        say(f"resumed from {found.folder}: step {step}, position {state['position']}")
        if state["position"] != saved_at:
            say(f"notice: the checkpoint was taken at position {saved_at}; loader_state.json was moved since")

    stop = False

    def on_sigterm(signum: int, frame: object) -> None:  # a pre-empted pod or job: end at the next step's border
        nonlocal stop
        stop = True

    signal.signal(signal.SIGTERM, on_sigterm)
    saved = step

    def save() -> None:
        nonlocal saved
        state = {"loader": loader.state_dict(), "step": step}
        say(f"saved {checkpoint.save(engine, args.output_dir, step, state, global_batch)}")
        saved = step

    ended = 0 <= args.max_steps <= step
    while epoch < args.num_train_epochs and not ended:
        loader.set_epoch(epoch)
        loss_sum, ids, began = torch.zeros((), device=engine.device), [], time.monotonic()
        for batch in loader:
            input_ids, mask = batch["input_ids"], batch["attention_mask"]
            if int(input_ids.max()) >= vocabulary:
                raise SystemExit(f"token {int(input_ids.max())} in {args.data_dir}: the model knows {vocabulary}")
            if args.log_ids:
                ids += decoded_ids(input_ids)
            input_ids, mask = input_ids.to(engine.device), mask.to(engine.device)
            labels = input_ids.masked_fill(mask == 0, -100)
            loss = engine(input_ids=input_ids, attention_mask=mask, labels=labels).loss
            border = engine.is_gradient_accumulation_boundary()
            engine.backward(loss)
            engine.step()
            loss_sum += loss.detach().float() / (accum * world)
            if not border:
                continue
            step += 1
            both = torch.stack([loss_sum, torch.tensor(float(stop), device=engine.device)])
            dist.all_reduce(both)  # all ranks stop at the same step
            line = {"step": step, "epoch": epoch, "loss": float(both[0])}
            line |= {"position": int(loader.state_dict()["position"]), "lr": engine.get_lr()[0]}
            if rank == 0:
                append_line(os.path.join(args.output_dir, "log.jsonl"), line)
            say(f"step {step:>5}  loss {line['loss']:.4f}  {time.monotonic() - began:.2f} s")
            if args.log_ids:
                append_line(f"{args.log_ids}.rank{rank}", {"step": step, "rank": rank, "ids": ids})
            loss_sum, ids, began = torch.zeros_like(loss_sum), [], time.monotonic()
            if args.save_steps > 0 and step % args.save_steps == 0:
                save()
            ended = bool(both[1] > 0) or step == args.max_steps
            if ended:
                break
        else:
            epoch += 1
    if saved != step:
        save()
    loader.close()
    say(f"done: step {step}")
    dist.barrier()
    dist.destroy_process_group()
    # Python puts the default back at its end: one more SIGTERM would then turn exit code 0 into 143.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


if __name__ == "__main__":
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    train(arguments())
