"""One group, three kinds of members side by side.

The demo's processes, a plain Python program with a CoordinatedConsumer, and somebody who writes
JSON by hand and speaks Kafka's ConsumerProtocol.
"""

import base64
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from coordlib.demo.members import Members
from coordlib.demo.witness import Witness
from coordlib.local.stack import Stack
from tests.kit.processes import PATIENCE_S
from tests.stack.crew import Crew
from tests.stack.flow import Flow
from tests.stack.truths import committed, issued, one_owner_per_assignment, only_owners_read
from tests.stack.wire import RawMember, Wire

pytestmark = pytest.mark.stack


@pytest.fixture
def demo(shared_stack: Stack, group: str, flow: Flow, tmp_path: Path) -> Iterator[Members[Witness]]:
    """The demo's own members, in the group of `crew`."""
    config = {
        "bootstrap.servers": shared_stack.bootstrap_servers,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "session.timeout.ms": 6_000,
        "heartbeat.interval.ms": 1_000,
        "max.poll.interval.ms": 60_000,
    }
    (tmp_path / "logs").mkdir()
    with Members(tmp_path, flow.topic, config, Witness) as members:
        yield members


def test_three_kinds_of_members_share_a_topic(
    demo: Members[Witness], crew: Crew, flow: Flow, wire: Wire, group: str
) -> None:
    """Each does its part; the one by hand takes over where another has stopped, and the others
    where it has stopped."""
    demo.start("demo-1")
    demo.start("demo-2")
    crew.start("plain", partition__assignment__strategy="range")
    flow.begin()
    everybody = Everybody(demo, crew, flow)
    everybody.until_evenly(2)
    crew.until("all read", lambda: everybody.all_read())

    by_hand = RawMember(wire, group, "by-hand", rebalance_timeout_ms=60_000)
    by_hand.protocol_type, by_hand.protocol = "consumer", "range"
    joined = by_hand.joined(by_hand.ask_join(subscription(flow.topic)))
    assert (joined["error"], joined["protocol"]) == ("NONE", "range")
    assert joined["leader"] != by_hand.member
    by_hand.start_heartbeats()
    synced = wire.answer(by_hand.ask_sync())
    mine = partitions_of(base64.b64decode(synced["assignment"]), flow.topic)
    assert mine == [0, 1], "range deals in the order of names: the first two of six to one of four"
    crew.until("the others have the rest", lambda: everybody.owned() == everybody.all - set(mine))

    flow.pause()
    ends, known = dict(flow.ends), committed(wire, group)
    began = {partition: known.get((flow.topic, partition), 0) for partition in mine}
    read_by_hand = set(read(wire, flow, began))
    for partition in mine:
        answer = wire.answer(by_hand.commit(ends[partition], flow.topic, partition))
        assert (answer["error"], answer["failed"]) == ("NONE", [])
    wire.send("LeaveGroup", group, by_hand.client, members=[{"member": by_hand.member}])
    by_hand.die()
    everybody.until_evenly(2)
    flow.begin()
    crew.until("what was by hand is read on", lambda: everybody.reads_beyond(mine, ends))
    flow.pause()
    crew.until(
        "everything is read",
        lambda: len(everybody.read() | read_by_hand) == sum(flow.ends.values()),
    )
    demo.stop()
    crew.stop()

    assert not everybody.read() & read_by_hand, "each went on where the other had committed"
    assert committed(wire, group) == {(flow.topic, p): end for p, end in flow.ends.items()}
    only_owners_read(crew, wire, group)
    one_owner_per_assignment(wire, group)
    owner = {
        (event["generation"], partition): event["member"]
        for event in wire.events(group, "AssignmentIssued")
        for partition in event["detail"]["partitions"].get(flow.topic, ())
    }
    for one in (one for each in demo.witnesses.values() for one in each.consumed):
        assert owner[one.generation, one.partition].startswith(f"{one.member}-"), one
    given = issued(wire, group)[by_hand.member, synced["fence"]]
    assert given == {(flow.topic, partition) for partition in mine}
    assert not [error for each in demo.witnesses.values() for error in each.errors]


class Everybody:
    """What the members of `demo` and `crew` have and read, taken together, by partition."""

    def __init__(self, demo: Members[Witness], crew: Crew, flow: Flow) -> None:
        self._demo, self._crew, self.all = demo, crew, set(flow.ends)

    def _shares(self) -> list[set[int]]:
        self._demo.read_on()
        shares = [set(each.partitions or ()) for each in self._demo.witnesses.values()]
        return [*shares, {partition for _, partition in self._crew["plain"].owned}]

    def owned(self) -> set[int]:
        return set().union(*self._shares())

    def until_evenly(self, each: int) -> None:
        """Wait until each of them has so many, and no two have the same."""

        def is_so() -> bool:
            shares = self._shares()
            return self.owned() == self.all and {len(share) for share in shares} == {each}

        self._crew.until(f"each has {each} partitions", is_so)

    def all_read(self) -> bool:
        self._demo.read_on()
        theirs = [each.consumed for each in self._demo.witnesses.values()]
        return all([*theirs, self._crew["plain"].readings])

    def read(self) -> set[tuple[int, int]]:
        """(partition, offset) of every record that one of them read."""
        self._demo.read_on()
        theirs = [one for each in self._demo.witnesses.values() for one in each.consumed]
        mine = {(reading.place[1], reading.offset) for reading in self._crew["plain"].readings}
        return mine | {(one.partition, one.offset) for one in theirs}

    def reads_beyond(self, partitions: list[int], offsets: dict[int, int]) -> bool:
        """Whether records from these offsets on were read."""
        found = self.read()
        return all(any(p == at and o >= offsets[p] for p, o in found) for at in partitions)


def subscription(topic: str) -> bytes:
    """A ConsumerProtocol subscription, version 0: version, topics, no user data."""
    name = topic.encode()
    return struct.pack(f">hih{len(name)}si", 0, 1, len(name), name, -1)


def partitions_of(assignment: bytes, topic: str) -> list[int]:
    """A ConsumerProtocol assignment of any version that has one topic."""
    name = topic.encode()
    _, topics, size = struct.unpack_from(">hih", assignment)
    assert (topics, assignment[8 : 8 + size]) == (1, name)
    (count,) = struct.unpack_from(">i", assignment, 8 + size)
    return list(struct.unpack_from(f">{count}i", assignment, 12 + size))


def read(wire: Wire, flow: Flow, began: dict[int, int]) -> Iterator[tuple[int, int]]:
    """Read these partitions from these offsets to their ends, with Kafka's own consumer."""
    config: dict[str, Any] = {"bootstrap.servers": wire.bootstrap_servers, "group.id": "none"}
    reader = Consumer(config | {"enable.auto.commit": False})
    reader.assign([TopicPartition(flow.topic, *row) for row in began.items()])
    for _ in range(sum(flow.ends[partition] - start for partition, start in began.items())):
        message = reader.poll(PATIENCE_S)
        assert message is not None, "the records are not there"
        assert message.error() is None, message.error()
        yield message.partition(), message.offset()
    reader.close()
