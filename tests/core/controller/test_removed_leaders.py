"""A leader that was removed may still act within its lease, whatever becomes of its topic."""

from typing import Any

import pytest

from coordlib.core.wire import api
from tests.tools import clusters as c
from tests.tools.clusters import MEMBERS, RELEASE_MS, SESSION_MS
from tests.tools.driving import Conversation

FORGET: Any = c.about(api.UnregisterBroker, broker=1)
DELETE: Any = c.about(api.DeleteTopics, topics=("t",))


def others_delete(talk: Conversation, *brokers: int) -> None:
    """These brokers have deleted what they had of t/0."""
    told = api.DeletedReplica(topic="t", topic_id=c.partition(talk).topic_id, partition=0)
    for number in brokers:
        incarnation = c.cluster_of(talk.shard).brokers[number].incarnation
        talk.send(c.deleted(number, incarnation, told))


def make_again(talk: Conversation) -> str:
    """A topic of the same name, which another broker is to lead; the error of its row."""
    answer = talk.send(c.create(c.new_topic("t", assignment=[(2, 3)])))[-1]
    return "TOPIC_ALREADY_EXISTS" if "TOPIC_ALREADY_EXISTS" in answer else "NONE"


def fall_silent(talk: Conversation) -> None:
    """One session passes, in which brokers 2 and 3 heartbeat."""
    for _ in range(SESSION_MS // 1_000 + 1):
        talk.tick(published=talk.shard.published, after_ms=1_000)
        talk.send_all(*(c.lives(f"b{number}", MEMBERS[number]) for number in (2, 3)))


def removed_and_deleted() -> Conversation:
    """An operator removes the leader, then deletes what it led."""
    talk = c.guarded()
    talk.send(FORGET)
    talk.send(DELETE)
    talk.tick()
    return talk


def deleted_and_removed() -> Conversation:
    """An operator deletes what it leads, then removes the leader, which has read neither."""
    talk = c.active()
    talk.send(DELETE)
    talk.send(c.leaves("ops", MEMBERS[1]))
    talk.send(FORGET)
    talk.tick()
    return talk


@pytest.mark.parametrize("begin", [removed_and_deleted, deleted_and_removed])
def test_no_topic_of_the_name_is_made_while_a_removed_leader_may_act(begin: Any) -> None:
    """INV-71: an operator clears up quickly, and the removed process was only cut off: for its
    lease it acknowledges writes to t/0, which a new topic's leader would answer for too."""
    talk = begin()
    others_delete(talk, 2, 3)

    assert 1 in c.cluster_of(talk.shard).brokers
    assert make_again(talk) == "TOPIC_ALREADY_EXISTS"
    fall_silent(talk)
    assert not c.cluster_of(talk.shard).guards
    talk.send(FORGET)
    assert c.topics_of(talk.shard) == {}
    assert make_again(talk) == "NONE"


@pytest.mark.parametrize("is_deleted_first", [False, True])
def test_a_newer_process_does_not_end_the_lease_of_the_older_one(is_deleted_first: bool) -> None:
    """INV-71: the leader's process is cut off; a newer one of its id deletes what the topic had,
    and without the older one's lock it can say nothing of that process."""
    talk = c.active()
    if is_deleted_first:
        talk.send(DELETE)
    talk.send(c.register(1, id="r2", client="b1-again", storage="disk-1"))
    if not is_deleted_first:
        talk.send(DELETE)
    talk.tick()
    newer = c.cluster_of(talk.shard).brokers[1]
    says = {"client": "b1-again"}
    talk.send(c.beat(1, newer.incarnation, newer.since, **says))
    told = api.DeletedReplica(topic="t", topic_id=c.partition(talk).topic_id, partition=0)
    talk.send(c.deleted(1, newer.incarnation, told, **says))
    others_delete(talk, 2, 3)

    assert make_again(talk) == "TOPIC_ALREADY_EXISTS"
    fall_silent(talk)
    assert c.topics_of(talk.shard) == {}
    assert make_again(talk) == "NONE"


def test_a_leader_that_has_deleted_its_replica_is_not_waited_for() -> None:
    """It has read that it leads no more: that is what its ReplicasDeleted says."""
    talk = c.active()
    talk.send(DELETE)
    others_delete(talk, 1)
    talk.send(c.leaves("ops", MEMBERS[1]))

    assert not c.cluster_of(talk.shard).guards
    others_delete(talk, 2, 3)
    assert make_again(talk) == "NONE"


def test_a_leader_that_falls_silent_while_its_topic_is_deleted_is_not_guarded() -> None:
    """Its own fence has stopped it by then: only the deletion waits for it."""
    talk = c.active()
    talk.send(DELETE)
    talk.tick()
    fall_silent(talk)

    assert not c.cluster_of(talk.shard).guards
    assert c.partition(talk).guard == -1


def test_a_broker_is_forgotten_as_soon_as_its_guard_is_over() -> None:
    """A guard ends by itself, so an operator waits for one session, or for the release timeout."""
    talk = c.guarded()
    assert talk.send(FORGET)[0] == "answer ops#o UnregisterBroker NON_EMPTY_GROUP"
    talk.wait(RELEASE_MS)

    assert talk.send(FORGET)[-1] == "answer ops#o UnregisterBroker"


def test_who_does_not_stop_after_all_leads_what_waited_for_a_guard() -> None:
    """INV-81: a leader is removed, and the only one in sync is shut down while the guard runs. When
    the shutdown is called off somebody in sync is Active again, and nothing else would tell."""
    talk = c.active(c.new_topic("t", assignment=[(1, 2)]))
    talk.send(c.leaves("ops", MEMBERS[1]))
    talk.tick()
    c.says(talk, 2, "Stopping")
    fall_silent(talk)
    assert (c.partition(talk).guard, c.partition(talk).leader) == (-1, -1)

    c.says(talk, 2, "Active")

    assert c.partition(talk).leader == 2
