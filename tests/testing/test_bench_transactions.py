"""The figures of transactions: what has failed is counted, and a fatal error costs one producer."""

import io
import subprocess
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from coordlib.client.transactions.machine import Severity, TransactionError
from tests.tools.bench import transactions, transactions_sides
from tests.tools.bench.transactions import Turn
from tests.tools.bench.transactions_load import Done, Worker, all_work, open_workers
from tests.tools.bench.transactions_sides import Copier, Failed, KafkaSide

FENCED = KafkaException(KafkaError(KafkaError._FENCED, "newer", True, False, False))
REFUSED = TransactionError(Severity.ABORTABLE, "The group has refused the offsets.")


class Producer:
    """Raises what it is given, one call of `commit_transaction` after the other."""

    def __init__(self, raises: Iterator[Exception | None], calls: list[str]) -> None:
        self._raises, self._calls = raises, calls

    def __getattr__(self, name: str) -> Callable[..., None]:
        def call(*_: Any, **__: Any) -> None:
            if name != "produce":
                self._calls.append(name.partition("_")[0])
            if name == "commit_transaction" and (problem := next(self._raises, None)) is not None:
                raise problem

        return call


class Side:
    """All of its copiers share one list of problems, and one of calls."""

    def __init__(self, *raises: Exception | None) -> None:
        self._raises, self.calls = iter(raises), list[str]()

    def copier(self, _name: str, _timeout_ms: int) -> Copier:
        def close() -> None:
            self.calls.append("close")

        return Copier(Producer(self._raises, self.calls), lambda: None, close)

    def successor(self, name: str) -> Any:
        raise AssertionError(name)

    def close(self) -> None: ...


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.tools.bench.transactions_load._PAUSE_S", 0.0)


def worked(side: Side, transactions: int, monkeypatch: pytest.MonkeyPatch) -> Done:
    """One producer's so many transactions."""
    now = iter([*[0.0] * (3 * transactions), *[9.0] * 9])
    worker = Worker(side, "w", "t", 2)
    side.calls.clear()
    monkeypatch.setattr("tests.tools.bench.transactions_load.time.monotonic", lambda: next(now))
    done = Done()
    worker.work(5.0, done)
    return done


def test_what_was_refused_is_aborted_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A time of a transaction that does not count is no figure."""
    side = Side(REFUSED)
    done = worked(side, 2, monkeypatch)

    assert done.failed == {"The group has refused the offsets.": 1}
    assert side.calls[:4] == ["begin", "send", "commit", "abort"]
    assert side.calls[4:7] == ["begin", "send", "commit"]
    assert done.took_s


def test_a_fatal_error_is_followed_by_a_new_producer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that was away for longer than the timeout must not end the benchmark."""
    side = Side(FENCED)
    done = worked(side, 2, monkeypatch)

    assert sum(done.failed.values()) == 1
    assert side.calls[:8] == ["begin", "send", "commit", "close", "init", "begin", "send", "commit"]


def test_what_is_open_at_the_end_is_finished() -> None:
    """Else a slow side would show its quick transactions alone."""
    workers = [Worker(Side(), str(number), "t", 1) for number in range(3)]

    assert len(all_work(workers, 0.05).took_s) >= 3


@pytest.mark.parametrize(("problem", "is_fatal"), [(FENCED, True), (REFUSED, False)])
def test_both_makes_of_errors_are_told_apart(problem: Any, is_fatal: bool) -> None:
    assert Failed(problem).is_fatal is is_fatal


# -- successors -------------------------------------------------------------------------------


class Clock:
    """It goes on when something is done, by what that takes."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.done: list[str] = []

    def monotonic(self) -> float:
        return self.now_s

    def do(self, what: str, takes_s: float) -> None:
        self.done.append(what)
        self.now_s += takes_s


class Waiting:
    """A side whose clients take 100 s to open, and know a position 2 s later."""

    def __init__(self, clock: Clock, position: int) -> None:
        self.clock, self.at = clock, position

    def copier(self, _name: str, _timeout_ms: int) -> Any:
        self.clock.do("copier", 0.0)
        names = ("init", "begin", "commit", "close")
        calls = {name: lambda *_, each=name: self.clock.do(each, 0.5) for name in names}
        return SimpleNamespace(**calls)

    def successor(self, _name: str) -> Any:
        self.clock.do("successor", 100.0)
        return self

    def position(self, _topic: str) -> int:
        self.clock.do("position", 2.0)
        return self.at

    def close(self) -> None:
        self.clock.do("closed", 0.0)


class Victim:
    """A process that has come to acceptance."""

    def __init__(self, clock: Clock) -> None:
        self._clock, self.stdout = clock, io.BytesIO(b"accepted\n")

    def kill(self) -> None:
        self._clock.do("kill", 0.0)

    def wait(self) -> None: ...


def turn_of(clock: Clock, position: int, monkeypatch: pytest.MonkeyPatch) -> Turn:
    monkeypatch.setattr(transactions, "time", clock)
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: Victim(clock))
    stand: Any = SimpleNamespace(config={}, prefix="coord")
    side: Any = Waiting(clock, position)
    return Turn("ours", side, stand, "kafka", "t")


def test_a_successor_of_a_commit_is_open_when_the_clock_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What a client needs to open is no part of how long a transaction is in doubt."""
    clock = Clock()

    assert turn_of(clock, 1, monkeypatch)._after_commit(0) == 2.0
    assert clock.done.index("successor") < clock.done.index("commit")


def test_the_clock_starts_at_the_kill(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the successor open by then; the start of the next process counts."""
    for after, took_s in (("_after_timeout", 2.0), ("_after_restart", 2.5)):
        clock = Clock()
        assert getattr(turn_of(clock, -1, monkeypatch), after)(0) == took_s
        assert clock.done.index("successor") < clock.done.index("kill")


# -- what is left open ------------------------------------------------------------------------


def test_producers_are_closed_where_one_cannot_begin() -> None:
    """Their connections and threads would stay for the rest of the benchmark."""

    class Odd(Side):
        def copier(self, name: str, timeout_ms: int) -> Copier:
            copier = super().copier(name, timeout_ms)
            if name == "1":
                copier.init = lambda: Copier._do(lambda: (_ for _ in ()).throw(FENCED))  # type: ignore[method-assign]
            return copier

    side = Odd()
    with pytest.raises(Failed):
        open_workers(side, ["0", "1", "2"], "t", 1)

    assert side.calls.count("close") == 3


def test_a_producer_of_kafka_is_flushed_at_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """confluent-kafka's Producer has nothing else that ends it in order."""
    calls: list[str] = []

    class Client:
        def __init__(self, config: dict[str, Any]) -> None: ...

        def __getattr__(self, name: str) -> Callable[..., None]:
            return lambda *_: calls.append(name)

    monkeypatch.setattr(transactions_sides, "Producer", Client)
    monkeypatch.setattr(transactions_sides, "Consumer", Client)

    KafkaSide({}).copier("x", 1_000).close()

    assert calls[-3:] == ["purge", "flush", "close"]
