"""How a broker ends: its user is told that the door is closed, then LeaveGroup is written.

A broker that was replaced says so too, once and as soon as its user has stopped: what it led waits
for just that (the core's guards.py).
"""

from coordlib import limits
from coordlib.client.controller.standing import BrokerStanding, State
from coordlib.client.kit import signals as sg


class Leaving:
    """The last steps of one broker."""

    def __init__(self, me: BrokerStanding) -> None:
        self._me = me
        self.is_closing = False
        self._reason, self._leave_id = "", ""
        #: The member id for which it has said that it stopped; ids are never used twice.
        self._said = ""

    def close(self, reason: str) -> None:
        if not self.is_closing:
            self.is_closing, self._reason = True, reason

    def go_on(self, is_free: bool) -> None:
        """Leave, once the user has stopped: `is_free`."""
        me = self._me
        if not is_free or me.state in (State.LEAVING, State.LEFT):
            return
        me.become(State.LEAVING)
        member = me.own_id()
        me.step = None
        if member and member != self._said:
            self._say_leave(member, self._reason)
        else:
            # A registration that is still on its way makes a broker that is Inactive, and silent.
            self._end()

    def say_out(self, is_free: bool) -> None:
        """Tell that a broker which has failed for good leads nothing any more."""
        member = self._me.member
        if is_free and member and member != self._said:
            why = self._me.failure.what if self._me.failure is not None else ""
            self._say_leave(member, f"stopped: {why}"[: limits.REASON_LENGTH_MAX])

    def _say_leave(self, member: str, reason: str) -> None:
        me, self._said = self._me, member
        request = me.wording.leave_cluster(member, reason)
        self._leave_id = request.id
        me.say(sg.Send(request))

    def written(self, id_: str) -> bool:
        """Take the outcome of the LeaveGroup; return whether it was that."""
        if id_ != self._leave_id:
            return False
        if self._me.state is State.LEAVING:
            self._end()
        return True

    def _end(self) -> None:
        self._me.become(State.LEFT)
        self._me.say(sg.Left())
