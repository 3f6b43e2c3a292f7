"""One broker's life in its cluster, as a state machine without IO: `handle(input) -> outputs`.

    RegisterBroker ─▶ Inactive ── says Active ─▶ Active ── says Stopping ─▶ Stopping
                          ▲                         │                          │
                          └── silent, removed, put out, by its own word ───────┘

It registers, sends signs of life, says which state it wants to be in, and tells its user what to
lead, what to follow, what to let go of, and whether its door is open. It never blocks, reads no
clock and calls no code of the user; the shell (`agent.py`) does.

Source: KIP-343 (seed 001); time-and-fencing.md, rules 8 to 12, 15 and 16.
"""

from coordlib.client.controller import requests as bs
from coordlib.client.controller.isr import InSync
from coordlib.client.controller.metadata import ClusterMetadata, Picture, Question
from coordlib.client.controller.replicas import Replicas, Reports, Resigning
from coordlib.client.controller.requests import (
    BrokerFenced,
    BrokerReplaced,
    BrokerTiming,
    Call,
    Callback,
    MetadataRefused,
    Registration,
)
from coordlib.client.controller.state import (
    LIVING,
    READY,
    REGISTERED,
    BrokerStanding,
    FencingGate,
    Leaving,
    State,
    Targets,
)
from coordlib.client.kit import events as sg
from coordlib.client.kit.events import TopicPartition
from coordlib.client.kit.fence import Fence, Stop
from coordlib.client.kit.requests import (
    Identity,
    PendingRequests,
    Step,
    error_of,
    known,
    offset_of,
    refusal_of,
    throttle_ms,
)
from coordlib.core.wire import api
from coordlib.errors import CoordError, ErrorCode

REPLACED = "a newer process is registered as this broker"
DECLARED_INACTIVE = "the controller has declared it Inactive"
REFUSED = "the controller expects no heartbeats of it"
UNREGISTERED = "it was unregistered"
LOG_CUT = "the log of requests has lost its end"
UNPOLLED = "poll was not called within the release timeout"


class BrokerMachine:
    """One broker; `handle` is the only way in."""

    def __init__(
        self, identity: Identity, timing: BrokerTiming, registration: Registration
    ) -> None:
        me = self._me = BrokerStanding(identity, timing, registration)
        self._pending = PendingRequests(me.where, me.wording.next_id)
        self._replicas = Replicas(registration.broker)
        self._resigning = Resigning(me, self._pending, self._replicas)
        self._in_sync = InSync(me, self._replicas)
        self._reports = Reports(me, self._pending)
        self._picture, self._gate = Picture(), FencingGate(timing.fenced_after_ms)
        self._targets = Targets(me)
        self._leaving = Leaving(me)
        self._question = Question(me, self._picture)
        #: The parts of RegisterBroker's answer that were read.
        self._parts: list[api.RegisterBrokerResponse] = []
        self._read_ms: int | None = None
        #: Whether heartbeats are expected of it, as far as it knows.
        self._has_session = False
        self._calling: Call | None = None

    # ---- what it knows ------------------------------------------------------------------------

    @property
    def identity(self) -> Identity:
        return self._me.identity

    @property
    def broker(self) -> int:
        return self._me.registration.broker

    @property
    def state(self) -> State:
        return self._me.state

    @property
    def incarnation(self) -> int:
        """Offset of its registration; -1 before it was answered."""
        return self._me.incarnation

    @property
    def member(self) -> str:
        """The coordinator's name for this process; empty before it was registered."""
        return self._me.member

    @property
    def fence(self) -> Fence:
        return self._me.fence

    @property
    def is_done(self) -> bool:
        """Whether a broker that stops has nothing left that another could lead, or has failed."""
        return self._targets.is_done or self.state in (State.FAILED, State.LEFT)

    def may_lead(self, now_ms: int, place: TopicPartition, epoch: int | None = None) -> bool:
        """Whether it acts as leader at this moment, in this epoch if one is named.  # INV-71"""
        row = self._replicas.led(place) if self._may_act(now_ms) else None
        return row is not None and epoch in (None, row.leader_epoch)

    def must_acknowledge(self, place: TopicPartition) -> frozenset[int]:
        """Replicas that must acknowledge a write (rule 16); empty if this broker does not lead."""
        return self._in_sync.counted(place)

    def is_fenced(self, now_ms: int) -> bool:
        """Whether the door is closed."""
        return not self._gate.is_open(now_ms)

    def metadata(self, now_ms: int) -> ClusterMetadata:
        """The cluster as it was read.

        Raises BrokerFenced, also before the first picture; MetadataRefused: there will be none.
        """
        if self.is_fenced(now_ms):
            raise BrokerFenced(self._me.where, "the broker is fenced")
        if self._question.refusal is not None:
            raise MetadataRefused(self._question.refusal)
        shown = self._picture.show()
        if shown is None:
            raise BrokerFenced(self._me.where, "its metadata were not read yet")
        return shown

    def stopped_by(self, now_ms: int) -> Stop | None:
        """The rule by which it leads nothing now; None while it may, or is not Active."""
        return self._me.fence.stopped_by(now_ms)

    def _may_act(self, now_ms: int) -> bool:
        is_in = self._me.is_ready and self._gate.is_reported and self._gate.closed_because is None
        return is_in and not self._targets.owes_word and self._me.fence.may_work(now_ms)

    def wake_ms(self) -> int | None:
        """When `Elapsed` must be fed at the latest."""
        me = self._me
        due = [self._pending.due_ms(), self._targets.due_ms()]
        due += [step.due_ms(me.silent_ms) for step in self._steps]
        if self._is_beating:
            due.append(me.beats.due_ms())
        return min((each for each in due if each is not None), default=None)

    def reading_lasts_ms(self) -> int | None:
        """How old the newest complete reading may become; the door is older than a session."""
        me = self._me
        return me.fence.reading_lasts_ms() if me.state in LIVING else None

    # ---- the way in ---------------------------------------------------------------------------

    def handle(self, event: bs.Input) -> list[bs.Output]:
        """Take one input; the outputs are to be done in order."""
        now_ms = event.now_ms
        self._gate.check_time(now_ms)
        self._me.fence.may_work(now_ms)  # a stop is latched before the news
        self._dispatch(event)
        if self._targets.gives_up(now_ms):
            self._lead_no_more(UNPOLLED)
        self._check_gate(now_ms)
        self._go_on(now_ms)
        return self._me.outputs()

    def _go_on(self, now_ms: int) -> None:
        """Emit the protocol's next steps."""
        if self._leaving.is_closing:
            self._leaving.go_on(is_free=self._is_free)
        elif self._me.state in REGISTERED:
            self._targets.say(now_ms, self._is_free)
            if self._is_free:
                self._resigning.say()
            self._in_sync.say()
        elif self._me.state is State.FAILED:
            self._leaving.say_out(is_free=self._is_free)

    @property
    def _is_free(self) -> bool:
        """Whether the user was notified of a closed gate, and has returned from on_fenced."""
        if self._gate.closed_because is not None:
            return False
        return self._calling is None or self._calling.callback is not Callback.FENCED

    def _check_gate(self, now_ms: int) -> None:
        me = self._me
        self._gate.contact(me.beats.sign_ms, self._read_ms)
        is_in = me.is_ready and not self._targets.owes_word and not self._leaving.is_closing
        if is_in and me.fence.may_work(now_ms):
            self._gate.open()

    def _dispatch(self, event: bs.Input) -> None:
        match event:
            case sg.Polled():
                self._polled(event.now_ms)
            case bs.CalledBack():
                self._called_back(event)
            case bs.Begin():
                self._targets.seen(event.now_ms)
                self._register(event.now_ms, self._me.registration.previous)
            case bs.Ready():
                self._targets.ready(event.now_ms)
            case bs.Stop():
                self._targets.stop(event.now_ms)
            case bs.AlterIsr():
                self._in_sync.alter(event, self._may_act(event.now_ms))
            case bs.Close():
                self._close(event)
            case _:
                self._dispatch_of_log(event)

    def _dispatch_of_log(self, event: sg.LogInput) -> None:
        match event:
            case sg.Received():
                self._received(event)
            case sg.ReadToEnd():
                self._read_ms = max(self._read_ms or 0, event.asked_ms)
                self._me.fence.read_to_end(event.now_ms, event.asked_ms)
            case sg.Elapsed():
                self._elapsed(event.now_ms)
            case sg.Acknowledged():
                self._acknowledged(event)
            case sg.NotWritten():
                self._not_written(event)
            case sg.LogCut():
                self._log_cut(event.now_ms)

    # ---- the user -----------------------------------------------------------------------------

    def _polled(self, now_ms: int) -> None:
        me = self._me
        self._targets.seen(now_ms)
        if self._calling is not None:
            return
        self._calling = self._next_call(now_ms)
        if self._calling is not None:
            me.say(self._calling)
        elif me.failure is not None:
            me.say(sg.Raise(me.failure))
        elif me.state in REGISTERED and not self._leaving.is_closing:
            self._reports.say()

    def _next_call(self, now_ms: int) -> Call | None:
        me, gate = self._me, self._gate
        if gate.closed_because is not None:
            call = Call(Callback.FENCED, (gate.closed_because,))
            gate.is_reported, gate.closed_because = False, None
            self._replicas.fenced()
            return call
        if me.state not in REGISTERED or self._leaving.is_closing:
            return None
        call_of_demand = self._resigning.next_call()
        if call_of_demand is not None:
            return call_of_demand
        may_act = self._may_act(now_ms)
        if not gate.is_reported and gate.is_open(now_ms):
            gate.is_reported = True
            return Call(Callback.UNFENCED)
        return self._replicas.next_call(may_lead=may_act)

    def _called_back(self, event: bs.CalledBack) -> None:
        """A callback that has raised comes again, but for a deletion: that has failed."""
        self._targets.seen(event.now_ms)
        if event.call != self._calling:
            return
        self._calling, gate = None, self._gate
        match event.call.callback:
            case Callback.RESIGN:
                self._resigning.called_back(event.has_raised)
            case Callback.FENCED:
                if event.has_raised:
                    gate.is_reported, gate.closed_because = True, event.call.arguments[0]
            case Callback.UNFENCED:
                gate.is_reported = not event.has_raised
            case _:
                self._reports.add(self._replicas.called_back(event.call, event.has_raised))

    def _close(self, event: bs.Close) -> None:
        self._leaving.close(event.reason or "closed")
        self._question.stop()
        self._lead_no_more(event.reason or "closed")

    # ---- the log ------------------------------------------------------------------------------

    def _acknowledged(self, event: sg.Acknowledged) -> None:
        me = self._me
        if me.beats.is_open(event.id):
            me.beats.acknowledged(event)
            return
        for step in self._steps:
            if event.id == step.id:
                step.written(event.offset)
                return
        if not self._leaving.written(event.id):
            self._resigning.written(event)

    def _not_written(self, event: sg.NotWritten) -> None:
        me = self._me
        if me.beats.is_open(event.id):
            me.beats.not_written()
            return
        for step in self._steps:
            if event.id == step.id:
                self._step_not_written(event, step)
                return
        if self._in_sync.is_sent(event.id):
            self._in_sync.not_written(event.why)
        elif not self._leaving.written(event.id):
            me.pass_on(self._pending.not_written(event.id, event.why, event.now_ms))

    def _step_not_written(self, event: sg.NotWritten, step: Step) -> None:
        if event.is_final:
            self._fail(CoordError(f"A request cannot be written: {event.why}", self._me.where))
        else:
            step.repeat_later(event.now_ms)

    def _elapsed(self, now_ms: int) -> None:
        me = self._me
        self._targets.elapsed(now_ms)
        for step in self._steps:
            again = step.repeat(now_ms, me.silent_ms)
            if isinstance(again, sg.Send):
                me.say(again)
        me.pass_on(self._pending.repeat(now_ms))
        if self._is_beating and me.beats.is_due(now_ms):
            request = me.wording.sign_of_life(me.member)
            me.beats.sent(request.id, now_ms)
            me.say(sg.Send(request))

    @property
    def _steps(self) -> list[Step]:
        """What it has asked in order: for its registration or its state, and for the metadata."""
        return [step for step in (self._me.step, self._question.step) if step is not None]

    @property
    def _is_beating(self) -> bool:
        return self._has_session and self._me.state in REGISTERED

    # ---- answers and notices ------------------------------------------------------------------

    def _received(self, event: sg.Received) -> None:
        message, now_ms, me = event.message, event.now_ms, self._me
        match message:
            case api.Progress():
                if message.shard == me.identity.shard:
                    me.fence.progressed(now_ms, message.offset)
            case api.Response():
                if message.id.rpartition("-")[0] == me.identity.token:
                    self._answered(message, now_ms)
            case api.MetadataChanged():
                if message.group == me.identity.group:
                    self._changed(message)
            case api.LeadershipDemanded() | api.MemberRemoved():
                if message.group == me.identity.group and message.member == me.member:
                    self._noticed(message, now_ms)

    def _noticed(self, message: api.LeadershipDemanded | api.MemberRemoved, now_ms: int) -> None:
        if self._me.state not in REGISTERED:
            return
        if isinstance(message, api.MemberRemoved):
            # Removed by an operator, or by a newer process: the next answer tells which.
            self._out(message.reason, offset_of(message.cause))
            self._has_session, self._targets.must_ask = False, True
        else:
            rows = message.partitions
            places = tuple(TopicPartition(row.topic, n) for row in rows for n in row.partitions)
            self._resigning.demanded(now_ms, message.cause, places)

    def _changed(self, notice: api.MetadataChanged) -> None:
        me = self._me
        self._picture.changed(notice)
        if me.state not in REGISTERED:
            return  # the picture of the registration is yet to come, and newer
        if api.GoneBroker(me.registration.broker, me.incarnation) in notice.gone and me.is_ready:
            self._out(DECLARED_INACTIVE, offset_of(notice.cause))
            self._has_session = False
        for row in notice.partitions:
            self._replicas.learn(row)

    def _answered(self, response: api.Response, now_ms: int) -> None:
        me = self._me
        if me.step is not None and response.id == me.step.id:
            self._step_answered(me.step, response, now_ms)
        elif self._question.is_answered_by(response.id):
            self._question.answered(response, now_ms, self._replicas.topics())
        elif isinstance(response, api.HeartbeatResponse):
            self._beat_refused(response)
        elif me.state in REGISTERED:
            self._judged(response, now_ms)

    def _judged(self, response: api.Response, now_ms: int) -> None:
        """The answer to a Release, an AlterPartition or a ReplicasDeleted."""
        code = error_of(response)
        is_refused = self._resigning.is_refusal(response)
        self._resigning.answered(response, now_ms)
        if self._in_sync.is_sent(response.id):
            self._in_sync.answered(response)
        self._me.pass_on(self._pending.answered(response, now_ms))
        if code is ErrorCode.STALE_BROKER_EPOCH:
            self._replaced()
        elif is_refused and self._me.is_ready:
            self._out(DECLARED_INACTIVE, offset_of(response.cause))
        elif self._resigning.is_idle:
            self._targets.let_go(now_ms)

    def _beat_refused(self, response: api.HeartbeatResponse) -> None:
        """The log has no session of it: it is Inactive, or replaced."""
        me = self._me
        is_ours = offset_of(response.cause) > me.since
        if error_of(response) is ErrorCode.UNKNOWN_MEMBER_ID and me.state in REGISTERED and is_ours:
            if me.is_ready:
                self._out(REFUSED, offset_of(response.cause))
            self._has_session = False

    def _step_answered(self, asked: Step, response: api.Response, now_ms: int) -> None:
        code, is_registration = error_of(response), self._me.state is State.INITIAL
        is_done = code is ErrorCode.NONE
        if is_done and is_registration and isinstance(response, api.RegisterBrokerResponse):
            self._registered(asked, response, now_ms)
        elif is_done and not is_registration and isinstance(response, api.BrokerHeartbeatResponse):
            self._state_answered(asked, response, now_ms)
        elif code is ErrorCode.STALE_BROKER_EPOCH:
            self._replaced()
        elif code is ErrorCode.BROKER_ID_NOT_REGISTERED and not is_registration:
            # An operator has forgotten this broker.
            former, cause = self._me.incarnation, offset_of(response.cause)
            self._register_anew(UNREGISTERED, cause, now_ms, former)
        elif code.retriable:
            self._again(asked, response, now_ms)
        else:
            self._fail(refusal_of(response, self._me.where))

    def _again(self, asked: Step, response: api.Response, now_ms: int) -> None:
        """Repeat a request that was refused for now, under another id."""
        asked.replace_later(now_ms, self._me.wording.renewed(asked), throttle_ms(response))

    # ---- registered ---------------------------------------------------------------------------

    def _register(self, now_ms: int, previous: int) -> None:
        me = self._me
        self._parts.clear()
        me.take(now_ms, sg.Send(me.wording.register(me.registration, previous)))

    def _log_cut(self, now_ms: int) -> None:
        """Nothing tells whether its signs of life were judged. Its user may still be at work, so
        the former process has not ended: it names none.  # INV-105"""
        if self._me.state in REGISTERED and not self._leaving.is_closing:
            self._register_anew(LOG_CUT, self._me.since, now_ms, previous=-1)

    def _register_anew(self, why: str, offset: int, now_ms: int, previous: int) -> None:
        """Register as a new process: the registration is over."""
        me = self._me
        self._out(why, offset)
        me.become(State.INITIAL)
        self._has_session, me.member = False, ""
        self._register(now_ms, previous)

    def _registered(self, asked: Step, part: api.RegisterBrokerResponse, now_ms: int) -> None:
        me = self._me
        self._parts.append(part)
        if len(self._parts) < known(part.parts, 1):
            return
        rows = [row for each in self._parts for row in known(each.partitions, ())]
        self._parts.clear()
        me.step = None
        me.incarnation, me.member = known(part.incarnation, -1), known(part.member, "")
        me.since = known(part.since, me.incarnation)
        me.become(State.INACTIVE)
        self._replicas.replace(rows)
        self._begin_session(now_ms, asked.first_ms)
        me.say(bs.Registered(me.incarnation))
        self._question.begin(now_ms)

    def _begin_session(self, now_ms: int, sign_ms: int) -> None:
        if not self._has_session:
            self._has_session = True
            self._me.beats.begin(now_ms, sign_ms)

    def _state_answered(
        self, asked: Step, answer: api.BrokerHeartbeatResponse, now_ms: int
    ) -> None:
        me, target = self._me, _target_of(asked)
        me.step = None
        me.since = known(answer.since, me.since)
        self._targets.answered(now_ms, known(answer.may_stop, False))
        state = _state_of(answer)
        if state not in READY:
            self._out(DECLARED_INACTIVE, offset_of(answer.cause))
            return
        me.become(state)
        if self._targets.owes_word or target == "Inactive":
            return  # rule 15: it takes up nothing before its word has counted
        self._begin_session(now_ms, asked.first_ms)
        if not me.fence.is_guarding:
            # Rule 15: an answer opens the fence by the age of its own produce() only.
            me.fence.start(now_ms, asked.first_ms)
            self._resigning.opened(now_ms)

    # ---- out ----------------------------------------------------------------------------------

    def _lead_no_more(self, why: str) -> None:
        """All leaderships that were read of are over (rule 15), and the door is closed."""
        me = self._me
        me.fence.clear()
        self._replicas.give_up()
        self._gate.close(why)
        self._in_sync.stop(BrokerFenced(me.where, why))

    def _out(self, why: str, offset: int) -> None:
        """End all that was given up to this record: the broker is Inactive since then."""
        self._lead_no_more(why)
        self._replicas.lose(offset)
        self._resigning.end()
        self._reports.clear()
        if self._me.is_ready:
            self._me.become(State.INACTIVE)
        self._targets.went_out()

    def _replaced(self) -> None:
        """Fail for good: a newer process has this id, and must not be replaced in turn."""
        me = self._me
        self._out(REPLACED, me.since)
        self._has_session = False
        self._fail(BrokerReplaced(me.where))

    def _fail(self, error: CoordError) -> None:
        """Fail for good: every poll raises from now on."""
        me = self._me
        self._lead_no_more(error.what)
        me.step = None
        self._question.stop()
        me.failure = error
        if me.state not in (State.LEAVING, State.LEFT):
            me.become(State.FAILED)


def _target_of(asked: Step) -> str:
    request = asked.output.request if isinstance(asked.output, sg.Send) else None
    return request.target_state if isinstance(request, api.BrokerHeartbeat) else ""


def _state_of(answer: api.BrokerHeartbeatResponse) -> State:
    names = {each.value: each for each in REGISTERED}
    return names.get(known(answer.current_state, ""), State.INACTIVE)
