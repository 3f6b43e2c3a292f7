"""The act `transactions`: two processes copy a topic exactly once, whatever is killed.

Both are in one group, and each unit of their work is a transaction of Kafka with the group's
offsets in it. One copier is killed when the group has accepted its offsets and nothing is committed
yet; then the job is. What was left open must not count, and nobody may begin behind or before it.
"""

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from coordlib.demo import facts as of
from coordlib.demo import recorded, show
from coordlib.demo.act import HISTORY_TIMEOUT_S, NAME, Playable
from coordlib.demo.copy_witness import ABORTED, COMMITTED, UNKNOWN, CopyWitness
from coordlib.demo.members import Members
from coordlib.demo.production import Production
from coordlib.demo.transactions_course import Course
from coordlib.demo.transactions_facts import copies_in, decisions_in_delta
from coordlib.demo.transactions_verdict import CopyFacts, judge
from coordlib.demo.verdict import Check
from coordlib.kafka.cluster import create_topic
from coordlib.local.progress import phase
from coordlib.local.stack import Stack
from coordlib.records.partitioner import shard_of


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionsAct(Playable):
    """An act of copiers, from a topic to another one."""

    sink: str
    records: int
    per_second: int
    #: Records after which none is produced until the first ones are copied.
    first: int
    partitions: int = 4

    def play(self, stack: Stack, live: show.Live) -> CopyFacts:
        client = {"bootstrap.servers": stack.bootstrap_servers}
        with phase(live, f"Creating the topics {self.topic} and {self.sink}"):
            for topic in (self.topic, self.sink):
                create_topic(client, topic, self.partitions)
        with (
            Members(stack.home, self.topic, self._config_of(client), CopyWitness) as members,
            Production(
                stack.bootstrap_servers, self.topic, self.records, self.per_second, (self.first,)
            ) as production,
        ):
            course = Course(
                *(stack, members, live, production),
                records=self.records,
                first=self.first,
                sink=self.sink,
            )
            course.play()
            recorded.record(
                stack.home / self.file,
                members.witnesses.values(),
                members.killed_ns,
                self.topic,
                self.group,
            )
            return self._gather(stack, course, client)

    def tell(self, facts: CopyFacts, home: Path, print_table: show.PrintTable) -> list[Check]:
        checks = [*judge(facts), recorded.check(home / self.file)]
        show.act(self.title)
        _show_units(facts, print_table)
        _show_decisions(facts, print_table)
        show.verdict(checks)
        return checks

    def looks(self) -> list[str]:
        return [
            f"coord groups history {self.group} --stack {NAME}",
            f'coord sql --stack {NAME} "select type, count(*) from events '
            f"where group_id = '{self.group}' and type like 'Offsets%' group by type\"",
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

    def _gather(self, stack: Stack, course: Course, client: Mapping[str, str]) -> CopyFacts:
        """The facts of an act that is over, once Delta has all of them."""
        shard = shard_of(self.group, stack.shards)
        topic = f"{NAME}.committed"
        committed = of.committed_in_kafka(client, topic, shard, self.group, self.topic)
        history = of.History(stack.tables, self.group, self.topic)
        live = course.live
        with phase(live, "Waiting until Delta has the whole history"):
            deadline = time.monotonic() + HISTORY_TIMEOUT_S
            while not history.is_complete(committed) and time.monotonic() < deadline:
                live.show(f"{history.events():,} events of the group are in Delta, not yet its end")
                time.sleep(0.5)
        with phase(live, "Reading the copy, committed and as it stands in the log"):
            copies = copies_in(client, self.sink, self.partitions, is_committed=True)
            written = copies_in(client, self.sink, self.partitions, is_committed=False)
        return CopyFacts(
            records=self.records,
            placed=course.production.placed,
            copies=copies,
            written=written,
            units=[each for one in course.members.witnesses.values() for each in one.units],
            killed=course.killed_unit,
            decisions=decisions_in_delta(stack.tables, self.group),
            committed=committed,
            committed_in_history=history.committed(),
            log_ends=of.log_ends(client, self.topic, self.partitions),
            down=course.down,
        )


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
            if each.outcome != "OffsetsCommitted"
        ],
    )


ACT: Final = TransactionsAct(
    title="Act transactions: a topic is copied exactly once, whatever is killed",
    topic="readings",
    sink="readings-copy",
    group="copiers",
    records=10_000,
    per_second=1_500,
    first=3_000,
    file=recorded.TRANSACTIONS_FILE,
)
