"""One member's life in a group, as a state machine without IO: `handle(input) -> outputs`.

It knows the protocol (join, divide, sync, work, rejoin, leave), the fence, and when the user may
be told what. It never blocks, reads no clock and calls nobody but assignors; the shell
(`group_member`) does. What happens is taken apart here; `rounds` and `leaving` have the steps.

    IDLE -> JOINING -> [DIVIDING ->] SYNCING -> STABLE -> JOINING -> ...      LEAVING -> LEFT

Source: Kafka's ConsumerCoordinator and AbstractCoordinator; TIME-AND-FENCING.md, rules 8 to 12.
"""

from typing import Any

import msgspec

from coordlib.client import signals as sg
from coordlib.client.asks import Asks, error_of, refusal_of
from coordlib.client.assignor import Assignor
from coordlib.client.errors import MemberFenced
from coordlib.client.fence import Fence
from coordlib.client.leaving import Leaving
from coordlib.client.ownership import Ownership
from coordlib.client.rounds import METADATA_CHANGED, REBALANCING, SUBSCRIPTION_CHANGED, Rounds
from coordlib.client.signals import Partitions
from coordlib.client.standing import Standing
from coordlib.client.steps import ACTIVE, ENDED, IN_GENERATION, State, Step
from coordlib.client.wording import Identity, Timing
from coordlib.errors import CoordError, ErrorCode
from coordlib.records import responses as rs


class Membership:
    """One member; `handle` is the only way in."""

    def __init__(self, identity: Identity, timing: Timing, assignors: tuple[Assignor, ...]) -> None:
        self._me = Standing(identity, timing, assignors)
        self._asks = Asks(f"group {identity.group}", self._me.wording.next_id)
        self._leaving = Leaving(self._me, self._asks)
        self._rounds = Rounds(self._me, self._leaving)
        self._polled_ms = 0

    @property
    def state(self) -> State:
        return self._me.state

    @property
    def member(self) -> str:
        return self._me.member

    @property
    def generation(self) -> int:
        return self._me.generation

    @property
    def held(self) -> Ownership:
        return self._me.held

    @property
    def fence(self) -> Fence:
        return self._me.fence

    # ---- the way in ---------------------------------------------------------------------------

    def handle(self, event: sg.Input) -> list[sg.Output]:
        """Take one input; the outputs are to be done in order."""
        _HANDLERS[type(event)](self, event)
        leaving = self._leaving
        leaving.say_out(event.now_ms)
        if not (leaving.is_closing or leaving.is_owed or leaving.is_away):
            self._rounds.join_if_wanted(event.now_ms)
        leaving.leave_if_owed(event.now_ms)
        if self._me.state not in ENDED and self._me.topics.begin_look(event.now_ms):
            self._me.say(sg.LookUp())
        return self._me.outputs()

    def assignment(self, now_ms: int) -> Partitions:
        """What the user may work on at this moment."""
        return self._me.held.usable(now_ms)

    def wake_ms(self) -> int | None:
        """When `Elapsed` is to be said at the latest."""
        me = self._me
        due = [self._asks.due_ms(), me.step.again_ms if me.step else None]
        if me.state not in ENDED:
            due.append(me.topics.due_ms())
        if me.keeps_alive:
            due.append(me.beats.due_ms())
        if me.state in ACTIVE:
            due.append(self._polled_ms + me.timing.rebalance_timeout_ms)
        return min((each for each in due if each is not None), default=None)

    # ---- the user -----------------------------------------------------------------------------

    def _subscribe(self, event: sg.Subscribe) -> None:
        self._polled_ms, self._leaving.is_away = event.now_ms, False
        self._me.topics.subscribe(event.now_ms, event.topics)
        self._rounds.topics_changed(SUBSCRIPTION_CHANGED)

    def _unsubscribe(self, event: sg.Unsubscribe) -> None:
        self._polled_ms = event.now_ms
        self._me.topics.unsubscribe()
        if self._me.state in ACTIVE:
            self._leaving.owe("unsubscribed")

    def _polled(self, event: sg.Polled) -> None:
        me, leaving = self._me, self._leaving
        self._polled_ms, leaving.is_away = event.now_ms, False
        if me.held.calling is not None or leaving.is_closing:
            return
        must_let_go = leaving.is_owed or (me.rejoin_reason is not None and not me.keeps)
        call = me.held.next_call(event.now_ms, must_let_go)
        if call is not None:
            me.say(call)
        elif me.failure is not None:
            me.say(sg.Raise(me.failure))

    def _called_back(self, event: sg.CalledBack) -> None:
        self._polled_ms = event.now_ms
        self._me.held.returned(event.callback)
        if self._leaving.is_closing:
            self._leaving.leave()

    def _close(self, event: sg.Close) -> None:
        self._leaving.close(event)

    def _commit(self, event: sg.CommitOffsets) -> None:
        me = self._me
        is_owner = me.held.told is not None and me.fence.may_work(event.now_ms)
        # Between a join and its assignment only those hold anything who keep it; the coordinator
        # takes their commits until the old generation ends, and refuses them for a moment then.
        if not is_owner or not me.keeps_alive:
            error = me.failure or MemberFenced(me.where, me.fence.stopped_by(event.now_ms))
            me.say(sg.Answer(event.ticket, error=error))
            return
        request = me.wording.commit(me.member, me.generation, event.offsets)
        me.say(self._asks.ask(event.ticket, request))

    def _fetch(self, event: sg.FetchOffsets) -> None:
        me = self._me
        if me.state in ENDED:
            error = me.failure or CoordError("The member has left.", me.where)
            me.say(sg.Answer(event.ticket, error=error))
        else:
            me.say(self._asks.ask(event.ticket, me.wording.fetch(event.topics)))

    # ---- topics' metadata ---------------------------------------------------------------------

    def _topics_seen(self, event: sg.TopicsSeen) -> None:
        me = self._me
        must_divide_anew = me.topics.seen(event.now_ms, event.counts)
        self._rounds.topics_changed(METADATA_CHANGED)
        if must_divide_anew and me.state in IN_GENERATION:
            me.rejoin_reason = me.rejoin_reason or METADATA_CHANGED

    def _topics_not_seen(self, event: sg.TopicsNotSeen) -> None:
        self._me.topics.not_seen(event.now_ms)

    # ---- the log ------------------------------------------------------------------------------

    def _acknowledged(self, event: sg.Acknowledged) -> None:
        me = self._me
        if me.beats.is_open(event.id):
            me.beats.acknowledged(event)
        elif self._leaving.acknowledged(event):
            return
        elif me.step is not None and event.id == me.step.id:
            me.step.offset = event.offset
            me.fence.reacted(event.now_ms)
            if me.state is State.LEAVING:
                self._leaving.send(me.own_id())

    def _not_written(self, event: sg.NotWritten) -> None:
        me = self._me
        if me.beats.is_open(event.id):
            me.beats.not_written()
        elif me.step is not None and event.id == me.step.id:
            self._step_not_written(event, me.step)
        else:
            self._leaving.not_written(event)
            me.say_all(self._asks.not_written(event.id, event.why, event.now_ms))

    def _step_not_written(self, event: sg.NotWritten, step: Step) -> None:
        if self._me.state is State.LEAVING:
            self._leaving.end()
        elif event.is_final:
            why = f"A request cannot be written: {event.why}"
            self._me.fail(CoordError(why, self._me.where))
        else:
            step.repeat_later(event.now_ms)

    def _read_to_end(self, event: sg.ReadToEnd) -> None:
        self._me.fence.read_to_end(event.now_ms, event.asked_ms)

    def _elapsed(self, event: sg.Elapsed) -> None:
        me, now_ms = self._me, event.now_ms
        silent_ms = now_ms - self._polled_ms
        if me.state in ACTIVE and silent_ms >= me.timing.rebalance_timeout_ms:
            self._leaving.leave_for_silence()
        again = me.step.repeat(now_ms) if me.step is not None else None
        if again is not None:
            me.say(again)
        me.say_all(self._asks.repeat(now_ms))
        if me.keeps_alive and me.beats.is_due(now_ms):
            request = me.wording.heartbeat(me.member, me.generation)
            me.beats.sent(request.id, now_ms)
            me.say(sg.Send(request))

    # ---- answers and notices ------------------------------------------------------------------

    def _received(self, event: sg.Received) -> None:
        message, now_ms, me = event.message, event.now_ms, self._me
        match message:
            case rs.Progress():
                if message.shard == me.identity.shard:
                    me.fence.progressed(now_ms, message.offset)
            case rs.RebalanceInProgress():
                if (message.group, message.generation) == (me.identity.group, me.generation):
                    self._notice(now_ms)
            case rs.MemberRemoved():
                is_own = message.group == me.identity.group and message.member == me.own_id()
                if is_own and me.state in ACTIVE:
                    self._removed(message.member)
            case rs.Response() if message.id.rpartition("-")[0] == me.identity.token:
                self._answered(message, now_ms)

    def _removed(self, member: str) -> None:
        """A static member asks again under its id: joining without it, it would take the place of
        the very process that replaced it. Should nobody have, it is told UNKNOWN_MEMBER_ID."""
        me = self._me
        self._leaving.put_out(member)
        me.member = member
        me.forget(keeps_member=me.is_static)

    def _notice(self, now_ms: int) -> None:
        me = self._me
        if me.state in IN_GENERATION:
            me.rejoin_reason = me.rejoin_reason or REBALANCING
            me.fence.demanded(now_ms)
        elif me.state is State.JOINING and me.step is not None and me.step.offset is None:
            # The join that is under way answers it, once the log has it; then it is no news.
            me.fence.demanded(now_ms)

    def _answered(self, response: rs.Response, now_ms: int) -> None:
        me = self._me
        if me.step is not None and response.id == me.step.id:
            self._rounds.answered(me.step, response, now_ms)
            return
        is_older = me.wording.is_before(response.id, me.first_id)
        if is_older and me.keeps_alive and isinstance(response, rs.OffsetCommitResponse):
            response = _overtaken(response)
        me.say_all(self._asks.answered(response, now_ms))
        if me.state is State.LEAVING:
            self._leaving.end_if_all_answered()
        # Refused heartbeats and commits say what became of the membership that sent them.
        if me.keeps_alive and not is_older:
            self._refused_in_generation(response, now_ms)

    def _refused_in_generation(self, response: rs.Response, now_ms: int) -> None:
        match error_of(response):
            case ErrorCode.REBALANCE_IN_PROGRESS:
                # A commit is refused so between the join and the assignment: that asks nothing.
                if isinstance(response, rs.HeartbeatResponse):
                    self._notice(now_ms)
            case ErrorCode.UNKNOWN_MEMBER_ID:
                self._leaving.put_out(self._me.member)
                self._me.forget()
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


def _overtaken(response: rs.OffsetCommitResponse) -> rs.OffsetCommitResponse:
    """The generation of a member that kept its partitions ended before its commit was judged: it
    has lost nothing, and may commit again."""
    if error_of(response) is not ErrorCode.ILLEGAL_GENERATION:
        return response
    message = "A new generation began meanwhile. Commit again, of what is still assigned."
    return msgspec.structs.replace(
        response, error=ErrorCode.REBALANCE_IN_PROGRESS.name, message=message
    )


_HANDLERS: dict[type, Any] = {
    sg.Subscribe: Membership._subscribe,
    sg.Unsubscribe: Membership._unsubscribe,
    sg.Polled: Membership._polled,
    sg.CalledBack: Membership._called_back,
    sg.Close: Membership._close,
    sg.Elapsed: Membership._elapsed,
    sg.Acknowledged: Membership._acknowledged,
    sg.NotWritten: Membership._not_written,
    sg.Received: Membership._received,
    sg.ReadToEnd: Membership._read_to_end,
    sg.Divided: Membership._divided,
    sg.NotDivided: Membership._not_divided,
    sg.AssignorFailed: Membership._assignor_failed,
    sg.TopicsSeen: Membership._topics_seen,
    sg.TopicsNotSeen: Membership._topics_not_seen,
    sg.CommitOffsets: Membership._commit,
    sg.FetchOffsets: Membership._fetch,
}
