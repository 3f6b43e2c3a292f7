"""ApiVersions: what a job reads, so that a client sends it nothing else."""

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from coordlib import limits
from coordlib.core.engine.effects import EVENTS, FREE_BYTES, RESPONSES
from coordlib.core.registry import REGISTRY
from coordlib.core.wire import api, codec
from coordlib.core.wire.envelope import WIRE_VERSION, Refusal, RequestReader, fields_by_type
from tests.tools.driving import SETTINGS, Conversation, settings

PAGE = (Path(__file__).parents[3] / "docs/reference/wire.md").read_text()
#: The fields of each request, by the wire version.
FIELDS = Path(__file__).parent / "request_fields"
QUESTION = api.ApiVersions(v=1, id="q", client="tool")


def answered(talk: Conversation, question: api.ApiVersions = QUESTION) -> dict[str, Any]:
    talk.send(question)
    found: dict[str, Any] = json.loads(talk.outputs[-1].value or b"")
    return found


@pytest.mark.parametrize("shard", [0, 1, 2])
@pytest.mark.parametrize("group", ["", "g", "anywhere"])
def test_any_shard_answers_and_nothing_changes(shard: int, group: str) -> None:
    """A client asks before it has a group, and wherever it likes."""
    talk = Conversation(replace(SETTINGS, shard=shard, shards=3))
    before = talk.shard.encode()
    told = answered(talk, api.ApiVersions(v=1, id="q", client="tool", group=group))

    assert (told["type"], told["error"], told["group"]) == ("ApiVersions", "NONE", group)
    assert [each.topic for each in talk.outputs] == [RESPONSES]
    assert talk.shard.rows == {}
    assert len(talk.shard.encode()) <= len(before) + 16


def test_it_names_the_requests_that_this_job_reads_with_all_their_fields() -> None:
    """A field that is read and not named is sent by nobody."""
    told = answered(Conversation())["types"]

    requests = {each for each in api.AnyRequest.__args__ if issubclass(each, api.Request)}
    assert set(told) == {each.__struct_config__.tag for each in requests}
    for each in requests:
        own = {name for name in told[each.__struct_config__.tag] if "." not in name}
        assert own == set(each.__struct_encode_fields__)
    assert {"offsets.timestamp_ms", "offsets.metadata"} <= set(told["Release"])


def test_it_names_no_request_that_only_other_code_reads() -> None:
    """A registry without groups reads no JoinGroup, and says so."""
    assert "JoinGroup" in REGISTRY.reader.fields
    assert list(fields_by_type([api.ApiVersions, api.Tick])) == ["ApiVersions"]


def test_its_limits_are_those_of_the_settings() -> None:
    """Whoever packs commits up to a bound that this job does not have loses them."""
    how = settings(max_size=7, session_timeout_max_ms=60_000)
    told = answered(Conversation(how))["limits"]

    assert (told["group_size_max"], told["session_timeout_max_ms"]) == (7, 60_000)
    usual = answered(Conversation(settings()))["limits"]
    assert usual == {name: getattr(limits, name.upper()) for name in usual}
    assert [name for name in usual if f"`{name.upper()}`" not in PAGE] == []


def test_the_answer_is_small_enough_to_be_free() -> None:
    """INV-68: it is never put off, so a flood of questions must not make a batch of gigabytes."""
    talk = Conversation()
    answered(talk)

    assert len(talk.outputs[-1].value or b"") < FREE_BYTES


def test_an_answer_that_nobody_could_read_is_refused() -> None:
    """INV-41: a partition of the answers that does not exist."""
    talk = Conversation()
    talk.send(api.ApiVersions(v=1, id="q", client="tool", reply=7))

    refused, line = (json.loads(each.value or b"") for each in talk.outputs)
    assert (refused["type"], refused["error"]) == ("Rejected", "INVALID_REQUEST")
    assert line["type"] == "RequestRejected"


def test_it_does_not_belong_among_the_positions() -> None:
    """What stands there is judged at the end of a batch, wherever that is."""
    talk = Conversation()
    talk.send(QUESTION, topic="o")

    assert [each.topic for each in talk.outputs] == [RESPONSES, EVENTS]


def test_the_same_question_has_the_same_bytes_again() -> None:
    """INV-01"""
    one, other = Conversation(), Conversation()
    one.send(QUESTION)
    other.send(QUESTION)

    assert one.outputs == other.outputs


def test_a_field_that_is_added_raises_the_wire_version() -> None:
    """INV-84: a job refuses fields that it does not know. The list of a version that was released
    is written once; a new version has a list of its own, with all that the one before has."""
    lists = {int(path.stem[1:]): json.loads(path.read_text()) for path in FIELDS.glob("v*.json")}
    assert sorted(lists) == list(range(1, WIRE_VERSION + 1))

    now = {tag: sorted(some) for tag, some in REGISTRY.reader.fields.items()}
    assert now == lists[WIRE_VERSION]
    for version in range(2, WIRE_VERSION + 1):
        before, after = lists[version - 1], lists[version]
        assert all(set(before[tag]) <= set(after.get(tag, ())) for tag in before)


def test_a_job_that_lacks_the_request_says_so_by_its_error() -> None:
    """A registry may have few kinds: the client takes that for an answer without types."""
    older = RequestReader((api.JoinGroup, api.Heartbeat)).read(codec.encode(QUESTION))

    assert isinstance(older, Refusal)
    assert (older.error.name, older.id, older.client) == ("UNSUPPORTED_VERSION", "q", "tool")
