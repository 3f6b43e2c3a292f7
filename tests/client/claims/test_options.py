"""Options and settings of consumers of claims: what cannot be kept is refused before any broker."""

from typing import Any

import pytest

from coordlib.client.claims.options import ConsumerOptions, read_settings, topics_wanted
from coordlib.errors import SetupError

GOOD = {"bootstrap.servers": "b:1", "group.id": "billing", "client.id": "worker-3"}


def test_the_defaults_are_those_of_marshal() -> None:
    options = ConsumerOptions()

    assert options.fast_reclaim
    assert options.release_claims_if_behind
    assert not (options.claim_entire_topic)
    assert not (options.greedy_claims)
    assert not (options.strict_ordering)
    assert (options.maximum_claims, options.max_message_queue) == (0, 1_000)


@pytest.mark.parametrize(
    "wrong",
    [
        {"delivery": "exactly-once"},
        {"maximum_claims": -1},
        {"maximum_claims": True},
        {"max_message_queue": 0},
        {"fetch_wait_ms": -1},
        {"max_message_bytes": 10},
        {"delivery": "at-most-once", "commit_to_kafka": False},
    ],
)
def test_options_that_cannot_be_kept_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(SetupError):
        ConsumerOptions(**wrong)  # type: ignore[arg-type]


def test_settings_are_taken_apart() -> None:
    settings = read_settings({**GOOD, "auto.offset.reset": "latest", "coord.prefix": "other"})

    assert (settings.group, settings.client, settings.prefix) == ("billing", "worker-3", "other")
    assert settings.begins_at_end
    assert settings.common == {"bootstrap.servers": "b:1"}


def test_a_partition_begins_at_its_start_unless_told_otherwise() -> None:
    """Marshal's clients are replaced one by one: all begin alike."""
    assert not read_settings(GOOD).begins_at_end


@pytest.mark.parametrize(
    "wrong",
    [
        {"group.id": ""},
        {"group.id": "a/b"},
        {"client.id": "a/b"},
        {"client.id": "\x1b[2J"},
        {"client.id": "x" * 250},
        {"auto.offset.reset": "error"},
        {"enable.auto.commit": True},
        {"group.protocol": "assigned"},
        {"session.timeout.ms": 10_000},
    ],
)
def test_settings_that_cannot_be_kept_are_refused(wrong: dict[str, object]) -> None:
    """B4: a name with a slash is written, never decoded, and waited for without an end."""
    with pytest.raises(SetupError):
        read_settings({**GOOD, **wrong})


@pytest.mark.parametrize("missing", ["group.id", "client.id"])
def test_both_names_are_needed(missing: str) -> None:
    with pytest.raises(SetupError, match=missing):
        read_settings({key: value for key, value in GOOD.items() if key != missing})


@pytest.mark.parametrize("topics", [[], ["a/b"], [""], ["a", "b"], "orders"])
def test_topics_that_cannot_be_claimed_are_refused(topics: list[str]) -> None:
    with pytest.raises(SetupError):
        topics_wanted(topics, ConsumerOptions())


def test_several_topics_are_claimed_whole() -> None:
    assert topics_wanted(["b", "a", "b"], ConsumerOptions(claim_entire_topic=True)) == ("b", "a")


@pytest.mark.parametrize("name", ["^grow.*", "", "a b", "a/b", "..", "x" * 250, None, 7])
def test_what_can_be_no_topic_is_refused(name: Any) -> None:
    """An expression was taken for a name, and nothing ever came."""
    with pytest.raises(SetupError, match="No topic can have this name"):
        topics_wanted([name], ConsumerOptions())
