"""The committed vectors of the order, made by the plain Python of `athanor.reference`.

`PYTHONPATH=python/src python python/tests/order_vectors.py` writes test/fixtures/order-v1.json, which the tests of both
languages read. Another value of any vector is order version 2.
"""

import json
from pathlib import Path

import numpy as np

from athanor._proof import hash_rows
from athanor.reference import Options, Order, Totals, resolve, run_of_one, shard_key
from athanor.reference.chance import EXTENTS, MASK, WINDOW, feistel, mix, permutation
from athanor.reference.resolve import How, is_held

FIXTURE = Path(__file__).resolve().parents[2] / "test" / "fixtures" / "order-v1.json"


def order_of(extents, options):
    """An order from its numbers. `options`: seed, shuffle, lanes, window, last, global_batch, from."""
    o = options
    how = How(o["shuffle"], o["lanes"], o["window"], 1)
    run = run_of_one(
        "data", "", sum(extents), how, seed=o["seed"], global_batch=o["global_batch"], last=o["last"], start=o["from"]
    )
    return Order(run, lambda source: extents)


def resolved_of(view, options):
    totals, asked = Totals(**view), Options(**options)
    how = resolve(totals, asked)
    held = is_held(totals, how, asked)
    return {"shuffle": how.shuffle, "held": held, "lanes": how.lanes, "extent": how.extent, "window": how.window}


def deal(order, start, step, world):
    return [[p.tolist(), valid] for p, valid in (order.deal(start, step, world, rank) for rank in range(world))]


def make():
    """All vectors. 64-bit numbers are decimal strings."""
    u = str
    fields = [
        (0,),
        (1, 2, 3),
        (1234, 2, 0, 0, 0, 0, 0),
        (1234, 2, 0, 3, 63, 1000, 29999),
        (MASK,) * 7,
        (1 << 63, 1, 0, (1 << 53) - 1, 7, 1 << 32, 0xFFFFFFFF),
    ]
    prefixes = [
        ((1234, WINDOW, 0, 0, 0, 0), 1),
        ((1234, WINDOW, 0, 0, 5, 9), 2),
        ((0, EXTENTS, 0, 1, 0, 0), 60),
        ((MASK, WINDOW, 3, 2, 1, 0), 700),
    ]
    networks = [
        (1234, 0, 0, 1, 1),
        (1234, 0, 1, 2, 2),
        (7, 0, 0, 5, 5),
        (7, 2, 9, 16, 16),
        (7, 0, 0, 17, 17),
        (MASK, 0, 0, 1000, 40),
        (5, 0, 3, (1 << 33) + 7, 20),
    ]
    base = {"seed": 1234, "shuffle": "window", "lanes": 4, "window": 7, "last": "carry", "global_batch": 24, "from": 0}
    extents = [13, 0, 9, 20, 1, 17, 11, 30]
    variants = [
        {},
        {"last": "drop", "seed": MASK},
        {"last": "pad", "from": 48},
        {"lanes": 3, "window": 1000, "from": 24},
        {"shuffle": "none", "lanes": 1, "window": 1},
        {"shuffle": "global", "lanes": 1, "window": 101, "last": "drop"},
    ]
    orders = []
    for variant in variants:
        options = base | variant
        order = order_of(extents, options)
        length = order.epochs.spans[0].length
        start = options["from"]
        stop = start + 2 * length
        steps = []
        for world, step in ((1, 24), (2, 24), (3, 12), (4, 8), (8, 24)):
            for k in (0, 1, length // step, length // step - 1):
                at = start + k * step
                steps.append({"start": at, "step": step, "world": world, "ranks": deal(order, at, step, world)})
        orders.append(
            {
                "options": options | {"seed": u(options["seed"])},
                "extents": extents,
                "samples": [order.locate(p).sample for p in range(start, stop)],
                "begin": [order.epochs.begin(e) for e in range(6)],
                "epochOf": [[p, order.epochs.epoch_of(p)] for p in range(start, stop, 5)],
                "steps": steps,
            }
        )
    big = {"samples": 801299000, "bytes": 1000 << 30, "blocks": 256000, "largest_block": 3131, "row_bytes": 4096}
    small = {"samples": 100000, "bytes": 107_000_000, "blocks": 30, "largest_block": 3900, "row_bytes": 4096}
    tiny = {"samples": 3, "bytes": 300, "blocks": 1, "largest_block": 3, "row_bytes": 4096}
    wide = {"samples": 5000, "bytes": 5 << 30, "blocks": 1280, "largest_block": 4, "row_bytes": 1 << 22}
    asks = [
        (big, {}),
        (small, {}),
        (small, {"shuffle_memory": 1 << 26}),
        (small, {"lanes": 6}),
        (small, {"shuffle": "none"}),
        (small, {"window": 50}),
        (big, {"shuffle": "global"}),
        (tiny, {}),
        (tiny, {"lanes": 5}),
        (wide, {}),
        (wide, {"unit": "shard"}),
    ]
    keys = [("data", "a.tfrecord"), ("", ""), ("Quelle", "ordner/ü.tfrecord")]
    rows = [(0, 0, 0, 0), (1, MASK, 2, 3), ((1 << 53) - 1, 1 << 63, 1 << 40, 1 << 31)]
    return {
        "version": 1,
        "mix": [{"fields": [u(f) for f in fs], "value": u(mix(*fs))} for fs in fields],
        "permutation": [{"prefix": [u(f) for f in p], "n": n, "perm": permutation(p, n).tolist()} for p, n in prefixes],
        "feistel": [
            {"seed": u(s), "source": c, "epoch": e, "n": n, "out": feistel(s, c, e, n, np.arange(k)).tolist()}
            for s, c, e, n, k in networks
        ],
        "order": orders,
        "resolve": [{"view": v, "options": o, "resolved": resolved_of(v, o)} for v, o in asks],
        "shardKey": [{"source": s, "path": p, "key": u(shard_key(s, p))} for s, p in keys],
        "rowHash": [{"row": [u(f) for f in r], "hash": u(int(hash_rows(np.array([r], np.uint64))[0]))} for r in rows],
    }


if __name__ == "__main__":
    FIXTURE.write_text(json.dumps(make(), separators=(",", ":")).replace("},{", "},\n{") + "\n", encoding="utf-8")
    print(f"wrote {FIXTURE}")
