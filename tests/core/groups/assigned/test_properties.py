"""What must hold for every log of server-assigned groups. Each property names its invariant."""

import json
from collections.abc import Mapping
from itertools import pairwise
from typing import Any
from unittest.mock import patch

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coordlib.core.engine.effects import ASSIGNMENTS, COMMITTED, EVENTS, GROUPS, RESPONSES, Output
from coordlib.core.groups import protocol
from coordlib.core.groups.assigned.division import wanted_topics
from coordlib.core.groups.assigned.group import Group, Member, State
from coordlib.core.groups.assigned.protocol import ASSIGNED
from coordlib.core.groups.assigned.reconciliation import demanded, granted
from coordlib.core.groups.assignors.registry import StrategyBook, divide
from coordlib.core.groups.assignors.server_model import Subscriber
from coordlib.core.wire import api, codec
from tests.core.groups.test_properties import compacted, run_in_batches, said
from tests.tools import assigned_groups, driving
from tests.tools import assigned_logs as logs
from tests.tools.core import InputRecord, Shard, assert_as_new, fold, offsets_of, restore
from tests.tools.examples import examples

SETTINGS = logs.SETTINGS
SEEDS = st.integers(0, 2**32)
PROFILE = settings(
    max_examples=examples(20),
    deadline=None,
    suppress_health_check=list(HealthCheck),
    derandomize=True,
)
LENGTH = 150


def groups_of(shard: Shard) -> dict[str, Group]:
    """Those that are server-assigned at this moment."""
    found = {name: cell.value for name, cell in shard.groups.items()}
    return {name: group for name, group in found.items() if isinstance(group, Group)}


def answer(output: Output) -> dict[str, Any]:
    return json.loads(output.value or b"{}")  # type: ignore[no-any-return]


def quarantined(outputs: list[Output]) -> list[Output]:
    return [each for each in outputs if each.topic == EVENTS and b"Quarantined" in each.value]


def gone(output: Output) -> bool:
    return output.topic == EVENTS and answer(output)["type"] == "GroupDeleted"


# ---- the fold -----------------------------------------------------------------------------------


@PROFILE
@given(SEEDS, st.lists(st.integers(0, LENGTH), max_size=12))
def test_the_cut_into_batches_shows_nowhere(seed: int, cuts: list[int]) -> None:
    """INV-02: Spark cuts the same log differently after every restart and under every load."""
    records, _ = logs.draw_log(seed, LENGTH)

    blob, outputs = run_in_batches(records, [], SETTINGS)
    other_blob, other_outputs = run_in_batches(records, cuts, SETTINGS)

    assert said(outputs) == said(other_outputs)
    assert compacted(outputs) == compacted(other_outputs)
    assert blob == other_blob


@PROFILE
@given(SEEDS)
def test_a_shard_that_is_loaded_anew_for_every_record_is_the_same(seed: int) -> None:
    """INV-02, INV-03: after every record, not only where a log happens to end."""
    records, _ = logs.draw_log(seed, LENGTH)
    kept, blob, outputs = Shard(None, SETTINGS), None, []
    for record in records:
        kept.judge(record)
        fresh = Shard(blob, SETTINGS)
        fresh.judge(record)
        outputs += fresh.outputs
        blob = fresh.encode()

        assert blob == kept.encode()
    assert outputs == kept.outputs


@PROFILE
@given(SEEDS)
def test_to_ask_every_group_about_every_topic_changes_nothing(seed: int) -> None:
    """INV-15: a group that is not asked about a change of topics had nothing to say about it."""
    records, _ = logs.draw_log(seed, LENGTH)
    asked = fold(None, records, SETTINGS)

    with patch.object(protocol, "_may_matter", lambda *_: True):
        all_asked = fold(None, records, SETTINGS)

    assert asked.outputs == all_asked.outputs
    assert asked.blob == all_asked.blob


@PROFILE
@given(SEEDS)
def test_the_compacted_topics_give_the_groups_back(seed: int) -> None:
    """INV-38: a lost checkpoint is an inconvenience; sessions are re-armed and nothing else.

    Topics that no group divides are forgotten too; the driver lists them when it starts.
    """
    records, _ = logs.draw_log(seed, LENGTH)
    done = fold(None, records, SETTINGS)
    newest = compacted(done.outputs)
    saved = [v for (topic, _, _), v in newest.items() if topic == GROUPS and v]
    committed = [(k, v) for (topic, _, k), v in newest.items() if topic == COMMITTED and v]

    rebuilt = Shard(restore(saved, committed, done.status.position), SETTINGS)
    shard = Shard(done.blob, SETTINGS)

    assert rebuilt.status().owed == shard.status().owed
    assert rebuilt.status().cap_ms == shard.status().cap_ms
    assert rebuilt._agenda.size_bytes == shard._agenda.size_bytes
    for name, cell in shard.groups.items():
        assert rebuilt.groups[name].value == cell.value
        assert list(offsets_of(rebuilt.groups[name])) == list(offsets_of(cell))
        assert set(rebuilt.groups[name].heard.values()) <= {shard.clock_ms}
    assert rebuilt.topics.items() <= shard.topics.items()
    for (topic, _, key), value in newest.items():
        if topic == ASSIGNMENTS:  # of whoever is in a group, and nobody else
            name, member = msgspec.json.decode(key)
            there = shard.groups[name].value.members if name in shard.groups else {}
            assert (value is not None) == (member in there)


# ---- every step ---------------------------------------------------------------------------------


@PROFILE
@given(SEEDS)
def test_every_step_leaves_a_sound_shard(seed: int) -> None:
    """INV-09, INV-11, INV-12, INV-13, INV-15, INV-33, INV-42 after every single record."""
    records, _ = logs.draw_log(seed, LENGTH)
    shard = Shard(None, SETTINGS)
    for record in records:
        before, count = groups_of(shard), len(shard.outputs)
        shard.judge(record)
        came_anew = {o.key.decode() for o in shard.outputs[count:] if gone(o)}
        for name, group in groups_of(shard).items():
            ASSIGNED.check(group)
            assert len(ASSIGNED.save(group)) <= group.size_bytes
            assert len(ASSIGNED.encode(group)) <= group.size_bytes
            cell = shard.groups[name]
            assert list(cell.heard) == list(group.members)
            due = ASSIGNED.next_due(group, cell.heard)
            assert cell.facts.next_due_ms <= due.due_ms
            assert due.due_ms > shard.clock_ms
            assert_as_new(cell, shard)
            if name in before and name not in came_anew:
                assert group.generation >= before[name].generation

    assert not quarantined(shard.outputs)


@PROFILE
@given(SEEDS)
def test_nobody_loses_what_it_did_not_let_go_of_while_it_is_in_the_group(seed: int) -> None:
    """INV-09, INV-57: what changes hands was released by its owner's own word, under the demand's
    cause; or its owner is out, and where others put it out it is waited for."""
    records, _ = logs.draw_log(seed, LENGTH)
    shard = Shard(None, SETTINGS)
    for record in records:
        before = groups_of(shard)
        shard.judge(record)
        request = logs_decoded(record)
        for name, group in groups_of(shard).items():
            for member in before[name].members.values() if name in before else ():
                now = group.members.get(member.member)
                if now is None:
                    guard = group.guards.get(member.member)
                    is_expelled = isinstance(request, api.LeaveGroup) and (
                        request.client != member.client
                    )
                    assert guard is None or guard.partitions == member.owned
                    assert guard is not None or not (
                        is_expelled and is_at_work(shard, name, member)
                    )
                    continue
                had, has = fences_of(member), fences_of(now)
                # Of many grants the oldest become one, with the newest fence among them.
                merged = {grant.fence for grant in member.grants}
                if lost := {
                    place
                    for place, fence in had.items()
                    if has.get(place) not in {fence, *(each for each in merged if each > fence)}
                }:
                    assert isinstance(request, api.Release)
                    assert (request.member, request.client) == (member.member, member.client)
                    demand = member.demand(request.cause)
                    assert demand is not None
                    assert lost == places(demand.partitions)


def logs_decoded(record: InputRecord) -> Any:
    return codec.decode_request(record.value)


def is_at_work(shard: Shard, name: str, member: Member) -> bool:
    """Whether it owned anything, and no deadline of its own has put it out before."""
    told = [answer(o) for o in shard.outputs if o.topic == EVENTS and o.key == name.encode()]
    removed = [e for e in told if e["type"] == "MemberRemoved" and e["member"] == member.member]
    return bool(member.owned) and not removed[-1]["cause"].startswith("deadline:")


def places(partitions: dict[str, tuple[int, ...]]) -> set[tuple[str, int]]:
    return {(topic, each) for topic, some in partitions.items() for each in some}


def fences_of(member: Member) -> dict[tuple[str, int], int]:
    """What it owns, each with its token."""
    return {place: grant.fence for grant in member.grants for place in places(grant.partitions)}


@PROFILE
@given(SEEDS)
def test_fences_rise_from_owner_to_owner(seed: int) -> None:
    """INV-20: also when the group was deleted, or was of another kind in between."""
    records, _ = logs.draw_log(seed, LENGTH)
    shard = Shard(None, SETTINGS)
    newest: dict[Any, tuple[int, str]] = {}
    for record in records:
        shard.judge(record)
        for name, group in groups_of(shard).items():
            for member in group.members.values():
                for place, fence in fences_of(member).items():
                    former, owner = newest.get((name, *place), (-1, ""))
                    assert fence > former or (fence, member.member) == (former, owner)
                    newest[name, *place] = (fence, member.member)


class Reader:
    """What members were told, as they take it: a picture replaces the one before it."""

    def __init__(self) -> None:
        self.pictures: dict[str, tuple[Any, Any]] = {}
        #: Cause and partitions of what each has let go of since.
        self.read = 0

    def hear(self, outputs: list[Output], request: Any) -> list[str]:
        """Take in what is new; returns who was told something that it had not asked for."""
        notified = []
        for output in outputs[self.read :]:
            value = answer(output) if output.topic == RESPONSES else {}
            kind = value.get("type")
            if kind == "AssignmentChanged":
                notified.append(value["member"])
            if kind == "AssignmentChanged" or (kind == "Subscribe" and value["error"] == "NONE"):
                self.pictures[value["member"]] = (value["partitions"], value["release"])
            if kind == "Release" and value["error"] == "NONE":
                partitions, release = self.pictures[request.member]
                rest = [row for row in release if row["cause"] != request.cause]
                self.pictures[request.member] = (partitions, rest)
        self.read = len(outputs)
        return notified


def picture_of(member: Member) -> tuple[Any, Any]:
    return json.loads(msgspec.json.encode((granted(member), demanded(member))))  # type: ignore[no-any-return]


@PROFILE
@given(SEEDS)
def test_members_know_what_they_hold_and_who_owes_nothing_is_told_nothing(seed: int) -> None:
    """What is written in the group and what its member was told is the same after every record,
    or a partition is nobody's in truth; and nobody is told what it knows."""
    records, _ = logs.draw_log(seed, LENGTH)
    shard, reader = Shard(None, SETTINGS), Reader()
    for record in records:
        before = dict(reader.pictures)
        shard.judge(record)
        notified = reader.hear(shard.outputs, logs_decoded(record))
        for group in groups_of(shard).values():
            for member in group.members.values():
                assert list(reader.pictures[member.member]) == list(picture_of(member))
        for member_id in notified:
            assert reader.pictures[member_id] != before.get(member_id)


# ---- duplicates ---------------------------------------------------------------------------------


@PROFILE
@given(SEEDS)
def test_late_duplicates_change_nothing(seed: int) -> None:
    """Rule 12: a producer that was given up delivers what the next one has written too. Only the
    first Subscribe of a member that is gone makes another one, which goes as it came."""
    records, _ = logs.draw_log(seed, LENGTH)
    done = fold(None, records, SETTINGS)
    accepted = {
        value["cause"]
        for value in map(answer, (o for o in done.outputs if o.topic == RESPONSES))
        if value["type"] in ("Subscribe", "Release") and value["error"] == "NONE"
    }
    kept = judged(done.blob, records[-1], b"")
    for record in (each for each in records if f"r0-{each.offset}" in accepted):
        request = logs_decoded(record)
        if not is_ghost(request, groups_of(kept).get(request.group)):
            after = judged(done.blob, records[-1], record.value)
            assert groups_of(after) == groups_of(kept)
            for name, cell in kept.groups.items():
                assert list(offsets_of(after.groups[name])) == list(offsets_of(cell))


def is_ghost(request: Any, group: Group | None) -> bool:
    """Whether it is the first Subscribe of somebody who is not in the group any more."""
    if not isinstance(request, api.Subscribe) or request.member:
        return False
    return group is None or group.first_subscribe(request.client, request.id) is None


def judged(blob: bytes, last: InputRecord, value: bytes | None) -> Shard:
    """A shard that has judged one record more, at the time of its last one."""
    shard = Shard(blob, SETTINGS)
    shard.judge(msgspec.structs.replace(last, offset=last.offset + 1, value=value))
    return shard


# ---- in time ------------------------------------------------------------------------------------


def divided_again(group: Group, known: Mapping[str, int]) -> dict[str, Any]:
    """What the group's strategy says of what its members have: nothing has to move any more."""
    subscribers = {
        name: Subscriber(
            topics=wanted_topics(member, known), share=member.owned, capacity=member.capacity
        )
        for name, member in group.members.items()
    }
    book = StrategyBook(SETTINGS.families["group"].strategies)
    return dict(divide(book, group.protocol or "", subscribers, group.topics).shares)


@PROFILE
@given(SEEDS)
def test_when_all_let_go_the_group_is_stable_total_and_balanced(seed: int) -> None:
    """INV-10: nothing else happens, members answer: at most one Release for each demand."""
    _, talk = logs.draw_log(seed, LENGTH)
    for _ in range(40):
        talk.tick(after_ms=1_000)
        for name, group in groups_of(talk.shard).items():
            for member in group.members.values():
                for demand in member.demands:
                    cause, generation = demand.timer.cause, group.generation
                    talk.send(
                        assigned_groups.let_go(
                            member.client, generation, member.member, cause, group=name
                        )
                    )
                talk.send(driving.heartbeat(member.client, 0, member.member, group=name))
    for group in groups_of(talk.shard).values():
        assert group.state is (State.STABLE if group.members else State.EMPTY)
        assert not group.guards
        owned = [place for member in group.members.values() for place in places(member.owned)]
        wanted = {(topic, each) for topic, n in group.topics.items() for each in range(n)}
        assert set(owned) == wanted
        assert len(owned) == len(wanted)
        assert divided_again(group, talk.shard.topics) == {
            name: member.owned for name, member in group.members.items()
        }
    assert not quarantined(talk.outputs)


@PROFILE
@given(SEEDS)
def test_every_demand_ends_also_if_nobody_says_anything_any_more(seed: int) -> None:
    """INV-29, INV-31: silent members go, and with them what they owe; guards end; ghosts too."""
    _, talk = logs.draw_log(seed, LENGTH)
    talk.tick()
    for _ in range(120):
        talk.tick(after_ms=1_000)

    for group in groups_of(talk.shard).values():
        assert (group.members, group.guards, group.state) == ({}, {}, State.EMPTY)
    assert not talk.shard.status().has_deadline


@PROFILE
@given(SEEDS)
def test_every_request_gets_one_answer(seed: int) -> None:
    """INV-17: an unanswered request makes a client wait for ever, a second one confuses it."""
    records, talk = logs.draw_log(seed, LENGTH)
    causes: dict[str, int] = {}
    for value in map(answer, (o for o in talk.outputs if o.topic == RESPONSES)):
        if "id" in value:
            causes[value["cause"]] = causes.get(value["cause"], 0) + 1
    assert set(causes.values()) <= {1}
    for record in records:
        request = logs_decoded(record)
        if isinstance(request, api.Subscribe | api.Release | api.LeaveGroup | api.OffsetCommit):
            assert causes[f"r0-{record.offset}"] == 1


@PROFILE
@given(SEEDS)
def test_generations_rise_by_one_with_each_division(seed: int) -> None:
    """INV-11, INV-16: history shows every generation once, and every member id once."""
    _, talk = logs.draw_log(seed, LENGTH)
    events = [answer(o) for o in talk.outputs if o.topic == EVENTS]
    for name in logs.GROUPS:
        seen: list[int] = []
        for event in (each for each in events if each["group"] == name):
            if event["type"] == "GroupDeleted":
                seen = []
            if event["type"] == "GenerationStarted":
                seen.append(event["generation"])
        for before, after in pairwise(seen):
            assert after > before
    joined = [event["member"] for event in events if event["type"] == "MemberJoined"]
    assert len(set(joined)) == len(joined)
    ids = [event["event_id"] for event in events]
    assert len(set(ids)) == len(ids)
