"""Reassignments that meet something else: a stop that was called off, a leader that was replaced,
and deletions of very large topics."""

from typing import Any

import pytest

from coordlib.core.controller import topics
from coordlib.core.controller.states import Partition
from coordlib.core.wire import api
from tests.tools import clusters as c
from tests.tools.clusters import MEMBERS, SESSION_MS
from tests.tools.driving import Conversation

LATER = {**MEMBERS, 4: "b4-t-0-4"}


def test_a_move_goes_on_when_its_leader_does_not_stop_after_all() -> None:
    """A leader that must let go of t/1 first is shut down, and the shutdown is called off. What was
    wanted of t/0 before is wanted still: nobody else would say so again."""
    talk = c.active(c.new_topic("t", assignment=[(1, 2, 3), (1, 2, 3)]))
    talk.send(c.move(("t", 1), (2, 1, 3)))
    talk.send(c.elect("preferred", ("t", 1)))
    asked = c.partition(talk, number=1).asked
    talk.send(c.move(("t", 0), (2, 3)))  # all of them are in sync: the leader is to let go
    c.says(talk, 1, "Stopping")
    c.says(talk, 1, "Active")

    talk.send(c.lets_go("b1", MEMBERS[1], asked))
    talk.send(c.lets_go("b1", MEMBERS[1], c.partition(talk).asked))

    row = c.partition(talk)
    assert (row.leader, row.replicas, row.removing) == (2, (2, 3), ())


def test_what_was_never_led_is_led_where_it_is_moved_to() -> None:
    """An operator's assignment named a broker that never came. He moves the partition to two that
    are Active: nothing was ever written, so nobody has to catch up, and nobody else would come."""
    talk = c.registered()
    for number in (1, 2):
        c.says(talk, number, "Active")
    talk.send(c.create(c.new_topic("t", assignment=[(3,)])))

    talk.send(c.move(("t", 0), (1, 2)))

    row = c.partition(talk)
    assert (row.leader, row.leader_epoch, row.isr, row.replicas) == (1, 0, (1, 2), (1, 2))


def replaced_while_it_is_added() -> Conversation:
    """Broker 1 is being added to t/0, leads it, and is replaced by another process of its id."""
    talk = c.active(c.new_topic("t", assignment=[(2, 3)]))
    talk.send(c.register(4, storage="disk-4"))
    talk.tick()
    c.says(talk, 4, "Active")
    talk.send(c.move(("t", 0), (1, 4)))
    row, known = c.partition(talk), c.cluster_of(talk.shard).brokers
    isr = tuple((number, known[number].incarnation) for number in (1, 2, 3))
    wanted = {("t", 0): (row.leader_epoch, row.partition_epoch, isr)}
    talk.send(c.alter(2, known[2].incarnation, wanted))
    talk.send(c.leaves("b2", MEMBERS[2]))
    talk.send(c.register(1, id="r2", client="newer", storage="disk-1"))
    talk.tick()
    assert c.partition(talk).guard == known[1].incarnation
    return talk


def test_a_move_is_not_cancelled_while_a_former_leader_may_act() -> None:
    """INV-80: with the move its replica would go, and nothing would end the guard of the partition:
    nobody would ever lead it again."""
    talk = replaced_while_it_is_added()

    refused = talk.send(c.move(("t", 0), None))[-1]
    newer = c.cluster_of(talk.shard).brokers[1]
    talk.send(c.beat(1, newer.incarnation, newer.since, client="newer"))
    told = api.DeletedReplica(topic="t", topic_id=c.partition(talk).topic_id, partition=0)
    talk.send(c.deleted(1, newer.incarnation, told, client="newer"))
    for _ in range(SESSION_MS // 1_000 + 1):
        talk.tick(after_ms=1_000)
        talk.send_all(*(c.lives(f"b{number}", LATER[number]) for number in (3, 4)))

    assert "error=REASSIGNMENT_IN_PROGRESS" in refused
    assert c.partition(talk).leader == 3
    assert "error=NONE" in talk.send(c.move(("t", 0), None))[-1]
    assert c.partition(talk).replicas == (2, 3)


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[Partition]:
    """The rows that somebody looks at, whether they are deleted."""
    looked: list[Partition] = []
    is_deleted = topics._is_deleted

    def look(row: Partition) -> bool:
        looked.append(row)
        return is_deleted(row)

    monkeypatch.setattr(topics, "_is_deleted", look)
    return looked


def test_a_report_about_some_partitions_does_not_read_the_whole_topic(
    looks: list[Partition],
) -> None:
    """A topic of 60,000 partitions goes: its brokers report by thousands, in order. Whether that
    was the last one must not cost what the topic has: a shard has other entities to judge."""
    count = 500
    talk = c.active(c.new_topic("t", assignment=[(1, 2)] * count))
    talk.send(c.about(api.DeleteTopics, topics=("t",)))
    looks.clear()
    topic_id = c.partition(talk).topic_id

    def report(broker: int, *numbers: int) -> None:
        rows: Any = (api.DeletedReplica(topic="t", topic_id=topic_id, partition=n) for n in numbers)
        talk.send(c.deleted(broker, broker - 1, *rows))

    for start in range(0, count, 50):
        for broker in (1, 2):
            report(broker, *range(start, start + 50))

    assert not c.topics_of(talk.shard)
    assert len(looks) < 2 * count
