"""What a driver feeds into the logs of shards, and in which order, whatever fails.  # INV-95"""

from collections.abc import Callable

import msgspec
import pytest
from confluent_kafka import KafkaException
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from coordlib.core.engine.effects import OUTBOX, RESPONSES, Output
from coordlib.core.wire.api import FromShard
from coordlib.job.background import feeder
from coordlib.job.background.feeder import Channel, Feeder, Waiting, waiting_in

NOTHING = Waiting({}, {}, {})


class Log:
    """The logs of shards. Takes records at once, later, or not at all, as a test says."""

    def __init__(self) -> None:
        #: Shard, sender and number of each record that was taken.
        self.taken: list[tuple[int, int, int]] = []
        #: What the next records meet: taken, refused, held, or an error at once.
        self.next: list[str] = []
        self.held: list[tuple[tuple[int, int, int], Callable[[str], None]]] = []

    def write(self, shard: int, record: FromShard, told: Callable[[str], None]) -> None:
        place, how = (shard, record.source, record.seq), self.next.pop(0) if self.next else "taken"
        if self.held and how == "taken":
            how = "held"  # a producer keeps the order
        if how == "error":
            raise KafkaException("the queue is full")
        if how == "held":
            self.held.append((place, told))
            return
        if how == "taken":
            self.taken.append(place)
        told("" if how == "taken" else "timed out")

    def release(self, is_taken: bool) -> None:
        """Everything that is held is taken, or not."""
        held, self.held = self.held, []
        for place, told in held:
            if is_taken:
                self.taken.append(place)
            told("" if is_taken else "timed out")


def message(source: int, to: int, number: int) -> Output:
    return Output(OUTBOX, source, msgspec.json.encode((source, to, number)), b'{"n":%d}' % number)


def feeding(log: Log, waiting: Waiting = NOTHING) -> Feeder:
    return Feeder(log.write, lambda: None, waiting)


def test_messages_of_a_batch_are_fed_in_the_order_of_their_channels() -> None:
    """Two shards send to a third one; each has its own numbers."""
    log = Log()
    feeds = feeding(log)
    others = [Output(RESPONSES, 0, b"g", b"{}"), Output(OUTBOX, 0, b'["sent",2]', b"{}")]
    gone = Output(OUTBOX, 0, b"[0,2,7]", None)

    feeds.batch_committed([message(0, 2, 8), *others, gone, message(1, 2, 1), message(0, 2, 9)])
    feeds.turn()

    assert log.taken == [(2, 0, 8), (2, 0, 9), (2, 1, 1)]
    assert not feeds.is_busy


def test_what_waits_at_the_start_comes_first() -> None:
    """The driver before died between its commit and its feeding, or in the middle."""
    found = waiting_in(
        {
            0: {
                b"[0,1,4]": b"{}",
                b"[0,1,3]": b"{}",
                b"[0,1,2]": b"{}",
                b'["sent",1]': b'{"sent":4,"heard":1}',
            },
            1: {b'["heard",0]': b'{"heard":2}'},
        }
    )
    assert found.heard == {(0, 1): 2}
    assert found.acknowledged == {(0, 1): 1}
    log = Log()
    feeds = feeding(log, found)
    feeds.batch_committed([message(0, 1, 5)])
    feeds.turn()

    assert log.taken == [(1, 0, 3), (1, 0, 4), (1, 0, 5)]


def test_behind_a_record_that_was_not_taken_all_comes_again() -> None:
    """The broker was away for longer than a delivery may take; some of it arrived all the same."""
    log = Log()
    feeds = feeding(log)
    feeds.batch_committed([message(0, 1, number) for number in (1, 2, 3)])
    log.next = ["taken", "refused", "held"]
    feeds.turn()
    feeds.turn()
    assert log.taken == [(1, 0, 1)], "nothing comes again while one is under way"

    log.release(is_taken=True)
    feeds.turn()
    assert log.taken == [(1, 0, 1), (1, 0, 3), (1, 0, 2), (1, 0, 3)], "the shard dropped 3 before"
    assert not feeds.is_busy


def test_what_cannot_be_written_now_is_written_later() -> None:
    """The producer is being replaced: the thread tries again."""
    log = Log()
    feeds = feeding(log)
    feeds.batch_committed([message(0, 1, 1), message(0, 1, 2)])
    log.next = ["error"]
    with pytest.raises(KafkaException):
        feeds.turn()
    feeds.turn()

    assert log.taken == [(1, 0, 1), (1, 0, 2)]


def test_a_channel_has_a_bounded_number_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """An outbox of 10,000 messages does not become one queue of the producer."""
    monkeypatch.setattr(feeder, "FLYING_MAX", 2)
    channel = Channel(dict.fromkeys(range(1, 6), b""))
    for number, _ in channel.due():
        channel.sent(number)
    assert channel.due() == []

    channel.on_delivery(1, True)
    assert [number for number, _ in channel.due()] == [3]


def heard(source: int, to: int, number: int) -> Output:
    return Output(OUTBOX, to, msgspec.json.encode(("heard", source)), b'{"heard":%d}' % number)


def test_what_a_shard_has_and_does_not_judge_is_fed_again() -> None:
    """It has said too much that nobody can read yet. Else the message would wait for the next
    start; and a shard that is only far behind is not given the same every few seconds."""
    log, now_s = Log(), 0.0
    feeds = Feeder(log.write, lambda: None, NOTHING, now_s=lambda: now_s)
    feeds.batch_committed([message(0, 1, number) for number in (1, 2, 3)])
    at: list[float] = []
    for second in range(100):
        now_s = float(second)
        before = len(log.taken)
        feeds.turn()
        if second == 10:
            feeds.batch_committed([heard(0, 1, 1)])
        elif second == 70:
            feeds.batch_committed([heard(0, 1, 3)])
        else:
            feeds.batch_committed([])
        at += [second] if len(log.taken) > before else []

    assert at == [0, 6, 16, 26, 46]
    assert log.taken[3:] == [(1, 0, 1), (1, 0, 2), (1, 0, 3), *[(1, 0, 2), (1, 0, 3)] * 3]
    assert not feeds.is_busy


def test_what_is_not_judged_is_fed_again_without_further_batches() -> None:
    """Where nobody asks anything no batch comes, and who waits for the message may have no
    deadline. While no batch has read it, it is not written again: the query may stand still."""
    log, now_s = Log(), 0.0
    feeds = Feeder(log.write, lambda: None, NOTHING, now_s=lambda: now_s)
    feeds.batch_committed([message(0, 1, 1)])
    feeds.turn()
    at: list[float] = []
    for second in range(1, 60):
        now_s = float(second)
        if second == 20:
            feeds.batch_committed([])
        before = len(log.taken)
        feeds.turn()
        at += [second] if len(log.taken) > before else []

    assert at == [25]


def test_the_time_between_two_repeats_is_bounded() -> None:
    """Each repeat brings one batch, which does not judge the message either."""
    log, now_s = Log(), 0.0
    feeds = Feeder(log.write, lambda: None, NOTHING, now_s=lambda: now_s)
    feeds.batch_committed([message(0, 1, 1)])
    at: list[float] = []
    with capture_logs() as logs:
        for second in range(150):
            now_s = float(second)
            before = len(log.taken)
            feeds.turn()
            if len(log.taken) > before:
                at.append(second)
                feeds.batch_committed([])

    assert at == [0, 6, 16, 36, 66, 96, 126]
    assert [each["channels"] for each in logs] == [[(0, 1)]] * 3


class Counted(int):
    """A number that counts how often it is looked at."""

    looks = 0

    def __gt__(self, other: int) -> bool:
        Counted.looks += 1
        return int(self) > other

    def __le__(self, other: int) -> bool:
        Counted.looks += 1
        return int(self) <= other


def test_a_long_queue_costs_no_more_for_each_message() -> None:
    """Batches wait for the lock in the meantime."""
    count, Counted.looks = 2_000, 0
    channel = Channel({Counted(number): b"" for number in range(1, count + 1)})
    while due := channel.due():
        for number, _ in due:
            channel.sent(number)
        for number, _ in due:
            channel.on_delivery(number, True)
        assert channel.is_done == (number == count)
    channel.heard(count)

    assert Counted.looks < 10 * count


@given(st.lists(st.sampled_from(["taken", "refused", "held", "error", "release", "lose"])))
def test_everything_is_taken_and_nothing_overtakes(course: list[str]) -> None:
    """A shard that judges in order never waits for ever, and meets no number for the first time
    before the one before it was written."""
    log = Log()
    feeds = feeding(log)
    feeds.batch_committed([message(0, 1, number) for number in (1, 2, 3, 4)])
    for what in course:
        if what in ("release", "lose"):
            log.release(what == "release")
            continue
        log.next.append(what)
        try:
            feeds.turn()
        except KafkaException:
            pass
    log.next = []
    log.release(is_taken=False)
    for _ in range(3):
        feeds.turn()

    assert not feeds.is_busy
    judged = 0
    for _, _, number in log.taken:
        judged += number == judged + 1
    assert judged == 4
