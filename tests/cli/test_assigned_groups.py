"""Server-assigned groups: the command reads from the topic what the coordinator would answer."""

from typing import Any

import msgspec
import pytest

from coordlib.cli.groups.view import SeenGroup, _group, _owners
from coordlib.core.engine.effects import GROUPS
from coordlib.core.wire import api
from coordlib.core.wire import consumer_protocol as cp
from coordlib.testing.fake_log import FakeLog

ENVELOPE: dict[str, Any] = {"v": 1, "group": "g"}


def subscribed(log: FakeLog, client: str) -> None:
    """A new member for `orders`."""
    times = {"session_timeout_ms": 10_000, "rebalance_timeout_ms": 60_000}
    log.append(
        0, api.Subscribe(**ENVELOPE, id=f"s-{client}", client=client, topics=("orders",), **times)
    )
    log.pump()


def stable() -> FakeLog:
    """x has both partitions."""
    log = FakeLog({"orders": 2})
    log.tell_topics()
    subscribed(log, "x")
    return log


def reconciling() -> FakeLog:
    """y came, and x was asked for one of its partitions."""
    log = stable()
    subscribed(log, "y")
    return log


def removed() -> FakeLog:
    """An operator took x's place away, who may be at work still."""
    log = stable()
    (member,) = seen(log).members
    leaver = api.Leaver(member=member)
    log.append(0, api.LeaveGroup(**ENVELOPE, id="l1", client="ops", members=(leaver,)))
    log.pump()
    return log


def seen(log: FakeLog) -> SeenGroup:
    """The group's newest value in the topic, as a reader sees it."""
    value = [output.value for output in log.outputs if output.topic == GROUPS][-1]
    assert value is not None
    group = _group(b"g", value)
    assert group is not None
    return group


def answered(log: FakeLog) -> api.DescribeGroupResponse:
    log.append(0, api.DescribeGroup(**ENVELOPE, id="d1", client="ops"))
    log.pump()
    values = [output.value or b"" for output in log.responses]
    told = [msgspec.json.decode(value, type=dict) for value in values]
    (answer,) = [v for v, t in zip(values, told, strict=True) if t["type"] == "DescribeGroup"]
    return msgspec.json.decode(answer, type=api.DescribeGroupResponse)


@pytest.mark.parametrize(
    ("make", "state", "awaited"),
    [
        (stable, "Stable", []),
        (reconciling, "Reconciling", [("x", api.NOT_RELEASED)]),
        (removed, "Reconciling", [("x", api.NOT_STOPPED)]),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_the_topic_tells_what_the_coordinator_answers(
    make: Any, state: str, awaited: list[tuple[str, str]]
) -> None:
    """The job may be down just when an operator asks who has what, and who holds the group up."""
    log = make()
    group, answer = seen(log), answered(log)
    assert answer.members is not msgspec.UNSET

    assert (group.kind, group.state) == (answer.kind, answer.state) == ("assigned", state)
    assert group.waits_for == answer.waits_for
    assert [(each.client, each.reason) for each in group.waits_for] == awaited
    told = {
        (topic, partition): member.member
        for member in answer.members
        for topic, some in cp.decode_assignment(member.assignment).partitions.items()
        for partition in some
    }
    assert _owners(group) == told
    assert len(told) == (0 if make is removed else 2)
