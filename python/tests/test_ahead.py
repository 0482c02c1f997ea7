"""One job beside its owner: its result comes once, its error too, and an owner in a hurry takes the job back."""

from __future__ import annotations

import threading
import time

import pytest

from athanor._ahead import Ahead


def test_the_result_comes_once() -> None:
    ahead: Ahead[int] = Ahead()
    assert ahead.result() is None
    for value in range(100):
        ahead.start(lambda value=value: value)  # type: ignore[misc]
        time.sleep(0.001)
        assert ahead.result() in (value, None)
        assert ahead.result() is None
    ahead.close()


def test_a_job_that_has_begun_is_waited_for() -> None:
    ahead: Ahead[str] = Ahead()
    begun = threading.Event()

    def job() -> str:
        begun.set()
        time.sleep(0.05)
        return "done"

    ahead.start(job)
    begun.wait()
    assert ahead.result() == "done"
    ahead.close()


def test_an_error_is_raised_in_the_owner() -> None:
    ahead: Ahead[int] = Ahead()
    begun = threading.Event()

    def job() -> int:
        begun.set()
        raise KeyError("slot")

    ahead.start(job)
    begun.wait()
    with pytest.raises(KeyError):
        ahead.result()
    ahead.start(lambda: 3)
    time.sleep(0.05)
    assert ahead.result() == 3
    ahead.close()


def test_close_ends_the_thread() -> None:
    before = threading.active_count()
    ahead: Ahead[int] = Ahead()
    ahead.start(lambda: 1)
    ahead.close()
    for _ in range(200):
        if threading.active_count() == before:
            return
        time.sleep(0.01)
    raise RuntimeError("the thread is still there")


def test_a_quick_trainer_gets_no_thread() -> None:
    ahead: Ahead[int] = Ahead()
    assert not ahead.worth_it()
    ahead.returned()
    assert not ahead.worth_it()
    time.sleep(0.003)
    assert ahead.worth_it()
