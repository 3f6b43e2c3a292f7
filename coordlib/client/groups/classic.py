"""The life of a member of a classic group, as a state machine.

    IDLE -> JOINING -> [DIVIDING ->] SYNCING -> STABLE -> JOINING -> ...      LEAVING -> LEFT

An eager rejoin waits until the user has let go of all partitions. A cooperative rejoin names the
owned partitions and is sent at once; those that the new assignment lacks are revoked, and a second
join, at once, lets the leader give them to others (KIP-429). `kit/fence.py` has the proof that no
two members own one partition meanwhile, `machine.py` the part that all members share.

**Topics.** As in confluent-kafka, a topic that begins with `^` is a regular expression. Every
member resolves its own expressions and names the topics that it found in its JoinGroup; the leader
watches the partition counts of all members' topics. Either joins again when it sees a difference.
"""

import re
from collections.abc import Mapping
from typing import Final

import msgspec

from coordlib.client.groups.assignors import (
    Assignor,
    AssignorFailed,
    ReadsUserData,
    RebalanceMode,
    SubscriptionState,
    flat,
    is_partition,
    mode_of,
)
from coordlib.client.groups.machine import MemberMachine
from coordlib.client.groups.state import (
    ENDED,
    IN_GENERATION,
    VALID_PREVIOUS_STATES,
    MemberState,
    State,
)
from coordlib.client.kit import events as sg
from coordlib.client.kit.events import Partitions
from coordlib.client.kit.fence import AssignmentFailed
from coordlib.client.kit.requests import (
    Identity,
    Step,
    Timing,
    backoff_ms,
    error_of,
    is_leaders,
    known,
    refusal_of,
    throttle_ms,
)
from coordlib.core.wire import api
from coordlib.core.wire import consumer_protocol as cp
from coordlib.core.wire.topics import is_users, own_topics
from coordlib.errors import CoordError, ErrorCode, SetupError

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


class ClassicState(MemberState):
    """The state of a member of a classic group."""

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


REBALANCING = "group is rebalancing"
METADATA_CHANGED = "metadata changed"
SUBSCRIPTION_CHANGED = "subscription changed"
REVOKED = "revoked partitions can go to others"
NOT_DIVIDED = "the leader could not assign, and tries again"
#: After which a leader whose assignor failed rejoins, so that the group tries again. Each attempt
#: is a rebalance of everybody, and what was wrong is rarely fixed sooner.
RETRY_MS = 30_000


class ClassicMachine(MemberMachine):
    """One member; `handle` is the only way in."""

    _me: ClassicState

    def __init__(self, identity: Identity, timing: Timing, assignors: tuple[Assignor, ...]) -> None:
        super().__init__(ClassicState(identity, timing, assignors))
        #: The subscription of the newest JoinGroup.
        self._joined_topics: tuple[str, ...] = ()
        #: Whether this member leads its generation, and so assigns.
        self._leads = False
        #: Why its own assignor failed in this generation; None: it did not.
        self._failed: CoordError | None = None
        #: When this leader rejoins, as its generation has no assignment; None: it has one.
        self._retry_ms: int | None = None
        #: What the newest JoinGroup named as owned.
        self._claimed: Partitions = ()

    # ---- this protocol's way --------------------------------------------------------------------

    def _dispatch_own(self, event: sg.ClassicInput | sg.AssignedInput) -> None:
        match event:
            case sg.WantTopics():
                self._subscribe(event)
            case sg.Divided():
                self._divided(event)
            case sg.NotDivided():
                self._not_divided(event)
            case sg.AssignorFailed():
                self._assignor_failed(event)
            case sg.TopicsSeen():
                self._topics_seen(event)
            case sg.TopicsNotSeen():
                self._topics_not_seen(event)
            case _:
                raise TypeError(f"{event} is no input of a member of a classic group")

    def _go_on(self, now_ms: int) -> None:
        """Rejoin as soon as the user holds nothing that the rejoin would take away."""
        me, topics = self._me, self._me.topics.names
        due_ms = self._retry_due_ms()
        if due_ms is not None and now_ms >= due_ms:
            me.rejoin_reason, self._retry_ms = me.rejoin_reason or NOT_DIVIDED, None
        is_wanted = me.state is State.IDLE or (
            me.state in IN_GENERATION and me.rejoin_reason is not None
        )
        if is_wanted and topics is not None and me.held.is_free(now_ms, me.keeps):
            self._join(now_ms, topics)

    def _finish(self, now_ms: int) -> None:
        if self._me.state not in ENDED and self._me.topics.begin_look(now_ms):
            self._me.say(sg.LookUp())

    def _due_ms(self) -> int | None:
        if self._me.state in ENDED:
            return None
        due_ms = (self._me.topics.due_ms(), self._retry_due_ms())
        return min((each for each in due_ms if each is not None), default=None)

    def _retry_due_ms(self) -> int | None:
        """When a leader without an assignment tries again."""
        return self._retry_ms if self._me.state is State.STABLE else None

    def _must_let_go(self) -> bool:
        me = self._me
        return self._leaving.leave_pending or (me.rejoin_reason is not None and not me.keeps)

    def _written(self, event: sg.Acknowledged) -> None:
        if self._me.step is not None and event.id == self._me.step.id:
            self._me.fence.reacted(event.now_ms)

    # ---- the user -------------------------------------------------------------------------------

    def _subscribe(self, event: sg.WantTopics) -> None:
        self._seen(event.now_ms)
        self._me.topics.subscribe(event.now_ms, event.topics)
        self._topics_changed(SUBSCRIPTION_CHANGED)

    def _unsubscribe(self, event: sg.Unsubscribe) -> None:
        self._me.topics.unsubscribe()
        super()._unsubscribe(event)

    # ---- topics' metadata ---------------------------------------------------------------------

    def _topics_seen(self, event: sg.TopicsSeen) -> None:
        me = self._me
        must_divide_anew = me.topics.seen(event.now_ms, event.counts)
        self._topics_changed(METADATA_CHANGED)
        if must_divide_anew and me.state in IN_GENERATION:
            me.rejoin_reason = me.rejoin_reason or METADATA_CHANGED

    def _topics_not_seen(self, event: sg.TopicsNotSeen) -> None:
        self._me.topics.not_seen(event.now_ms)

    def _topics_changed(self, reason: str) -> None:
        """Rejoin if the topics differ from those of the newest JoinGroup."""
        me, names = self._me, self._me.topics.names
        if me.state in IN_GENERATION and names not in (None, self._joined_topics):
            me.rejoin_reason = me.rejoin_reason or reason
        if me.keeps and names is not None:
            me.held.narrow(names)

    # ---- join ---------------------------------------------------------------------------------

    def _join(self, now_ms: int, topics: tuple[str, ...]) -> None:
        me = self._me
        self._claimed = me.held.begin_join(now_ms, me.keeps)
        state = SubscriptionState(topics, self._claimed, me.generation, me.identity.rack)
        try:
            offered = tuple(api.Protocol(each.name, each.metadata(state)) for each in me.assignors)
        except Exception as problem:  # noqa: BLE001  # an assignor may be a user's own
            error = AssignorFailed(f"An assignor failed: {problem!r}", me.where)
            self._leaving.leave_when_free("its assignor failed", error)
            return
        request = me.requests.join(me.member, me.generation, offered, me.rejoin_reason)
        me.become(State.JOINING)
        me.rejoin_reason, self._joined_topics = None, topics
        self._retry_ms = self._failed = None
        me.say_all(self._pending.repeat_commits())  # their generation ends with this join
        me.take(now_ms, sg.Send(request))

    # ---- answers to JoinGroup and SyncGroup -----------------------------------------------------

    def _step_answered(self, asked: Step, response: api.Response, now_ms: int) -> None:
        """JoinGroup or SyncGroup. An answer of another type than the request is ignored."""
        code, is_joining = error_of(response), self._me.state is State.JOINING
        is_accepted = code is ErrorCode.NONE
        match response:
            case api.JoinGroupResponse() if is_accepted and is_joining:
                self._joined(asked, response, now_ms)
            case api.SyncGroupResponse() if is_accepted and not is_joining:
                self._synced(asked, response, now_ms)
            case api.SyncGroupResponse() if is_leaders(response) and not is_joining:
                self._not_assigned(asked, response, now_ms)
            case _ if not is_accepted:
                self._refused(asked, response, now_ms)

    def _joined(self, asked: Step, answer: api.JoinGroupResponse, now_ms: int) -> None:
        me = self._me
        # Rule 12: whatever id the acknowledgement suggested, the answer's id holds.
        me.member = answer.member
        me.generation = known(answer.generation, -1)
        me.protocol = known(answer.protocol, "")
        me.first_id = me.requests.next_id()
        me.fence.join_answered(now_ms)
        me.beats.begin(now_ms, asked.first_ms)
        self._leads = answer.leader == me.member
        if self._leads:
            me.become(State.DIVIDING)
            is_kept = answer.skip_assignment is True
            members = known(answer.members, ())
            me.take(now_ms, sg.Divide(me.generation, me.protocol, members, is_kept, me.member))
        else:
            me.topics.follow()
            self._sync(now_ms, ())

    def _sync(
        self,
        now_ms: int,
        assignments: tuple[api.MemberAssignment, ...],
        why: sg.WhyNot | None = None,
    ) -> None:
        me = self._me
        me.become(State.SYNCING)
        request = me.requests.sync(me.member, me.generation, me.protocol, assignments, why)
        me.take(now_ms, sg.Send(request))

    def _synced(self, asked: Step, answer: api.SyncGroupResponse, now_ms: int) -> None:
        me = self._me
        try:
            assignment = cp.decode_assignment(known(answer.assignment, b""))
        except cp.Unreadable as problem:
            self._not_assigned(
                asked, answer, now_ms, f"this member's share cannot be read: {problem}"
            )
            return
        # A leader of other code may name one twice; a reader takes each once, or none at all.
        given = tuple(dict.fromkeys(flat(assignment.partitions)))
        if odd := [each for each in given if not is_partition(each)]:
            self._not_assigned(asked, answer, now_ms, f"{odd[0]} can be no partition")
            return
        me.news = None
        self._settle(asked, answer, now_ms, given)
        if not frozenset(given).issuperset(self._claimed):
            me.rejoin_reason = REVOKED
            me.fence.demanded(now_ms)
        self._topics_changed(SUBSCRIPTION_CHANGED)
        self._tell_assignor(given, assignment.user_data)

    def _settle(
        self, asked: Step, answer: api.SyncGroupResponse, now_ms: int, given: Partitions
    ) -> None:
        me = self._me
        me.become(State.STABLE)
        me.step = None
        sign_ms = max(asked.first_ms, me.beats.sign_ms)
        me.held.grant(now_ms, given, known(answer.fence, None), sign_ms)

    def _not_assigned(
        self, asked: Step, answer: api.SyncGroupResponse, now_ms: int, why: str = ""
    ) -> None:
        """The leader could not assign: no member owns partitions, and none has to leave.

        Or its share of this member is none, for this reason: other code leads.  # INV-110

        A cooperative member lets go of the partitions that it claimed, too: for the coordinator and
        readers of assignments they have no owner. It need not rejoin, since no member waits for it.
        """
        me = self._me
        self._settle(asked, answer, now_ms, ())
        refused = refusal_of(answer, me.where)
        code = ErrorCode.UNKNOWN_SERVER_ERROR if why else refused.code
        me.news = self._failed or AssignmentFailed(code, me.where, why or refused.hint)
        if self._leads:
            self._retry_ms = now_ms + RETRY_MS
        self._topics_changed(SUBSCRIPTION_CHANGED)

    def _tell_assignor(self, given: Partitions, user_data: bytes | None) -> None:
        generation = self._me.generation
        for assignor in self._me.assignors:
            if assignor.name != self._me.protocol:
                continue
            try:
                if isinstance(assignor, ReadsUserData):
                    assignor.on_assignment_data(given, generation, user_data)
                else:
                    assignor.on_assignment(given, generation)
            except Exception as problem:  # noqa: BLE001  # it may be a user's own
                # What it was told is the leader's: no reason to leave the group.  # INV-110
                self._me.news = AssignorFailed(f"An assignor failed: {problem!r}", self._me.where)

    def _refused(self, asked: Step, response: api.Response, now_ms: int) -> None:
        me, code = self._me, error_of(response)
        if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
            member = response.member if isinstance(response, api.JoinGroupResponse) else ""
            self._leaving.mark_removed(member or me.own_id())
        if code is ErrorCode.UNKNOWN_MEMBER_ID:
            me.forget()
        elif code is ErrorCode.ILLEGAL_GENERATION:
            me.forget(keeps_member=True)
        elif code is ErrorCode.REBALANCE_IN_PROGRESS and me.state is State.SYNCING:
            me.rejoin_reason = REBALANCING
        elif code is ErrorCode.MEMBER_ID_REQUIRED and isinstance(response, api.JoinGroupResponse):
            me.forget()
            me.member = response.member
        elif code.retriable and isinstance(asked.output, sg.Send):
            request = msgspec.structs.replace(asked.output.request, id=me.requests.next_id())
            asked.replace_later(now_ms, sg.Send(request), throttle_ms(response))
        else:
            me.fail(refusal_of(response, me.where))

    # ---- the leader's division ----------------------------------------------------------------

    def _divided(self, event: sg.Divided) -> None:
        me = self._me
        if self._is_current(event.generation) and me.step is not None:
            me.topics.lead(event.now_ms, event.counts, event.topics)
            if isinstance(me.step.output, sg.Divide) and me.step.output.is_kept:
                me.topics.look_soon(event.now_ms)
            self._sync(event.now_ms, event.assignments)

    def _not_divided(self, event: sg.NotDivided) -> None:
        if self._is_current(event.generation) and self._me.step is not None:
            self._me.step.repeat_later(event.now_ms)

    def _assignor_failed(self, event: sg.AssignorFailed) -> None:
        """Tell the other members why there is no assignment."""
        if self._is_current(event.generation):
            self._failed = event.error
            self._sync(event.now_ms, (), event.why)

    def _is_current(self, generation: int) -> bool:
        return self._me.state is State.DIVIDING and generation == self._me.generation

    # ---- notices, and answers to everything else ------------------------------------------------

    def _noticed(self, message: api.AnyResponse, now_ms: int) -> None:
        if isinstance(message, api.RebalanceInProgress):
            me = self._me
            if (message.group, message.generation) == (me.identity.group, me.generation):
                self._notice(now_ms)

    def _notice(self, now_ms: int) -> None:
        me = self._me
        if me.state in IN_GENERATION:
            me.rejoin_reason = me.rejoin_reason or REBALANCING
            me.fence.demanded(now_ms)
        elif me.state is State.JOINING and me.step is not None and me.step.offset is None:
            # The join that is under way is the reaction, once the log has it.
            me.fence.demanded(now_ms)

    def _overtaken(self, response: api.Response) -> api.Response:
        """The generation of a member that kept its partitions ended before its commit was judged:
        it has lost nothing, and may commit again."""
        is_commit = self._me.keeps_alive and isinstance(response, api.OffsetCommitResponse)
        if not is_commit or error_of(response) is not ErrorCode.ILLEGAL_GENERATION:
            return response
        message = "A new generation began meanwhile. Commit again, of what is still assigned."
        return msgspec.structs.replace(
            response, error=ErrorCode.REBALANCE_IN_PROGRESS.name, message=message
        )

    def _judged(self, response: api.Response, now_ms: int) -> None:
        match error_of(response):
            case ErrorCode.REBALANCE_IN_PROGRESS:
                # A commit is refused so between the join and the assignment: that asks nothing.
                if isinstance(response, api.HeartbeatResponse):
                    self._notice(now_ms)
            case ErrorCode.UNKNOWN_MEMBER_ID:
                self._out()
            case ErrorCode.ILLEGAL_GENERATION:
                self._me.forget(keeps_member=True)
            case ErrorCode.FENCED_INSTANCE_ID:
                self._leaving.mark_removed(self._me.member)
                self._me.fail(refusal_of(response, self._me.where))
