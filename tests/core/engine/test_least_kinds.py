"""The least that is a kind: what a new protocol must bring, and what it has for nothing.

Three kinds with request types of their own, none of which touches the engine: a counter, a place
with members and a table (as a cluster of brokers has), and a lease that ends by the clock and obeys
a job record of its own (as a transactional id will).
"""

import inspect
from collections.abc import Iterable, Mapping, Set
from typing import Any, ClassVar

import msgspec
import pytest

from coordlib.core.engine.effects import At, Output
from coordlib.core.engine.protocol import Family, Input, Registry
from coordlib.core.engine.rows import Row
from coordlib.core.engine.step import (
    ANY_GENERATION,
    Decide,
    Facts,
    Kind,
    Known,
    Step,
    UnknownSavedVersion,
)
from coordlib.core.engine.tables import Table
from coordlib.core.engine.time import Due
from coordlib.core.groups.protocol import Groups
from coordlib.core.wire import api, codec
from coordlib.errors import ErrorCode
from tests.tools import core
from tests.tools.driving import Conversation, describe, join, release, settled

# -- a counter -------------------------------------------------------------------------------


class Count(api.Request, tag="Count", frozen=True):
    SPACE: ClassVar[str] = "counter"


class CountResponse(api.Response, tag="Count", frozen=True):
    count: int = 0


class Counter(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="counter"):
    v: int = 1
    group: str
    count: int = 0
    is_quarantined: bool = False


def count(step: Step[Counter], request: Count) -> None:
    if step.value is None:
        step.create("first count")
    if request.client == "broken":
        raise ZeroDivisionError("count")
    step.change(count=step.live.count + 1)
    step.answer(request, count=step.live.count)


class Counters(Kind):
    NAME, SPACE, VALUE = "counter", "counter", Counter
    APIS: ClassVar[dict[Any, Any]] = {Count: count}

    def create(self, name: str, at: At) -> Counter:
        return Counter(group=name)

    def facts(self, value: Counter, known: Known) -> Facts:
        return Facts(size_bytes=256)


class CounterFamily(Family):
    SPACE, HEADS, KINDS = "counter", "counters", (Counters(),)


def test_the_smallest_kind_has_less_than_30_lines() -> None:
    """What a protocol must bring. Its requests and their answers come beside."""
    parts = (Counter, count, Counters, CounterFamily)
    lines = [line for each in parts for line in inspect.getsource(each).splitlines() if line]

    assert len(lines) < 30


# -- a club: members, sessions, a table -------------------------------------------------------


class Enter(api.Request, tag="Enter", frozen=True):
    SPACE: ClassVar[str] = "club"
    session_timeout_ms: int = 10_000


class EnterResponse(api.Response, tag="Enter", frozen=True):
    pass


class Note(api.Request, tag="Note", frozen=True):
    SPACE: ClassVar[str] = "club"
    page: str = ""
    text: str | None = None


class NoteResponse(api.Response, tag="Note", frozen=True):
    before: str | None = None


class Line(msgspec.Struct, frozen=True):
    text: str


NOTES = Table("notes", "notes", Line, Line, lambda line: line, lambda line: 16 + len(line.text))


class Club(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="club"):
    v: int = 1
    group: str
    generation: int = 0
    members: dict[str, int] = {}
    is_quarantined: bool = False


def enter(step: Step[Club], request: Enter) -> None:
    if step.value is None:
        step.create("first member")
    members = {**step.live.members, request.client: request.session_timeout_ms}
    step.change(members=members, generation=step.live.generation + 1)
    step.answer(request)


def note(step: Step[Club], request: Note) -> None:
    if step.value is None or request.client not in step.live.members:
        return step.refuse(request, ErrorCode.UNKNOWN_MEMBER_ID)
    before = step.entry(NOTES, request.page, 0)
    line = None if request.text is None else Line(request.text)
    step.put_entry(NOTES, (request.page, 0), line)
    return step.answer(request, before=before.text if before else None)


class Clubs(Kind):
    NAME, SPACE, VALUE, TABLES = "club", "club", Club, (NOTES,)
    APIS: ClassVar[dict[Any, Any]] = {
        Enter: enter,
        Note: note,
        api.Heartbeat: lambda step, request: step.refuse(request, ErrorCode.UNKNOWN_MEMBER_ID),
    }

    def create(self, name: str, at: At) -> Club:
        return Club(group=name)

    def is_empty(self, value: Club) -> bool:
        return not value.members

    def sessions(self, value: Club) -> Set[str]:
        return value.members.keys()

    def facts(self, value: Club, known: Known) -> Facts:
        if value is known.value:
            return known.facts
        return Facts(
            fast_path_generation=ANY_GENERATION,
            next_due_ms=self.next_due(value, known.row.heard).due_ms,
            timeout_ms=min(value.members.values(), default=0),
            replies=(0,),
            size_bytes=256 + 64 * len(value.members),
        )

    def next_due(self, value: Club, heard: Mapping[str, int]) -> Due:
        dues = (Due(heard[each] + ms, "session", each) for each, ms in value.members.items())
        return min(dues, default=super().next_due(value, heard))

    def fire(self, step: Step[Club], due: Due) -> None:
        step.cause = due.name
        left = {name: ms for name, ms in step.live.members.items() if name != due.member}
        step.change(members=left)
        step.record("MemberGone", member=due.member)


class ClubFamily(Family):
    SPACE, HEADS, KINDS = "club", "clubs", (Clubs(),)


# -- a lease: no members; it ends by a look, and obeys a job record ----------------------------


class Lease(api.Request, tag="Lease", frozen=True, kw_only=True):
    SPACE: ClassVar[str] = "lease"
    group: str = msgspec.field(name="lease_id")


class LeaseResponse(api.Response, tag="Lease", frozen=True):
    pass


class Recall(api.Control, tag="Recall", frozen=True, kw_only=True):
    """All leases whose ids begin so end now."""

    prefix: str


class Leased(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="lease"):
    v: int = 1
    group: str
    until_ms: int
    is_quarantined: bool = False


def lease(step: Step[Leased], request: Lease) -> None:
    if step.value is None:
        step.create("leased")
    step.change(until_ms=step.at.clock_ms + 600_000)
    step.answer(request)


class Leases(Kind):
    NAME, SPACE, VALUE = "lease", "lease", Leased
    APIS: ClassVar[dict[Any, Any]] = {Lease: lease}

    def create(self, name: str, at: At) -> Leased:
        return Leased(group=name, until_ms=at.clock_ms)

    def facts(self, value: Leased, known: Known) -> Facts:
        return Facts(next_maintenance_ms=value.until_ms, size_bytes=128)

    def maintain(self, step: Step[Leased], checked_ms: int) -> None:
        if step.live.until_ms <= checked_ms:
            step.record("LeaseEnded")
            step.delete()


class LeaseFamily(Family):
    SPACE, HEADS, KINDS, JOB_RECORDS = "lease", "leases", (Leases(),), (Recall,)

    def judge(self, record: Recall, rows: Iterable[tuple[str, Row]]) -> list[tuple[str, Decide]]:
        if record.prefix == "broken":
            raise ZeroDivisionError("judge")
        names = [name for name, _ in rows if name.startswith(record.prefix)]
        return [(name, _recall) for name in sorted([*names, "nobody"])]


def _recall(step: Step[Leased]) -> None:
    step.record("LeaseRecalled")
    step.delete()


# -- what they have for nothing ----------------------------------------------------------------


@pytest.fixture(autouse=True)
def _kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    """The job's families, and these beside them."""
    registry = Registry(Groups, CounterFamily, ClubFamily, LeaseFamily)
    monkeypatch.setattr(core, "REGISTRY", registry)


def asks(type_: type[api.Request], name: str = "g", client: str = "a", **fields: Any) -> Any:
    return type_(v=1, id="x", client=client, group=name, **fields)


def said(talk: Conversation, request: Any, after_ms: int = 0) -> list[dict[str, Any]]:
    """Everything that a record is answered with, as it stands in the topics."""
    before = len(talk.outputs)
    talk.send(msgspec.json.encode(request), after_ms=after_ms)
    return [msgspec.json.decode(each.value) for each in talk.outputs[before:] if each.value]


def rebuilt(talk: Conversation) -> None:
    """Go on as a job that has lost its checkpoint."""
    position = talk.shard.status().position
    talk.end_batch_raw()
    talk.load(core.restored(talk.outputs, position))


def test_each_space_has_names_of_its_own() -> None:
    """A counter, a club and a lease called as a group is."""
    talk = settled()
    before = talk.group()
    for request in (Count, Enter, Lease):
        assert said(talk, asks(request))[-1]["error"] == "NONE"

    assert talk.group() is before
    assert list(talk.shard.rows) == [(s, "g") for s in ("group", "counter", "club", "lease")]
    talk.end_batch_raw()
    assert list(talk.shard.rows) == [(s, "g") for s in ("club", "counter", "group", "lease")]


def test_a_name_may_stand_in_another_field() -> None:
    """The engine asks the request for its entity, and reads no field itself."""
    assert b'"lease_id":"g"' in msgspec.json.encode(asks(Lease))


def test_their_heads_and_tables_survive_batches_and_rebuilds() -> None:
    """INV-38: head and entries come back from the compacted topics that the kinds name."""
    talk = Conversation()
    for request in (asks(Count), asks(Count), asks(Enter), asks(Note, page="p", text="one")):
        said(talk, request)
    said(talk, asks(Note, page="q", text="two"))
    said(talk, asks(Note, page="q"))
    for again in (talk.end_batch_raw, lambda: rebuilt(talk)):
        again()
        assert talk.shard.row("g", "counter").value.count == 2
        row = talk.shard.row("g", "club")
        assert [(name, entry.text) for name, _, entry in row.entries(NOTES)] == [("p", "one")]
    assert said(talk, asks(Note, page="p", text="new"))[-1]["before"] == "one"


def test_an_entry_is_kept_though_the_head_is_the_same() -> None:
    """INV-22: what was answered is stored; and the head is not written again for it."""
    talk = Conversation()
    said(talk, asks(Enter))
    talk.end_batch_raw()
    written = said(talk, asks(Note, page="p", text="one"))

    assert [each.get("text") or each["type"] for each in written] == ["one", "Note"]
    assert not talk.shard.row("g", "club").changed
    assert sum(talk.shard.row("g", "club").counts.values()) == 1
    assert [each.topic for each in talk.end_batch_raw()] == ["responses"]  # Progress


def test_a_step_reads_what_it_has_put_itself() -> None:
    """Rows of one request may meet the same entry twice."""
    talk, seen = Conversation(), []
    said(talk, asks(Enter))

    def twice(step: Step[Club]) -> None:
        step.put_entry(NOTES, ("p", 0), Line("one"))
        seen.append(step.entry(NOTES, "p", 0))
        step.put_entry(NOTES, ("p", 0), None)
        seen.append(step.entry(NOTES, "p", 0))

    talk.shard._let(talk.shard._here(), ("club", "g"), twice)
    assert seen == [Line("one"), None]
    assert sum(talk.shard.row("g", "club").counts.values()) == 0


def test_heartbeats_put_off_a_session_and_silence_ends_it() -> None:
    """Quiet heartbeats find their entity by its space."""
    talk = Conversation()
    said(talk, asks(Enter))
    beat = asks(api.Heartbeat, space="club", generation=0, member="a")
    for _ in range(6):
        assert said(talk, beat, after_ms=2_000) == []
    gone = [line for _ in range(6) for line in talk.tick(after_ms=2_000)]

    assert [line.split()[1] for line in gone] == ["MemberGone"]
    assert "deadline:session:a" in gone[0]
    assert talk.shard.row("g", "club").value.members == {}


def test_a_lease_ends_by_a_look_at_the_next_check() -> None:
    """No deadline, so no tick is written for it: it goes with the next record."""
    talk = Conversation()
    said(talk, asks(Lease))
    assert not talk.shard.status().has_deadline
    lines = [line for _ in range(21) for line in talk.tick(after_ms=60_000)]

    assert [line.split()[1] for line in lines] == ["LeaseEnded"]
    assert talk.shard.rows == {}
    rebuilt(talk)
    assert talk.shard.rows == {}


def test_a_job_record_that_breaks_its_family_is_refused_and_the_log_goes_on() -> None:
    """INV-42: the record would come again after every restart, and stop all entities of a shard."""
    talk = Conversation()
    said(talk, asks(Lease))
    (line,) = said(talk, Recall(v=1, prefix="broken"))
    assert (line["type"], line["detail"]["error"]) == ("RequestRejected", "UNKNOWN_SERVER_ERROR")
    assert said(talk, asks(Lease))[-1]["error"] == "NONE"


def test_a_look_that_leaves_what_is_due_comes_again_at_the_next_check(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An id that is in use is due and stays: the shard must neither hang nor forget it."""
    looks: list[int] = []
    monkeypatch.setattr(Leases, "maintain", lambda _, __, checked_ms: looks.append(checked_ms))
    talk = Conversation()
    said(talk, asks(Lease))
    for _ in range(45):
        talk.tick(after_ms=60_000)

    assert len(looks) == len(set(looks)) >= 3


def test_a_kind_whose_facts_break_sets_its_entity_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    """INV-42: the facts of what is set aside are asked for once more, and may break again."""
    talk = Conversation()
    said(talk, asks(Count))
    monkeypatch.setattr(Counters, "facts", lambda *_: 1 / 0)

    assert [each["type"] for each in said(talk, asks(Count))] == ["GroupQuarantined", "Count"]
    assert talk.shard.row("g", "counter").is_quarantined
    assert talk.shard.row("g", "counter").value.count == 1


def test_a_deleted_entity_leaves_no_entries() -> None:
    """A rebuild would give them to the next one of that name; also what the step itself put."""
    talk = Conversation()
    said(talk, asks(Enter))
    said(talk, asks(Note, page="p", text="one"))

    def close(step: Step[Club]) -> None:
        step.put_entry(NOTES, ("q", 0), Line("two"))
        step.forget_entries()
        step.delete()

    talk.shard._let(talk.shard._here(), ("club", "g"), close)
    assert talk.shard.rows == {}
    newest = {each.key: each.value for each in talk.shard.outputs if each.topic == "notes"}
    assert newest == {b'["g","p",0]': None, b'["g","q",0]': None}


def test_a_topic_may_have_records_that_only_others_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Active brokers stand beside the partitions; a restore leaves them out, and says so of any
    other key that is nobody's."""

    class Told(ClubFamily):
        @classmethod
        def is_published(cls, topic: str, key: bytes) -> bool:
            return topic == "clubs" and key.startswith(b"told-")

        @classmethod
        def head_name(cls, key: bytes) -> str | None:
            return None if b"-" in key else key.decode()

    monkeypatch.setattr(core, "REGISTRY", Registry(Groups, Told))
    talk = Conversation()
    said(talk, asks(Enter))
    talk.end_batch_raw()
    position = talk.shard.status().position
    rows = core.Shard(
        core.restored([*talk.outputs, Output("clubs", 0, b"told-7", b"{}")], position),
        talk.settings,
    ).rows

    assert list(rows) == [("club", "g")]
    with pytest.raises(UnknownSavedVersion):
        core.restored([*talk.outputs, Output("clubs", 0, b"new-7", b"{}")], position)


def test_a_member_holds_its_entity() -> None:
    """Who has a session must leave first: nobody else may delete what it uses."""
    assert not Clubs().is_empty(Club(group="g", members={"a": 1}))
    assert Clubs.is_empty is not Kind.is_empty
    assert Kind.is_empty(Counters(), Counter(group="g"))


def test_a_job_record_of_its_own_reaches_a_family() -> None:
    """As decisions of transactions will; other families are not asked."""
    talk = Conversation()
    for name in ("a1", "a2", "b"):
        said(talk, asks(Lease, name))
    lines = [line["type"] for line in said(talk, Recall(v=1, prefix="a"))]

    assert lines == ["LeaseRecalled"] * 2
    assert list(talk.shard.rows) == [("lease", "b")]


def test_a_broken_step_sets_its_entity_aside_until_it_is_released() -> None:
    """INV-42, for nothing."""
    talk = Conversation()
    said(talk, asks(Count))
    told = said(talk, asks(Count, client="broken"))
    assert [each["type"] for each in told] == ["GroupQuarantined", "Count"]
    assert told[1]["error"] == "COORDINATOR_NOT_AVAILABLE"
    assert said(talk, asks(Count))[0]["error"] == "COORDINATOR_NOT_AVAILABLE"

    free = msgspec.structs.replace(release("ops"), space="counter")
    assert said(talk, free)[-1]["error"] == "NONE"
    assert said(talk, asks(Count))[-1]["count"] == 2


def test_every_kind_can_be_described_found_and_deleted() -> None:
    """Without a handler of its own."""
    talk = Conversation()
    said(talk, asks(Count))
    seen = said(talk, msgspec.structs.replace(describe("ops"), space="counter"))
    assert (seen[0]["error"], seen[0]["members"]) == ("NONE", [])
    assert said(talk, asks(api.FindCoordinator, space="counter"))[0]["shard"] == 0
    said(talk, asks(Enter))
    refused = said(talk, asks(api.DeleteGroup, space="club"))
    assert next(iter(refused))["error"] == "NON_EMPTY_GROUP"
    gone = said(talk, asks(api.DeleteGroup, space="counter"))
    assert [each["type"] for each in gone] == ["GroupDeleted", "DeleteGroup"]
    assert ("counter", "g") not in talk.shard.rows


def test_what_no_kind_of_the_space_judges_does_not_apply() -> None:
    """A Heartbeat for a counter: one sentence, and a line of history that names kind and space."""
    talk = Conversation()
    beat = asks(api.Heartbeat, space="counter", generation=0, member="a")
    assert "does not apply" in said(talk, beat)[0]["message"]
    said(talk, asks(Count))
    answer, line = said(talk, beat)
    assert answer["error"] == "INVALID_REQUEST"
    assert (line["kind"], line["space"]) == ("counter", "counter")
    assert answer["message"] == "Heartbeat does not apply to counter."


def test_a_bad_request_is_refused_in_its_own_space() -> None:
    """A lease called as a group is: the line must not stand in the group's history."""
    talk = settled()
    bad = {"v": 1, "type": "Lease", "id": "x", "client": "a", "lease_id": "g", "what": 1}
    answer, line = said(talk, bad)
    assert (answer["type"], answer["group"], line["space"]) == ("Rejected", "g", "lease")


def test_a_space_that_there_is_not_is_refused() -> None:
    """A client of newer code: it is told which spaces this job has."""
    answer, _ = said(Conversation(), asks(api.FindCoordinator, space="planet"))
    assert (answer["type"], answer["error"]) == ("Rejected", "INVALID_REQUEST")
    assert answer["message"] == "space must be one of club, counter, group, lease."


def test_requests_of_kinds_that_are_not_registered_are_not_read() -> None:
    """A job without clubs does not know their requests, and says so."""
    talk = Conversation()
    talk.shard = core.Shard(None, talk.settings, Registry(Groups))
    answer, _ = said(talk, asks(Enter))
    assert (answer["type"], answer["error"]) == ("Rejected", "UNSUPPORTED_VERSION")
    assert said(talk, join("a"))[-1]["type"] != "Rejected"


class OtherCounters(Counters):
    NAME, SPACE = "other", "other"


class SameTopic(Family):
    SPACE, HEADS, KINDS = "other", "counters", (OtherCounters(),)


@pytest.mark.parametrize("families", [(Groups, Groups), (CounterFamily, SameTopic)])
def test_two_families_of_one_name_are_refused(families: Any) -> None:
    """A registry is made once, by code."""
    with pytest.raises(ValueError, match=r"one name|one topic"):
        Registry(*families)


# -- inputs ----------------------------------------------------------------------------------


def with_input(monkeypatch: pytest.MonkeyPatch, fault: Any) -> Conversation:
    class Fed(LeaseFamily):
        INPUTS = (Input("z", "leased", fault),)

    monkeypatch.setattr(core, "REGISTRY", Registry(Groups, Fed))
    return Conversation()


@pytest.mark.parametrize(
    "value",
    [
        b'{"v":1,"type":"Tick","published":1}',
        b'{"v":1,"type":"TopicMetadata","topics":{},"through":""}',
        codec.encode(join("a")),
        b"no request",
    ],
)
@pytest.mark.parametrize("fault", [lambda _: None, lambda _: 1 / 0])
def test_what_does_not_belong_into_an_input_is_refused_and_the_log_goes_on(
    value: bytes, fault: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """INV-41: it would come again after every restart. The job's records belong to the requests."""
    talk = with_input(monkeypatch, fault)
    for offset in range(2):
        talk.shard.judge(core.InputRecord("z", offset, 1_000_000, value))
    outputs = talk.end_batch_raw()

    lines = [msgspec.json.decode(each.value) for each in outputs if each.topic == "events"]
    assert {line["type"] for line in lines} == {"RequestRejected"}
    assert talk.shard.rows == {}
    assert talk.shard.status().position.offsets["z"] == 1


def test_two_inputs_have_two_letters_and_two_topics() -> None:
    """A letter stands in coordinates and positions."""
    for letter, topic in (("r", "leased"), ("o", "leased"), ("z", "offsets"), ("Z", "leased")):

        class Fed(LeaseFamily):
            INPUTS = (Input(letter, topic, lambda _: None),)

        with pytest.raises(ValueError, match="letter"):
            Registry(Groups, Fed)
