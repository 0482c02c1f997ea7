"""What must be true after a chaos trial. Ids come from the files that the ranks wrote, never from the order's code."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from athanor.numpy import proof_total

Steps = dict[int, list[int]]


class Wrong(Exception):
    """A promise was broken; the text says which."""


class Generation(NamedTuple):
    """One start of all ranks: where from, and in which shape."""

    number: int
    world: int
    batch_size: int
    step: int


def records(path: Path, width: int) -> list[list[int]]:
    """Whole records of a rank's file; what a kill cut off at its end is left out."""
    if not path.exists():
        return []
    data = np.fromfile(path, np.int64)
    return data[: len(data) // width * width].reshape(-1, width).tolist()


def newest_state(folder: Path, generations: list[Generation]) -> tuple[int, dict[str, Any] | None]:
    """(step, state) that all ranks of a generation have saved; (0, None) if there is none yet."""
    best: tuple[int, dict[str, Any] | None] = (0, None)
    for generation in generations:
        saved: list[dict[int, Any]] = []
        for rank in range(generation.world):
            path = folder / f"state-{generation.number}-{rank}.jsonl"
            *lines, _torn = path.read_text().split("\n") if path.exists() else [""]
            saved.append({entry["step"]: entry["state"] for entry in map(json.loads, lines)})
        for step in set.intersection(*(set(rank) for rank in saved)):
            states = [rank[step] for rank in saved]
            if any(state != states[0] for state in states):
                raise Wrong(f"ranks of generation {generation.number} have different states after step {step}")
            if step > best[0]:
                best = (step, states[0])
    return best


def delivered(folder: Path, generations: list[Generation], steps: int, global_batch: int) -> Steps:
    """Ids of each optimizer step, sorted. A generation's steps count up to where the next one began."""
    found: Steps = {}
    for generation, following in zip(generations, [*generations[1:], None]):
        end = steps if following is None else following.step
        by_step: dict[int, list[int]] = {}
        for rank in range(generation.world):
            path = folder / f"ids-{generation.number}-{rank}.bin"
            for step, _micro, *ids in records(path, 2 + generation.batch_size):
                by_step.setdefault(step, []).extend(ids)
        for step in range(generation.step + 1, end + 1):
            found[step] = sorted(by_step.get(step, []))
            if len(found[step]) != global_batch:
                raise Wrong(
                    f"step {step} of generation {generation.number} has {len(found[step])} of {global_batch} rows"
                )
    return found


def check_counts(steps: Steps, samples: int, global_batch: int, last: str) -> None:
    """After any step each sample was given ⌊n/N⌋ or ⌈n/N⌉ times: nothing lost, nothing repeated."""
    length = samples // global_batch * global_batch if last == "drop" else samples
    counts = np.zeros(samples, np.int64)
    given = 0
    for step in sorted(steps):
        if last == "drop" and given % length == 0:
            counts[:] = 0  # each epoch is a choice of its own
        np.add.at(counts, steps[step], 1)
        given += len(steps[step])
        inside = (given - 1) % length + 1 if last == "drop" else given
        least, most = (0, 1) if last == "drop" else (inside // samples, -(-inside // samples))
        if counts.min() < least or counts.max() > most or int(counts.sum()) != inside:
            lost = np.flatnonzero(counts < least).tolist()
            repeated = np.flatnonzero(counts > most).tolist()
            raise Wrong(f"after step {step}: {len(lost)} lost {lost[:5]}, {len(repeated)} repeated {repeated[:5]}")


def check_same(steps: Steps, unbroken: Steps) -> None:
    for step in sorted(steps):
        if steps[step] != unbroken[step]:
            missing = Counter(unbroken[step]) - Counter(steps[step])
            raise Wrong(f"step {step} is not that of the unbroken run: {sorted(missing)[:5]} are missing")


def check_peers(folder: Path, generations: list[Generation]) -> None:
    """Peers of a rank were given the same rows in the same batches, as far as each came."""
    for number, _, batch_size, _ in generations:
        for path in folder.glob(f"ids-{number}-*.*.bin"):
            first = folder / f"{path.name.split('.')[0]}.bin"
            for mine, his in zip(records(path, 2 + batch_size), records(first, 2 + batch_size)):
                if mine != his:
                    raise Wrong(f"{path.name} has {mine[2:]} in step {mine[0]}, and {first.name} {his[2:]} in {his[0]}")


def check_evaluations(folder: Path, generations: list[Generation], steps: int, every: int, samples: int) -> list[int]:
    """Each evaluation that counts had every sample exactly once, over equally many batches on all ranks. Returns the
    world size of each."""
    worlds = []
    for generation, following in zip(generations, [*generations[1:], None]):
        end = steps if following is None else following.step
        seen: dict[int, list[int]] = {}
        batches: dict[int, list[int]] = {}
        for rank in range(generation.world):
            by_step: dict[int, list[int]] = {}
            for step, _micro, number in records(folder / f"eval-{generation.number}-{rank}.bin", 3):
                by_step.setdefault(step, []).append(number)
            for step, numbers in by_step.items():
                seen.setdefault(step, []).extend(n for n in numbers if n >= 0)
                batches.setdefault(step, []).append(len(numbers))
        for step in range(generation.step + 1, end + 1):
            if step % every == 0:
                due = [-(-samples // generation.world)] * generation.world
                if sorted(seen.get(step, [])) != list(range(samples)) or batches[step] != due:
                    raise Wrong(
                        f"evaluation after step {step} gave {seen.get(step)} in {batches.get(step)} batches a rank"
                    )
                worlds.append(generation.world)
    return worlds


def check_proofs(proof: Path, unbroken: Path, steps: int, global_batch: int) -> None:
    """Equal sums and rows in the middle and at the end; if they differ, the first step that does is named."""

    def same(step: int) -> bool:
        upto = step * global_batch
        return proof_total(str(proof), upto) == proof_total(str(unbroken), upto)

    if not same(steps // 2) or not same(steps):
        first = next(step for step in range(1, steps + 1) if not same(step))
        upto = first * global_batch
        found, due = proof_total(str(proof), upto), proof_total(str(unbroken), upto)
        raise Wrong(f"proofs differ first after step {first} (position {upto}): {found}, unbroken {due}")
