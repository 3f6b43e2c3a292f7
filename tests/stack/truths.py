"""What must hold of every group, whatever happened to it.

By the witnesses of its members' processes, and by what the engine wrote down of the same time.
"""

from collections import Counter
from itertools import pairwise
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from coordlib.core.wire.envelope import shard_of
from tests.kit.processes import PATIENCE_S
from tests.stack.crew import Crew, Place
from tests.stack.flow import Flow
from tests.stack.recorded import keeps_every_promise
from tests.stack.wire import Wire

Issued = dict[tuple[str, int], frozenset[Place]]


def issued(wire: Wire, group: str) -> Issued:
    """(member, fence) -> partitions, by `coord.events`.

    A member of a server-assigned group that lets go of some keeps the fence of the others.
    """
    found: Issued = {}
    for event in wire.events(group, "AssignmentIssued"):
        key = event["member"], event["detail"]["fence"]
        found[key] = found.get(key, frozenset()) | _places(event)
    return found


def _places(event: Any) -> frozenset[Place]:
    return frozenset(
        (topic, partition)
        for topic, numbers in event["detail"]["partitions"].items()
        for partition in numbers
    )


def generations(wire: Wire, group: str) -> list[Any]:
    """Every GenerationStarted until now."""
    wire.read_everything()
    return wire.events(group, "GenerationStarted")


def last_sign_of_life_ms(wire: Wire, group: str, member: str) -> int:
    """When the log took the last heartbeat (or SyncGroup, which counts as the first) of a member
    that says nothing any more, by the broker's clock."""
    asking = Consumer({"bootstrap.servers": wire.bootstrap_servers, "group.id": "test-reader"})
    place = TopicPartition(f"{wire.prefix}.requests", shard_of(group, wire.shards), 0)
    _, end = asking.get_watermark_offsets(place, PATIENCE_S)
    asking.assign([place])
    found: list[int] = []
    offset = 0
    while offset < end:
        message = asking.poll(PATIENCE_S)
        assert message is not None, f"nothing after offset {offset} of {place}"
        assert message.error() is None, message.error()
        offset = (message.offset() or 0) + 1
        # Not decoded: other tests write what is no JSON.
        value = message.value() or b""
        is_sign = b'"type":"Heartbeat"' in value or b'"type":"SyncGroup"' in value
        if is_sign and b'"member":"%s"' % member.encode() in value:
            found.append(message.timestamp()[1])
    asking.close()
    return found[-1]  # in the order of the log: the broker's clock may have gone back


def nobody_shared(crew: Crew) -> None:
    """By the witnesses alone: who is told to own a partition is told after the former owner let go
    of it, died, or stopped by itself."""
    now_ns = max(line["at_ns"] for member in crew.members.values() for line in member.lines)
    tenures = [each for member in crew.members.values() for each in member.tenures]
    open_ones = [
        (place, since_ns, now_ns, member.name)
        for member in crew.members.values()
        for place, since_ns in member.owned.items()
    ]
    rows = sorted([(t.place, t.since_ns, t.until_ns, t.process) for t in tenures] + open_ones)
    for before, after in pairwise(rows):
        assert before[0] != after[0] or before[2] < after[1], f"two owners: {before}, {after}"


def only_owners_read(crew: Crew, wire: Wire, group: str) -> None:
    """Every record was read under an assignment that has its partition, and nobody read a partition
    after the first reading of its next owner."""
    wire.read_everything()
    known = issued(wire, group)
    newest: dict[Place, int] = {}
    for each in crew.readings:
        assert each.place in known[each.member, each.fence], each
        assert newest.get(each.place, -1) <= each.fence, f"{each} after fence {newest[each.place]}"
        newest[each.place] = each.fence


def one_owner_per_assignment(wire: Wire, group: str) -> None:
    """By history alone: no two shares of one assignment have a partition in common, unless one
    member took the other's place."""
    wire.read_everything()
    successor = {
        event["member"]: event["detail"]["replaced_by"]
        for event in wire.events(group, "MemberFenced")
    }
    owners: dict[tuple[int, Place], list[str]] = {}
    for event in wire.events(group, "AssignmentIssued"):
        for place in _places(event):
            owners.setdefault((event["detail"]["sync"], place), []).append(event["member"])
    for where, row in owners.items():
        line = list(dict.fromkeys(row))
        assert all(successor.get(a) == b for a, b in pairwise(line)), where


def outputs_are_exactly_once(wire: Wire) -> None:
    """No event id, no answer stands twice for a read-committed reader.  # INV-34"""
    wire.read_everything()
    ids = [event["event_id"] for event in wire.values("events")]
    assert len(ids) == len(set(ids))
    answers = [(v["cause"], v.get("part", 0)) for v in wire.values("responses") if "id" in v]
    assert len(answers) == len(set(answers))


def read_twice(crew: Crew) -> set[tuple[Place, int]]:
    """Places of records that were read more than once."""
    counted = Counter((each.place, each.offset) for each in crew.readings)
    return {where for where, times in counted.items() if times > 1}


def all_is_read(crew: Crew, flow: Flow) -> bool:
    read = {(each.place, each.offset) for each in crew.readings}
    return len(read) == sum(flow.ends.values())


def committed(wire: Wire, group: str) -> dict[Place, int]:
    """What the group has committed, as the coordinator answers now."""
    answer = wire.answer(wire.send("OffsetFetch", group))
    assert answer["error"] == "NONE", answer
    return {(row["topic"], row["partition"]): row["offset"] for row in answer["offsets"]}


def ends_are_committed(crew: Crew, flow: Flow, wire: Wire, group: str) -> None:
    """Wait until every record that was produced is read and committed."""
    flow.pause()
    ends = {(flow.topic, partition): end for partition, end in flow.ends.items()}
    crew.until("everything is read", lambda: all_is_read(crew, flow))
    crew.until("everything is committed", lambda: committed(wire, group) == ends)


def holds(crew: Crew, flow: Flow, wire: Wire, group: str) -> None:
    """All of the above, at the end of a test."""
    ends_are_committed(crew, flow, wire, group)
    crew.stop()
    nobody_shared(crew)
    only_owners_read(crew, wire, group)
    one_owner_per_assignment(wire, group)
    assert not wire.events(group, "GroupQuarantined")
    keeps_every_promise(crew, group)
