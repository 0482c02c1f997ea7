"""One batch copied ahead, in a thread of its own, while the trainer computes.

The copy of a large batch costs some 0.2 ms (256 × 512, two int64 columns, caches cold after a step), and numpy copies
without the interpreter lock. A batch copied ahead is not a batch delivered: positions count when it is handed out.
A trainer that asks again at once gets no help from a thread, only its wake-ups, so nothing is copied ahead then.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")

# Below this a hand-over between threads (two wake-ups) costs more than the copy that it hides.
_WORTH_NS = 1_000_000


class Ahead(Generic[T]):
    """Runs one job at a time beside its owner; the owner never touches what the job uses before `result()`."""

    def __init__(self) -> None:
        self._jobs: deque[Callable[[], T | None]] = deque()
        self._go = threading.Semaphore(0)
        self._done = threading.Semaphore(0)
        self.begun = False  # a job whose result was not taken yet
        self._pending = False
        self._value: T | None = None
        self._error: BaseException | None = None
        self._thread: threading.Thread | None = None
        self._returned = 0
        self._ended = False

    def returned(self) -> None:
        """The owner hands a batch out now."""
        self._returned = time.perf_counter_ns()

    def worth_it(self) -> bool:
        """Did the trainer compute for long enough before it asked again?"""
        return self._returned != 0 and time.perf_counter_ns() - self._returned >= _WORTH_NS

    def start(self, job: Callable[[], T | None]) -> None:
        """Begins a job. The last one's result must have been taken."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="athanor-copy", daemon=True)
            self._thread.start()
        self.begun = self._pending = True
        self._jobs.append(job)
        self._go.release()

    def settle(self) -> None:
        """Waits for a job that has begun, and takes back one that has not; what was made stays for `result()`."""
        if not self._pending:
            return
        try:
            self._jobs.popleft()
        except IndexError:
            self._done.acquire()
        self._pending = False

    def result(self) -> T | None:
        """What the job made; None if there was none, or it had not begun (it never will then). Raises its error."""
        self.settle()
        self.begun = False
        value, self._value = self._value, None
        error, self._error = self._error, None
        if error is not None:
            raise error
        return value

    def close(self) -> None:
        """Ends the thread; what it made is dropped."""
        self._ended = True
        try:
            self.result()
        except Exception:
            self._value = None
        self._go.release()

    def _run(self) -> None:
        while True:
            self._go.acquire()
            if self._ended:
                return
            try:
                job = self._jobs.popleft()
            except IndexError:
                continue  # its owner was quicker
            try:
                self._value = job()
            except BaseException as error:
                self._error = error
            self._done.release()
