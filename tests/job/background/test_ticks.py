"""When the driver owes a tick (time-and-fencing.md, rules 5 to 7)."""

from collections.abc import Callable, Iterable
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException

from coordlib.core.wire.api import Tick
from coordlib.core.wire.stored import ShardPosition
from coordlib.job.background import ticks
from coordlib.job.background.ticks import ShardTicks, TickWriter
from tests.tools.core import Status

CAP_MS = 2_000


def status(offset: int, owed: int = -1, *, has_deadline: bool = True) -> Status:
    position = ShardPosition(clock_ms=0, previous_ms=0, offsets={"r": offset}, published=-1)
    return Status(shard=0, position=position, cap_ms=CAP_MS, has_deadline=has_deadline, owed=owed)


def started(published: int = -1, now: float = 0.0) -> ShardTicks:
    """A shard whose tick at start has been acknowledged."""
    shard = ShardTicks(published, now)
    shard.published = published
    shard.acknowledged(shard.sent(), now)
    return shard


def test_the_tick_at_start_is_owed_and_retried_until_acknowledged():
    """A driver that starts into a broker's restart must not forget it."""
    shard = ShardTicks(7, now=0.0)
    assert shard.needs_visibility
    assert not shard.is_due(0.0), "readers may not see what the last driver wrote"

    shard.published = 7
    assert shard.is_due(0.0)
    assert shard.sent() == 7
    assert not shard.is_due(0.0), "one at a time"

    shard.failed()
    assert shard.is_due(0.1)

    shard.acknowledged(shard.sent(), 0.2)
    assert not shard.is_due(0.2)


def test_a_tick_is_owed_as_soon_as_readers_can_see_what_they_must_react_to():
    """Members parked in a join phase are told; their deadline starts only with this tick."""
    shard = started()
    shard.learn(status(offset=10, owed=9), now=1.0)

    assert shard.needs_visibility
    assert not shard.is_due(1.0), "committed is not yet visible"

    shard.published = 10
    assert shard.is_due(1.0)
    assert shard.sent() == 10
    shard.acknowledged(10, 1.1)
    assert not shard.is_due(1.1)


def test_an_unacknowledged_covering_tick_is_written_again():
    shard = started()
    shard.learn(status(offset=10, owed=10), now=1.0)
    shard.published = 10
    shard.sent()
    shard.failed()

    assert shard.is_due(1.0)


def test_a_silent_shard_with_a_deadline_gets_a_tick_every_half_cap():
    """A member fell silent on a shard where nobody else speaks: time must pass all the same."""
    shard = started(now=0.0)
    shard.learn(status(offset=3), now=0.0)

    assert not shard.is_due(0.99)
    assert shard.is_due(1.0)
    shard.acknowledged(shard.sent(), 1.01)
    assert not shard.is_due(2.0)
    assert shard.is_due(2.02)


def test_nothing_to_wait_for_means_no_ticks():
    """The last member left: an idle engine must not keep Spark busy."""
    shard = started(now=0.0)
    shard.learn(status(offset=3, has_deadline=False), now=0.0)

    assert not shard.is_due(1e6)


def test_a_batch_renews_the_silence():
    shard = started(now=0.0)
    shard.learn(status(offset=3), now=0.9)

    assert not shard.is_due(1.5)
    assert shard.is_due(1.95)


def test_at_most_two_ticks_per_cap():
    shard = started(now=0.0)
    shard.learn(status(offset=3), now=0.0)
    written = 0
    for step in range(10_000):
        now = step / 1000
        if shard.is_due(now):
            shard.acknowledged(shard.sent(), now)
            written += 1

    assert written <= 2 * 10_000 / CAP_MS


class SlowMarkers:
    """A broker whose end markers arrive later than the next batch is committed."""

    def __init__(self) -> None:
        self.visible = -1
        self.ticks: list[int] = []

    def write(self, shard: int, tick: Tick, told: Callable[[bool], None]) -> None:
        self.ticks.append(tick.published)
        told(True)

    def ends(self, places: Iterable[tuple[str, int]], visible: bool) -> dict[tuple[str, int], int]:
        return dict.fromkeys(places, self.visible)

    def serve(self) -> None:
        pass


def test_batches_that_come_faster_than_end_markers_do_not_put_the_owed_tick_off():
    """A busy group on a slow cluster: something newer is always on its way to visibility, and the
    deadlines of a rebalance must begin all the same."""
    broker = SlowMarkers()
    writer = TickWriter(broker, {0: -1}, [], lambda: 0.0)
    writer.turn()
    broker.ticks.clear()

    for batch in range(5):
        writer.batch_committed([status(offset=batch, owed=0)], {("responses", 0): batch})
        broker.visible = batch - 1
        writer.turn()

    assert broker.ticks == [0]


def test_a_shard_is_told_that_its_messages_were_judged():
    """Another shard's batch is committed: the sender withdraws its messages, and goes on."""
    shard = started()
    shard.learn_heard(2, 5)
    assert shard.is_due(0.0)
    assert shard.sent() == -1
    assert shard.heard == {2: 5}

    shard.failed()
    assert shard.is_due(0.0)
    shard.sent()
    shard.learn_heard(2, 7)  # while it is under way
    shard.acknowledged(-1, 0.1, {2: 5})
    assert shard.heard == {2: 7}
    shard.sent()
    shard.acknowledged(-1, 0.2, {2: 7})
    shard.learn_heard(2, 6)
    assert not shard.is_due(0.2)


def test_what_was_judged_before_the_start_is_told_again_unless_the_sender_knows():
    """The driver before died behind the batch, and before its tick."""
    shard = started()
    shard.learn_heard(1, 4)
    shard.learn_heard(2, 9)
    shard.learn_heard(2, 9, is_acknowledged=True)

    assert shard.heard == {1: 4}


def test_ends_are_asked_for_again_where_the_leader_has_moved(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Topics were made a moment ago: the client still knows another leader."""
    moved = KafkaException(KafkaError(KafkaError.NOT_LEADER_FOR_PARTITION))
    answers: list[Any] = [moved, moved, SimpleNamespace(offset=8)]

    def list_offsets(asked: dict[Any, Any], **_: Any) -> dict[Any, Any]:
        future: Future[Any] = Future()
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            future.set_exception(answer)
        else:
            future.set_result(answer)
        return dict.fromkeys(asked, future)

    forgotten: list[str] = []
    admin = SimpleNamespace(list_offsets=list_offsets, forget=forgotten.extend)
    monkeypatch.setattr(ticks, "open_admin", lambda *_, **__: admin)
    monkeypatch.setattr(ticks, "_LEADER_S", 0.0)
    broker = ticks.KafkaTicks(cast("Any", None), {})

    assert broker.ends(iter([("coord.events", 1)]), visible=False) == {("coord.events", 1): 7}
    assert answers == []
    assert forgotten == ["coord.events", "coord.events"]
