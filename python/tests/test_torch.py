"""With torch, against the fake agent: tensors, DataLoader workers, the map-style data set."""

from __future__ import annotations

import pickle
import warnings
from pathlib import Path

import pytest

from test_protocol import ids

torch = pytest.importorskip("torch")

from torch.utils.data import DataLoader  # noqa: E402

from athanor.torch import AthanorDataset, DeepSeekDataset, Loader, state_of  # noqa: E402


def test_batches_are_tensors_that_belong_to_the_user(fake: Path) -> None:
    with Loader("/d", batch_size=4, max_length=8, last="pad", identities=True) as loader:
        batches = list(loader)
        assert ids(batches) == list(range(100))
        first = batches[0]
        assert first["input_ids"].dtype == torch.int64 and first["input_ids"].shape == (4, 8)
        assert first["attention_mask"].tolist()[3] == [1, 1, 1, 0, 0, 0, 0, 0]
        assert first["valid"].dtype == torch.bool and first["_record"].tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("workers", [1, 2, 5])
@pytest.mark.parametrize("persistent", [False, True])
def test_workers_keep_the_order_and_count_epochs(fake: Path, workers: int, persistent: bool) -> None:
    dataset = AthanorDataset("/d", batch_size=8, max_length=8)
    with Loader("/d", batch_size=8, max_length=8) as loader:
        expected = [ids(loader) for _ in range(3)]
        loader.set_epoch(7)
        seventh = ids(loader)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="This DataLoader will create")
        data = DataLoader(dataset, batch_size=None, num_workers=workers, persistent_workers=persistent)
    for epoch in range(3):
        assert len(dataset) == len(expected[epoch]) // 8
        assert ids(data) == expected[epoch]
    dataset.set_epoch(7)
    assert ids(data) == seventh
    dataset.set_epoch(1)
    assert ids(data) == expected[1]
    dataset.close()


def test_without_workers_the_data_set_is_a_loader(fake: Path) -> None:
    dataset = AthanorDataset("/d", batch_size=8, max_length=8)
    data = DataLoader(dataset, batch_size=None)
    with Loader("/d", batch_size=8, max_length=8) as loader:
        assert [ids(data), ids(data)] == [ids(loader), ids(loader)]
        assert dataset.state_dict() == loader.state_dict()
        state = dataset.state_dict()
        rest = ids(loader)
    again = AthanorDataset("/d", batch_size=8, max_length=8, state=state_of({"x": [1, {"dataset": state}]}))
    again.set_epoch(2)
    assert ids(DataLoader(again, batch_size=None, num_workers=2)) == rest
    again.load_state_dict(state)
    assert ids(DataLoader(again, batch_size=None)) == rest
    with pytest.raises(ValueError, match="without one"):
        state_of({"x": 1})


def test_state_of_workers_is_the_next_batch() -> None:
    base = {"version": 1, "seed": "0", "sources": [], "segments": []}
    assert (
        state_of([{**base, "position": "64"}, {**base, "position": "40"}, {**base, "position": "56"}])["position"]
        == "40"
    )


@pytest.mark.parametrize("workers", [0, 1])
def test_batching_batches_is_refused_with_the_line_to_write(fake: Path, workers: int) -> None:
    dataset = AthanorDataset("/d", batch_size=8, max_length=8)
    with pytest.raises(ValueError, match="batch_size=None, num_workers=n"):
        next(iter(DataLoader(dataset, batch_size=4, num_workers=workers)))
    with pytest.raises(ValueError, match="batch_size=None, num_workers=n"):
        next(iter(DataLoader(dataset, num_workers=workers)))


def test_wrong_arguments_fail_in_the_training_process(fake: Path) -> None:
    with pytest.raises(ValueError, match="batch_size must be given"):
        AthanorDataset("/d")
    with pytest.raises(ValueError, match="proof_dir must be left out"):
        list(DataLoader(AthanorDataset("/d", batch_size=4, proof_dir=fake), batch_size=None, num_workers=1))


@pytest.mark.parametrize("workers", [0, 2])
def test_map_style(fake: Path, caplog: pytest.LogCaptureFixture, workers: int) -> None:
    dataset = DeepSeekDataset("/d", max_length=8)
    assert len(dataset) == 100
    assert int(dataset[99]["id"]) == 99 and int(dataset[-1]["id"]) == 99
    with pytest.raises(IndexError, match=r"-100\.\.99, got 100"):
        dataset[100]
    again = pickle.loads(pickle.dumps(dataset))
    data = DataLoader(again, batch_size=32, num_workers=workers)
    assert ids(data) == list(range(100)) and "random order" not in caplog.text
    batches = list(DataLoader(dataset, batch_size=32, shuffle=True, num_workers=workers))
    assert sorted(ids(batches)) == list(range(100)) and batches[0]["input_ids"].shape == (32, 8)
    if workers == 0:
        assert caplog.text.count("random order") == 1
    dataset.close()
    again.close()
