"""The memory map that the map-style contender reads: made once from the TFRecord shards, kept in a cache folder.

Layout of the folder: `ids.i32` int32 [n, width], `mask.i8` int8 [n, width], both row-major, little-endian, padded
with 0; `meta.json` {"n", "width"}, written last: a folder without it is not finished. 2 560 B a sample at width 512.

    python -m athanor.bench.memmap < config.json      {"shards": [[path, records], …], "width": 512, "out": DIR}
"""

from __future__ import annotations

import json
import os
import shutil
import sys

import numpy as np

from .tfrecord import example, walk

INT32 = np.iinfo(np.int32)


def make(shards: list[tuple[str, int]], width: int, out: str) -> None:
    part = f"{out}.{os.getpid()}.part"
    os.makedirs(part)
    try:
        total = 0
        with open(f"{part}/ids.i32", "wb") as ids_file, open(f"{part}/mask.i8", "wb") as mask_file:
            for path, records in shards:
                ids = np.zeros((records, width), np.int32)
                mask = np.zeros((records, width), np.int8)
                count = 0
                for count, payload in enumerate(walk(path), 1):
                    if count > records:
                        break
                    fill(example(payload), ids[count - 1], mask[count - 1], f"{path}, record {count - 1}")
                if count != records:
                    raise ValueError(f"{path}: the index says {records} records, found {count} (run `athanor index`)")
                ids.tofile(ids_file)
                mask.tofile(mask_file)
                total += records
            for file in (ids_file, mask_file):
                file.flush()
                os.fsync(file.fileno())
        with open(f"{part}/meta.json", "w") as meta:
            json.dump({"n": total, "width": width}, meta)
        os.rename(part, out)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def fill(features: dict[str, np.ndarray], ids: np.ndarray, mask: np.ndarray, where: str) -> None:
    """One sample into its two padded rows: cut or padded to their width."""
    if "input_ids" not in features:
        raise ValueError(f"{where}: no int64 feature `input_ids`, found {sorted(features)}")
    values = features["input_ids"][: len(ids)]
    if len(values) and (values.min() < INT32.min or values.max() > INT32.max):
        raise ValueError(f"{where}: an id does not fit int32, the memory map of this bench cannot hold it")
    ids[: len(values)] = values
    if "attention_mask" in features:
        ones = features["attention_mask"][: len(mask)]
        mask[: len(ones)] = ones
    else:
        mask[: len(values)] = 1


def load(folder: str) -> tuple[np.ndarray, np.ndarray]:
    with open(f"{folder}/meta.json") as file:
        meta = json.load(file)
    shape = (meta["n"], meta["width"])
    return (
        np.memmap(f"{folder}/ids.i32", np.int32, "r", shape=shape),
        np.memmap(f"{folder}/mask.i8", np.int8, "r", shape=shape),
    )


if __name__ == "__main__":
    config = json.load(sys.stdin)
    make([(path, records) for path, records in config["shards"]], config["width"], config["out"])
