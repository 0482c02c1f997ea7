"""Results of the exactness benchmark as JSON and as a table."""

from __future__ import annotations

import argparse
import datetime
import os
import platform
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path
from typing import Any

from trial import GLOBAL, SAVE_EVERY, SCENARIOS

BEGIN, END = "<!-- exactness -->", "<!-- /exactness -->"


def versions(packages: Iterable[str]) -> dict[str, str]:
    return {name: metadata.version(name) for name in packages}


def whole(args: argparse.Namespace, found: list[dict[str, Any]], samples: int, seconds: float) -> dict[str, Any]:
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d"),
        "machine": machine(),
        "samples": samples,
        "globalBatch": GLOBAL,
        "saveEvery": SAVE_EVERY,
        "kills": args.kills,
        "seed": args.seed,
        "minutes": round(seconds / 60, 1),
        "loaders": found,
    }


def machine() -> dict[str, Any]:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.machine())
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "cores": len(os.sched_getaffinity(0)),
        "cpu": model,
        "memoryGiB": round(pages / 2**30, 1),
        "linux": platform.release(),
        "python": platform.python_version(),
    }


def cell(trials: list[dict[str, Any]]) -> str:
    """Lost / repeated of the worst trial; what is odd behind it."""
    if not trials:
        return ""
    ran = [one for one in trials if one["outcome"] == "ran"]
    other = sorted({one["outcome"] for one in trials if one["outcome"] != "ran"})
    parts = []
    if ran:
        lost, repeated = max(one["lost"] for one in ran), max(one["repeated"] for one in ran)
        text = f"{lost} / {repeated}"
        marks = "†" if any(one["sameOrder"] is False for one in ran) else ""
        marks += "‡" if not all(one["even"] for one in ran) else ""
        parts.append((text if lost + repeated == 0 else f"**{text}**") + marks)
    return ", ".join([*parts, *other])


def table(result: dict[str, Any]) -> str:
    heads = [scenario.text for scenario in SCENARIOS]
    rows = [f"| loader | workers a rank | {' | '.join(heads)} |", "|---" * (2 + len(heads)) + "|"]
    for loader in result["loaders"]:
        cells = []
        for scenario in SCENARIOS:
            cells.append(cell([one for one in loader["trials"] if one["scenario"] == scenario.name]))
        rows.append(f"| {loader['title']} | {loader['workers']} | {' | '.join(cells)} |")
    return "\n".join(rows)


def notes(result: dict[str, Any]) -> str:
    """How each was used, and the first words of each refusal, error or hang."""
    lines = []
    seen: set[str] = set()
    for loader in result["loaders"]:
        if loader["name"] not in seen:
            seen.add(loader["name"])
            known = ", ".join(f"{name} {version}" for name, version in loader["versions"].items())
            lines.append(f"* {loader['title']}{f' ({known})' if known else ''}: {loader['how']}.")
        told: dict[str, list[str]] = {}
        for one in loader["trials"]:
            if one["outcome"] != "ran":
                said = " ".join(one["message"].split())
                text = f"{one['outcome']}: {said[:300]}{'…' if len(said) > 300 else ''}"
                told.setdefault(text, []).append(one["scenario"])
        left = max((one["leftInShm"] for one in loader["trials"]), default=0)
        if left > 0:
            lines.append(f"  * {loader['workers']} workers: kills left up to {left} files a trial in /dev/shm.")
        for text, scenarios in told.items():
            lines.append(f"  * {loader['workers']} workers, {', '.join(dict.fromkeys(scenarios))}: {text}")
    return "\n".join(lines)


def section(result: dict[str, Any]) -> str:
    facts = result["machine"]
    samples = f"{result['samples']:,}".replace(",", " ")
    command = f"npm run bench:exactness -- --kills {result['kills']} --seed {result['seed']}"
    return f"""{BEGIN}

`{command}` on {result["date"]}: {samples} samples, 4 ranks × 6, shuffled,
a state every {result["saveEvery"]} steps, kill -9 of everything at a random step; trials of a cell: {result["kills"]}.
Each cell: samples **lost / repeated** of one epoch in the worst of them, by the ids in the batches that count (those up
to the state that the next launch loads). {facts["cores"]} cores of {facts["cpu"]}, {facts["memoryGiB"]} GiB,
Linux {facts["linux"]}, Python {facts["python"]}; {result["minutes"]} minutes.

{table(result)}

† after the resume other samples fell into the same steps than in the unbroken run. ‡ the ranks gave unequally many
batches: a collective would hang.

How each was used, and what refusals said:

{notes(result)}

{END}"""


def write(path: Path, result: dict[str, Any]) -> None:
    text = path.read_text()
    if BEGIN not in text or END not in text:
        raise ValueError(f"{path} must have the markers {BEGIN} and {END}")
    before, after = text[: text.index(BEGIN)], text[text.index(END) + len(END) :]
    path.write_text(
        before + section(result).replace(f"{result['samples']:,}", f"{result['samples']:,}".replace(",", " ")) + after
    )


def athanor_is_exact(result: dict[str, Any]) -> bool:
    """Lost = repeated = 0 wherever it goes on, and no end other than that or a refusal."""
    trials = [one for loader in result["loaders"] if loader["name"] == "athanor" for one in loader["trials"]]
    return all(
        one["outcome"] == "refused" or (one["outcome"] == "ran" and one["lost"] == one["repeated"] == 0 and one["even"])
        for one in trials
    )
