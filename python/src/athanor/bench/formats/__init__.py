"""`athanor bench formats`: the same samples in every format, read by Athanor and by the format's own reader.

`data` writes them, `peers` are the readers, `measure` runs one of them. Driven by src/bench/formats.ts.
"""
