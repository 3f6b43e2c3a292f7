"""What one broker may do at this moment, and how it loses that: out, replaced, failed, by its word.

The part of the state machine that holds all others; `life.py` says what happens when.
"""

from coordlib.client.controller.door import Door
from coordlib.client.controller.errors import BrokerFenced, BrokerReplaced, MetadataRefused
from coordlib.client.controller.in_sync import InSync
from coordlib.client.controller.leaving import Leaving
from coordlib.client.controller.picture import ClusterMetadata, Picture
from coordlib.client.controller.question import Question
from coordlib.client.controller.replicas import Replicas
from coordlib.client.controller.reports import Reports
from coordlib.client.controller.resigning import Resigning
from coordlib.client.controller.signals import Call
from coordlib.client.controller.standing import BrokerStanding, State
from coordlib.client.controller.targets import Targets
from coordlib.client.controller.wording import BrokerTiming, Registration
from coordlib.client.kit.asks import Asks
from coordlib.client.kit.fence import Fence, Stop
from coordlib.client.kit.signals import TopicPartition
from coordlib.client.kit.wording import Identity
from coordlib.core.wire import responses as rs
from coordlib.errors import CoordError

REPLACED = "a newer process is registered as this broker"


class Acting:
    """The parts of one broker, and what follows from them."""

    def __init__(self, identity: Identity, timing: BrokerTiming, said: Registration) -> None:
        me = self._me = BrokerStanding(identity, timing, said)
        self._asks = Asks(me.where, me.wording.next_id)
        self._replicas = Replicas(said.broker)
        self._resigning = Resigning(me, self._asks, self._replicas)
        self._in_sync = InSync(me, self._replicas)
        self._reports = Reports(me, self._asks)
        self._picture, self._door = Picture(), Door(timing.door_ms)
        self._targets = Targets(me)
        self._leaving = Leaving(me)
        self._question = Question(me, self._picture)
        #: The parts of RegisterBroker's answer that were read.
        self._parts: list[rs.RegisterBrokerResponse] = []
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
        return self._me.said.broker

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
        """Rule 16: everybody who must have a write; nobody where it was not told to lead."""
        return self._in_sync.counted(place)

    def is_fenced(self, now_ms: int) -> bool:
        """Whether the door is closed."""
        return not self._door.is_open(now_ms)

    def metadata(self, now_ms: int) -> ClusterMetadata:
        """The cluster as it was read.

        Raises BrokerFenced, also before the first picture; MetadataRefused: there will be none.
        """
        if self.is_fenced(now_ms):
            raise BrokerFenced(self._me.where, "its door is closed")
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
        is_in = self._me.is_ready and self._door.is_told and self._door.closed_because is None
        return is_in and not self._targets.owes_word and self._me.fence.may_work(now_ms)

    # ---- out ----------------------------------------------------------------------------------

    def _lead_no_more(self, why: str) -> None:
        """All leaderships that were read of are over (rule 15), and the door is closed."""
        me = self._me
        me.fence.clear()
        self._replicas.give_up()
        self._door.close(why)
        self._in_sync.stop(BrokerFenced(me.where, why))

    def _out(self, why: str, offset: int) -> None:
        """It is Inactive since this record: what it was given before that is over."""
        self._lead_no_more(why)
        self._replicas.lose(offset)
        self._resigning.end()
        self._reports.clear()
        if self._me.is_ready:
            self._me.become(State.INACTIVE)
        self._targets.went_out()

    def _replaced(self) -> None:
        """A newer process has this broker's id; there is no war of two."""
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


def offset_of(cause: str) -> int:
    """The offset in a coordinate, `r1-42`; -1: it is none."""
    number = cause.rpartition("-")[2]
    return int(number) if number.isascii() and number.isdecimal() and len(number) <= 20 else -1
