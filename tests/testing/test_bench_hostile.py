"""The hostile benchmark's floods are ones that the coordinator reads, and its figures are fair."""

from itertools import islice
from typing import Any

import msgspec
import pytest

from coordlib.core.engine.effects import REQUESTS
from coordlib.core.transactions.protocol import TransactionsSettings
from coordlib.core.wire import api, codec
from coordlib.core.wire.envelope import Refusal
from coordlib.core.wire.stored import ControlKey
from coordlib.core.wire.transactions import TRANSACTION
from coordlib.job.control import ED25519
from tests.tools.bench import core
from tests.tools.bench.crowd import Record
from tests.tools.bench.hostile import capped, compared
from tests.tools.bench.hostile_floods import (
    FLOODS,
    PENDING_GROUPS,
    PENDINGS,
    Flood,
    Place,
    error_of,
)
from tests.tools.core import Fold, InputRecord, fold

KEYS = ("bench",)
#: A shard that answers joins at once, makes groups and ids at any rate, and has the job's key.
SETTINGS = msgspec.structs.replace(
    core.SETTINGS,
    families={
        **core.SETTINGS.families,
        TRANSACTION: TransactionsSettings(new_per_second_max=1_000),
    },
    keys=(ControlKey(key=KEYS[0], public=ED25519.public_of(bytes(range(32))), since={"0": 0}),),
    verify=ED25519.verify,
)
EVERY_PART = [(kind, part) for kind, flood in FLOODS.items() for part in flood.PARTS]


def begun(kind: str, part: str, shards: int = 1) -> Flood:
    flood = FLOODS[kind](Place(shards, "x", KEYS))
    flood.begin(part)
    return flood


def some(flood: Flood, count: int) -> list[Record]:
    return [record for record in (flood.next() for _ in range(count)) if record is not None]


def judged(records: list[Record]) -> Fold:
    batch = [InputRecord(REQUESTS, n, 1_000_000, each.value) for n, each in enumerate(records)]
    return fold(None, batch, SETTINGS)


def answers(outcome: Fold) -> list[bytes]:
    return [each.value or b"" for each in outcome.outputs if each.topic == "responses" and each.key]


@pytest.mark.parametrize(("kind", "part"), EVERY_PART)
def test_every_request_of_a_flood_is_read_and_is_new(kind: str, part: str) -> None:
    """Repeats of one request would be recognised, and cost nothing."""
    read: list[Any] = [codec.decode_request(each.value) for each in some(begun(kind, part), 5)]

    assert len({type(each) for each in read}) == 1
    assert all(isinstance(each, msgspec.Struct) for each in read)
    assert not any(isinstance(each, Refusal) for each in read)
    assert len({codec.encode(each) for each in read}) == 5


@pytest.mark.parametrize(("kind", "part"), [each for each in EVERY_PART if each[0] != "messages"])
def test_floods_are_taken_where_there_is_room(kind: str, part: str) -> None:
    """Else the figure would be of refusals alone; and their answers are told by their bytes."""
    found = [error_of(each) for each in answers(judged(some(begun(kind, part), 3)))]

    assert found.count("NONE") >= 1
    assert {each for each in found if each} == {"NONE"}


@pytest.mark.parametrize("part", FLOODS["messages"].PARTS)
def test_messages_of_a_stranger_are_refused_and_change_nothing(part: str) -> None:
    """The first of them even has the number that the shard waits for."""
    outcome = judged(some(begun("messages", part), 3))

    assert answers(outcome) == []
    assert {each.topic for each in outcome.outputs} <= {"events", "responses"}


def test_a_false_signature_is_verified_and_does_not_fit() -> None:
    """A name of no key, or a signature of another length, would be refused for nothing."""
    (record,) = some(begun("messages", "falsely-signed"), 1)
    verified = []

    def verify(public: bytes, message: bytes, signature: bytes) -> bool:
        verified.append(len(signature))
        return ED25519.verify(public, message, signature)

    how = msgspec.structs.replace(SETTINGS, verify=verify)
    fold(None, [InputRecord(REQUESTS, 0, 1_000_000, record.value)], how)

    assert verified == [64]


def test_ever_new_groups_are_ever_new_and_go_to_their_shard() -> None:
    """A join in the wrong partition would be rejected before any group is made."""
    records = some(begun("joins", "ever-new-groups", shards=3), 40)
    read = [codec.decode_request(record.value) for record in records]

    assert len({each.group for each in read if isinstance(each, api.JoinGroup)}) == 40
    assert {record.shard for record in records} == {0, 1, 2}
    assert all(
        each.group.encode() == record.key
        for each, record in zip(read, records, strict=True)
        if isinstance(each, api.JoinGroup)
    )


def test_a_producer_leaves_ten_thousand_entries_open_and_no_more() -> None:
    """In each part anew; in the second one no group has more than it may."""
    flood = begun("pendings", "many-groups")
    records = list(islice(iter(flood.next, None), PENDINGS + 5))
    groups = [record.key for record in records if record is not None]

    assert len(groups) == PENDINGS
    assert max(groups.count(each) for each in set(groups)) == PENDINGS // PENDING_GROUPS
    assert flood.taken_max(1.0) == PENDINGS
    flood.begin("one-group")
    assert flood.next() is not None
    assert flood.taken_max(1.0) == 1_000


def test_answers_of_others_are_not_taken_for_the_floods() -> None:
    """To decode ten thousand a second would delay the probes that are timed."""
    other = api.JoinGroupResponse(id="1", client="probe-1", group="g", cause="r0-1")
    notice = b'{"type":"MemberRemoved","group":"hostile-x"}'

    assert error_of(codec.encode(other)) is None
    assert error_of(notice) == ""


def test_a_cap_that_did_not_hold_is_told() -> None:
    assert capped({"NONE": 3, "THROTTLING_QUOTA_EXCEEDED": 9}, 3)["cap_held"]
    assert not capped({"NONE": 4}, 3)["cap_held"]
    assert capped({"NONE": 4}, None)["cap_held"]


def test_the_ratio_is_of_medians_and_tails_apart() -> None:
    """A part in which nobody was answered is none that was within the aim."""
    found = compared({"p50": 0.5, "p99": 1.0}, {"p50": 1.0, "p99": None})

    assert found == {"ratio": {"p50": 2.0, "p99": None}, "within_twice": True}
    assert not compared({"p50": 0.5}, {"p50": None})["within_twice"]
    assert not compared({"p50": 0.5}, {"p50": 1.1})["within_twice"]
