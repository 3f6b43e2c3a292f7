"""The requests of one member: who it is, its timing, and every request built in one place.

A correlation id is a token that is random per member instance, and a counter: never used twice,
also not by the next process with the same client id.
"""

from dataclasses import dataclass
from typing import Any

from msgspec import UNSET, UnsetType

from coordlib.client.groups.assignor import Assignor, SubscriptionState
from coordlib.client.kit.signals import Subscription, WhyNot
from coordlib.core.wire import consumer_protocol as cp
from coordlib.core.wire import requests as rq
from coordlib.core.wire.producers import Result
from coordlib.core.wire.transactions import DELTA

WIRE_VERSION = 1
#: Of a correlation id's number; no client counts that far, and more would be slow to read.
_DIGITS_MAX = 20


@dataclass(frozen=True, slots=True)
class Identity:
    """What a member says of itself in every request."""

    group: str
    client: str
    #: Random per instance, hexadecimal, without "-".
    token: str
    #: The group's partition of `coord.requests`.
    shard: int
    #: The partition of `coord.responses` that is read for this member.
    reply: int
    #: First 8 characters of the topic id of `coord.requests`.
    incarnation: str
    #: The coordinator's topic prefix.
    prefix: str = "coord"
    #: Static instance id (KIP-345).
    instance: str | None = None
    #: Where it runs, for assignors that look at racks (KIP-881).
    rack: str | None = None
    #: Where it runs, for people: shown, and it decides nothing.
    host: str | None = None
    #: What its group shares, if it is a classic one.
    protocol_type: str = cp.CONSUMER

    def member_at(self, offset: int) -> str:
        """The member id that a first JoinGroup at this log offset gives (core/wire/README.md)."""
        return f"{self.client}-{self.incarnation}-{self.shard}-{offset}"


@dataclass(frozen=True, slots=True)
class Timing:
    """A member's promises, milliseconds. The rebalance timeout is also `max.poll.interval.ms`."""

    session_timeout_ms: int = 45_000
    rebalance_timeout_ms: int = 300_000
    heartbeat_interval_ms: int = 3_000
    #: How often the topics' metadata are looked at; 0 or less: only when they must be.
    metadata_refresh_ms: int = 300_000
    #: A leader makes its group rebalance for changed topics at most once in this time.
    rebalance_interval_ms: int = 10_000


class Wording:
    """Builds this member's requests, each under an id of its own."""

    def __init__(self, identity: Identity, timing: Timing) -> None:
        self.identity, self.timing = identity, timing
        self._count = 0

    def next_id(self) -> str:
        self._count += 1
        return f"{self.identity.token}-{self._count}"

    def is_before(self, id_: str, mark: str) -> bool:
        """Whether one of this member's ids was given out before another.

        One that it never gave out counts so, too: whoever made it up, it concerns nothing of now.
        """
        number = id_.rpartition("-")[2]
        is_own = number.isascii() and number.isdecimal() and len(number) <= _DIGITS_MAX
        return not is_own or int(number) < int(mark.rpartition("-")[2])

    def join(
        self,
        member: str,
        assignors: tuple[Assignor, ...],
        state: SubscriptionState,
        reason: str | None,
    ) -> rq.JoinGroup:
        offered = tuple(
            rq.Protocol(name=each.name, metadata=each.metadata(state)) for each in assignors
        )
        return rq.JoinGroup(
            **self._envelope(),
            member=member,
            generation=state.generation,
            instance=self.identity.instance,
            session_timeout_ms=self.timing.session_timeout_ms,
            rebalance_timeout_ms=self.timing.rebalance_timeout_ms,
            protocol_type=self.identity.protocol_type,
            protocols=offered,
            reason=reason,
            host=self._host(state.generation),
        )

    def sync(
        self,
        member: str,
        generation: int,
        protocol: str | None,
        assignments: tuple[rq.MemberAssignment, ...],
        why: WhyNot | None = None,
    ) -> rq.SyncGroup:
        """`why`: there are no assignments; only to a job that takes the reason."""
        failed = {} if why is None else why._asdict()
        return rq.SyncGroup(
            **self._envelope(),
            **failed,
            generation=generation,
            member=member,
            instance=self.identity.instance,
            protocol_type=self.identity.protocol_type,
            protocol=protocol,
            assignments=assignments,
        )

    def heartbeat(self, member: str, generation: int) -> rq.Heartbeat:
        return rq.Heartbeat(
            **self._envelope(),
            generation=generation,
            member=member,
            instance=self.identity.instance,
        )

    def leave(self, member: str, reason: str | None) -> rq.LeaveGroup:
        """A static member keeps its place: it only says that it has stopped (KIP-1092)."""
        leaver = rq.Leaver(member=member, instance=self.identity.instance)
        is_static = self.identity.instance is not None
        return rq.LeaveGroup(**self._envelope(), members=(leaver,), reason=reason, remain=is_static)

    def commit(
        self, member: str, generation: int, offsets: tuple[rq.CommittedOffset, ...]
    ) -> rq.OffsetCommit:
        return rq.OffsetCommit(
            **self._envelope(),
            generation=generation,
            member=member,
            instance=self.identity.instance,
            offsets=offsets,
        )

    def commit_with_writes(
        self, member: str, generation: int, offsets: tuple[rq.CommittedOffset, ...], table: str
    ) -> rq.PendingCommit:
        return rq.PendingCommit(
            **self._envelope(),
            generation=generation,
            member=member,
            instance=self.identity.instance,
            decided_by=DELTA,
            table=table,
            offsets=offsets,
        )

    def decide(self, member: str, generation: int, key: str, result: Result) -> rq.DecidePending:
        return rq.DecidePending(
            **self._envelope(), pending=key, result=result, member=member, generation=generation
        )

    def fetch(
        self, topics: tuple[rq.TopicPartitions, ...] | None, is_stable: bool = True
    ) -> rq.OffsetFetch:
        return rq.OffsetFetch(**self._envelope(), topics=topics, require_stable=is_stable)

    def subscribe(
        self, member: str, generation: int, wanted: Subscription, reason: str | None
    ) -> rq.Subscribe:
        return rq.Subscribe(
            **self._envelope(),
            member=member,
            generation=generation,
            topics=wanted.topics,
            pattern=wanted.pattern,
            exclude=wanted.exclude,
            strategy=wanted.strategy,
            session_timeout_ms=self.timing.session_timeout_ms,
            rebalance_timeout_ms=self.timing.rebalance_timeout_ms,
            capacity=wanted.capacity,
            reason=reason,
            host=self._host(generation),
        )

    def release(
        self, member: str, generation: int, cause: int, offsets: tuple[rq.CommittedOffset, ...]
    ) -> rq.Release:
        return rq.Release(
            **self._envelope(), generation=generation, member=member, cause=cause, offsets=offsets
        )

    def _host(self, generation: int) -> str | UnsetType:
        """That of the request by which a member enters is kept; later ones need not repeat it."""
        return self.identity.host if self.identity.host and generation < 0 else UNSET

    def _envelope(self) -> dict[str, Any]:
        return {
            "v": WIRE_VERSION,
            "id": self.next_id(),
            "client": self.identity.client,
            "group": self.identity.group,
            "reply": self.identity.reply,
        }
