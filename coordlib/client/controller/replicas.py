"""The replicas of one broker: what the log says of them, what its user was told, what is next.

A row is what the log says. `told` is what callbacks have said. Callbacks follow from the two, one
at a time:

    no replica any more, or to be deleted     -> STOP
    another leads, or none, in another epoch  -> FOLLOWER
    this broker leads, in another epoch       -> LEADER, once it may lead

Rule 15 (TIME-AND-FENCING.md): a leadership that was let go of is over, whatever is read later. A
leadership's fence is the offset of the record that gave it. So what is over is told by places in
the log: all that was given up to some record, or for one partition, up to the cause of a demand.
The cause counts, not the epoch that was read: the notice of a demand stands before the row that
the same record has changed, and between the two a Release may go out.
"""

from collections import OrderedDict
from collections.abc import Iterable
from typing import NamedTuple

from coordlib.client.controller.signals import Call, Callback, Following, Leadership
from coordlib.client.kit.signals import TopicPartition
from coordlib.core.wire import requests as rq
from coordlib.core.wire import responses as rs

NOBODY = -1


class _Told(NamedTuple):
    """What callbacks have said of one replica."""

    topic_id: int
    epoch: int
    leader: int
    fence: int


class Replicas:
    """Rows and callbacks of one broker; pure, and without a clock."""

    def __init__(self, broker: int) -> None:
        self._broker = broker
        #: Of all partitions that have a replica here, or one that is to be deleted here.  # INV-79
        self.rows: dict[TopicPartition, rs.ReplicaRow] = {}
        self._told: dict[TopicPartition, _Told] = {}
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
        self._calling: tuple[TopicPartition, _Told | None, rs.ReplicaRow | None] | None = None

    # ---- what the log says ----------------------------------------------------------------------

    def replace(self, rows: Iterable[rs.ReplicaRow]) -> None:
        """The picture of a registration: all that has a replica here."""
        before, self.rows = self.rows, {_place(row): row for row in rows}
        self._reported.clear()
        for place in before | self.rows:
            self._note_doom(place)
            self._sort(place)

    def learn(self, row: rs.ReplicaRow) -> None:
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
            told = self._told.get(place)
            if told is not None and told.leader == self._broker and told.fence <= cause:
                self._told[place] = told._replace(leader=NOBODY)
            self._sort(place)

    # ---- what the user may do -------------------------------------------------------------------

    def led(self, place: TopicPartition) -> rs.ReplicaRow | None:
        """The row of a partition that the user was told to lead, if it is still so."""
        row, told = self.rows.get(place), self._told.get(place)
        if row is None or told is None or not self._is_given(place, row):
            return None
        is_told = told.leader == self._broker and told.fence == row.fence
        is_same = (told.topic_id, told.epoch) == (row.topic_id, row.leader_epoch)
        return row if is_told and is_same else None

    def leads_until(self, places: Iterable[TopicPartition], cause: int) -> list[TopicPartition]:
        """Those of these that the user leads, by what it was told, since before that record."""
        found = []
        for place in places:
            told = self._told.get(place)
            if told is not None and told.leader == self._broker and told.fence <= cause:
                found.append(place)
        return found

    def _is_given(self, place: TopicPartition, row: rs.ReplicaRow) -> bool:
        """Whether this broker leads by what the log says, and has not let go of that."""
        is_over = row.fence <= max(self._over_to, self._over_at.get(place, -1))
        return row.leader == self._broker and not is_over

    # ---- what the user is told ------------------------------------------------------------------

    def fenced(self) -> None:
        """on_fenced ends all leaderships; what goes on after it is told anew."""
        for place, told in self._told.items():
            if told.leader == self._broker:
                self._told[place] = told._replace(leader=NOBODY)
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

    def called_back(self, call: Call, has_raised: bool) -> rq.DeletedReplica | None:
        """The callback has ended; what is to be reported of a deletion. One that raised comes
        again, but for a deletion: that has failed."""
        if self._calling is None:
            return None
        (place, before, row), self._calling = self._calling, None
        if call.callback is Callback.STOP and call.arguments[-1] and row is not None:
            self._reported.add(place)
            error = "KAFKA_STORAGE_ERROR" if has_raised else "NONE"
            return rq.DeletedReplica(
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
        """Look at a place when the user polls next."""
        row = self.rows.get(place)
        self._changed.pop(place, None)
        self._elected.pop(place, None)
        if row is not None and row.leader == self._broker:
            if self._is_given(place, row) and self.led(place) is None:
                self._elected[place] = None
        else:
            self._changed[place] = None

    def _call_for(self, place: TopicPartition) -> Call | None:
        row, told = self.rows.get(place), self._told.get(place)
        if row is not None and self._broker in row.deleting:
            return None if place in self._reported else self._stop(place, row, deletes=True)
        if row is None or self._broker not in row.replicas:
            return self._stop(place, None, deletes=False) if told is not None else None
        if told is not None and told.topic_id != row.topic_id:
            self._changed[place] = None  # the new one is told of next
            return self._stop(place, None, deletes=True)
        if told is None and place in self._doomed:
            return None  # deleted here, or to be deleted once more
        is_news = told is None or (told.epoch, told.leader) != (row.leader_epoch, row.leader)
        if not is_news or row.leader_epoch < 0:
            return None
        follows = Following(*place, row.leader_epoch, row.leader, row.topic_id)
        return self._call(place, row, Call(Callback.FOLLOWER, (follows,)))

    def _call_to_lead(self, place: TopicPartition) -> Call | None:
        row, told = self.rows.get(place), self._told.get(place)
        if row is None or not self._is_given(place, row) or self.led(place) is not None:
            return None
        if told is not None and told.topic_id != row.topic_id:
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

    def _stop(self, place: TopicPartition, row: rs.ReplicaRow | None, deletes: bool) -> Call:
        self._calling = (place, self._told.pop(place, None), row)
        return Call(Callback.STOP, (*place, deletes))

    def _call(self, place: TopicPartition, row: rs.ReplicaRow, call: Call) -> Call:
        self._calling = (place, self._told.get(place), row)
        self._tell(place, _Told(row.topic_id, row.leader_epoch, row.leader, row.fence))
        return call

    def _tell(self, place: TopicPartition, told: _Told | None) -> None:
        if told is None:
            self._told.pop(place, None)
        else:
            self._told[place] = told


def _place(row: rs.ReplicaRow) -> TopicPartition:
    return TopicPartition(row.topic, row.partition)
