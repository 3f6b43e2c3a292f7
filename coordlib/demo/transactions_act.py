"""The act `transactions`: a topic is copied exactly once, and written into a table, likewise.

Two copiers are in one group, and each unit of their work is a transaction of Kafka with the group's
offsets in it. One copier is killed when the group has accepted its offsets and nothing is committed
yet; then the job is. What was left open must not count, and nobody may begin behind or before it.

Two Spark queries are in another group, and write the copy into a Delta table, whose commits decide
about their offsets. One is killed when the table has its batch and nobody was told. What was
written must count, and nobody may write it again.
"""

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from coordlib.client.groups.machine import offset_of
from coordlib.core.wire.envelope import shard_of
from coordlib.demo import facts as of
from coordlib.demo import recorded, show
from coordlib.demo.act import HISTORY_TIMEOUT_S, NAME, Playable
from coordlib.demo.copy_witness import ABORTED, COMMITTED, UNKNOWN, CopyWitness
from coordlib.demo.members import Members
from coordlib.demo.production import Production
from coordlib.demo.table_facts import batches_in
from coordlib.demo.table_verdict import TableFacts
from coordlib.demo.table_verdict import judge as judge_table
from coordlib.demo.transactions_course import Course, Plan
from coordlib.demo.transactions_facts import copies_in, decisions_in_delta
from coordlib.demo.transactions_verdict import IS_COMMITTED, CopyFacts, judge
from coordlib.demo.verdict import Check
from coordlib.kafka.cluster import create_topic
from coordlib.local.progress import phase
from coordlib.local.stack import Stack


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionsAct(Playable):
    """An act of copiers, from a topic to another one, and of writers, from there to a table."""

    sink: str
    #: Of the writers.
    writers: str
    records: int
    per_second: int
    #: Numbers of records after which none is produced: until the first ones are copied and written,
    #: and until a writer is killed.
    holds: tuple[int, int]
    partitions: int = 4

    def play(self, stack: Stack, live: show.Live) -> tuple[CopyFacts, TableFacts]:
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
            recorded.record(
                stack.home / self.file,
                members.witnesses.values(),
                members.killed_ns,
                self.topic,
                self.group,
            )
            return self._gather(stack, course, client)

    def tell(
        self, facts: tuple[CopyFacts, TableFacts], home: Path, print_table: show.PrintTable
    ) -> list[Check]:
        copy, table = facts
        checks = [*judge(copy), *judge_table(table), recorded.check(home / self.file)]
        show.act(self.title)
        _show_units(copy, print_table)
        _show_decisions(copy, print_table)
        _show_batches(table, print_table)
        show.verdict(checks)
        return checks

    def looks(self) -> list[str]:
        return [
            f"coord groups history {self.group} --stack {NAME}",
            f'coord sql --stack {NAME} "select type, count(*) from events '
            f"where group_id = '{self.group}' and type like 'Offsets%' group by type\"",
            f"coord groups history {self.writers} --owners --stack {NAME}",
        ]

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


def _show_units(facts: CopyFacts, print_table: show.PrintTable) -> None:
    print("\nUnits of work with records, from the copiers' files, and the copy")
    names = sorted({each.copier for each in facts.units})
    units = Counter((each.copier, each.outcome) for each in facts.units if each.records)
    written = Counter(each.copier for each in facts.written)
    visible = Counter(each.copier for each in facts.copies)
    print_table(
        ["COPIER", "COMMITTED", "ABORTED", "OPEN", "RECORDS-WRITTEN", "RECORDS-VISIBLE"],
        [
            (
                name,
                *(units[name, outcome] for outcome in (COMMITTED, ABORTED, UNKNOWN)),
                *(written[name], visible[name]),
            )
            for name in names
        ],
    )


def _show_decisions(facts: CopyFacts, print_table: show.PrintTable) -> None:
    """Those that did not go through, which are few; the others waited for a batch or two."""
    print("\nOffsets that were accepted and dropped, from Delta")
    print_table(
        ["TRANSACTION", "COPIER", "PARTITIONS", "PENDING-SINCE", "DROPPED"],
        [
            (
                each.transaction,
                each.copier,
                ",".join(map(str, sorted(each.offsets))),
                each.since,
                each.decided,
            )
            for each in facts.decisions
            if each.outcome != IS_COMMITTED
        ],
    )


def _show_batches(facts: TableFacts, print_table: show.PrintTable) -> None:
    """How many of each writer, and those about which another one has found out."""
    senders = {offset_of(each.transaction): each.copier for each in facts.decisions}
    batches, rows = Counter[str](), Counter[str]()
    for batch in facts.batches:
        name = senders.get(batch.token, "nobody")
        batches[name] += 1
        rows[name] += len(batch.rows)
    print("\nBatches in the Delta table")
    print_table(["WRITER", "BATCHES", "ROWS"], [(e, batches[e], rows[e]) for e in sorted(batches)])
    print("\nOffsets about which another one has found out, from Delta")
    print_table(
        ["TRANSACTION", "WRITER", "FOUND-BY", "PARTITIONS", "PENDING-SINCE", "DECIDED", "OUTCOME"],
        [
            (
                *(each.transaction, each.copier, each.by, ",".join(map(str, sorted(each.offsets)))),
                *(each.since, each.decided, each.outcome),
            )
            for each in facts.decisions
            if each.by
        ],
    )


ACT: Final = TransactionsAct(
    title="Act transactions: a topic is copied, and written into a table, exactly once",
    topic="readings",
    sink="readings-copy",
    group="copiers",
    writers="copy-writers",
    records=10_000,
    per_second=1_500,
    holds=(3_000, 6_000),
    file=recorded.TRANSACTIONS_FILE,
)
