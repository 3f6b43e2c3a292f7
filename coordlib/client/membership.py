"""One member's life in a group, as a state machine without IO: `handle(input) -> outputs`.

It knows the protocol (join, divide, sync, work, rejoin, leave), the fence, and when the user may
be told what. It never blocks, reads no clock and calls nobody; the shell (`group_member`) does.

    IDLE -> JOINING -> [DIVIDING ->] SYNCING -> STABLE -> JOINING -> ...      LEAVING -> LEFT

A rejoin is eager: it waits until the user has let go of everything that he was told to own.
Source: Kafka's ConsumerCoordinator and AbstractCoordinator; time-and-fencing, rules 8 to 12.
"""

from typing import Any

import msgspec

from coordlib.client import signals as sg
from coordlib.client.asks import Asks, error_of, refusal_of
from coordlib.client.assignor import Assignor, partitions_of
from coordlib.client.errors import MemberFenced
from coordlib.client.fence import Fence
from coordlib.client.heartbeats import Heartbeats
from coordlib.client.ownership import Ownership
from coordlib.client.signals import Partitions
from coordlib.client.steps import ACTIVE, ENDED, IN_GENERATION, VALID_PREVIOUS_STATES, State, Step
from coordlib.client.wording import Identity, Timing, Wording
from coordlib.errors import CoordError, ErrorCode
from coordlib.records import consumer_protocol as cp
from coordlib.records import requests as rq
from coordlib.records import responses as rs


class Membership:
    """One member; `handle` is the only way in."""

    def __init__(self, identity: Identity, timing: Timing, assignors: tuple[Assignor, ...]) -> None:
        self.identity, self.timing, self._assignors = identity, timing, assignors
        self._wording = Wording(identity, timing)
        self._asks = Asks(f"group {identity.group}", self._wording.next_id)
        self.fence = Fence(timing.session_timeout_ms, timing.rebalance_timeout_ms)
        self.held = Ownership(self.fence)
        self.state = State.IDLE
        self.member, self.generation, self.protocol = "", -1, ""
        self._topics: tuple[str, ...] | None = None
        self._joined_topics: tuple[str, ...] = ()
        self._step: Step | None = None
        #: Why a rejoin is owed; None: none is.
        self._rejoin_reason: str | None = None
        #: Left because `poll` was not called; joins again when it is.
        self._is_away = False
        self._is_closing, self._leave_reason, self._leave_id = False, "", ""
        self._is_leave_written = False
        self._failure: CoordError | None = None
        self._polled_ms = 0
        #: The generation's first id: refusals of older requests concern an older membership.
        self._first_id = self._wording.next_id()
        self._beats = Heartbeats(timing.heartbeat_interval_ms, self.fence)
        #: JoinGroups given up before their offset, and so their member's id, was known.
        self._orphans: set[str] = set()
        self._out: list[sg.Output] = []

    # ---- the way in ---------------------------------------------------------------------------

    def handle(self, event: sg.Input) -> list[sg.Output]:
        """Take one input; the outputs are to be done in order."""
        _HANDLERS[type(event)](self, event)
        self._join_if_wanted(event.now_ms)
        out, self._out = self._out, []
        return out

    def assignment(self, now_ms: int) -> Partitions:
        """What the user may work on at this moment."""
        return self.held.usable(now_ms)

    def wake_ms(self) -> int | None:
        """When `Elapsed` is to be said at the latest."""
        due = [self._asks.due_ms(), self._step.again_ms if self._step else None]
        if self.state in IN_GENERATION:
            due.append(self._beats.due_ms())
        if self.state in ACTIVE:
            due.append(self._polled_ms + self.timing.rebalance_timeout_ms)
        return min((each for each in due if each is not None), default=None)

    # ---- the user -----------------------------------------------------------------------------

    def _subscribe(self, event: sg.Subscribe) -> None:
        self._topics, self._polled_ms, self._is_away = event.topics, event.now_ms, False
        if self.state in IN_GENERATION and event.topics != self._joined_topics:
            self._rejoin_reason = "subscription changed"

    def _polled(self, event: sg.Polled) -> None:
        self._polled_ms, self._is_away = event.now_ms, False
        if self.held.calling is not None or self._is_closing:
            return
        call = self.held.next_call(event.now_ms, self._rejoin_reason is not None)
        if call is not None:
            self._out.append(call)
        elif self._failure is not None:
            self._out.append(sg.Raise(self._failure))

    def _called_back(self, event: sg.CalledBack) -> None:
        self._polled_ms = event.now_ms
        self.held.returned(event.callback)
        if self._is_closing:
            self._leave()

    def _close(self, event: sg.Close) -> None:
        if self._is_closing:
            return
        self._is_closing, self._leave_reason = True, event.reason or "closed"
        if self.held.calling is not None:
            return
        call = self.held.next_call(event.now_ms, must_let_go=True)
        if call is None:
            self._leave()
        else:
            self._out.append(call)

    def _commit(self, event: sg.CommitOffsets) -> None:
        is_owner = self.held.told is not None and self.fence.may_work(event.now_ms)
        if not is_owner or self.state is not State.STABLE:
            fenced = MemberFenced(self._where(), self.fence.stopped_by(event.now_ms))
            self._out.append(sg.Answer(event.ticket, error=fenced))
            return
        request = self._wording.commit(self.member, self.generation, event.offsets)
        self._out.append(self._asks.ask(event.ticket, request))

    def _fetch(self, event: sg.FetchOffsets) -> None:
        if self.state in ENDED:
            error = self._failure or CoordError("The member has left.", self._where())
            self._out.append(sg.Answer(event.ticket, error=error))
        else:
            self._out.append(self._asks.ask(event.ticket, self._wording.fetch(event.topics)))

    # ---- joining and leaving ------------------------------------------------------------------

    def _join_if_wanted(self, now_ms: int) -> None:
        """Rejoin once nothing is held; a member without partitions need not wait for its user."""
        is_wanted = (self.state is State.IDLE and not self._is_away) or (
            self.state in IN_GENERATION and self._rejoin_reason is not None
        )
        is_free = self.held.is_free() and not self._is_closing
        if is_wanted and is_free and self._topics is not None:
            self._join(now_ms, self._topics)

    def _join(self, now_ms: int, topics: tuple[str, ...]) -> None:
        request = self._wording.join(
            self.member, self.generation, self._assignors, topics, (), self._rejoin_reason
        )
        self._become(State.JOINING)
        self._rejoin_reason, self._joined_topics = None, topics
        self.held.let_go()
        self._take(now_ms, sg.Send(request))

    def _forget(self, keeps_member: bool = False) -> None:
        """The coordinator does not know this membership any more; what is told is lost."""
        self._become(State.IDLE)
        self.member, self.generation = (self.member if keeps_member else ""), -1
        self._step = self._rejoin_reason = None
        self.held.withdraw()

    def _leave(self) -> None:
        self._become(State.LEAVING)
        self.held.let_go()
        if member := self._own_id():
            self._send_leave(member)
        elif self._step is None or self._step.again_ms is not None:
            self._end()
        # Else the JoinGroup's acknowledgement tells the id to leave with.

    def _send_leave(self, member: str) -> None:
        request = self._wording.leave(member, self._leave_reason)
        self._step, self._leave_id = None, request.id
        self._out.append(sg.Send(request))

    def _leave_for_silence(self) -> None:
        """`poll` was not called for the rebalance timeout: others should not wait for this one."""
        if member := self._own_id():
            reason = "poll was not called within the rebalance timeout"
            self._out.append(sg.Send(self._wording.leave(member, reason)))
        elif self._step is not None and self._step.id is not None:
            self._orphans.add(self._step.id)
        self._forget()
        self._is_away = True

    def _end_if_all_answered(self) -> None:
        """Commits stand before the LeaveGroup in the log; their answers are still worth having."""
        if self._is_leave_written and not self._asks.are_open():
            self._end()

    def _end(self) -> None:
        self._become(State.LEFT)
        closed = CoordError("The member was closed before the answer came.", self._where())
        self._out += self._asks.abandon(closed)
        self._out.append(sg.Left())

    def _own_id(self) -> str:
        """The member id: as answered, or as the place of the first JoinGroup will give it."""
        if not self.member and self._step is not None and self._step.offset is not None:
            return self.identity.member_at(self._step.offset)
        return self.member

    # ---- the log ------------------------------------------------------------------------------

    def _acknowledged(self, event: sg.Acknowledged) -> None:
        if self._beats.is_open(event.id):
            self._beats.acknowledged(event)
        elif event.id in self._orphans:
            self._orphans.discard(event.id)
            orphan = self.identity.member_at(event.offset)
            self._out.append(sg.Send(self._wording.leave(orphan, "given up before it was told")))
        elif event.id == self._leave_id and self.state is State.LEAVING:
            self._is_leave_written = True
            self._end_if_all_answered()
        elif self._step is not None and event.id == self._step.id:
            self._step.offset = event.offset
            self.fence.reacted(event.now_ms)
            if self.state is State.LEAVING:
                self._send_leave(self._own_id())

    def _not_written(self, event: sg.NotWritten) -> None:
        if self._beats.is_open(event.id):
            self._beats.not_written()
        elif event.id == self._leave_id and self.state is State.LEAVING:
            self._end()
        elif self._step is not None and event.id == self._step.id:
            self._step_not_written(event, self._step)
        else:
            self._orphans.discard(event.id)
            self._out += self._asks.not_written(event.id, event.why, event.now_ms)

    def _step_not_written(self, event: sg.NotWritten, step: Step) -> None:
        if self.state is State.LEAVING:
            self._end()
        elif event.is_final:
            self._fail(CoordError(f"A request cannot be written: {event.why}", self._where()))
        else:
            step.repeat_later(event.now_ms)

    def _read_to_end(self, event: sg.ReadToEnd) -> None:
        self.fence.read_to_end(event.now_ms, event.asked_ms)

    def _elapsed(self, event: sg.Elapsed) -> None:
        now_ms = event.now_ms
        silent_ms = now_ms - self._polled_ms
        if self.state in ACTIVE and silent_ms >= self.timing.rebalance_timeout_ms:
            self._leave_for_silence()
        again = self._step.repeat(now_ms) if self._step is not None else None
        if again is not None:
            self._out.append(again)
        self._out += self._asks.repeat(now_ms)
        self._heartbeat(now_ms)

    def _heartbeat(self, now_ms: int) -> None:
        if self.state in IN_GENERATION and self._beats.is_due(now_ms):
            request = self._wording.heartbeat(self.member, self.generation)
            self._beats.sent(request.id, now_ms)
            self._out.append(sg.Send(request))

    # ---- answers and notices ------------------------------------------------------------------

    def _received(self, event: sg.Received) -> None:
        message, now_ms = event.message, event.now_ms
        match message:
            case rs.Progress():
                if message.shard == self.identity.shard:
                    self.fence.progressed(now_ms, message.offset)
            case rs.RebalanceInProgress():
                if (message.group, message.generation) == (self.identity.group, self.generation):
                    self._notice(now_ms)
            case rs.MemberRemoved():
                if message.group == self.identity.group and message.member == self._own_id():
                    self._removed()
            case _ if message.id.rpartition("-")[0] == self.identity.token:
                self._answered(message, now_ms)

    def _removed(self) -> None:
        if self.state in ACTIVE:
            self._forget()

    def _notice(self, now_ms: int) -> None:
        if self.state in IN_GENERATION:
            self._rejoin_reason = self._rejoin_reason or "group is rebalancing"
            self.fence.demanded(now_ms)

    def _answered(self, response: rs.Response, now_ms: int) -> None:
        asked = self._step
        if asked is not None and response.id == asked.id:
            self._step_answered(asked, response, now_ms)
            return
        self._out += self._asks.answered(response, now_ms)
        if self.state is State.LEAVING and self._is_leave_written:
            self._end_if_all_answered()
        # Refused heartbeats and commits say what became of the membership that sent them.
        if self.state in IN_GENERATION and not self._wording.is_before(response.id, self._first_id):
            self._refused_in_generation(response, now_ms)

    def _refused_in_generation(self, response: rs.Response, now_ms: int) -> None:
        match error_of(response):
            case ErrorCode.REBALANCE_IN_PROGRESS:
                self._notice(now_ms)
            case ErrorCode.UNKNOWN_MEMBER_ID:
                self._forget()
            case ErrorCode.ILLEGAL_GENERATION:
                self._forget(keeps_member=True)
            case ErrorCode.FENCED_INSTANCE_ID:
                self._fail(refusal_of(response, self._where()))

    def _step_answered(self, asked: Step, response: rs.Response, now_ms: int) -> None:
        code = error_of(response)
        if self.state is State.LEAVING:
            known = response.member if isinstance(response, rs.JoinGroupResponse) else ""
            if known and code is ErrorCode.NONE:
                self._send_leave(known)
            else:
                self._end()
        elif code is ErrorCode.NONE and isinstance(response, rs.JoinGroupResponse):
            self._joined(asked, response, now_ms)
        elif code is ErrorCode.NONE and isinstance(response, rs.SyncGroupResponse):
            self._synced(asked, response, now_ms)
        else:
            self._step_refused(asked, response, now_ms)

    def _joined(self, asked: Step, answer: rs.JoinGroupResponse, now_ms: int) -> None:
        # Rule 12: whatever id the acknowledgement suggested, the answer's id holds.
        self.member = answer.member
        self.generation = _known(answer.generation, -1)
        self.protocol = _known(answer.protocol, "")
        self._first_id = self._wording.next_id()
        self._beats.begin(now_ms, asked.first_ms)
        is_leader = answer.leader == self.member
        if is_leader and answer.skip_assignment is not True:
            self._become(State.DIVIDING)
            members = _known(answer.members, ())
            self._take(now_ms, sg.Divide(self.generation, self.protocol, members))
        else:
            self._sync(now_ms, ())

    def _divided(self, event: sg.Divided) -> None:
        if self.state is State.DIVIDING and event.generation == self.generation:
            self._sync(event.now_ms, event.assignments)

    def _not_divided(self, event: sg.NotDivided) -> None:
        is_current = self.state is State.DIVIDING and event.generation == self.generation
        if is_current and self._step is not None:
            self._step.repeat_later(event.now_ms)

    def _sync(self, now_ms: int, assignments: tuple[rq.MemberAssignment, ...]) -> None:
        self._become(State.SYNCING)
        request = self._wording.sync(self.member, self.generation, self.protocol, assignments)
        self._take(now_ms, sg.Send(request))

    def _synced(self, asked: Step, answer: rs.SyncGroupResponse, now_ms: int) -> None:
        try:
            given = partitions_of(_known(answer.assignment, b""))
        except cp.Unreadable as problem:
            self._fail(CoordError(f"The assignment cannot be read: {problem}.", self._where()))
            return
        self._become(State.STABLE)
        self._step = None
        sign_ms = max(asked.first_ms, self._beats.sign_ms)
        self.held.grant(now_ms, given, _known(answer.fence, None), sign_ms)
        if self._topics != self._joined_topics:
            self._rejoin_reason = "subscription changed"

    def _step_refused(self, asked: Step, response: rs.Response, now_ms: int) -> None:
        code = error_of(response)
        if code is ErrorCode.UNKNOWN_MEMBER_ID:
            self._forget()
        elif code is ErrorCode.ILLEGAL_GENERATION:
            self._forget(keeps_member=True)
        elif code is ErrorCode.REBALANCE_IN_PROGRESS and self.state is State.SYNCING:
            self._rejoin_reason = "group is rebalancing"
        elif code is ErrorCode.MEMBER_ID_REQUIRED and isinstance(response, rs.JoinGroupResponse):
            self._forget()
            self.member = response.member
        elif code.retriable and isinstance(asked.output, sg.Send):
            request = msgspec.structs.replace(asked.output.request, id=self._wording.next_id())
            asked.replace_later(now_ms, sg.Send(request))
        else:
            self._fail(refusal_of(response, self._where()))

    # ---- small things -------------------------------------------------------------------------

    def _fail(self, error: CoordError) -> None:
        self._become(State.FAILED)
        self._step = self._rejoin_reason = None
        self.held.withdraw()
        self._failure = error

    def _take(self, now_ms: int, output: sg.Send | sg.Divide) -> None:
        self._step = Step(output, now_ms)
        self._out.append(output)

    def _become(self, state: State) -> None:
        if self.state not in VALID_PREVIOUS_STATES[state]:
            raise AssertionError(f"{self.state} -> {state} is no transition of a member")
        self.state = state

    def _where(self) -> str:
        return f"group {self.identity.group}, member {self.member or self.identity.client}"


def _known(value: Any, otherwise: Any) -> Any:
    """A field of an answer, or something else where the answer left it out."""
    return otherwise if value is msgspec.UNSET or value is None else value


_HANDLERS: dict[type, Any] = {
    sg.Subscribe: Membership._subscribe,
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
    sg.CommitOffsets: Membership._commit,
    sg.FetchOffsets: Membership._fetch,
}
