"""The course of the act `transactions`: a writer dies, a copier inside its transaction, the job."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from coordlib.demo import show
from coordlib.demo.act import JOB_ARGS
from coordlib.demo.members import Members
from coordlib.demo.production import Production
from coordlib.demo.show import Live
from coordlib.demo.watch import Looking
from coordlib.local.progress import phase
from coordlib.local.stack import Stack
from tests.stack.acts.copy_witness import COMMITTED, CopyWitness, Unit
from tests.stack.acts.table_facts import rows_in

#: The programs of copiers and writers.
COPIER: Final = "tests.stack.acts.copier_member"
WRITER: Final = "tests.stack.acts.writer_member"
VICTIM: Final = "copier-1"
OTHER: Final = "copier-2"
WRITER_VICTIM: Final = "writer-1"
WRITERS: Final = (WRITER_VICTIM, "writer-2")
#: After that time Kafka aborts what the victim has left open.
TRANSACTION_TIMEOUT_MS: Final = 8_000
_ROWS_EVERY_S: Final = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is to be copied, and to where."""

    records: int
    #: Records that are copied before something happens.
    first: int
    sink: str
    #: Of the copy.
    partitions: int
    table: Path


class Course(Looking[CopyWitness]):
    """Two copiers, two writers of the copy, the records, and what is done to them."""

    def __init__(
        self,
        stack: Stack,
        members: Members[CopyWitness],
        live: Live,
        writers: Members[CopyWitness],
        production: Production,
        plan: Plan,
    ) -> None:
        super().__init__(stack, members, live)
        self.writers, self.production = writers, production
        self.plan = plan
        self._copied: set[int] = set()
        self._counted: dict[str, int] = {}
        self._rows, self._rows_seen_s = 0, 0.0
        #: The unit, and the batch, in which a victim was killed.
        self.killed_unit = Unit(VICTIM, -1, -1)
        self.killed_batch = Unit(WRITER_VICTIM, -1, -1)
        #: From when to when no job ran.
        self.down = (datetime.max.replace(tzinfo=UTC),) * 2

    def play(self) -> None:
        """From the first copier until everything is copied, and in the table."""
        self._begin()
        self._kill_writer()
        self._kill()
        self._kill_job()
        what = f"{OTHER} waits for the decision about the partitions of {VICTIM}, then goes on"
        with phase(self.live, what):
            self.until("Everything is copied", lambda: self.copied() >= self.plan.records)
        what = f"{WRITERS[1]} finds what {WRITER_VICTIM} has written, and goes on behind it"
        with phase(self.live, what):
            self.until("Everything is in the table", lambda: self.in_table() >= self.plan.records)
        with phase(self.live, f"Stopping {OTHER} and {WRITERS[1]}"):
            self.members.stop()
            self.writers.stop()

    def copied(self) -> int:
        """Records in units that their copiers know to be committed."""
        for name, witness in self.members.witnesses.items():
            # The newest one may still change.
            known, end = self._counted.get(name, 0), max(0, len(witness.units) - 1)
            for unit in witness.units[known:]:
                if unit.outcome == COMMITTED:
                    self._copied.update(unit.records)
            self._counted[name] = end
        return len(self._copied)

    def in_table(self) -> int:
        """Rows of the table, at most a moment ago: also those of which no writer knows."""
        if time.monotonic() - self._rows_seen_s > _ROWS_EVERY_S:
            self._rows, self._rows_seen_s = rows_in(self.plan.table), time.monotonic()
        return self._rows

    def _begin(self) -> None:
        for name in WRITERS:  # early: a JVM takes its time
            hold = str(self._hold_of(name))
            self.writers.start(name, WRITER, table=str(self.plan.table), hold=hold)
        with phase(self.live, f"Starting {VICTIM} and {OTHER}, two copiers in one group"):
            for name in (VICTIM, OTHER):
                self.members.start(name, COPIER, **self._own(name))
            self.until("Both have partitions", self._both_have_partitions)
        self.live(f"Producing {self.plan.records:,} records")
        self.production.start()
        self.until("Both copy", lambda: self.copied() >= self.plan.first // 2)
        with phase(self.live, f"{' and '.join(WRITERS)}, Spark queries, begin to write the copy"):
            self.until("They share its partitions, and write", self._writers_share)

    def _own(self, name: str) -> Mapping[str, Any]:
        return {
            "sink": self.plan.sink,
            "hold": str(self._hold_of(name)),
            "transactional_id": f"{self.plan.sink}-{name}",
            "transaction_timeout_ms": TRANSACTION_TIMEOUT_MS,
        }

    def _both_have_partitions(self) -> bool:
        return all(self.members.witnesses[name].partitions for name in (VICTIM, OTHER))

    def _writers_share(self) -> bool:
        found = [self.writers.witnesses[name].partitions or () for name in WRITERS]
        owned = sorted(each for some in found for each in some)
        is_shared = all(found) and owned == list(range(self.plan.partitions))
        return is_shared and self.in_table() > 0

    def _kill_writer(self) -> None:
        """SIGKILL to a writer and its JVM: the table has its batch, and nobody was told."""
        what = f"The table has a batch of {WRITER_VICTIM}"
        victim = self._killed_once_accepted(self.writers, WRITER_VICTIM, what)
        self.killed_batch = victim.units[-1]
        self.live(
            f"Killed {WRITER_VICTIM} and its JVM (SIGKILL) behind the table's commit of "
            f"{len(self.killed_batch.records)} records; it owned {show.partitions_text(victim)}"
        )

    def _kill(self) -> None:
        """SIGKILL to the victim, whose offsets are accepted and whose records are written."""
        what = f"The group has accepted a unit of {VICTIM}"
        victim = self._killed_once_accepted(self.members, VICTIM, what)
        self.killed_unit = victim.units[-1]
        self.live(
            f"Killed {VICTIM} (SIGKILL) between acceptance and commit, with "
            f"{len(self.killed_unit.records)} records in its transaction; it owned "
            f"{show.partitions_text(victim)}"
        )

    def _killed_once_accepted(
        self, among: Members[CopyWitness], name: str, what: str
    ) -> CopyWitness:
        """Hold a victim where its unit is accepted, and kill it there."""
        victim = among.witnesses[name]
        self._hold_of(name).touch()
        self.production.go_on()  # or it would have nothing more to write
        self.until(what, lambda: victim.waits_accepted)
        among.kill(name)
        victim.read_on()
        return victim

    def _kill_job(self) -> None:
        """SIGKILL to the job, which has the offsets of the victim pending."""
        since = datetime.now(UTC)
        self.is_job_wanted = False
        self.stack.kill_job()
        self.live("Killed the job (SIGKILL), and starting it again")
        self.stack.start_job(JOB_ARGS, progress=self.live)
        self.is_job_wanted = True
        self.down = since, datetime.now(UTC)

    def _hold_of(self, name: str) -> Path:
        return self.stack.home / "witnesses" / f"{name}.hold"

    def _check(self) -> None:
        self.production.check()
        self.writers.read_on()

    def _text(self) -> str:
        owners = "  ".join(
            f"{name}: {show.partitions_text(self.members.witnesses[name])}"
            for name in self.members.running
        )
        copied = self.copied()
        return (
            f"produced {len(self.production.placed):,}  copied {copied:,} "
            f"({copied * 100 // self.plan.records} %)  in the table {self.in_table():,}  {owners}"
        )
