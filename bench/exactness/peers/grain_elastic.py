"""Grain's `experimental.ElasticIterator` ("recovery from a checkpoint after changes in sharding"), over the data set of
grain_map.py before slicing and batching: "State of any shard can be used to restore the state of all of the shards
after changes in sharding and global batch size"."""

from __future__ import annotations

from typing import Any

import grain

from peers import grain_map

TITLE = "Grain `ElasticIterator`"
PACKAGES = grain_map.PACKAGES
WORKERS = grain_map.WORKERS
PROCESS_GROUP = False
HOW = (
    "the same data set, unsliced, under `grain.experimental.ElasticIterator`; state of rank 0; "
    "shards and global batch may change, says its docstring"
)
prepare = None  # reads what grain_map.py wrote


class Loader(grain_map.Loader):
    def _iterator_of(self, dataset: Any) -> Any:
        place = self._place
        options = grain.sharding.ShardOptions(shard_index=place.rank, shard_count=place.world)
        return iter(
            grain.experimental.ElasticIterator(
                dataset, place.world * place.batch, options, multiprocessing_options=self._workers
            )
        )

    def _own(self, states: list[Any]) -> Any:
        return states[0]
