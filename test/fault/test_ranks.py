"""Ranks that are ended, or end alone: SIGTERM as a pod or a job gets it (case R2), and one rank that comes back while
the others go on."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from node_rig import HERE, SAMPLES, Node, data, ids_of, node  # noqa: F401  (fixtures)

EVERY_ID = list(range(SAMPLES))


class Pair:
    """Two ranks of term_rank.py."""

    def __init__(self, node: Node, data: Path, handler: bool = True, state: Any = None) -> None:  # noqa: F811
        self.folder = node.folder
        ends = socket.socketpair()
        self.processes = []
        for rank, end in enumerate(ends):
            told = {"rank": rank, "peer": end.fileno(), "folder": str(node.folder), "source": str(data)}
            words = [
                sys.executable,
                str(HERE / "term_rank.py"),
                json.dumps({**told, "handler": handler, "state": state}),
            ]
            env = {**node.environment, "ATHANOR_JOB_ID": node.name}
            self.processes.append(subprocess.Popen(words, env=env, pass_fds=[end.fileno()], stderr=subprocess.PIPE))
            node.others.append(self.processes[-1])
        for end in ends:
            end.close()

    def steps(self, rank: int) -> list[list[int]]:
        path = self.folder / f"steps-{rank}"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def states(self) -> list[Any]:
        return [json.loads((self.folder / f"state-{rank}").read_text()) for rank in range(2)]

    def wait_for_step(self, count: int) -> None:
        end = time.monotonic() + 30
        while min(len(self.steps(rank)) for rank in range(2)) < count:
            assert time.monotonic() < end and all(process.poll() is None for process in self.processes)
            time.sleep(0.01)

    def codes(self, limit: float) -> list[int]:
        end = time.monotonic() + limit
        return [process.wait(timeout=max(0.1, end - time.monotonic())) for process in self.processes]


@pytest.mark.parametrize("to", ["ranks", "one rank", "ranks and agent"])
def test_r2_sigterm_ends_a_run_at_a_step(node: Node, data: Path, to: str) -> None:  # noqa: F811
    """Twice, as by a launcher that passes it on and a pod that is deleted; a job manager sends it to the agent too."""
    pair = Pair(node, data)
    pair.wait_for_step(4)
    agents = node.agents() if to == "ranks and agent" else []
    assert len(agents) == (1 if to == "ranks and agent" else 0)
    for _ in range(2):
        for pid in [process.pid for process in pair.processes][: 1 if to == "one rank" else 2] + agents:
            if Path(f"/proc/{pid}").exists():
                os.kill(pid, signal.SIGTERM)
        time.sleep(0.02)
    assert pair.codes(10) == [0, 0], [process.stderr.read() for process in pair.processes if process.stderr]
    steps = [pair.steps(rank) for rank in range(2)]
    assert len(steps[0]) == len(steps[1]) < SAMPLES // 12
    first, second = pair.states()
    assert first == second and first["position"] == str(12 * len(steps[0]))
    node.expect_clean()
    # The next start goes on with the very next step.
    after = Pair(node, data, state=first)
    assert after.codes(60) == [0, 0]
    seen = after.steps(0) + after.steps(1)  # the logs of both launches
    assert sorted(ids_of(seen)) == EVERY_ID
    node.expect_clean()


def test_r2_sigterm_without_a_handler(node: Node, data: Path) -> None:  # noqa: F811
    """The process ends where it is, as any does; what is left of the node is clean."""
    pair = Pair(node, data, handler=False)
    pair.wait_for_step(2)
    for process in pair.processes:
        process.send_signal(signal.SIGTERM)
    assert pair.codes(10) == [-signal.SIGTERM] * 2  # 143 in a shell
    node.expect_clean()


@pytest.mark.parametrize("order", [{}, {"shuffle_memory": 1, "lanes": 4, "window": 20}], ids=["held", "window"])
@pytest.mark.parametrize("by", [signal.SIGKILL, signal.SIGTERM], ids=["kill", "term"])
def test_a_rank_that_comes_back_alone(node: Node, data: Path, order: Any, by: signal.Signals) -> None:  # noqa: F811
    """The others go on meanwhile, also when they need what the lost one would have taken; it then gets its own rows."""
    world = 3

    def launch(rank: int) -> Any:
        places = {"RANK": f"{rank}", "WORLD_SIZE": f"{world}", "LOCAL_RANK": f"{rank}", "LOCAL_WORLD_SIZE": f"{world}"}
        return node.rank(data, env=places, batch_size=4, **order)

    ranks = [launch(rank) for rank in range(world)]
    seen = [[rank.next() for _ in range(4)] for rank in ranks]
    state = ranks[1].tell("state")
    reserved = ranks[0].tell("stats")["agent"]["reserved"]
    os.kill(ranks[1].pid, by)
    ranks[1].process.wait(timeout=10)
    rest = [[], [], []]  # type: ignore[var-annotated]
    for rank in (0, 2):  # to the end of the epoch: 16 steps ahead of the one that is away
        rest[rank] = ranks[rank].epoch()
    back = launch(1)
    back.tell("load", json.dumps(state))
    rest[1] = back.epoch()
    assert [len(mine + more) for mine, more in zip(seen, rest)] == [SAMPLES // 12] * 3
    assert sorted(ids_of([step for mine, more in zip(seen, rest) for step in mine + more])) == EVERY_ID
    assert [rank.tell("stats")["agent_deaths"] for rank in (ranks[0], back, ranks[2])] == [0, 0, 0]
    # All go on together, and what the way back took is given back.
    for rank in (ranks[0], back, ranks[2]):
        seen.append([rank.next()])
    assert ranks[0].tell("stats")["agent"]["reserved"] <= 2 * reserved
    node.ranks.remove(ranks[1])
    node.finish()


def test_sessions_leave_nothing_in_the_agent() -> None:
    """A short run of `npm run test:sessions`."""
    words = [
        sys.executable,
        str(HERE / "sessions.py"),
        "--count",
        "1200",
        "--json",
    ]  # the heap of the agent fills for some hundred
    done = subprocess.run(words, capture_output=True, text=True, timeout=300)
    told = json.loads(done.stdout)
    assert done.returncode == 0 and told["grows"] == [] and told["left"] == 0, told
