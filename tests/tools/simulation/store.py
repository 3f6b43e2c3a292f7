"""A store's process in the simulated world: a broker's real machine, a model of replication.

The machine is `BrokerMachine`; around it is what its shell does, without files and threads. A
leader appends values, gives its log to its followers, and acknowledges what all have whom the
machine names (rule 16). A follower takes entries in the newest leader epoch that it was told of.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any, NamedTuple

from coordlib.client.controller import requests as bs
from coordlib.client.controller.machine import BrokerMachine
from coordlib.client.controller.requests import (
    BrokerFenced,
    BrokerReplaced,
    BrokerTiming,
    Registration,
)
from coordlib.client.kit import events as sg
from coordlib.client.kit.events import TopicPartition
from coordlib.client.kit.requests import Identity
from coordlib.core.wire import api
from coordlib.core.wire.envelope import shard_of
from coordlib.errors import CoordError
from tests.tools.simulation.disks import Disk, Entry, Log, Place
from tests.tools.simulation.scheduler import Channel, Process, Scheduler
from tests.tools.simulation.transport import SimulatedTransport
from tests.tools.simulation.violation import Violation

#: A follower that has not had the whole log for so long leaves the ISR.
SILENT_MS = 2_000
LOG_MAX = 200
#: A partition, its topic's id, and a leader epoch.
Where = tuple[Place, int, int]


class Has(NamedTuple):
    """What a follower has of its leader's log, by its own word in this leader epoch."""

    incarnation: int
    end: int
    at_ms: int


@dataclass
class Lead:
    """One leadership, from on_leader on."""

    epoch: int
    fence: int
    begin: int
    began_ms: int
    topic_id: int = -1
    has: dict[int, Has] = field(default_factory=dict)
    #: The change of the ISR that is under way.
    ticket: int = -1
    #: Whom it names.
    wanted: frozenset[int] = frozenset()
    acknowledged: int = 0


@dataclass
class StoreHabits:
    """How a store's process behaves; drawn by the seed."""

    luck: Random
    poll_every_ms: int
    put_share: float
    is_busy: bool = False
    #: Whether other stores cannot reach it, nor it them.
    is_apart: bool = False
    #: Whether it writes no Release, and goes on as if it had.
    keeps_all: bool = False


class Store(Process):
    """One process of one broker.

    Args:
        connect: makes its transport.
        peers: the newest process of a broker, if it lives.
        told: what it has seen or done, for the fleet that looks on.
    """

    def __init__(  # noqa: PLR0917  # all that one process is
        self,
        scheduler: Scheduler,
        name: str,
        broker: int,
        disk: Disk,
        habits: StoreHabits,
        group: str,
        timing: BrokerTiming,
        previous: int,
        connect: Callable[[Process], SimulatedTransport],
        peers: Callable[[int], "Store | None"],
        told: "Callable[[Store, str, Any], None]",
    ) -> None:
        super().__init__(scheduler, name)
        self.broker, self.disk, self.habits = broker, disk, habits
        self._peers, self._told = peers, told
        self.transport = transport = connect(self)
        where = transport.place
        self.identity = Identity(
            group=group,
            client=name,
            token=transport.new_token(),
            shard=shard_of(group, where.shards),
            reply=transport.reply,
            incarnation=where.incarnation,
            prefix=where.prefix,
        )
        endpoints = (api.Endpoint("store", f"host-{broker}", 9_092),)
        said = Registration(broker, endpoints, storage=disk.storage, previous=previous)
        self.life = BrokerMachine(self.identity, timing, said)
        self.leads: dict[Place, Lead] = {}
        self.follows: dict[Place, bs.Following] = {}
        self._calls: list[bs.Call] = []
        self._raised: CoordError | None = None
        self._altered: dict[int, bs.Altered] = {}
        self._tickets = 0
        self._channels: dict[str, Channel] = {}
        self.counts: Counter[str] = Counter()
        #: Whether it is being shut down in order; whether its user has ended it.
        self.is_stopping = self.is_done = False
        self.is_fenced = True
        transport.attach(self)
        self.feed(bs.Begin(self._now()))
        self.feed(bs.Ready(self._now()))
        self.after(1, self._turn)

    # ---- the transport's side ------------------------------------------------------------------

    def feed(self, event: Any) -> None:
        """Take what happened: an input of members, or of brokers."""
        for output in self.life.handle(event):
            self._do(output)

    def wake_ms(self) -> int | None:
        return self.life.wake_ms()

    def reading_lasts_ms(self) -> int | None:
        return self.life.reading_lasts_ms()

    def fail(self, problem: Exception) -> None:
        raise Violation(f"INV-70: {self.name} has failed: {problem!r}")

    def _do(self, output: bs.Output) -> None:
        match output:
            case sg.Send(request):
                if not (self.habits.keeps_all and isinstance(request, api.Release)):
                    self.transport.send(self, request)
            case bs.Call():
                self._calls.append(output)
            case sg.Raise(error):
                self._raised = error
            case bs.Altered(ticket):
                self._altered[ticket] = output
            case bs.Registered(incarnation):
                self.disk.incarnation = max(self.disk.incarnation, incarnation)
            case sg.Left():
                self._exit()

    def _now(self) -> int:
        return self.transport.now_ms()

    # ---- the user's thread ---------------------------------------------------------------------

    def _turn(self) -> None:
        if self.is_done:
            return
        if not self.habits.is_busy:
            self._poll()
        if self.is_alive and not self.is_done:
            self._tend()
            self.after(self.habits.poll_every_ms, self._turn)

    def _poll(self) -> None:
        for _ in range(100):
            self.feed(sg.Polled(self._now()))
            if self._raised is not None:
                self._fail(self._raised)
                return
            if not self._calls:
                break
            self._run_calls()
        if self.is_stopping and self.life.is_done:
            self.end()

    def _run_calls(self) -> None:
        calls, self._calls = self._calls, []
        for call in calls:
            self._call(call)
            if self.is_alive:
                self.feed(bs.CalledBack(self._now(), call))

    def _fail(self, problem: CoordError) -> None:
        self.counts["replaced"] += isinstance(problem, BrokerReplaced)
        self._told(self, "failed", str(problem))
        self.end()

    def stop_in_order(self) -> None:
        """Controlled shutdown: others lead first."""
        if not self.is_stopping and self.is_alive:
            self.is_stopping = True
            self.feed(bs.Stop(self._now()))

    def end(self) -> None:
        """Close the agent; the process goes when LeaveGroup is written."""
        if self.is_done or not self.is_alive:
            return
        self.is_done = True
        self.feed(bs.Close(self._now()))
        self.feed(sg.Polled(self._now()))
        self._run_calls()
        self.leads.clear()
        self._told(self, "ended", None)
        self.after(5_000, self._exit)

    def _exit(self) -> None:
        if self.is_alive:
            self.kill()

    def kill(self) -> None:
        if self.is_alive:
            super().kill()
            self.leads.clear()
            self.transport.detach(self)
            self.transport.close()
            self._told(self, "gone", None)

    # ---- callbacks -----------------------------------------------------------------------------

    def _call(self, call: bs.Call) -> None:
        match call.callback:
            case bs.Callback.LEADER:
                self._lead(call.arguments[0])
            case bs.Callback.FOLLOWER:
                (told,) = call.arguments
                place = (told.topic, told.partition)
                self.leads.pop(place, None)
                self.follows[place] = told
            case bs.Callback.RESIGN:
                for place in call.arguments[0]:
                    self.leads.pop(tuple(place), None)
                self._told(self, "resigned", [tuple(place) for place in call.arguments[0]])
            case bs.Callback.STOP:
                topic, partition, is_deleted = call.arguments
                self.leads.pop((topic, partition), None)
                self.follows.pop((topic, partition), None)
                if is_deleted:
                    self.disk.delete((topic, partition))
            case bs.Callback.FENCED:
                self.is_fenced = True
                self.leads.clear()
            case bs.Callback.UNFENCED:
                self.is_fenced = False

    def _lead(self, given: bs.Leadership) -> None:
        place = (given.topic, given.partition)
        self.follows.pop(place, None)
        begin = len(self.disk.log(place, given.topic_id))
        self.leads[place] = Lead(given.epoch, given.fence, begin, self._now(), given.topic_id)
        self._told(self, "leads", given)

    # ---- leading -------------------------------------------------------------------------------

    def may_lead(self, place: Place) -> bool:
        """Whether it acts as leader at this moment, in the epoch that it was told of."""
        lead = self.leads.get(place)
        if lead is None or self.is_stopped or not self.is_alive:
            return False
        return self.life.may_lead(self._now(), TopicPartition(*place), lead.epoch)

    def topic_id(self, place: Place) -> int:
        """By what its callbacks have said; -1: it neither leads nor follows such a partition."""
        told = self.leads.get(place) or self.follows.get(place)
        return told.topic_id if told is not None else -1

    def log(self, place: Place) -> Log:
        """What it has of a partition."""
        return self.disk.log(place, self.topic_id(place))

    def _tend(self) -> None:
        for place, lead in list(self.leads.items()):
            if self.may_lead(place):
                self._append(place, lead)
                self._replicate(place, lead)
                self._acknowledge(place, lead)
                self._change_isr(place, lead)

    def _append(self, place: Place, lead: Lead) -> None:
        log, luck = self.log(place), self.habits.luck
        if luck.random() < self.habits.put_share and len(log) < LOG_MAX:
            log.append(Entry(lead.epoch, luck.getrandbits(48)))

    def _replicate(self, place: Place, lead: Lead) -> None:
        row = self.row(place)
        peers = [self._peers(each) for each in (row.replicas if row is not None else ())]
        for peer in peers:
            if peer is not None and peer.broker != self.broker:
                entries, where = tuple(self.log(place)), (place, lead.topic_id, lead.epoch)
                self._send(peer, partial(_accept, where, entries, self))

    def _send(self, peer: "Store", action: "Callable[[Store], None]") -> None:
        if self.habits.is_apart or peer.habits.is_apart:
            return
        if peer.name not in self._channels:
            luck = self.habits.luck
            self._channels[peer.name] = Channel(self.scheduler, lambda: luck.uniform(1, 30))
        self._channels[peer.name].send(lambda: peer.arrive(lambda: action(peer)))

    def accept(self, where: Where, entries: tuple[Entry, ...], leader: "Store") -> None:
        """A leader's log: taken in the newest epoch that this store was told of, and cut to it."""
        place, topic_id, epoch = where
        told = self.follows.get(place)
        is_known = told is not None and (told.topic_id, told.epoch) == (topic_id, epoch)
        if self.is_done or place in self.leads or not is_known:
            return
        log = self.log(place)
        log[:] = entries
        has = (self.life.incarnation, len(log))
        self._send(leader, lambda peer: peer.heard(place, epoch, self.broker, *has))

    def heard(self, place: Place, epoch: int, broker: int, incarnation: int, end: int) -> None:
        """A follower says what it has."""
        lead = self.leads.get(place)
        if lead is None or lead.epoch != epoch:
            return
        known = lead.has.get(broker)
        if known is None or known.incarnation <= incarnation:
            lead.has[broker] = Has(incarnation, end, self._now())
        self._acknowledge(place, lead)

    def _acknowledge(self, place: Place, lead: Lead) -> None:
        """What all have that count as in sync is committed; asked last: whether it still leads."""
        end = self._committed(place, lead)
        if end > lead.acknowledged and self.may_lead(place):
            lead.acknowledged = end
            self._told(self, "committed", (place, self.log(place)[:end]))

    def _committed(self, place: Place, lead: Lead) -> int:
        others = self.life.must_acknowledge(TopicPartition(*place)) - {self.broker}
        ends = [lead.has[each].end if each in lead.has else 0 for each in others]
        return min([len(self.log(place)), *ends])

    def _change_isr(self, place: Place, lead: Lead) -> None:
        """Who is silent leaves the ISR, and who has everything comes in."""
        if lead.ticket >= 0:
            done = self._altered.pop(lead.ticket, None)
            if done is None:
                return
            self.counts["isr refused"] += done.error is not None
            lead.ticket = -1
        row = self.row(place)
        wanted = self._in_sync(place, lead) if row is not None else None
        if row is None or wanted is None:
            return
        counted = self.life.must_acknowledge(TopicPartition(*place))
        if set(wanted) == set(row.isr) == counted and not row.recovering:
            return
        self._tickets += 1
        lead.ticket, lead.wanted = self._tickets, frozenset(wanted)
        at = TopicPartition(*place)
        self.feed(bs.AlterIsr(self._now(), lead.ticket, at, wanted, has_recovered=True))

    def _in_sync(self, place: Place, lead: Lead) -> dict[int, int] | None:
        """Broker -> the incarnation that has everything; None: it cannot see the metadata."""
        try:
            known = self.life.metadata(self._now())
        except BrokerFenced:
            return None
        row = known.partitions[TopicPartition(*place)]
        found = {self.broker: self.life.incarnation}
        enough = max(self._committed(place, lead), lead.begin)
        for each in row.replicas:
            broker, has = known.brokers.get(each), lead.has.get(each)
            heard_ms = lead.began_ms if has is None else has.at_ms
            if each == self.broker or broker is None or self._now() - heard_ms > SILENT_MS:
                continue
            is_same = has is not None and has.incarnation == broker.incarnation
            has_all = is_same and has is not None and has.end >= enough
            if each in row.isr or (has_all and broker.current_state == "Active"):
                found[each] = broker.incarnation
        return found

    def row(self, place: Place) -> Any:
        """A partition as its metadata say; None: the broker is fenced."""
        try:
            return self.life.metadata(self._now()).partitions.get(TopicPartition(*place))
        except BrokerFenced:
            return None


def _accept(where: Where, entries: tuple[Entry, ...], leader: Store, peer: Store) -> None:
    peer.accept(where, entries, leader)
