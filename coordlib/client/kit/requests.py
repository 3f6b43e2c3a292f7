"""The requests of one member: who sends them, how they are built, which are unanswered. Pure.

A correlation id is a token that is random per member instance, and a counter: never used twice,
also not by the next process with the same client id.

**Steps** of the protocol (JoinGroup, SyncGroup) go one after another. **Pending requests** are all
others. A fetch that meets a retriable error is sent again with back-off, and so is one of which a
partition waits for the end of a transaction: to begin at what is committed now would be to read
again what is about to count as done. A commit is not: a later one may be under way, and the older
would then overtake it; the caller decides whether to repeat it. A commit without a waiting caller,
which is refused because the coordinator has too much to write (THROTTLING), is put off and repeated
until its membership or its generation ends. A repeated commit, also one of a waiting caller, leaves
out the partitions for which a later commit stands, and waits while a later one is under way: if
that one is refused, the older goes on. One that a Delta table decides is repeated: a member has one
at a time, and it stays the same under its id. A Release is repeated, though it may carry offsets:
until it is judged, no member gets its partitions, its own sender neither. Nor does a topic go
before its brokers' reports of deletions are judged.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
from msgspec import UNSET, UnsetType

from coordlib.client.kit.events import Answer, Divide, Output, Send, Subscription, WhyNot
from coordlib.core.wire import api
from coordlib.core.wire import consumer_protocol as cp
from coordlib.core.wire.envelope import WIRE_VERSION
from coordlib.core.wire.offsets import DELTA
from coordlib.core.wire.transactions import Result
from coordlib.errors import CannotReach, CoordError, ErrorCode, GroupError

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
        """The member id that a first JoinGroup at this offset gives (docs/reference/wire.md)."""
        return f"{self.client}-{self.incarnation}-{self.shard}-{offset}"

    def envelope(self, id_: str) -> dict[str, Any]:
        """The fields that all requests of it begin with, under this correlation id."""
        return {
            "v": WIRE_VERSION,
            "id": id_,
            "client": self.client,
            "group": self.group,
            "reply": self.reply,
        }


@dataclass(frozen=True, slots=True)
class Timing:
    """A member's promises, milliseconds. The rebalance timeout is also `max.poll.interval.ms`."""

    #: A member that is silent for as long is removed.
    session_timeout_ms: int = 45_000
    #: How long a member may take to join a rebalance; also the longest time between polls.
    rebalance_timeout_ms: int = 300_000
    heartbeat_interval_ms: int = 3_000
    #: How often the topics' metadata are looked at; 0 or less: only when they must be.
    metadata_refresh_ms: int = 300_000
    #: A leader makes its group rebalance for changed topics at most once in this time.
    rebalance_interval_ms: int = 10_000


class RequestBuilder:
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
        generation: int,
        protocols: tuple[api.Protocol, ...],
        reason: str | None,
    ) -> api.JoinGroup:
        return api.JoinGroup(
            **self._envelope(),
            member=member,
            generation=generation,
            instance=self.identity.instance,
            session_timeout_ms=self.timing.session_timeout_ms,
            rebalance_timeout_ms=self.timing.rebalance_timeout_ms,
            protocol_type=self.identity.protocol_type,
            protocols=protocols,
            reason=reason,
            host=self._host(generation),
        )

    def sync(
        self,
        member: str,
        generation: int,
        protocol: str | None,
        assignments: tuple[api.MemberAssignment, ...],
        why: WhyNot | None = None,
    ) -> api.SyncGroup:
        """`why`: there are no assignments; only to a job that takes the reason."""
        failed = {} if why is None else why._asdict()
        return api.SyncGroup(
            **self._envelope(),
            **failed,
            generation=generation,
            member=member,
            instance=self.identity.instance,
            protocol_type=self.identity.protocol_type,
            protocol=protocol,
            assignments=assignments,
        )

    def heartbeat(self, member: str, generation: int) -> api.Heartbeat:
        return api.Heartbeat(
            **self._envelope(),
            generation=generation,
            member=member,
            instance=self.identity.instance,
        )

    def leave(self, member: str, reason: str | None) -> api.LeaveGroup:
        """A static member keeps its place: it only says that it has stopped (KIP-1092)."""
        leaver = api.Leaver(member=member, instance=self.identity.instance)
        is_static = self.identity.instance is not None
        return api.LeaveGroup(
            **self._envelope(), members=(leaver,), reason=reason, remain=is_static
        )

    def commit(
        self, member: str, generation: int, offsets: tuple[api.CommittedOffset, ...]
    ) -> api.OffsetCommit:
        return api.OffsetCommit(
            **self._envelope(),
            generation=generation,
            member=member,
            instance=self.identity.instance,
            offsets=offsets,
        )

    def commit_with_writes(
        self, member: str, generation: int, offsets: tuple[api.CommittedOffset, ...], table: str
    ) -> api.PendingCommit:
        return api.PendingCommit(
            **self._envelope(),
            generation=generation,
            member=member,
            instance=self.identity.instance,
            decided_by=DELTA,
            table=table,
            offsets=offsets,
        )

    def decide(self, member: str, generation: int, key: str, result: Result) -> api.DecidePending:
        return api.DecidePending(
            **self._envelope(), pending=key, result=result, member=member, generation=generation
        )

    def fetch(
        self, topics: tuple[api.TopicPartitions, ...] | None, is_stable: bool = True
    ) -> api.OffsetFetch:
        return api.OffsetFetch(**self._envelope(), topics=topics, require_stable=is_stable)

    def subscribe(
        self, member: str, generation: int, wanted: Subscription, reason: str | None
    ) -> api.Subscribe:
        return api.Subscribe(
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
        self, member: str, generation: int, cause: int, offsets: tuple[api.CommittedOffset, ...]
    ) -> api.Release:
        return api.Release(
            **self._envelope(), generation=generation, member=member, cause=cause, offsets=offsets
        )

    def _host(self, generation: int) -> str | UnsetType:
        """That of the request by which a member enters is kept; later ones need not repeat it."""
        return self.identity.host if self.identity.host and generation < 0 else UNSET

    def _envelope(self) -> dict[str, Any]:
        return self.identity.envelope(self.next_id())


def concerns(identity: Identity, message: api.AnyResponse) -> bool:
    """Whether a response is for this member: its answers, its group's notices, the job's own.

    A picture of partitions is for one member, whose id begins with its client's: a group
    of hundreds on one transport would spend its time on the pictures of others.
    """
    if isinstance(message, api.Response):
        return message.id.rpartition("-")[0] == identity.token
    if isinstance(message, api.OfTheCoordinator):
        return True
    if isinstance(message, api.AssignmentChanged):
        is_own = message.member.startswith(f"{identity.client}-")
        return is_own and message.group == identity.group
    return message.group == identity.group


RETRY_FIRST_MS = 200
RETRY_MAX_MS = 5_000
#: Transactions end soon, and the partition stands still until then.
UNSTABLE_RETRY_MAX_MS = 2_000
#: Longest wait that an answer can ask for; a rebalance timeout is six seconds at least.
THROTTLE_MAX_MS = 5_000
_LATER: Final = "Nothing: a later commit of the same partitions was written instead."
_MAYBE: Final = "Read what is committed: a later commit of the same partitions may be written."
_CUT: Final = "It is unknown whether the request was processed: its log has lost records."
_IN_FLIGHT: Final = "Try again: a later commit of the same partitions has no answer yet."

#: Asked again when they were not written, or were refused for now.
_REPEATED: Final = (
    api.OffsetFetch,
    api.Release,
    api.ReplicasDeleted,
    api.PendingCommit,
    api.DecidePending,
)
_UNSTABLE: Final = ErrorCode.UNSTABLE_OFFSET_COMMIT
#: Those that carry positions.
_Commit = api.OffsetCommit | api.Release | api.PendingCommit


def backoff_ms(attempt: int) -> int:
    """How long to wait before attempt `attempt` (the first repeat is 1): doubling, bounded."""
    return int(min(RETRY_MAX_MS, RETRY_FIRST_MS * 2 ** min(attempt - 1, 10)))


def error_of(response: api.Response) -> ErrorCode:
    """The answer's error; a name that this version lacks is UNKNOWN_SERVER_ERROR."""
    try:
        return ErrorCode[response.error]
    except KeyError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


def throttle_ms(response: api.Response) -> int:
    """How long the coordinator asks to wait before a repeat; bounded, 0: it does not."""
    wait_ms = response.throttle_time_ms
    return min(max(wait_ms, 0), THROTTLE_MAX_MS) if isinstance(wait_ms, int) else 0


def refusal_of(response: api.Response, where: str) -> GroupError:
    """The exception that the user gets for a refusal."""
    message = response.message if isinstance(response.message, str) else ""
    return GroupError(error_of(response), where, message)


def is_leaders(answer: api.SyncGroupResponse) -> bool:
    """Whether the error in it is the leader's; the coordinator's own come without an assignment."""
    return isinstance(answer.assignment, bytes)


def known(value: Any, otherwise: Any) -> Any:
    """The field's value, or `otherwise` if it is null or missing."""
    return otherwise if value is msgspec.UNSET or value is None else value


@dataclass(slots=True)
class _Ask:
    #: The caller that waits for the answer; None: no caller waits.
    ticket: int | None
    request: api.Request
    #: Whether it is asked again when it was not written, or is refused for now.
    repeats: bool
    #: The id under which it was first asked.
    first_id: str
    #: Of a commit: its number among all commits, which its repeats keep. 0: of all others.
    number: int = 0
    #: Whether it is a commit that no caller repeats, and that is repeated when it is throttled.
    is_lone: bool = False
    attempt: int = 0
    #: When to ask again; None: asked, and waiting.
    again_ms: int | None = None
    #: When it was asked, if it is asked again for want of an answer; None: it is not.
    asked_ms: int | None = None
    #: Why it has to be asked again.
    why: CoordError | None = None
    parts: dict[int, tuple[api.FetchedOffset, ...]] = field(default_factory=dict)


def offset_of(coordinate: str) -> int:
    """The log offset in a coordinate such as `r1-57`; -1: it is none."""
    text = coordinate.rpartition("-")[2]
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 20 else -1


class PendingRequests:
    """Open questions by the correlation id under which they were last asked.

    Args:
        where: for errors.
        next_id: gives an id that was never used.
        silent_ms: after this time a fetch is asked again for want of an answer.
    """

    def __init__(self, where: str, next_id: Callable[[], str], silent_ms: int = 0) -> None:
        self._where, self._next_id, self._silent_ms = where, next_id, silent_ms
        self._open: dict[str, _Ask] = {}
        #: Id and key of the newest commit with writes that was accepted.
        self._accepted = "", ""
        #: The number of the latest commit.
        self._latest = 0
        #: By partition, the latest commit that was accepted, or that may be; with the remedy for
        #: an older one.
        self._stands: dict[tuple[str, int], tuple[int, str]] = {}

    def ask(
        self,
        ticket: int | None,
        request: api.Request,
        is_waited: bool = True,
        number: int = 0,
        asked_ms: int | None = None,
    ) -> Output:
        """Ask.

        Args:
            ticket: rises with every question of a caller.
            request: what is asked.
            is_waited: of a commit, whether its caller waits, and may repeat it.
            number: of a commit that its caller repeats, the ticket of its first attempt.
            asked_ms: of what only reads, the time. The log may lose it unread, and whoever asked
                would wait for ever: it is asked again.
        """
        ask = _Ask(ticket, request, isinstance(request, _REPEATED), request.id, asked_ms=asked_ms)
        if isinstance(request, _Commit):
            ask.number, ask.is_lone = number or ticket or 0, not is_waited
            self._latest = max(self._latest, ask.number)
        self._open[request.id] = ask
        return Send(request)

    def still_due(
        self, rows: tuple[api.CommittedOffset, ...], number: int
    ) -> tuple[api.CommittedOffset, ...] | None:
        """The rows of a commit for which no later one stands; None: a later one is under way."""
        if number >= self._latest:
            return rows
        left = {_place(row): row for row in rows if self._stood(row)[0] <= number}
        for ask in self._open.values():
            is_later = ask.number > number and ask.again_ms is None
            rows = ask.request.offsets if is_later and isinstance(ask.request, _Commit) else ()
            if any(_place(row) in left for row in rows):
                return None
        return tuple(left.values())

    def in_flight(self) -> CoordError:
        """For the caller of a commit that is not repeated yet."""
        return GroupError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, self._where, _IN_FLIGHT)

    def unknown_outcome(
        self, rows: tuple[api.CommittedOffset, ...], number: int
    ) -> CoordError | None:
        """For the caller of a commit that a later one may have replaced, if that is not known."""
        stood = [self._stood(row) for row in rows]
        if not any(at > number and remedy == _MAYBE for at, remedy in stood):
            return None
        return CannotReach("The commit cannot be repeated.", self._where, _MAYBE)

    def first_id(self, id_: str) -> str:
        """The id under which this question was first asked: that tells whom its answer concerns."""
        ask = self._open.get(id_)
        return id_ if ask is None else ask.first_id

    def asked(self, id_: str) -> api.Request | None:
        """The question under this id; None: none waits under it."""
        ask = self._open.get(id_)
        return None if ask is None else ask.request

    def is_put_off(self, id_: str) -> bool:
        """Whether that question failed for now, and will be asked again."""
        ask = self._open.get(id_)
        return ask is not None and ask.again_ms is not None

    def are_open(self) -> bool:
        """Whether something that changes the group waits for an answer; a fetch does not."""
        return not all(isinstance(ask.request, api.OffsetFetch) for ask in self._open.values())

    def due_ms(self) -> int | None:
        """When the next question is to be repeated."""
        dues = map(self._due_ms, self._open.values())
        return min((each for each in dues if each is not None), default=None)

    def _due_ms(self, ask: _Ask) -> int | None:
        if ask.again_ms is not None or ask.asked_ms is None:
            return ask.again_ms
        return ask.asked_ms + self._silent_ms

    def repeat(self, now_ms: int) -> Iterator[Output]:
        """Ask again what is due: what failed under a new id; what has no answer under its own, so
        that the answer to either counts."""
        for ask in self._in_order():
            due_ms = self._due_ms(ask)
            if due_ms is None or due_ms > now_ms:
                continue
            if ask.asked_ms is not None:
                ask.asked_ms = now_ms
            if ask.again_ms is None:
                yield Send(ask.request)
                continue
            yield from self._again(ask)
            if ask.again_ms is not None:
                ask.again_ms = now_ms + RETRY_FIRST_MS

    def repeat_commits(self) -> Iterator[Output]:
        """Ask again now for all commits that are put off: what follows them ends their time."""
        for ask in self._in_order():
            if ask.is_lone and ask.again_ms is not None:
                yield from self._again(ask)

    def end_commits(self, is_over: Callable[[str], bool]) -> Iterator[Output]:
        """End the commits that are put off, and whose membership or generation is over.

        Args:
            is_over: of the id under which a commit was first asked.
        """
        for ask in list(self._open.values()):
            if ask.is_lone and ask.again_ms is not None and is_over(ask.first_id):
                yield from self._end(ask, error=ask.why)

    def hurry(self, now_ms: int) -> None:
        """A fetch that was put off may go through now."""
        for ask in self._open.values():
            if ask.again_ms is not None and isinstance(ask.request, api.OffsetFetch):
                ask.again_ms = now_ms

    def not_written(
        self, id_: str, why: str, now_ms: int, is_final: bool = False
    ) -> Iterator[Output]:
        """`is_final`: it never can be, so it is not asked again."""
        if (ask := self._open.get(id_)) is None:
            return
        what = f"The request could not be written: {why}"
        lost = CannotReach(what, self._where, "" if is_final else "Try again.")
        if not is_final and not ask.repeats:
            self._note(ask, _MAYBE)
        yield from self._fail_or_retry(ask, lost, ask.repeats and not is_final, now_ms)

    def log_cut(self, now_ms: int) -> Iterator[Output]:
        """End or repeat what waits for an answer: none comes if its request is gone.  # INV-105"""
        lost = CannotReach(_CUT, self._where, "Try again.")
        for ask in list(self._open.values()):
            if ask.again_ms is None:
                self._note(ask, _MAYBE)
                yield from self._fail_or_retry(ask, lost, ask.repeats, now_ms)

    def answered(self, response: api.Response, now_ms: int) -> Iterator[Output]:
        if (ask := self._open.get(response.id)) is None:
            return
        code = error_of(response)
        if code is not ErrorCode.NONE:
            is_put_off = ask.is_lone and code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
            repeats = is_put_off or (code.retriable and ask.repeats)
            refusal = refusal_of(response, self._where)
            wait_ms = throttle_ms(response)
            yield from self._fail_or_retry(ask, refusal, repeats, now_ms, wait_ms)
        elif isinstance(response, api.OffsetFetchResponse):
            yield from self._part(ask, response, now_ms)
        else:
            failed, pending = (getattr(response, name, None) for name in ("failed", "pending"))
            # What a table decides may come to nothing.
            remedy = _MAYBE if isinstance(ask.request, api.PendingCommit) else _LATER
            self._note(ask, remedy, failed or ())
            yield from self._end(ask, failed=failed or (), pending=pending or "")

    def is_stray(self, response: api.Response) -> bool:
        """Whether offsets wait under a key that nobody here writes under.

        Their request came once more, late, when its first entry was decided; or whoever asked has
        gone. To be asked before `answered`.
        """
        if not isinstance(response, api.PendingCommitResponse):
            return False
        if not isinstance(response.pending, str):
            return False
        accepted = response.id, response.pending
        if response.id in self._open:
            self._accepted = accepted
        return accepted != self._accepted

    def abandon(self, error: CoordError) -> Iterator[Output]:
        """Drop all questions: no answer will come any more."""
        for ask in list(self._open.values()):
            yield from self._end(ask, error=error)

    def ask_no_more(self, kind: type[api.Request], error: CoordError) -> Iterator[Output]:
        """Stop repeating these questions: their caller is gone. End those that wait to be asked."""
        for ask in list(self._open.values()):
            if isinstance(ask.request, kind):
                ask.repeats = False
                if ask.again_ms is not None:
                    yield from self._end(ask, error=error)

    def _part(self, ask: _Ask, response: api.OffsetFetchResponse, now_ms: int) -> Iterator[Output]:
        part = response.part if isinstance(response.part, int) else 0
        parts = response.parts if isinstance(response.parts, int) else 1
        rows = response.offsets
        ask.parts[part] = rows if isinstance(rows, tuple) else ()
        if len(ask.parts) == parts:
            rows = tuple(row for part in sorted(ask.parts) for row in ask.parts[part])
            unstable = next((row for row in rows if row.error == _UNSTABLE.name), None)
            if unstable is None:
                yield from self._end(ask, offsets=rows)
                return
            waits = GroupError(_UNSTABLE, f"{unstable.topic}-{unstable.partition}")
            yield from self._fail_or_retry(ask, waits, ask.repeats, now_ms)
            if ask.again_ms is not None:
                ask.again_ms = min(ask.again_ms, now_ms + UNSTABLE_RETRY_MAX_MS)

    def _fail_or_retry(
        self, ask: _Ask, error: CoordError, repeats: bool, now_ms: int, wait_ms: int = 0
    ) -> Iterator[Output]:
        if repeats:
            ask.attempt += 1
            ask.again_ms, ask.why = now_ms + max(backoff_ms(ask.attempt), wait_ms), error
            ask.parts.clear()
        else:
            yield from self._end(ask, error=error)

    def _in_order(self) -> list[_Ask]:
        """Open questions; commits in the order in which they were first asked."""
        return sorted(self._open.values(), key=lambda ask: ask.number)

    def _again(self, ask: _Ask) -> Iterator[Output]:
        """Ask again under a new id, unless a later commit is under way."""
        if ask.is_lone and isinstance(ask.request, api.OffsetCommit):
            rows = self.still_due(ask.request.offsets, ask.number)
            if rows is None:
                return
            if not rows:
                _, remedy = max(self._stood(row) for row in ask.request.offsets)
                code = ErrorCode.THROTTLING_QUOTA_EXCEEDED
                yield from self._end(ask, error=GroupError(code, self._where, remedy))
                ask.again_ms = None
                return
            ask.request = msgspec.structs.replace(ask.request, offsets=rows)
        del self._open[ask.request.id]
        # Twice in the log under one id, a commit with writes is one entry.
        if not isinstance(ask.request, api.PendingCommit):
            ask.request = msgspec.structs.replace(ask.request, id=self._next_id())
        ask.again_ms = None
        self._open[ask.request.id] = ask
        yield Send(ask.request)

    def _note(self, ask: _Ask, remedy: str, failed: tuple[api.FailedPartition, ...] = ()) -> None:
        """A commit was accepted, or may be, but for these partitions."""
        if not isinstance(ask.request, _Commit):
            return
        without = {(row.topic, row.partition) for row in failed}
        for row in ask.request.offsets:
            if _place(row) not in without and self._stood(row)[0] <= ask.number:
                self._stands[_place(row)] = ask.number, remedy

    def _stood(self, row: api.CommittedOffset) -> tuple[int, str]:
        return self._stands.get(_place(row), (0, ""))

    def _end(self, ask: _Ask, **outcome: Any) -> Iterator[Output]:
        del self._open[ask.request.id]
        if ask.ticket is not None:
            yield Answer(ask.ticket, **outcome)


def _place(row: api.CommittedOffset) -> tuple[str, int]:
    return row.topic, row.partition


@dataclass(slots=True)
class Step:
    """JoinGroup, the assignor's run, or SyncGroup: at most one is under way."""

    output: Send | Divide
    #: When it was first sent; an answered one counts as a sign of life from then (rule 8).
    first_ms: int
    #: Where the log took it; None: not acknowledged yet.
    offset: int | None = None
    attempt: int = 0
    #: When to repeat it; None: sent, and waiting for the answer.
    again_ms: int | None = None
    #: When it was sent again; -1: never.
    resent_ms: int = -1
    #: Whether that was for want of an answer.
    was_silent: bool = False

    @property
    def id(self) -> str | None:
        return self.output.request.id if isinstance(self.output, Send) else None

    def written(self, offset: int) -> None:
        """The log has it. Of one that was only not answered the first place counts: perhaps it was
        judged there, and waits for its answer."""
        if self.offset is None or not self.was_silent:
            self.offset = offset

    def repeat_later(self, now_ms: int, wait_ms: int = 0) -> None:
        """The same again, under the same id: should both be written, they are one request.

        `wait_ms`: not before that.
        """
        self.attempt += 1
        self.again_ms = now_ms + max(backoff_ms(self.attempt), wait_ms)

    def replace_later(self, now_ms: int, send: Send, wait_ms: int = 0) -> None:
        """It was judged and refused for now: the next attempt is another request."""
        self.output, self.offset = send, None
        self.repeat_later(now_ms, wait_ms)
        self.first_ms = self.again_ms or now_ms

    def due_ms(self, silent_ms: int) -> int | None:
        """When it is to be sent again; None: not before something else happens.  # INV-145

        Args:
            silent_ms: after this time without an answer. The log may have lost a request that it
                had acknowledged, and who waits for an answer writes nothing that would show it.
        """
        if self.again_ms is not None or self.offset is None:
            return self.again_ms
        return max(self.first_ms, self.resent_ms) + silent_ms

    def repeat(self, now_ms: int, silent_ms: int) -> Send | Divide | None:
        """What is to be sent again now; `silent_ms`: as for `due_ms`."""
        due_ms = self.due_ms(silent_ms)
        if due_ms is None or due_ms > now_ms:
            return None
        self.was_silent = self.again_ms is None
        self.again_ms, self.resent_ms = None, now_ms
        return self.output
