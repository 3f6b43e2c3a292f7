"""Producers that make one transaction after the other, each in a thread."""

import threading
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final

from tests.tools.bench.transactions_sides import Copier, Failed, Side

TIMEOUT_MS: Final = 15_000
#: Before the next one, when a transaction has failed: a broker that is away is asked no faster.
_PAUSE_S: Final = 0.5
_WORDS_MAX: Final = 120


@dataclass(slots=True)
class Done:
    """What producers have done in a while."""

    took_s: list[float] = field(default_factory=list)
    #: Why transactions have failed, as often as they did.
    failed: Counter[str] = field(default_factory=Counter)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def note(self, took_s: float) -> None:
        with self.lock:
            self.took_s.append(took_s)

    def note_failure(self, problem: Exception) -> None:
        with self.lock:
            self.failed[str(problem).partition("\n")[0][:_WORDS_MAX]] += 1


class Worker:
    """One producer, with a group of its own."""

    def __init__(self, side: Side, name: str, topic: str, records: int) -> None:
        self._side, self._name, self._topic, self._records = side, name, topic, records
        self._position = 0
        #: None: to be opened anew.
        self._copier: Copier | None = self._opened()

    def work(self, until_s: float, done: Done) -> None:
        """Until then; what is open at that moment is finished, and counts."""
        while time.monotonic() < until_s:
            began = time.monotonic()
            try:
                self._transact()
            except Failed as problem:
                done.note_failure(problem)
                self._recover(problem)
                time.sleep(_PAUSE_S)
            else:
                done.note(time.monotonic() - began)

    def close(self) -> None:
        if self._copier is not None:
            self._copier.close()

    def _transact(self) -> None:
        if self._copier is None:
            self._copier = self._opened()
        self._position += 1
        self._copier.begin(self._topic, self._records, self._position)
        self._copier.commit()

    def _recover(self, problem: Failed) -> None:
        if self._copier is None:
            return
        if problem.is_fatal:
            self._copier.close()
            self._copier = None
        else:
            self._copier.abort()

    def _opened(self) -> Copier:
        copier = self._side.copier(self._name, TIMEOUT_MS)
        try:
            copier.init()
        except Failed:
            copier.close()
            raise
        return copier


def open_workers(side: Side, names: Sequence[str], topic: str, records: int) -> list[Worker]:
    """All at once: the first epoch of each takes a while. Raises Failed, and leaves none open."""
    with ThreadPoolExecutor(len(names)) as pool:
        opened = [pool.submit(Worker, side, name, topic, records) for name in names]
    if any(each.exception() is not None for each in opened):
        for each in opened:
            if each.exception() is None:
                each.result().close()
    return [each.result() for each in opened]


def all_work(workers: Sequence[Worker], seconds: float) -> Done:
    """Let all work at once for so long."""
    done, until_s = Done(), time.monotonic() + seconds
    with ThreadPoolExecutor(len(workers)) as pool:
        for each in [pool.submit(worker.work, until_s, done) for worker in workers]:
            each.result()
    return done
