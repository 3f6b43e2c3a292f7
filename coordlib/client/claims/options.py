"""What a consumer of claims may be asked for, checked before anything is opened."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from coordlib import limits
from coordlib.core.wire.checks import is_name, is_topic
from coordlib.errors import SetupError

Delivery = Literal["at-least-once", "at-most-once"]
AT_LEAST_ONCE: Final[Delivery] = "at-least-once"
AT_MOST_ONCE: Final[Delivery] = "at-most-once"
#: Its values of `auto.offset.reset`, and whether a partition then begins at its log's end.
_RESETS: Final = {
    **dict.fromkeys(("earliest", "beginning", "smallest"), False),
    **dict.fromkeys(("latest", "end", "largest"), True),
}
#: Keys of consumer groups that promise what claims do not have.
_NOT_OFFERED: Final = {
    "group.protocol": "Leave it out: claims have no coordinator.",
    "transactional.id": "Leave it out here, and give it to a producer.",
    "group.instance.id": "Leave it out: client.id is what outlives a restart.",
    "partition.assignment.strategy": "Leave it out: consumers claim what is free.",
    "session.timeout.ms": "Leave it out: the coordination topic's name says the interval.",
    "heartbeat.interval.ms": "Leave it out: the coordination topic's name says the interval.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerOptions:
    """Options of one `MarshalConsumer`; Marshal's names stand in brackets.

    Raises SetupError for numbers out of range, and for options that contradict each other.
    """

    #: At the start, reclaim what this client id holds by an earlier process [FastReclaim].
    fast_reclaim: bool = True
    #: Partition 0 is the key to a topic; losing one partition releases all [ClaimEntireTopic].
    claim_entire_topic: bool = False
    #: Claim all that is free in one pass, not one partition per pass [GreedyClaims].
    greedy_claims: bool = False
    #: Release partitions that this consumer cannot keep up with [ReleaseClaimsIfBehind].
    release_claims_if_behind: bool = True
    #: Partitions, or topics where whole ones are claimed; 0: no limit [MaximumClaims].
    maximum_claims: int = 0
    #: One message in flight per partition, the next one after its commit [StrictOrdering].
    strict_ordering: bool = False
    delivery: Delivery = AT_LEAST_ONCE
    #: Write positions to Kafka's group of this name, too, for those who watch it.
    commit_to_kafka: bool = True
    #: Uncommitted messages per partition; with more, no further ones come [MaxMessageQueue].
    max_message_queue: int = 1_000
    #: How long a broker may hold back an empty fetch [ConsumeRequestTimeout].
    fetch_wait_ms: int = 500
    #: Largest message that can be read [MaxMessageSize].
    max_message_bytes: int = 2_000_000

    def __post_init__(self) -> None:
        if self.delivery not in (AT_LEAST_ONCE, AT_MOST_ONCE):
            raise SetupError(f"delivery is {AT_LEAST_ONCE} or {AT_MOST_ONCE}.", repr(self.delivery))
        _at_least("maximum_claims", self.maximum_claims, 0)
        _at_least("max_message_queue", self.max_message_queue, 1)
        _at_least("fetch_wait_ms", self.fetch_wait_ms, 0)
        _at_least("max_message_bytes", self.max_message_bytes, 1_000)
        if self.is_at_most_once and self.strict_ordering:
            raise SetupError(
                "strict_ordering waits for commits, and delivery at most once has none.",
                "strict_ordering=True",
                "Leave out one of them.",
            )
        if self.is_at_most_once and not self.commit_to_kafka:
            raise SetupError(
                "At most once needs commit_to_kafka.",
                "commit_to_kafka=False",
                "Leave it on: a reader that begins late may have no other position.",
            )

    @property
    def is_at_most_once(self) -> bool:
        return self.delivery == AT_MOST_ONCE


def _at_least(name: str, value: int, least: int) -> None:
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    if not is_whole or value < least:
        raise SetupError(f"{name} is a whole number of {least} or more.", repr(value))


@dataclass(frozen=True, slots=True)
class Settings:
    """A marshaler's configuration, taken apart."""

    group: str
    client: str
    prefix: str
    #: Without a position, begin at the log's end instead of its start.
    begins_at_end: bool
    #: Options for every Kafka client.
    common: Mapping[str, Any]


def read_settings(config: Mapping[str, Any]) -> Settings:
    """Take a configuration apart. Raises SetupError, naming the key.

    `auto.offset.reset` is `earliest` unless given, as in Marshal.
    """
    rest = dict(config)
    for key, mend in _NOT_OFFERED.items():
        if key in rest:
            raise SetupError(f"{key} is not offered with claims.", repr(rest[key]), mend)
    if str(rest.pop("enable.auto.commit", False)).lower() not in {"false", "0"}:
        raise SetupError(
            "enable.auto.commit is not offered.", "", "Call commit() when work is done."
        )
    reset = str(rest.pop("auto.offset.reset", "earliest"))
    if reset not in _RESETS:
        raise SetupError("auto.offset.reset is none of " + ", ".join(_RESETS) + ".", repr(reset))
    return Settings(
        group=_name("group.id", rest.pop("group.id", "")),
        client=_name("client.id", rest.pop("client.id", "")),
        prefix=str(rest.pop("coord.prefix", "coord")),
        begins_at_end=_RESETS[reset],
        common=rest,
    )


def _name(key: str, given: object) -> str:
    """A name that can stand in a message, whose fields are split at `/`."""
    text = str(given or "")
    if not is_name(text, limits.NAME_LENGTH_MAX) or "/" in text:
        raise SetupError(
            f"{key} cannot stand in a claim's message.",
            repr(given),
            f"Give 1 to {limits.NAME_LENGTH_MAX} bytes without / and control characters.",
        )
    return text


def topics_wanted(topics: Sequence[str], options: ConsumerOptions) -> tuple[str, ...]:
    """The topics of one consumer, each once.

    Raises SetupError: none, a name that no topic can have (an expression, say), or several without
    `claim_entire_topic`.
    """
    if isinstance(topics, str):
        raise SetupError("Topics are given as a list.", repr(topics), f"Give [{topics!r}].")
    for each in topics:
        if not isinstance(each, str) or not is_topic(each):
            what, mend = "No topic can have this name.", "Name topics; there are no expressions."
            raise SetupError(what, repr(each)[:300], mend)
    wanted = tuple(dict.fromkeys(topics))
    if not wanted:
        raise SetupError("A consumer needs a topic.", "topics", "Name at least one.")
    if len(wanted) > 1 and not options.claim_entire_topic:
        raise SetupError(
            "Several topics need claim_entire_topic.",
            ", ".join(wanted),
            "Set it, or make one consumer for each topic.",
        )
    return wanted
