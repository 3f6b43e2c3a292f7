"""Server-assigned groups over a real broker and Spark job: members in processes of their own."""

from collections.abc import Callable
from pathlib import Path
from typing import Final
from uuid import uuid4

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from coordlib.client.groups.member import AssignedMember
from coordlib.client.kit.requests import Timing
from coordlib.history.sql import query_tables
from coordlib.local.stack import Stack
from tests.kit.waiting import wait_until
from tests.stack.crew import Crew, Place
from tests.stack.flow import Flow
from tests.stack.truths import read_twice
from tests.stack.wire import Wire

pytestmark = pytest.mark.stack

ASSIGNED: Final = {"group__protocol": "assigned", "partition__assignment__strategy": None}
FIRST: Final = ("a", "b")
TIMING: Final = Timing(
    session_timeout_ms=6_000, heartbeat_interval_ms=1_000, rebalance_timeout_ms=10_000
)


@pytest.mark.chaos
def test_one_joins_and_one_dies_and_nobody_stops(
    crew: Crew, flow: Flow, wire: Wire, group: str, archived: Callable[[], Path]
) -> None:
    """A deployment adds a process to two, and then one machine loses power."""
    crew.start(*FIRST, **ASSIGNED)
    flow.begin()
    until_even(crew, flow.places, *FIRST)
    crew.until("both read", lambda: all(crew[name].readings for name in FIRST))
    marks = {name: crew[name].mark() for name in FIRST}

    crew.start("c", **ASSIGNED)
    until_even(crew, flow.places, *FIRST, "c")
    crew.until("both let go", lambda: all(crew[n].since(marks[n], "revoked") for n in FIRST))
    for name in FIRST:
        (let_go,) = crew[name].since(marks[name], "revoked")
        assert len(let_go["partitions"]) == 1, "what must go, and no more"
    assert not read_twice(crew)

    crew.kill("a")
    until_even(crew, flow.places, "b", "c")
    (removed,) = wire.events(group, "MemberRemoved")
    assert (removed["member"], removed["reason"]) == (crew["a"].member, "session expired")
    crew.stop("b", "c")
    sql = "SELECT member_id, fence, topic, partition FROM ownership WHERE group_id = ?"
    rows = query_tables(archived(), sql, [group]).rows
    assert {(t, p) for _, _, t, p in rows} == flow.places


def until_even(crew: Crew, places: set[Place], *names: str) -> None:
    """Wait until these have these partitions among them, evenly."""
    members = [crew.members[name] for name in names]

    def is_even() -> bool:
        counts = [len(member.owned) for member in members]
        owned = sorted(place for member in members for place in member.owned)
        return max(counts) - min(counts) <= 1 and owned == sorted(places)

    crew.until(f"{', '.join(names)} share {len(places)} partitions", is_even)


def test_new_topics_and_partitions_come_by_themselves(shared_stack: Stack, group: str) -> None:
    """A topic is made that the expression matches, then it grows: no client does a thing."""
    admin = AdminClient({"bootstrap.servers": shared_stack.bootstrap_servers, "log_level": 2})
    stem = f"clicks-{uuid4().hex[:6]}"
    owned: set[tuple[str, int]] = set()
    with AssignedMember(
        group,
        {"bootstrap.servers": shared_stack.bootstrap_servers},
        timing=TIMING,
        on_assigned=lambda some: owned.update((each.topic, each.partition) for each in some),
        on_revoked=lambda some: owned.difference_update((e.topic, e.partition) for e in some),
    ) as member:
        member.subscribe(pattern=f"{stem}-[a-z]+", exclude=f"{stem}-test")
        for topic in (f"{stem}-eu", f"{stem}-test"):
            admin.create_topics([NewTopic(topic, 2, 1)])[topic].result()

        def has(places: set[tuple[str, int]]) -> bool:
            member.poll(0.1)
            return owned == places

        wait_until("the topic is found", lambda: has({(f"{stem}-eu", n) for n in range(2)}))
        admin.create_partitions([NewPartitions(f"{stem}-eu", 3)])[f"{stem}-eu"].result()
        wait_until("the partition is found", lambda: has({(f"{stem}-eu", n) for n in range(3)}))
        admin.delete_topics([f"{stem}-eu"])[f"{stem}-eu"].result()
        wait_until("the topic is gone", lambda: has(set()))
