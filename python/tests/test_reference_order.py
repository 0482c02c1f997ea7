"""The committed vectors are what the plain reference gives, and the reference keeps the order's promises."""

import json
import random

import order_vectors


def test_vectors_are_what_the_reference_gives():
    committed = json.loads(order_vectors.FIXTURE.read_text(encoding="utf-8"))
    assert committed == json.loads(json.dumps(order_vectors.make()))


def test_each_sample_once_a_pass_and_equal_batches_at_every_world_size():
    rng = random.Random(3)
    for _ in range(20):
        extents = [rng.randint(0, 30) for _ in range(rng.randint(1, 9))] + [rng.randint(1, 30)]
        shuffle = rng.choice(["window", "global", "none"])
        options = {
            "seed": rng.getrandbits(64),
            "shuffle": shuffle,
            "lanes": rng.randint(1, 9) if shuffle == "window" else 1,
            "window": rng.randint(1, 40),
            "last": "carry",
            "global_batch": 24,
            "from": 0,
        }
        order = order_vectors.order_of(extents, options)
        for epoch in range(2):
            samples = sum(extents)
            served = [order.locate(p).sample for p in range(epoch * samples, (epoch + 1) * samples)]
            assert sorted(served) == list(range(samples))
        for batch in range(4):
            for world, step in ((1, 24), (2, 12), (8, 8), (24, 24)):
                dealt = [
                    q
                    for start in range(batch * 24, (batch + 1) * 24, step)
                    for positions, valid in order_vectors.deal(order, start, step, world)
                    for q in positions[:valid]
                ]
                assert sorted(dealt) == list(range(batch * 24, (batch + 1) * 24))
