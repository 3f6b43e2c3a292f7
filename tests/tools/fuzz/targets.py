"""What is fuzzed: a name, the valid inputs that mutations start from, and the wall itself.

A wall says what became of an input, in a word or two; anything that it raises is a bug.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from coordlib.core.groups.assignors import ownership
from coordlib.core.wire import claims, codec
from coordlib.core.wire import consumer_protocol as cp
from coordlib.core.wire.data_headers import (
    MARKER_HEADER,
    TXN_HEADER,
    Stamp,
    header_of,
    read_headers,
)
from coordlib.core.wire.envelope import Refusal
from tests.tools.fuzz import inputs

ACCEPTED: Final = "accepted"
_PARTICULARS: Final = re.compile(r"`[^$`][^`]*`|'[^']*'|0x[0-9a-f]+|\d+")


@dataclass(frozen=True, slots=True)
class Target:
    """One wall."""

    name: str
    is_json: bool
    #: How many of a hundred inputs go to it.
    share: int
    valid: Callable[[], Sequence[bytes]]
    #: ACCEPTED and the kind of value, or the name of the refusal.
    wall: Callable[[bytes], str]


def _request(value: bytes) -> str:
    found = codec.decode_request(value)
    if isinstance(found, Refusal):
        codec.encode(found.message)  # it is told in an answer and in an event
        return f"{found.error.name} {_kind_of(found.message)}"
    return f"{ACCEPTED} {type(found).__name__}"


def _response(value: bytes) -> str:
    try:
        return f"{ACCEPTED} {type(codec.decode_response(value)).__name__}"
    except msgspec.MsgspecError as problem:
        return f"{type(problem).__name__} {_kind_of(str(problem))}"


def _subscription(value: bytes) -> str:
    return _unless_unreadable(cp.decode_subscription, value)


def _topics(value: bytes) -> str:
    return _unless_unreadable(cp.decode_topics, value)


def _assignment(value: bytes) -> str:
    return _unless_unreadable(cp.decode_assignment, value)


def _unless_unreadable(decode: Callable[[bytes], object], value: bytes) -> str:
    try:
        decode(value)
    except cp.Unreadable as problem:
        return f"Unreadable {_kind_of(str(problem))}"
    return ACCEPTED


def _user_data(value: bytes) -> str:
    ownership.decode_sticky(value)
    ownership.decode_cooperative(value)
    return ACCEPTED


def _message(value: bytes) -> str:
    """Claims: the short way of short messages must come to what the long way comes to."""
    found = claims.read(value)
    assert found == claims.read_any(value), "two ways, two outcomes"
    if isinstance(found, claims.Rejected):
        return f"{found.error.value} {found.sentence}"
    assert claims.decode(claims.encode(found)) == found
    return f"{ACCEPTED} {type(found).__name__}"


def _headers(value: bytes) -> str:
    """Of a record in a user's topic: as a stamp and as a marker, as bytes and as text."""
    texts: tuple[bytes | str, ...] = (value, value.decode(errors="surrogateescape"))
    found = {
        read_headers([(name, text)], has_value=name == TXN_HEADER)
        for name in (TXN_HEADER, MARKER_HEADER)
        for text in texts
    } - {None}
    for each in found:
        assert each is not None
        again = read_headers([header_of(each)], has_value=isinstance(each, Stamp))
        assert again == each, "it is written as another one"
    kinds = sorted({type(each).__name__ for each in found})
    return f"{ACCEPTED} {' '.join(kinds)}" if kinds else "of somebody else"


def _kind_of(message: str) -> str:
    """A message without what it quotes and counts: inputs that get it are alike."""
    return _PARTICULARS.sub("#", message)[:120]


TARGETS: Final = (
    Target("request", True, 70, inputs.requests, _request),
    Target("response", True, 12, inputs.responses, _response),
    Target("subscription", False, 6, inputs.subscriptions, _subscription),
    Target("topics", False, 4, inputs.subscriptions, _topics),
    Target("assignment", False, 6, inputs.assignments, _assignment),
    Target("user data", False, 2, inputs.assignments, _user_data),
    Target("message", False, 8, inputs.messages, _message),
    Target("headers", True, 6, inputs.headers, _headers),
)
BY_NAME: Final = {target.name: target for target in TARGETS}
