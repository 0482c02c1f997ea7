"""Against the fake agent and a real GPU; skipped where there is none. For its costs see `athanor.bench.device`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from test_device import CP, assert_equal, plain

torch = pytest.importorskip("torch")

from athanor._cuda import Cuda  # noqa: E402
from athanor.bench.device import Staged  # noqa: E402
from athanor.torch import Loader  # noqa: E402

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")]


@pytest.mark.parametrize("kind", [Cuda, Staged])
@pytest.mark.parametrize("options", [{}, {"last": "pad", "identities": True}, {"padding": "longest"}, CP])
def test_batches_are_those_of_the_processor(fake: Path, monkeypatch: Any, kind: type[Cuda], options: Any) -> None:
    monkeypatch.setattr("athanor.torch._open_device", kind)
    expected = plain(epochs=3, **options)
    busy = torch.rand(4096, 4096, device="cuda")
    held = []
    with Loader("/d", batch_size=4, max_length=8, device="cuda", **options) as loader:
        for _ in range(3):
            for batch in loader:
                assert all(value.device == torch.device("cuda", 0) for value in batch.values())
                # Work of the user's stream, beside which the next batches are copied.
                busy = (busy @ busy).clamp(-1, 1)
                held.append(batch)
                time.sleep(0.001)
    assert_equal([{name: value.cpu() for name, value in batch.items()} for batch in held], expected)


def test_shared_memory_is_registered_and_given_back(fake: Path) -> None:
    for _ in range(3):  # the same addresses again: nothing may stay registered
        with Loader("/d", batch_size=4, max_length=8, device="cuda") as loader:
            next(iter(loader))
            sender = loader._session._connection._sender  # type: ignore[union-attr]
            assert sender.refused is None and sender._slots[0].is_pinned()


def test_an_error_of_registering_is_not_the_next_kernels(fake: Path) -> None:
    device = Cuda(torch.device("cuda"))
    memory = torch.empty(1 << 20, dtype=torch.uint8)
    memory = memory[-memory.data_ptr() % 4096 :][: 1 << 16]
    assert device.register(memory) is None
    assert "cudaHostRegister" in str(device.register(memory))
    assert torch.ones(4, device="cuda").sum().item() == 4
    device.unregister(memory)
    device.unregister(memory)  # is told in the log only
    assert torch.ones(4, device="cuda").sum().item() == 4
