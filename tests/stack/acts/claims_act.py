"""The act `claims`: consumers claim partitions in a log; nobody coordinates, and no job is needed.

Three consumers share a topic. A second process of one of them takes over from the first. Then the
job is killed, and a consumer after it: the others take its partitions over. While the next job
starts, the group is paused, and set back. That job writes the history of all of it.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from coordlib.demo import facts as of
from coordlib.demo import show
from coordlib.demo.act import NAME, Act
from coordlib.demo.verdict import Facts
from coordlib.demo.watch import Watch
from coordlib.demo.witness import Consumed, Witness
from coordlib.history.views.groups import Tenure
from coordlib.local.progress import phase
from coordlib.local.stack import Stack
from tests.stack.acts import HISTORY_TIMEOUT_S, claims_course
from tests.stack.acts.claims_course import COORDINATION, NEWER, OLDER, OPERATOR, VICTIM
from tests.stack.acts.claims_facts import Log, claims_in_delta
from tests.stack.acts.claims_verdict import Claimed, ClaimsFacts, last_positions
from tests.stack.recorded import HISTORY


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimsAct(Act):
    """An act whose group needs no coordinator."""

    #: From when to when the course had the job down.
    down: list[datetime] = field(default_factory=list)

    def config_of(self, servers: str) -> dict[str, Any]:
        return {
            "group.id": self.group,
            "bootstrap.servers": servers,
            "coord.prefix": NAME,
            "coordination.topic": COORDINATION,
        }

    def killed_text(self, victim: Witness) -> str:
        return (
            f"Killed {self.victim} (SIGKILL) after {len(victim.consumed):,} records; it owned "
            f"{show.partitions_text(victim)}"
        )

    def gather(self, stack: Stack, watch: Watch) -> Facts:
        client: dict[str, Any] = {"bootstrap.servers": stack.bootstrap_servers}
        with phase(watch.live, f"Reading {COORDINATION} from its beginning"):
            log = Log(self.group, self.topic).read(client, COORDINATION, NAME)
        with phase(watch.live, "Waiting until Delta has the whole history"):
            claims = self._complete_claims(stack.tables, log, watch)
        return ClaimsFacts(
            records=self.records,
            placed=watch.production.placed,
            consumed=_consumed(watch.members.witnesses),
            generations=(),
            owners=(),
            commits=(),
            committed=log.positions,
            committed_in_history={e.partition: e.last for e in claims if e.last is not None},
            log_ends=of.log_ends(client, self.topic, self.partitions),
            killed=self.victim,
            tenures=[
                Tenure(self.topic, e.partition, e.client, -1, e.epoch, e.since, e.until)
                for e in claims
            ],
            claims=claims,
            won=frozenset(log.won),
            twin=OLDER,
            twin_claims=_claims_lost(watch.members.witnesses[OLDER]),
            operator=OPERATOR,
            set_back=watch.rewound[-1].offsets,
            down=(self.down[0], self.down[1]),
        )

    def _complete_claims(self, tables: Path, log: Log, watch: Watch) -> list[Claimed]:
        """From Delta, with the end of every claim; else the verdict says what it lacks."""
        deadline = time.monotonic() + HISTORY_TIMEOUT_S
        while True:
            found = claims_in_delta(tables, self.group, self.topic)
            ended = sum(each.until is not None for each in found)
            if ended >= len(log.won) or time.monotonic() > deadline:
                return found
            watch.live.show(f"{ended} of {len(log.won)} claims are in Delta with their ends")
            time.sleep(0.5)


def _consumed(witnesses: Mapping[str, Witness]) -> list[Consumed]:
    """All readings, by client id: the twins have one in common."""
    return [
        replace(each, member=OLDER if name == NEWER else name)
        for name, witness in witnesses.items()
        for each in witness.consumed
    ]


def _claims_lost(older: Witness) -> int:
    return sum(len(deed.partitions) for deed in older.deeds if deed.what == "lost")


def _last_positions(facts: Facts) -> dict[int, int]:
    assert isinstance(facts, ClaimsFacts)
    return last_positions(facts)


def _play(act: Act, watch: Watch) -> None:
    assert isinstance(act, ClaimsAct)
    act.down[:] = claims_course.play(act, watch)


ACT: Final = ClaimsAct(
    title="Act claims: consumers that claim partitions in a log, and a job that was down",
    topic="payments",
    group="payment-readers",
    records=4_000,
    per_second=400,
    holds=(1_200, 3_000),
    victim=VICTIM,
    file=HISTORY,
    course=_play,
    last_commits=_last_positions,
    show_owners=lambda *_: None,
)
