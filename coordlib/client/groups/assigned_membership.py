"""The life of a member of a server-assigned group, as a state machine.

    IDLE -> JOINING -> STABLE -> IDLE -> ...      LEAVING -> LEFT

Only the first Subscribe is a state of its own. A change of the subscription is a step of a member
that works on meanwhile; it lets go of partitions only when they are demanded. Answers and notices
are pictures of all that the member holds. Each replaces the one before, in the order of reading,
which is the order in which they were judged. A picture with another member id is about an older
membership.

Source: the published design of the consumer rewrite (seed 000); TIME-AND-FENCING.md, rules 8 to 13.
"""

from collections.abc import Iterable

from coordlib.client.groups.holding import AssignedStanding
from coordlib.client.groups.life import Life
from coordlib.client.groups.releases import Releases
from coordlib.client.kit import signals as sg
from coordlib.client.kit.asks import error_of, known, refusal_of, throttle_ms
from coordlib.client.kit.signals import Partitions, TopicPartition
from coordlib.client.kit.steps import State, Step
from coordlib.client.kit.wording import Identity, Timing
from coordlib.core.wire import responses as rs
from coordlib.errors import ErrorCode

SUBSCRIPTION_CHANGED = "subscription changed"
#: The coordinator knows no such member, or not in such a generation: everything is lost.
OUT = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION)


class AssignedMembership(Life):
    """One member; `handle` is the only way in."""

    _me: AssignedStanding

    def __init__(self, identity: Identity, timing: Timing) -> None:
        super().__init__(AssignedStanding(identity, timing))
        self._releases = Releases(self._me, self._asks)
        #: The user's subscription; None: to be in no group.
        self._wanted: sg.Subscription | None = None
        #: The subscription of the newest Subscribe.
        self._said: sg.Subscription | None = None
        #: The group's strategy, as the newest answer named it; empty before the first.
        self.strategy = ""

    def fence_of(self, partition: TopicPartition) -> int | None:
        """The fencing token of a partition that the user owns; None for every other one."""
        return self._me.held.fence_of(partition)

    # ---- this protocol's way --------------------------------------------------------------------

    def _dispatch_own(self, event: sg.ClassicInput | sg.AssignedInput) -> None:
        match event:
            case sg.WantSubscription():
                self._subscribe(event)
            case _:
                raise TypeError(f"{event} is no input of a member of a server-assigned group")

    def _go_on(self, now_ms: int) -> None:
        me, wanted = self._me, self._wanted
        if wanted is not None and me.state is State.IDLE and me.held.is_free(now_ms, keeps=False):
            me.held.let_go()
            me.become(State.JOINING)
            me.take(now_ms, self._subscribe_to(wanted))
        if me.state is State.STABLE:
            # One after the other: a Subscribe names the generation that the one before it made.
            if me.step is None and wanted not in (None, self._said):
                me.take(now_ms, self._subscribe_to(wanted))
            self._releases.say()

    def _subscribe_to(self, wanted: sg.Subscription) -> sg.Send:
        me, self._said = self._me, wanted
        reason = SUBSCRIPTION_CHANGED if me.member else None
        return sg.Send(me.wording.subscribe(me.member, me.generation, wanted, reason))

    def _finish(self, now_ms: int) -> None:
        if self._me.state in (State.IDLE, State.JOINING, State.FAILED):
            self._releases.end()
        if self._me.held.calling is None:
            self._releases.write_kept(now_ms)

    def _due_ms(self) -> int | None:
        return self._releases.due_ms()

    def _must_let_go(self) -> bool:
        return self._leaving.is_owed

    def _written(self, event: sg.Acknowledged) -> None:
        self._releases.written(event)

    # ---- the user -------------------------------------------------------------------------------

    def _subscribe(self, event: sg.WantSubscription) -> None:
        self._seen(event.now_ms)
        self._wanted = event.subscription

    def _unsubscribe(self, event: sg.Unsubscribe) -> None:
        self._wanted = None
        super()._unsubscribe(event)

    def _called_back(self, event: sg.CalledBack) -> None:
        if not self._may_release():
            # No Release will follow, but a LeaveGroup: the commit stands before that.
            self._releases.write_kept(event.now_ms)
        super()._called_back(event)

    def _close(self, event: sg.Close) -> None:
        if event.inside is not None:
            self._releases.write_kept(event.now_ms)  # it stands before the LeaveGroup
        super()._close(event)

    def _commit(self, event: sg.CommitOffsets) -> None:
        if event.first:
            self._releases.write_kept(event.now_ms)  # it is later than what is repeated
        super()._commit(event)

    def _write_commit(self, event: sg.CommitOffsets) -> None:
        self._releases.commit(event, rides=self._may_release())

    def _may_release(self) -> bool:
        return not (self._leaving.is_closing or self._leaving.is_owed)

    def _elapsed(self, event: sg.Elapsed) -> None:
        self._releases.elapsed(event.now_ms)
        super()._elapsed(event)

    # ---- answers and notices ------------------------------------------------------------------

    def _step_answered(self, asked: Step, response: rs.Response, now_ms: int) -> None:
        me, code = self._me, error_of(response)
        if code is ErrorCode.NONE and isinstance(response, rs.SubscribeResponse):
            self._subscribed(asked, response, now_ms)
        elif code in OUT and me.member:
            self._out()
        elif code.retriable and self._said is not None:
            send = self._subscribe_to(self._wanted or self._said)
            asked.replace_later(now_ms, send, throttle_ms(response))
        else:
            me.fail(refusal_of(response, me.where))

    def _subscribed(self, asked: Step, answer: rs.SubscribeResponse, now_ms: int) -> None:
        me = self._me
        me.step = None
        if me.state is State.JOINING:
            # Rule 12: whatever id the acknowledgement suggested, the answer's id holds.
            me.member, me.first_id = answer.member, me.wording.next_id()
            me.become(State.STABLE)
            me.beats.begin(now_ms, asked.first_ms)
            me.held.enter(now_ms, asked.first_ms)
        self.strategy = known(answer.strategy, "")
        self._told(answer, now_ms)

    def _noticed(self, message: rs.AnyResponse, now_ms: int) -> None:
        me = self._me
        if not isinstance(message, rs.AssignmentChanged) or me.state is not State.STABLE:
            return
        if (message.group, message.member) == (me.identity.group, me.member):
            self._told(message, now_ms)

    def _told(self, picture: rs.SubscribeResponse | rs.AssignmentChanged, now_ms: int) -> None:
        me = self._me
        me.generation = known(picture.generation, me.generation)
        demands = known(picture.release, ())
        self._releases.demanded(now_ms, {row.cause: _all(row.partitions) for row in demands})
        granted = known(picture.partitions, ())
        fences = {each: row.fence for row in granted for each in _all((row,))}
        newest = known(picture.fence, -1)
        me.held.replace(fences, None if newest < 0 else newest)

    def _answered(self, response: rs.Response, now_ms: int) -> None:
        self._releases.answered(response, now_ms)
        super()._answered(response, now_ms)

    def _judged(self, response: rs.Response, now_ms: int) -> None:  # noqa: ARG002  # no dates here
        if error_of(response) in OUT:
            self._out()


def _all(rows: Iterable[rs.GrantedPartitions | rs.OwnedPartitions]) -> Partitions:
    return tuple(TopicPartition(row.topic, number) for row in rows for number in row.partitions)
