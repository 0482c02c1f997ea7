"""The order in plain Python, written from docs/reference/order.md: slow, readable, the oracle of the tests.

`python python/tests/order_reference.py` writes test/fixtures/order-v1.json, which the tests of both languages read.
Another value of any vector is order version 2.
"""

import hashlib
import json
import math
from pathlib import Path

MASK = (1 << 64) - 1
EXTENTS, WINDOW, FEISTEL = 1, 2, 3
FIXTURE = Path(__file__).resolve().parents[2] / "test" / "fixtures" / "order-v1.json"


def fmix64(z):
    z ^= z >> 30
    z = z * 0xBF58476D1CE4E5B9 & MASK
    z ^= z >> 27
    z = z * 0x94D049BB133111EB & MASK
    return z ^ z >> 31


def mix(*fields):
    h = 0
    for field in fields:
        h = fmix64(((h ^ field & MASK) + 0x9E3779B97F4A7C15) & MASK)
    return h


def permutation(prefix, n):
    """By (mix, i)."""
    return sorted(range(n), key=lambda i: (mix(*prefix, i), i))


def feistel(seed, source, epoch, n, p):
    bits = max(2, math.ceil(math.log2(n)) if n > 1 else 0)
    if n > 1 and 1 << bits < n:  # log2 rounds near powers of two
        bits += 1
    bits += bits % 2
    half = bits // 2
    mask = (1 << half) - 1
    while True:
        left, right = p >> half, p & mask
        for i in range(8):
            left, right = right, left ^ mix(seed, FEISTEL, source, epoch, 0, i, right) & mask
        p = left << half | right
        if p < n:
            return p


class Order:
    """`extents`: sample counts in file order. `options`: seed, shuffle, lanes, window, last, global_batch, from."""

    def __init__(self, extents, options, source=0):
        self.o, self.source = options, source
        self.extents = extents
        self.n = sum(extents)
        g = options["global_batch"]
        self.e = self.n // g * g if options["last"] == "drop" else self.n
        self.passes = {}

    def lanes_of(self, epoch):
        """Each lane's samples (file order numbers) in the order in which they are served."""
        if epoch in self.passes:
            return self.passes[epoch]
        o, seed, source = self.o, self.o["seed"], self.source
        if o["shuffle"] == "none":
            lanes = [list(range(self.n))]
        elif o["shuffle"] == "global":
            lanes = [[feistel(seed, source, epoch, self.n, p) for p in range(self.n)]]
        else:
            start = [sum(self.extents[:x]) for x in range(len(self.extents))]
            laid = []
            for x in permutation((seed, EXTENTS, source, epoch, 0, 0), len(self.extents)):
                laid += range(start[x], start[x] + self.extents[x])
            lanes, at, count = [], 0, o["lanes"]
            for lane in range(count):
                rows = self.n // count + (lane < self.n % count)
                stretch, at, served = laid[at : at + rows], at + rows, []
                for w, first in enumerate(range(0, rows, o["window"])):
                    part = stretch[first : first + o["window"]]
                    served += [part[i] for i in permutation((seed, WINDOW, source, epoch, lane, w), len(part))]
                lanes.append(served)
        self.passes[epoch] = lanes
        return lanes

    def locate(self, position):
        """(pass, lane, row, sample)"""
        epoch, p = divmod(position - self.o["from"], self.e)
        lanes = self.lanes_of(epoch)
        lane, row = p % len(lanes), p // len(lanes)
        return epoch, lane, row, lanes[lane][row]

    def begin(self, e):
        g = self.o["global_batch"]
        return self.o["from"] + (-(-e * self.n // g) * g if self.o["last"] == "carry" else e * self.e)

    def epoch_of(self, position):
        e = (position - self.o["from"]) // self.e
        while self.begin(e) > position:
            e -= 1
        while self.begin(e + 1) <= position:
            e += 1
        return e

    def deal(self, start, step, world):
        """For each rank (positions, how many of them are valid)."""
        end = start + step
        if self.o["last"] == "pad":
            end = min(end, self.begin(self.epoch_of(start) + 1))
        ps = sorted(range(start, end), key=lambda q: (self.locate(q)[1], q))
        n, batch, out = len(ps), step // world, []
        for rank in range(world):
            run = ps[rank * n // world : (rank + 1) * n // world]
            repeat = run[-1] if run else ps[rank * n // world]
            out.append((run + [repeat] * (batch - len(run)), len(run)))
        return out


def resolve(view, options):
    """Rules 2 to 4: lanes, extent in blocks, window, held."""
    memory = options.get("shuffle_memory", 1 << 30)
    shuffle = options.get("shuffle", "window")
    free = "lanes" not in options and "window" not in options
    held = view["samples"] * view["row_bytes"] <= memory and shuffle in (("global", "window") if free else ("global",))
    if held:
        shuffle = "global"
    lanes = 1
    if shuffle == "window":
        most = max(1, min(64, view["blocks"] // 4))
        lanes = options.get("lanes", max(1 << k for k in range(7) if 1 << k <= most))
    mean = max(view["bytes"] / view["blocks"], 1)
    extent = math.floor(min(view["bytes"] / (16 * lanes), 256 << 20) / mean + 0.5)
    extent = extent // 64 * 64 if extent >= 64 else max(extent, 1)
    if options.get("unit") == "shard":
        extent = 0
    window = {"none": 1, "global": view["samples"]}.get(shuffle) or options.get(
        "window", max(memory // (lanes * view["row_bytes"]), view["largest_block"])
    )
    return {"shuffle": shuffle, "held": held, "lanes": lanes, "extent": extent, "window": window}


def shard_key(source, path):
    return int.from_bytes(hashlib.sha256(f"{source}\0{path}".encode()).digest()[:8], "little")


def row_hash(position, key, record, token):
    return mix(position, key, record, token)


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
        order = Order(extents, options)
        start = options["from"]
        stop = start + 2 * order.e
        steps = []
        for world, step in ((1, 24), (2, 24), (3, 12), (4, 8), (8, 24)):
            for k in (0, 1, order.e // step, order.e // step - 1):
                at = start + k * step
                steps.append({"start": at, "step": step, "world": world, "ranks": order.deal(at, step, world)})
        orders.append(
            {
                "options": options | {"seed": u(options["seed"])},
                "extents": extents,
                "samples": [order.locate(p)[3] for p in range(start, stop)],
                "begin": [order.begin(e) for e in range(6)],
                "epochOf": [[p, order.epoch_of(p)] for p in range(start, stop, 5)],
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
        "permutation": [{"prefix": [u(f) for f in p], "n": n, "perm": permutation(p, n)} for p, n in prefixes],
        "feistel": [
            {"seed": u(s), "source": c, "epoch": e, "n": n, "out": [feistel(s, c, e, n, p) for p in range(k)]}
            for s, c, e, n, k in networks
        ],
        "order": orders,
        "resolve": [{"view": v, "options": o, "resolved": resolve(v, o)} for v, o in asks],
        "shardKey": [{"source": s, "path": p, "key": u(shard_key(s, p))} for s, p in keys],
        "rowHash": [{"row": [u(f) for f in r], "hash": u(row_hash(*r))} for r in rows],
    }


if __name__ == "__main__":
    FIXTURE.write_text(json.dumps(make(), separators=(",", ":")).replace("},{", "},\n{") + "\n", encoding="utf-8")
    print(f"wrote {FIXTURE}")
