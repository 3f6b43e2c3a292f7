"""Which topics users may share by an expression: one list, one rule, for both kinds of groups."""

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import coordlib
from coordlib.client import AssignedMember, ClassicMember
from coordlib.client.groups.member import Member
from coordlib.core.engine import effects
from coordlib.core.wire.topics import (
    ARCHIVED,
    CLAIMS_OUTPUTS,
    CLAIMS_OWN,
    OUTPUTS,
    OWN,
    is_users,
    own_topics,
)
from coordlib.job.background.topic_watch import KafkaCluster
from coordlib.kafka.plans import CLAIMS_TABLE, REPLACEABLE, read_plans
from coordlib.testing.fake_log import FakeLog

PAGE = Path(__file__).parents[3] / "docs/reference/wire.md"
EVERYTHING = {
    **{f"coord.{name}": 1 for name in OWN},
    **{f"coord.claims.{name}": 1 for name in CLAIMS_OWN},
    "__consumer_offsets": 1,
    "__mine": 1,
    "coord.orders": 1,
    "coord.": 1,
    "coord": 1,
    "orders": 2,
    "other.requests": 1,
    "coord.requests.dead": 1,
    "coord.claims": 1,
    "coord.claims.orders": 1,
}
USERS = {"coord.orders", "coord.", "coord", "orders", "other.requests", "coord.requests.dead"} | {
    "coord.claims",
    "coord.claims.orders",
}


def test_the_list_is_the_plan() -> None:
    """`coord.lag` came later, and was read by groups that matched everything: each sample of their
    lag was a record more that they were behind."""
    assert tuple(plan.name for plan in read_plans()) == OWN
    assert tuple(plan.name for plan in read_plans(pipeline=CLAIMS_TABLE)) == CLAIMS_OWN


def test_the_list_is_what_batches_are_written_to_and_what_the_archive_reads() -> None:
    """A topic that is written and not in the list would be read by groups that match everything."""
    assert effects.OUTPUT_TOPICS == OUTPUTS
    every = {*OWN, *(f"claims.{name}" for name in CLAIMS_OWN)}
    assert set(CLAIMS_OUTPUTS) < set(CLAIMS_OWN)
    assert set(ARCHIVED) < every
    assert set(REPLACEABLE) < every


def test_the_page_about_the_wire_has_the_topics_of_the_plan() -> None:
    """Clients in other languages are written by it: names, partitions, how long records stay."""
    row = r"^\| `coord\.([\w.]+)` \| (\w+) \| (\w+)"
    table = re.findall(row, PAGE.read_text(), re.MULTILINE)
    planned = [
        (f"{below}{plan.name}", of_shards if plan.partitions == "shards" else plan.partitions, plan)
        for table, below, of_shards in (("topics", "", "P"), (CLAIMS_TABLE, "claims.", "N"))
        for plan in read_plans(pipeline=table)
    ]

    assert table == [
        (
            name,
            "R" if partitions == "responses" else str(partitions),
            "compacted" if plan.config["cleanup.policy"] == "compact" else "deleted",
        )
        for name, partitions, plan in planned
    ]


def test_no_code_names_another_topic_below_the_prefix() -> None:
    """A misspelt name is a topic that the broker makes, or that nobody reads."""
    source = Path(coordlib.__file__).parent
    named = {
        name
        for path in source.rglob("*.py")
        for name in re.findall(r"prefix\}\.(\w+)[\"/,]", path.read_text())
    }

    assert {"requests", "progress"} <= named <= set(OWN)


def test_what_is_below_the_prefix_is_users_unless_it_is_of_the_plan() -> None:
    """`coord.orders` could be read by one kind of group and not by the other."""
    assert {name for name in EVERYTHING if is_users(name, own_topics("coord"))} == USERS


def given(member: Member[Any]) -> set[str]:
    return {each.topic for each in member.assignment}


@pytest.mark.parametrize("kind", [ClassicMember, AssignedMember])
def test_an_expression_matches_the_same_in_both_kinds_of_groups(kind: Any) -> None:
    """Who changes `group.protocol` must not lose a topic by it, or be given another one."""
    log = FakeLog(EVERYTHING)
    log.tell_topics()
    member: Member[Any] = kind("g", transport=log.transport(), client="a")
    member.subscribe(["^.*"])
    log.advance(3_000, member.poll)

    assert given(member) == USERS


def test_the_coordinators_own_are_not_given_by_name_where_the_coordinator_divides() -> None:
    """It is not told of them at all."""
    log = FakeLog(EVERYTHING)
    log.tell_topics()
    member = AssignedMember("g", transport=log.transport(), client="a")
    member.subscribe(["coord.lag", "__consumer_offsets", "coord.orders"])
    log.advance(3_000, member.poll)

    assert given(member) == {"coord.orders"}


#: Whoever looks writes nothing.
NOBODY: Any = None


@dataclass
class Topic:
    partitions: dict[int, None]
    error: Exception | None = None


@dataclass
class Metadata:
    topics: dict[str, Topic] = field(default_factory=dict)


def test_the_drivers_watch_goes_by_the_same_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is what a server-assigned group knows of the cluster."""
    cluster = KafkaCluster("coord", range(1), NOBODY, {"bootstrap.servers": "127.0.0.1:1"})

    class Admin:
        def list_topics(self, timeout: float) -> Metadata:
            return Metadata({n: Topic(dict.fromkeys(range(c))) for n, c in EVERYTHING.items()})

    monkeypatch.setattr(cluster, "_admin", Admin())

    assert cluster.look() == {name: EVERYTHING[name] for name in USERS}
