"""How the driver finds out how users' transactions ended, and what it must never conclude."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from coordlib import limits
from coordlib.core.engine.state import Status
from coordlib.core.wire.api import TxnDecided
from coordlib.core.wire.stored import ShardPosition
from coordlib.errors import CannotReach
from coordlib.job.background.decisions import (
    DECISIONS,
    GAP_MAX,
    REMOVED,
    SAY_AGAIN_S,
    DecisionWatch,
    Look,
    Planner,
    Seen,
    outcomes,
)
from coordlib.job.background.loop import HealthReport
from coordlib.job.main.coordinator import Coordinator, CoordinatorOptions
from tests.kit.waiting import wait_until

OPEN, COMMITTED, ABORTED = "open", "committed", "aborted"


def status(shard: int, *undecided: int) -> Status:
    return Status(
        shard=shard,
        position=ShardPosition(clock_ms=0, previous_ms=0, published=-1),
        cap_ms=0,
        has_deadline=False,
        owed=-1,
        undecided=undecided,
    )


class Log:
    """One partition, as brokers have it: each record in a transaction, or in none (COMMITTED)."""

    def __init__(self, *records: str) -> None:
        self.records = list(records)
        #: Retention has removed what lies before.
        self.start = 0

    @property
    def stable_end(self) -> int:
        opened = [offset for offset, state in enumerate(self.records) if state == OPEN]
        return opened[0] if opened else len(self.records)

    def read(self, first: int, last: int) -> Seen:
        end = min(self.stable_end, last + 1)
        found = {n for n in range(first, end) if self.records[n] == COMMITTED}
        return Seen(found, max(end, first))


class Cluster:
    """The brokers, and what the driver has written there."""

    def __init__(self, **logs: Log) -> None:
        self.logs = {int(name.removeprefix("shard")): log for name, log in logs.items()}
        self.written: list[tuple[int, TxnDecided]] = []
        self.questions = 0
        self.looks: list[Look] = []
        #: Shards that cannot be read.
        self.broken: set[int] = set()
        self.fault: Exception | None = None
        #: Of the question where logs begin.
        self.starts_fault: Exception | None = None
        self.refuses = ""
        self._outcomes: list[Callable[[], None]] = []

    def stable_ends(self, shards: Iterable[int]) -> dict[int, int]:
        self.questions += 1
        if self.fault is not None:
            raise self.fault
        return {shard: self.logs[shard].stable_end for shard in shards}

    def log_starts(self, shards: Iterable[int]) -> dict[int, int]:
        if self.starts_fault is not None:
            raise self.starts_fault
        return {shard: self.logs[shard].start for shard in shards}

    def look(self, look: Look) -> Seen:
        self.looks.append(look)
        is_gone = look.offsets[0] < self.logs[look.shard].start
        if look.shard in self.broken or is_gone:
            raise KafkaException(KafkaError(KafkaError._AUTO_OFFSET_RESET))
        return self.logs[look.shard].read(look.offsets[0], look.offsets[-1])

    def write(self, shard: int, record: TxnDecided, told: Callable[[str], None]) -> None:
        why = self.refuses
        if not why:
            self.written.append((shard, record))
        self._outcomes.append(lambda: told(why))

    def serve(self) -> None:
        for tell in self._outcomes:
            tell()
        self._outcomes.clear()

    def close(self) -> None:
        pass


class Watch:
    """A watch, its cluster and a clock that stands still."""

    def __init__(self, **logs: Log) -> None:
        self.cluster, self.now_s = Cluster(**logs), 0.0
        self.health = HealthReport(lambda: int(self.now_s * 1000))
        self.watch = DecisionWatch(self.cluster, self.health, lambda: self.now_s)

    def said(self) -> list[tuple[int, tuple[int, ...], tuple[int, ...]]]:
        """What one turn has written."""
        before = len(self.cluster.written)
        self.watch.turn()
        return [(n, r.committed, r.aborted) for n, r in self.cluster.written[before:]]


def test_nothing_is_asked_while_no_shard_waits() -> None:
    """What a prefix without transactions pays."""
    watch = Watch(shard0=Log(COMMITTED))
    watch.watch.learn([status(0)])

    assert watch.said() == []
    assert watch.cluster.questions == 0


def test_each_record_is_told_as_its_transaction_ended() -> None:
    watch = Watch(shard0=Log(COMMITTED, ABORTED, COMMITTED, ABORTED), shard1=Log(COMMITTED))
    watch.watch.learn([status(0, 0, 1, 3), status(1, 0)])

    assert watch.said() == [(0, (0,), (1, 3)), (1, (0,), ())]


def test_an_open_transaction_is_waited_for() -> None:
    """A reader finds nothing of it, as of one that was aborted."""
    log = Log(OPEN, COMMITTED)
    watch = Watch(shard0=log)
    watch.watch.learn([status(0, 0)])

    assert watch.said() == []
    assert watch.cluster.looks == []
    log.records[0] = COMMITTED
    assert watch.said() == [(0, (0,), ())]


def test_a_decision_behind_an_open_transaction_waits_for_it() -> None:
    """The limit of Kafka's last stable offset: at most the open one's own timeout."""
    log = Log(COMMITTED, OPEN, COMMITTED)
    watch = Watch(shard0=log)
    watch.watch.learn([status(0, 0, 2)])

    assert watch.said() == [(0, (0,), ())]
    log.records[1] = ABORTED
    assert watch.said() == [(0, (2,), ())]


def test_a_leader_that_knows_less_decides_nothing() -> None:
    """It was elected between the question and the look: its end is below what was asked for."""
    look = Look(0, (4, 6, 9))

    assert outcomes(look, Seen(frozenset(), 4)) == []
    assert outcomes(look, Seen({4}, 5)) == [TxnDecided(v=1, committed=(4,))]
    assert outcomes(look, Seen({5}, 9)) == [TxnDecided(v=1, aborted=(4, 6))]
    assert outcomes(look, Seen({4, 9}, 10)) == [TxnDecided(v=1, committed=(4, 9), aborted=(6,))]


def test_what_was_said_is_not_said_again_at_once() -> None:
    """The shard reports it until a batch has judged the record."""
    watch = Watch(shard0=Log(COMMITTED))
    watch.watch.learn([status(0, 0)])
    watch.said()

    watch.watch.learn([status(0, 0)])
    assert watch.said() == []
    watch.now_s = SAY_AGAIN_S
    assert watch.said() == [(0, (0,), ())]


def test_a_shard_that_has_judged_it_is_asked_about_no_more() -> None:
    watch = Watch(shard0=Log(COMMITTED))
    watch.watch.learn([status(0, 0)])
    watch.said()
    watch.watch.learn([status(0)])
    watch.now_s = 2 * SAY_AGAIN_S

    assert watch.said() == []
    assert watch.cluster.questions == 1


def test_what_the_log_has_not_taken_is_written_again() -> None:
    watch = Watch(shard0=Log(COMMITTED))
    watch.watch.learn([status(0, 0)])
    watch.cluster.refuses = "timed out"

    assert watch.said() == []
    assert watch.health.now[DECISIONS].error == "timed out"
    watch.cluster.refuses = ""
    assert watch.said() == [(0, (0,), ())]
    assert watch.health.now == {}


@pytest.mark.parametrize("fault", [TimeoutError("late"), KafkaException(KafkaError(-195))])
def test_a_question_that_fails_decides_nothing(fault: Exception) -> None:
    """A broker that is away: a trouble in the job's status, and everything waits."""
    watch = Watch(shard0=Log(ABORTED))
    watch.watch.learn([status(0, 0)])
    watch.cluster.fault = fault

    assert watch.said() == []
    assert DECISIONS in watch.health.now
    watch.cluster.fault = None
    assert watch.said() == [(0, (), (0,))]
    assert watch.health.now == {}


def test_a_look_that_fails_decides_nothing_and_disturbs_no_other_shard() -> None:
    """A leader that is away: silence must not pass for an abort."""
    watch = Watch(shard0=Log(COMMITTED), shard1=Log(COMMITTED))
    watch.watch.learn([status(0, 0), status(1, 0)])
    watch.cluster.broken = {0}

    assert watch.said() == [(1, (0,), ())]
    assert "shard 0 from 0" in watch.health.now[DECISIONS].error


def test_others_do_not_wait_for_a_record_that_retention_has_removed() -> None:
    """One reading spans them all, and it fails from the first: the second begins behind it."""
    log = Log(COMMITTED, COMMITTED, ABORTED, OPEN)
    watch = Watch(shard0=log)
    log.start = 1
    watch.watch.learn([status(0, 0, 1, 2, 3)])
    assert watch.said() == []

    assert watch.said() == [(0, (1,), (2,))]
    log.records[3] = COMMITTED
    assert watch.said() == [(0, (3,), ())]
    assert [each.offsets for each in watch.cluster.looks] == [(0, 1, 2), (1, 2), (3,)]


def test_a_removed_record_is_a_trouble_of_its_own() -> None:
    """Nobody can find out any more how its transaction ended; its offsets wait for ever."""
    log = Log(COMMITTED, COMMITTED, COMMITTED)
    watch = Watch(shard0=log)
    log.start = 2
    watch.watch.learn([status(0, 0, 1)])
    watch.said()
    questions = watch.cluster.questions

    assert watch.said() == []
    assert watch.health.now.keys() == {REMOVED}
    assert watch.health.now[REMOVED].error == "shard 0: 2 records before 2, the first is 0"
    watch.said()
    assert watch.cluster.questions == questions, "what is known to be gone is asked for no more"
    watch.watch.learn([status(0)])
    watch.said()
    assert watch.health.now == {}


def test_removed_records_are_noted_once_until_others_are_removed() -> None:
    """A turn comes every 50 ms, and the status file is written for all that is noted."""
    log = Log(COMMITTED, COMMITTED)
    watch = Watch(shard0=log)
    log.start = 2
    watch.watch.learn([status(0, 0)])
    watch.said()
    watch.said()
    noted = watch.health.now[REMOVED]

    watch.now_s += 1
    watch.said()
    assert watch.health.now[REMOVED] == noted
    watch.watch.learn([status(0, 0, 1)])
    watch.said()
    again = watch.health.now[REMOVED]
    assert again.error == "shard 0: 2 records before 2, the first is 0"
    assert (again.since_ms, again.last_ms) == (noted.since_ms, noted.last_ms + 1000)


def test_a_start_that_is_not_told_removes_nothing() -> None:
    """Only brokers know what is gone; a record that cannot be read just now is not."""
    log = Log(COMMITTED, COMMITTED)
    watch = Watch(shard0=log)
    watch.watch.learn([status(0, 0, 1)])
    watch.cluster.broken, watch.cluster.starts_fault = {0}, TimeoutError("late")

    assert watch.said() == []
    assert watch.health.now.keys() == {DECISIONS}
    watch.cluster.starts_fault = None
    assert watch.said() == []
    watch.cluster.broken = set()
    assert watch.said() == [(0, (0, 1), ())]
    assert watch.health.now == {}


def test_a_trouble_ends_when_nothing_waits_any_more() -> None:
    watch = Watch(shard0=Log(COMMITTED))
    watch.watch.learn([status(0, 0)])
    watch.cluster.broken = {0}
    watch.said()
    watch.watch.learn([status(0)])
    watch.said()

    assert watch.health.now == {}


def test_records_far_from_each_other_are_looked_for_one_by_one() -> None:
    """What lies between was read by the job already."""
    planner = Planner()
    planner.learn(0, (5, 5 + GAP_MAX, 6 + 2 * GAP_MAX))

    assert planner.looks({0: 9 * GAP_MAX}, 0.0) == [
        Look(0, (5, 5 + GAP_MAX)),
        Look(0, (6 + 2 * GAP_MAX,)),
    ]


def test_many_decisions_are_several_records() -> None:
    """A job that was away finds thousands; a record names so many."""
    offsets = tuple(range(limits.DECISIONS_PER_RECORD_MAX + 1))

    told = outcomes(Look(0, offsets), Seen(set(offsets), len(offsets)))

    assert [len(each.committed) for each in told] == [limits.DECISIONS_PER_RECORD_MAX, 1]


def test_a_defect_ends_the_job(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The job would go on, and the offsets of all groups would wait until somebody looks."""
    watch = Watch(shard0=Log(COMMITTED))
    watch.watch.learn([status(0, 0)])
    no_spark: Any = None
    options = CoordinatorOptions(bootstrap_servers="127.0.0.1:1", checkpoint=str(tmp_path))
    coordinator = Coordinator(no_spark, options)
    coordinator._decisions = watch.watch
    coordinator.check()

    def broken(*_: Any) -> Any:
        raise RuntimeError("a defect of this test")

    monkeypatch.setattr(watch.cluster, "stable_ends", broken)
    watch.watch.start()
    watch.watch._thread.join(60)

    with pytest.raises(CannotReach, match="a defect") as told:
        coordinator.check()
    assert "Start the job again" in told.value.hint


def test_a_broker_that_is_away_ends_nothing() -> None:
    """The thread asks again; the job goes on meanwhile."""
    watch = Watch(shard0=Log(COMMITTED))
    watch.watch.learn([status(0, 0)])
    watch.cluster.fault = TimeoutError("late")
    watch.watch.start()
    wait_until("it has asked", lambda: watch.cluster.questions > 0)

    watch.watch.check()
    watch.cluster.fault = None
    wait_until("it has written", lambda: bool(watch.cluster.written))
    watch.watch.stop()
    watch.watch.check()
