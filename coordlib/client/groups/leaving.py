"""How a member leaves: closed, not polled, unsubscribed, or unable to lead. Static members stay.

A static member (KIP-345) that is closed reports that it has stopped and keeps its place for the
program's next start, which then need not wait for its fence (`remain`); one that is not polled
reports nothing. All other members leave, so that others need not wait.

A member that others removed (replaced, removed, expired) reports it too, once and as soon as its
user has let go: a successor may wait for just that (the core's guards.py).
"""

from coordlib.client.groups.standing import Standing
from coordlib.client.kit import signals as sg
from coordlib.client.kit.asks import Asks, error_of
from coordlib.client.kit.steps import ACTIVE, State
from coordlib.core.wire import responses as rs
from coordlib.errors import CoordError, ErrorCode


class Leaving:
    """The last steps of one member."""

    def __init__(self, me: Standing, asks: Asks) -> None:
        self._me, self._asks = me, asks
        self.is_closing = False
        #: Left because `poll` was not called; joins again when it is.
        self.is_away = False
        #: The group is left, without an end, once the user has let go; with the error to raise.
        self.is_owed = False
        self._error: CoordError | None = None
        self._reason, self._leave_id, self._is_written = "", "", False
        #: The member id under which it was put out, while its user may still be at work.
        self._out = ""
        #: The newest id for which it has reported its stop since; ids are never used twice.
        self._said_out = ""
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
        me.say_all(self._asks.repeat_commits())
        me.become(State.LEAVING)
        me.held.let_go()
        member = self._out or me.own_id()
        if member and member == self._said_out:
            self.end_if_all_answered()
        elif member:
            self.send(member)
        elif me.step is None or me.step.again_ms is not None:
            self.end()
        # Else the JoinGroup's acknowledgement tells the id to leave with.

    def answered(self, response: rs.Response) -> None:
        """Take the answer to the join that was under way when the member was closed."""
        match response:
            case rs.JoinGroupResponse(member=member) | rs.SubscribeResponse(member=member) if (
                member and error_of(response) is ErrorCode.NONE
            ):
                self.send(member)
            case _:
                self.end()

    def send(self, member: str) -> None:
        self._me.step = None
        self._say_leave(member, self._reason)

    def _say_leave(self, member: str, reason: str) -> None:
        request = self._me.wording.leave(member, reason)
        self._leave_id, self._is_written = request.id, False
        self._me.say(sg.Send(request))

    def end_if_all_answered(self) -> None:
        """Commits, also those that were put off, stand before the LeaveGroup in the log; their
        answers are still worth having. One that is put off now ends: `Life.handle`.
        """
        if self._is_written and not self._asks.are_open():
            self.end()

    def end(self) -> None:
        me = self._me
        me.become(State.LEFT)
        me.step = None  # whatever is answered now, it is too late
        closed = CoordError("The member was closed before the answer came.", me.where)
        me.say_all(self._asks.abandon(closed))
        me.say(sg.Left())

    # ---- put out by others --------------------------------------------------------------------

    def put_out(self, member: str) -> None:
        """The coordinator has answered that this member id is unknown.

        Never for a member that stopped by its own fence: it may come back under its id.
        """
        if member != self._said_out:
            self._out = member

    def say_out(self, now_ms: int) -> None:
        """Report that this member has stopped: its user has let go, and a successor may wait."""
        if self._out and not self.is_closing and self._me.held.is_free(now_ms, keeps=False):
            self._said_out, self._out = self._out, ""
            self._say_leave(self._said_out, "stopped, as it is out of the group")

    # ---- without an end -----------------------------------------------------------------------

    def leave_for_silence(self) -> None:
        """`poll` was not called for the rebalance timeout: others should not wait for this one."""
        if not self._me.is_static:
            self._depart("poll was not called within the rebalance timeout")
        self._me.forget(keeps_member=self._me.is_static)
        self.is_away = True

    def owe(self, reason: str, error: CoordError | None = None) -> None:
        """Let go of everything, then leave the group; `error` is raised from then on."""
        self.is_owed, self._reason, self._error = True, reason, error

    def leave_if_owed(self, now_ms: int) -> None:
        me = self._me
        if not self.is_owed or self.is_closing or not me.held.is_free(now_ms, keeps=False):
            return
        self.is_owed = False
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
        me.say_all(self._asks.repeat_commits())
        if member := me.own_id():
            me.say(sg.Send(me.wording.leave(member, reason)))
        elif me.step is not None and me.step.id is not None:
            self._orphans.add(me.step.id)

    # ---- the log ------------------------------------------------------------------------------

    def acknowledged(self, event: sg.Acknowledged) -> bool:
        """Take an acknowledgement; return whether it was that of a LeaveGroup."""
        me = self._me
        if event.id in self._orphans:
            self._orphans.discard(event.id)
            orphan = me.identity.member_at(event.offset)
            me.say(sg.Send(me.wording.leave(orphan, "given up before it was told")))
            return True
        if event.id == self._leave_id:
            self._is_written = True
            if me.state is State.LEAVING:
                self.end_if_all_answered()
            return True
        return False

    def not_written(self, event: sg.NotWritten) -> None:
        """It may have been an orphan, or the LeaveGroup."""
        self._orphans.discard(event.id)
        if event.id == self._leave_id:
            # A static member reports it again when it is closed; for a dynamic one, a waiting
            # successor has waited out its session by now.
            self._said_out = ""
            if self._me.state is State.LEAVING:
                self.end()
