"""Ordinary life of a group over a real broker and a real Spark job."""

import base64
import json
import time
from collections import Counter
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from coordlib import Consumer
from coordlib.cli.main.main import main
from coordlib.core.wire.envelope import shard_of
from coordlib.exit_codes import OK
from coordlib.local.stack import Stack
from tests.kit.waiting import wait_until
from tests.stack.wire import REBALANCE_MS, SESSION_MS, RawMember, Wire, close, settle

pytestmark = pytest.mark.stack


def test_three_members_settle_and_each_hears_its_share(wire: Wire, group: str) -> None:
    """Three processes start at once: one leader, one generation for all, one assignment each."""
    members = [RawMember(wire, group, f"client-{n}") for n in range(3)]
    settle(members)

    assert {member.generation for member in members} == {2}
    assert {member.leader for member in members} == {members[0].member}
    assert [len(member.members) for member in members] == [3, 0, 0]
    wire.read_everything()
    shares = {
        tuple(json.loads(message.key())): base64.b64decode(value["assignment"]).decode()
        for message, value in wire.seen["assignments"]
        if json.loads(message.key())[0] == group
    }
    assert shares == {(group, member.member): member.member for member in members}


def test_a_member_id_is_where_its_first_request_stands(wire: Wire, group: str) -> None:
    """A client whose answer is lost knows its id from the produce acknowledgement."""
    member = RawMember(wire, group, "client")
    coordinate = member.ask_join()
    member.joined(coordinate)

    assert member.member.startswith("client-")
    assert member.member.endswith(coordinate.removeprefix("r"))


def test_a_commit_is_fetched_again(wire: Wire, group: str) -> None:
    member = RawMember(wire, group, "client")
    settle([member])
    assert wire.answer(member.commit(42, "orders", 3))["failed"] == []

    fetched = wire.answer(wire.send("OffsetFetch", group))

    assert [(r["topic"], r["partition"], r["offset"]) for r in fetched["offsets"]] == [
        ("orders", 3, 42)
    ]


@pytest.mark.parametrize("protocol", ["classic", "assigned"])
def test_auto_commit_hands_over_what_is_processed(
    shared_stack: Stack, group: str, protocol: str
) -> None:
    """Nobody calls commit: a newcomer goes on behind the last message that was processed, the last
    one is committed by close, and one that raised an exception is read again.  # INV-158"""
    servers, topic = {"bootstrap.servers": shared_stack.bootstrap_servers}, f"t-{group}"
    admin = AdminClient(servers)  # a name for it: its answers are lost when it is collected
    admin.create_topics([NewTopic(topic, 2, 1)])[topic].result(60)
    producer = Producer(servers)
    for number in range(40):
        producer.produce(topic, str(number), partition=number % 2)
    assert producer.flush(30) == 0
    kind = {"group.id": group, "group.protocol": protocol, "auto.offset.reset": "earliest"}
    config = {**servers, **kind, "auto.commit.interval.ms": 500}
    read: Counter[str] = Counter()

    def poll(consumer: Any, count: int = 1) -> None:
        for _ in range(count):
            message = consumer.poll(0.2)
            if message is not None and message.error() is None:
                read[message.value().decode()] += 1

    with Consumer(config) as first:
        first.subscribe([topic])
        wait_until("it has begun", lambda: poll(first) or read.total() >= 15)
        with Consumer(config) as second:
            second.subscribe([topic])
            both = (first, second)
            wait_until(
                "both have a share",
                lambda: [poll(each) for each in both] and all(each.assignment() for each in both),
            )
            wait_until("all is read", lambda: [poll(each) for each in both] and read.total() >= 40)
            assert read == Counter(map(str, range(40)))

    producer.produce(topic, "40", partition=0)
    close(producer)

    def fail(consumer: Any) -> None:
        consumer.subscribe([topic])
        wait_until("it has read the new one", lambda: poll(consumer) or read.total() > 40)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), Consumer(config) as third:
        fail(third)
    with Consumer(config) as fourth:
        found = fourth.committed([TopicPartition(topic, number) for number in (0, 1)])
    assert [each.offset for each in found] == [20, 20]
    assert read == Counter(map(str, range(41)))


def test_positions_of_those_who_are_no_members_are_kept(wire: Wire, group: str) -> None:
    """A Spark query publishes how far it got; it never joins."""
    row = {"topic": "t", "partition": 1, "offset": 9}
    assert wire.answer(wire.commit_position(group, offsets=[row]))["failed"] == []

    assert wire.answer(wire.send("OffsetFetch", group))["offsets"][0]["offset"] == 9


def test_a_silent_member_is_expelled_in_time_on_a_quiet_shard(wire: Wire, group: str) -> None:
    """Nobody else writes: only the driver's ticks let time pass."""
    quiet = RawMember(wire, group, "quiet")
    settle([quiet])
    began = time.monotonic()

    removed = wire.event(group, "MemberRemoved", reason="session expired")

    assert removed["member"] == quiet.member
    assert time.monotonic() - began > SESSION_MS / 1000 * 0.8, "not before its session ran out"
    wire.event(group, "GroupEmptied")


def test_when_all_members_are_killed_the_group_empties(wire: Wire, group: str) -> None:
    members = [RawMember(wire, group, f"client-{n}") for n in range(3)]
    settle(members)
    for member in members:
        member.start_heartbeats()
    wire.judged(members[0].heartbeat())
    assert not wire.events(group, "MemberRemoved")

    for member in members:
        member.die()

    wire.event(group, "GroupEmptied")
    assert {e["member"] for e in wire.events(group, "MemberRemoved")} == {
        member.member for member in members
    }
    again = RawMember(wire, group, "later")
    settle([again])
    assert again.generation > members[0].generation


def test_members_are_told_of_a_rebalance_at_once(wire: Wire, group: str) -> None:
    """Not at their next heartbeat: the notice is pushed."""
    first = RawMember(wire, group, "first")
    settle([first])
    joined = RawMember(wire, group, "second").ask_join()

    notice = wire.wait(
        "notice",
        lambda: next(
            (
                v
                for v in wire.values("responses")
                if v["type"] == "RebalanceInProgress" and v["group"] == group
            ),
            None,
        ),
    )

    assert (notice["cause"], notice["generation"]) == (joined, first.generation)


def test_who_does_not_rejoin_in_time_is_left_behind(wire: Wire, group: str) -> None:
    """It heartbeats, so its session lives, but it never lets go (a stuck handler)."""
    stuck = RawMember(wire, group, "stuck")
    settle([stuck])
    stuck.start_heartbeats()
    newcomer = RawMember(wire, group, "newcomer")
    began = time.monotonic()
    answer = newcomer.joined(newcomer.ask_join())
    took = time.monotonic() - began
    stuck.die()

    assert answer["error"] == "NONE"
    assert answer["leader"] == newcomer.member
    assert took > REBALANCE_MS / 1000 * 0.8, "not before the rebalance timeout"
    removed = wire.event(group, "MemberRemoved")
    assert (removed["member"], removed["reason"]) == (stuck.member, "did not rejoin in time")


def test_what_an_operator_takes_away_is_handed_on_when_its_owner_has_stopped(
    wire: Wire, group: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its handler hangs while it heartbeats. The member that stays joins again at once, and gets
    the other one's share only when that one has said that it stopped."""
    patient = {"session_timeout_ms": 60_000, "rebalance_timeout_ms": 60_000}
    keeper, stuck = (RawMember(wire, group, name, **patient) for name in ("keeper", "stuck"))
    settle([keeper, stuck])
    there = ["-b", wire.bootstrap_servers, "--prefix", wire.prefix, "--format", "json"]
    whom = ["--member", stuck.member, "--reason", "stuck since 3", "--yes"]

    assert main(["groups", "remove-members", group, *whom, *there]) == OK

    told = json.loads(capsys.readouterr().out)
    assert [row["error"] for row in told["members"]] == ["NONE"]
    assert [row["consumer-id"] for row in told["waits-for"]] == [stuck.member]
    removed = wire.event(group, "MemberRemoved", member=stuck.member)
    assert removed["reason"].startswith("removed by admin-")
    assert removed["reason"].endswith(": stuck since 3")
    asked = keeper.ask_join()
    wire.judged(asked)
    wire.read_everything()
    assert not wire.answers(asked)

    said = wire.send("LeaveGroup", group, "stuck", members=[{"member": stuck.member}])
    assert keeper.joined(asked)["error"] == "NONE"
    wire.judged(said)
    assert [row["member"] for row in keeper.members] == [keeper.member]


POISON = [
    b"",
    b"\x00\xff\xfe",
    b"{",
    b"null",
    b"[" * 100_000,
    b'{"v":2,"type":"JoinGroup","id":"1","client":"c","group":"g"}',
    b'{"v":1,"type":"Levitate","id":"1","client":"c","group":"g"}',
    b'{"v":1,"type":"Heartbeat","id":"1","client":"c","group":"g","generation":1e400,"member":""}',
    b'{"v":1,"type":"Heartbeat","id":"1","client":"c\\u001b[2J","group":"g","generation":1,"member":"m"}',
    b'{"v":1,"type":"Heartbeat","id":"1","client":"c","group":"g","generation":1,"member":"m","x":1}',
    b'{"v":1,"type":"Tick","published":-7}',
    b'{"v":1,"type":"JoinGroup"}' + b" " * 1_060_000,
]


def test_poison_costs_one_event_each_and_nobody_else_notices(wire: Wire, group: str) -> None:
    """A broken producer writes rubbish; other groups of the same shard are served on time."""
    shard = shard_of(group, wire.shards)
    poisoned = [wire.send_raw(value, group, shard=shard) for value in [*POISON, None]]
    member = RawMember(wire, group, "healthy")
    settle([member])

    wire.read_everything()
    for coordinate in poisoned:
        rejected = [
            e
            for e in wire.values("events")
            if e["cause"] == coordinate and e["type"] == "RequestRejected"
        ]
        assert len(rejected) == 1, coordinate
        assert len(base64.b64decode(rejected[0]["detail"]["bytes"])) <= 64
    told = [v for v in wire.values("responses") if v["type"] == "Rejected"]
    assert {v["cause"] for v in told} <= set(poisoned)


def test_a_request_in_the_wrong_partition_is_refused(wire: Wire, group: str) -> None:
    wrong = (shard_of(group, wire.shards) + 1) % wire.shards
    value = {"v": 1, "type": "OffsetFetch", "id": "1", "client": "c", "group": group}
    coordinate = wire.send_raw(json.dumps(value).encode(), group, shard=wrong)

    assert wire.answer(coordinate)["error"] == "WRONG_SHARD"


def test_three_joins_of_400_kb_make_one_large_answer(wire: Wire, group: str) -> None:
    """Larger than Kafka's default record: the sink must be able to write what the core accepts."""
    members = [RawMember(wire, group, f"large-{n}", rebalance_timeout_ms=60_000) for n in range(3)]
    members[0].joined(members[0].ask_join(b"x" * 400_000))
    asked = [member.ask_join(b"x" * 400_000) for member in members[1:]]
    wire.judged(asked[-1])
    answers = [
        m.joined(c)
        for m, c in zip(members, [members[0].ask_join(b"x" * 400_000), *asked], strict=True)
    ]

    assert [answer["error"] for answer in answers] == ["NONE"] * 3
    assert sum(len(row["metadata"]) for row in members[0].members) > 1_500_000
    for member in members:
        wire.send("LeaveGroup", group, member.client, members=[{"member": member.member}])
    wire.event(group, "GroupEmptied")


def test_a_fetch_of_20_000_offsets_comes_in_parts(wire: Wire, group: str) -> None:
    for start in range(0, 20_000, 5_000):
        rows = [{"topic": "wide", "partition": n, "offset": n} for n in range(start, start + 5_000)]
        assert wire.answer(wire.send("OffsetCommit", group, offsets=rows))["failed"] == []
    coordinate = wire.send("OffsetFetch", group)
    parts = wire.answer(coordinate)["parts"]
    wire.wait("all parts", lambda: len(wire.answers(coordinate)) == parts)

    answers = wire.answers(coordinate)
    assert parts > 1
    assert sorted(a["part"] for a in answers) == list(range(parts))
    assert [r["partition"] for a in answers for r in a["offsets"]] == list(range(20_000))


def test_every_event_stands_once_and_every_request_is_answered_once(wire: Wire) -> None:
    """Over everything that the tests before this one did to the shared stack."""
    wire.read_everything()
    ids = [event["event_id"] for event in wire.values("events")]
    assert len(ids) == len(set(ids)) > 100
    causes = [
        (v["cause"], v.get("part", 0)) for v in wire.values("responses") if v.get("id") is not None
    ]
    assert len(causes) == len(set(causes))
    assert not [e for e in wire.values("events") if e["type"] == "GroupQuarantined"]
