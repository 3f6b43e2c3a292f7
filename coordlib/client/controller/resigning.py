"""How a broker lets go: on_resign for the leaderships of a demand, then one Release.

Leaderships of a demand of which the user was not told, or has lost since, need no callback. Until
the Release is in the log the demand has its date (rule 10); from then on the leaderships that it
named are over, whatever is read later (rule 15).
"""

from coordlib.client.controller.replicas import Replicas
from coordlib.client.controller.signals import Call, Callback
from coordlib.client.controller.standing import BrokerStanding
from coordlib.client.kit import signals as sg
from coordlib.client.kit.asks import Asks, error_of
from coordlib.client.kit.signals import Partitions
from coordlib.core.wire import requests as rq
from coordlib.core.wire import responses as rs
from coordlib.errors import CoordError, ErrorCode


class Resigning:
    """The demands of one broker, from the notice to the controller's answer."""

    def __init__(self, me: BrokerStanding, asks: Asks, replicas: Replicas) -> None:
        self._me, self._asks, self._replicas = me, asks, replicas
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
        """Whether nothing is to be let go of any more."""
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
        """The user has let go; a callback that raised has not, and comes again."""
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
            me.pass_on([self._asks.ask(None, me.wording.let_go(me.member, cause))])

    def written(self, event: sg.Acknowledged) -> None:
        """Rule 10: that ends the demand for the fence, unless a refusal was read before this."""
        if self._asks.is_put_off(event.id):
            return
        asked = self._asks.asked(event.id)
        if isinstance(asked, rq.Release) and asked.cause in self._unanswered:
            self._taken.add(asked.cause)
            due_ms = self._me.fence.reacted(event.now_ms, asked.cause)
            if due_ms is not None:
                self._unanswered[asked.cause] = due_ms

    def answered(self, response: rs.Response, now_ms: int) -> None:
        """Called before the question is put away."""
        asked = self._asks.asked(response.id)
        if not isinstance(asked, rq.Release) or asked.cause not in self._unanswered:
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

    def is_refusal(self, response: rs.Response) -> bool:
        """Whether it says that this broker is not ready any more."""
        is_release = isinstance(self._asks.asked(response.id), rq.Release)
        return is_release and error_of(response) is ErrorCode.UNKNOWN_MEMBER_ID

    def end(self) -> None:
        """The broker is out: its demands are void."""
        self._demands.clear()
        self._unanswered.clear()
        self._taken.clear()
        over = CoordError("The broker went before its Release was taken.", self._me.where)
        self._me.pass_on(self._asks.ask_no_more(rq.Release, over))
