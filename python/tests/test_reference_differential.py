"""The plain Python order, written from docs/reference/order.md, against the TypeScript one over random jobs and loads:
sources, weights, phases, ramps, appended shards, options, world sizes. `test/order/differential.ts` answers for it."""

from __future__ import annotations

import json
import random
import subprocess
from pathlib import Path
from typing import Any

import pytest

from athanor.errors import AthanorError
from athanor.reference import Job, Options, Order, Totals, go_on, state_of

ROOT = Path(__file__).resolve().parents[2]
NAMES = ["web", "code", "math", "ü"]
LENGTH = 300


def view_of(name: str, version: int, samples: int) -> dict[str, Any]:
    """As `OrderView`, of blocks of 5 samples."""
    extents = [5] * (samples // 5) + ([samples % 5] if samples % 5 else [])
    return {
        "fingerprint": f"{NAMES.index(name):016x}{version:016x}",
        "samples": samples,
        "bytes": samples * 100,
        "blocks": len(extents),
        "largestBlock": max(extents),
        "rowBytes": 64,
        "extents": extents,
    }


def weights(rng: random.Random, count: int) -> list[float]:
    found = [rng.choice([0, 1, 2, 0.7, 0.1, rng.random()]) for _ in range(count)]
    found[rng.randrange(count)] = rng.choice([1, 0.3])
    return found


def random_case(rng: random.Random) -> dict[str, Any]:
    last = rng.choice(["carry"] * 6 + ["drop", "pad"])
    count = 1 if last == "pad" else rng.choice([1, 1, 2, 3, 4])
    names = rng.sample(NAMES, count)
    versions = {name: [view_of(name, 1, rng.choice([3, 17, 40, 90, 150, 400]))] for name in names}
    options: dict[str, Any] = {"last": last}
    options |= rng.choice(
        [
            {"shuffleMemory": rng.choice([1 << 8, 1 << 10, 1 << 13])},
            {"lanes": rng.randint(1, 6), "shuffleMemory": 1 << 10},
            {"window": rng.choice([1, 7, 50]), "shuffleMemory": 1 << 8},
            {"shuffle": rng.choice(["none", "global"])},
            {"unit": "shard", "shuffleMemory": 1 << 9},
            {},
        ]
    )
    seed = rng.getrandbits(64)
    position = 0
    loads: list[dict[str, Any]] = []
    for load in range(rng.choice([1, 2, 2, 3, 4])):
        if load > 0 and last != "pad":
            if len(names) < 4 and rng.random() < 0.2:
                name = rng.choice([name for name in NAMES if name not in names])
                names.append(name)
                versions[name] = [view_of(name, 1, rng.choice([3, 40, 150]))]
            for name in names:
                if rng.random() < 0.3:
                    versions[name].append(
                        view_of(name, len(versions[name]) + 1, versions[name][-1]["samples"] + rng.randint(1, 40))
                    )
        if load == 0 or rng.random() < 0.6:
            phases = [{"from": 0, "weights": weights(rng, len(names))}]
        phases = [{"from": phase["from"], "weights": (phase["weights"] + [1] * 4)[: len(names)]} for phase in phases]
        if last != "pad" and rng.random() < 0.3:
            phases = [phases[0], {"from": rng.randint(1, 300), "weights": weights(rng, len(names))}]
        ramp = [[0, rng.choice([8, 12, 24])]]
        if last == "carry" and rng.random() < 0.4:
            ramp += [
                [at, rng.choice([4, 8, 12, 24, 40])] for at in sorted(rng.sample(range(1, 300), rng.randint(1, 2)))
            ]
        sources = [
            {
                "name": name,
                "view": versions[name][-1]["fingerprint"],
                "past": [view["fingerprint"] for view in versions[name][-2::-1]],
            }
            for name in names
        ]
        job = {
            "seed": str(seed if rng.random() < 0.95 else 7),
            "sources": sources,
            "phases": phases,
            "ramp": ramp,
            "options": options,
        }
        loads.append({"position": position, "override": rng.random() < 0.1, "job": job})
        position += rng.choice([0, rng.randint(1, 40), rng.randint(1, 250)])
    return {
        "views": {view["fingerprint"]: view for name in names for view in versions[name]},
        "loads": loads,
        "length": LENGTH,
        "steps": [
            {"step": step, "world": world, "starts": [step * rng.randint(0, LENGTH // step) for _ in range(3)]}
            for step, world in ((4, 1), (4, 2), (4, 4), (12, 3))
        ],
    }


def deals(order: Order, start: int, step: int, world: int) -> list[Any] | None:
    """What each rank gets of a step; None where there is no such step: it must lie in one optimizer batch."""
    segment = [segment for segment in order.run.segments if segment.start <= start][-1]
    inside = (start - segment.start) % segment.global_batch
    if segment.last != "pad" and (segment.global_batch % step != 0 or inside % step != 0):
        return None
    found = [order.deal(start, step, world, rank) for rank in range(world)]
    return [[dealt.positions.tolist(), dealt.valid] for dealt in found]


def answer(case: dict[str, Any]) -> dict[str, Any]:
    """What the reference makes of it, as the TypeScript driver prints it."""
    views = case["views"]
    totals = {
        fingerprint: Totals(view["samples"], view["bytes"], view["blocks"], view["largestBlock"], view["rowBytes"])
        for fingerprint, view in views.items()
    }
    state = run = None
    position = 0
    try:
        for load in case["loads"]:
            asked = load["job"]
            options = {
                {"shuffleMemory": "shuffle_memory"}.get(name, name): value
                for name, value in asked["options"].items()
                if name != "last"
            }
            if run is not None:
                state = json.loads(json.dumps(state_of(run, load["position"])))
            job = Job(
                seed=int(asked["seed"]),
                views={source["name"]: (source["view"], totals[source["view"]]) for source in asked["sources"]},
                phases=[(phase["from"], phase["weights"]) for phase in asked["phases"]],
                ramp=[(start, size) for start, size in asked["ramp"]],
                last=asked["options"]["last"],
                options=Options(**options),
                past={source["name"]: source["past"] for source in asked["sources"]},
            )
            run, position = go_on(job, state, load["override"])
        assert run is not None

        def extents(number: int) -> list[int]:
            counts, blocks = views[run.sources[number].view]["extents"], run.sources[number].how.extent
            return [sum(counts[at : at + blocks]) for at in range(0, len(counts), blocks)] if blocks else counts

        order = Order(run, extents)
        first = run.segments[0].start
        return {
            "position": position,
            "state": state_of(run, position),
            "rows": [list(order.locate(first + i)) for i in range(case["length"])],
            "begin": [order.epochs.begin(epoch) for epoch in range(8)],
            "epochOf": [order.epochs.epoch_of(first + i) for i in range(case["length"])],
            "steps": [
                [deals(order, first + start, steps["step"], steps["world"]) for start in steps["starts"]]
                for steps in case["steps"]
            ],
        }
    except AthanorError as error:
        return {"error": error.code}


@pytest.mark.parametrize("seed", range(4))
def test_random_jobs_and_loads_are_ordered_alike_in_both_languages(seed: int) -> None:
    rng = random.Random(seed)
    cases = [random_case(rng) for _ in range(40)]
    command = ["node", str(ROOT / "dist/test/order/differential.js")]
    done = subprocess.run(command, input=json.dumps(cases), capture_output=True, text=True, timeout=100, check=False)
    if done.returncode != 0:
        pytest.fail(done.stderr[-3000:])
    answers = json.loads(done.stdout)
    assert sum("rows" in found for found in answers) > len(cases) / 2
    compared = 0
    for number, (case, expected) in enumerate(zip(cases, answers)):
        found = json.loads(json.dumps(answer(case)))
        for mine, theirs in zip(found.get("steps", []), expected.get("steps", [])):
            theirs[:] = [None if one is None else other for one, other in zip(mine, theirs)]
            compared += sum(one is not None for one in mine)
        for part in expected:
            assert found.get(part) == expected[part], (number, part)
        assert set(found) == set(expected)
    assert compared > len(cases)
