"""One group, one kind: what the shard does when requests of two kinds meet under one name.

The second kind here is a room: a group that is entered by Subscribe and left by Release.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, ClassVar

import msgspec
import pytest

from coordlib.core.engine import effects as fx
from coordlib.core.engine.effects import COMMITTED, GROUPS
from coordlib.core.engine.protocol import Registry
from coordlib.core.engine.step import Facts, Known, UnknownSavedVersion
from coordlib.core.engine.time import Timer
from coordlib.core.groups.classic.group import Group
from coordlib.core.groups.classic.protocol import CLASSIC
from coordlib.core.groups.group import GroupStep, Refused
from coordlib.core.groups.kind import OF_ALL_GROUPS, UNKNOWN_TOPICS, GroupKind
from coordlib.core.groups.offsets.tables import OFFSETS
from coordlib.core.groups.protocol import COMMITS, Groups
from coordlib.core.wire import api
from coordlib.core.wire.stored import CommittedValue, ShardPosition
from coordlib.errors import ErrorCode
from tests.core.groups.test_topics import listing
from tests.tools import core
from tests.tools.core import offsets_of, restore
from tests.tools.driving import (
    LEADER,
    Conversation,
    commit,
    delete,
    empty,
    fetch,
    heartbeat,
    join,
    stable,
)


class Guest(msgspec.Struct, frozen=True):
    client: str
    awaits_cover: int | None = None


class Room(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="room"):
    v: int = 1
    group: str
    state: str = "Empty"
    generation: int = 0
    members: dict[str, Guest] = {}
    #: Partition counts that it was told.
    topics: dict[str, int] = {}
    state_since_ms: int = 0
    state_since_clock_ms: int = 0
    is_quarantined: bool = False

    @property
    def is_empty(self) -> bool:
        return not self.members

    @property
    def is_settled(self) -> bool:
        return bool(self.members)

    @property
    def tells_subscriptions(self) -> bool:
        return False

    @property
    def kept_bytes(self) -> int:
        return 512 + 64 * len(self.members) + 64 * len(self.topics)

    def is_subscribed(self, _: str) -> bool:
        return True

    def reaction_timers(self) -> Iterator[Timer]:
        yield from ()


class RoomStep(GroupStep[Room]):
    __slots__ = ()
    DEAD = "Dead"

    def commit_fault(self, _: api.OffsetCommit) -> Refused:
        return None

    def member_fault(self, _member: str, _instance: str | None, _generation: int) -> ErrorCode:
        return ErrorCode.NONE

    def enter(self, state: str) -> None:
        self.change(state=state)


def enter(step: RoomStep, request: api.Subscribe) -> None:
    if request.strategy == "broken":
        raise ZeroDivisionError("enter")
    if request.strategy is not None:
        return step.refuse(request, ErrorCode.INVALID_REQUEST)
    if step.value is None:
        step.create("first member")
    members = {**step.live.members, request.client: Guest(request.client)}
    step.change(members=members, generation=step.live.generation + 1, state="Open")
    return step.answer(request, generation=step.live.generation)


def let_go(step: RoomStep, request: api.Release) -> None:
    step.change(members={}, state="Empty", state_since_clock_ms=step.at.clock_ms)
    step.answer(request)


def told(step: RoomStep, changed: Collection[str]) -> None:
    if "brittle" in step.live.members:
        raise ZeroDivisionError("told")
    step.change(topics={name: step.family.topics.get(name, 0) for name in changed})
    step.record("TopicsTold", reason=" ".join(changed))


class Rooms(GroupKind):
    """A kind of group beside the classic ones."""

    NAME = "room"
    VALUE = Room
    STEP = RoomStep
    APIS: ClassVar[dict[type[api.Request], Callable[[Any, Any], None]]] = {
        **OF_ALL_GROUPS,
        api.Subscribe: enter,
        api.Release: let_go,
    }
    topics_changed = staticmethod(told)

    def facts_of_members(self, value: Room, known: Known) -> Facts:
        assert known.settings
        return Facts(size_bytes=value.kept_bytes)

    def known_topics(self, value: Room) -> Mapping[str, int]:
        return value.topics

    def topics_index(self, _: Room) -> msgspec.Raw:
        return UNKNOWN_TOPICS

    def concerned(self, changed: Collection[str]) -> Callable[[msgspec.Raw], bool]:
        def never(wishes: msgspec.Raw) -> bool:
            raise AssertionError(f"a room is told of everything, also of {changed}: {wishes!r}")

        return never


def registry_of(*kinds: GroupKind) -> Registry:
    """Groups of these kinds."""
    return Registry(type("WithRooms", (Groups,), {"KINDS": kinds}))


@pytest.fixture(autouse=True)
def _rooms(monkeypatch: pytest.MonkeyPatch) -> None:
    """The job's registry with rooms in it."""
    monkeypatch.setattr(core, "REGISTRY", registry_of(CLASSIC, Rooms()))


def subscribe(client: str, **fields: Any) -> api.Subscribe:
    defaults = {"group": "g", "session_timeout_ms": 10_000, "rebalance_timeout_ms": 20_000}
    return api.Subscribe(v=1, id="u", client=client, topics=("t",), **{**defaults, **fields})


def release(client: str, member: str) -> api.Release:
    return api.Release(v=1, id="r", client=client, group="g", generation=1, member=member, cause=0)


def room(talk: Conversation) -> Room:
    group: Any = talk.group()
    assert isinstance(group, Room)
    return group


def an_open_room() -> Conversation:
    talk = Conversation()
    talk.send(subscribe("a"))
    return talk


def test_a_group_with_members_refuses_another_kind() -> None:
    """Two teams took the same name, or half of a fleet was upgraded: the others work on."""
    talk = stable()
    before = talk.group()

    lines = talk.send(subscribe("x"))

    assert lines[0] == "answer x#u Subscribe INCONSISTENT_GROUP_PROTOCOL"
    assert lines[1].startswith("event RequestRejected generation=2 cause=r0-")
    assert "This group is classic, not room" in lines[1]
    assert "client=x" in lines[1]
    assert len(lines) == 2
    assert talk.group() is before
    assert talk.send(heartbeat("a", 2, LEADER)) == []


def test_the_other_way_round_too() -> None:
    """A JoinGroup late in the log of a fleet that has moved on."""
    talk = an_open_room()
    before = room(talk)

    lines = talk.send(join("x"))

    assert lines[0] == "answer x#j1 JoinGroup INCONSISTENT_GROUP_PROTOCOL"
    assert "This group is room, not classic" in lines[1]
    assert room(talk) is before


def test_an_empty_group_becomes_of_another_kind_and_goes_on() -> None:
    """A fleet was stopped, upgraded and started: its offsets are there, its generation rises."""
    talk = empty()
    talk.send(commit("tool", offset=7))
    generation = talk.group().generation

    lines = talk.send(subscribe("x"))

    at = talk.next_offset - 1
    assert lines == [
        f"answer x#u Subscribe generation={generation + 1}",
        f"event GroupKindChanged generation={generation} cause=r0-{at} "
        'reason="was classic and empty"',
    ]
    assert msgspec.json.decode(talk.outputs[-1].value or b"")["kind"] == "room"
    assert (room(talk).generation, list(room(talk).members)) == (generation + 1, ["x"])
    assert next(iter(offsets_of(talk.shard.groups["g"])))[:2] == ("t", 0)


def test_the_new_kind_survives_the_batch_and_the_rebuild() -> None:
    """The next batch, or a job without its checkpoint, must not read a room as a classic group."""
    talk = empty()
    talk.send(commit("tool", offset=7))
    talk.end_batch()
    talk.send(subscribe("x"))
    wanted = room(talk)
    position = talk.shard.status().position
    talk.end_batch()
    assert room(talk) == wanted

    newest = {(o.topic, o.key): o.value for o in talk.outputs}
    talk.load(
        restore(
            [value for (topic, _), value in newest.items() if topic == GROUPS and value],
            [(key, v) for (topic, key), v in newest.items() if topic == COMMITTED and v],
            position,
        )
    )

    assert room(talk) == wanted
    assert sum(talk.shard.groups["g"].counts.values()) == 1


def test_a_room_that_emptied_becomes_classic_again() -> None:
    """The upgrade was taken back."""
    talk = an_open_room()
    talk.send(release("a", "a"))

    lines = talk.send(join("b"))

    assert [line for line in lines if "GroupKindChanged" in line] == [
        f"event GroupKindChanged generation=1 cause=r0-{talk.next_offset - 1} "
        'reason="was room and empty"'
    ]
    assert isinstance(talk.group(), Group)
    assert talk.group().generation == 2


def test_a_refused_request_changes_no_kind() -> None:
    """INV-24: who is refused has not moved the group to another protocol."""
    talk = empty()
    before = talk.group()

    lines = talk.send(subscribe("x", strategy="none that exists"))

    assert lines[0] == "answer x#u Subscribe INVALID_REQUEST"
    assert not [line for line in lines if "GroupKindChanged" in line]
    assert talk.group() is before
    assert talk.shard.groups["g"].stored.kind == "classic"


def test_a_change_of_kind_that_breaks_sets_the_group_aside_as_it_was() -> None:
    """INV-42: a defect in the new protocol must not cost the group its offsets."""
    talk = empty()
    before = talk.group()

    lines = talk.send(subscribe("x", strategy="broken"))
    talk.end_batch()

    assert [line.split()[1] for line in lines] == ["GroupQuarantined", "x#u"]
    assert lines[1] == "answer x#u Subscribe COORDINATOR_NOT_AVAILABLE"
    assert talk.group() == msgspec.structs.replace(before, is_quarantined=True)


def test_what_all_kinds_have_goes_to_the_kind_that_the_group_is_of() -> None:
    """Tools commit and delete without knowing which protocol a group speaks."""
    talk = an_open_room()

    assert talk.send(delete("ops"))[0] == "answer ops#d DeleteGroup NON_EMPTY_GROUP"
    talk.send(release("a", "a"))
    assert talk.send(commit("tool", offset=7))[-1].startswith("event OffsetsCommitted")
    room(talk)
    talk.send(delete("ops"))
    assert "g" not in talk.shard.groups


class RoomsWithoutOffsets(Rooms):
    """A kind that leaves commits and fetches to others."""

    APIS: ClassVar[dict[type[api.Request], Callable[[Any, Any], None]]] = {
        api.Subscribe: enter,
        api.Release: let_go,
    }


@pytest.fixture
def empty_room(monkeypatch: pytest.MonkeyPatch) -> Conversation:
    """An empty group of a kind that judges no commits."""
    monkeypatch.setattr(core, "REGISTRY", registry_of(CLASSIC, RoomsWithoutOffsets()))
    talk = an_open_room()
    talk.send(release("a", "a"))
    return talk


@pytest.mark.parametrize("checks", [True, False])
def test_a_commit_that_was_answered_is_kept_whichever_kind_judged_it(
    empty_room: Conversation, checks: bool
) -> None:
    """INV-22: the commit was answered and written to the topics, and the shard had forgotten it.

    The kind of the empty group has no handler for commits, so another kind judges them. Only a
    rebuild from the topics knew the offset.
    """
    talk = empty_room
    talk.settings = msgspec.structs.replace(talk.settings, checks_invariants=checks)
    talk.end_batch()

    lines = talk.send(commit("tool", offset=7))

    assert lines[:2] == ["commit t/0 offset=7", "answer tool#c OffsetCommit"]
    assert talk.send(fetch("x"))[0].endswith("offsets=[(topic=t offset=7 error=NONE)] parts=1")
    position = talk.shard.status().position
    talk.end_batch()
    assert sum(talk.shard.groups["g"].counts.values()) == 1
    newest = {(o.topic, o.key): o.value for o in talk.outputs}
    talk.load(
        restore(
            [value for (topic, _), value in newest.items() if topic == GROUPS and value],
            [(key, v) for (topic, key), v in newest.items() if topic == COMMITTED and v],
            position,
        )
    )
    assert sum(talk.shard.groups["g"].counts.values()) == 1


def test_a_group_keeps_its_kind_when_another_one_stores_its_offsets(
    empty_room: Conversation,
) -> None:
    """What only its own kind knows of the group must not be lost by a tool's commit."""
    before = room(empty_room)

    lines = empty_room.send(commit("tool", offset=7))

    assert "GroupKindChanged" not in str(lines)
    assert room(empty_room) is before
    event = msgspec.json.decode(empty_room.outputs[-1].value or b"")
    assert (event["type"], event["kind"]) == ("OffsetsCommitted", "room")


def test_a_session_is_not_renewed_by_positions_of_no_members() -> None:
    """INV-02: their place among the requests depends on where batches end, whatever the kind."""
    talk = an_open_room()
    heard = talk.shard.groups["g"].heard["a"]
    named = commit("tool", -1, "a", offset=7)

    talk.now_ms += 1_000
    assert talk.send(named, topic=COMMITS)[0] == "commit t/0 offset=7"
    assert talk.shard.groups["g"].heard["a"] == heard

    talk.tick(after_ms=1_000)
    talk.send(named)
    assert talk.shard.groups["g"].heard["a"] == talk.shard.clock_ms > heard


def emit_to(group: str) -> Callable[[Any, Any], None]:
    def handler(step: RoomStep, request: api.OffsetCommit) -> None:
        value = CommittedValue(
            offset=1, leader_epoch=-1, metadata="", commit_ms=1, commit_clock_ms=1, generation=-1,
            member="",
        )  # fmt: skip
        step.emit(fx.Put("committed", b"", group, OFFSETS.name, ("t", 0), value))
        step.answer(request)

    return handler


@pytest.mark.parametrize(("name", "to"), [("g", "h"), ("h", "h")])
def test_a_step_that_commits_to_no_group_of_its_own_is_taken_back(
    monkeypatch: pytest.MonkeyPatch, name: str, to: str
) -> None:
    """INV-42, INV-44: a defect of a kind. An acknowledged offset of a group that is not there, or
    of another one, would be lost by the shard and would stop the next rebuild."""
    rooms = Rooms()
    monkeypatch.setitem(vars(rooms), "APIS", {**Rooms.APIS, api.OffsetCommit: emit_to(to)})
    monkeypatch.setattr(core, "REGISTRY", registry_of(rooms, CLASSIC))
    talk = an_open_room()
    before = len(talk.outputs)

    lines = talk.send(commit("tool", group=name))

    assert [line.split()[1] for line in lines] == ["GroupQuarantined", "tool#c"]
    assert lines[1].endswith("OffsetCommit COORDINATOR_NOT_AVAILABLE")
    assert not [o for o in talk.outputs[before:] if o.topic == COMMITTED]
    assert list(talk.shard.groups) == ["g"]


def test_groups_are_told_of_topics_by_their_kind() -> None:
    """A topic was made that somebody waits for. Classic members look for it themselves."""
    talk = an_open_room()
    talk.send(join("b", group="h"))

    lines = talk.send(listing({"t": 3}))

    at = talk.next_offset - 1
    assert lines == [f"event TopicsTold generation=1 cause=r0-{at} reason=t"]
    assert room(talk).topics == {"t": 3}
    assert talk.send(listing({"t": 3})) == []


def test_a_group_that_cannot_bear_the_news_is_set_aside_alone() -> None:
    """INV-42: one listing concerns all groups of a shard."""
    talk = an_open_room()
    talk.send(subscribe("brittle", group="g"))
    talk.send(subscribe("c", group="h"))
    lines = talk.send(listing({"t": 2}))

    assert [line.split()[:2] for line in lines] == [
        ["event", "GroupQuarantined"],
        ["event[h]", "TopicsTold"],
    ]
    assert room(talk).is_quarantined
    assert talk.group("h").is_quarantined is False
    assert [line.split()[0] for line in talk.send(listing({"t": 3}))] == ["event[h]"]


def test_a_rebuild_knows_the_topics_that_groups_tell() -> None:
    """The listing lies in the log before the marker: nobody reads it again."""
    told_room = Room(group="g", topics={"b": 2, "a": 1})
    position = ShardPosition(clock_ms=1, previous_ms=1, offsets={"r": 5}, published=5)

    talk = Conversation()
    talk.load(restore([msgspec.json.encode(told_room)], [], position))

    assert talk.shard.topics == {"a": 1, "b": 2}


def test_a_kind_that_this_code_lacks_refuses_the_rebuild() -> None:
    """Somebody went back to code without rooms: a room must not pass for a classic group."""
    position = ShardPosition(clock_ms=1, previous_ms=1, offsets={"r": 5}, published=5)
    saved = msgspec.json.encode(Room(group="g"))

    with pytest.raises(UnknownSavedVersion, match="saved as 'room', which this code lacks"):
        restore([saved], [], position, Registry(Groups))
