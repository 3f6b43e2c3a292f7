"""What a broker has deleted, or could not delete: told together, when its user has time."""

from coordlib.client.controller.standing import BrokerStanding
from coordlib.client.kit.asks import Asks
from coordlib.core.wire import requests as rq
from coordlib.errors import CoordError

#: Far below what a request may have, with the longest names.
ROWS_MAX = 1_000


class Reports:
    """ReplicasDeleted of one broker: repeated until they are answered, or the broker is out."""

    def __init__(self, me: BrokerStanding, asks: Asks) -> None:
        self._me, self._asks = me, asks
        self._rows: dict[tuple[str, int], rq.DeletedReplica] = {}

    def add(self, row: rq.DeletedReplica | None) -> None:
        """A callback has returned; None: it was not about a deletion."""
        if row is not None:
            self._rows[row.topic, row.partition] = row
        if len(self._rows) >= ROWS_MAX:
            self.say()

    def say(self) -> None:
        """Send what there is."""
        me = self._me
        if self._rows:
            rows = tuple(self._rows.values())
            self._rows.clear()
            request = me.wording.deleted(me.said.broker, me.incarnation, rows)
            me.pass_on([self._asks.ask(None, request)])

    def clear(self) -> None:
        """The broker is out: it is asked anew when it comes back."""
        self._rows.clear()
        over = CoordError("The broker went before its report was taken.", self._me.where)
        self._me.pass_on(self._asks.ask_no_more(rq.ReplicasDeleted, over))
