"""What a store does for a partition that it leads: acknowledge, replicate, say who is in sync.

Reads and writes are linearizable by four rules, which need no clock but the agent's:

1. A put is acknowledged when all whom `must_acknowledge` names have it, and `may_lead` is asked
   last. A get waits in the same way: else its value could be lost with this leader.
2. A follower takes entries only under the newest leader epoch that it has read of. Where its log
   differs from the leader's it is cut (`replica.py`).
3. A leader lets a follower into the ISR that has all that is acknowledged, and all that the leader
   had when its epoch began: some of that may have been acknowledged before.
4. Whether it does is decided under the lock under which puts are acknowledged, and counts at once.
"""

import threading
import time
from concurrent.futures import Future
from typing import Any, Final, NamedTuple

from coordlib.client import (
    BrokerAgent,
    BrokerFenced,
    ClusterMetadata,
    Leadership,
    TopicPartition,
)
from coordlib.client.kit.process import boottime_ns
from coordlib.core.wire import api
from examples.store.replica import Entry, Replica
from examples.store.wire import UNKNOWN, Address, Connection, Refused

#: A follower that has not had the whole log for so long leaves the ISR.
SILENT_S: Final = 2.0
#: How long a put or a get waits for followers.
PATIENCE_S: Final = 30.0
#: How often a leader looks whether it still leads, and asks an idle follower whether it is there.
LOOK_S: Final = 0.05
IDLE_S: Final = 0.5
RETRY_S: Final = 0.2


class Has(NamedTuple):
    """What a follower has of the leader's log, by its own word under this leader epoch."""

    incarnation: int
    end: int
    #: When it last had all of it, by the monotonic clock.
    whole_s: float


class Answer(NamedTuple):
    """What a client is told: a value, and where it stands in the partition's log (-1: nowhere)."""

    value: Any
    offset: int
    #: A moment when this broker led, after all that must had the value; since the machine's boot.
    at_ns: int


class Leader:
    """One leadership, from `on_leader` until it ends. Guarded by the replica's lock.

    Args:
        agent: of this broker.
        told: what `on_leader` got.
    """

    def __init__(self, agent: BrokerAgent, replica: Replica, told: Leadership) -> None:
        self._agent, self._replica, self.told = agent, replica, told
        self._place = TopicPartition(told.topic, told.partition)
        self._begin, self._began_s = len(replica.log), time.monotonic()
        self._has: dict[int, Has] = {}
        #: Followers that have a thread.
        self._followed: set[int] = set()
        #: The newest AlterPartition.
        self._asked: Future[api.AlteredRow] | None = None

    # ---- for clients ----------------------------------------------------------------------------

    def put(self, key: str, value: Any) -> Answer:
        """Append, and wait. Raises Refused; UNKNOWN: a successor may acknowledge the entry."""
        if not self.may_lead():
            raise Refused("NOT_LEADER_OR_FOLLOWER")
        if not self._has_enough():
            raise Refused("NOT_ENOUGH_REPLICAS")
        offset = self._replica.log.append(Entry(self.told.epoch, key, value))
        self._replica.changed.notify_all()
        return Answer(value, offset, self._wait(offset, is_put=True))

    def get(self, key: str) -> Answer:
        """The newest value of a key, when no successor can lack it. Raises Refused."""
        offset = self._replica.log.newest(key)
        value = self._replica.log.entries[offset].value if offset >= 0 else None
        return Answer(value, offset, self._wait(offset))

    def may_lead(self) -> bool:
        """Whether this leadership holds at this moment."""
        return self._is_newest() and self._agent.may_lead(*self._place, self.told.epoch)

    def _is_newest(self) -> bool:
        return self._replica.leader is self

    def _wait(self, offset: int, is_put: bool = False) -> int:
        until_s = time.monotonic() + PATIENCE_S
        while True:
            is_safe = self.acknowledged() > offset and (not is_put or self._has_enough())
            at_ns = boottime_ns()  # before the question: who is suspended between the two gets no
            if not self.may_lead() or (not is_safe and time.monotonic() > until_s):
                raise Refused(UNKNOWN)
            if is_safe:
                return at_ns
            self._replica.changed.wait(LOOK_S)

    def acknowledged(self) -> int:
        """Up to where all have the log that must."""
        counted = self._agent.must_acknowledge(*self._place)
        if not counted:
            return 0  # the leadership is over, and its end is only to be told
        followers = counted - {self._agent.broker}
        ends = [self._has[each].end if each in self._has else 0 for each in followers]
        return min([len(self._replica.log), *ends])

    def _has_enough(self) -> bool:
        """Whether as many are in sync as the topic wants."""
        try:
            known = self._agent.metadata()
        except BrokerFenced:
            return False
        row, topic = known.partitions.get(self._place), known.topics.get(self._place.topic)
        return row is not None and topic is not None and len(row.isr) >= topic.min_isr

    # ---- for followers --------------------------------------------------------------------------

    def tend(self) -> None:
        """Give each follower a thread, and ask for other in-sync replicas where they differ."""
        with self._replica.changed:
            if not self.may_lead():
                return
            try:
                known = self._agent.metadata()
            except BrokerFenced:
                return  # its registration is new, and the cluster was not read of yet
            if (row := known.partitions.get(self._place)) is None:
                return  # its topic is gone
            for each in set(row.replicas) - self._followed - {self._agent.broker}:
                self._followed.add(each)
                threading.Thread(target=self._bring_up, args=(each,), daemon=True).start()
            if self._asked is not None and not self._asked.done():
                return
            wanted = self._in_sync(known, row)
            counted = self._agent.must_acknowledge(*self._place)
            if row.recovering or not wanted.keys() == set(row.isr) == counted:
                # Also the ISR as it is: then one that it has named for nothing counts no more.
                self._asked = self._agent.alter_isr(*self._place, wanted, row.recovering)

    def _in_sync(self, known: ClusterMetadata, row: api.ReplicaRow) -> dict[int, int]:
        """Broker -> the incarnation that has everything."""
        found = {self._agent.broker: self._agent.incarnation}
        if row.recovering:
            return found  # elected out of sync: what it has is what counts, and it says so first
        enough = max(self.acknowledged(), self._begin)
        for each in row.replicas:
            broker, has = known.brokers.get(each), self._has.get(each)
            whole_s = self._began_s if has is None else has.whole_s
            if broker is None or time.monotonic() - whole_s > SILENT_S:
                continue
            is_same = has is not None and has.incarnation == broker.incarnation
            has_all = is_same and has is not None and has.end >= enough
            if each in row.isr or (has_all and broker.current_state == "Active"):
                found[each] = broker.incarnation
        return found

    def _bring_up(self, follower: int) -> None:
        """Keep one follower at what the log has, for as long as this epoch lasts."""
        connection, begin = None, self._begin
        while self._is_newest():
            try:
                connection = connection or Connection(address_of(self._agent, follower))
                begin = self._send(connection, follower, begin)
            except (OSError, Refused, BrokerFenced):
                # It is away, or has not read of this epoch; or this broker is fenced.
                if connection is not None:
                    connection.close()
                connection = None
                time.sleep(RETRY_S)
        if connection is not None:
            connection.close()

    def _send(self, connection: Connection, follower: int, begin: int) -> int:
        """Send what the follower lacks, or nothing when it lacked nothing for a while; where to go
        on."""
        log, changed = self._replica.log, self._replica.changed
        with changed:
            if follower in self._has:
                changed.wait_for(lambda: len(log) > begin or not self._is_newest(), IDLE_S)
            asked_s, entries, before = (
                time.monotonic(),
                log.entries[begin:],
                log.epoch_before(begin),
            )
        topic, partition = self._place
        where = {"topic": topic, "partition": partition, "epoch": self.told.epoch, "begin": begin}
        answer = connection.ask("replicate", **where, before=before, entries=entries)
        if "differs" in answer:
            return int(answer["differs"])
        with changed:
            known = self._has.get(follower)
            if known is None or known.incarnation <= answer["incarnation"]:
                self._has[follower] = Has(answer["incarnation"], answer["end"], asked_s)
                changed.notify_all()
        return int(answer["end"])


def address_of(agent: BrokerAgent, broker: int) -> Address:
    """Where a broker can be reached. Raises Refused, BrokerFenced."""
    known = agent.metadata().brokers.get(broker)
    if known is None:
        raise Refused("BROKER_NOT_AVAILABLE")
    return known.endpoints[0].host, known.endpoints[0].port
