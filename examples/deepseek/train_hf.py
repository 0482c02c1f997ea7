#!/usr/bin/env python3
"""Pre-training with the Trainer of transformers, fed by Athanor.

    torchrun --nproc_per_node 8 train_hf.py --data_dir /mnt/lustre/deepseek/data --model_name_or_path ./tiny \\
        --output_dir ./output --per_device_train_batch_size 32 --gradient_accumulation_steps 4 --learning_rate 3e-4 \\
        --num_train_epochs 3 --save_steps 500

All flags of `TrainingArguments` work. `--resume_from_checkpoint ./output/checkpoint-500` goes on with the very next
sample, also on another number of GPUs (keep the samples of an optimizer step). The loader's state lies in the
checkpoint's `trainer_state.json`; the Trainer neither shards the data nor skips it a second time.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from typing import Any

from athanor.torch import DeepSeekDataset, Loader, for_trainer
from model import keep_gradients_in_step, load_model
from torch.utils.data import default_collate
from transformers import HfArgumentParser, Trainer, TrainingArguments

ID_BASE, ID_TOKENS = 251, 4  # make_corpus.py --ids


@dataclass
class Arguments:
    data_dir: str = field(metadata={"help": "folder of shards, a glob or a file"})
    model_name_or_path: str = field(metadata={"help": "folder with config.json (and weights), or a hub name"})
    eval_dir: str | None = field(default=None, metadata={"help": "shards to evaluate on (see --eval_strategy)"})
    max_length: int = field(default=512, metadata={"help": "tokens a sample"})
    log_ids: str | None = field(default=None, metadata={"help": "FILE: ids of make_corpus.py --ids go to FILE.rankN"})
    allow_hub: bool = field(default=False, metadata={"help": "fetch a model name that is not a local folder"})


def with_labels(batch: dict[str, Any]) -> dict[str, Any]:
    """What the model learns: every token that is no padding."""
    return {**batch, "labels": batch["input_ids"].masked_fill(batch["attention_mask"] == 0, -100)}


def main() -> None:
    given, args = HfArgumentParser((Arguments, TrainingArguments)).parse_args_into_dataclasses()

    def prepare(batch: dict[str, Any]) -> dict[str, Any]:
        if given.log_ids is not None:
            digits = batch["input_ids"][:, :ID_TOKENS].tolist()
            ids = [sum(token * ID_BASE**place for place, token in enumerate(row)) for row in digits]
            with open(f"{given.log_ids}.rank{args.process_index}", "a", encoding="utf-8") as file:
                file.write(json.dumps(ids) + "\n")
        return with_labels(batch)

    columns = ["input_ids", "attention_mask"]
    model = load_model(given.model_name_or_path, allow_hub=given.allow_hub, seed=args.seed, say=print)
    keep_gradients_in_step(model)
    loader = Loader(
        given.data_dir,
        batch_size=args.per_device_train_batch_size,
        grad_accum=args.gradient_accumulation_steps,
        max_length=given.max_length,
        columns=columns,
        seed=args.seed,
        proof_dir=os.path.join(args.output_dir, "proof"),
        transform=prepare,
    )
    evaluation = None
    if given.eval_dir is not None:
        # A map-style data set: the Trainer deals it out and batches it itself.
        evaluation = DeepSeekDataset(given.eval_dir, max_length=given.max_length, columns=columns)
    trainer = Trainer(
        model=model,
        args=args,
        eval_dataset=evaluation,
        data_collator=lambda samples: with_labels(default_collate(samples)),
    )
    trainer = for_trainer(trainer, loader)
    trainer.train(resume_from_checkpoint=args.resume_from_checkpoint)
    loader.close()


if __name__ == "__main__":
    main()
