"""The range assignor against Kafka's own test cases (those without racks)."""

import json
from pathlib import Path
from typing import Any

import pytest

from coordlib.coordinators.assignors import range as range_assignor
from coordlib.coordinators.assignors.model import Member

VECTORS: list[dict[str, Any]] = json.loads(
    Path(__file__).with_name("range_vectors.json").read_text()
)


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["name"])
def test_assigns_as_kafka_does(vector: dict[str, Any]) -> None:
    members = {
        name: Member(tuple(row["topics"]), instance=row["instance"])
        for name, row in vector["members"].items()
    }

    given = range_assignor.assign(members, vector["partitions"])

    actual = {
        member: {(topic, each) for topic, some in rows.items() for each in some}
        for member, rows in given.items()
    }
    assert {m: {tuple(pair) for pair in rows} for m, rows in vector["expected"].items()} == actual


def test_a_topic_that_does_not_exist_yet_is_ignored() -> None:
    """A group may subscribe before the topic is created; its members just get nothing of it."""
    members = {"m1": Member(("here", "missing"))}

    assert range_assignor.assign(members, {"here": 2}) == {"m1": {"here": (0, 1)}}


def test_the_order_in_which_members_are_listed_does_not_matter() -> None:
    """Leaders see members in the coordinator's order, which another leader may see differently."""
    members = {name: Member(("t",)) for name in ("b", "a", "c")}
    turned = dict(reversed(members.items()))
    partitions = {"t": 7}

    assert range_assignor.assign(members, partitions) == range_assignor.assign(turned, partitions)
