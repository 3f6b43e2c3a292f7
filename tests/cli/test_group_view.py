"""Groups as a reader of the topics sees them: states, waits, owners, subscriptions, and what newer
code wrote. The job may be down just when an operator asks."""

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from inline_snapshot import snapshot

from coordlib.cli.groups import app, view
from coordlib.cli.groups.view import GroupView, PartitionLine, SeenGroup, _group, _named, wants
from coordlib.cli.kit import where
from coordlib.cli.kit.listing import AsOf
from coordlib.cli.kit.where import Where
from coordlib.core import registry
from coordlib.core.engine.effects import GROUPS
from coordlib.core.groups.assigned.group import Group as AssignedGroup
from coordlib.core.groups.assigned.protocol import ASSIGNED
from coordlib.core.groups.classic import group as classic
from coordlib.core.groups.classic.protocol import CLASSIC
from coordlib.core.groups.offsets.tables import PENDING
from coordlib.core.wire import api, codec, stored
from coordlib.core.wire import consumer_protocol as cp
from coordlib.kafka.lag import UNKNOWN
from coordlib.kafka.logs import Place
from coordlib.testing.fake_log import FakeLog
from tests.cli.kit import Cli
from tests.tools import static_groups
from tests.tools.assigned_groups import subscribe
from tests.tools.driving import (
    FOLLOWER,
    LEADER,
    STATES,
    Conversation,
    commit,
    completing,
    describe,
    empty,
    join,
    leave,
    settings,
    settled,
    sync,
)

NOW = datetime(2026, 3, 2, tzinfo=UTC)


def seen_in(value: bytes | None) -> SeenGroup:
    assert value is not None
    found = _group(b"g", value)
    assert found is not None
    return found


def seen(talk: Conversation) -> SeenGroup:
    """The group as a reader of its topic sees it."""
    group: Any = talk.group()
    kind: Any = ASSIGNED if isinstance(group, AssignedGroup) else CLASSIC
    return seen_in(kind.save(group))


# -- whom a group waits for, and who has what -----------------------------------------------------


def announced() -> Conversation:
    """x was told its id; nobody has noticed."""
    talk = settled()
    talk.use(settings(requires_member_id=True))
    talk.send(join("x"))
    return talk


def removed() -> Conversation:
    """An operator removed b, who works; a has joined again, c is new."""
    talk = settled()
    talk.send_all(leave("ops", FOLLOWER), join("c"))
    talk.send(join("a", "j9", member=LEADER, generation=2))
    return talk


def half_synced() -> Conversation:
    """The leader has spoken, b has not asked yet."""
    talk = completing()
    talk.send(sync("a", 2, LEADER))
    return talk


WAITING: dict[str, tuple[Callable[[], Conversation], list[tuple[str, str]]]] = {
    "quiet": (settled, []),
    "announced": (announced, [("x-t-0-9", api.NOT_JOINED)]),
    "replaced": (static_groups.guarded, [(FOLLOWER, api.NOT_STOPPED)]),
    "removed": (removed, [(FOLLOWER, api.NOT_STOPPED)]),
    "preparing": (STATES["Preparing"], [(LEADER, api.NOT_REJOINED), (FOLLOWER, api.NOT_REJOINED)]),
    "completing": (completing, [(LEADER, api.NOT_SYNCED), (FOLLOWER, api.NOT_SYNCED)]),
    "half synced": (half_synced, [(FOLLOWER, api.NOT_SYNCED)]),
}


@pytest.mark.parametrize("name", WAITING)
def test_the_topic_has_whom_the_coordinator_names(name: str) -> None:
    make, expected = WAITING[name]
    talk = make()
    found = seen(talk)
    talk.send(describe("ops"))
    answer = msgspec.json.decode(talk.outputs[-1].value or b"", type=api.DescribeGroupResponse)

    assert [(each.member, each.reason) for each in found.waits_for] == expected
    assert found.waits_for == answer.waits_for
    assert {each.client for each in found.waits_for} <= {"a", "b", "x"}


ENVELOPE: dict[str, Any] = {"v": 1, "group": "g"}


def of_clients(*clients: str) -> FakeLog:
    """A server-assigned group of these, one after the other; `orders` has two partitions."""
    log = FakeLog({"orders": 2})
    log.tell_topics()
    times = {"session_timeout_ms": 10_000, "rebalance_timeout_ms": 60_000}
    for each in clients:
        fields = {"id": f"s-{each}", "client": each, "topics": ("orders",)}
        log.append(0, api.Subscribe(**ENVELOPE, **fields, **times))
        log.pump()
    return log


def newest(log: FakeLog) -> SeenGroup:
    return seen_in([output.value for output in log.outputs if output.topic == GROUPS][-1])


@pytest.mark.parametrize(
    ("clients", "is_removed", "state", "awaited"),
    [
        ("x", False, "Stable", []),
        ("xy", False, "Reconciling", [("x", api.NOT_RELEASED)]),
        ("x", True, "Reconciling", [("x", api.NOT_STOPPED)]),
    ],
    ids=["stable", "reconciling", "removed by an operator, and perhaps at work"],
)
def test_the_topic_has_the_owners_of_a_server_assigned_group(
    clients: str, is_removed: bool, state: str, awaited: list[tuple[str, str]]
) -> None:
    log = of_clients(*clients)
    if is_removed:
        (member,) = newest(log).members
        gone = (api.Leaver(member=member),)
        log.append(0, api.LeaveGroup(**ENVELOPE, id="l1", client="ops", members=gone))
        log.pump()
    group = newest(log)
    log.append(0, api.DescribeGroup(**ENVELOPE, id="d1", client="ops"))
    log.pump()
    (told,) = (v for r in log.responses if b'"DescribeGroup"' in (v := r.value or b""))
    answer = msgspec.json.decode(told, type=api.DescribeGroupResponse)
    assert answer.members is not msgspec.UNSET

    assert (group.kind, group.state) == (answer.kind, answer.state) == ("assigned", state)
    assert group.waits_for == answer.waits_for
    assert [(each.client, each.reason) for each in group.waits_for] == awaited
    owners = {
        (topic, partition): member.member
        for member in answer.members
        for topic, some in cp.decode_assignment(member.assignment).partitions.items()
        for partition in some
    }
    assert view._owners(group) == owners
    assert len(owners) == (0 if is_removed else 2)


# -- which groups read a topic --------------------------------------------------------------------


def assigned(**wish: Any) -> SeenGroup:
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
    assert wants(assigned(**wish), "orders") is is_wanted


def test_no_expression_wants_topics_of_kafka_or_of_the_coordinator() -> None:
    """Nobody is given these: a list of all groups would say nothing."""
    group = assigned(pattern=".*")

    assert not wants(group, "__consumer_offsets")
    assert not wants(group, "coord.requests", own={"coord.requests"})
    assert wants(group, "coord.mine", own={"coord.requests"})


def test_consumers_of_classic_groups_name_their_topics() -> None:
    """In any version of the layout, and whichever protocol is chosen."""
    group = joined({"range": subscription("t")}, {"range": subscription("orders", version=0)})

    assert [wants(group, topic) for topic in ("orders", "t", "order")] == [True, True, False]


@pytest.mark.parametrize("metadata", [b"", b"\x00", b"\xff" * 20])
def test_a_subscription_that_cannot_be_read_names_nothing(metadata: bytes) -> None:
    """Another make of client, or a defect: the others of its group are listed all the same."""
    assert wants(joined({"range": metadata, "sticky": subscription("orders")}), "orders")
    assert not wants(joined({"range": metadata}), "orders")


def test_what_is_no_consumer_reads_no_topics() -> None:
    """Workers of another protocol may have bytes that look like a subscription. A group without
    members keeps offsets; nobody reads."""
    assert not wants(joined({"range": subscription("orders")}, protocol_type="connect"), "orders")
    talk = empty()
    talk.send(commit("tool"))
    assert not wants(seen(talk), "t")


# -- what newer code wrote ------------------------------------------------------------------------


def saved(**changed: Any) -> bytes:
    """A classic group of two, with other fields."""
    return codec.encode(json.loads(CLASSIC.save(settled().group())) | changed)


def without(field: str) -> bytes:
    value = json.loads(saved())
    del value[field]
    return codec.encode(value)


NEWER = {
    "another kind": saved(kind="shared"),
    "a newer version": saved(v=2),
    "a newer version of other types": saved(v=2, members=[], state={"now": 1}, generation="9"),
    "a newer kind of other types": saved(kind="shared", v=[2], state=3, is_quarantined="no"),
    "a kind alone": b'{"kind":"shared"}',
    "a state that is none": saved(state="Waiting"),
    "no name": without("group"),
}


@pytest.mark.parametrize("name", NEWER)
def test_what_newer_code_wrote_is_a_group_without_members(name: str) -> None:
    """To guess at members or owners from fields of another meaning would mislead an operator."""
    found = seen_in(NEWER[name])

    assert found.unreadable is not None
    assert (found.group, found.member_count, dict(found.members)) == ("g", None, {})
    assert (found.waits_for, found.failure, found.leader) == ((), None, None)
    assert view._owners(found) == {}
    assert not wants(found, "t")


def test_a_group_of_this_version_is_readable() -> None:
    found = seen_in(saved())
    assert (found.unreadable, found.member_count, found.state) == (None, 2, "Stable")


@pytest.mark.parametrize("value", [b"", b"\xff", b"[]", b"{}", b"not ours", b'{"kind":7}'])
def test_what_is_no_group_is_left_out(value: bytes) -> None:
    """Whoever may write into the topic must not be able to end the command."""
    assert _group(b"g", value) is None
    assert _group(b"\xff", saved()) is None, "nor is a key that is no name"


def test_a_kind_that_has_a_decoder_and_no_description_is_not_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A third kind is registered before this command learns to show it."""
    monkeypatch.setitem(registry.REGISTRY.kinds, "room", registry.REGISTRY.kinds["classic"])
    assert seen_in(saved(kind="room")).unreadable == "kind room, version 1"


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Makes one shard with these groups, and a committed offset of `g`."""
    offset = stored.CommittedValue(
        offset=7, leader_epoch=-1, metadata="", commit_ms=0, commit_clock_ms=0, generation=3,
        member="m",
    )  # fmt: skip
    committed = {codec.encode(["g", "t", 0]): codec.encode(offset)}

    def made(*groups: tuple[bytes, bytes]) -> None:
        topics = {"coord.groups": dict(groups), "coord.committed": committed}
        monkeypatch.setattr(view, "newest_by_key", lambda _, topic, __: topics[topic])
        monkeypatch.setattr(view, "read_as_of", lambda *_: None)
        monkeypatch.setattr(view, "read_lag", lambda *given: dict.fromkeys(given[-1], UNKNOWN))
        metadata = SimpleNamespace(error=None, partitions={0: None})
        monkeypatch.setattr(Where, "reach", lambda _: {"coord.groups": metadata})
        monkeypatch.setattr(where, "now", lambda: NOW)

    return made


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Cli:
    return Cli(capsys, "groups", where=["-b", "localhost:9", "--prefix", "coord"])


def test_all_groups_are_listed_and_the_unreadable_are_named(
    serve: Callable[..., None], cli: Cli
) -> None:
    newer = (b"a", saved(kind="sh\x1b[2J")), (b"b", saved(v=2)), (b"d", b'{"kind":"shared"}')
    serve(*newer, (b"c", saved()))

    assert cli("list").shown == snapshot("""\
GROUP  STATE               MEMBERS  GENERATION  PROTOCOL
a      Unreadable(Stable)  -        2           range
b      Unreadable(Stable)  -        2           range
c      Stable              2        2           range
d      Unreadable          -        -           -
2> 3 groups cannot be read by this version of coord: a is of kind sh\\x1b[2J, version 1. Install the version that the job has.
2> 4 groups as of 2026-03-02T00:00:00.000Z
""")
    assert [row[0] for row in cli("list --state unreadable").rows[1:]] == ["a", "b", "d"]


def test_a_list_by_topic_tells_that_it_may_lack_groups(
    serve: Callable[..., None], cli: Cli
) -> None:
    """Before somebody deletes the topic: a group that cannot be read may read it."""
    serve((b"g", saved(v=2)))
    lines, said = cli("list --topic t --format json")

    assert json.loads(lines[0])["groups"] == []
    assert said.startswith("1 group cannot be read by this version of coord: g is of kind")


def test_describe_shows_offsets_of_a_group_that_cannot_be_read(
    serve: Callable[..., None], cli: Cli
) -> None:
    """Committed offsets lie beside the group, and are read all the same."""
    serve((b"g", saved(kind="shared")))

    assert cli("describe g").shown == snapshot("""\
GROUP             g
KIND              shared
STATE             Unreadable(Stable)
GENERATION        2
PROTOCOL          range
LEADER            -
MEMBERS           -
TOTAL-LAG         0
SHARD             0
AS-OF             2026-03-02T00:00:00.000Z, before the first batch of the job
TOPICS-NOT-FOUND  t

GROUP  TOPIC  PARTITION  CURRENT-OFFSET  LOG-END-OFFSET  LAG  LAG-SECONDS  LOST  CONSUMER-ID  CLIENT-ID
g      t      0          7               -               -    -            -     -            -
2> 1 group cannot be read by this version of coord: g is of kind shared, version 1. Install the version that the job has.
""")
    answer = cli.json("describe g")
    assert answer["unreadable"] == "kind shared, version 1"
    assert (answer["members"], answer["waits-for"]) == ([], [])


# -- what is shown only where there is something to show ------------------------------------------


def told_by(host: str | None, timestamp_ms: int | None, pending: str | None = None) -> GroupView:
    """A group of one, whose client named its host, or its own time of a position."""
    share = cp.encode_assignment(cp.Assignment(partitions={"t": (0,)}))
    fields: dict[str, Any] = {"session_timeout_ms": 1, "rebalance_timeout_ms": 1, "first_id": "j"}
    fields |= {} if host is None else {"host": host}
    member = classic.Member(
        member="m", client="c", reply=0, protocols=(), joined_ms=0, assignment=share, **fields
    )
    head = classic.Group(
        group="g", state=classic.State.STABLE, protocol_type=cp.CONSUMER, members={"m": member}
    )
    group = SeenGroup("g", "classic", "Stable", 1, "range", value=head)
    place = Place("t", 0)
    found = view._lines(group, {place: 5}, {place: "m"}, {place: UNKNOWN}, {place: timestamp_ms})
    lines = tuple(replace(line, pending=pending) for line in found)
    assert all(isinstance(line, PartitionLine) for line in lines)
    return GroupView(group, 0, lines, AsOf(1, 2, 0))


@pytest.mark.parametrize("host", ["rack-1-7", None])
@pytest.mark.parametrize("time_ms", [1_795_243_200_000, None])
@pytest.mark.parametrize("pending", ["r0-9", None])
def test_what_clients_said_has_columns_only_where_they_did(
    host: str | None, time_ms: int | None, pending: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    """Which machine is it, how old is what it has done, and why does it not read on? JSON always
    has the keys: a program that reads it needs no case for a missing one."""
    shown = told_by(host, time_ms, pending)
    app._print(shown, NOW)

    *_, headers, row = (line.split() for line in capsys.readouterr().out.splitlines())
    time = None if time_ms is None else "2026-11-21T06:40:00.000Z"
    given = {"HOST": host, "COMMITTED-TIMESTAMP": time, "PENDING": pending}
    own = {name: value for name, value in given.items() if value is not None}
    assert headers[headers.index("CLIENT-ID") + 1 :] == [*own]
    assert row[headers.index("CLIENT-ID") + 1 :] == [*own.values()]
    found: Any = json.loads(json.dumps(app._as_json(shown)))
    assert {name: found["offsets"][0][name.lower()] for name in given} == given
    assert found["members"] == [
        {"consumer-id": "m", "client-id": "c", "instance": None, "host": host}
    ]


def waiting(group: str, key: str, record: int) -> tuple[bytes, bytes]:
    row = stored.PendingOffset(
        topic="t", partition=0, offset=7, leader_epoch=-1, metadata="", record=record
    )
    value = stored.PendingValue(
        decided_by="kafka", client="c", id="p", member="m", generation=1, since_ms=0,
        offsets=(row,),
    )  # fmt: skip
    return PENDING.key(group, (key, 0)), codec.encode(value)


def test_the_oldest_offset_that_waits_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The topic is shared: with other groups, and with what is no pending offset at all."""
    kept = dict([waiting("g", "r0-9", 9), waiting("g", "r0-10", 10), waiting("h", "r0-1", 1)])
    kept |= {b'["id","x"]': b"{}", b"no JSON": b""}
    monkeypatch.setattr(view, "newest_by_key", lambda *_: kept)

    assert view._pending({}, "coord", 0, "g") == {Place("t", 0): "r0-9"}


def test_describe_says_that_the_leader_could_not_assign(capsys: pytest.CaptureFixture[str]) -> None:
    """The group is Stable and has members, and every partition is without an owner. A topic that
    is misspelt is named, or it looks like an empty one for ever."""
    talk = completing()
    why = {"error": "INCONSISTENT_GROUP_PROTOCOL", "message": "no such\x1b[2J customer"}
    talk.send(sync("a", 2, LEADER, **why))
    shown = GroupView(seen(talk), 0, (), None, ("late", "x\x1b"))
    assert _named(shown.group) == frozenset(), "its metadata are no subscription"
    app._print(shown, NOW)

    printed = capsys.readouterr()
    assert printed.err == (
        "Group g has no assignment: its leader could not assign partitions: "
        "INCONSISTENT_GROUP_PROTOCOL no such\\x1b[2J customer\n"
    )
    assert ["TOPICS-NOT-FOUND", "late, x\\x1b"] in [
        line.split(maxsplit=1) for line in printed.out.splitlines()
    ]
    found = app._as_json(shown)
    assert (found["failure"], found["missing-topics"]) == (why, ["late", "x\x1b"])
