"""Hugging Face datasets as in hf.py, without shuffling: what its docs promise to resume exactly."""

from __future__ import annotations

from rank import Place

from peers import hf

TITLE = "HF datasets, not shuffled"
PACKAGES = hf.PACKAGES
WORKERS = hf.WORKERS
PROCESS_GROUP = hf.PROCESS_GROUP
HOW = "the same without `shuffle`"
prepare = None  # reads what hf.py wrote


class Loader(hf.Loader):
    def __init__(self, place: Place) -> None:
        super().__init__(place, buffer=None)
