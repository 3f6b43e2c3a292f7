"""Groups whose processes run different assignors, over a real broker and Spark job."""

from itertools import groupby
from typing import Final

import pytest

from tests.stack.crew import Crew
from tests.stack.flow import Flow
from tests.stack.truths import generations, holds, read_twice
from tests.stack.wire import Wire

pytestmark = pytest.mark.stack

OLD: Final = {"partition__assignment__strategy": "range"}
BETWEEN: Final = {"partition__assignment__strategy": "cooperative-sticky,range"}
NEW: Final = {"partition__assignment__strategy": "cooperative-sticky"}


def test_an_eager_member_is_refused_by_a_cooperative_group(
    crew: Crew, flow: Flow, wire: Wire, group: str
) -> None:
    """Somebody starts a process of an old release. Its program is told why it cannot be let in, and
    those who work do not notice."""
    crew.start("a", "b", **NEW)
    flow.begin()
    crew.until_shared(flow.places, "a", "b")
    before = len(generations(wire, group))
    marks = {name: crew[name].mark() for name in ("a", "b")}

    crew.start("old", **OLD)

    assert crew.ended("old") == 1
    (failed,) = crew["old"].told("failed")
    assert failed["code"] == "INCONSISTENT_GROUP_PROTOCOL"
    assert "INCONSISTENT_GROUP_PROTOCOL" in crew["old"].log.read_text()
    seen = {name: len(crew[name].readings) for name in marks}
    crew.until("they read on", lambda: all(len(crew[n].readings) > seen[n] for n in marks))
    for name, mark in marks.items():
        assert not crew[name].since(mark, "assigned", "revoking", "revoked", "lost")
    assert len(generations(wire, group)) == before
    assert {e["detail"]["client"] for e in wire.events(group, "MemberJoined")} == {"a", "b"}
    holds(crew, flow, wire, group)
    assert not read_twice(crew)


@pytest.mark.chaos
def test_a_group_is_upgraded_process_by_process(
    crew: Crew, flow: Flow, wire: Wire, group: str
) -> None:
    """From range to cooperative-sticky in the two rounds that Kafka prescribes (KIP-429): first all
    understand both, then all drop the old one. Records come all the time."""
    crew.start("old-1", "old-2", **OLD)
    flow.begin()
    crew.until_shared(flow.places, "old-1", "old-2")

    steps = (
        ("old-1", "both-1", BETWEEN, "old-2", "range"),
        ("old-2", "both-2", BETWEEN, "both-1", "cooperative-sticky"),
        ("both-1", "new-1", NEW, "both-2", "cooperative-sticky"),
        ("both-2", "new-2", NEW, "new-1", "cooperative-sticky"),
    )
    for leaves, comes, strategy, stays, protocol in steps:
        crew.stop(leaves)
        crew.until_shared(flow.places, stays)
        crew.start(comes, **strategy)
        crew.until_shared(flow.places, comes, stays)
        assert generations(wire, group)[-1]["detail"]["protocol"] == protocol

    protocols = [event["detail"]["protocol"] for event in generations(wire, group)]
    assert [protocol for protocol, _ in groupby(protocols)] == ["range", "cooperative-sticky"]
    assert not [m.name for m in crew.members.values() if m.told("failed") or m.told("lost")]
    # Those of the second round are cooperative: the first kept what it did not have to give away.
    had, gave = crew["new-1"].partitions("assigned"), crew["new-1"].partitions("revoked")
    assert (len(set(had)), len(gave)) == (6, 3)
    holds(crew, flow, wire, group)
    assert not read_twice(crew)
