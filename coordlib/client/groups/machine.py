"""One member's life in a group, as a state machine without IO: `handle(input) -> outputs`.

The part that members of both kinds of groups share: signs of life, the fence, questions and their
answers, the user's callbacks, and leaving. `classic.py` adds classic groups, `assigned.py`
server-assigned ones. It never blocks, reads no clock and calls no code of the user; `member.py`
does. Source: Kafka's ConsumerCoordinator and AbstractCoordinator; time-and-fencing.md, rules 8 to
12.

**Leaving**: closed, not polled, unsubscribed, or unable to lead. A static member (KIP-345) that is
closed reports that it has stopped and keeps its place for the program's next start, which then need
not wait for its fence (`remain`); one that is not polled reports nothing. All other members leave,
so that others need not wait. A member that others removed (replaced, removed, expired) reports it
too, once and as soon as its user has let go: a successor may wait for just that.

**Pending offsets** whose Delta table must be looked into, because nobody says what became of them.
A member that is about to read a partition meets them in the answer to its OffsetFetch. Their sender
may be on its way to say it, so it gets two seconds. After that the shell looks
(`client/transactions/delta_commits.py`), and this member says what was found. Only for partitions
that are this member's now: other members may be in the middle of a batch, which a look would make
fail; whoever follows them looks then.
"""

from abc import ABC, abstractmethod
from collections.abc import Container, Iterator
from dataclasses import replace
from typing import Final

from msgspec import UNSET

from coordlib.client.groups.state import ACTIVE, ENDED, MemberState, Ownership, State
from coordlib.client.kit import events as sg
from coordlib.client.kit.events import CheckCommit, Partitions, TopicPartition
from coordlib.client.kit.fence import Fence, MemberFenced
from coordlib.client.kit.requests import PendingRequests, Step, error_of, offset_of
from coordlib.core.wire import api
from coordlib.core.wire.offsets import DELTA
from coordlib.core.wire.transactions import ABORT
from coordlib.errors import CoordError, ErrorCode

#: For the sender's own word.
CHECK_AFTER_MS: Final = 2_000
#: A member meets few; older ones are decided by now.
_KNOWN_MAX: Final = 1_000


class UndecidedCommits:
    """The entries that this member waits for. Times are of the member's clock."""

    def __init__(self) -> None:
        #: Key of an entry -> when it was first met, or looked for in vain.
        self._since: dict[str, int] = {}
        #: Entries that the shell is looking for.
        self._looking: set[str] = set()

    def on_fetch_answer(
        self, answer: api.OffsetFetchResponse, own: Container[TopicPartition], now_ms: int
    ) -> Iterator[CheckCommit]:
        """What is to be looked into, after this answer.  # INV-96

        Args:
            own: the partitions that are this member's.
        """
        rows = answer.offsets if isinstance(answer.offsets, tuple) else ()
        awaited = {
            row.pending.key: row.pending
            for row in rows
            if row.pending is not UNSET
            and row.pending.decided_by == DELTA
            and TopicPartition(row.topic, row.partition) in own
        }
        if len(self._since) > _KNOWN_MAX:
            self._since.clear()
        for key, each in awaited.items():
            since_ms = self._since.setdefault(key, now_ms)
            if key not in self._looking and now_ms - since_ms >= CHECK_AFTER_MS:
                self._looking.add(key)
                yield CheckCommit(each, offset_of(answer.cause))

    def on_checked(self, key: str, now_ms: int) -> None:
        """The shell has looked; if the entry is met again, then in two seconds."""
        self._looking.discard(key)
        self._since[key] = now_ms


class Leaving:
    """The last steps of one member."""

    def __init__(self, me: MemberState, pending: PendingRequests) -> None:
        self._me, self._pending = me, pending
        self.is_closing = False
        #: Left because `poll` was not called; joins again when it is.
        self.left_idle = False
        #: The group is left, without an end, once the user has let go; with the error to raise.
        self.leave_pending = False
        self._error: CoordError | None = None
        self._reason, self._is_written = "", False
        #: The newest LeaveGroup, and whether it is written again if the log loses it unread.
        self._leave: sg.Send | None = None
        self._repeats = False
        #: The member id under which it was put out, while its user may still be at work; and
        #: whether no later JoinGroup gets this id.
        self._removed_as, self._is_removed_for_good = "", False
        #: The newest id for which it has reported its stop since; ids are never used twice.
        self._acknowledged_as = ""
        #: JoinGroups given up before their offset, and so their member's id, was known.
        self._orphans: set[str] = set()

    # ---- closed -------------------------------------------------------------------------------

    def close(self, event: sg.Close) -> None:
        if self.is_closing:
            return
        self.is_closing, self._reason = True, event.reason or "closed"
        if self._me.held.calling is not None:
            return
        call = self._me.held.next_call(event.now_ms, must_let_go=True)
        if call is None:
            self.leave()
        else:
            self._me.say(call)

    def leave(self) -> None:
        """Leave the group: the user has let go of all partitions."""
        me = self._me
        me.say_all(self._pending.repeat_commits())
        me.become(State.LEAVING)
        me.held.let_go()
        member = self._removed_as or me.own_id()
        if member and member == self._acknowledged_as:
            self.end_if_all_answered()
        elif member:
            self.send(member)
        elif me.step is None or me.step.again_ms is not None:
            self.end()
        # Else the JoinGroup's acknowledgement tells the id to leave with.

    def answered(self, response: api.Response) -> None:
        """Take the answer to the join that was under way when the member was closed."""
        match response:
            case api.JoinGroupResponse(member=member) | api.SubscribeResponse(member=member) if (
                member and error_of(response) is ErrorCode.NONE
            ):
                self.send(member)
            case _:
                self.end()

    def send(self, member: str) -> None:
        self._me.step = None
        self._say_leave(member, self._reason, repeats=True)

    def _say_leave(self, member: str, reason: str, repeats: bool) -> None:
        self._leave = sg.Send(self._me.requests.leave(member, reason))
        self._repeats, self._is_written = repeats, False
        self._me.say(self._leave)

    def _is_leave(self, id_: str) -> bool:
        return self._leave is not None and id_ == self._leave.request.id

    def end_if_all_answered(self) -> None:
        """Commits, also those that were put off, stand before the LeaveGroup in the log; their
        answers are still worth having. One that is put off now ends: `MemberMachine.handle`.
        """
        if self._is_written and not self._pending.are_open():
            self.end()

    def end(self) -> None:
        me = self._me
        me.become(State.LEFT)
        me.step = None  # whatever is answered now, it is too late
        closed = CoordError("The member was closed before the answer came.", me.where)
        me.say_all(self._pending.abandon(closed))
        me.say(sg.Left())

    # ---- put out by others --------------------------------------------------------------------

    def mark_removed(self, member: str, is_for_good: bool = True) -> None:
        """The coordinator has answered that this member id is unknown.

        Never for a member that stopped by its own fence: it may come back under its id.

        Args:
            is_for_good: false for an id that nobody has answered. In a log that was cut, a later
                JoinGroup may get the same place, and so the same id.
        """
        if member != self._acknowledged_as:
            self._removed_as, self._is_removed_for_good = member, is_for_good

    def acknowledge_removal(self, now_ms: int) -> None:
        """Report that this member has stopped: its user has let go, and a successor may wait."""
        if self._removed_as and not self.is_closing and self._me.held.is_free(now_ms, keeps=False):
            self._acknowledged_as, self._removed_as = self._removed_as, ""
            # A static member may come back under its id: a late LeaveGroup would consent for it.
            repeats = self._is_removed_for_good and not self._me.is_static
            self._say_leave(self._acknowledged_as, "stopped, as it is out of the group", repeats)

    # ---- without an end -----------------------------------------------------------------------

    def leave_idle(self) -> None:
        """`poll` was not called for the rebalance timeout: others should not wait for this one."""
        if not self._me.is_static:
            self._depart("poll was not called within the rebalance timeout")
        self._me.forget(keeps_member=self._me.is_static)
        self.left_idle = True

    def leave_when_free(self, reason: str, error: CoordError | None = None) -> None:
        """Let go of everything, then leave the group; `error` is raised from then on."""
        self.leave_pending, self._reason, self._error = True, reason, error

    def leave_if_pending(self, now_ms: int) -> None:
        me = self._me
        if not self.leave_pending or self.is_closing or not me.held.is_free(now_ms, keeps=False):
            return
        self.leave_pending = False
        if me.state in ACTIVE:
            # A leader that cannot assign must leave, static or not: all others wait for it.
            if not me.is_static or self._error is not None:
                self._depart(self._reason)
            me.held.let_go()
            me.forget(keeps_member=me.is_static and self._error is None)
        if self._error is not None and me.state is State.IDLE:
            me.fail(self._error)

    def _depart(self, reason: str) -> None:
        me = self._me
        me.say_all(self._pending.repeat_commits())
        if member := me.own_id():
            me.say(sg.Send(me.requests.leave(member, reason)))
        elif me.step is not None and me.step.id is not None:
            self._orphans.add(me.step.id)

    # ---- the log ------------------------------------------------------------------------------

    def acknowledged(self, event: sg.Acknowledged) -> bool:
        """Take an acknowledgement; return whether it was that of a LeaveGroup."""
        me = self._me
        if event.id in self._orphans:
            self._orphans.discard(event.id)
            orphan = me.identity.member_at(event.offset)
            me.say(sg.Send(me.requests.leave(orphan, "given up before it was reported")))
            return True
        if self._is_leave(event.id):
            self._is_written = True
            if me.state is State.LEAVING:
                self.end_if_all_answered()
            return True
        return False

    def not_written(self, event: sg.NotWritten) -> None:
        """It may have been an orphan, or the LeaveGroup."""
        self._orphans.discard(event.id)
        if not self._is_leave(event.id):
            return
        if self._is_written and self._repeats and self._leave is not None:
            # INV-145: the log had it, and has lost it before it was judged.
            self._is_written = False
            self._me.say(self._leave)
        else:
            # A static member reports it again when it is closed; for a dynamic one, a waiting
            # successor has waited out its session by now.
            self._acknowledged_as = ""
            if self._me.state is State.LEAVING:
                self.end()


class MemberMachine(ABC):
    """One member; `handle` is the only way in."""

    def __init__(self, me: MemberState) -> None:
        self._me = me
        group = f"group {me.identity.group}"
        self._pending = PendingRequests(group, me.requests.next_id, me.silent_ms)
        self._leaving = Leaving(me, self._pending)
        self._undecided = UndecidedCommits()
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

    # ---- to be overridden by each protocol -----------------------------------------------------

    @abstractmethod
    def _dispatch_own(self, event: sg.ClassicInput | sg.AssignedInput) -> None:
        """Handle an input that only this protocol has. Raises TypeError for another one's."""

    @abstractmethod
    def _go_on(self, now_ms: int) -> None:
        """Emit the protocol's next steps; not called for a member that is leaving."""

    @abstractmethod
    def _must_let_go(self) -> bool:
        """Whether the user must give up all partitions that callbacks gave him."""

    @abstractmethod
    def _step_answered(self, asked: Step, response: api.Response, now_ms: int) -> None:
        """Take the answer to the step that is under way."""

    @abstractmethod
    def _noticed(self, message: api.AnyResponse, now_ms: int) -> None:
        """Take a notice that only this protocol has."""

    @abstractmethod
    def _judged(self, response: api.Response, now_ms: int) -> None:
        """Take the answer to a heartbeat or a commit, as far as it concerns the membership."""

    @abstractmethod
    def _written(self, event: sg.Acknowledged) -> None:
        """The log took the request of the step that is under way, or another question."""

    @abstractmethod
    def _finish(self, now_ms: int) -> None:
        """Do the work that follows every input."""

    @abstractmethod
    def _due_ms(self) -> int | None:
        """When the protocol needs an `Elapsed`."""

    # ---- the way in ---------------------------------------------------------------------------

    def handle(self, event: sg.Input) -> list[sg.Output]:
        """Take one input; the outputs are to be done in order.

        Raises TypeError for an input that only the other protocol has.
        """
        self._dispatch(event)
        self._me.say_all(self._pending.end_commits(self._is_over))
        leaving = self._leaving
        leaving.acknowledge_removal(event.now_ms)
        if not (leaving.is_closing or leaving.leave_pending or leaving.left_idle):
            self._go_on(event.now_ms)
        leaving.leave_if_pending(event.now_ms)
        self._finish(event.now_ms)
        return self._me.outputs()

    def _is_over(self, first_id: str) -> bool:
        """Whether the membership or the generation has ended in which this was first asked."""
        me = self._me
        return not me.keeps_alive or me.requests.is_before(first_id, me.first_id)

    def _dispatch(self, event: sg.Input) -> None:
        """Call the handler by name, so that a subclass may override it."""
        match event:
            case sg.Polled():
                self._polled(event)
            case sg.CalledBack():
                self._called_back(event)
            case sg.Unsubscribe():
                self._unsubscribe(event)
            case sg.Close():
                self._close(event)
            case sg.CommitOffsets():
                self._commit(event)
            case sg.FetchOffsets():
                self._fetch(event)
            case sg.CommitWithWrites():
                self._commit_with_writes(event)
            case sg.Decide():
                self._decide(event)
            case _:
                self._dispatch_of_log(event)

    def _dispatch_of_log(self, event: sg.LogInput | sg.ClassicInput | sg.AssignedInput) -> None:
        match event:
            case sg.Received():
                self._received(event)
            case sg.ReadToEnd():
                self._read_to_end(event)
            case sg.Elapsed():
                self._elapsed(event)
            case sg.Acknowledged():
                self._acknowledged(event)
            case sg.NotWritten():
                self._not_written(event)
            case sg.LogCut():
                self._log_cut(event)
            case sg.CommitChecked():
                self._commit_checked(event)
            case _:
                self._dispatch_own(event)

    def assignment(self, now_ms: int) -> Partitions:
        """What the user may work on at this moment."""
        return self._me.held.usable(now_ms)

    def wake_ms(self) -> int | None:
        """When `Elapsed` must be fed at the latest."""
        me = self._me
        due = [self._pending.due_ms(), me.step_due_ms(), self._due_ms()]
        if me.keeps_alive:
            due.append(me.beats.due_ms())
        if me.state in ACTIVE:
            due.append(self._polled_ms + me.timing.rebalance_timeout_ms)
        return min((each for each in due if each is not None), default=None)

    def reading_lasts_ms(self) -> int | None:
        """How old the newest complete reading may become; None: it has no membership to guard."""
        me = self._me
        needs_it = me.state in ACTIVE or me.fence.is_guarding
        return me.fence.reading_lasts_ms() if needs_it and me.state not in ENDED else None

    # ---- the user -----------------------------------------------------------------------------

    def _seen(self, now_ms: int) -> None:
        """Note that the user's thread polls."""
        self._polled_ms, self._leaving.left_idle = now_ms, False

    def _polled(self, event: sg.Polled) -> None:
        me = self._me
        self._seen(event.now_ms)
        if me.held.calling is not None or self._leaving.is_closing:
            return
        call = me.held.next_call(event.now_ms, self._must_let_go())
        if call is not None:
            me.say(call)
        elif me.failure is not None:
            me.say(sg.Raise(me.failure))
        elif me.news is not None:
            me.say(sg.Raise(me.news))
            me.news = None

    def _called_back(self, event: sg.CalledBack) -> None:
        self._polled_ms = event.now_ms
        self._me.held.returned(event.callback)
        if self._leaving.is_closing:
            self._leaving.leave()

    def _unsubscribe(self, event: sg.Unsubscribe) -> None:
        self._polled_ms = event.now_ms
        if self._me.state in ACTIVE:
            self._leaving.leave_when_free("unsubscribed")

    def _close(self, event: sg.Close) -> None:
        if event.inside is not None:
            self._me.held.returned(event.inside)
        self._leaving.close(event)

    def _commit(self, event: sg.CommitOffsets) -> None:
        me = self._me
        is_owner = me.held.delivered is not None and me.fence.may_work(event.now_ms)
        # Between a join and its assignment only cooperative members hold partitions. Their
        # commits are accepted until the old generation ends, and refused for a moment then.
        if not (is_owner and me.keeps_alive):
            error = me.failure or MemberFenced(me.where, me.fence.stopped_by(event.now_ms))
            me.say(sg.Answer(event.ticket, error=error))
            return
        number = event.first or event.ticket
        rows = self._pending.still_due(event.offsets, number)
        if rows is None:
            me.say(sg.Answer(event.ticket, error=self._pending.in_flight()))
        elif (unknown_outcome := self._pending.unknown_outcome(event.offsets, number)) is not None:
            me.say(sg.Answer(event.ticket, error=unknown_outcome))
        elif event.offsets and not rows:
            # As if it had been written before the later commit, which was accepted.
            me.say(sg.Answer(event.ticket))
        else:
            self._write_commit(replace(event, offsets=rows))

    def _write_commit(self, event: sg.CommitOffsets) -> None:
        request = self._me.requests.commit(self._me.member, self._me.generation, event.offsets)
        self._me.say(self._pending.ask(event.ticket, request, event.is_waited, event.first))

    def _commit_with_writes(self, event: sg.CommitWithWrites) -> None:
        me = self._me
        is_owner = me.held.delivered is not None and me.fence.may_work(event.now_ms)
        if is_owner and me.keeps_alive and event.member == me.member:
            request = me.requests.commit_with_writes(
                event.member, event.generation, event.offsets, event.table
            )
            me.say(self._pending.ask(event.ticket, request))
        else:
            error = me.failure or MemberFenced(me.where, me.fence.stopped_by(event.now_ms))
            me.say(sg.Answer(event.ticket, error=error))

    def _decide(self, event: sg.Decide) -> None:
        """Also of a membership that has ended: it knows what it has written."""
        me = self._me
        if me.state in ENDED:
            me.say(sg.Answer(event.ticket, error=CoordError("The member has left.", me.where)))
            return
        request = me.requests.decide(event.member, event.generation, event.key, event.result)
        me.say(self._pending.ask(event.ticket, request))

    def _commit_checked(self, event: sg.CommitChecked) -> None:
        """Ignored unless this member is live: the next member that fetches repeats the check."""
        me = self._me
        self._undecided.on_checked(event.key, event.now_ms)
        if event.result is not None and me.keeps_alive and me.member:
            request = me.requests.decide(me.member, me.generation, event.key, event.result)
            me.say(self._pending.ask(None, request))
            self._pending.hurry(event.now_ms)

    def _fetch(self, event: sg.FetchOffsets) -> None:
        me = self._me
        if me.state in ENDED:
            error = me.failure or CoordError("The member has left.", me.where)
            me.say(sg.Answer(event.ticket, error=error))
        else:
            request = me.requests.fetch(event.topics, event.is_stable)
            me.say(self._pending.ask(event.ticket, request, asked_ms=event.now_ms))

    # ---- the log ------------------------------------------------------------------------------

    def _acknowledged(self, event: sg.Acknowledged) -> None:
        me = self._me
        if me.beats.is_open(event.id):
            me.beats.acknowledged(event)
        elif not self._leaving.acknowledged(event):
            is_step = me.step is not None and event.id == me.step.id
            if me.step is not None and is_step:
                me.step.written(event.offset)
            self._written(event)
            if is_step and me.state is State.LEAVING:
                self._leaving.send(me.own_id())

    def _not_written(self, event: sg.NotWritten) -> None:
        me = self._me
        if me.beats.is_open(event.id):
            me.beats.not_written()
        elif me.step is not None and event.id == me.step.id:
            self._step_not_written(event, me.step)
        else:
            self._leaving.not_written(event)
            me.say_all(self._pending.not_written(event.id, event.why, event.now_ms, event.is_final))

    def _step_not_written(self, event: sg.NotWritten, step: Step) -> None:
        if self._me.state is State.LEAVING:
            self._leaving.end()
        elif event.is_final:
            why = f"A request cannot be written: {event.why}"
            self._me.fail(CoordError(why, self._me.where))
        else:
            step.repeat_later(event.now_ms)

    def _log_cut(self, event: sg.LogCut) -> None:
        """Nothing tells whether its signs of life were judged: silence below a Progress means that
        they were accepted only while the log is the same.  # INV-105"""
        me = self._me
        me.say_all(self._pending.log_cut(event.now_ms))
        if me.state in ACTIVE:
            self._leaving.mark_removed(me.own_id(), is_for_good=bool(me.member))
            me.forget(keeps_member=me.is_static)

    def _read_to_end(self, event: sg.ReadToEnd) -> None:
        self._me.fence.read_to_end(event.now_ms, event.asked_ms)

    def _elapsed(self, event: sg.Elapsed) -> None:
        me, now_ms = self._me, event.now_ms
        silent_ms = now_ms - self._polled_ms
        if me.state in ACTIVE and silent_ms >= me.timing.rebalance_timeout_ms:
            self._leaving.leave_idle()
        again = me.step.repeat(now_ms, me.silent_ms) if me.step is not None else None
        if again is not None:
            me.say(again)
        me.say_all(self._pending.repeat(now_ms))
        if me.keeps_alive and me.beats.is_due(now_ms):
            request = me.requests.heartbeat(me.member, me.generation)
            me.beats.sent(request.id, now_ms)
            me.say(sg.Send(request))

    # ---- answers and notices ------------------------------------------------------------------

    def _received(self, event: sg.Received) -> None:
        message, now_ms, me = event.message, event.now_ms, self._me
        match message:
            case api.Progress():
                if message.shard == me.identity.shard:
                    me.fence.progressed(now_ms, message.offset)
            case api.MemberRemoved():
                is_own = message.group == me.identity.group and message.member == me.own_id()
                if is_own and me.state in ACTIVE:
                    self._removed(message.member)
            case api.Response():
                if message.id.rpartition("-")[0] == me.identity.token:
                    self._answered(message, now_ms)
            case _:
                self._noticed(message, now_ms)

    def _removed(self, member: str) -> None:
        """A static member asks again under its id: joining without it, it would take the place of
        the very process that replaced it. If none has, the answer is UNKNOWN_MEMBER_ID."""
        me = self._me
        self._leaving.mark_removed(member)
        me.member = member
        me.forget(keeps_member=me.is_static)

    def _answered(self, response: api.Response, now_ms: int) -> None:
        me = self._me
        if me.step is not None and response.id == me.step.id:
            if me.state is State.LEAVING:
                self._leaving.answered(response)
            else:
                self._step_answered(me.step, response, now_ms)
            return
        is_older = me.requests.is_before(self._pending.first_id(response.id), me.first_id)
        if is_older:
            response = self._overtaken(response)
        if isinstance(response, api.OffsetFetchResponse):
            me.say_all(self._undecided.on_fetch_answer(response, self.assignment(now_ms), now_ms))
        if self._pending.is_stray(response) and me.keeps_alive:
            # Else its next commit would wait for a word that nobody has to say.
            stray = str(getattr(response, "pending", ""))
            request = me.requests.decide(me.member, me.generation, stray, ABORT)
            me.say(self._pending.ask(None, request))
        me.say_all(self._pending.answered(response, now_ms))
        if me.state is State.LEAVING:
            self._leaving.end_if_all_answered()
        # Refused heartbeats and commits say what became of the membership that sent them.
        if me.keeps_alive and not is_older:
            self._judged(response, now_ms)

    def _overtaken(self, response: api.Response) -> api.Response:
        """The answer to a request of an earlier generation or membership, for who asked it."""
        return response

    def _out(self) -> None:
        """The coordinator has no member of this id: join as a new member."""
        self._leaving.mark_removed(self._me.member)
        self._me.forget()
