"""Bytes to typed requests, and typed values to bytes. Total: any bytes give a request or a
`Refusal`, never an exception.

Decoding has two steps. The first is msgspec's: shape, types, ranges, unknown fields. The second
makes checks that a schema cannot: UTF-8 lengths, control characters, sums over nested lists. Those
of the envelope are here, a request's own are its `fault()`. A request that fails is read again,
leniently, only to find its sender for the answer.
"""

import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import accumulate
from typing import Any, Final, Union

import msgspec

from coordlib import limits
from coordlib.core.wire import api as rq
from coordlib.core.wire import api as rs
from coordlib.core.wire.admin import fields_by_type
from coordlib.core.wire.envelope import CONTROL, is_name, no_name
from coordlib.errors import ErrorCode

_decode_loose = msgspec.json.Decoder(dict[str, Any]).decode
_response_decoder = msgspec.json.Decoder(rs.AnyResponse)

#: Possessive, and a string that is never closed ends with the value: linear for any bytes.
_STRINGS: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)', re.DOTALL)
_BRACKETS: Final = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}
_NO_BRACKETS: Final = bytes(byte for byte in range(256) if byte not in _BRACKETS)
WIRE_VERSION: Final = 1


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
    """Reads requests of some types, and of no others.

    Args:
        types: of requests, and of records of the job's driver.
    """

    def __init__(self, types: Sequence[type[Any]]) -> None:
        self._decode = msgspec.json.Decoder(Union[tuple(types)]).decode  # noqa: UP007
        self._types = {each.__struct_config__.tag: each for each in types}

    @cached_property
    def fields(self) -> dict[str, tuple[str, ...]]:
        """The requests among its types with their fields, as ApiVersions answers them."""
        return fields_by_type(self._types.values())

    def read(self, value: bytes | None) -> Any:
        """Read one record's value as a request of wire version 1, or as a `Refusal`.

        Raises nothing.  # INV-40
        """
        if value is None:
            return Refusal(
                error=ErrorCode.INVALID_REQUEST, message="The record has no value: write a request."
            )
        size_bytes, most = len(value), limits.REQUEST_BYTES_MAX
        if size_bytes > most:
            # Read for its sender, who waits for an answer: the topic takes little more than this.
            too_large = f"The request has {size_bytes} bytes: send at most {most}."
            return _refuse(value, ValueError(too_large), self._types)
        try:
            request = self._decode(value)
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as problem:
            return _refuse(value, problem, self._types)
        fault = _semantic_fault(request)
        return request if fault is None else _refuse(value, ValueError(fault), self._types)


#: All requests and records that there are.
decode_request: Final = RequestReader(rq.AnyRequest.__args__).read


#: Any wire value as JSON; dictionaries keep their order, so equal values give equal bytes.
encode: Final = msgspec.json.Encoder().encode


def encode_request(request: rq.Request) -> bytes:
    """The bytes of a request. Raises ValueError, with the reason: no job would read it."""
    try:
        value = encode(request)
    except (UnicodeError, OverflowError) as problem:  # of text or a number from the user
        raise ValueError(str(problem)) from problem
    if len(value) > limits.REQUEST_BYTES_MAX:
        raise ValueError(
            f"it has {len(value):,} bytes, and a request at most {limits.REQUEST_BYTES_MAX:,}"
        )
    return value


def decode_response(value: bytes) -> rs.AnyResponse:
    """Read a response or notification. Raises msgspec.MsgspecError on anything else."""
    try:
        response: rs.AnyResponse = _response_decoder.decode(value)
    except (UnicodeError, RecursionError) as problem:
        # msgspec's own way to meet bad UTF-8; readers of answers expect one kind of error.
        raise msgspec.DecodeError(f"No response: {problem}") from problem
    return response


def _semantic_fault(request: rq.Request | rq.Control) -> str | None:
    if isinstance(request, rq.Control):
        return request.fault()
    if not is_name(request.client, limits.CLIENT_LENGTH_MAX):
        return no_name("client", limits.CLIENT_LENGTH_MAX)
    # An empty group is Kafka's INVALID_GROUP_ID, which the coordinator answers.
    if request.group and not is_name(request.group, limits.NAME_LENGTH_MAX):
        return no_name("group")
    if not is_name(request.id, limits.CORRELATION_ID_LENGTH_MAX):
        return no_name("id", limits.CORRELATION_ID_LENGTH_MAX)
    return request.fault()


def _refuse(value: bytes, problem: Exception, types: Mapping[str, type[Any]]) -> Refusal:
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
    space, name = _entity_of(loose, types)
    return Refusal(
        error=error,
        message=message,
        id=_legible(loose.get("id"), limits.CORRELATION_ID_LENGTH_MAX) or None,
        client=_legible(loose.get("client"), limits.CLIENT_LENGTH_MAX),
        space=space,
        group=_legible(loose.get(name), limits.NAME_LENGTH_MAX),
        reply=reply if type(reply) is int and reply >= 0 else None,
    )


def _entity_of(loose: Mapping[str, Any], types: Mapping[str, type[Any]]) -> tuple[str, str]:
    """The space of a bad request, and the field in which its type has the entity's name."""
    told, tag = loose.get("space"), loose.get("type")
    request = types.get(tag, rq.Request) if isinstance(tag, str) else rq.Request
    if not issubclass(request, rq.Request):
        return rq.Request.SPACE, "group"
    fields = zip(request.__struct_fields__, request.__struct_encode_fields__, strict=True)
    return _legible(told, limits.SPACE_LENGTH_MAX) or request.SPACE, dict(fields)["group"]


def printable(text: str) -> str:
    """A message that may quote its sender, made safe to encode and of bounded length."""
    return CONTROL.sub("\N{REPLACEMENT CHARACTER}", text[: limits.REASON_LENGTH_MAX])


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
