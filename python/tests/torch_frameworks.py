"""One of two ranks under gloo, for test_frameworks.py: torch_frameworks.py DATA CHECKPOINT; prints what it found."""

from __future__ import annotations

import json
import sys
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from accelerate import Accelerator, DataLoaderConfiguration
from torch.utils.data import DataLoader

from athanor.torch import AthanorDataset, DeepSeekDataset, Loader


def refusal(config: dict[str, Any], batch_size: int | None = None) -> str:
    """What accelerate's loader over an AthanorDataset says, at preparing or at the first batch."""
    accelerator = Accelerator(cpu=True, dataloader_config=DataLoaderConfiguration(**config))
    dataset = AthanorDataset(data, batch_size=4, columns=["id"])
    try:
        next(iter(accelerator.prepare(DataLoader(dataset, batch_size=batch_size))))
    except ValueError as error:
        return str(error)
    finally:
        dataset.close()
    return "not refused"


data, folder = sys.argv[1:]
accelerator = Accelerator(cpu=True)
found: dict[str, Any] = {"rank": accelerator.process_index}
with Loader(data, batch_size=4, columns=["id"], seed=5) as loader:
    prepared = accelerator.prepare(loader)
    found["untouched"] = prepared is loader
    batches = prepared.repeat()
    found["ids"] = [next(batches)["id"].tolist() for _ in range(3)]
    weights = {"weight": torch.full((4,), 7.0)}
    dcp.save({"model": weights, "loader": loader}, checkpoint_id=folder)
    found["after"] = [next(batches)["id"].tolist() for _ in range(3)]
    dcp.load({"model": weights, "loader": loader}, checkpoint_id=folder)
    batches = loader.repeat()
    found["again"] = [next(batches)["id"].tolist() for _ in range(3)]
found["refused"] = [
    refusal({"dispatch_batches": False}),
    refusal({"dispatch_batches": True}),
    refusal({"dispatch_batches": True, "split_batches": True}, 2),
    refusal({"dispatch_batches": False, "split_batches": True}, 2),
    refusal({"dispatch_batches": False, "use_stateful_dataloader": True}),
]
# A map-style data set is accelerate's to deal out.
samples = DeepSeekDataset(data, columns=["id"])
found["mapped"] = [int(i) for batch in accelerator.prepare(DataLoader(samples, batch_size=4)) for i in batch["id"]]
samples.close()
print(json.dumps(found))
accelerator.end_training()
