"""The life of a member whose group divides among its members: the classic protocol.

    IDLE -> JOINING -> [DIVIDING ->] SYNCING -> STABLE -> JOINING -> ...      LEAVING -> LEFT

It joins, divides, syncs, works and rejoins. What happens is taken apart here; `rounds` has the
steps, and `life` what it shares with members of groups whose coordinator divides.
"""

import msgspec

from coordlib.client.classic.assignor import Assignor
from coordlib.client.classic.rounds import (
    METADATA_CHANGED,
    REBALANCING,
    SUBSCRIPTION_CHANGED,
    Rounds,
)
from coordlib.client.machine import signals as sg
from coordlib.client.machine.asks import error_of, refusal_of
from coordlib.client.machine.life import Life
from coordlib.client.machine.standing import ClassicStanding
from coordlib.client.machine.steps import ENDED, IN_GENERATION, State, Step
from coordlib.client.machine.wording import Identity, Timing
from coordlib.errors import ErrorCode
from coordlib.records import responses as rs


class Membership(Life):
    """One member; `handle` is the only way in."""

    _me: ClassicStanding

    def __init__(self, identity: Identity, timing: Timing, assignors: tuple[Assignor, ...]) -> None:
        super().__init__(ClassicStanding(identity, timing, assignors))
        self._rounds = Rounds(self._me, self._leaving)

    # ---- this protocol's way --------------------------------------------------------------------

    def _dispatch_own(self, event: sg.ClassicInput | sg.AssignedInput) -> None:
        match event:
            case sg.Subscribe():
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
        self._rounds.join_if_wanted(now_ms)

    def _finish(self, now_ms: int) -> None:
        if self._me.state not in ENDED and self._me.topics.begin_look(now_ms):
            self._me.say(sg.LookUp())

    def _due_ms(self) -> int | None:
        due_ms = [self._me.topics.due_ms(), self._rounds.due_ms()]
        is_over = self._me.state in ENDED
        return None if is_over else min((each for each in due_ms if each is not None), default=None)

    def _must_let_go(self) -> bool:
        me = self._me
        return self._leaving.is_owed or (me.rejoin_reason is not None and not me.keeps)

    def _written(self, event: sg.Acknowledged) -> None:
        if self._me.step is not None and event.id == self._me.step.id:
            self._me.fence.reacted(event.now_ms)

    def _step_answered(self, asked: Step, response: rs.Response, now_ms: int) -> None:
        self._rounds.answered(asked, response, now_ms)

    # ---- the user -------------------------------------------------------------------------------

    def _subscribe(self, event: sg.Subscribe) -> None:
        self._seen(event.now_ms)
        self._me.topics.subscribe(event.now_ms, event.topics)
        self._rounds.topics_changed(SUBSCRIPTION_CHANGED)

    def _unsubscribe(self, event: sg.Unsubscribe) -> None:
        self._me.topics.unsubscribe()
        super()._unsubscribe(event)

    # ---- topics' metadata ---------------------------------------------------------------------

    def _topics_seen(self, event: sg.TopicsSeen) -> None:
        me = self._me
        must_divide_anew = me.topics.seen(event.now_ms, event.counts)
        self._rounds.topics_changed(METADATA_CHANGED)
        if must_divide_anew and me.state in IN_GENERATION:
            me.rejoin_reason = me.rejoin_reason or METADATA_CHANGED

    def _topics_not_seen(self, event: sg.TopicsNotSeen) -> None:
        self._me.topics.not_seen(event.now_ms)

    # ---- answers and notices ------------------------------------------------------------------

    def _noticed(self, message: rs.AnyResponse, now_ms: int) -> None:
        if isinstance(message, rs.RebalanceInProgress):
            me = self._me
            if (message.group, message.generation) == (me.identity.group, me.generation):
                self._notice(now_ms)

    def _notice(self, now_ms: int) -> None:
        me = self._me
        if me.state in IN_GENERATION:
            me.rejoin_reason = me.rejoin_reason or REBALANCING
            me.fence.demanded(now_ms)
        elif me.state is State.JOINING and me.step is not None and me.step.offset is None:
            # The join that is under way answers it, once the log has it; then it is no news.
            me.fence.demanded(now_ms)

    def _overtaken(self, response: rs.Response) -> rs.Response:
        """The generation of a member that kept its partitions ended before its commit was judged:
        it has lost nothing, and may commit again."""
        is_commit = self._me.keeps_alive and isinstance(response, rs.OffsetCommitResponse)
        if not is_commit or error_of(response) is not ErrorCode.ILLEGAL_GENERATION:
            return response
        message = "A new generation began meanwhile. Commit again, of what is still assigned."
        return msgspec.structs.replace(
            response, error=ErrorCode.REBALANCE_IN_PROGRESS.name, message=message
        )

    def _judged(self, response: rs.Response, now_ms: int) -> None:
        match error_of(response):
            case ErrorCode.REBALANCE_IN_PROGRESS:
                # A commit is refused so between the join and the assignment: that asks nothing.
                if isinstance(response, rs.HeartbeatResponse):
                    self._notice(now_ms)
            case ErrorCode.UNKNOWN_MEMBER_ID:
                self._out()
            case ErrorCode.ILLEGAL_GENERATION:
                self._me.forget(keeps_member=True)
            case ErrorCode.FENCED_INSTANCE_ID:
                self._leaving.put_out(self._me.member)
                self._me.fail(refusal_of(response, self._me.where))

    def _divided(self, event: sg.Divided) -> None:
        self._rounds.divided(event)

    def _not_divided(self, event: sg.NotDivided) -> None:
        self._rounds.not_divided(event)

    def _assignor_failed(self, event: sg.AssignorFailed) -> None:
        self._rounds.assignor_failed(event)
