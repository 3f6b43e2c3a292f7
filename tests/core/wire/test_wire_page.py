"""The page about the wire format says what the code takes and gives: docs/reference/wire.md."""

import json
import re
from collections import defaultdict
from pathlib import Path
from typing import Any

import msgspec
import pytest

from coordlib import limits
from coordlib.core.wire import api, codec, stored
from coordlib.core.wire.cells import CellValue
from coordlib.core.wire.control import HeardValue, SentValue
from coordlib.core.wire.envelope import java_hash, shard_of
from coordlib.core.wire.stored import TopicIdsValue
from coordlib.errors import ErrorCode
from coordlib.job.control import ED25519
from tests.tools import driving
from tests.tools.core import ShardSettings

PAGE = (Path(__file__).parents[3] / "docs/reference/wire.md").read_text()
STORED: dict[str, type[msgspec.Struct]] = {
    "coord.assignments": stored.AssignmentValue,
    "coord.committed": stored.CommittedValue,
    "coord.transactions: pending": stored.PendingValue,
    "coord.metadata: broker": stored.BrokerValue,
    "coord.metadata: topic": stored.TopicValue,
    "coord.metadata: partition": stored.PartitionValue,
    "coord.outbox: sent": SentValue,
    "coord.outbox: heard": HeardValue,
    "coord.events": stored.Event,
    "coord.lag": stored.LagSample,
    "layout": stored.Layout,
    "marker": stored.Marker,
    "keys": stored.ControlKeys,
    "cell": CellValue,
    "set-aside": stored.SetAside,
    "topic-ids": TopicIdsValue,
}
REQUESTS: dict[str, type[msgspec.Struct]] = {
    each.__struct_config__.tag: each for each in api.AnyRequest.__args__
}
RESPONSES: dict[str, type[msgspec.Struct]] = {
    each.__struct_config__.tag: each for each in api.AnyResponse.__args__
}
#: What the heads of the chapters explain, once for all types.
ENVELOPE = {
    "v",
    "type",
    "id",
    "client",
    "group",
    "reply",
    "space",
    "cause",
    "error",
    "message",
    "design_error",
    "throttle_time_ms",
    "n",
    "key",
    "sig",
}


def chapter(title: str) -> str:
    found = re.search(rf"^## {title}\n(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE)
    assert found, title
    return found[1]


def sections(title: str) -> dict[str, str]:
    parts = re.split(r"^### `([^`]+)`\n", chapter(title), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def examples(text: str) -> list[str]:
    return re.findall(r"^```json\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def rows(title: str) -> list[list[str]]:
    lines = [line for line in chapter(title).splitlines() if line.startswith("|")]
    return [[cell.strip(" `") for cell in line.strip("|").split("|")] for line in lines]


def examples_of(*titles: str) -> list[Any]:
    """Each example with the name that its heading gives it."""
    return [
        pytest.param(name, each, id=f"{name}-{number}")
        for title in titles
        for name, text in sections(title).items()
        for number, each in enumerate(examples(text))
    ]


ASKED = examples_of("Requests")
TOLD = examples_of("Responses", "Notifications")
KEPT = examples_of("What others may read")


@pytest.mark.parametrize(("name", "example"), ASKED)
def test_a_request_of_the_page_is_read_as_what_it_is_called(name: str, example: str) -> None:
    """Somebody in another language begins by copying it."""
    assert type(codec.decode_request(example.encode())) is REQUESTS[name]


@pytest.mark.parametrize(("name", "example"), TOLD)
def test_a_response_of_the_page_is_what_the_code_writes(name: str, example: str) -> None:
    """No field too many, none too few: readers ignore what they do not know, so both would pass."""
    response = codec.decode_response(example.encode())

    assert type(response) is RESPONSES[name]
    assert json.loads(codec.encode(response)) == json.loads(example)


@pytest.mark.parametrize(("name", "example"), KEPT)
def test_a_kept_value_of_the_page_is_what_the_code_writes(name: str, example: str) -> None:
    """Tools that read the compacted topics and the history are written from this page too."""
    value = msgspec.json.decode(example, type=STORED[name])

    assert json.loads(codec.encode(value)) == json.loads(example)


@pytest.mark.parametrize(
    ("known", "shown"),
    [(REQUESTS, ASKED), (RESPONSES, TOLD), (STORED, KEPT)],
    ids=["requests", "responses", "kept"],
)
def test_every_type_has_an_example(
    known: dict[str, type[msgspec.Struct]], shown: list[Any]
) -> None:
    """A type that is added to the code and not to the page would be found by nobody."""
    assert {each.values[0] for each in shown} == set(known)


def fields_of(kind: Any) -> set[str]:
    """Its own fields and those of the values in them, as they are called on the wire."""
    found = set(kind.__struct_encode_fields__)
    for field in msgspec.structs.fields(kind):
        for part in re.findall(r"coordlib\.core\.wire\.\w+\.(\w+)", str(field.type)):
            inner = next(getattr(m, part) for m in (api, stored) if hasattr(m, part))
            found |= set(inner.__struct_encode_fields__)
    return found


@pytest.mark.parametrize(
    ("title", "known"),
    [
        ("Requests", REQUESTS),
        ("Responses", RESPONSES),
        ("Notifications", RESPONSES),
        ("What others may read", STORED),
    ],
)
def test_every_field_is_named(title: str, known: dict[str, type[msgspec.Struct]]) -> None:
    """An option that nobody can know of: `remain`, `waits_for`, `commit_clock_ms`."""
    missing: dict[str, list[str]] = defaultdict(list)
    for name, text in sections(title).items():
        own = fields_of(known[name]) - (ENVELOPE if title != "What others may read" else set())
        missing[name] += [each for each in sorted(own) if not re.search(rf'[`"]{each}[`"]', text)]

    assert {name: fields for name, fields in missing.items() if fields} == {}


def test_errors_have_their_numbers() -> None:
    """A client in another language makes its table of errors from this one."""
    told = {row[0]: (row[1], row[2]) for row in rows("Errors")[2:]}

    assert told == {e.name: (str(e.code), "yes" if e.retriable else "no") for e in ErrorCode}


def test_limits_have_their_values() -> None:
    """Whoever packs requests up to a limit that is not true loses them."""
    told = {row[1]: int(row[2].replace(",", "")) for row in rows("Limits")[2:]}

    assert told == {name: getattr(limits, name) for name in told}


def test_every_event_is_listed() -> None:
    """History is read by people who never see the code."""
    told = [row[0] for title in ("What others may read", "Claims") for row in rows(title)[2:]]

    assert sorted(told) == sorted(v for k, v in vars(stored).items() if k.startswith("EVENT_"))


def test_the_hash_of_the_page_is_the_hash_of_the_code() -> None:
    """A client tries its own hash on these, umlauts and the odd number included."""
    told = [row for row in rows("Topics") if len(row) == 4][2:]

    assert len(told) == 4
    assert [[t, str(java_hash(t)), str(shard_of(t, 2)), str(shard_of(t, 8))] for t, *_ in told] == (
        told
    )


def test_the_control_records_of_the_page_are_signed_as_it_says() -> None:
    """Whoever checks signatures in another language tries them on these bytes first."""
    (example,) = (each.values[1] for each in KEPT if each.values[0] == "keys")
    keys = msgspec.json.decode(example, type=stored.ControlKeys).keys
    place = ShardSettings(
        shard=1,
        shards=2,
        reply_partitions=4,
        incarnation="YjVo5al4",
        keys=keys,
        verify=ED25519.verify,
    )
    talk = driving.Conversation(place)
    while talk.next_offset < keys[0].since["1"]:
        talk.tick()
    shown = {each.values[0]: each.values[1].strip().encode() for each in ASKED}

    for name in ("TopicMetadata", "Tick", "TxnDecided", "TopicMetadata"):
        assert talk.send(shown[name]) == []
    assert talk.shard.status().position.control == (3, 19)
    talk.send(shown["FromShard"])
    assert talk.shard.status().position.control == (3, 20)
    assert talk.shard.topics == {"clicks-eu": 12, "orders": 6}


def test_the_requests_of_the_page_make_a_life_of_a_member() -> None:
    """What is copied from the page in its order works: the ids in it belong together."""
    place = ShardSettings(
        shard=1,
        shards=2,
        reply_partitions=4,
        incarnation="YjVo5al4",
        families=driving.SETTINGS.families,
    )
    talk = driving.Conversation(place)
    while talk.next_offset < 42:
        talk.tick()
    shown = {each.id: json.loads(each.values[1]) for each in ASKED}

    for example, generation in (
        ("JoinGroup-0", {}),
        ("SyncGroup-0", {"generation": 1}),
        ("Heartbeat-0", {"generation": 1}),
        ("OffsetCommit-0", {"generation": 1}),
        ("OffsetFetch-0", {}),
        ("JoinGroup-1", {"generation": 1}),
        ("LeaveGroup-1", {}),
        ("DescribeGroup-0", {}),
        ("FindCoordinator-0", {}),
    ):
        talk.send(json.dumps({**shown[example], **generation}).encode())

    written = [o.value for o in talk.outputs if o.topic == "responses" and o.value]
    answers = [codec.decode_response(value) for value in written]
    asked = "JoinGroup SyncGroup OffsetCommit OffsetFetch JoinGroup LeaveGroup DescribeGroup"
    assert [(type(answer).__name__, getattr(answer, "error", "")) for answer in answers] == [
        (f"{kind}Response", "NONE") for kind in (*asked.split(), "FindCoordinator")
    ]
    assert "member-1-YjVo5al4-1-42" in talk.group("billing").members
