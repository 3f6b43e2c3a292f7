"""Which kind of group a line of history names, where the request was refused or its step broke.

The column is what an operator filters by: "which server-assigned groups refused somebody?". A
group's kind is named where the group is there, else the only kind that has such requests; where
several kinds have them and there is no group, there is no kind to name.
"""

from typing import Any

import msgspec
import pytest

from coordlib.core.engine.effects import EVENTS
from coordlib.core.groups.protocol import COMMITS
from coordlib.core.wire import api, codec
from tests.tools import assigned_groups as assigned
from tests.tools.assigned_groups import let_go, subscribe
from tests.tools.core import UNTRUSTED_TIME_MS, InputRecord
from tests.tools.defects import Defect, in_force
from tests.tools.driving import (
    SETTINGS,
    Conversation,
    commit,
    delete,
    delete_offsets,
    empty,
    heartbeat,
    join,
    leave,
    release,
    settings,
    stable,
    sync,
)

TOO_SHORT: dict[str, Any] = {"session_timeout_ms": 1}


def kinds_named(talk: Conversation, since: int = 0) -> list[tuple[str, str | None]]:
    """Type and kind of each line of history; readers of before find the kind in `protocol`."""
    events = [o.value or b"" for o in talk.outputs[since:] if o.topic == EVENTS]
    lines = [msgspec.json.decode(event) for event in events]
    assert [line["protocol"] for line in lines] == [line["kind"] for line in lines]
    return [(line["type"], line["kind"]) for line in lines]


@pytest.mark.parametrize(
    ("request_", "kind"),
    [
        (join("x", **TOO_SHORT), "classic"),
        (sync("x", 2, "x-t-0-9"), "classic"),
        (subscribe("x", **TOO_SHORT), "assigned"),
        (let_go("x", 2, "x-t-0-9", cause=1), "assigned"),
        (commit("x", 2, "x-t-0-9"), None),
        (delete("x"), None),
        (delete_offsets("x", ("t", 0)), None),
        (b"{", None),
        (join("x", reply=9), "classic"),
        (subscribe("x", reply=9), "assigned"),
        (delete("x", reply=9), None),
    ],
    ids=lambda value: type(value).__name__,
)
def test_of_no_group_the_only_kind_that_has_such_requests_is_named(
    request_: api.AnyRequest | bytes, kind: str | None
) -> None:
    """Nobody has used the name, so nothing but the request can tell which kind it is about."""
    talk = Conversation()
    talk.send(request_)

    assert [named for _, named in kinds_named(talk)] == [kind]


@pytest.mark.parametrize(
    "request_",
    [
        subscribe("x", **TOO_SHORT),
        join("x"),
        commit("x", 2, "x-t-0-9"),
        commit("a", 2, assigned.A, offsets=(api.CommittedOffset("t", 3, 1),)),
        delete("x"),
        delete_offsets("x", ("t", 0)),
        heartbeat("x", 2, "x-t-0-9", reply=9),
        b'{"v": 1, "type": "Nonsense", "id": "i", "client": "x", "group": "g"}',
    ],
    ids=lambda value: type(value).__name__,
)
def test_of_a_group_its_kind_is_named(request_: api.AnyRequest | bytes) -> None:
    """Whatever is refused in its name, also what could not be read further than the name."""
    talk = assigned.stable()
    before = len(talk.outputs)
    talk.send(request_)

    assert [named for _, named in kinds_named(talk, before)] == ["assigned"]


@pytest.mark.parametrize(
    ("make", "request_", "kind"),
    [
        (assigned.empty, join("x", **TOO_SHORT), "assigned"),
        (empty, subscribe("x", **TOO_SHORT), "classic"),
        (empty, subscribe("x", strategy="none such"), "classic"),
    ],
)
def test_an_empty_group_that_refuses_another_kind_is_of_its_own(
    make: Any, request_: api.Request, kind: str
) -> None:
    """INV-24: it would have become of the other kind, and did not."""
    talk = make()
    before = len(talk.outputs)
    talk.send(request_)

    assert kinds_named(talk, before) == [("RequestRejected", kind)]


def test_an_empty_group_that_changes_its_kind_has_the_new_one() -> None:
    """All lines of the record that changed it, so that a reader sees one group and not two."""
    talk = empty()
    before = len(talk.outputs)
    talk.send(subscribe("x"))

    assert {kind for _, kind in kinds_named(talk, before)} == {"assigned"}


@pytest.mark.parametrize(
    ("request_", "kind"),
    [(subscribe("x", group="h"), "assigned"), (delete("x", group="h"), None)],
)
def test_a_request_in_the_wrong_partition(request_: api.Request, kind: str | None) -> None:
    """A producer with a partitioner of its own: the group may be anywhere, or nowhere."""
    talk = Conversation(msgspec.structs.replace(SETTINGS, shards=2, shard=1))
    talk.send(request_)

    assert kinds_named(talk) == [("RequestRejected", kind)]


@pytest.mark.parametrize(
    ("request_", "kind"), [(join("x"), "classic"), (leave("x", "m"), None), (commit("x", 3), None)]
)
def test_a_request_among_the_positions(request_: api.Request, kind: str | None) -> None:
    """Only positions of those who are no members belong there."""
    talk = Conversation()
    talk.send(request_, topic=COMMITS)

    assert kinds_named(talk) == [("RequestRejected", kind)]


def test_a_record_without_the_brokers_time() -> None:
    """Nothing of it is read, so nothing of it is named."""
    talk = Conversation()
    talk.shard.judge(InputRecord("r", 0, UNTRUSTED_TIME_MS, codec.encode(join("x"))))
    talk.outputs += talk.shard.outputs

    assert kinds_named(talk) == [("RequestRejected", None)]


@pytest.mark.parametrize(
    ("request_", "kind"),
    [(subscribe("x"), "assigned"), (join("x"), "classic"), (commit("x"), None)],
    ids=lambda value: type(value).__name__,
)
def test_a_first_request_whose_step_breaks(request_: api.Request, kind: str | None) -> None:
    """INV-42: there is no group to set aside, and none of a kind that it would not have been."""
    talk = Conversation()
    with in_force([Defect("g", type(request_).__name__, 0)]):
        talk.send(request_)

    assert kinds_named(talk) == [("GroupQuarantined", kind)]
    assert talk.shard.rows == {}


def test_a_group_that_is_set_aside_and_released_keeps_its_kind() -> None:
    """An operator finds it by its kind."""
    talk = assigned.stable()
    before = len(talk.outputs)
    with in_force([Defect("g", "LeaveGroup", 0)]):
        talk.send(leave("a", assigned.A))
    talk.send(release("ops"))

    assert kinds_named(talk, before) == [
        ("GroupQuarantined", "assigned"),
        ("GroupReleased", "assigned"),
    ]


def test_a_position_that_makes_a_group_names_the_kind_that_it_has() -> None:
    """It is classic until somebody else joins; of rows that made none there is no kind."""
    talk = Conversation(settings(offset_metadata_length_max=1))
    talk.send(commit("tool", offsets=(api.CommittedOffset("t", 0, 1, metadata="long"),)))
    talk.send(commit("tool"))

    assert kinds_named(talk) == [
        ("CommitRefused", None),
        ("GroupCreated", "classic"),
        ("OffsetsCommitted", "classic"),
    ]


def test_lines_of_a_group_at_work_have_its_kind() -> None:
    """Nothing else has changed."""
    assert {kind for _, kind in kinds_named(stable())} == {"classic"}
    assert {kind for _, kind in kinds_named(assigned.stable())} == {"assigned"}


@pytest.mark.parametrize(
    ("space", "written"), [(None, None), ("group", None), ("planet", "planet"), (7, None)]
)
def test_the_space_of_consumer_groups_is_not_spelled_out(space: Any, written: str | None) -> None:
    """Whatever the request said: so lines of before, which have no space, mean the same."""
    talk = Conversation()
    talk.send(msgspec.json.encode({"v": 9, "type": "Heartbeat", "group": "g", "space": space}))

    (event,) = [msgspec.json.decode(o.value or b"") for o in talk.outputs if o.topic == EVENTS]
    assert (event["group"], event["space"]) == ("g", written)
