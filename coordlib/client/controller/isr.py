"""Who is in sync, as its leader counts (rule 16), and the requests that change it.

A leader counts the ISR of the newest partition epoch that it has read, and everybody whom it has
named under that epoch: answered, refused or lost. A late duplicate of a refused request may be
accepted when its member is Active again, and the leader would not know.

One request is under way at a time, and carries what was asked for meanwhile: of one partition one
change.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from coordlib import limits
from coordlib.client.controller import requests as bs
from coordlib.client.controller.replicas import Replicas
from coordlib.client.controller.requests import NotLeader
from coordlib.client.controller.state import BrokerStanding
from coordlib.client.kit import events as sg
from coordlib.client.kit.events import TopicPartition
from coordlib.client.kit.requests import error_of, known, refusal_of
from coordlib.core.wire import api
from coordlib.errors import CannotReach, CoordError, ErrorCode, GroupError

NO_ISR = (
    "isr names the brokers of a partition by id, each with the incarnation in its fetches: a "
    "broker that is not registered yet has none (-1)."
)
IN_FLIGHT = "A change of this partition's in-sync replicas is under way."
#: As many as an answer of 1 MiB has room for, with the longest names and sixteen replicas.
ROWS_MAX = 500


@dataclass(frozen=True, slots=True)
class _Named:
    """The brokers that a leader has named in requests under one partition epoch."""

    topic_id: int
    partition_epoch: int
    brokers: frozenset[int]


class InSync:
    """The in-sync replicas of the partitions that one broker leads."""

    def __init__(self, me: BrokerStanding, replicas: Replicas) -> None:
        self._me, self._replicas = me, replicas
        self._named: dict[TopicPartition, _Named] = {}
        #: Asked for, and not sent yet; with the leader epoch in which it was asked for.
        self._waiting: dict[TopicPartition, tuple[bs.AlterIsr, int]] = {}
        self._sent: dict[TopicPartition, bs.AlterIsr] = {}
        self._sent_id: str | None = None

    def counted(self, place: TopicPartition) -> frozenset[int]:
        """Everybody who must have a write before it is committed; nobody: it does not lead.

        A part of them is the controller's ISR at every place of the log.  # INV-78
        """
        row = self._replicas.led(place)
        if row is None:
            return frozenset()
        waiting = self._waiting.get(place)
        asked = frozenset() if waiting is None else frozenset(waiting[0].isr)
        return frozenset(row.isr) | self._named_under(place, row) | asked

    def _named_under(self, place: TopicPartition, row: api.ReplicaRow) -> frozenset[int]:
        named = self._named.get(place)
        if named is None:
            return frozenset()
        epoch = (row.topic_id, row.partition_epoch)
        return named.brokers if (named.topic_id, named.partition_epoch) == epoch else frozenset()

    # ---- asked for ------------------------------------------------------------------------------

    def alter(self, event: bs.AlterIsr, may_lead: bool) -> None:
        """Take the user's request; `may_lead`: the fence is open."""
        row = self._replicas.led(event.place) if may_lead else None
        if row is None:
            self._refuse(event, NotLeader(self._where(event.place)))
        elif not _can_be(event.isr):
            # It would not be read, and with it nothing else of its request.
            where = self._where(event.place)
            self._refuse(event, GroupError(ErrorCode.INVALID_REQUEST, where, NO_ISR))
        elif event.place in self._waiting or event.place in self._sent:
            hint = "Wait for its future."
            self._refuse(event, CoordError(IN_FLIGHT, self._where(event.place), hint))
        else:
            self._waiting[event.place] = event, row.leader_epoch

    def say(self) -> None:
        """Send what waits, if nothing is under way."""
        if self._sent_id is not None or not self._waiting:
            return
        topics: dict[tuple[str, int], list[api.AlteredPartition]] = {}
        for place in list(self._waiting)[:ROWS_MAX]:
            event, leader_epoch = self._waiting.pop(place)
            row = self._replicas.led(place)
            if row is None or row.leader_epoch != leader_epoch:
                self._refuse(event, NotLeader(self._where(place)))
            else:
                topic = (place.topic, row.topic_id)
                topics.setdefault(topic, []).append(self._altered(event, row))
        if topics:
            me = self._me
            rows = [
                api.AlteredTopic(name, tuple(some), id_) for (name, id_), some in topics.items()
            ]
            request = me.wording.alter(me.registration.broker, me.incarnation, rows)
            self._sent_id = request.id
            me.say(sg.Send(request))

    def _altered(self, event: bs.AlterIsr, row: api.ReplicaRow) -> api.AlteredPartition:
        me, place = self._me, event.place
        isr = {**event.isr, me.registration.broker: me.incarnation}
        brokers = self._named_under(place, row) | isr.keys()
        # Rule 16: counted before it is asked, and until another epoch is read.
        self._named[place] = _Named(row.topic_id, row.partition_epoch, brokers)
        self._sent[place] = event
        return api.AlteredPartition(
            partition=place.partition,
            leader_epoch=row.leader_epoch,
            partition_epoch=row.partition_epoch,
            isr=tuple(api.InSyncReplica(*each) for each in sorted(isr.items())),
            recovered=event.has_recovered,
        )

    # ---- answered -------------------------------------------------------------------------------

    def is_sent(self, id_: str) -> bool:
        """Whether this is the request that is under way."""
        return id_ == self._sent_id

    def answered(self, response: api.Response) -> None:
        """Each row has an error of its own; what the answer lacks is not known."""
        if error_of(response) is not ErrorCode.NONE:
            return self._end(refusal_of(response, self._me.where))
        rows = (
            known(response.results, ()) if isinstance(response, api.AlterPartitionResponse) else ()
        )
        for row in rows:
            event = self._sent.pop(TopicPartition(row.topic, row.partition), None)
            if event is not None:
                self._settle(event, row)
        return self._end(CannotReach("The answer lacks this partition.", self._me.where))

    def not_written(self, why: str) -> None:
        """Fail the request. It may have been written: the brokers that it named still count."""
        lost = f"The request could not be written: {why}"
        self._end(CannotReach(lost, self._me.where, "Try again."))

    def stop(self, error: CoordError) -> None:
        """The broker leads nothing any more."""
        for event, _ in self._waiting.values():
            self._refuse(event, error)
        self._waiting.clear()
        self._named.clear()
        self._end(error)

    def _end(self, error: CoordError) -> None:
        for event in self._sent.values():
            self._refuse(event, error)
        self._sent.clear()
        self._sent_id = None

    def _settle(self, event: bs.AlterIsr, row: api.AlteredRow) -> None:
        if row.error == ErrorCode.NONE.name:
            self._me.say(bs.Altered(event.ticket, row=row))
        else:
            code = _code_of(row)
            where, message = self._where(event.place), known(row.message, "")
            self._refuse(event, GroupError(code, where, message))

    def _refuse(self, event: bs.AlterIsr, error: CoordError) -> None:
        self._me.say(bs.Altered(event.ticket, error=error))

    def _where(self, place: TopicPartition) -> str:
        return f"{self._me.where}, {place.topic}/{place.partition}"


def _can_be(isr: Mapping[int, int]) -> bool:
    """Whether a request can name it. A partition that moves has two sets of replicas."""
    are_brokers = all(0 <= broker <= limits.INT32_MAX for broker in isr)
    are_offsets = all(0 <= offset <= limits.INT64_MAX for offset in isr.values())
    return are_brokers and are_offsets and len(isr) <= 2 * limits.REPLICAS_MAX


def _code_of(row: api.AlteredRow) -> ErrorCode:
    try:
        return ErrorCode[row.error]
    except KeyError:
        return ErrorCode.UNKNOWN_SERVER_ERROR
