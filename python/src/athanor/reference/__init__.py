"""The order, its state and its proof in plain Python, and readers of shards: slow, readable, the oracle of the tests.

`Loader(agent="none")` stands on it: the way out where a daemon is forbidden.

>>> from athanor.reference import View
>>> what = {"source": "/data", "index_dir": None, "columns": None, "max_length": 512, "pad_id": 0, "strict": False}
>>> view = View(what, {"seed": "7", "global_batch": 64})
>>> [view.order.locate(position).sample for position in range(64)]     # the first optimizer batch, in file order
"""

from __future__ import annotations

from .megatron import read_megatron
from .order import Order, run_of_one
from .plan import Job, plan
from .resolve import Options, Totals, resolve
from .samples import shard_key
from .segments import Run
from .state import go_on, run_of, state_of
from .tfrecord import read_tfrecord
from .view import View

__all__ = [
    "Job",
    "Options",
    "Order",
    "Run",
    "Totals",
    "View",
    "go_on",
    "plan",
    "read_megatron",
    "read_tfrecord",
    "resolve",
    "run_of",
    "run_of_one",
    "shard_key",
    "state_of",
]
