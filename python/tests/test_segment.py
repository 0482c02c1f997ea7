from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest

from athanor import AthanorError
from athanor._segment import Segment, sweep


def test_header_is_what_the_protocol_says() -> None:
    segment = Segment.anonymous(3, 4096)
    assert os.fstat(segment.fd).st_size == 4096 + 3 * 4096
    assert os.fstat(segment.fd).st_blocks * 512 >= 4 * 4096  # allocated, not only promised
    assert segment.map[:8] == b"ATHSEG01" and segment.map[16:32] == segment.nonce
    assert struct.unpack_from("<II", segment.map, 8) == (1, 3)
    assert struct.unpack_from("<QQQ", segment.map, 32)[0] == 4096
    assert struct.unpack_from("<Q", segment.map, 64) == (2**64 - 1,)
    segment.close()
    segment.close()


def test_named_segments_of_the_dead_are_swept_and_no_others(tmp_path: Path) -> None:
    alive = Segment.named(str(tmp_path), 2, 4096)
    pid = os.fork()
    if pid == 0:
        Segment.named(str(tmp_path), 2, 4096)
        os._exit(0)
    os.waitpid(pid, 0)
    (tmp_path / "agent.log").write_text("stays")
    assert alive.path is not None and os.stat(alive.path).st_mode & 0o777 == 0o600
    assert sweep(str(tmp_path)) == 1
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(["agent.log", os.path.basename(alive.path)])
    alive.close()
    assert [p.name for p in tmp_path.iterdir()] == ["agent.log"]


def test_too_large_is_said_with_both_sizes() -> None:
    with pytest.raises(AthanorError, match="limit is 2147483648") as caught:
        Segment.anonymous(2, 2**31)
    assert caught.value.code == "ATH_SEGMENT_TOO_LARGE"


def test_full_memory_is_an_error_and_not_a_signal(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(fd: int, start: int, size: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(AthanorError, match=r"12288 bytes.*No space") as caught:
        Segment.anonymous(2, 4096)
    assert caught.value.code == "ATH_SHM_FULL"
