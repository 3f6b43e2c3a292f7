"""Which groups read a topic: the command reads from the topic what members have asked for."""

from typing import Any

import pytest

from coordlib.cli.groups.view import SeenGroup, _group, wants
from coordlib.core.groups.assigned.group import Group as AssignedGroup
from coordlib.core.groups.assigned.protocol import ASSIGNED
from coordlib.core.groups.classic.protocol import CLASSIC
from coordlib.core.wire import consumer_protocol as cp
from tests.tools.assigned_groups import subscribe
from tests.tools.driving import Conversation, commit, empty, join


def seen(talk: Conversation) -> SeenGroup:
    """The group as a reader of its topic sees it."""
    group: Any = talk.group()
    kind: Any = ASSIGNED if isinstance(group, AssignedGroup) else CLASSIC
    found = _group(b"g", kind.save(group))
    assert found is not None
    return found


def divided(**wish: Any) -> SeenGroup:
    """A server-assigned group of one that wants this, and one that wants nothing else than x."""
    talk = Conversation()
    talk.send(subscribe("b", "j1", topics=("x",)))
    talk.send(subscribe("a", "j2", **wish))
    return seen(talk)


def joined(*offers: dict[str, bytes], protocol_type: str = cp.CONSUMER) -> SeenGroup:
    """A classic group; each member with what it offers."""
    talk = Conversation()
    for number, offer in enumerate(offers):
        talk.send(join("a", f"{number}", protocols=offer, protocol_type=protocol_type))
    return seen(talk)


def subscription(*topics: str, version: int = 1) -> bytes:
    return cp.encode_subscription(cp.Subscription(version=version, topics=topics))


@pytest.mark.parametrize(
    ("wish", "is_wanted"),
    [
        ({"topics": ("orders",)}, True),
        ({"topics": ("order", "orders-2")}, False),
        ({"pattern": "or.*"}, True),
        ({"pattern": "order"}, False),
        ({"pattern": ".*", "exclude": "orders"}, False),
        ({"pattern": ".*", "exclude": "orders", "topics": ("orders",)}, True),
    ],
)
def test_members_where_the_coordinator_divides_want_names_and_expressions(
    wish: dict[str, Any], is_wanted: bool
) -> None:
    """Whether the topic exists, and whether anybody owns a partition of it yet, is not asked."""
    assert wants(divided(**wish), "orders") is is_wanted


def test_no_expression_wants_topics_of_kafka_or_of_the_coordinator() -> None:
    """Nobody is given these: a list of all groups would say nothing."""
    group = divided(pattern=".*")

    assert not wants(group, "__consumer_offsets")
    assert not wants(group, "coord.requests", own={"coord.requests"})
    assert wants(group, "coord.mine", own={"coord.requests"})


def test_consumers_of_classic_groups_name_their_topics() -> None:
    """In any version of the layout, and whichever protocol is chosen."""
    group = joined({"range": subscription("t")}, {"range": subscription("orders", version=0)})

    assert wants(group, "orders")
    assert wants(group, "t")
    assert not wants(group, "order")


@pytest.mark.parametrize("metadata", [b"", b"\x00", b"\xff" * 20])
def test_a_subscription_that_cannot_be_read_names_nothing(metadata: bytes) -> None:
    """Another make of client, or a defect: the others of its group are listed all the same."""
    group = joined({"range": metadata, "sticky": subscription("orders")})

    assert wants(group, "orders")
    assert not wants(joined({"range": metadata}), "orders")


def test_what_is_no_consumer_reads_no_topics() -> None:
    """Workers of another protocol may have bytes that look like a subscription."""
    assert not wants(joined({"range": subscription("orders")}, protocol_type="connect"), "orders")


def test_a_group_without_members_wants_nothing() -> None:
    """It keeps offsets; nobody reads."""
    talk = empty()
    talk.send(commit("tool"))

    assert not wants(seen(talk), "t")
