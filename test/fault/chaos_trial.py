"""One chaos trial: a run of 2 to 8 ranks that is hit again and again, and brought back as a launcher would.

`plan(seed, trial)` fixes everything that chance decides. When the blows land against the run's own progress is up to
the machine, so a replay meets the same plan and not the same microsecond.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import random
import shutil
import signal
import sys
import time
import traceback
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import chaos_checks as checks
import chaos_processes as processes
from chaos_checks import Generation, Wrong
from chaos_rank import EVAL_EVERY, Board, Spec, run

# A batch may take this long under a stopped agent on a busy machine; a trial takes 1 to 5 s.
HANG_SECONDS = 60.0
AGENT_DEATHS = ("agent kill", "agent term", "agent stop kill", "everything kill")
BLOWS = (
    *("agent kill", "agent term", "agent stop", "agent stop kill"),
    *("rank kill", "rank term", "rank stop", "ranks kill", "everything kill"),
)
MOST_PROCESSES = 8
WORLDS = {40: (2, 4, 5, 8), 42: (2, 3, 6, 7), 48: (2, 3, 4, 6, 8)}
MODES: dict[str, dict[str, Any]] = {
    "held": {"shuffle": "window"},
    "global": {"shuffle": "global", "shuffle_memory": 1},
    "none": {"shuffle": "none"},
}


@dataclass(frozen=True)
class Data:
    """What the ranks of a trial read."""

    path: str | None
    mix: dict[str, Any] | None = None
    tokens_only: bool = False
    packed: bool = False

    @property
    def options(self) -> dict[str, Any]:
        rule = {"sample_rule": "pack"} if self.packed else {}
        return rule if self.mix is None else {"mix": self.mix}


@dataclass(frozen=True)
class Blow:
    kind: str
    after: float  # of the generation's batches still to come, or seconds since its start
    by_time: bool
    lasts: float  # seconds: of a stop, or until the launcher sees the dead rank
    rank: float  # which one
    shape: tuple[int, int] | None  # world and batch size of the next launch; None: the same
    hard: bool  # the launcher ends the other ranks with SIGKILL, else with SIGTERM


@dataclass(frozen=True)
class Plan:
    seed: int
    trial: int
    mode: str
    options: dict[str, Any]
    global_batch: int
    shape: tuple[int, int]  # world and batch size of the first launch
    steps: int
    save_every: int
    pace: float
    grace: str
    launcher: bool
    peers: int  # tensor-parallel processes of each rank, where that makes no more than MOST_PROCESSES
    polite: bool
    evaluate: bool
    fresh_index: bool
    blows: list[Blow]

    def text(self) -> str:
        extras = [name for name in ("evaluate", "fresh_index", "launcher") if getattr(self, name)]
        extras += [f"peers={self.peers}"] if self.peers > 1 else []
        blows = ", ".join(blow.kind for blow in self.blows)
        return (
            f"{self.mode} {self.options['last']} G={self.global_batch} steps={self.steps} {' '.join(extras)} [{blows}]"
        )


def plan(seed: int, trial: int) -> Plan:
    chance = random.Random(f"{seed}:{trial}")
    mode = chance.choice(["window", "window", *MODES])
    options = dict(MODES.get(mode, {}))
    if mode == "window":
        options |= {"shuffle": "window", "lanes": chance.choice((1, 3, 4, 8)), "window": chance.choice((7, 32, 200))}
    options |= {"seed": chance.getrandbits(64), "last": chance.choice(("carry", "carry", "drop"))}
    global_batch = chance.choice(sorted(WORLDS))
    blows = [
        Blow(
            kind=chance.choice(BLOWS),
            after=chance.uniform(0.0, 0.6),
            by_time=chance.random() < 0.4,
            lasts=chance.uniform(0.0, 0.8),
            rank=chance.random(),
            shape=None if chance.random() < 0.4 else shape(chance, global_batch),
            hard=chance.random() < 0.5,
        )
        for _ in range(chance.randint(1, 5))
    ]
    return Plan(
        seed=seed,
        trial=trial,
        mode=mode,
        options=options,
        global_batch=global_batch,
        shape=shape(chance, global_batch),
        steps=chance.randint(30, 110),
        save_every=chance.choice((1, 1, 3, 7)),
        pace=chance.choice((0.0, 0.002, 0.005)),
        grace=chance.choice(("100ms", "500ms", "1s")),
        launcher=chance.random() < 0.75,
        peers=random.Random(f"{seed}:{trial}:peers").choice((1, 1, 2, 3)),
        polite=chance.random() < 0.7,
        evaluate=chance.random() < 0.25,
        fresh_index=chance.random() < 0.25,
        blows=blows,
    )


def evaluating(made: Plan, world: int) -> Plan:
    """The same plan with an evaluation every EVAL_EVERY steps, on `world` ranks from end to end."""
    global_batch = (
        made.global_batch if world in WORLDS[made.global_batch] else min(g for g in WORLDS if world in WORLDS[g])
    )
    kept = (world, global_batch // world)
    blows = [replace(blow, shape=kept) for blow in made.blows]
    return replace(made, evaluate=True, global_batch=global_batch, shape=kept, blows=blows)


def shape(chance: random.Random, global_batch: int) -> tuple[int, int]:
    """A world size and a batch size that make the global batch, in one step or with accumulation."""
    world = chance.choice(WORLDS[global_batch])
    share = global_batch // world
    return world, chance.choice([size for size in (share, share // 2, 1) if size > 0 and share % size == 0])


@dataclass
class Result:
    plan: Plan
    worlds: list[int] = field(default_factory=list)  # of each launch
    blows: int = 0
    evaluations: list[int] = field(default_factory=list)  # world size of each that counts
    starts: list[float] = field(default_factory=list)  # seconds from launch to a first batch on all ranks, undisturbed
    seconds: float = 0.0


def start_rank(spec: Spec, rank: int, board: Board) -> int:
    """Pid of a fork that runs the rank. It never returns from here."""
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid != 0:
        return pid
    code = 1
    try:
        run(spec, rank, board)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(BaseException):
            atexit._run_exitfuncs()  # what the interpreter of a rank does at its end
        os._exit(code)


class Crew:
    """The ranks of one generation."""

    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        self.board = Board(spec.processes)
        self.began = time.monotonic()
        self.living = {rank: start_rank(spec, rank, self.board) for rank in range(spec.processes)}
        self.killed: set[int] = set()
        self.disturbed = False  # before every rank had a batch

    def signal(self, rank: int, number: int) -> None:
        if number in (signal.SIGKILL, signal.SIGTERM):
            self.killed.add(rank)
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.living[rank], number)

    def look(self) -> None:
        """Takes leave of ranks that have ended. Raises Wrong for one that ended badly, and by itself."""
        for rank, pid in list(self.living.items()):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended == 0:
                continue
            del self.living[rank]
            if status != 0 and rank not in self.killed:
                log = Path(self.spec.folder, f"rank-{self.spec.name(rank)}.log").read_text()
                raise Wrong(f"rank {rank} ended with {os.waitstatus_to_exitcode(status)}:\n{log}")

    def end(self, hard: bool) -> None:
        """As a launcher ends a job: SIGTERM and a short patience, or SIGKILL at once."""
        if not hard:
            for rank in self.living:
                self.signal(rank, signal.SIGTERM)
                self.signal(rank, signal.SIGCONT)
            patience = time.monotonic() + 0.3
            while self.living and time.monotonic() < patience:
                self.look()
                time.sleep(0.005)
        for rank in self.living:
            self.signal(rank, signal.SIGKILL)
        while self.living:
            self.look()
            time.sleep(0.002)

    def first(self) -> float | None:
        """Seconds until every rank had its first batch."""
        moments = [self.board.first(rank) for rank in range(self.spec.processes)]
        return None if 0.0 in moments else max(moments) - self.began

    def counts(self) -> list[int]:
        return [self.board.done(rank) for rank in range(self.spec.processes)]


class Trial:
    def __init__(self, plan: Plan, folder: Path, data: Data, evaluation: Path, samples: int, eval_samples: int) -> None:
        self.plan = plan
        self.folder = folder
        self.data = data
        self.evaluation = evaluation
        self.samples = samples
        self.eval_samples = eval_samples
        self.job = f"chaos-{os.getpid()}-{plan.trial}"
        self.generations: list[Generation] = []
        self.result = Result(plan)
        self._blows = list(plan.blows)
        self._shape = plan.shape
        self._since_death: list[int] | None = None  # batches of each rank when the agent last died
        self._later: list[tuple[float, list[int], int]] = []  # (when, pids, signal)

    def run(self, unbroken: checks.Steps, total: Any) -> Result:
        """Raises Wrong; whatever happens, no process of the trial is left."""
        began = time.monotonic()
        crew = None
        try:
            crew = self._launch(self.plan.shape)
            while crew is not None:
                crew = self._supervise(crew)
            # Nobody is left to replace an agent that is killed now: it goes on, and leaves by itself.
            for _, pids, _ in self._later:
                send(pids, signal.SIGCONT)
            self._check(unbroken, total)
        except BaseException:
            if crew is not None:
                crew.end(hard=True)
            for pid in processes.of_job(self.job):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            processes.leftovers(self.job, 1.0)
            for path in processes.run_dirs(self.job):
                shutil.rmtree(path, ignore_errors=True)
            raise
        self.result.seconds = time.monotonic() - began
        return self.result

    # -- the launcher

    def _launch(self, shape: tuple[int, int] | None) -> Crew:
        """All ranks, from the newest state that all ranks of an earlier generation have."""
        plan = self.plan
        step, state = checks.newest_state(self.folder, self.generations)
        world, batch_size = shape or self._shape
        self._shape = (world, batch_size)
        number = len(self.generations)
        self.generations.append(Generation(number, world, batch_size, step))
        self.result.worlds.append(world)
        self._since_death = None
        options = dict(plan.options)
        if plan.fresh_index and self.data.mix is None:
            options["index_dir"] = str(self.folder / "index")
        return Crew(
            Spec(
                folder=str(self.folder),
                job=self.job,
                generation=number,
                world=world,
                peers=plan.peers if world * plan.peers <= MOST_PROCESSES else 1,
                batch_size=batch_size,
                global_batch=plan.global_batch,
                steps=plan.steps,
                save_every=plan.save_every,
                pace=plan.pace,
                launcher=plan.launcher,
                polite=plan.polite,
                evaluate=str(self.evaluation) if plan.evaluate else None,
                data=self.data.path,
                options=options | self.data.options,
                state=state,
                step=step,
                environment=environment(self.job, plan.grace),
                tokens_only=self.data.tokens_only,
            )
        )

    def _supervise(self, crew: Crew) -> Crew | None:
        """Until the generation is over. Returns the next one, or None when the run is done."""
        spec = crew.spec
        due = (spec.steps - spec.step) * (spec.global_batch // (spec.world * spec.batch_size))
        since = crew.counts()  # batches at the last blow: the next one counts from there
        moved, seen = time.monotonic(), crew.counts()
        at = crew.began
        while crew.living:
            crew.look()
            processes.reap(set(crew.living.values()))
            self._deliver_late()
            counts = crew.counts()
            now = time.monotonic()
            if counts != seen:
                moved, seen = now, counts
            elif now - moved > HANG_SECONDS:
                raise Wrong(f"hangs since {HANG_SECONDS:.0f} s\n{self._stacks(crew)}")
            blow = self._blows[0] if self._blows else None
            if blow is not None and crew.living and self._is_due(blow, now - at, counts, since, due, crew):
                del self._blows[0]
                if crew.first() is None:
                    crew.disturbed = True
                self._strike(blow, crew)
                self.result.blows += 1
                if blow.kind in ("rank kill", "rank term", "ranks kill", "everything kill"):
                    crew.end(blow.hard)
                    self._note_start(crew)
                    return self._launch(blow.shape)
                since, at = counts, now
            time.sleep(0.003)
        self._note_start(crew)
        missing = [rank for rank in range(spec.processes) if crew.board.done(rank) != due]
        if missing and crew.killed:  # killed at its very end, behind the launcher's back
            return self._launch(None)
        if missing:
            raise Wrong(f"ranks {missing} ended early")
        return None

    def _is_due(self, blow: Blow, elapsed: float, counts: list[int], since: list[int], due: int, crew: Crew) -> bool:
        before = self._since_death
        # Three deaths without a batch between are an error by design: each rank gets its batch first.
        if (
            blow.kind in AGENT_DEATHS
            and before is not None
            and any(counts[rank] <= before[rank] for rank in crew.living)
        ):
            return False
        if blow.by_time:
            return elapsed >= blow.after
        return max(counts) >= max(since) + 1 + int(blow.after * 0.5 * max(0, due - max(since)))

    def _strike(self, blow: Blow, crew: Crew) -> None:
        who, _, verb = blow.kind.partition(" ")
        agents = processes.of_job(self.job) if who in ("agent", "everything") else []
        if who == "agent":
            if verb in ("stop", "stop kill"):
                send(agents, signal.SIGSTOP)
                end = signal.SIGCONT if verb == "stop" else signal.SIGKILL
                self._later.append((time.monotonic() + blow.lasts, agents, end))
            else:
                send(agents, signal.SIGKILL if verb == "kill" else signal.SIGTERM)
        elif who == "rank":
            rank = sorted(crew.living)[int(blow.rank * len(crew.living))]
            if verb == "stop":
                crew.signal(rank, signal.SIGSTOP)
                self._later.append((time.monotonic() + blow.lasts, [crew.living[rank]], signal.SIGCONT))
            else:
                crew.signal(rank, signal.SIGKILL if verb == "kill" else signal.SIGTERM)
                until = time.monotonic() + blow.lasts * 0.3
                while time.monotonic() < until:  # the launcher has not seen it yet; the others go on
                    self._deliver_late()
                    time.sleep(0.003)
        else:
            for rank in list(crew.living):
                crew.signal(rank, signal.SIGKILL)
            send(agents, signal.SIGKILL)
        if blow.kind in AGENT_DEATHS:
            self._since_death = crew.counts()

    def _deliver_late(self) -> None:
        waiting, self._later = self._later, []
        for entry in waiting:
            when, pids, number = entry
            if time.monotonic() >= when:
                send(pids, number)
            else:
                self._later.append(entry)

    def _note_start(self, crew: Crew) -> None:
        first = crew.first()
        if first is not None and not crew.disturbed and not self._later:
            self.result.starts.append(first)

    def _stacks(self, crew: Crew) -> str:
        """Where every rank stands, and what the agent wrote."""
        for pid in crew.living.values():
            send([pid], signal.SIGCONT)
            send([pid], signal.SIGUSR1)
        time.sleep(0.5)
        texts = [f"batches {crew.counts()}; agents {processes.of_job(self.job)}"]
        for rank in crew.living:
            path = self.folder / f"rank-{crew.spec.name(rank)}.log"
            texts.append(f"rank {rank}:\n{path.read_text()[-3000:]}")
        for path in processes.run_dirs(self.job):
            if (path / "agent.log").exists():
                texts.append((path / "agent.log").read_text()[-3000:])
        return "\n".join(texts)

    # -- afterwards

    def _check(self, unbroken: checks.Steps, total: Any) -> None:
        plan = self.plan
        left = processes.leftovers(self.job, 6.0)
        if left:
            raise Wrong("left behind:\n" + "\n".join(left))
        # A builder that was killed leaves a temporary file, which a later builder removes when it is a day old.
        known = ["shards.bin", "manifest.json", "blocks", "blocks/*.bin", ".*.tmp-*", "blocks/.*.tmp-*"]
        if self.data.packed:
            known += ["views", "views/*", "views/*/*.bin", "views/*/.*.tmp-*"]
        index = self.folder / "index"
        stray = set(index.rglob("*")) - {path for pattern in known for path in index.glob(pattern)}
        if stray:
            raise Wrong(f"left behind in the index: {stray}")
        steps = checks.delivered(self.folder, self.generations, plan.steps, plan.global_batch)
        if self.data.mix is None:
            checks.check_counts(steps, self.samples, plan.global_batch, plan.options["last"])
        checks.check_same(steps, unbroken)
        checks.check_peers(self.folder, self.generations)
        if plan.evaluate:
            self.result.evaluations = checks.check_evaluations(
                self.folder, self.generations, plan.steps, EVAL_EVERY, self.eval_samples
            )
        checks.check_proofs(self.folder / "proof", total, plan.steps, plan.global_batch)


def environment(job: str, grace: str) -> dict[str, str]:
    return {"ATHANOR_JOB_ID": job, "ATHANOR_AGENT_GRACE": grace}


def send(pids: list[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
