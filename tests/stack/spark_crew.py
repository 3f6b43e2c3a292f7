"""Crews with Spark queries among their members: how they are started, what must hold of them."""

from collections import defaultdict
from typing import Any, Final

from coordlib.client.kit.requests import Timing
from tests.stack.crew import Crew, Place, Reading
from tests.stack.flow import Flow
from tests.stack.truths import committed, ends_are_committed
from tests.stack.wire import Wire

#: The members' machine does much else: a second Spark starts on it meanwhile.
ASSIGNED: Final[dict[str, Any]] = {
    "group__protocol": "assigned",
    "partition__assignment__strategy": None,
    "session__timeout__ms": 15_000,
    "heartbeat__interval__ms": 3_000,
}
TIMING: Final = Timing(
    session_timeout_ms=15_000, heartbeat_interval_ms=3_000, rebalance_timeout_ms=60_000
)
PATIENCE_S: Final = 180.0


def start_queries(crew: Crew, *names: str) -> None:
    """Spark readers, in processes of their own."""
    crew.start(*names, program="tests.stack.spark_member", **ASSIGNED)


def owned(crew: Crew, name: str) -> set[Place]:
    """By a reader's newest query, or a consumer's own word."""
    member = crew[name]
    if (queries := member.told("query")) and name not in killed(crew):
        return {(topic, partition) for topic, partition in queries[-1]["partitions"]}
    return set(member.owned)


def killed(crew: Crew) -> set[str]:
    return {name for name, member in crew.members.items() if member.killed_ns is not None}


def until_even(crew: Crew, places: set[Place], *names: str) -> None:
    def is_even() -> bool:
        shares = [owned(crew, name) for name in names]
        counts = [len(share) for share in shares]
        everything = sorted(place for share in shares for place in share)
        return max(counts) - min(counts) <= 1 and everything == sorted(places)

    crew.until(f"{', '.join(names)} share {len(places)} partitions", is_even)


def read_again_after_it_was_finished(crew: Crew) -> list[Reading]:
    """Records that a query had finished with, by Spark's word, and that were read once more."""
    finished: dict[tuple[str, Place], list[tuple[int, int]]] = defaultdict(list)
    for member in crew.members.values():
        for line in member.told("finished"):
            for topic, partition, end in line["offsets"]:
                finished[member.name, (topic, partition)].append((line["at_ns"], end))
    first: dict[tuple[Place, int], Reading] = {}

    def was_finished(before: Reading, again: Reading) -> bool:
        # Spark's word may come late. Of one process, what it finished later says nothing.
        is_other = before.process != again.process
        ends = finished[before.process, before.place]
        return any(end > again.offset for at, end in ends if is_other or at < again.at_ns)

    found = []
    for each in crew.readings:
        before = first.setdefault((each.place, each.offset), each)
        if before is not each and was_finished(before, each):
            found.append(each)
    return found


def only_owners_read_in_turn(crew: Crew, wire: Wire, group: str) -> None:
    """Whoever read a partition was given it, and not after its next owner had begun to."""
    given = {
        (event["member"], topic, partition)
        for event in wire.events(group, "AssignmentIssued")
        for topic, numbers in event["detail"]["partitions"].items()
        for partition in numbers
    }
    newest: dict[Place, int] = {}
    for each in crew.readings:
        assert (each.member, *each.place) in given, each
        assert newest.get(each.place, -1) <= each.fence, f"{each} after fence {newest[each.place]}"
        newest[each.place] = each.fence


def spark_holds(crew: Crew, flow: Flow, wire: Wire, group: str) -> None:
    """All was read and committed, by owners only, in their turn."""
    ends_are_committed(crew, flow, wire, group)
    crew.stop()
    assert committed(wire, group) == {
        (flow.topic, partition): end for partition, end in flow.ends.items()
    }
    only_owners_read_in_turn(crew, wire, group)
    assert not wire.events(group, "GroupQuarantined")
