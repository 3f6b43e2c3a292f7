"""What bad input gets: the named error, row by row and in order, and nothing half done."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from coordlib import limits
from coordlib.config import BrokersConfig
from coordlib.core.controller.protocol import BrokersSettings
from coordlib.core.controller.states import Broker, BrokerState, ReplicaState
from coordlib.core.wire import api, codec
from tests.tools import clusters as c
from tests.tools.driving import SETTINGS, Conversation


def answers(talk: Conversation, request: Any) -> list[dict[str, Any]]:
    """What the sender is answered."""
    before = len(talk.outputs)
    talk.send(request)
    new = [o for o in talk.outputs[before:] if o.topic == "responses" and o.value]
    found = [json.loads(o.value or b"") for o in new]
    return [each for each in found if "id" in each]


def errors(talk: Conversation, request: Any) -> list[str]:
    """The errors of an answer's rows; of the whole where it has none."""
    (answer,) = answers(talk, request)
    if "results" not in answer:
        return [answer["error"]]
    return [row["error"] for row in answer["results"]]


def state_of(talk: Conversation) -> Any:
    shard = talk.shard
    return c.cluster_of(shard), c.topics_of(shard), c.partitions_of(shard)


def with_bounds(talk: Conversation, **bounds: int) -> Conversation:
    config = BrokersConfig(**bounds)
    families = {**SETTINGS.families, "cluster": BrokersSettings(config)}
    talk.use(c.with_fields(SETTINGS, families=families))
    return talk


ISR = ((1, 0), (2, 1), (3, 2))


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (c.register(-1), "INVALID_REQUEST"),
        (c.register(1, endpoints=()), "INVALID_REQUEST"),
        (c.register(1, endpoints=(api.Endpoint("a", "h", 0),)), "INVALID_REQUEST"),
        (c.register(1, endpoints=(api.Endpoint("a", "", 1),)), "INVALID_REQUEST"),
        (c.register(1, endpoints=(api.Endpoint("a", "h", 1),) * 2), "INVALID_REQUEST"),
        (c.register(1, rack=""), "INVALID_REQUEST"),
        (c.register(1, session_timeout_ms=5_999), "INVALID_SESSION_TIMEOUT"),
        (c.register(1, release_timeout_ms=10**9), "INVALID_SESSION_TIMEOUT"),
        (c.beat(1, 0, 4, "Initial"), "INVALID_REQUEST"),
        (c.beat(-1, 0, 4), "INVALID_REQUEST"),
        (c.beat(9, 0, 4), "BROKER_ID_NOT_REGISTERED"),
        (c.beat(1, 1, 4), "STALE_BROKER_EPOCH"),
        (c.beat(1, 10**9, 4), "STALE_BROKER_EPOCH"),
        (c.beat(1, 0, 4, client="thief"), "INVALID_REQUEST"),
        (c.alter(2, 0, {("t", 0): (0, 0, ISR)}), "STALE_BROKER_EPOCH"),
        (c.alter(1, 0, {("t", 0): (0, 0, ISR)}, client="thief"), "INVALID_REQUEST"),
        (c.lets_go("thief", c.MEMBERS[1], 4), "INVALID_REQUEST"),
        (c.lets_go("b1", "nobody", 4), "UNKNOWN_MEMBER_ID"),
        (
            c.lets_go("b1", c.MEMBERS[1], 4, offsets=(api.CommittedOffset("t", 0, 1),)),
            "INVALID_REQUEST",
        ),
        (c.about(api.UnregisterBroker, broker=9), "BROKER_ID_NOT_REGISTERED"),
        (c.about(api.UnregisterBroker, broker=1), "NON_EMPTY_GROUP"),
        (c.about(api.DeleteGroup, space="cluster"), "NON_EMPTY_GROUP"),
        (c.create(c.new_topic("u"), c.new_topic("u")), "INVALID_REQUEST"),
        (c.about(api.DeleteTopics, topics=("t", "t")), "INVALID_REQUEST"),
        (c.elect("preferred", ("t", 0), ("t", 0)), "INVALID_REQUEST"),
    ],
    ids=str,
)
def test_a_bad_request_changes_nothing(request_: Any, error: str) -> None:
    """INV-82, INV-24: each is refused with its error and one sentence."""
    talk = c.active()
    before = state_of(talk)
    (answer,) = answers(talk, request_)

    assert answer["error"] == error
    assert len(answer["message"]) > 10
    assert state_of(talk) == before


@pytest.mark.parametrize(
    ("request_", "what_to_do"),
    [
        (c.register(1, session_timeout_ms=5_999), "session_timeout_ms of 6000 to 1800000"),
        (c.register(1, release_timeout_ms=10**9), "release_timeout_ms of 6000 to 86400000"),
        (c.about(api.UnregisterBroker, broker=9), "Check the broker's id"),
        (c.about(api.DeleteGroup, space="cluster"), "unregister its brokers"),
    ],
    ids=str,
)
def test_a_refusal_says_what_to_do_in_words_of_clusters(request_: Any, what_to_do: str) -> None:
    """Not in those of groups: an operator who mistyped an id has no broker to register."""
    (answer,) = answers(c.active(), request_)

    assert what_to_do in answer["message"]


@pytest.mark.parametrize(
    ("row", "error"),
    [
        ((("u", 0), (0, 0, ISR)), "UNKNOWN_TOPIC_OR_PARTITION"),
        ((("t", 9), (0, 0, ISR)), "UNKNOWN_TOPIC_OR_PARTITION"),
        ((("t", 0), (1, 0, ISR)), "NOT_CONTROLLER"),
        ((("t", 0), (0, 5, ISR)), "NOT_CONTROLLER"),
        ((("t", 1), (0, 0, ISR)), "NOT_LEADER_OR_FOLLOWER"),
        ((("t", 0), (0, 0, ())), "INVALID_REQUEST"),
        ((("t", 0), (0, 0, ((2, 1), (3, 2)))), "INVALID_REQUEST"),
        ((("t", 0), (0, 0, ((1, 0), (1, 0)))), "INVALID_REQUEST"),
        ((("t", 0), (0, 0, ((1, 0), (7, 0)))), "INVALID_REQUEST"),
        ((("t", 0), (0, 0, ((1, 0), (2, 0)))), "INELIGIBLE_REPLICA"),
        ((("t", 0), (0, 0, ISR)), "NONE"),
    ],
    ids=str,
)
def test_a_row_of_an_isr_has_the_first_error_of_the_ladder(row: Any, error: str) -> None:
    """Source: ReplicationControlManager.validateAlterPartitionData, and KIP-343 for the errors."""
    talk = c.active(c.new_topic("t", assignment=[(1, 2, 3), (2, 3, 1)]))
    place, wanted = row

    assert errors(talk, c.alter(1, 0, {place: wanted})) == [error]


@pytest.mark.parametrize("state", ["Inactive", "Stopping"])
def test_who_is_not_active_enters_no_isr(state: str) -> None:
    """INV-75, KIP-841: a broker that stops would be in sync for moments."""
    talk = c.active()
    c.says(talk, 3, state)
    row = c.partition(talk)
    request = c.alter(1, 0, {("t", 0): (row.leader_epoch, row.partition_epoch, ISR)})

    assert errors(talk, request) == ["INELIGIBLE_REPLICA"]


def test_a_replica_that_restarted_since_it_fetched_is_not_let_in() -> None:
    """INV-75, KIP-903: it had everything and lost its disk; it is Active again before its leader
    has read of that. It was not in sync, so no epoch of the partition tells the two apart."""
    talk = c.active()
    assert errors(talk, c.alter(1, 0, {("t", 0): (0, 0, ISR[:2])})) == ["NONE"]
    before = c.partition(talk)
    talk.send(c.register(3, id="r2", storage="new-disk"))
    c.says(talk, 3, "Active")
    assert c.partition(talk) == before

    at = (before.leader_epoch, before.partition_epoch)
    assert errors(talk, c.alter(1, 0, {("t", 0): (*at, ISR)}, id="a2")) == ["INELIGIBLE_REPLICA"]
    assert c.partition(talk) == before
    new = (*ISR[:2], (3, c.cluster_of(talk.shard).brokers[3].incarnation))
    assert errors(talk, c.alter(1, 0, {("t", 0): (*at, new)}, id="a3")) == ["NONE"]
    assert c.partition(talk).isr == (1, 2, 3)


def test_older_epochs_are_refused() -> None:
    """A late duplicate of an accepted request, and one of before the leader changed."""
    talk = c.active()
    request = c.alter(1, 0, {("t", 0): (0, 0, ISR)})
    assert errors(talk, request) == ["NONE"]
    assert errors(talk, request) == ["INVALID_UPDATE_VERSION"]
    c.says(talk, 1, "Stopping")
    talk.send(c.lets_go("b1", c.MEMBERS[1], talk.next_offset - 1))
    c.says(talk, 2, "Inactive")
    c.says(talk, 1, "Active")
    c.says(talk, 3, "Stopping")

    assert errors(talk, request) == ["NOT_LEADER_OR_FOLLOWER"]


def test_a_late_change_of_a_topic_that_was_made_anew_is_refused() -> None:
    """INV-78: the epochs of a new topic begin at 0 again. A copy of a request of the former one let
    a follower in that its leader did not count, and that lacked what was committed."""
    talk = c.active()
    topic_id = c.partition(talk).topic_id

    def change(of: int, request_id: str) -> api.AlterPartition:
        request = c.alter(1, 0, {("t", 0): (0, 0, ISR[:2])}, id=request_id)
        (rows,) = request.topics
        return c.with_fields(request, topics=(c.with_fields(rows, topic_id=of),))

    before = state_of(talk)
    assert errors(talk, change(topic_id - 1, "late")) == ["UNKNOWN_TOPIC_OR_PARTITION"]
    assert state_of(talk) == before
    assert errors(talk, change(topic_id, "own")) == ["NONE"]
    assert c.partition(talk).isr == (1, 2)


def test_a_leader_of_a_former_epoch_is_fenced() -> None:
    """It let go, and leads again: what it asked for before is not of this epoch."""
    talk = c.stopping()
    c.says(talk, 1, "Active")
    talk.send(c.lets_go("b1", c.MEMBERS[1], 9))

    assert c.partition(talk).leader_epoch == 1
    request = c.alter(1, 0, {("t", 0): (0, 0, ISR)})
    (answer,) = answers(talk, request)
    (row,) = answer["results"]
    assert (row["error"], row["design_error"]) == (
        "FENCED_LEADER_EPOCH",
        "NOT_LEADER_FOR_PARTITION",
    )
    assert (row["leader"], row["leader_epoch"], row["isr"]) == (1, 1, [1, 2, 3])


def test_ten_thousand_rows_of_which_half_are_wrong() -> None:
    """INV-82: one result per row in order; the wrong ones change nothing, the others do. They are
    of an epoch that never was, and most of partitions that are not there."""
    talk = c.active(c.new_topic("t", assignment=[(1, 2, 3)] * 5_100))
    alone, half = ((1, 0),), 5_000
    rows = {
        ("t", number + wrong * half): (wrong, 0, alone)
        for number in range(half)
        for wrong in (0, 1)
    }
    # In 1 MiB, if fields that mean the default are left out.
    request = codec.encode(c.alter(1, 0, rows)).replace(b',"recovered":false', b"")
    found = errors(talk, request)

    assert len(rows) == 10_000
    assert found[:200] == ["NONE", "NOT_CONTROLLER"] * 100
    assert found[200:] == ["NONE", "UNKNOWN_TOPIC_OR_PARTITION"] * 4_900
    isrs = [row.isr for row in c.partitions_of(talk.shard).values()]
    assert isrs == [(1,)] * half + [(1, 2, 3)] * 100
    assert "10001 rows" in str(
        c.alter(1, 0, {("t", n): (0, 0, alone) for n in range(10_001)}).fault()
    )


@pytest.mark.parametrize(
    ("topic", "error"),
    [
        (c.new_topic("a/b"), "INVALID_TOPIC_EXCEPTION"),
        (c.new_topic(".."), "INVALID_TOPIC_EXCEPTION"),
        (c.new_topic(""), "INVALID_TOPIC_EXCEPTION"),
        (c.new_topic("t"), "TOPIC_ALREADY_EXISTS"),
        (c.new_topic("u", 0), "INVALID_PARTITIONS"),
        (c.new_topic("u", -7), "INVALID_PARTITIONS"),
        (c.new_topic("u", 100_000), "POLICY_VIOLATION"),
        (c.new_topic("u", 1, 0), "INVALID_REPLICATION_FACTOR"),
        (c.new_topic("u", 1, 4), "INVALID_REPLICATION_FACTOR"),
        (c.new_topic("u", 9, 1_000_000), "INVALID_REPLICATION_FACTOR"),
        (c.new_topic("u", 1, 2**31 - 1), "INVALID_REPLICATION_FACTOR"),
        (c.new_topic("u", assignment=[(1, 1)]), "INVALID_REPLICA_ASSIGNMENT"),
        (c.new_topic("u", assignment=[(1, 9)]), "INVALID_REPLICA_ASSIGNMENT"),
        (c.new_topic("u", assignment=[()]), "INVALID_REPLICA_ASSIGNMENT"),
        (c.new_topic("u", assignment=[(1,), (1, 2)]), "INVALID_REPLICA_ASSIGNMENT"),
        (c.with_fields(c.new_topic("u", assignment=[(1,)]), partitions=1), "INVALID_REQUEST"),
        (api.NewTopic(topic="u", assignment={"1": (1,)}), "INVALID_REPLICA_ASSIGNMENT"),
        (c.new_topic("u", 3, 3), "NONE"),
    ],
    ids=str,
)
def test_a_topic_that_cannot_be_made(topic: api.NewTopic, error: str) -> None:
    """The others of the request are made all the same."""
    talk = c.active()

    assert errors(talk, c.create(topic, c.new_topic("v"))) == [error, "NONE"]
    assert c.topics_of(talk.shard).keys() == {"t", "v", *(["u"] if error == "NONE" else [])}


def test_who_asks_for_too_many_replicas_is_told_the_bound() -> None:
    """In a fleet of twenty it is not that brokers are missing."""
    talk = Conversation()
    talk.send_all(*(c.register(number, version=0) for number in range(20)))  # Active at once

    assert "at most 16 replicas" in talk.send(c.create(c.new_topic("u", 1, 17)))[-1]
    assert "at most 16 replicas" not in talk.send(c.create(c.new_topic("u", 1, 16)))[-1]


def test_a_host_may_be_as_long_as_it_is_said() -> None:
    """docs/reference/wire.md: 255 characters of a host, 249 bytes of a name."""
    talk = c.active()
    host = ".".join(["x" * 63] * 4)
    talk.send(c.register(5, endpoints=(api.Endpoint("in", host, 9092),)))

    assert c.cluster_of(talk.shard).brokers[5].endpoints[0].host == host
    assert "255 bytes" in c.register(5, endpoints=(api.Endpoint("in", "\n", 1),)).fault()


def test_a_cluster_has_a_bound_of_partitions() -> None:
    """Its rows are in the shard's state, which is rewritten every batch."""
    talk = with_bounds(c.active(), partitions_max=3)
    request = c.create(c.new_topic("u", 2), c.new_topic("v", 1))

    assert errors(talk, request) == ["NONE", "POLICY_VIOLATION"]
    extend = c.about(api.CreatePartitions, topic="t", count=2)
    assert errors(talk, extend) == ["POLICY_VIOLATION"]


def test_validation_alone_makes_nothing() -> None:
    """Rows count against the bounds as if they were made."""
    talk = c.active()
    topics = [c.new_topic(f"u{number}", 4_000) for number in range(3)]
    before = state_of(talk)

    assert errors(talk, c.create(*topics, validate_only=True)) == [
        "NONE",
        "NONE",
        "POLICY_VIOLATION",
    ]
    assert state_of(talk) == before


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (c.about(api.CreatePartitions, topic="u", count=2), "UNKNOWN_TOPIC_OR_PARTITION"),
        (c.about(api.CreatePartitions, topic="t", count=1), "INVALID_PARTITIONS"),
        (c.about(api.DeleteTopics, topics=("u",)), "UNKNOWN_TOPIC_OR_PARTITION"),
        (c.elect("preferred", ("u", 0)), "UNKNOWN_TOPIC_OR_PARTITION"),
        (c.elect("preferred", ("t", 0)), "ELECTION_NOT_NEEDED"),
        (c.elect("unclean", ("t", 0)), "ELECTION_NOT_NEEDED"),
        (c.move(("u", 0), (1,)), "UNKNOWN_TOPIC_OR_PARTITION"),
        (c.move(("t", 0), (1, 9)), "INVALID_REPLICA_ASSIGNMENT"),
        (c.move(("t", 0), ()), "INVALID_REPLICA_ASSIGNMENT"),
        (c.move(("t", 0), None), "NO_REASSIGNMENT_IN_PROGRESS"),
    ],
    ids=str,
)
def test_a_row_of_an_operator_that_cannot_be_done(request_: Any, error: str) -> None:
    """INV-82: nothing changes."""
    talk = c.active()
    before = state_of(talk)

    assert errors(talk, request_) == [error]
    assert state_of(talk) == before


def rows_of(answer: dict[str, Any]) -> list[tuple[str, int, str]]:
    return [(row["topic"], row["partition"], row["error"]) for row in answer["results"]]


def test_elections_are_answered_in_the_order_of_the_request() -> None:
    """INV-82: names as an operator types them, neither sorted nor by topic."""
    talk = c.active(
        c.new_topic("t", assignment=[(1, 2), (2, 1), (3, 1)]), c.new_topic("a", assignment=[(2, 3)])
    )
    # t/1 and a/0 are led by others than those that they are to prefer now.
    talk.send_all(c.move(("t", 1), (1, 2)), c.move(("a", 0), (3, 2)))
    named = [("t", 1), ("nobody", 4), ("a", 0), ("t", 0), ("t", 9), ("t", 2)]
    (answer,) = answers(talk, c.elect("preferred", *named))

    assert rows_of(answer) == [
        ("t", 1, "NONE"),
        ("nobody", 4, "UNKNOWN_TOPIC_OR_PARTITION"),
        ("a", 0, "NONE"),
        ("t", 0, "ELECTION_NOT_NEEDED"),
        ("t", 9, "UNKNOWN_TOPIC_OR_PARTITION"),
        ("t", 2, "ELECTION_NOT_NEEDED"),
    ]
    rows = c.partitions_of(talk.shard)
    assert [place for place, row in rows.items() if row.asked >= 0] == [("a", 0), ("t", 1)]


def test_deletions_are_answered_in_the_order_of_the_report() -> None:
    """INV-82: a refused row changes nothing, also between two that count."""
    talk = c.active(c.new_topic("t", assignment=[(1, 2)] * 3), c.new_topic("a", assignment=[(1,)]))
    topic_id = c.topics_of(talk.shard)["t"].topic_id
    talk.send(c.about(api.DeleteTopics, topics=("t",)))
    told = [
        api.DeletedReplica(topic="t", topic_id=topic_id, partition=2),
        api.DeletedReplica(topic="a", topic_id=c.topics_of(talk.shard)["a"].topic_id, partition=0),
        api.DeletedReplica(topic="t", topic_id=topic_id - 1, partition=1),
        api.DeletedReplica(topic="t", topic_id=topic_id, partition=0, error="KAFKA_STORAGE_ERROR"),
        api.DeletedReplica(topic="t", topic_id=topic_id, partition=7),
    ]
    (answer,) = answers(talk, c.deleted(1, 0, *told))

    assert rows_of(answer) == [
        ("t", 2, "NONE"),
        ("a", 0, "INVALID_REQUEST"),
        ("t", 1, "UNKNOWN_TOPIC_OR_PARTITION"),
        ("t", 0, "NONE"),
        ("t", 7, "UNKNOWN_TOPIC_OR_PARTITION"),
    ]
    states = [
        row.deleting[1] for (topic, _), row in c.partitions_of(talk.shard).items() if topic == "t"
    ]
    assert states == [
        ReplicaState.DELETION_INELIGIBLE,
        ReplicaState.DELETION_STARTED,
        ReplicaState.DELETION_SUCCESSFUL,
    ]
    assert c.partition(talk, "a").leader == 1


@pytest.mark.parametrize(
    ("state", "request_", "error"),
    [
        (c.moving, c.move(("t", 0), (1,)), "REASSIGNMENT_IN_PROGRESS"),
        (c.guarded, c.elect("unclean", ("t", 0)), "ELIGIBLE_LEADERS_NOT_AVAILABLE"),
        (c.guarded, c.elect("preferred", ("t", 0)), "PREFERRED_LEADER_NOT_AVAILABLE"),
        (c.leaderless, c.elect("unclean", ("t", 0)), "ELIGIBLE_LEADERS_NOT_AVAILABLE"),
        (c.leaderless, c.elect("preferred"), "PREFERRED_LEADER_NOT_AVAILABLE"),
        (c.deleting, c.move(("t", 0), (1,)), "UNKNOWN_TOPIC_OR_PARTITION"),
        (c.deleting, c.create(c.new_topic("t")), "TOPIC_ALREADY_EXISTS"),
    ],
)
def test_what_must_wait(state: Callable[[], Conversation], request_: Any, error: str) -> None:
    """The same requests are accepted in other states: see by_state."""
    assert errors(state(), request_) == [error]


def test_a_repeated_registration_gets_the_same_answer() -> None:
    """The producer did not hear of its success: no second incarnation."""
    talk = c.registered()
    first, again = (answers(talk, c.register(4, id="once"))[0] for _ in range(2))
    same = ("incarnation", "member", "since", "generation")

    assert [first[each] for each in same] == [again[each] for each in same]


def test_superseded_registrations_that_come_again_do_not_win() -> None:
    """INV-75: eight of them are known; the older process stops, and no war of two begins."""
    talk = c.registered()
    for number in range(limits.SUPERSEDED_MAX + 2):
        talk.send(c.register(1, client=f"twin-{number}"))
    newest = c.cluster_of(talk.shard).brokers[1].incarnation

    for number in range(1, limits.SUPERSEDED_MAX + 1):
        (answer,) = answers(talk, c.register(1, client=f"twin-{number}"))
        assert answer["error"] == "STALE_BROKER_EPOCH"
        assert answer["design_error"] == "INVALID_INCARNATION_ID"
    assert c.cluster_of(talk.shard).brokers[1].incarnation == newest


def test_a_registration_older_than_those_that_are_known_is_a_ghost_until_its_session_ends() -> None:
    """INV-71, INV-81: a producer's duplicate lay about while the broker restarted nine times. It
    wins, and nobody acts for it: what the living process led is guarded, then led by others."""
    talk = c.active()
    late = c.register(1, storage="disk-1")
    for number in range(limits.SUPERSEDED_MAX + 1):
        former = c.cluster_of(talk.shard).brokers[1].incarnation
        again = {"client": f"again-{number}", "storage": "disk-1", "previous": former}
        talk.send(c.register(1, **again))
    living = leads_again(talk)
    assert errors(talk, late) == ["NONE"]

    ghost = c.cluster_of(talk.shard).brokers[1]
    assert (ghost.client, ghost.state) == (late.client, BrokerState.INACTIVE)
    says = c.beat(1, living.incarnation, living.since, client=living.client)
    assert errors(talk, says) == ["STALE_BROKER_EPOCH"]
    assert (c.partition(talk).leader, c.partition(talk).guard) == (-1, living.incarnation)
    talk.tick()
    for _ in range(c.SESSION_MS // 1_000 + 1):
        talk.tick(after_ms=1_000)
        talk.send_all(*(c.lives(f"b{number}", c.MEMBERS[number]) for number in (2, 3)))
    assert not c.cluster_of(talk.shard).brokers[1].has_session
    assert c.partition(talk).leader == 2


def leads_again(talk: Conversation) -> Broker:
    """Broker 1 in its newest incarnation, which is Active, in sync, and leads t/0."""
    living = c.cluster_of(talk.shard).brokers[1]
    talk.send(c.beat(1, living.incarnation, living.since, client=living.client))
    row = c.partition(talk)
    isr = ((2, 1), (3, 2), (1, living.incarnation))
    talk.send(c.alter(2, 1, {("t", 0): (row.leader_epoch, row.partition_epoch, isr)}))
    talk.send(c.elect("preferred", ("t", 0)))
    talk.send(c.lets_go("b2", c.MEMBERS[2], c.partition(talk).asked))
    assert c.partition(talk).leader == 1
    return c.cluster_of(talk.shard).brokers[1]


def test_a_cluster_has_a_bound_of_brokers() -> None:
    """10,000 registrations of ever new ids; those that are known may restart."""
    talk = with_bounds(c.registered(), brokers_max=3)

    assert errors(talk, c.register(4)) == ["GROUP_MAX_SIZE_REACHED"]
    assert errors(talk, c.register(3, client="again")) == ["NONE"]


def test_the_bytes_of_all_brokers_are_bounded() -> None:
    """A thousand brokers with sixteen endpoints of the longest hosts."""
    talk = Conversation()
    long = tuple(
        api.Endpoint(f"{n}" + "n" * 240, "h" * 249, 1) for n in range(limits.ENDPOINTS_MAX)
    )
    found = [errors(talk, c.register(n, endpoints=long))[0] for n in range(600)]

    assert {*found} == {"NONE", "GROUP_MAX_SIZE_REACHED"}
    head = c.cluster_of(talk.shard)
    assert len(codec.encode(head)) < head.size_bytes() < limits.OUTPUT_BYTES_MAX


def test_a_large_picture_comes_in_parts() -> None:
    """An answer is read as a whole; a record has a bound."""
    talk = c.active(c.new_topic("t" * 200, assignment=[(1, 2, 3)] * 4_000))
    parts = answers(talk, c.about(api.Metadata))

    assert [each["part"] for each in parts] == [*range(len(parts))]
    assert len({each["parts"] for each in parts}) == 1 < len(parts)
    assert sum(len(each["partitions"]) for each in parts) == 4_000
    assert [len(each["topics"]) for each in parts][:2] == [1, 0]


def test_a_legacy_leader_learns_that_its_change_has_moved_the_leadership() -> None:
    """It cannot be asked: the change that ends a move takes the leadership at once."""
    talk = Conversation()
    talk.send_all(c.register(1, version=4), c.register(2), c.beat(2, 1, 1))
    talk.send(c.create(c.new_topic("t", assignment=[(1,)])))
    talk.send(c.move(("t", 0), (2,)))
    row = c.partition(talk)
    request = c.alter(1, 0, {("t", 0): (row.leader_epoch, row.partition_epoch, ((1, 0), (2, 1)))})

    assert errors(talk, request) == ["NEW_LEADER_ELECTED"]
    assert (c.partition(talk).leader, c.partition(talk).replicas) == (2, (2,))
