"""The replicas of one broker: what the log says of them, what its user was told, what is next.

A row is what the log says. `notified` is what callbacks have reported. Callbacks follow from the
two, one at a time:

    no replica any more, or to be deleted     -> STOP
    another leads, or none, in another epoch  -> FOLLOWER
    this broker leads, in another epoch       -> LEADER, once it may lead

Rule 15 (time-and-fencing.md): a leadership that was let go of is over, whatever is read later. A
leadership's fence is the offset of the record that gave it. So what is over is told by places in
the log: all that was given up to some record, or for one partition, up to the cause of a demand.
The cause counts, not the epoch that was read: the notice of a demand stands before the row that
the same record has changed, and between the two a Release may go out.

A demand is answered by on_resign for its leaderships, then by one Release. Those of which the user
was not told, or which it has lost since, need no callback. Until the Release is in the log the
demand has its date (rule 10); from then on the leaderships that it named are over.
"""

from collections import OrderedDict
from collections.abc import Iterable
from typing import NamedTuple

from coordlib.client.controller.requests import Call, Callback, Following, Leadership
from coordlib.client.controller.state import BrokerStanding
from coordlib.client.kit import events as sg
from coordlib.client.kit.events import Partitions, TopicPartition
from coordlib.client.kit.requests import PendingRequests, error_of
from coordlib.core.wire import api
from coordlib.errors import CoordError, ErrorCode

NOBODY = -1


class _Notified(NamedTuple):
    """What the user was last notified of for one replica."""

    topic_id: int
    epoch: int
    leader: int
    fence: int


class Replicas:
    """Rows and callbacks of one broker; pure, and without a clock."""

    def __init__(self, broker: int) -> None:
        self._broker = broker
        #: Of all partitions that have a replica here, or one that is to be deleted here.  # INV-79
        self.rows: dict[TopicPartition, api.ReplicaRow] = {}
        self._notified: dict[TopicPartition, _Notified] = {}
        #: Leaderships with a fence up to this one are over.
        self._over_to = -1
        #: Those of one partition that are over beyond that.
        self._over_at: dict[TopicPartition, int] = {}
        #: Places to look at: those of which the user is to be told, perhaps; and those that this
        #: broker leads, of which it is told once it may lead.
        self._changed: OrderedDict[TopicPartition, None] = OrderedDict()
        self._elected: OrderedDict[TopicPartition, None] = OrderedDict()
        #: What was deleted, or could not be, while the log still asks for it.
        self._reported: set[TopicPartition] = set()
        #: Those that are deleted with their topic: its id. A topic stays until all brokers have
        #: deleted what they have; a replica that was deleted is not followed meanwhile.
        self._doomed: dict[TopicPartition, int] = {}
        #: The callback that runs: its place, what had been told before, the row that it is about.
        self._calling: tuple[TopicPartition, _Notified | None, api.ReplicaRow | None] | None = None

    # ---- what the log says ----------------------------------------------------------------------

    def replace(self, rows: Iterable[api.ReplicaRow]) -> None:
        """The picture of a registration: all that has a replica here."""
        before, self.rows = self.rows, {_place(row): row for row in rows}
        self._reported.clear()
        for place in before | self.rows:
            self._note_doom(place)
            self._sort(place)

    def learn(self, row: api.ReplicaRow) -> None:
        """A row has changed; most of a cluster's rows are no concern of one broker."""
        place = _place(row)
        is_here = self._broker in row.replicas or self._broker in row.deleting
        if is_here:
            self.rows[place] = row
        elif self.rows.pop(place, None) is None:
            return
        if self._broker not in row.deleting:
            self._reported.discard(place)
        self._note_doom(place)
        if not row.replicas:
            self._over_at.pop(place, None)  # a topic made anew has a higher fence
        self._sort(place)

    def _note_doom(self, place: TopicPartition) -> None:
        """Whom a move takes away is no replica any more; who is, and deletes, loses the topic."""
        row = self.rows.get(place)
        if row is not None and self._broker in row.deleting and self._broker in row.replicas:
            self._doomed[place] = row.topic_id
        elif row is None or self._doomed.get(place) != row.topic_id:
            self._doomed.pop(place, None)

    def topics(self) -> set[str]:
        """The topics of which it has replicas."""
        return {place.topic for place in self.rows}

    def lose(self, offset: int) -> None:
        """All leaderships that were given up to this record are over (rule 15)."""
        self._over_to = max(self._over_to, offset)

    def give_up(self) -> None:
        """All leaderships that were read of are over (rule 15)."""
        led = [row.fence for row in self.rows.values() if row.leader == self._broker]
        self.lose(max(led, default=-1))

    def let_go(self, places: Iterable[TopicPartition], cause: int) -> None:
        """Of these, all leaderships that were given up to the demand's record are over."""
        for place in places:
            self._over_at[place] = max(self._over_at.get(place, -1), cause)
            self._elected.pop(place, None)
            notified = self._notified.get(place)
            if notified is not None and notified.leader == self._broker and notified.fence <= cause:
                self._notified[place] = notified._replace(leader=NOBODY)
            self._sort(place)

    # ---- what the user may do -------------------------------------------------------------------

    def led(self, place: TopicPartition) -> api.ReplicaRow | None:
        """The row of a partition that the user was told to lead, if it is still so."""
        row, notified = self.rows.get(place), self._notified.get(place)
        if row is None or notified is None or not self._is_given(place, row):
            return None
        is_reported = notified.leader == self._broker and notified.fence == row.fence
        is_same = (notified.topic_id, notified.epoch) == (row.topic_id, row.leader_epoch)
        return row if is_reported and is_same else None

    def leads_until(self, places: Iterable[TopicPartition], cause: int) -> list[TopicPartition]:
        """Those of these that the user leads, by what it was told, since before that record."""
        found = []
        for place in places:
            notified = self._notified.get(place)
            if notified is not None and notified.leader == self._broker and notified.fence <= cause:
                found.append(place)
        return found

    def _is_given(self, place: TopicPartition, row: api.ReplicaRow) -> bool:
        """Whether this broker leads by what the log says, and has not let go of that."""
        is_over = row.fence <= max(self._over_to, self._over_at.get(place, -1))
        return row.leader == self._broker and not is_over

    # ---- what the user is told ------------------------------------------------------------------

    def fenced(self) -> None:
        """on_fenced ends all leaderships; what goes on after it is told anew."""
        for place, notified in self._notified.items():
            if notified.leader == self._broker:
                self._notified[place] = notified._replace(leader=NOBODY)
                self._sort(place)

    def next_call(self, may_lead: bool) -> Call | None:
        """The callback that is due."""
        while self._changed:
            place, _ = self._changed.popitem(last=False)
            if (call := self._call_for(place)) is not None:
                return call
        while may_lead and self._elected:
            place, _ = self._elected.popitem(last=False)
            if (call := self._call_to_lead(place)) is not None:
                return call
        return None

    def called_back(self, call: Call, has_raised: bool) -> api.DeletedReplica | None:
        """The callback has ended; what is to be reported of a deletion. One that raised comes
        again, but for a deletion: that has failed."""
        if self._calling is None:
            return None
        (place, before, row), self._calling = self._calling, None
        if call.callback is Callback.STOP and call.arguments[-1] and row is not None:
            self._reported.add(place)
            error = "KAFKA_STORAGE_ERROR" if has_raised else "NONE"
            return api.DeletedReplica(
                topic=row.topic,
                topic_id=row.topic_id,
                partition=row.partition,
                error=error,  # type: ignore[arg-type]  # one of two
            )
        if has_raised:
            self._tell(place, before)
        self._sort(place)
        return None

    def _sort(self, place: TopicPartition) -> None:
        """Check a partition at the next poll."""
        row = self.rows.get(place)
        self._changed.pop(place, None)
        self._elected.pop(place, None)
        if row is not None and row.leader == self._broker:
            if self._is_given(place, row) and self.led(place) is None:
                self._elected[place] = None
        else:
            self._changed[place] = None

    def _call_for(self, place: TopicPartition) -> Call | None:
        row, notified = self.rows.get(place), self._notified.get(place)
        if row is not None and self._broker in row.deleting:
            return None if place in self._reported else self._stop(place, row, deletes=True)
        if row is None or self._broker not in row.replicas:
            return self._stop(place, None, deletes=False) if notified is not None else None
        if notified is not None and notified.topic_id != row.topic_id:
            self._changed[place] = None  # the new one is told of next
            return self._stop(place, None, deletes=True)
        if notified is None and place in self._doomed:
            return None  # deleted here, or to be deleted once more
        now = (row.leader_epoch, row.leader)
        is_news = notified is None or (notified.epoch, notified.leader) != now
        if not is_news or row.leader_epoch < 0:
            return None
        follows = Following(*place, row.leader_epoch, row.leader, row.topic_id)
        return self._call(place, row, Call(Callback.FOLLOWER, (follows,)))

    def _call_to_lead(self, place: TopicPartition) -> Call | None:
        row, notified = self.rows.get(place), self._notified.get(place)
        if row is None or not self._is_given(place, row) or self.led(place) is not None:
            return None
        if notified is not None and notified.topic_id != row.topic_id:
            self._elected[place] = None
            return self._stop(place, None, deletes=True)
        given = Leadership(
            topic=row.topic,
            partition=row.partition,
            epoch=row.leader_epoch,
            fence=row.fence,
            isr=row.isr,
            replicas=row.replicas,
            topic_id=row.topic_id,
        )
        return self._call(place, row, Call(Callback.LEADER, (given,)))

    def _stop(self, place: TopicPartition, row: api.ReplicaRow | None, deletes: bool) -> Call:
        self._calling = (place, self._notified.pop(place, None), row)
        return Call(Callback.STOP, (*place, deletes))

    def _call(self, place: TopicPartition, row: api.ReplicaRow, call: Call) -> Call:
        self._calling = (place, self._notified.get(place), row)
        self._tell(place, _Notified(row.topic_id, row.leader_epoch, row.leader, row.fence))
        return call

    def _tell(self, place: TopicPartition, notified: _Notified | None) -> None:
        if notified is None:
            self._notified.pop(place, None)
        else:
            self._notified[place] = notified


def _place(row: api.ReplicaRow) -> TopicPartition:
    return TopicPartition(row.topic, row.partition)


class Resigning:
    """The demands of one broker, from the notice to the controller's answer."""

    def __init__(self, me: BrokerStanding, pending: PendingRequests, replicas: Replicas) -> None:
        self._me, self._pending, self._replicas = me, pending, replicas
        #: The leaderships of each demand without a Release yet, by the cause of the demand.
        self._demands: dict[int, Partitions] = {}
        #: Releases without an answer yet: cause to the deadline (ms) that applied when the log took
        #: the Release; None until it has.
        self._unanswered: dict[int, int | None] = {}
        #: Those that the log has taken.
        self._taken: set[int] = set()
        #: The demand whose callback runs.
        self._calling: int | None = None

    @property
    def is_idle(self) -> bool:
        """Whether no demand is open."""
        return not self._demands and not self._unanswered

    def demanded(self, now_ms: int, cause: int, places: Partitions) -> None:
        """A notice is read; it may be read before the answer that makes the broker Active."""
        if cause not in self._demands and cause not in self._unanswered:
            self._demands[cause] = places
            led = self._replicas.leads_until(places, cause)
            self._replicas.let_go([each for each in places if each not in led], cause)
            self._me.fence.demanded(now_ms, cause)

    def opened(self, now_ms: int) -> None:
        """The fence was opened anew: what was demanded before has a date, too."""
        for cause in [*self._demands, *(self._unanswered.keys() - self._taken)]:
            self._me.fence.demanded(now_ms, cause)

    def next_call(self) -> Call | None:
        """on_resign of the oldest demand with leaderships of which the user was told."""
        for cause, places in self._demands.items():
            if led := self._replicas.leads_until(places, cause):
                self._calling = cause
                return Call(Callback.RESIGN, (tuple(led),))
        return None

    def called_back(self, has_raised: bool) -> None:
        """on_resign has returned: the leaderships are over. If it raised, it is called again."""
        cause, self._calling = self._calling, None
        if cause in self._demands and not has_raised:
            self._replicas.let_go(self._demands[cause], cause)

    def say(self) -> None:
        """Send a Release for each demand that the user has met."""
        me = self._me
        met = [
            cause
            for cause, places in self._demands.items()
            if cause != self._calling and not self._replicas.leads_until(places, cause)
        ]
        for cause in met:
            self._replicas.let_go(self._demands.pop(cause), cause)
            self._unanswered[cause] = None
            me.pass_on([self._pending.ask(None, me.wording.let_go(me.member, cause))])

    def written(self, event: sg.Acknowledged) -> None:
        """Rule 10: that ends the demand for the fence, unless a refusal was read before this."""
        if self._pending.is_put_off(event.id):
            return
        asked = self._pending.asked(event.id)
        if isinstance(asked, api.Release) and asked.cause in self._unanswered:
            self._taken.add(asked.cause)
            due_ms = self._me.fence.reacted(event.now_ms, asked.cause)
            if due_ms is not None:
                self._unanswered[asked.cause] = due_ms

    def answered(self, response: api.Response, now_ms: int) -> None:
        """Take the answer to a Release; called before the request is removed from `pending`."""
        asked = self._pending.asked(response.id)
        if not isinstance(asked, api.Release) or asked.cause not in self._unanswered:
            return
        cause, code = asked.cause, error_of(response)
        if not code.retriable:
            # NONE; or the controller expects nothing of it any more, which is read elsewhere.
            self._me.fence.reacted(now_ms, cause)
            del self._unanswered[cause]
            self._taken.discard(cause)
        elif (due_ms := self._unanswered[cause]) is not None:
            self._me.fence.not_accepted(now_ms, cause, due_ms)
            self._unanswered[cause] = None
            self._taken.discard(cause)

    def is_refusal(self, response: api.Response) -> bool:
        """Whether the answer means that this broker is not ready any more."""
        is_release = isinstance(self._pending.asked(response.id), api.Release)
        return is_release and error_of(response) is ErrorCode.UNKNOWN_MEMBER_ID

    def end(self) -> None:
        """The broker is out: its demands are void."""
        self._demands.clear()
        self._unanswered.clear()
        self._taken.clear()
        over = CoordError("The broker went before its Release was taken.", self._me.where)
        self._me.pass_on(self._pending.ask_no_more(api.Release, over))


#: Far below what a request may have, with the longest names.
ROWS_MAX = 1_000


class Reports:
    """ReplicasDeleted of one broker: repeated until they are answered, or the broker is out."""

    def __init__(self, me: BrokerStanding, pending: PendingRequests) -> None:
        self._me, self._pending = me, pending
        self._rows: dict[tuple[str, int], api.DeletedReplica] = {}

    def add(self, row: api.DeletedReplica | None) -> None:
        """Note the outcome of a deletion; None: the callback was about something else."""
        if row is not None:
            self._rows[row.topic, row.partition] = row
        if len(self._rows) >= ROWS_MAX:
            self.say()

    def say(self) -> None:
        """Send the outcomes that were noted."""
        me = self._me
        if self._rows:
            rows = tuple(self._rows.values())
            self._rows.clear()
            request = me.wording.deleted(me.registration.broker, me.incarnation, rows)
            me.pass_on([self._pending.ask(None, request)])

    def clear(self) -> None:
        """Drop all outcomes: the broker is out, and the log asks again when it is back."""
        self._rows.clear()
        over = CoordError("The broker went before its report was taken.", self._me.where)
        self._me.pass_on(self._pending.ask_no_more(api.ReplicasDeleted, over))
