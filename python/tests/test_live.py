"""The client against the real agent: cases 66 68 70 72 of the collection (their records as TFRecord), R1 and R12."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

import athanor
from athanor.numpy import Loader, proof_total
from conftest import ROOT, agents_in
from tfrecord_writer import from_jsonl

CASES = ROOT / "test/fixtures/cases"
Monkey = pytest.MonkeyPatch


@pytest.fixture(autouse=True)
def live(run_dir: Path) -> Path:
    return run_dir


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    folder = tmp_path_factory.mktemp("cases")
    found = {}
    for case in CASES.iterdir():
        if (case / "data").is_dir():
            from_jsonl(case / "data", folder / case.name)
            found[case.name[:2]] = str(folder / case.name)
    yield found
    shutil.rmtree(folder)


def expected(case: str) -> dict[str, int]:
    (folder,) = CASES.glob(f"{case}-*")
    return json.loads((folder / "expected.json").read_text())


def steps(batches: object) -> list[list[int]]:
    """Ids of each batch, without rows that only fill up the last one."""
    found = []
    for batch in batches:  # type: ignore[attr-defined]
        valid = batch.get("valid")
        found.append([int(i) for n, i in enumerate(batch["id"]) if valid is None or valid[n]])
    return found


def flat(nested: list[list[int]]) -> list[int]:
    return [i for part in nested for i in part]


@pytest.mark.filterwarnings("default")
def test_case_66_every_id_once_for_any_world_and_workers(data: dict[str, str]) -> None:
    torch_data = pytest.importorskip("torch.utils.data")
    from athanor.torch import AthanorDataset

    # Five workers on few cores are meant here; a wrong length is not.
    warnings.filterwarnings("error")
    warnings.filterwarnings("ignore", message="This DataLoader will create")
    facts = expected("66")
    by_world = {}
    of_rank: dict[tuple[int, int], list[list[int]]] = {}
    for run in facts["run"]:  # type: ignore[attr-defined]
        world, workers = run["world"], run["num_workers"]
        ranks = []
        for rank in range(world):
            # 24 does not divide 256: the short last batch is kept, filled up and marked.
            dataset = AthanorDataset(data["66"], batch_size=24 // world, columns=["id"], last="pad", seed=5,
                                     rank=rank, world_size=world)  # fmt: skip
            loader = torch_data.DataLoader(dataset, batch_size=None, num_workers=workers)
            count = len(dataset)
            ranks.append(steps(loader))
            assert len(ranks[-1]) == count == 11
            assert ranks[-1] == of_rank.setdefault((world, rank), ranks[-1])
            dataset.close()
        ids = flat([flat(rank) for rank in ranks])
        assert sorted(ids) == list(range(facts["n"])) and sum(ids) == facts["id_sum"]
        by_world[world] = [{i for rank in ranks for i in rank[step]} for step in range(11)]
    assert by_world[1] == by_world[2] == by_world[4]


def epochs(path: str, seed: int, count: int) -> list[list[list[int]]]:
    """[epoch][rank] ids, world 2."""
    loaders = [Loader(path, batch_size=8, columns=["id"], seed=seed, rank=r, world_size=2) for r in range(2)]
    found = [[flat(steps(loader)) for loader in loaders] for _ in range(count)]
    for loader in loaders:
        loader.close()
    return found


def test_case_68_epochs_differ_and_seeds_repeat(data: dict[str, str]) -> None:
    path, n = data["68"], expected("68")["n"]
    seven = epochs(path, 7, 3)
    for ranks in seven:
        assert sorted(flat(ranks)) == list(range(n))
    for a, b in ((0, 1), (0, 2), (1, 2)):
        assert sum(x == y for x, y in zip(flat(seven[a]), flat(seven[b]))) < 10
    program = f"from test_live import epochs; import json; print(json.dumps(epochs({path!r}, 7, 3)))"
    paths = os.pathsep.join([str(ROOT / "python/src"), str(ROOT / "python/tests")])
    second = subprocess.run([sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": paths},
                            capture_output=True, text=True, check=True)  # fmt: skip
    assert json.loads(second.stdout) == seven
    assert epochs(path, 8, 1)[0] != seven[0]
    with Loader(path, batch_size=8, columns=["id"], seed=7, rank=0, world_size=2) as loader:
        for _ in range(2):
            loader.set_epoch(1)
            assert flat(steps(loader)) == seven[1][0]
    with Loader(path, batch_size=16, columns=["id"], seed=7) as loader:
        order = flat(steps(loader))
    shard = {}
    for number, source in enumerate(sorted((CASES / "68-loader-epoch-order/data").glob("*.jsonl"))):
        for line in source.read_text().splitlines():
            shard[json.loads(line)["id"]] = number
    assert sum(shard[a] == shard[b] for a, b in zip(order, order[1:])) < n / 2


def both(path: str, **options: object) -> list[Loader]:
    return [Loader(path, batch_size=4, columns=["id"], rank=r, world_size=2, **options) for r in range(2)]  # type: ignore[arg-type]


def take(loaders: list[Loader], count: int) -> list[list[int]]:
    """`count` steps of all ranks together, over epoch borders."""
    iterators = [iter(loader) for loader in loaders]
    found = []
    for _ in range(count):
        rows = []
        for rank, loader in enumerate(loaders):
            batch = next(iterators[rank], None)
            if batch is None:
                iterators[rank] = iter(loader)
                batch = next(iterators[rank])
            rows += [int(i) for i in batch["id"]]
        found.append(rows)
    return found


def end(loaders: list[Loader]) -> None:
    for loader in loaders:
        loader.close()


def test_case_70_resume_twice_and_in_later_epochs(data: dict[str, str]) -> None:
    path, total = data["70"], 3 * expected("70")["steps_per_epoch"]
    loaders = both(path)
    whole = take(loaders, total)  # A
    end(loaders)
    assert sorted(flat(whole[:12])) == list(range(96))

    def resumed(state: dict[str, object]) -> list[Loader]:
        assert len(json.dumps(state)) < 10_000
        return both(path, state=json.loads(json.dumps(state)))

    for stops in ([5, 12, 21], [12], [17]):  # B, C, D
        loaders, done, seen = both(path), 0, []
        for stop in stops:
            seen += take(loaders, stop - done)
            done = stop
            states = [loader.state_dict() for loader in loaders]
            assert states[0] == states[1]
            end(loaders)
            loaders = resumed(states[0])
        assert loaders[0].state_dict() == states[0]  # E: resumed, nothing given yet
        end(loaders)
        loaders = resumed(states[0])
        assert seen + take(loaders, total - done) == whole
        end(loaders)
    loaders = both(path)
    take(loaders, 5)
    state = loaders[0].state_dict()  # G: eight slots are filled ahead of the trainer
    take(loaders, 3)
    for loader in loaders:
        loader.load_state_dict(state)  # F
    assert take(loaders, total - 5) == whole[5:]
    end(loaders)
    # Another world and batch size at the same global batch: the same ids in the same steps.
    with Loader(path, batch_size=2, global_batch_size=8, columns=["id"], state=state) as loader:
        assert loader.grad_accum == 4
        single = take([loader], 4 * (total - 5))
    assert [set(flat(single[4 * s : 4 * s + 4])) for s in range(total - 5)] == [set(step) for step in whole[5:]]
    for options, text in (({"seed": 1}, "seed"), ({"max_length": 16}, "view")):
        (other, twin) = both(path, **options)
        with pytest.raises(ValueError, match=text) as caught:
            other.load_state_dict(state)
        assert caught.value.code == "ATH_STATE_MISMATCH"  # type: ignore[attr-defined]
        end([other, twin])
    with Loader(data["72"], batch_size=8, columns=["id"]) as other, pytest.raises(ValueError, match="view"):
        other.load_state_dict(state)


def test_case_72_resume_at_every_step(data: dict[str, str]) -> None:
    path, n = data["72"], expected("72")["n"]
    with Loader(path, batch_size=1, columns=["id"], seed=3) as loader:
        states = [loader.state_dict()]
        order = []
        for batch in loader:
            order.append(int(batch["id"][0]))
            states.append(loader.state_dict())
        following = flat(steps(loader))
    assert sorted(order) == list(range(n)) and len(states) == n + 1

    def resume(k: int) -> tuple[list[int], float]:
        began = time.perf_counter()
        with Loader(path, batch_size=1, columns=["id"], seed=3, state=states[k]) as loader:
            iterator = iter(loader)
            first = int(next(iterator)["id"][0])
            spent = time.perf_counter() - began
            return [first, *flat(steps(iterator))], spent

    for k in range(n):
        assert resume(k)[0] == order[k:]
    assert resume(n)[0] == following
    fastest = [min(resume(k)[1] for _ in range(5)) for k in (1, n - 1)]
    assert fastest[1] < 2 * fastest[0] + 0.05
    program = (
        "import sys, json; from athanor.numpy import Loader; path, state = sys.argv[1:]\n"
        "with Loader(path, batch_size=1, columns=['id'], seed=3, state=json.loads(state)) as loader:\n"
        "    print([int(batch['id'][0]) for batch in loader])"
    )
    env = {**os.environ, "PYTHONPATH": str(ROOT / "python/src")}
    for k in (0, 76, n - 1, n):
        done = subprocess.run([sys.executable, "-c", program, path, json.dumps(states[k])], env=env,
                              capture_output=True, text=True, check=True)  # fmt: skip
        assert json.loads(done.stdout) == (order[k:] if k < n else following)


def kill_agent(run_dir: Path) -> None:
    for pid in agents_in(run_dir):
        os.kill(pid, signal.SIGKILL)


def test_r1_killed_agent_is_a_pause_with_nothing_lost(data: dict[str, str], run_dir: Path, tmp_path: Path) -> None:
    loaders = [Loader(data["66"], batch_size=4, columns=["id"], rank=r, world_size=4, proof_dir=tmp_path / "killed")
               for r in range(4)]  # fmt: skip
    iterators = [iter(loader) for loader in loaders]
    seen = []
    for step in range(16):
        for rank, iterator in enumerate(iterators):
            seen += [int(i) for i in next(iterator)["id"]]
            if (step, rank) == (5, 1):
                kill_agent(run_dir)
    assert sorted(seen) == list(range(256))
    assert all(loader.stats()["agent_deaths"] >= 1 for loader in loaders)
    assert len(agents_in(run_dir)) == 1
    end(loaders)
    with Loader(data["66"], batch_size=16, columns=["id"], proof_dir=tmp_path / "whole") as loader:
        assert len(list(loader)) == 16
    assert proof_total(str(tmp_path / "killed")) == proof_total(str(tmp_path / "whole"))


@pytest.mark.parametrize("agent", ["auto", "none"])
def test_a_proof_names_the_data_that_it_is_of(data: dict[str, str], tmp_path: Path, agent: str) -> None:
    with Loader(data["66"], batch_size=16, columns=["id"], proof_dir=tmp_path / "proof", agent=agent) as loader:
        next(iter(loader))
        view = loader.state_dict()["sources"][0]["view"]
    (proof,) = (tmp_path / "proof").iterdir()
    header = json.loads(proof.read_text().splitlines()[0])
    manifest = json.loads((Path(data["66"]) / ".athanor" / "manifest.json").read_text())
    assert header["data"] == {view: manifest["fingerprint"]} and header["view"] == view


def test_r1_with_workers(data: dict[str, str], run_dir: Path) -> None:
    torch_data = pytest.importorskip("torch.utils.data")
    from athanor.torch import AthanorDataset

    dataset = AthanorDataset(data["66"], batch_size=4, columns=["id"])
    seen = []
    for step, batch in enumerate(torch_data.DataLoader(dataset, batch_size=None, num_workers=2, prefetch_factor=2)):
        seen += batch["id"].tolist()
        if step in (9, 30):
            kill_agent(run_dir)
    assert sorted(seen) == list(range(256))


def test_r12_another_protocol_is_refused_with_both_versions(data: dict[str, str], monkeypatch: Monkey) -> None:
    monkeypatch.setattr("athanor._layout.PROTOCOL", 999)
    monkeypatch.setattr("athanor.__version__", "7.7.7")
    with Loader(data["66"], batch_size=4) as loader, pytest.raises(athanor.AthanorError) as caught:
        next(iter(loader))
    assert caught.value.code == "ATH_PROTOCOL_MISMATCH"
    assert "999" in str(caught.value) and "7.7.7" in str(caught.value)
    assert "0.1.0" in str(caught.value)


def test_r12_segment_of_another_layout_is_refused(data: dict[str, str], monkeypatch: Monkey) -> None:
    monkeypatch.setattr("athanor._layout.LAYOUT_VERSION", 0)
    with Loader(data["66"], batch_size=4, columns=["id"]) as loader, pytest.raises(athanor.AthanorError) as caught:
        next(iter(loader))
    assert caught.value.code == "ATH_SEGMENT_REFUSED" and "layout" in str(caught.value)


def test_agent_leaves_and_leaves_nothing(data: dict[str, str], run_dir: Path) -> None:
    with Loader(data["66"], batch_size=4, columns=["id"]) as loader:
        next(iter(loader))
        assert agents_in(run_dir)
    for _ in range(100):
        if not agents_in(run_dir):
            break
        time.sleep(0.1)
    assert not agents_in(run_dir)
    assert not (run_dir / "agent.sock").exists() and not list(run_dir.glob("seg-*"))


@pytest.mark.parametrize("shuffle_memory", [1 << 30, 4096])
def test_the_agent_idles_while_the_trainer_computes(data: dict[str, str], run_dir: Path, shuffle_memory: int) -> None:
    loader = Loader(data["66"], batch_size=4, shuffle_memory=shuffle_memory)
    try:
        next(iter(loader))
        (agent,) = agents_in(run_dir)

        def seconds() -> float:
            user, system = Path(f"/proc/{agent}/stat").read_text().rpartition(")")[2].split()[11:13]
            return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

        # Slots are full by then, and windows read ahead; what collects garbage may come later.
        time.sleep(1)
        before = seconds()
        time.sleep(2)
        assert seconds() - before < 0.2
    finally:
        loader.close()


def test_map_style_is_file_order(data: dict[str, str]) -> None:
    torch_data = pytest.importorskip("torch.utils.data")
    from athanor.torch import DeepSeekDataset

    dataset = DeepSeekDataset(data["66"], columns=["id"])
    assert len(dataset) == 256
    assert flat(steps(torch_data.DataLoader(dataset, batch_size=100))) == list(range(256))
    shuffled = flat(steps(torch_data.DataLoader(dataset, batch_size=32, shuffle=True, num_workers=2)))
    assert sorted(shuffled) == list(range(256)) and shuffled != list(range(256))
    dataset.close()


def test_text_only_says_to_tokenise(data: dict[str, str]) -> None:
    with Loader(data["66"], batch_size=4, columns=["text"]) as loader, pytest.raises(athanor.AthanorError) as caught:
        next(iter(loader))
    assert caught.value.code == "ATH_COLUMN_UNKNOWN" and "tokenizer=" in str(caught.value)
