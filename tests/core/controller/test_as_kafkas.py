"""Situations of Kafka's own controller tests that no other test here has: see tests/conformance."""

from typing import Any

from coordlib.core.controller.states import BrokerState, Partition, ReplicaState
from coordlib.core.wire import api
from tests.tools import clusters as c
from tests.tools.clusters import MEMBERS
from tests.tools.driving import Conversation


def isr_is(talk: Conversation, *brokers: int) -> str:
    """The leader of t/0 asks for this ISR; the error of the answer's row."""
    row = c.partition(talk)
    members = tuple((each, MEMBERS_INCARNATION[each]) for each in brokers)
    wanted = {("t", 0): (row.leader_epoch, row.partition_epoch, members)}
    line = talk.send(c.alter(row.leader, MEMBERS_INCARNATION[row.leader], wanted))[-1]
    return line.partition("error=")[2].split(" ")[0] or "NONE"


#: The offsets of the three registrations.
MEMBERS_INCARNATION = {1: 0, 2: 1, 3: 2}


def rows(talk: Conversation, topic: str = "t") -> list[Partition]:
    """All partitions of a topic."""
    found = c.partitions_of(talk.shard)
    return [found[place] for place in sorted(found) if place[0] == topic]


def test_what_is_made_is_in_sync_where_its_brokers_are_active() -> None:
    """Neither a broker that is fenced nor one that stops is in the ISR of a new partition."""
    talk = c.registered()
    for number in (1, 2):
        c.says(talk, number, "Active")
    c.says(talk, 2, "Stopping")
    talk.send(c.create(c.new_topic("t", assignment=[(1, 2, 3)])))
    more: dict[str, Any] = {"assignment": {"1": (3, 2, 1)}}
    talk.send(c.about(api.CreatePartitions, topic="t", count=2, **more))

    assert [(row.leader, row.isr, row.leader_epoch) for row in rows(talk)] == [(1, (1,), 0)] * 2


def test_each_topic_has_an_id_of_its_own() -> None:
    """Whoever sees an id must know the topic: also of many that one record makes, and made anew."""
    talk = c.active()
    offset = talk.next_offset
    talk.send(c.create(*(c.new_topic(name, 2, 1) for name in ("a", "b", "c"))))
    first = {name: topic.topic_id for name, topic in c.topics_of(talk.shard).items()}
    assert {name: first[name] for name in "abc"} == {
        "a": offset,
        "b": offset + 2**39,
        "c": offset + 2 * 2**39,
    }
    assert {row.topic_id for row in rows(talk, "c")} == {first["c"]}
    talk.send(c.about(api.CreatePartitions, topic="c", count=3))
    assert {row.topic_id for row in rows(talk, "c")} == {first["c"]}

    talk.send(c.create(c.new_topic("d"), validate_only=True))
    talk.send(c.create(c.new_topic("a"), c.new_topic("d")))  # the first of them is there already
    assert c.topics_of(talk.shard)["d"].topic_id == talk.next_offset - 1 + 2**39


def test_nothing_is_placed_where_nobody_is_active() -> None:
    """All are fenced, or stop: there is nowhere to put a partition."""
    talk = c.active()
    for number in MEMBERS:
        c.says(talk, number, "Stopping")
    line = talk.send(c.about(api.CreatePartitions, topic="t", count=2))[-1]
    assert "error=INVALID_REPLICATION_FACTOR" in line
    line = talk.send(c.create(c.new_topic("u")))[-1]
    assert "error=INVALID_REPLICATION_FACTOR" in line

    assert len(c.partitions_of(talk.shard)) == 1


def test_an_assignment_of_ones_own_waits_for_its_brokers() -> None:
    """An operator names brokers that are away: the partitions are new until one of them comes."""
    talk = c.registered()
    talk.send(c.create(c.new_topic("t", assignment=[(1, 2, 3)])))
    assert [(row.leader, row.leader_epoch, row.isr) for row in rows(talk)] == [(-1, -1, ())]
    c.says(talk, 2, "Active")

    assert [(row.leader, row.leader_epoch, row.isr) for row in rows(talk)] == [(2, 0, (2,))]


def test_an_isr_shrinks_and_expands() -> None:
    """Each accepted change has a partition epoch of its own; the leader epoch stays."""
    talk = c.active()
    assert isr_is(talk, 1, 2) == "NONE"
    assert isr_is(talk, 1) == "NONE"
    assert isr_is(talk, 1, 2, 3) == "NONE"

    row = c.partition(talk)
    assert (row.isr, row.leader_epoch, row.partition_epoch) == ((1, 2, 3), 0, 3)


def test_a_preferred_election_is_never_an_unclean_one() -> None:
    """INV-77: the preferred leader is Active, and lacks what was committed."""
    talk = c.active()
    c.says(talk, 1, "Inactive")
    assert isr_is(talk, 2) == "NONE"
    c.says(talk, 2, "Inactive")
    c.says(talk, 1, "Active")
    line = talk.send(c.elect("preferred", ("t", 0)))[-1]

    assert "error=PREFERRED_LEADER_NOT_AVAILABLE" in line
    assert (c.partition(talk).leader, c.partition(talk).isr) == (-1, (2,))


def test_of_two_that_go_neither_leads_what_the_other_led() -> None:
    """Two machines are put out by one operator: every ISR is without both, but as a last member."""
    both = [
        c.new_topic("t", assignment=[(1, 2, 3), (2, 3, 1)]),
        c.new_topic("u", assignment=[(2, 3)]),
    ]
    talk = c.active(*both)
    for number in (2, 3):
        c.says(talk, number, "Inactive")

    assert [(row.leader, row.isr) for row in rows(talk)] == [(1, (1,)), (1, (1,))]
    assert [(row.leader, row.isr) for row in rows(talk, "u")] == [(-1, (3,))]


def test_all_of_an_isr_stop_and_the_last_leads_to_the_end() -> None:
    """Nobody could follow it: it is not asked for what nobody can take."""
    talk = c.active()
    for number in (3, 2, 1):
        answer = c.says(talk, number, "Stopping")[-1]

    row = c.partition(talk)
    assert (row.leader, row.isr, row.asked) == (1, (1,), -1)
    assert "may_stop=True" in answer


def test_a_broker_that_dies_while_it_deletes_is_waited_for() -> None:
    """It may come back with half of it: it is told once more then."""
    talk = c.active()
    talk.send(c.about(api.DeleteTopics, topics=("t",)))
    assert {*c.partition(talk).deleting.values()} == {ReplicaState.DELETION_STARTED}
    c.says(talk, 3, "Inactive")
    assert c.partition(talk).deleting[3] == ReplicaState.DELETION_INELIGIBLE
    told = api.DeletedReplica(topic="t", topic_id=c.partition(talk).topic_id, partition=0)
    for number in (1, 2):
        talk.send(c.deleted(number, MEMBERS_INCARNATION[number], told))
    assert c.topics_of(talk.shard).keys() == {"t"}
    c.says(talk, 3, "Active")
    assert c.partition(talk).deleting[3] == ReplicaState.DELETION_STARTED
    talk.send(c.deleted(3, MEMBERS_INCARNATION[3], told))

    assert c.topics_of(talk.shard) == {}


def test_a_move_to_replicas_that_are_in_sync_ends_at_once() -> None:
    """Fewer replicas, or another order: nobody has to catch up."""
    talk = c.active()
    talk.send(c.move(("t", 0), (1, 3)))

    row = c.partition(talk)
    assert (row.replicas, row.isr, row.removing) == ((1, 3), (1, 3), ())
    assert row.deleting == {2: ReplicaState.DELETION_STARTED}
    assert row.leader_epoch == 1


def test_a_session_counts_from_the_newest_sign_of_life() -> None:
    """Of three, the one that is silent goes, and the others stay."""
    talk = c.active()
    for _ in range(7):
        talk.wait(2_000)
        for number in (1, 2):
            talk.send(c.lives(f"b{number}", MEMBERS[number]))
        talk.tick()

    states = {number: each.state for number, each in c.cluster_of(talk.shard).brokers.items()}
    assert states == {1: BrokerState.ACTIVE, 2: BrokerState.ACTIVE, 3: BrokerState.INACTIVE}
