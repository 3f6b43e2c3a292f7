"""What the engine tells a sender names what the sender asked for, and does not call it a group."""

from typing import Any

import msgspec
import pytest

from coordlib.core.engine import refusals
from coordlib.core.engine.protocol import Registry
from coordlib.core.groups.protocol import Groups
from coordlib.core.wire import api
from coordlib.errors import ErrorCode
from tests.core.engine.test_least_kinds import (
    ClubFamily,
    Clubs,
    Count,
    Counter,
    CounterFamily,
    Counters,
    Enter,
    asks,
    said,
)
from tests.tools import core
from tests.tools.driving import SETTINGS, Conversation

#: Errors that the engine itself answers for any kind, with the text that they have by default.
OF_ANY_KIND = (
    ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.INVALID_GROUP_ID,
    ErrorCode.INVALID_REQUEST,
    ErrorCode.NON_EMPTY_GROUP,
    ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.WRONG_SHARD,
)


@pytest.fixture(autouse=True)
def _kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core, "REGISTRY", Registry(Groups, CounterFamily, ClubFamily))


def answer_to(talk: Conversation, request: Any) -> str:
    (answer,) = (each for each in said(talk, request) if "error" in each)
    return str(answer["message"])


def test_default_texts_do_not_speak_of_groups() -> None:
    """Kafka's names of errors do, and clients know them by these."""
    assert [each.name for each in OF_ANY_KIND if "group" in each.what_to_do.lower()] == []


def test_nothing_to_release() -> None:
    """An operator mistook one name for another."""
    talk = Conversation()
    said(talk, asks(Enter))
    why = "This club is not quarantined: there is nothing to release."
    assert answer_to(talk, asks(api.ReleaseQuarantine, space="club")) == why


@pytest.mark.parametrize(
    ("request_", "why"),
    [
        (asks(Count, ""), "The name of the counter is empty: give one."),
        (asks(api.DescribeGroup, "", space="club"), "The name of the club is empty: give one."),
        (asks(api.DescribeGroup, ""), "The name of the group is empty: give one."),
    ],
)
def test_an_empty_name(request_: api.Request, why: str) -> None:
    """A client's setting is missing."""
    assert answer_to(Conversation(), request_) == why


@pytest.mark.parametrize(
    ("type_", "space"), [(Count, "counter"), (Enter, "club"), (api.OffsetFetch, "group")]
)
def test_the_wrong_shard(type_: type[api.Request], space: str) -> None:
    """A producer with a partitioner of its own."""
    talk = Conversation(msgspec.structs.replace(SETTINGS, shards=2, shard=1))
    assert answer_to(talk, asks(type_, "h")) == f"This {space} belongs into partition 0 of 2."


def test_another_kind_of_the_same_space() -> None:
    """Two programs of different protocols use one name."""
    talk = Conversation()
    request, value = asks(Count), Counter(group="g")
    kinds = Counters(), Clubs()
    told, _ = refusals.inapplicable(request, talk.shard._here(), kinds[0], value, kinds[1])
    why = "This counter is counter, not club: use another name, or stop its members first."
    assert told.response.message == why  # type: ignore[union-attr]
