"""Bytes to typed requests, and typed values to bytes. Total: any bytes give a request or a
`Refusal`, never an exception.

Decoding has two steps. The first is msgspec's: shape, types, ranges, unknown fields. The second
makes checks that a schema cannot: UTF-8 lengths, control characters, sums over nested lists. A
request that fails is read again, leniently, only to find its sender for the answer.
"""

import re
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any, Final, Union

import msgspec

from coordlib import limits
from coordlib.errors import ErrorCode
from coordlib.records import requests as rq
from coordlib.records import responses as rs

_decode_loose = msgspec.json.Decoder(dict[str, Any]).decode
_response_decoder = msgspec.json.Decoder(rs.AnyResponse)

_CONTROL: Final = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
#: Possessive, and a string that is never closed ends with the value: linear for any bytes.
_STRINGS: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)', re.DOTALL)
_BRACKETS: Final = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}
_NO_BRACKETS: Final = bytes(byte for byte in range(256) if byte not in _BRACKETS)
_ASSIGNMENT_ERRORS: Final = tuple(each.name for each in rq.ASSIGNMENT_ERRORS)
WIRE_VERSION: Final = 1
#: A repeated partition would be answered again and again.
_NAMED_TWICE: Final = "{} names one partition twice: name each once."


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """A request that could not be read: why, and as much of its sender as was legible."""

    error: ErrorCode
    message: str
    id: str | None = None
    client: str = ""
    #: Space and name of what it was about.
    space: str = "group"
    group: str = ""
    reply: int | None = None


class RequestReader:
    """Bytes to requests of some types, and of no others.

    Args:
        types: of requests, and of records of the job's driver.
    """

    def __init__(self, types: Sequence[type[Any]]) -> None:
        self._decode = msgspec.json.Decoder(Union[tuple(types)]).decode  # noqa: UP007
        self._names = frozenset(each.__struct_config__.tag for each in types)

    def __call__(self, value: bytes | None) -> Any:
        """Read one record's value as a request of wire version 1, or as a `Refusal`.

        Raises nothing.  # INV-40
        """
        if value is None:
            return Refusal(
                error=ErrorCode.INVALID_REQUEST, message="The record has no value: write a request."
            )
        size_bytes, most = len(value), limits.REQUEST_BYTES_MAX
        if size_bytes > most:
            return Refusal(
                error=ErrorCode.INVALID_REQUEST,
                message=f"The request has {size_bytes} bytes: send at most {most}.",
            )
        try:
            request = self._decode(value)
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as problem:
            return _refuse(value, problem, self._names)
        fault = _semantic_fault(request)
        return request if fault is None else _refuse(value, ValueError(fault), self._names)


#: All requests and records that there are.
decode_request: Final = RequestReader(rq.AnyRequest.__args__)


#: Any wire value as JSON; dictionaries keep their order, so equal values give equal bytes.
encode: Final = msgspec.json.Encoder().encode


def decode_response(value: bytes) -> rs.AnyResponse:
    """Read a response or notification. Raises msgspec.MsgspecError on anything else."""
    try:
        response: rs.AnyResponse = _response_decoder.decode(value)
    except (UnicodeError, RecursionError) as problem:
        # msgspec's own way to meet bad UTF-8; readers of answers expect one kind of error.
        raise msgspec.DecodeError(f"No response: {problem}") from problem
    return response


def is_name(text: str, bytes_max: int) -> bool:
    """1..bytes_max bytes of UTF-8 without control characters."""
    if not text or (not text.isprintable() and _CONTROL.search(text)):
        return False
    return 4 * len(text) <= bytes_max or len(text.encode("utf-8", "replace")) <= bytes_max


def _semantic_fault(request: rq.Request | rq.Control) -> str | None:
    if isinstance(request, rq.Control):
        return _metadata_fault(request) if isinstance(request, rq.TopicMetadata) else None
    if not is_name(request.client, limits.CLIENT_LENGTH_MAX):
        return _name_fault("client", limits.CLIENT_LENGTH_MAX)
    # An empty group is Kafka's INVALID_GROUP_ID, which the coordinator answers.
    if request.group and not is_name(request.group, limits.NAME_LENGTH_MAX):
        return _name_fault("group", limits.NAME_LENGTH_MAX)
    if not is_name(request.id, limits.CORRELATION_ID_LENGTH_MAX):
        return _name_fault("id", limits.CORRELATION_ID_LENGTH_MAX)
    check = _CHECKS.get(type(request))
    return check(request) if check else request.fault()


def _name_fault(field: str, bytes_max: int) -> str:
    return f"{field} must have 1 to {bytes_max} bytes of UTF-8 without control characters."


def _bad_name(field: str, names: list[str | None]) -> str | None:
    for name in names:
        if name and not is_name(name, limits.NAME_LENGTH_MAX):
            return _name_fault(field, limits.NAME_LENGTH_MAX)
    return None


def _join_fault(request: rq.JoinGroup) -> str | None:
    names = [protocol.name for protocol in request.protocols]
    if len(set(names)) != len(names):
        return "protocols names one protocol twice: name each once."
    return (
        _bad_name("protocols", [*names])
        or _bad_name("protocol_type", [request.protocol_type])
        or _bad_name("instance", [request.instance])
        or _bad_name("member", [request.member])
        or _instance_fault(request.instance)
    )


def _instance_fault(instance: str | None) -> str | None:
    return _name_fault("instance", limits.NAME_LENGTH_MAX) if instance == "" else None


def _sync_fault(request: rq.SyncGroup) -> str | None:
    members = [row.member for row in request.assignments]
    if len(set(members)) != len(members):
        return "assignments names one member twice: give each one share."
    if request.has_failed and request.error not in _ASSIGNMENT_ERRORS:
        return f"error must be NONE, {', '.join(_ASSIGNMENT_ERRORS)}."
    if request.has_failed and request.assignments:
        return "assignments must be empty where error is named: nobody is given anything."
    if request.message and not request.has_failed:
        return "message explains an error: name one, or leave it out."
    return _bad_name("assignments", [*members]) or _bad_name("member", [request.member])


def _leave_fault(request: rq.LeaveGroup) -> str | None:
    return _bad_name("members", [row.member for row in request.members]) or _bad_name(
        "members", [row.instance for row in request.members]
    )


def _commit_fault(request: rq.OffsetCommit) -> str | None:
    return _rows_fault(request.offsets) or _bad_name("member", [request.member])


def _subscribe_fault(request: rq.Subscribe) -> str | None:
    if not request.topics and request.pattern is None:
        return "topics is empty and pattern is null: say what you want."
    for topic in request.topics:
        if not is_name(topic, limits.NAME_LENGTH_MAX):
            return _name_fault("topics", limits.NAME_LENGTH_MAX)
    return _bad_name("member", [request.member]) or _bad_name("strategy", [request.strategy])


def _release_fault(request: rq.Release) -> str | None:
    return _rows_fault(request.offsets) or _bad_name("member", [request.member])


def _rows_fault(rows: tuple[rq.CommittedOffset, ...]) -> str | None:
    for row in rows:
        if not is_name(row.topic, limits.NAME_LENGTH_MAX):
            return _name_fault("offsets.topic", limits.NAME_LENGTH_MAX)
    if len(rows) > 1 and len({(row.topic, row.partition) for row in rows}) < len(rows):
        return _NAMED_TWICE.format("offsets")
    return None


def _metadata_fault(request: rq.TopicMetadata) -> str | None:
    names = [row.topic for row in request.topics]
    for name in names:
        if not is_name(name, limits.NAME_LENGTH_MAX):
            return _name_fault("topics.topic", limits.NAME_LENGTH_MAX)
    bounds = [*([request.after] if request.after is not None else []), *names]
    if any(before >= after for before, after in pairwise(bounds)):
        return "topics must be in ascending order, after the range's begin."
    if request.through is not None and any(name > request.through for name in names[-1:]):
        return "topics must not lie behind the range's end."
    return None


def _fetch_fault(request: rq.OffsetFetch) -> str | None:
    return _topics_fault(request.topics or (), limits.FETCH_PARTITIONS_MAX)


def _delete_fault(request: rq.OffsetDelete) -> str | None:
    # Refused partitions come back in one answer: fewer than a fetch, which is answered in parts.
    return _topics_fault(request.topics, limits.OFFSETS_PER_REQUEST_MAX)


def _topics_fault(rows: tuple[rq.TopicPartitions, ...], partitions_max: int) -> str | None:
    count = sum(len(row.partitions) for row in rows)
    if count > partitions_max:
        return (
            f"topics names more than {partitions_max} partitions: ask for them in several requests."
        )
    for row in rows:
        if not is_name(row.topic, limits.NAME_LENGTH_MAX):
            return _name_fault("topics.topic", limits.NAME_LENGTH_MAX)
    if len({(row.topic, each) for row in rows for each in row.partitions}) < count:
        return _NAMED_TWICE.format("topics")
    return None


_CHECKS: Final[dict[type, Any]] = {
    rq.JoinGroup: _join_fault,
    rq.SyncGroup: _sync_fault,
    rq.LeaveGroup: _leave_fault,
    rq.OffsetCommit: _commit_fault,
    rq.OffsetFetch: _fetch_fault,
    rq.OffsetDelete: _delete_fault,
    rq.Subscribe: _subscribe_fault,
    rq.Release: _release_fault,
}


def _refuse(value: bytes, problem: Exception, types: frozenset[str]) -> Refusal:
    """Read a bad request as far as possible, to answer its sender which field is wrong and why."""
    if _nests_deeper_than(limits.NESTING_MAX, value):
        return Refusal(
            error=ErrorCode.INVALID_REQUEST,
            message=f"The value is nested deeper than {limits.NESTING_MAX} levels: no request is.",
        )
    try:
        loose = _decode_loose(value)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return Refusal(
            error=ErrorCode.INVALID_REQUEST, message=printable(f"No JSON object: {problem}.")
        )
    error, message = ErrorCode.INVALID_REQUEST, printable(str(problem))
    if loose.get("v", WIRE_VERSION) != WIRE_VERSION:
        error, message = (
            ErrorCode.UNSUPPORTED_VERSION,
            "v must be 1: no other wire version is known.",
        )
    elif isinstance(loose.get("type"), str) and loose["type"] not in types:
        error, message = (
            ErrorCode.UNSUPPORTED_VERSION,
            "type must be one that this coordinator knows.",
        )
    reply = loose.get("reply")
    return Refusal(
        error=error,
        message=message,
        id=_legible(loose.get("id"), limits.CORRELATION_ID_LENGTH_MAX) or None,
        client=_legible(loose.get("client"), limits.CLIENT_LENGTH_MAX),
        space=_legible(loose.get("space"), limits.SPACE_LENGTH_MAX) or rq.Request.SPACE,
        group=_legible(loose.get("group"), limits.NAME_LENGTH_MAX),
        reply=reply if type(reply) is int and reply >= 0 else None,
    )


def printable(text: str) -> str:
    """A message that may quote its sender, made safe to encode and of bounded length."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text[: limits.REASON_LENGTH_MAX])


def _nests_deeper_than(levels: int, value: bytes) -> bool:
    """Whether brackets outside strings nest deeper than this.

    The decoder gives up by the interpreter's recursion limit, which depends on who calls it: the
    same bytes would be refused in other words by another process.  # INV-01
    """
    brackets = _STRINGS.sub(b"", value).translate(None, _NO_BRACKETS)
    # Without a loop in Python: a megabyte of brackets held up all groups of the shard.  # INV-40
    return max(accumulate(map(_BRACKETS.__getitem__, brackets)), default=0) > levels


def _legible(field: Any, bytes_max: int) -> str:
    return field if isinstance(field, str) and is_name(field, bytes_max) else ""
