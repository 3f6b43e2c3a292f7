"""Processes that are brokers, as far as the promises of a cluster need them.

A model and no client: what it does stands in the rules of time-and-fencing.md. A process acts as
leader by what it has read, and stops by its own clock (rules 8 to 10). It keeps a log for each
replica; what all that it counts as in sync have is committed (rule 16).
"""

from dataclasses import dataclass, field
from typing import Any

from coordlib.core.engine.tables import Place
from coordlib.core.wire import api, codec
from tests.tools.clusters import RELEASE_MS, SESSION_MS

MARGIN_MS = max(1_000, min(SESSION_MS, RELEASE_MS) // 4)
#: A replica: the topic's id, and the partition.
Replica = tuple[int, int]


@dataclass
class Disk:
    """What outlives a process."""

    name: str
    logs: dict[Replica, list[int]] = field(default_factory=dict)


@dataclass
class Process:
    """One process of one broker."""

    broker: int
    client: str
    incarnation: int
    member: str
    disk: Disk
    now_ms: int
    #: How many of all answers it has read.
    read: int
    previous: int = -1
    state: str = "Initial"
    since: int = -1
    rows: dict[Place, api.ReplicaRow] = field(default_factory=dict)
    #: Active brokers, by incarnation.
    brokers: dict[int, int] = field(default_factory=dict)
    #: (topic id, partition, leader epoch) that it let go of for ever (rule 15).
    over: set[tuple[int, int, int]] = field(default_factory=set)
    #: Open demands: cause -> places, and by when it must have let go.
    demands: dict[int, tuple[list[Place], int]] = field(default_factory=dict)
    is_alive: bool = True
    is_removed: bool = False
    #: Its own clock has stopped it, and nothing has proved since that it is a member.
    is_stopped: bool = False
    #: It said Inactive, and has not read the answer.
    awaits: str = ""
    beat_ms: int = 0
    read_ms: int = 0
    #: By place: whom it named under the newest partition epoch that it has read.
    named: dict[Place, tuple[int, set[int]]] = field(default_factory=dict)
    #: By place and leader epoch: how much each follower has, in which incarnation.
    has: dict[tuple[Place, int], dict[int, tuple[int, int]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.beat_ms = self.read_ms = self.now_ms

    # -- its own clock ---------------------------------------------------------------------

    @property
    def may_act(self) -> bool:
        """Its fence is open, and it waits for no answer to its word that it has stopped."""
        if not self.is_alive or self.is_removed or self.awaits or self.is_stopped:
            return False
        return self.state in ("Active", "Stopping") and self.has_lease

    @property
    def has_lease(self) -> bool:
        """Rules 8, 9 and 10."""
        dates = [date_ms for _, date_ms in self.demands.values()]
        until_ms = min(
            self.beat_ms + SESSION_MS - MARGIN_MS,
            self.read_ms + RELEASE_MS - MARGIN_MS,
            *dates,
        )
        return self.now_ms < until_ms

    def tell_time(self, now_ms: int) -> None:
        """A lease that has ended ends all epochs: it takes up none of them again."""
        self.now_ms = now_ms
        if not self.has_lease:
            self.is_stopped = True
            self.give_up()

    def acting(self) -> dict[Place, api.ReplicaRow]:
        """What it acts as leader of."""
        if not self.may_act:
            return {}
        return {
            place: row
            for place, row in self.rows.items()
            if row.leader == self.broker and _epoch(row) not in self.over
        }

    def give_up(self) -> None:
        """It leads nothing any more of what it has read."""
        self.over |= {_epoch(row) for row in self.rows.values() if row.leader == self.broker}

    # -- what it reads ---------------------------------------------------------------------

    def hear(self, values: list[bytes]) -> None:
        """Read all that can be read."""
        before_ms = self.read_ms
        for value in values[self.read :]:
            self._take(codec.decode_response(value), before_ms)
        self.read = len(values)
        self.read_ms = self.now_ms
        if self.is_stopped:
            # Rule 11: its newest heartbeat was judged before, and all that was said was read.
            self.give_up()
            self.is_stopped = not self.has_lease

    def _take(self, said: Any, before_ms: int) -> None:
        match said:
            case api.MetadataChanged():
                self._learn(said)
            case api.LeadershipDemanded(member=self.member):
                places = [(t.topic, n) for t in said.partitions for n in t.partitions]
                self.demands[said.cause] = places, before_ms + RELEASE_MS - MARGIN_MS
            case api.MemberRemoved(member=self.member):
                self.is_removed = "superseded" in said.reason
                self._is_out()
            case api.HeartbeatResponse(client=self.client, id="h"):
                self._is_out()
            case api.RegisterBrokerResponse(client=self.client, error="NONE"):
                if said.incarnation == self.incarnation:
                    self._is_in(said.current_state, said.since)
                    for row in said.partitions or ():
                        self._store(row)
            case api.BrokerHeartbeatResponse(client=self.client, error="NONE"):
                if said.incarnation == self.incarnation:
                    self._answered(said)
            case _:
                pass

    def _is_in(self, state: Any, since: Any) -> None:
        self.state, self.since = state, since

    def _answered(self, said: api.BrokerHeartbeatResponse) -> None:
        if self.awaits and said.id != self.awaits:
            return
        self.awaits = ""
        if said.current_state == "Inactive":
            self._is_out()
        self._is_in(said.current_state, said.since)

    def _is_out(self) -> None:
        self.give_up()
        self.state, self.demands = "Inactive", {}

    def _learn(self, said: api.MetadataChanged) -> None:
        for gone in said.gone:
            if (gone.broker, gone.incarnation) == (self.broker, self.incarnation):
                self._is_out()
            if self.brokers.get(gone.broker) == gone.incarnation:
                del self.brokers[gone.broker]
        for broker in said.brokers:
            self.brokers[broker.broker] = broker.incarnation
        for row in said.partitions:
            self._store(row)

    def _store(self, row: api.ReplicaRow) -> None:
        place = (row.topic, row.partition)
        if not row.replicas:
            self.rows.pop(place, None)
        else:
            self.rows[place] = row

    # -- replication -----------------------------------------------------------------------

    def log(self, row: api.ReplicaRow) -> list[int]:
        """What it has of a partition."""
        return self.disk.logs.setdefault((row.topic_id, row.partition), [])

    def counted(self, row: api.ReplicaRow) -> set[int]:
        """Rule 16: the ISR that it has read, and whom it named under that partition epoch."""
        epoch, named = self.named.get((row.topic, row.partition), (-1, set()))
        return {*row.isr, *(named if epoch == row.partition_epoch else ())}

    def fetch(self, leader: "Process") -> None:
        """Follow: what the leader has, and nothing else."""
        for place, row in leader.acting().items():
            mine = self.rows.get(place)
            if mine is None or _epoch(mine) != _epoch(row) or self.broker not in row.replicas:
                continue
            self.log(mine)[:] = leader.log(row)
            has = leader.has.setdefault((place, row.leader_epoch), {})
            if has.get(self.broker, (0, -1))[1] <= self.incarnation:  # else a twin has taken over
                has[self.broker] = len(leader.log(row)), self.incarnation

    def committed(self, row: api.ReplicaRow) -> list[int]:
        """What all that it counts have."""
        place = (row.topic, row.partition)
        got = self.has.get((place, row.leader_epoch), {})
        followers = self.counted(row) - {self.broker}
        lengths = [got.get(each, (0, -1))[0] for each in followers]
        return self.log(row)[: min(lengths, default=len(self.log(row)))]


def _epoch(row: api.ReplicaRow) -> tuple[int, int, int]:
    return row.topic_id, row.partition, row.leader_epoch
