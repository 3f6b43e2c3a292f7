"""Deadlines of a cluster: what waits for somebody ends, and not before it may."""

from typing import Any

from coordlib.core.controller.states import BrokerState
from coordlib.core.wire import api
from tests.tools import clusters as c
from tests.tools.clusters import MEMBERS, RELEASE_MS, SESSION_MS
from tests.tools.driving import Conversation

#: Rule 1: a fifth of the shortest timeout.
CAP_MS = SESSION_MS // 5


def pass_time(talk: Conversation, duration_ms: int, *alive: int) -> int:
    """Time by steps of half a CAP, while some heartbeat; how long on the shard's clock."""
    start_ms = talk.shard.clock_ms
    for _ in range(duration_ms // (CAP_MS // 2)):
        talk.tick(published=talk.shard.published, after_ms=CAP_MS // 2)
        for number in alive:
            talk.send(c.lives(f"b{number}", MEMBERS[number]))
    return talk.shard.clock_ms - start_ms


def test_what_a_dead_broker_led_is_led_after_one_session() -> None:
    """INV-81: neither before its own fence has stopped it, nor a moment later than the session."""
    talk = c.active()
    pass_time(talk, SESSION_MS - CAP_MS // 2, 2, 3)
    assert c.partition(talk).leader == 1
    pass_time(talk, CAP_MS // 2, 2, 3)

    assert c.partition(talk).leader == 2
    assert c.partition(talk).isr == (2, 3)


def test_a_demand_begins_when_it_can_be_read_and_ends() -> None:
    """INV-80, rule 3: the job may die between the demand and its visibility."""
    talk = c.active()
    c.says(talk, 1, "Stopping")
    pass_time(talk, 2 * RELEASE_MS, 1, 2, 3)
    assert c.partition(talk).leader == 1
    talk.tick()
    pass_time(talk, RELEASE_MS - CAP_MS // 2, 1, 2, 3)
    assert c.partition(talk).leader == 1
    pass_time(talk, CAP_MS // 2, 1, 2, 3)

    assert c.partition(talk).leader == 2
    assert c.cluster_of(talk.shard).brokers[1].state is BrokerState.INACTIVE


def test_a_release_ends_the_demand_that_it_names_and_no_other() -> None:
    """INV-71, rule 12: an old one may come late, and its sender leads what is asked for since."""
    talk = c.stopping()
    row = c.partition(talk)
    for other in (row.asked - 1, row.asked + 1):
        talk.send(c.lets_go("b1", MEMBERS[1], other))
        assert c.partition(talk) == row
    talk.send(c.lets_go("b1", MEMBERS[1], row.asked))

    assert c.partition(talk).leader == 2


def test_a_demand_is_not_taken_back_when_its_broker_goes_on() -> None:
    """INV-80: it may have let go already, and then leads no more of its own (rule 15)."""
    talk = c.stopping()
    row = c.partition(talk)
    c.says(talk, 1, "Active")
    assert c.partition(talk) == row
    talk.send(c.lets_go("b1", MEMBERS[1], row.asked))

    after = c.partition(talk)
    assert (after.leader, after.leader_epoch, after.asked) == (1, row.leader_epoch + 1, -1)


def test_a_former_leader_that_heartbeats_on_is_waited_for_and_no_longer_than_it_may_be() -> None:
    """INV-80, rule 14: each heartbeat lets it act for one session more, its release timeout
    bounds that."""
    talk = c.active()
    talk.send(c.leaves("ops", MEMBERS[1]))
    talk.tick()
    pass_time(talk, RELEASE_MS - CAP_MS // 2, 1, 2, 3)
    assert c.partition(talk).leader == -1
    pass_time(talk, CAP_MS // 2, 1, 2, 3)

    assert c.partition(talk).leader == 2
    assert c.cluster_of(talk.shard).guards == {}


def test_a_former_leader_that_says_that_it_has_stopped_is_not_waited_for() -> None:
    """INV-80: its LeaveGroup, or its BrokerHeartbeat once it has read that it is out."""
    for words in (c.leaves("b1", MEMBERS[1]), None):
        talk = c.guarded()
        if words is None:
            c.says(talk, 1, "Active")
        else:
            talk.send(words)
        assert c.partition(talk).leader == 2


def test_three_that_die_at_once_are_one_step_and_each_row_is_written_once() -> None:
    """A rack loses its power; what one of them led must not go to another of them."""
    talk = c.active(c.new_topic("t", assignment=[(1, 2, 3), (2, 3, 1), (3, 1, 2)] * 30))
    before = len(talk.outputs)
    pass_time(talk, SESSION_MS)
    keys = [each.key for each in talk.outputs[before:] if each.topic == "metadata"]

    assert len(keys) == len(set(keys)) == 90 + 3
    assert {row.leader for row in c.partitions_of(talk.shard).values()} == {-1}
    assert {row.isr for row in c.partitions_of(talk.shard).values()} == {(3,)}


def test_an_inactive_broker_stays_registered_without_a_session() -> None:
    """KIP-343: a previously inactive broker that heartbeats can be declared active again."""
    talk = c.registered()
    pass_time(talk, SESSION_MS)
    brokers = c.cluster_of(talk.shard).brokers
    assert [each.has_session for each in brokers.values()] == [False] * 3
    assert not talk.shard.status().has_deadline
    lines = talk.send(c.lives("b1", MEMBERS[1]))
    assert lines == ["answer b1#h Heartbeat UNKNOWN_MEMBER_ID"]
    c.says(talk, 1, "Active")
    talk.tick()

    assert c.cluster_of(talk.shard).brokers[1].state is BrokerState.ACTIVE
    assert talk.shard.status().has_deadline


def test_a_deletion_that_waits_says_for_whom() -> None:
    """INV-80: a broker that is away for ever; UnregisterBroker ends the wait."""
    talk = c.deleting()
    ask: Any = c.about(api.DescribeGroup, space="cluster")
    (line,) = talk.send(ask)
    assert 'b3-t-0-2 client=b3 reason="has not deleted its replicas"' in line
    for number in (1, 2):
        row = api.DeletedReplica(topic="t", topic_id=7, partition=0)
        talk.send(c.deleted(number, number - 1, row))
    assert c.topics_of(talk.shard).keys() == {"t"}
    talk.send(c.leaves("b3", MEMBERS[3]))
    talk.send(c.about(api.UnregisterBroker, broker=3))

    assert c.topics_of(talk.shard) == {}
    assert c.partitions_of(talk.shard) == {}


def test_an_empty_cluster_can_be_deleted() -> None:
    """Brokers and topics hold it; a name may be used again."""
    talk = c.registered()
    for number, member in MEMBERS.items():
        talk.send(c.leaves(f"b{number}", member))
        talk.send(c.about(api.UnregisterBroker, broker=number))
    talk.send(c.about(api.DeleteGroup, space="cluster"))
    assert ("cluster", "g") not in talk.shard.rows
    outputs = {each.topic: each.value for each in talk.end_batch_raw()}

    assert outputs["clusters"] is None
    assert "answer b1#r1 RegisterBroker" in talk.send(c.register(1))[-1]


def test_an_isr_change_leaves_the_head_alone() -> None:
    """The brokers of a large cluster are not written for each of its partitions' changes."""
    talk = c.active()
    talk.end_batch_raw()
    row = c.row_of(talk.shard)
    head = row.value
    talk.send(c.alter(1, 0, {("t", 0): (0, 0, ((1, 0),))}))

    assert row.value is head
    assert not row.changed
    assert "clusters" not in {each.topic for each in talk.end_batch_raw()}


def test_a_controlled_shutdown_goes_in_slices() -> None:
    """KIP-343: leaders are migrated gradually."""
    talk = c.active(c.new_topic("t", assignment=[(1, 2)] * 2_500))
    counts = []
    c.says(talk, 1, "Stopping")
    while (demand := c.cluster_of(talk.shard).brokers[1].demand) is not None:
        counts.append(demand.count)
        talk.send(c.lets_go("b1", MEMBERS[1], demand.timer.cause))
    answer = c.says(talk, 1, "Stopping")[-1]

    assert counts == [1_000, 1_000, 500]
    assert {row.leader for row in c.partitions_of(talk.shard).values()} == {2}
    assert "may_stop=True" in answer
