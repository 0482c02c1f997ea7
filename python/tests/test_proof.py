from __future__ import annotations

import json
import resource
from pathlib import Path

import numpy as np
import pytest

from athanor import AthanorError
from athanor._proof import ProofFile, hash_rows, proof_total, step_sum
from conftest import ROOT

VECTORS = json.loads((ROOT / "test/fixtures/order-v1.json").read_text())


def identities(rows: list[tuple[int, int, int, int, int]]) -> np.ndarray:
    return np.array([(p, k, r, t | v << 32) for p, k, r, t, v in rows], np.uint64).reshape(-1, 4)


def test_row_hash_is_that_of_the_order() -> None:
    for vector in VECTORS["rowHash"]:
        row = [int(field) for field in vector["row"]]
        assert int(hash_rows(identities([(*row, 1)]))[0]) == int(vector["hash"])


def test_sum_wraps_and_leaves_out_rows_that_are_not_valid() -> None:
    rows = identities([(i, 2**64 - 1 - i, i * 7, 3, 1) for i in range(100)])
    each = [int(h) for h in hash_rows(rows)]
    assert step_sum(rows) == (100, sum(each) % 2**64)
    rows[10:, 3] &= np.uint64(0xFFFFFFFF)
    assert step_sum(rows) == (10, sum(each[:10]) % 2**64)


def write(folder: Path, rank: int, world: int, start: int, time: int, lines: list[tuple[int, int, int]]) -> Path:
    path = folder / f"{rank}-{time}.jsonl"
    head = {"version": 1, "rank": rank, "world": world, "start": str(start), "time": time, "view": "v"}
    body = [{"position": str(p), "rows": n, "sum": str(s)} for p, n, s in lines]
    path.write_text("".join(json.dumps(line) + "\n" for line in (head, *body)))
    return path


def test_later_sessions_supersede_and_world_size_may_change(tmp_path: Path) -> None:
    write(tmp_path, 0, 2, 0, 100, [(0, 4, 1), (8, 4, 2), (16, 4, 1000)])
    write(tmp_path, 1, 2, 0, 103, [(0, 4, 10), (8, 4, 20)])
    assert proof_total(str(tmp_path)) == (20, 1033)
    last = write(tmp_path, 0, 1, 8, 200, [(8, 8, 22), (16, 8, 2**64 - 1)])
    assert proof_total(str(tmp_path)) == (24, (11 + 22 - 1) % 2**64)
    assert proof_total(str(tmp_path), upto=16) == (16, 33)
    with last.open("a") as file:
        file.write('{"position":"24","ro')  # killed while writing
    assert proof_total(str(tmp_path), upto=16) == (16, 33)
    write(tmp_path, 0, 1, 0, 300, [(0, 8, 5), (0, 8, 7)])  # went back inside one file
    assert proof_total(str(tmp_path)) == (8, 7)


def test_a_clock_that_was_set_back_between_launches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second launch goes on from position 4 and is the later one, though its clock says an hour earlier."""
    now = 1_800_000_000 * 10**9
    for start, back, key in ((0, 0, 1), (4, 3600 * 10**9, 2), (4, 7200 * 10**9, 3)):
        monkeypatch.setattr("athanor._proof.time.time_ns", lambda moment=now - back: moment)
        proof = ProofFile(str(tmp_path), 0, 1, start, "v", {}, {})
        for position in range(start, 8):
            proof.add(position, identities([(position, key, position, 0, 1)]))
        proof.close()
    rows = [(position, 1 if position < 4 else 3, position, 0, 1) for position in range(8)]
    assert proof_total(str(tmp_path)) == step_sum(identities(rows))


def test_launches_from_the_same_place_that_a_kill_cut_short(tmp_path: Path) -> None:
    """Ranks die before they saved anything: the next launch has the same start, and perhaps the same world size."""
    write(tmp_path, 0, 4, 8, 100, [(8, 1, 100)])
    write(tmp_path, 1, 4, 8, 101, [(8, 1, 100)])
    for moment, rank in ((200, 2), (201, 0), (202, 1), (203, 3)):
        write(tmp_path, rank, 4, 8, moment, [(8, 1, 1), (12, 1, 1)])
    assert proof_total(str(tmp_path)) == (8, 8)
    write(tmp_path, 0, 2, 8, 300, [(8, 2, 100)])  # another world between two launches
    assert proof_total(str(tmp_path)) == (2, 100)
    for moment, rank in ((400, 3), (401, 2), (402, 1), (403, 0)):
        write(tmp_path, rank, 4, 8, moment, [(8, 1, 2), (12, 1, 2), (16, 1, 2)])
    assert proof_total(str(tmp_path)) == (12, 24)


def test_damage_is_an_error_with_its_place(tmp_path: Path) -> None:
    path = write(tmp_path, 0, 1, 0, 100, [(0, 4, 1)])
    lines = path.read_text().splitlines()
    path.write_text(lines[0] + "\n{}\n")
    with pytest.raises(AthanorError, match="line 2 of the proof") as caught:
        proof_total(str(tmp_path))
    assert caught.value.code == "ATH_PROOF_INVALID" and caught.value.byte_offset == len(lines[0]) + 1


def test_two_files_never_share_a_name(tmp_path: Path) -> None:
    files = [ProofFile(str(tmp_path), 0, 1, 0, "v", {}, {}) for _ in range(5)]
    assert len({file.path for file in files}) == 5
    for file in files:
        file.close()
        file.close()


def test_a_full_disk_cuts_a_line_short_and_the_batch_is_asked_for_again(tmp_path: Path) -> None:
    rows = np.array([[0, 1, 2, 1 << 32]], np.uint64)
    proof = ProofFile(str(tmp_path), 0, 1, 0, "v", {}, {})
    proof.add(0, rows)
    least, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (Path(proof.path).stat().st_size + 20, most))
    try:
        with pytest.raises(AthanorError) as caught:
            proof.add(1, rows)
        assert caught.value.code == "ATH_PROOF_WRITE" and "20 of" in str(caught.value)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (least, most))
    proof.add(1, rows)
    proof.close()
    assert proof_total(str(tmp_path)).rows == 2
