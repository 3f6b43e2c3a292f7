"""Bytes that Kafka's own consumers wrote: read as they were configured, written back as they were.

`capture_consumer_bytes` says where they come from, and writes them afresh.
"""

import base64
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec
import pytest

from coordlib.core.groups.assignors import ownership
from coordlib.core.groups.assignors.model import member_of
from coordlib.core.groups.assignors.ownership import Report
from coordlib.core.wire import consumer_protocol as cp
from tests.core.wire import capture_consumer_bytes as capture
from tests.core.wire.capture_consumer_bytes import Captured
from tests.core.wire.talking_consumers import Librdkafka

if TYPE_CHECKING:
    from coordlib.local.broker import Broker

ROWS = [Captured(**row) for row in json.loads(capture.CAPTURED.read_text(encoding="utf-8"))]


def name_of(row: Captured) -> str:
    who = "static" if row.instance else "first" if len(row.topics) > 1 else "second"
    return f"{row.client}-{row.assignor}-{row.generation}-{who}"


all_rows = pytest.mark.parametrize("row", ROWS, ids=name_of)
sticky_rows = pytest.mark.parametrize(
    "row", [row for row in ROWS if "sticky" in row.assignor], ids=name_of
)


def is_java(row: Captured) -> bool:
    return row.client.startswith("kafka-clients")


def subscription(row: Captured) -> bytes:
    return base64.b64decode(row.subscription)


def assignment(row: Captured) -> bytes:
    return base64.b64decode(row.assignment)


def partitions(rows: Mapping[str, Sequence[int]]) -> dict[str, tuple[int, ...]]:
    """In order: librdkafka writes them in whichever order its assignor found them."""
    return {topic: tuple(sorted(some)) for topic, some in rows.items()}


def check_subscription(row: Captured) -> None:
    """User data aside, which is the assignor's."""
    found = cp.decode_subscription(subscription(row))
    # librdkafka's eager members do not say from which generation they come.
    tells_generation = is_java(row) or row.assignor == "cooperative-sticky"
    expected = cp.Subscription(
        version=3,
        topics=tuple(sorted(row.topics)),
        owned=partitions(row.kept),
        generation=row.came_from if tells_generation else -1,
        rack=row.rack if row.rack is not None or is_java(row) else "",
    )
    assert msgspec.structs.replace(found, user_data=None) == expected


def check_assignment(row: Captured) -> None:
    found = cp.decode_assignment(assignment(row))
    assert found.version == (3 if is_java(row) else 0)
    assert partitions(found.partitions) == partitions(row.given)


def test_the_captured_consumers_are_of_every_kind() -> None:
    """Both clients, eager and cooperative, with racks and without, owners of the generation before
    and newcomers, static members, user data and none."""
    kinds = {(row.client.split()[0], row.assignor) for row in ROWS}
    assert kinds == {
        *(("librdkafka", each) for each in ("range", "roundrobin", "cooperative-sticky")),
        *(("kafka-clients", each) for each in ("range", "sticky", "cooperative-sticky")),
    }
    assert {row.rack for row in ROWS} == {None, "zone-ü", "zone-2"}
    assert {row.instance for row in ROWS} == {None, "till-7"}
    assert any(row.kept for row in ROWS)


@all_rows
def test_a_subscription_says_how_its_consumer_was_configured(row: Captured) -> None:
    """Topics, rack, what it kept while it joined, and from which generation it came."""
    check_subscription(row)


@all_rows
def test_an_assignment_says_what_its_consumer_then_held(row: Captured) -> None:
    """By the consumer's own account, not by these bytes."""
    check_assignment(row)


@all_rows
def test_what_was_read_is_written_back_byte_for_byte(row: Captured) -> None:
    """A member whose metadata changed in passing would be taken for one that rejoins with news."""
    read = cp.decode_subscription(subscription(row)), cp.decode_assignment(assignment(row))

    assert cp.encode_subscription(read[0]) == subscription(row)
    assert cp.encode_assignment(read[1]) == assignment(row)


@all_rows
def test_the_topics_alone_are_those_of_the_whole(row: Captured) -> None:
    """Retention reads no more than these: offsets of other topics expire."""
    assert cp.decode_topics(subscription(row)) == tuple(sorted(row.topics))


@sticky_rows
def test_sticky_members_tell_the_leader_what_they_had(row: Captured) -> None:
    """A leader of coordlib must be as sticky to them as their own leader is."""
    member = member_of(cp.decode_subscription(subscription(row)))

    if row.assignor == "sticky":
        is_new = row.came_from < 0
        expected = Report() if is_new else Report(partitions(row.had), row.came_from)
        assert ownership.sticky_report(member) == expected
    else:
        expected = Report(partitions(row.kept), row.came_from)
        assert ownership.cooperative_report(member) == expected


@sticky_rows
def test_user_data_are_those_that_coordlib_writes(row: Captured) -> None:
    """librdkafka's cooperative members write what Java's eager ones do, in no order; what they own
    stands in the subscription too, and nobody reads it here."""
    told = cp.decode_subscription(subscription(row)).user_data
    is_new = row.came_from < 0
    if row.assignor == "sticky":
        had = None if is_new else partitions(row.had)
        assert told == ownership.encode_sticky(had, row.came_from)
    elif is_java(row):
        assert told == ownership.encode_cooperative(row.came_from)
    elif is_new:
        assert told == b""
    else:
        said = ownership.decode_sticky(told)
        assert (partitions(said.owned), said.generation) == (partitions(row.had), row.came_from)


@pytest.mark.stack
def test_the_installed_librdkafka_writes_what_the_captured_one_did(broker: "Broker") -> None:
    """An upgrade of the library must not bring bytes that are read in another way."""
    bootstrap = broker.bootstrap_servers
    capture.create_topics(bootstrap)

    rows = [
        row
        for story in capture.OF_LIBRDKAFKA
        for row in capture.capture(bootstrap, Librdkafka, story)
    ]

    assert len(rows) == sum(not is_java(row) for row in ROWS)
    for row in rows:
        check_subscription(row)
        check_assignment(row)
