"""What becomes of transactions, as the real core tells it, in Delta tables without a JVM."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from coordlib.core.wire import api
from tests.history.assigned_life import write_tables
from tests.history.cluster_life import rows_of_events
from tests.tools import driving
from tests.tools import producers as p

START = datetime(2026, 3, 1, 15, 0, tzinfo=UTC)
ID, GROUP = p.ID, "billing"


class TransactionLife:
    """Producers and groups of one shard, second by second."""

    def __init__(self) -> None:
        self.talk = p.Talk()
        self.talk.now_ms = int(START.timestamp() * 1000)
        self._began_ms = self.talk.now_ms

    def at(self, seconds: float, *requests: api.AnyRequest) -> list[str]:
        """These, one after the other, so long after the start; their messages reach the groups."""
        after_ms = self._began_ms + int(seconds * 1000) - self.talk.now_ms
        lines = self.talk.tick(after_ms=after_ms) if after_ms else []
        for request in requests:
            lines += self.talk.send(request)
        return lines + self.talk.settle()

    def offsets(self, producer: int, epoch: int, number: int, **places: int) -> api.TxnOffsetCommit:
        """The positions of partitions of `orders`, by their names `p0`, `p1`."""
        named = {"of_group": GROUP, "offsets": rows(**places)}
        return p.offsets(producer, epoch, number, **named)

    def pending(self, group: str, **places: int) -> api.PendingCommit:
        """The same inside of a transaction of Kafka."""
        return driving.pending_commit("copier-k", group=group, offsets=rows(**places))

    def rows(self) -> list[dict[str, Any]]:
        return rows_of_events(self.talk.outputs)

    def write(self, tables: Path) -> Path:
        """The tables as the archive writes them."""
        return write_tables(tables, self.rows())


def rows(**places: int) -> tuple[api.CommittedOffset, ...]:
    """`p0=5`: offset 5 of partition 0 of `orders`."""
    return tuple(
        api.CommittedOffset("orders", int(name[1:]), offset) for name, offset in places.items()
    )


def a_life_of_transactions() -> TransactionLife:
    """One transaction commits, an operator aborts the next, a newer process fences the third, and
    the fourth is open. Beside them Kafka decides: one commits, one aborts, one is overtaken by a
    plain commit, one by a younger one, and one waits."""
    life = TransactionLife()
    life.at(0, p.init())
    life.at(1, p.add(0, 0), life.offsets(0, 0, 0, p0=5, p1=7))
    life.at(2, life.offsets(0, 0, 1, p0=6))
    life.at(4, p.end(0, 0, accepted=2))
    life.at(5, p.written(0, 0))
    life.at(10, p.add(0, 1), life.offsets(0, 1, 0, p0=9))
    life.at(14, p.abort(reason="INC-512"), p.written(0, 1))
    life.at(20, p.add(0, 2))
    life.at(22, p.init(client="b"), p.written(0, 2))
    life.at(23, p.init(client="b"))
    life.at(25, life.offsets(0, 4, 0, p1=8))
    _of_kafka(life)
    return life


def _of_kafka(life: TransactionLife) -> None:
    decided = life.talk.next_offset + 1  # behind a tick
    life.at(30, life.pending("kafka", p0=1))
    life.at(32, driving.ended(committed=[decided]))
    dropped = life.talk.next_offset + 1
    life.at(33, life.pending("kafka", p0=2))
    life.at(35, driving.ended(aborted=[dropped]))
    overtaken = life.talk.next_offset + 1
    life.at(36, life.pending("kafka", p0=3, p1=4))
    life.at(37, driving.commit("tool", group="kafka", offsets=rows(p0=10)))
    life.at(38, driving.ended(committed=[overtaken]))
    older = life.talk.next_offset + 1
    life.at(40, life.pending("kafka", p2=1))
    younger = life.talk.next_offset + 1
    life.at(41, life.pending("kafka", p2=2))
    life.at(42, driving.ended(committed=[younger]))
    life.at(43, driving.ended(aborted=[older]))
    life.at(44, life.pending("kafka", p3=5))
