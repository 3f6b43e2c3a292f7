"""The state of one member: its place in the group, its partitions, its topics. Pure.

Outputs are collected in order, which is that of requests in the log.

**Partitions** are a member's in three senses that change at different moments. `granted` has the
partitions that the coordinator gave; `told` those that the user got by callback and has not given
up; the fence decides whether the user may act on them now. Callbacks follow from these three alone,
and only one is under way at a time:

    told, but the fence has fallen   -> LOST, all of it
    told, but not granted            -> REVOKED, just that; all of it before an eager rejoin
    granted, but not told            -> ASSIGNED, just that; told for every assignment, also empty

**Topics.** As in confluent-kafka, a topic that begins with `^` is a regular expression. Every
member resolves its own expressions and names the topics that it found in its JoinGroup; the leader
watches the partition counts of all members' topics. Either joins again when it sees a difference.
Metadata come in as counts of all topics.
"""

import re
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any, ClassVar, Final, Generic, TypeVar

from coordlib.client.groups.assignors import Assignor, RebalanceMode, mode_of
from coordlib.client.kit import events as sg
from coordlib.client.kit.events import Call, Callback, Partitions, TopicPartition
from coordlib.client.kit.fence import Fence, Heartbeats
from coordlib.client.kit.requests import (
    IN_GENERATION,
    VALID_PREVIOUS_STATES,
    Identity,
    State,
    Step,
    Timing,
    Wording,
    backoff_ms,
)
from coordlib.core.wire.topics import is_users, own_topics
from coordlib.errors import CoordError, SetupError


class Ownership:
    """Decides which callback is next."""

    def __init__(self, fence: Fence) -> None:
        self.fence = fence
        #: The partitions that callbacks may give the user; a cooperative member has them until the
        #: next assignment. None: none was given since it last let go of all.
        self.granted: Partitions | None = None
        #: Log offset of what caused the grant: rises with every assignment of any group.
        self.fence_token: int | None = None
        #: None: no callback gave the user anything since everything was given up.
        self.told: Partitions | None = None
        #: Whether an assignment came for which no callback has run.
        self._is_untold = False
        #: The callback that runs now, and what it lets go of.
        self.calling: Callback | None = None
        self.leaving: Partitions = ()

    def usable(self, now_ms: int) -> Partitions:
        """The partitions that the user may act on at this moment."""
        return self.told if self.told is not None and self.fence.may_work(now_ms) else ()

    def is_free(self, now_ms: int, keeps: bool) -> bool:
        """Whether the user holds nothing that a rejoin would take away.

        Args:
            keeps: whether the member goes on working on what is granted while it joins.
        """
        if keeps and self.fence.may_work(now_ms):
            return self.calling in (None, Callback.ASSIGNED) and not self._gone()
        return not self.told and self.calling is None

    def begin_join(self, now_ms: int, keeps: bool) -> Partitions:
        """A JoinGroup goes out: what it names as owned. Only when `is_free`."""
        if keeps and self.granted and self.fence.may_work(now_ms):
            self.fence.joining(now_ms)
            return self.granted
        self.let_go()
        return ()

    def narrow(self, topics: Iterable[str]) -> None:
        """Other topics are not wanted any more: they are let go of before the rejoin."""
        if self.granted is not None:
            self.granted = tuple(each for each in self.granted if each.topic in set(topics))

    def grant(self, now_ms: int, given: Partitions, fence_token: int | None, sign_ms: int) -> None:
        """The SyncGroup was answered; `sign_ms` is the newest sign of life (rule 8)."""
        self.granted, self.fence_token, self._is_untold = given, fence_token, True
        self.fence.start(now_ms, sign_ms)

    def withdraw(self) -> None:
        """Membership ended without the user, whose partitions are lost at the next poll."""
        self.granted = self.fence_token = None
        self._is_untold = False
        self.fence.clear()

    def let_go(self) -> None:
        """Nothing is held any more, and the callback for it has run."""
        self.told = None
        self.withdraw()

    def next_call(self, now_ms: int, must_let_go: bool) -> Call | None:
        """The callback that is due; an empty assignment has one, an empty loss has none."""
        may_work = self.fence.may_work(now_ms)
        if self.told is not None and not may_work:
            return self._lose()
        leaving = self.told if must_let_go else self._gone()
        if leaving:
            self.leaving = leaving
            return self._call(Callback.REVOKED, leaving)
        if must_let_go or self.granted is None or not may_work:
            return None
        if self.told is None or self._is_untold:
            added = without(self.granted, self.told or ())
            self.told, self._is_untold = self.granted, False
            return self._call(Callback.ASSIGNED, added)
        return None

    def returned(self, callback: Callback) -> None:
        """The callback has returned."""
        self.calling = None
        if callback is Callback.REVOKED and self.told is not None:
            self.told, self.leaving = without(self.told, self.leaving), ()

    def _gone(self) -> Partitions:
        """Partitions that the user still has and the newest assignment lacks."""
        if self.told is None or self.granted is None:
            return ()
        return without(self.told, self.granted)

    def _lose(self) -> Call | None:
        lost, self.told = self.told, None
        return self._call(Callback.LOST, lost) if lost else None

    def _call(self, callback: Callback, partitions: Partitions) -> Call:
        self.calling = callback
        return Call(callback, partitions)


def without(some: Partitions, others: Iterable[TopicPartition]) -> Partitions:
    """The first without the second, in its order."""
    dropped = set(others)
    return tuple(each for each in some if each not in dropped)


#: How often a leader looks while a topic of its group is missing: as the job does for others.
MISSING_REFRESH_MS: Final = 5_000


class Topics:
    """One member's subscription."""

    def __init__(self, own: frozenset[str], refresh_ms: int, rest_ms: int = 0) -> None:
        self._own, self._refresh_ms, self._rest_ms = own, refresh_ms, rest_ms
        #: Until when this leader gathers changes, because it has just assigned.  # INV-85
        self._rests_until_ms = 0
        self._plain: tuple[str, ...] = ()
        self._patterns: tuple[re.Pattern[str], ...] = ()
        #: The topics to join for; None: not subscribed, or expressions are not resolved yet.
        self.names: tuple[str, ...] | None = None
        #: The counts of all members' topics that the leader assigned by; 0: no such topic.
        #: None: this member does not lead.
        self._watched: dict[str, int] | None = None
        #: When metadata last came, when that look began, and when this member last assigned.
        self._looked_ms, self._began_ms, self._led_ms = 0, 0, 0
        self._attempt = 0
        #: When to look at once, because of a new subscription or a failure.
        self._soon_ms: int | None = None
        self._is_looking = False

    def subscribe(self, now_ms: int, wanted: tuple[str, ...]) -> None:
        """Replace the topics. Raises SetupError: an invalid expression."""
        patterns = tuple(_compiled(each) for each in wanted if each.startswith("^"))
        self._plain = tuple(each for each in wanted if not each.startswith("^"))
        self._patterns = patterns
        self.names = self._plain if not patterns else None
        self._soon_ms = now_ms if patterns else None

    def unsubscribe(self) -> None:
        self._plain, self._patterns, self.names, self._watched = (), (), None, None

    def lead(self, now_ms: int, counts: Mapping[str, int], topics: tuple[str, ...]) -> None:
        """This member has assigned these topics of the group, by these counts."""
        self._watched = {topic: counts.get(topic, 0) for topic in topics}
        self._looked_ms = self._led_ms = now_ms
        self._rests_until_ms = now_ms + self._rest_ms

    def look_soon(self, now_ms: int) -> None:
        """Look soon: the counts are older than this member; a former leader read them."""
        self._soon_ms = self._rests_until_ms = now_ms

    def follow(self) -> None:
        """Stop watching the group's topics: another member leads."""
        self._watched = None

    def due_ms(self) -> int | None:
        """When to look at the metadata; None: not before something else happens."""
        if self._is_looking:
            return None
        if self._soon_ms is not None:
            return self._soon_ms
        if self._refresh_ms <= 0 or not (self._patterns or self._watched):
            return None
        is_short = self._watched is not None and 0 in self._watched.values()
        refresh_ms = min(self._refresh_ms, MISSING_REFRESH_MS) if is_short else self._refresh_ms
        return self._looked_ms + refresh_ms

    def begin_look(self, now_ms: int) -> bool:
        """Whether it is time to look; if so, a look is under way until `seen` or `not_seen`."""
        due_ms = self.due_ms()
        if due_ms is None or now_ms < due_ms:
            return False
        self._is_looking, self._soon_ms, self._began_ms = True, None, now_ms
        return True

    def not_seen(self, now_ms: int) -> None:
        """The look failed: again, later and later."""
        self._is_looking = False
        self._attempt += 1
        self._soon_ms = now_ms + backoff_ms(self._attempt)

    def seen(self, now_ms: int, counts: Mapping[str, int]) -> bool:
        """Take all topics with their partition counts; return whether they ask for a rejoin."""
        self._is_looking, self._attempt, self._looked_ms = False, 0, now_ms
        if now_ms < self._rests_until_ms and self._are_other(counts):
            self._soon_ms = self._rests_until_ms  # with all that changes until then
            return False
        if self._patterns:
            self.names = self._resolved(counts)
        if self._watched is None or self._began_ms < self._led_ms:
            return False  # nothing to compare with, or newer than what was seen
        changed = any(counts.get(topic, 0) != was for topic, was in self._watched.items())
        if changed:
            self._watched = None  # reported once; the next leader assigns by newer counts
        return changed

    def _are_other(self, counts: Mapping[str, int]) -> bool:
        """Whether this leader would make its group rebalance for these topics."""
        if self._watched is None or self.names is None:
            return False
        names = self._resolved(counts) if self._patterns else self.names
        is_changed = any(counts.get(topic, 0) != was for topic, was in self._watched.items())
        return is_changed or names != self.names

    def _resolved(self, counts: Mapping[str, int]) -> tuple[str, ...]:
        found = [
            topic
            for topic in sorted(counts)
            if is_users(topic, self._own)
            and any(pattern.search(topic) for pattern in self._patterns)
        ]
        return tuple(dict.fromkeys([*self._plain, *found]))


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as problem:
        raise SetupError(f"This is no regular expression: {problem}", repr(pattern)) from problem


StateT = TypeVar("StateT", bound=Enum)
OutputT = TypeVar("OutputT")


class BaseStanding(Generic[StateT, OutputT]):
    """What members of groups and brokers of clusters have in common.

    Args:
        state: the first one.
        release_timeout_ms: how long its user may take to let go.
    """

    #: What it is, for errors.
    NOUN: ClassVar[str]
    #: Which states may come before which.
    VALID_PREVIOUS_STATES: ClassVar[Mapping[Any, frozenset[Any]]]

    def __init__(
        self,
        identity: Identity,
        state: StateT,
        session_timeout_ms: int,
        release_timeout_ms: int,
        heartbeat_interval_ms: int,
    ) -> None:
        self.identity = identity
        self.fence = Fence(session_timeout_ms, release_timeout_ms)
        self.beats = Heartbeats(heartbeat_interval_ms, self.fence)
        self.state = state
        self.member = ""
        #: The step of the protocol that has no answer yet: at most one is under way.
        self.step: Step | None = None
        #: Why it has failed for good.
        self.failure: CoordError | None = None
        self._out: list[OutputT] = []

    def own_id(self) -> str:
        """The member id: as answered, or as the place of its first request will give it."""
        if not self.member and self.step is not None and self.step.offset is not None:
            return self.identity.member_at(self.step.offset)
        return self.member

    def become(self, state: StateT) -> None:
        if self.state not in self.VALID_PREVIOUS_STATES[state]:
            raise AssertionError(f"{self.state} -> {state} is no transition of a {self.NOUN}")
        self.state = state

    def say(self, *outputs: OutputT) -> None:
        self._out += outputs

    def outputs(self) -> list[OutputT]:
        """What was said since the last call."""
        out, self._out = self._out, []
        return out


class Standing(BaseStanding[State, sg.Output]):
    """One member's place in its group."""

    NOUN = "member"

    def __init__(self, identity: Identity, timing: Timing) -> None:
        super().__init__(
            identity,
            State.IDLE,
            timing.session_timeout_ms,
            timing.rebalance_timeout_ms,
            timing.heartbeat_interval_ms,
        )
        self.timing = timing
        self.wording = Wording(identity, timing)
        self.held = Ownership(self.fence)
        self.generation = -1
        #: The first id of the generation, or of the membership: refusals of older requests concern
        #: an older one.
        self.first_id = self.wording.next_id()
        #: Why there is nothing to own for now: the next poll raises it, once.
        self.news: CoordError | None = None

    @property
    def is_static(self) -> bool:
        """Whether its place waits for it when it goes (KIP-345)."""
        return self.identity.instance is not None

    @property
    def keeps_alive(self) -> bool:
        """Whether it heartbeats, and notices about its generation concern it."""
        is_parked_owner = self.state is State.JOINING and self.fence.is_guarding
        return self.state in IN_GENERATION or is_parked_owner

    @property
    def where(self) -> str:
        """For errors."""
        return f"group {self.identity.group}, member {self.member or self.identity.client}"

    def forget(self, keeps_member: bool = False) -> None:
        """End a membership that the coordinator does not have; the user's partitions are lost."""
        self.become(State.IDLE)
        self.member, self.generation = (self.member if keeps_member else ""), -1
        self.step = self.news = None
        self.held.withdraw()

    def fail(self, error: CoordError) -> None:
        """Fail for good: every poll raises from now on; the user's partitions are lost."""
        self.become(State.FAILED)
        self.step = self.news = None
        self.held.withdraw()
        self.failure = error

    def take(self, now_ms: int, output: sg.Send | sg.Divide) -> None:
        """The next step of the protocol."""
        self.step = Step(output, now_ms)
        self._out.append(output)

    def say_all(self, outputs: Iterable[sg.Output]) -> None:
        self._out += outputs


class ClassicStanding(Standing):
    """The standing of a member of a classic group."""

    VALID_PREVIOUS_STATES = VALID_PREVIOUS_STATES

    def __init__(self, identity: Identity, timing: Timing, assignors: tuple[Assignor, ...]) -> None:
        super().__init__(identity, timing)
        self.assignors = assignors
        #: Whether the member keeps what it owns while it joins (KIP-429).
        self.keeps = mode_of(assignors) is RebalanceMode.COOPERATIVE
        own = own_topics(identity.prefix)
        self.topics = Topics(own, timing.metadata_refresh_ms, timing.rebalance_interval_ms)
        self.protocol = ""
        #: Why a rejoin is owed; None: none is.
        self.rejoin_reason: str | None = None

    def forget(self, keeps_member: bool = False) -> None:
        super().forget(keeps_member)
        self.rejoin_reason = None
        self.topics.follow()

    def fail(self, error: CoordError) -> None:
        super().fail(error)
        self.rejoin_reason = None
