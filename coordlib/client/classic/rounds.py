"""From one generation to the next: join, divide, sync, and what the assignment demands.

An eager rejoin waits until the user has let go of everything that he was told to own. A cooperative
one names what is owned and goes out at once; what the new assignment has not any more is revoked,
and then a second join, at once, lets the leader give it to others (KIP-429). `fence` says why no
two members own one partition meanwhile.
"""

import msgspec

from coordlib.client.classic.assignor import ReadsUserData, SubscriptionState, flat
from coordlib.client.classic.division import AssignorFailed
from coordlib.client.machine import signals as sg
from coordlib.client.machine.asks import error_of, is_leaders, known, refusal_of
from coordlib.client.machine.errors import AssignmentFailed
from coordlib.client.machine.leaving import Leaving
from coordlib.client.machine.signals import Partitions
from coordlib.client.machine.standing import ClassicStanding
from coordlib.client.machine.steps import IN_GENERATION, State, Step
from coordlib.errors import CoordError, ErrorCode
from coordlib.records import consumer_protocol as cp
from coordlib.records import requests as rq
from coordlib.records import responses as rs

REBALANCING = "group is rebalancing"
METADATA_CHANGED = "metadata changed"
SUBSCRIPTION_CHANGED = "subscription changed"
REVOKED = "revoked partitions can go to others"
NOT_DIVIDED = "the leader could not divide, and tries again"
#: After which a leader whose assignor failed rejoins, so that the group tries again. Each attempt
#: is a rebalance of everybody, and what was wrong is rarely mended sooner.
RETRY_MS = 30_000


class Rounds:
    """The protocol's steps of one member."""

    def __init__(self, me: ClassicStanding, leaving: Leaving) -> None:
        self._me, self._leaving = me, leaving
        self._joined_topics: tuple[str, ...] = ()
        #: Whether this member divides in its generation.
        self._leads = False
        #: Why its own assignor failed in this generation; None: it did not.
        self._failed: CoordError | None = None
        #: When this leader rejoins, as its generation has no assignment; None: it has one.
        self._retry_ms: int | None = None
        #: What the newest JoinGroup named as owned.
        self._claimed: Partitions = ()

    # ---- join ---------------------------------------------------------------------------------

    def topics_changed(self, reason: str) -> None:
        """Another subscription than that of the newest JoinGroup is a reason to rejoin."""
        me, names = self._me, self._me.topics.names
        if me.state in IN_GENERATION and names not in (None, self._joined_topics):
            me.rejoin_reason = me.rejoin_reason or reason
        if me.keeps and names is not None:
            me.held.narrow(names)

    def due_ms(self) -> int | None:
        """When a leader without an assignment tries again."""
        return self._retry_ms if self._me.state is State.STABLE else None

    def join_if_wanted(self, now_ms: int) -> None:
        """Rejoin once that takes nothing out of the user's hands."""
        me, topics = self._me, self._me.topics.names
        due_ms = self.due_ms()
        if due_ms is not None and now_ms >= due_ms:
            me.rejoin_reason, self._retry_ms = me.rejoin_reason or NOT_DIVIDED, None
        is_wanted = me.state is State.IDLE or (
            me.state in IN_GENERATION and me.rejoin_reason is not None
        )
        if is_wanted and topics is not None and me.held.is_free(now_ms, me.keeps):
            self._join(now_ms, topics)

    def _join(self, now_ms: int, topics: tuple[str, ...]) -> None:
        me = self._me
        self._claimed = me.held.begin_join(now_ms, me.keeps)
        state = SubscriptionState(topics, self._claimed, me.generation, me.identity.rack)
        try:
            request = me.wording.join(me.member, me.assignors, state, me.rejoin_reason)
        except Exception as problem:  # noqa: BLE001  # an assignor may be a user's own
            self._assignor_raised(problem)
            return
        me.become(State.JOINING)
        me.rejoin_reason, self._joined_topics = None, topics
        self._retry_ms = self._failed = None
        me.take(now_ms, sg.Send(request))

    def _assignor_raised(self, problem: Exception) -> None:
        error = AssignorFailed(f"An assignor failed: {problem!r}", self._me.where)
        self._leaving.owe("its assignor failed", error)

    # ---- answers ------------------------------------------------------------------------------

    def answered(self, asked: Step, response: rs.Response, now_ms: int) -> None:
        """JoinGroup or SyncGroup. An answer of another type than the request is nobody's."""
        code, is_joining = error_of(response), self._me.state is State.JOINING
        is_accepted = code is ErrorCode.NONE
        match response:
            case rs.JoinGroupResponse() if is_accepted and is_joining:
                self._joined(asked, response, now_ms)
            case rs.SyncGroupResponse() if is_accepted and not is_joining:
                self._synced(asked, response, now_ms)
            case rs.SyncGroupResponse() if is_leaders(response) and not is_joining:
                self._not_assigned(asked, response, now_ms)
            case _ if not is_accepted:
                self._refused(asked, response, now_ms)

    def _joined(self, asked: Step, answer: rs.JoinGroupResponse, now_ms: int) -> None:
        me = self._me
        # Rule 12: whatever id the acknowledgement suggested, the answer's id holds.
        me.member = answer.member
        me.generation = known(answer.generation, -1)
        me.protocol = known(answer.protocol, "")
        me.first_id = me.wording.next_id()
        me.fence.join_answered(now_ms)
        me.beats.begin(now_ms, asked.first_ms)
        self._leads = answer.leader == me.member
        if self._leads:
            me.become(State.DIVIDING)
            is_kept = answer.skip_assignment is True
            members = known(answer.members, ())
            me.take(now_ms, sg.Divide(me.generation, me.protocol, members, is_kept))
        else:
            me.topics.follow()
            self._sync(now_ms, ())

    def _sync(
        self,
        now_ms: int,
        assignments: tuple[rq.MemberAssignment, ...],
        why: sg.WhyNot | None = None,
    ) -> None:
        me = self._me
        me.become(State.SYNCING)
        request = me.wording.sync(me.member, me.generation, me.protocol, assignments, why)
        me.take(now_ms, sg.Send(request))

    def _synced(self, asked: Step, answer: rs.SyncGroupResponse, now_ms: int) -> None:
        me = self._me
        try:
            assignment = cp.decode_assignment(known(answer.assignment, b""))
        except cp.Unreadable as problem:
            me.fail(CoordError(f"The assignment cannot be read: {problem}.", me.where))
            return
        given, me.news = flat(assignment.partitions), None
        self._settle(asked, answer, now_ms, given)
        if not frozenset(given).issuperset(self._claimed):
            me.rejoin_reason = REVOKED
            me.fence.demanded(now_ms)
        self.topics_changed(SUBSCRIPTION_CHANGED)
        self._tell_assignor(given, assignment.user_data)

    def _settle(
        self, asked: Step, answer: rs.SyncGroupResponse, now_ms: int, given: Partitions
    ) -> None:
        me = self._me
        me.become(State.STABLE)
        me.step = None
        sign_ms = max(asked.first_ms, me.beats.sign_ms)
        me.held.grant(now_ms, given, known(answer.fence, None), sign_ms)

    def _not_assigned(self, asked: Step, answer: rs.SyncGroupResponse, now_ms: int) -> None:
        """The leader could not divide: nobody owns anything, and nobody has to leave.

        A cooperative member lets go of what it claimed, too: the coordinator and all who read
        assignments have it as nobody's. It need not rejoin for that, since nobody waits for it.
        """
        me = self._me
        self._settle(asked, answer, now_ms, ())
        refused = refusal_of(answer, me.where)
        me.news = self._failed or AssignmentFailed(refused.code, me.where, refused.mend)
        if self._leads:
            self._retry_ms = now_ms + RETRY_MS
        self.topics_changed(SUBSCRIPTION_CHANGED)

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
                self._assignor_raised(problem)

    def _refused(self, asked: Step, response: rs.Response, now_ms: int) -> None:
        me, code = self._me, error_of(response)
        if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
            told = response.member if isinstance(response, rs.JoinGroupResponse) else ""
            self._leaving.put_out(told or me.own_id())
        if code is ErrorCode.UNKNOWN_MEMBER_ID:
            me.forget()
        elif code is ErrorCode.ILLEGAL_GENERATION:
            me.forget(keeps_member=True)
        elif code is ErrorCode.REBALANCE_IN_PROGRESS and me.state is State.SYNCING:
            me.rejoin_reason = REBALANCING
        elif code is ErrorCode.MEMBER_ID_REQUIRED and isinstance(response, rs.JoinGroupResponse):
            me.forget()
            me.member = response.member
        elif code is ErrorCode.INVALID_REQUEST and self._failed is not None:
            # The job was set back to older code, which does not read the reason.
            self._leaving.owe("its assignor failed", self._failed)
        elif code.retriable and isinstance(asked.output, sg.Send):
            request = msgspec.structs.replace(asked.output.request, id=me.wording.next_id())
            asked.replace_later(now_ms, sg.Send(request))
        else:
            me.fail(refusal_of(response, me.where))

    # ---- the leader's division ----------------------------------------------------------------

    def divided(self, event: sg.Divided) -> None:
        me = self._me
        if self._is_current(event.generation) and me.step is not None:
            me.topics.lead(event.now_ms, event.counts, event.topics)
            if isinstance(me.step.output, sg.Divide) and me.step.output.is_kept:
                me.topics.look_soon(event.now_ms)
            self._sync(event.now_ms, event.assignments)

    def not_divided(self, event: sg.NotDivided) -> None:
        if self._is_current(event.generation) and self._me.step is not None:
            self._me.step.repeat_later(event.now_ms)

    def assignor_failed(self, event: sg.AssignorFailed) -> None:
        """Say why there is no assignment. Where the job takes no reason, make room for another
        leader: the user lets go of what was kept, then the member leaves."""
        if not self._is_current(event.generation):
            return
        self._failed = event.error
        if event.why is not None:
            self._sync(event.now_ms, (), event.why)
        else:
            self._leaving.owe("its assignor failed", event.error)

    def _is_current(self, generation: int) -> bool:
        return self._me.state is State.DIVIDING and generation == self._me.generation
