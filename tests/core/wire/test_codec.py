"""Bytes to requests: total, strict, and telling the sender what is wrong."""

import json
from typing import Any

import msgspec
import pytest

from coordlib import limits
from coordlib.core.wire import api, codec, envelope
from coordlib.core.wire.envelope import Refusal
from coordlib.errors import ErrorCode
from tests.tools import driving

JOIN = json.loads(codec.encode(driving.join("a")))
HEARTBEAT = json.loads(codec.encode(driving.heartbeat("a", 1, "m")))
COMMIT = json.loads(codec.encode(driving.commit("a")))
ROW = {"topic": "t", "partition": 0, "offset": 1}
FETCH: dict[str, Any] = {"v": 1, "type": "OffsetFetch", "id": "1", "client": "a", "group": "g"}


def read(request: dict[str, Any], **changed: Any) -> api.AnyRequest | Refusal:
    return codec.decode_request(json.dumps({**request, **changed}).encode())


def test_a_request_reads_as_it_was_written() -> None:
    """Clients and coordinator share the types; the wire must not lose anything."""
    for request in (
        driving.join("a", reason="new", reply=3, protocols={"p": b"\x00\xff"}),
        driving.sync("a", 1, "m", assignments={"m": b"x"}),
        driving.heartbeat("a", 1, "m", instance="i"),
        driving.leave("a", "m", reason="closed"),
        driving.commit("a", 1, "m"),
        driving.fetch("a", topics=(api.TopicPartitions("t", (0, 1)),), require_stable=True),
        driving.release("a"),
        api.Tick(v=1, published=-1),
    ):
        assert codec.decode_request(codec.encode(request)) == request


def test_what_is_left_out_has_its_default() -> None:
    """The defaults of docs/reference/wire.md: requests of older clients name fewer fields."""
    request = read(
        {
            "v": 1,
            "type": "JoinGroup",
            "id": "1",
            "client": "a",
            "group": "g",
            "session_timeout_ms": 1,
            "rebalance_timeout_ms": 2,
            "protocol_type": "t",
            "protocols": [],
        }
    )

    assert isinstance(request, api.JoinGroup)
    assert (request.member, request.generation, request.instance) == ("", -1, None)
    assert (request.reply, request.reason) == (None, None)


@pytest.mark.parametrize(
    ("request_", "changed", "error", "words"),
    [
        (JOIN, {"memver": "m"}, "INVALID_REQUEST", "memver"),
        (JOIN, {"v": 2}, "UNSUPPORTED_VERSION", "wire version"),
        (JOIN, {"type": "ConsumerGroupHeartbeat"}, "UNSUPPORTED_VERSION", "type"),
        (JOIN, {"session_timeout_ms": "10"}, "INVALID_REQUEST", "session_timeout_ms"),
        (JOIN, {"session_timeout_ms": 2**31}, "INVALID_REQUEST", "session_timeout_ms"),
        (JOIN, {"protocols": [{"name": "p", "metadata": "%"}]}, "INVALID_REQUEST", "protocols"),
        (JOIN, {"protocols": [{"name": "p", "metadata": ""}] * 2}, "INVALID_REQUEST", "twice"),
        (JOIN, {"reason": "x" * 1_001}, "INVALID_REQUEST", "reason"),
        (JOIN, {"instance": ""}, "INVALID_REQUEST", "instance"),
        (JOIN, {"group": "x" * 250}, "INVALID_REQUEST", "group"),
        (JOIN, {"group": "\u20ac" * 84}, "INVALID_REQUEST", "group"),
        (JOIN, {"group": "a\nb"}, "INVALID_REQUEST", "group"),
        (JOIN, {"client": "\x1b[2J"}, "INVALID_REQUEST", "client"),
        (JOIN, {"client": "x" * 151}, "INVALID_REQUEST", "client"),
        (JOIN, {"id": "x" * 65}, "INVALID_REQUEST", "id"),
        (JOIN, {"id": "\x7f"}, "INVALID_REQUEST", "id"),
        (JOIN, {"reply": -1}, "INVALID_REQUEST", "reply"),
        (HEARTBEAT, {"generation": -1}, "INVALID_REQUEST", "generation"),
        (HEARTBEAT, {"generation": 1.5}, "INVALID_REQUEST", "generation"),
        (COMMIT, {"offsets": []}, "INVALID_REQUEST", "offsets"),
        (COMMIT, {"offsets": [{**ROW, "topic": ""}]}, "INVALID_REQUEST", "topic"),
        (COMMIT, {"offsets": [{**ROW, "partition": -1}]}, "INVALID_REQUEST", "partition"),
        (COMMIT, {"offsets": [{**ROW, "offset": 2**63}]}, "INVALID_REQUEST", "offset"),
        (FETCH, {"topics": [{"topic": "\x00", "partitions": []}]}, "INVALID_REQUEST", "topic"),
    ],
)
def test_a_bad_field_is_named(
    request_: dict[str, Any], changed: dict[str, Any], error: str, words: str
) -> None:
    """INV-41. Whoever writes a client in another language needs to know which field and why."""
    refused = read(request_, **changed)

    assert isinstance(refused, Refusal)
    assert refused.error.name == error
    assert words in refused.message


def test_the_sender_is_told_as_far_as_it_is_legible() -> None:
    """A refusal is answered under the id of the request, in the partition that it named."""
    refused = read(JOIN, v=2, reply=3)
    assert isinstance(refused, Refusal)
    assert (refused.id, refused.client, refused.group, refused.reply) == ("j1", "a", "g", 3)

    refused = read(JOIN, id=[1], client="\n", group={"g": 1}, reply=True)
    assert isinstance(refused, Refusal)
    assert (refused.id, refused.client, refused.group, refused.reply) == (None, "", "", None)


@pytest.mark.parametrize(
    "value",
    [
        None,
        b"",
        b"null",
        b"7",
        b'"JoinGroup"',
        b"[]",
        b"{}",
        b"\xff\xfe{}",
        b"\xef\xbb\xbf{}",
        b'{"v":1,"type":"Tick"}',
        b'{"v":1,"type":"Tick","published":1e999}',
        b'{"v":1,"type":"Tick","published":NaN}',
        b'{"v":1,"type":"Heartbeat","id":"\\ud800","client":"a","group":"g"}',
        b'{"v":1,"type":"Heartbeat","\\ud800\\u0041":"a"}',
        b'{"v":' + b"9" * 5_000 + b"}",
        b"[" * 100_000,
        b'{"x":' * 100_000,
        b"x" * (limits.REQUEST_BYTES_MAX + 1),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_poison_is_refused(value: bytes | None) -> None:
    """INV-40. Anybody who can reach the topic can write anything."""
    refused = codec.decode_request(value)

    assert isinstance(refused, Refusal)
    assert refused.error is ErrorCode.INVALID_REQUEST
    assert len(refused.message) <= limits.REASON_LENGTH_MAX
    codec.encode(refused.message)


def test_a_request_that_is_too_large_is_answered() -> None:
    """Its sender waited for an answer that nobody gave: the log takes a little more than we do."""
    rows = (api.CommittedOffset("t", 0, 5, metadata="m" * limits.REQUEST_BYTES_MAX),)
    request = api.OffsetCommit(v=1, id="aa-7", client="c", group="g", reply=3, offsets=rows)
    refused = codec.decode_request(codec.encode(request))

    assert isinstance(refused, Refusal)
    assert (refused.id, refused.client, refused.group, refused.reply) == ("aa-7", "c", "g", 3)
    assert refused.message.endswith(f"send at most {limits.REQUEST_BYTES_MAX}.")
    with pytest.raises(ValueError, match="bytes, and a request at most"):
        codec.encode_request(request)


@pytest.mark.parametrize("depth", [30, 40, 200, 900, 990, 5_000])
def test_deep_nesting_is_refused_in_the_same_words_by_every_caller(depth: int) -> None:
    """INV-01. The decoder gives up by the interpreter's recursion limit, and a Spark worker calls
    from another depth than a test: the same log gave other bytes."""
    value = b'{"a":' + b"[" * depth + b"]" * depth + b',"type":"Heartbeat","id":"1","client":"c"}'

    def called_from(levels: int) -> api.AnyRequest | Refusal:
        return codec.decode_request(value) if levels == 0 else called_from(levels - 1)

    assert called_from(0) == called_from(60) == called_from(120)


def test_brackets_in_strings_do_not_nest() -> None:
    """A reason may contain anything readable."""
    assert isinstance(read(JOIN, reason='[[["' * 200), api.JoinGroup)
    refused = read(JOIN, reason='{{\\"' * 200, v=2)
    assert isinstance(refused, Refusal)
    assert refused.id == "j1"


def test_a_message_that_quotes_its_sender_can_be_printed() -> None:
    """A field's name may be a terminal's escape sequence, a megabyte long."""
    refused = read(JOIN, **{"\x1b[2J" * 10_000: 1})

    assert isinstance(refused, Refusal)
    assert "\x1b" not in refused.message
    assert len(refused.message) <= limits.REASON_LENGTH_MAX


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a", True),
        ("", False),
        ("x" * 249, True),
        ("x" * 250, False),
        ("\u00e9" * 124, True),
        ("\u00e9" * 125, False),
        ("a b/c:d", True),
        ("\u202e", True),
        ("\t", False),
        ("\u0085", False),
        ("\ud800", False),
    ],
)
def test_names_have_1_to_249_bytes_without_control_characters(text: str, expected: bool) -> None:
    """Kafka's own limit of topic names; bytes and not characters."""
    assert envelope.is_name(text, 249) is expected


def test_a_response_reads_as_it_was_written_and_ignores_new_fields() -> None:
    """Readers of responses ignore what they do not know: a newer coordinator answers them too."""
    response = api.SyncGroupResponse(
        id="1", client="a", group="g", cause="r0-1", assignment=b"x", fence=3
    )
    raw = json.loads(codec.encode(response))

    assert codec.decode_response(json.dumps({**raw, "new": 1}).encode()) == response


@pytest.mark.parametrize(
    "value",
    [
        b'{"type":"\xff"',
        b'{"type":"MemberRemoved","reason":"\xe5"}',
        b'{"type":"Progress","x":' + b"[" * 100_000,
        b"",
    ],
    ids=lambda value: repr(value)[:40],
)
def test_what_is_no_response_raises_one_kind_of_error(value: bytes) -> None:
    """Bad UTF-8 among the answers raised UnicodeDecodeError, which ended the client's reader."""
    with pytest.raises(msgspec.MsgspecError):
        codec.decode_response(value)


def test_a_megabyte_of_escapes_in_a_string_that_never_ends_is_refused_at_once():
    """A truncated write: looking for its strings must not take a time that is quadratic."""
    for value in (b'"' + b'\\"' * 500_000, b'{"reason":"' + b'\\"' * 500_000, b'"' * 1_000_000):
        assert codec.decode_request(value).error is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    "request_type", [each for each in api.AnyRequest.__args__ if issubclass(each, api.Request)]
)
def test_each_request_has_the_answer_of_its_tag(request_type: type[api.Request]) -> None:
    """A request without one would break the answer of a group that is set aside."""
    tag = request_type.__struct_config__.tag
    answer = api.answer_to(request_type)

    assert issubclass(answer, api.Response)
    assert answer.__struct_config__.tag == tag
