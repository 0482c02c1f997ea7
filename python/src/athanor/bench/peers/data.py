"""The samples of `athanor.bench.formats.data` in the formats that only one peer reads: LitData chunks, ArrayRecord,
Arrow as HF datasets saves it, and MDS with `bytes` columns (MosaicML's `ndarray` ones decode at a third of the speed).

    python -m athanor.bench.peers.data --out DIR [--formats litdata,arrow] [--n 100000] [--seq 512] [--shards 10]

Prints the formats that are there as a JSON list; one whose library is missing is left out and named on stderr.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from ..formats import data as formats
from ..formats.data import Rows

CHUNK_BYTES = 1 << 26


def mds_bytes(out: str, parts: list[Rows]) -> None:
    from streaming import MDSWriter

    columns = {"input_ids": "bytes", "attention_mask": "bytes"}
    with MDSWriter(out=out, columns=columns, size_limit=CHUNK_BYTES) as writer:
        for ids, mask in parts:
            for a, b in zip(ids.astype("<i4"), mask.astype(np.int8)):
                writer.write({"input_ids": a.tobytes(), "attention_mask": b.tobytes()})


#: Read by `_row`, which LitData calls in a fork of this process.
_PARTS: list[Rows] = []


def _row(index: int) -> dict[str, Any]:
    for ids, mask in _PARTS:
        if index < len(ids):
            return {"input_ids": ids[index].astype(np.int32), "attention_mask": mask[index].astype(np.int8)}
        index -= len(ids)
    raise IndexError(index)


def litdata(out: str, parts: list[Rows]) -> None:
    os.environ["LITDATA_DISABLE_VERSION_CHECK"] = "1"
    from litdata import optimize

    _PARTS[:] = parts
    inputs = list(range(sum(len(ids) for ids, _ in parts)))
    optimize(fn=_row, inputs=inputs, output_dir=out, chunk_bytes="64MB", num_workers=1, start_method="fork")


def arrayrecord(out: str, parts: list[Rows]) -> None:
    from array_record.python.array_record_module import ArrayRecordWriter

    for i, (ids, mask) in enumerate(parts):
        writer = ArrayRecordWriter(f"{out}/{i:03d}.array_record", "group_size:1,uncompressed")
        for a, b in zip(ids.astype("<i4"), mask.astype(np.int8)):
            writer.write(a.tobytes() + b.tobytes())
        writer.close()


def arrow(out: str, parts: list[Rows]) -> None:
    import datasets
    import pyarrow as pa

    def lists(rows: np.ndarray) -> Any:
        ends = np.arange(0, rows.size + 1, rows.shape[1], dtype=np.int32)
        return pa.ListArray.from_arrays(ends, pa.array(rows.astype(np.int32).ravel()))

    tables = [pa.table({"input_ids": lists(ids), "attention_mask": lists(mask)}) for ids, mask in parts]
    datasets.Dataset(pa.concat_tables(tables)).save_to_disk(out, num_shards=len(parts))


WRITERS = {
    **formats.WRITERS,
    "mds_bytes": mds_bytes,
    "litdata": litdata,
    "arrayrecord": arrayrecord,
    "arrow": arrow,
}


if __name__ == "__main__":
    formats.main(WRITERS)
