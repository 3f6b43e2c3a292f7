"""How an input finds its handler: by a method of that name, so that a subclass may replace it."""

from typing import Any, get_args

import pytest

from coordlib.client.groups.assigned import AssignedMachine
from coordlib.client.groups.assignors import BUILT_IN
from coordlib.client.groups.classic import ClassicMachine
from coordlib.client.groups.machine import MemberMachine
from coordlib.client.kit import events as sg
from coordlib.client.kit.requests import Identity, Timing
from coordlib.core.wire import api
from coordlib.errors import CoordError

PROGRESS = api.Progress(shard=1, offset=7, time_ms=0)
SHARED: dict[str, sg.Input] = {
    "_polled": sg.Polled(0),
    "_called_back": sg.CalledBack(0, sg.Callback.LOST),
    "_unsubscribe": sg.Unsubscribe(0),
    "_close": sg.Close(0),
    "_commit": sg.CommitOffsets(0, 1, ()),
    "_commit_with_writes": sg.CommitWithWrites(0, 1, (), "/lake/t", "a-cafe-1", 1),
    "_decide": sg.Decide(0, 1, "r0-1", "commit", "a-cafe-1", 1),
    "_commit_checked": sg.CommitChecked(0, "r0-1", None),
    "_fetch": sg.FetchOffsets(0, 1, None),
    "_received": sg.Received(0, PROGRESS),
    "_read_to_end": sg.ReadToEnd(0, 0),
    "_elapsed": sg.Elapsed(0),
    "_acknowledged": sg.Acknowledged(0, "cafe-1", 40, 0),
    "_log_cut": sg.LogCut(0),
    "_not_written": sg.NotWritten(0, "cafe-1"),
}
CLASSIC: dict[str, sg.Input] = {
    "_subscribe": sg.WantTopics(0, ("t",)),
    "_divided": sg.Divided(0, 1, ()),
    "_not_divided": sg.NotDivided(0, 1, "why"),
    "_assignor_failed": sg.AssignorFailed(
        0, 1, CoordError("why"), sg.WhyNot("UNKNOWN_SERVER_ERROR", "why")
    ),
    "_topics_seen": sg.TopicsSeen(0, {}),
    "_topics_not_seen": sg.TopicsNotSeen(0),
}
ASSIGNED: dict[str, sg.Input] = {"_subscribe": sg.WantSubscription(0, sg.Subscription(("t",)))}
CASES = [
    (kind, name, event)
    for kind, own in ((ClassicMachine, CLASSIC), (AssignedMachine, ASSIGNED))
    for name, event in (SHARED | own).items()
]


def member(kind: type[MemberMachine]) -> MemberMachine:
    identity = Identity("orders", "app", "cafe", shard=1, reply=3, incarnation="AbCdEfGh")
    if issubclass(kind, ClassicMachine):
        return kind(identity, Timing(), (BUILT_IN["range"](),))
    assert issubclass(kind, AssignedMachine)
    return kind(identity, Timing())


@pytest.mark.parametrize(("kind", "name", "event"), CASES)
def test_a_handler_that_a_subclass_overrides_is_called(
    kind: type[MemberMachine], name: str, event: sg.Input
) -> None:
    """Tables of functions went past the override: nothing told whoever wrote it."""
    assert callable(getattr(kind, name))
    taken: list[Any] = []
    own = type("Own", (kind,), {name: lambda _, it: taken.append(it)})

    assert member(own).handle(event) == []
    assert taken == [event]


def test_every_input_has_a_handler() -> None:
    """One that is added to the unions and to no protocol would raise in a user's poll."""
    handled = {type(event) for _, _, event in CASES}

    assert set(get_args(sg.Input)) == handled


@pytest.mark.parametrize(
    ("kind", "event"),
    [(ClassicMachine, ASSIGNED["_subscribe"]), (AssignedMachine, sg.TopicsNotSeen(0))],
)
def test_an_input_of_the_other_protocol_is_a_defect(
    kind: type[MemberMachine], event: sg.Input
) -> None:
    """To take it for nothing would hide that a shell drives the wrong machine."""
    with pytest.raises(TypeError, match="is no input of a member"):
        member(kind).handle(event)
