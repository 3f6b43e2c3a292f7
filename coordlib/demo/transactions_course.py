"""The course of the act `transactions`: a copier dies inside its transaction, and then the job."""

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from coordlib.demo import show
from coordlib.demo.act import JOB_ARGS
from coordlib.demo.copy_witness import COMMITTED, CopyWitness, Unit
from coordlib.demo.members import COPIER, Members
from coordlib.demo.production import Production
from coordlib.demo.show import Live
from coordlib.demo.watch import Looking
from coordlib.local.progress import phase
from coordlib.local.stack import Stack

VICTIM: Final = "copier-1"
OTHER: Final = "copier-2"
#: After that time Kafka aborts what the victim has left open.
TRANSACTION_TIMEOUT_MS: Final = 8_000


class Course(Looking[CopyWitness]):
    """Two copiers, the records that they copy, and what is done to them.

    Args:
        records: that are to be copied.
        first: copied before something happens.
    """

    def __init__(
        self,
        stack: Stack,
        members: Members[CopyWitness],
        live: Live,
        production: Production,
        *,
        records: int,
        first: int,
        sink: str,
    ) -> None:
        super().__init__(stack, members, live)
        self.production = production
        self._records, self._first, self._sink = records, first, sink
        self._copied: set[int] = set()
        self._counted: dict[str, int] = {}
        #: The unit in which the victim was killed.
        self.killed_unit = Unit(VICTIM, -1, -1)
        #: From when to when no job ran.
        self.down = (datetime.max.replace(tzinfo=UTC),) * 2

    def play(self) -> None:
        """From the first copier until everything is copied."""
        self._begin()
        self._kill()
        self._kill_job()
        what = f"{OTHER} waits for the decision about the partitions of {VICTIM}, then goes on"
        with phase(self.live, what):
            self.until("Everything is copied", lambda: self.copied() >= self._records)
        with phase(self.live, f"Stopping {OTHER}"):
            self.members.stop()

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

    def _begin(self) -> None:
        with phase(self.live, f"Starting {VICTIM} and {OTHER}, two copiers in one group"):
            for name in (VICTIM, OTHER):
                self.members.start(name, COPIER, **self._own(name))
            self.until("Both have partitions", self._both_have_partitions)
        self.live(f"Producing {self._records:,} records")
        self.production.start()
        self.until("Both copy", lambda: self.copied() >= self._first // 2)

    def _own(self, name: str) -> Mapping[str, Any]:
        return {
            "sink": self._sink,
            "hold": str(self._hold_of(name)),
            "transactional_id": f"{self._sink}-{name}",
            "transaction_timeout_ms": TRANSACTION_TIMEOUT_MS,
        }

    def _both_have_partitions(self) -> bool:
        return all(self.members.witnesses[name].partitions for name in (VICTIM, OTHER))

    def _kill(self) -> None:
        """SIGKILL to the victim, whose offsets are accepted and whose records are written."""
        victim = self.members.witnesses[VICTIM]
        self._hold_of(VICTIM).touch()
        self.production.go_on()  # or it would have nothing more to copy
        self.until(f"The group has accepted a unit of {VICTIM}", lambda: victim.waits_accepted)
        self.members.kill(VICTIM)
        victim.read_on()
        self.killed_unit = victim.units[-1]
        self.live(
            f"Killed {VICTIM} (SIGKILL) between acceptance and commit, with "
            f"{len(self.killed_unit.records)} records in its transaction; it owned "
            f"{show.partitions_text(victim)}"
        )

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

    def _text(self) -> str:
        owners = "  ".join(
            f"{name}: {show.partitions_text(self.members.witnesses[name])}"
            for name in self.members.running
        )
        percent = self.copied() * 100 // self._records
        return (
            f"produced {len(self.production.placed):,}  copied {self.copied():,} ({percent} %)  "
            f"{owners}"
        )
