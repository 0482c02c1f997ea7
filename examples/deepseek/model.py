"""The model that `--model_name_or_path` names, and the DeepSpeed configuration completed from the flags."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

import torch

Say = Callable[[str], None]


def load_model(name_or_path: str, *, allow_hub: bool, seed: int, say: Say) -> torch.nn.Module:
    """A local folder with weights, a local folder with only config.json (random weights from `seed`, equal on all
    ranks), or, with `allow_hub`, a name on the Hugging Face hub."""
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(seed)
    if os.path.isdir(name_or_path):
        files = os.listdir(name_or_path)
        if "config.json" not in files:
            raise SystemExit(f"--model_name_or_path: no config.json in {name_or_path}")
        if any(name.endswith((".safetensors", ".bin")) for name in files):
            return AutoModelForCausalLM.from_pretrained(name_or_path, local_files_only=True)
        model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(name_or_path, local_files_only=True))
        count = sum(p.numel() for p in model.parameters())
        say(f"model: {name_or_path} has no weights: {count / 1e6:.1f} M random parameters from seed {seed}")
        return model
    if not allow_hub:
        raise SystemExit(
            f"--model_name_or_path: {name_or_path} is not a folder here; --allow_hub fetches that name from the hub"
        )
    return AutoModelForCausalLM.from_pretrained(name_or_path)


def keep_gradients_in_step(model: torch.nn.Module) -> None:
    """Gives every expert a gradient in every backward pass, in the same sequence on all ranks.

    transformers skips experts that got no token. ZeRO reduces gradients in the sequence in which they become ready, so
    ranks whose batches chose different experts then reduce different parameters against each other: gloo aborts
    ("Received data size doesn't match expected size", seen at step 5 of the tiny model), and where sizes happen to be
    equal the sums would be silently wrong. Here each expert also takes zero tokens, ahead of the real ones: this adds
    exactly 0 to the output, and zeros to the gradients.
    """

    def before(module: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
        hidden = inputs[0]
        nothing = hidden.reshape(-1, hidden.shape[-1])[:0]
        module.zero = torch.stack([expert(nothing).sum() for expert in module.experts]).sum()  # type: ignore[union-attr]

    def after(module: torch.nn.Module, inputs: tuple[torch.Tensor, ...], output: torch.Tensor) -> torch.Tensor:
        return output + module.zero

    for module in model.modules():
        if isinstance(getattr(module, "experts", None), torch.nn.ModuleList):
            module.register_forward_pre_hook(before)
            module.register_forward_hook(after)


def deepspeed_config(
    path: str, *, micro_batch: int, grad_accum: int, lr: float | None, warmup: int | None, on_cpu: bool, say: Say
) -> dict[str, Any]:
    """The file at `path` with the keys that DeepSpeed requires and that the flags know; each change is said."""
    with open(path, encoding="utf-8") as file:
        config: dict[str, Any] = json.load(file)
    name = os.path.basename(path)

    def fill(section: dict[str, Any], key: str, value: Any) -> None:
        if section.get(key) not in (None, "auto", value):
            say(f"{name}: {key} is {section[key]}, the flags say {value}: the flags win")
        section[key] = value

    fill(config, "train_micro_batch_size_per_gpu", micro_batch)
    fill(config, "gradient_accumulation_steps", grad_accum)
    if "train_batch_size" in config:
        say(f"{name}: train_batch_size is dropped, DeepSpeed computes it from the two others")
        del config["train_batch_size"]
    say(
        f"{name}: filled from the flags: train_micro_batch_size_per_gpu {micro_batch}, "
        f"gradient_accumulation_steps {grad_accum}"
    )
    scheduler = config.get("scheduler", {}).get("params", {})
    if lr is not None:
        fill(config.setdefault("optimizer", {"type": "AdamW"}).setdefault("params", {}), "lr", lr)
        if "warmup_max_lr" in scheduler:
            fill(scheduler, "warmup_max_lr", lr)
    if warmup is not None:
        fill(scheduler, "warmup_num_steps", warmup)
    config.setdefault("steps_per_print", 10**9)  # train.py prints each optimizer step itself
    if on_cpu:
        if config.get("fp16", {}).get("enabled"):
            say("notice: no GPU: fp16 is not supported by DeepSpeed on CPU, bf16 is used instead")
            del config["fp16"]
            config["bf16"] = {"enabled": True}
        params = config.get("optimizer", {}).get("params")
        if params is not None and "torch_adam" not in params:
            say("notice: no GPU: torch_adam is set, so that DeepSpeed need not compile its own Adam")
            params["torch_adam"] = True
    return config
