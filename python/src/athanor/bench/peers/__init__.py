"""`athanor bench peers`: the same samples through other loaders, each used as its own documentation shows.

`data` writes what each of them reads, `loaders` are the loaders. Driven by src/bench/peers.ts through worker.py.
"""
