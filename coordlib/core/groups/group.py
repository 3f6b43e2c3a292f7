"""A consumer group of any kind: its value, its step, the settings and topics that it depends on.

A topic that is deleted and made anew has its name again, and another id. Ids have no order, so the
listings of the driver give one: an id that one of them has shown, and a later one has replaced, is
old. What was committed under it means nothing in the topic of now.  # INV-130

A broker that is behind may show an old id, and a late record of an older driver too. So an old id
becomes the present one again only when two whole listings in a row show it: the one that replaced
it was such an error then.

An id that no listing has shown is no old one: the client may have seen the topic before the driver
has, or reads it in another cluster. And a topic that a listing leaves out keeps its id: a right
that was taken away looks the same.

Generations are compared as serial numbers (RFC 1982): of two, the older one is the one from which
fewer steps lead to the other. So 2**31 - 1 is older than 1, and a number that a group never had
counts as older or newer, whichever is nearer.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Final, Protocol, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from coordlib import limits
from coordlib.config import GroupConfig, TransactionsConfig
from coordlib.core.engine import effects as fx
from coordlib.core.engine.effects import ASSIGNMENTS
from coordlib.core.engine.step import SHARD_IS_FULL, SHARD_IS_TOO_LARGE, Step
from coordlib.core.engine.time import Timer
from coordlib.core.wire import api, codec, stored
from coordlib.core.wire.stored import AssignmentValue
from coordlib.core.wire.stored import TopicIds as Ids
from coordlib.errors import ErrorCode
from coordlib.limits import INT32_MAX


class GroupSettings(msgspec.Struct, frozen=True):
    """The section `group`, what was loaded by the section `assigned`, and `transactions`."""

    config: GroupConfig = GroupConfig()
    #: Strategies that the configuration adds, by friendly name: pure functions.
    strategies: dict[str, Any] = {}
    transactions: TransactionsConfig = TransactionsConfig()


#: Those that no setting changes, by the names of `limits` in lower case.
_FIXED: Final[Mapping[str, int]] = {
    "capacity_max": limits.CAPACITY_MAX,
    "fetch_partitions_max": limits.FETCH_PARTITIONS_MAX,
    "leavers_max": limits.LEAVERS_MAX,
    "offsets_per_request_max": limits.OFFSETS_PER_REQUEST_MAX,
    "pattern_length_max": limits.PATTERN_LENGTH_MAX,
    "protocol_name_length_max": limits.PROTOCOL_NAME_LENGTH_MAX,
    "protocols_max": limits.PROTOCOLS_MAX,
    "rebalance_timeout_max_ms": limits.REBALANCE_TIMEOUT_MAX_MS,
    "rebalance_timeout_min_ms": limits.REBALANCE_TIMEOUT_MIN_MS,
    "subscribed_topics_max": limits.SUBSCRIBED_TOPICS_MAX,
}


def bounds_of(config: GroupConfig) -> dict[str, int]:
    """All bounds, with those that the job's settings give."""
    return {
        **_FIXED,
        "group_size_max": config.max_size,
        "new_groups_per_second_max": config.new_groups_per_second_max,
        "offset_metadata_length_max": config.offset_metadata_length_max,
        "offsets_bytes_per_group_max": config.offsets_bytes_per_group_max,
        "offsets_per_group_max": config.offsets_per_group_max,
        "session_timeout_max_ms": config.session_timeout_max_ms,
        "session_timeout_min_ms": config.session_timeout_min_ms,
    }


#: Steps from an older generation to a newer one are at most half of the ring.
_HALF: Final = INT32_MAX // 2


def next_generation(generation: int) -> int:
    """The next generation; after the last int32 comes 1.  # INV-11

    Kafka's generation would turn negative there, and no member has a negative one.
    """
    return generation % INT32_MAX + 1


def is_older(generation: int, other: int) -> bool:
    """Whether a generation was issued before another one. None yet (0 or -1) is the oldest."""
    if generation < 1 or other < 1:
        return generation < other
    return 0 < (other - generation) % INT32_MAX <= _HALF


NO_IDS: Final[tuple[str, ...]] = ()


def learn_topics(
    known: Mapping[str, int], metadata: api.TopicMetadata
) -> tuple[dict[str, int], tuple[str, ...]]:
    """The topics after one record, and the names of the topics that it changed, in order.

    A topic that was deleted and created again with fewer partitions just has fewer. A shard keeps
    a bounded number of topics. Those that it has stay, since they may be read; new ones get the
    remaining room in order of name. The driver logs that some were left out.
    """
    listed = {row.topic: row.partitions for row in metadata.topics}
    kept = {
        name: listed.get(name, count)
        for name, count in known.items()
        if name in listed or not _lies_in(name, metadata)
    }
    new = sorted(listed.keys() - kept.keys())[: max(limits.TOPICS_MAX - len(kept), 0)]
    topics = dict(sorted((kept | {name: listed[name] for name in new}).items()))
    changed = sorted(
        name for name in known.keys() | topics.keys() if known.get(name) != topics.get(name)
    )
    return topics, tuple(changed)


def learn_topic_ids(
    ids: Ids, metadata: api.TopicMetadata, topics: Collection[str]
) -> tuple[dict[str, tuple[str, ...]], tuple[str, ...]]:
    """The ids after one record, and the names of the topics that were made anew, in order.

    The ids of topics that are gone are forgotten where others need the room.

    Args:
        topics: those that the shard keeps, after this record.
    """
    known, anew = dict(ids), []
    # A change of one topic is a record of its row alone, with a bound.
    is_whole = metadata.through is None or len(metadata.topics) > 1
    for row in metadata.topics:
        shown = known.get(row.topic, NO_IDS)
        if row.topic_id is UNSET or row.topic not in topics:
            continue
        known[row.topic] = now = _with(shown, row.topic_id, is_whole)
        if shown and shown[-1] != now[-1]:
            anew.append(row.topic)
    gone = sorted(known.keys() - set(topics)) if len(known) > limits.TOPICS_MAX else []
    for name in gone[: len(known) - limits.TOPICS_MAX]:
        del known[name]
    return dict(sorted(known.items())), tuple(anew)


def _with(shown: tuple[str, ...], topic_id: str, is_whole: bool) -> tuple[str, ...]:
    """The ids of a topic after a listing has shown this one."""
    once = tuple(dict.fromkeys(shown))
    if topic_id not in once:
        return (*once, topic_id)[-limits.TOPIC_IDS_MAX :]
    if topic_id == once[-1]:
        return once
    if not is_whole:
        return shown
    if shown.count(topic_id) > 1:
        return (*(each for each in once if each != topic_id), topic_id)
    return (*once[:-1], topic_id, once[-1])


def present_id(ids: Ids, topic: str, topic_id: str) -> str:
    """The id that has replaced this one; empty: it is not known as an old one."""
    shown = ids.get(topic, NO_IDS)
    return shown[-1] if topic_id in shown[:-1] else ""


def _lies_in(name: str, metadata: api.TopicMetadata) -> bool:
    is_behind = metadata.after is None or name > metadata.after
    return is_behind and (metadata.through is None or name <= metadata.through)


class AnyGroup(Protocol):
    """A group as a frozen value. Its kind defines all other fields."""

    @property
    def group(self) -> str:
        """Its name."""

    @property
    def generation(self) -> int:
        """Increases monotonically, even when the group changes its kind."""

    @property
    def members(self) -> Mapping[str, Any]:
        """By member id."""

    @property
    def is_empty(self) -> bool:
        """Whether it is in the state Empty: it has no members, and waits for none."""

    @property
    def is_quarantined(self) -> bool:
        """Set when a step of this group broke an invariant; an operator releases it."""

    @property
    def state_since_ms(self) -> int:
        """Log time of the newest change of state."""

    @property
    def state_since_clock_ms(self) -> int:
        """The same on the shard's clock: what retention counts on."""

    @property
    def is_settled(self) -> bool:
        """Whether it has members, and no change of their subscriptions is under way."""

    @property
    def tells_subscriptions(self) -> bool:
        """Whether its members' subscriptions can be read at all."""

    @property
    def kept_bytes(self) -> int:
        """An upper bound of its bytes in the shard's blob, without offsets."""

    def is_subscribed(self, topic: str) -> bool:
        """Whether a member subscribes to this topic, so that its offsets must be kept."""

    def reaction_timers(self) -> Iterator[Timer]:
        """The deadlines that start when a member can read what it must react to (rule 3)."""


#: For the sender of a request that comes when too many groups are being made.
SHARD_IS_THROTTLED: Final = (
    "Try again, or raise new_groups_per_second_max: this shard makes no more groups just now."
)


#: An error, with a sentence of its own or the error's; None: the request is not refused.
Refused = tuple[ErrorCode, str | None] | None


class GroupContext(msgspec.Struct, frozen=True, kw_only=True):
    """The state that all groups of a shard share, as far as a step may read it."""

    config: GroupConfig
    #: How long the next new group has to wait, because the shard makes too many; 0: it need not.
    throttle_ms: int
    #: The topics of the cluster as listed in the log, by partition count. Read only.
    topics: Mapping[str, int]
    #: Strategies that the job's configuration adds, by friendly name.
    strategies: Mapping[str, Any]
    transactions: TransactionsConfig = TransactionsConfig()
    #: The ids of topics that listings have shown. Read only.
    ids: Ids = MappingProxyType({})

    def throttle_time(self, code: ErrorCode) -> int | UnsetType:
        """How long the sender of a request that is refused with this error should wait, in ms."""
        return self.throttle_ms if code is ErrorCode.THROTTLING_QUOTA_EXCEEDED else UNSET

    def present_id(self, topic: str, topic_id: str | UnsetType) -> str:
        """The id that has replaced this one; empty: it is not known as an old one."""
        return present_id(self.ids, topic, topic_id) if topic_id else ""


G = TypeVar("G", bound=AnyGroup)


class GroupStep(Step[G], ABC):
    """One group during one step."""

    __slots__ = ()

    #: The state in which a group of this kind is deleted.
    DEAD: ClassVar[Any]
    #: Whether rows of commits are judged one by one, by `row_fault`.
    JUDGES_ROWS: ClassVar[bool] = False
    family: GroupContext

    @abstractmethod
    def commit_fault(self, request: api.OffsetCommit) -> Refused:
        """Why the sender of this commit may store no offsets as a member."""

    @abstractmethod
    def member_fault(self, member: str, instance: str | None, generation: int) -> ErrorCode:
        """Why offsets of this sender must not wait for a decision; NONE: they may."""

    def row_fault(self, _member: str, _generation: int, _row: api.CommittedOffset) -> ErrorCode:
        """Why a row is not this sender's to commit; NONE: it is, or the sender is no member."""
        return ErrorCode.NONE

    def new_group_fault(self, full: ErrorCode, grows_by: int = 0) -> Refused:
        """Why no group is made for a request.

        Args:
            full: the error of a shard without room.
            grows_by: bytes that the request adds; 0: they are counted elsewhere.
        """
        if not self.may_create:
            return full, SHARD_IS_FULL
        if self.family.throttle_ms:
            return ErrorCode.THROTTLING_QUOTA_EXCEEDED, SHARD_IS_THROTTLED
        if grows_by and grows_by > self.room_bytes:
            return full, SHARD_IS_TOO_LARGE
        return None

    def assign(self, member: str, value: AssignmentValue | None) -> None:
        """Publish a member's current assignment; None: the member is gone."""
        key = codec.encode([self.name, member])
        self.emit(fx.Publish(ASSIGNMENTS, key, value))

    def tell_removed(self, member: Any, reason: str) -> None:
        """Report a removal: to history, to the member itself, and to readers of assignments."""
        name, detail = member.member, {"client": member.client}
        self.record(stored.EVENT_MEMBER_REMOVED, member=name, reason=reason, detail=detail)
        self.notify_removed(member.reply, name, reason)
        self.assign(name, None)

    @property
    def new_group_bytes(self) -> int:
        """What the group has in the shard's blob when it has just been made, at most."""
        made: AnyGroup = self.kind.create(self.name, self.at)
        return made.kept_bytes

    @abstractmethod
    def enter(self, state: Any) -> None:
        """Change the state, along the kind's table only.  # INV-12"""

    def delete(self) -> None:
        """Delete the group, as the last act of its step: no request finds it any more."""
        self.enter(self.DEAD)
        super().delete()
