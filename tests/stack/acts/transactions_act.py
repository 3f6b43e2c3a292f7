"""The act `transactions`: a topic is copied exactly once, and written into a table, likewise.

Two copiers are in one group, and each unit of their work is a transaction of Kafka with the group's
offsets in it. One copier is killed when the group has accepted its offsets and nothing is committed
yet; then the job is. What was left open must not count, and nobody may begin behind or before it.

Two Spark queries are in another group, and write the copy into a Delta table, whose commits decide
about their offsets. One is killed when the table has its batch and nobody was told. What was
written must count, and nobody may write it again.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from coordlib.core.wire.envelope import shard_of
from coordlib.demo import facts as of
from coordlib.demo import history, show
from coordlib.demo.act import NAME
from coordlib.demo.members import Members
from coordlib.demo.production import Production
from coordlib.demo.verdict import Check
from coordlib.kafka.cluster import create_topic
from coordlib.local.progress import phase
from coordlib.local.stack import Stack
from tests.stack.acts import HISTORY_TIMEOUT_S
from tests.stack.acts.copy_witness import CopyWitness
from tests.stack.acts.table_facts import batches_in
from tests.stack.acts.table_verdict import TableFacts
from tests.stack.acts.table_verdict import judge as judge_table
from tests.stack.acts.transactions_course import Course, Plan
from tests.stack.acts.transactions_facts import copies_in, decisions_in_delta
from tests.stack.acts.transactions_verdict import CopyFacts, judge


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionsAct:
    """An act of copiers, from a topic to another one, and of writers, from there to a table."""

    topic: str
    #: Of the copiers.
    group: str
    sink: str
    #: Of the writers.
    writers: str
    records: int
    per_second: int
    #: Numbers of records after which none is produced: until the first ones are copied and written,
    #: and until a writer is killed.
    holds: tuple[int, int]
    partitions: int = 4

    def play(self, stack: Stack, live: show.Live, path: Path) -> list[Check]:
        """Play it, record it there, and judge it."""
        client = {"bootstrap.servers": stack.bootstrap_servers}
        with phase(live, f"Creating the topics {self.topic} and {self.sink}"):
            for topic in (self.topic, self.sink):
                create_topic(client, topic, self.partitions)
        with (
            Members(stack.home, self.topic, self._config_of(client), CopyWitness) as members,
            Members(stack.home, self.sink, self._config_of_writers(client), CopyWitness) as writers,
            Production(
                stack.bootstrap_servers, self.topic, self.records, self.per_second, self.holds
            ) as production,
        ):
            course = Course(stack, members, live, writers, production, self._plan(stack.home))
            course.play()
            history.record(
                path,
                members.witnesses.values(),
                members.killed_ns,
                self.topic,
                self.group,
            )
            copy, table = self._gather(stack, course, client)
            return [*judge(copy), *judge_table(table)]

    def _config_of(self, client: Mapping[str, str]) -> dict[str, Any]:
        return {
            **client,
            "group.id": self.group,
            "coord.prefix": NAME,
            "auto.offset.reset": "earliest",
            "session.timeout.ms": 6_000,
            "max.poll.interval.ms": 20_000,
            "heartbeat.interval.ms": 1_000,
        }

    def _config_of_writers(self, client: Mapping[str, str]) -> dict[str, Any]:
        return {
            **client,
            "group.id": self.writers,
            "group.protocol": "assigned",
            "coord.prefix": NAME,
            "auto.offset.reset": "earliest",
            "session.timeout.ms": 8_000,
            # A query is started in the thread that polls; on a busy machine that takes its time.
            "max.poll.interval.ms": 60_000,
            "heartbeat.interval.ms": 2_000,
        }

    def _plan(self, home: Path) -> Plan:
        return Plan(
            records=self.records,
            first=self.holds[0],
            sink=self.sink,
            partitions=self.partitions,
            table=home / f"{self.topic}-table",
        )

    def _gather(
        self, stack: Stack, course: Course, client: Mapping[str, str]
    ) -> tuple[CopyFacts, TableFacts]:
        """The facts of an act that is over, once Delta has all of them."""
        live = course.live
        committed, in_history = _archived(stack, live, client, self.group, self.topic)
        by_writers, of_writers = _archived(stack, live, client, self.writers, self.sink)
        with phase(live, "Reading the copy, committed and as it stands in the log, and the table"):
            copies = copies_in(client, self.sink, self.partitions, is_committed=True)
            written = copies_in(client, self.sink, self.partitions, is_committed=False)
            batches = batches_in(course.plan.table)
        copy = CopyFacts(
            records=self.records,
            placed=course.production.placed,
            copies=copies,
            written=written,
            units=[each for one in course.members.witnesses.values() for each in one.units],
            killed=course.killed_unit,
            decisions=decisions_in_delta(stack.tables, self.group),
            committed=committed,
            committed_in_history=in_history,
            log_ends=of.log_ends(client, self.topic, self.partitions),
            down=course.down,
        )
        return copy, TableFacts(
            records=self.records,
            copies=copies,
            batches=batches,
            units=[each for one in course.writers.witnesses.values() for each in one.units],
            killed=course.killed_batch,
            decisions=decisions_in_delta(stack.tables, self.writers),
            committed=by_writers,
            committed_in_history=of_writers,
        )


def _archived(
    stack: Stack, live: show.Live, client: Mapping[str, str], group: str, topic: str
) -> tuple[dict[int, int], dict[int, int]]:
    """What a group has committed, in Kafka and in Delta, once that has its whole history."""
    shard = shard_of(group, stack.shards)
    committed = of.committed_in_kafka(client, f"{NAME}.committed", shard, group, topic)
    history = of.History(stack.tables, group, topic)
    with phase(live, f"Waiting until Delta has the whole history of {group}"):
        deadline = time.monotonic() + HISTORY_TIMEOUT_S
        while not history.is_complete(committed) and time.monotonic() < deadline:
            live.show(f"{history.events():,} events of the group are in Delta, not yet its end")
            time.sleep(0.5)
    return committed, history.committed()


ACT: Final = TransactionsAct(
    topic="readings",
    sink="readings-copy",
    group="copiers",
    writers="copy-writers",
    records=10_000,
    per_second=1_500,
    holds=(3_000, 6_000),
)
