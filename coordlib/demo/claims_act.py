"""The act `claims`: consumers claim partitions in a log; nobody coordinates, and no job is needed.

Three consumers share a topic. A second process of one of them takes over from the first. Then the
job is killed, and a consumer after it: the others take its partitions over. The group is paused,
and set back. The job that starts then writes the history of all of it.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from coordlib.client.claims import ClaimsAdmin
from coordlib.client.machine.signals import TopicPartition
from coordlib.client.shell.clock import boottime_ns
from coordlib.demo import facts as of
from coordlib.demo import recorded, show
from coordlib.demo.act import HISTORY_TIMEOUT_S, JOB_ARGS, NAME, Act
from coordlib.demo.claims_facts import Log, claims_in_delta
from coordlib.demo.claims_verdict import ClaimsFacts, judge, last_positions
from coordlib.demo.members import CLAIMS
from coordlib.demo.verdict import Facts
from coordlib.demo.watch import Watch
from coordlib.demo.witness import Deed, Witness
from coordlib.history.tenures import Tenure
from coordlib.local.progress import phase
from coordlib.local.stack import Stack

#: Its heartbeat interval is 6 s, so that a dead owner's partitions are free after 12 s.
COORDINATION: Final = "__marshal.6s"
RECORDS: Final = 4_000
FIRST_HOLD: Final = 1_200
SECOND_HOLD: Final = 3_000
OLDER: Final = "claimer-1"
NEWER: Final = "claimer-1-again"
VICTIM: Final = "claimer-2"
THIRD: Final = "claimer-3"
OPERATOR: Final = "demo-operator"
#: Records of each partition that are read again after the group was set back.
SET_BACK: Final = 50
PAUSE_S: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimsAct(Act):
    """An act whose group needs no coordinator."""

    def config_of(self, servers: str) -> dict[str, Any]:
        return {
            "group.id": self.group,
            "bootstrap.servers": servers,
            "coord.prefix": NAME,
            "coordination.topic": self.claims,
        }

    def looks(self) -> list[str]:
        return [
            f"coord claims history {self.group} --stack {NAME}",
            f'coord sql --stack {NAME} "select * from claims order by topic, partition, since"',
        ]

    def killed_text(self, victim: Witness) -> str:
        return (
            f"Killed {self.victim} (SIGKILL) after {len(victim.consumed):,} records; it owned "
            f"{show.partitions_text(victim)}"
        )

    def gather(self, stack: Stack, watch: Watch) -> Facts:
        client: dict[str, Any] = {"bootstrap.servers": stack.bootstrap_servers}
        with phase(watch.live, f"Reading {self.claims} from its beginning"):
            log = Log(self.group, self.topic).read(client, self.claims, NAME)
        with phase(watch.live, "Waiting until Delta has the whole history"):
            self._wait_for_delta(stack.tables, log, watch)
        claims = claims_in_delta(stack.tables, self.group, self.topic)
        return ClaimsFacts(
            records=self.records,
            placed=watch.production.placed,
            consumed=[
                replace(each, member=_client_of(name))
                for name, witness in watch.members.witnesses.items()
                for each in witness.consumed
            ],
            generations=(),
            owners=(),
            commits=(),
            committed=log.positions,
            committed_in_history={
                each.partition: each.last for each in claims if each.last is not None
            },
            log_ends=of.log_ends(client, self.topic, self.partitions),
            killed=self.victim,
            tenures=[
                Tenure(self.topic, e.partition, e.client, -1, e.epoch, e.since, e.until)
                for e in claims
            ],
            claims=claims,
            won=frozenset(log.won),
            twin=OLDER,
            twin_claims=sum(
                len(deed.partitions)
                for deed in watch.members.witnesses[OLDER].deeds
                if deed.what == "lost"
            ),
            operator=OPERATOR,
            set_back=watch.rewound[-1].offsets,
            down=watch.down,
        )

    def _wait_for_delta(self, tables: Path, log: Log, watch: Watch) -> None:
        """Until it has the end of every claim; else the verdict says what it lacks."""
        deadline = time.monotonic() + HISTORY_TIMEOUT_S
        while time.monotonic() < deadline:
            found = claims_in_delta(tables, self.group, self.topic)
            ended = sum(each.until is not None for each in found)
            if ended >= len(log.won):
                return
            watch.live.show(f"{ended} of {len(log.won)} claims are in Delta with their ends")
            time.sleep(0.5)


def _client_of(name: str) -> str:
    return OLDER if name == NEWER else name


def _course(act: Act, watch: Watch) -> None:
    _share(watch)
    act.produce(watch)
    watch.until("All read", lambda: watch.consumed() >= FIRST_HOLD)
    _start_twin(watch)
    watch.production.go_on()
    victim, read = watch.members.witnesses[VICTIM], FIRST_HOLD + (SECOND_HOLD - FIRST_HOLD) // 3
    before = len(victim.consumed)
    watch.until(
        f"{VICTIM} reads on",
        lambda: watch.consumed() >= read and len(victim.consumed) > before,
    )
    down_since = _kill_job(watch)
    _kill(act, watch)
    _set_back(act, watch)
    watch.down = down_since, datetime.now(UTC)
    watch.stack.start_job(JOB_ARGS, progress=watch.live)
    watch.is_job_wanted = True


def _share(watch: Watch) -> None:
    """The limits leave partitions for the third one, and let it take over those of another."""
    live, members = watch.live, watch.members
    first = (OLDER, VICTIM)
    with phase(live, f"Starting {', '.join((*first, THIRD))}: they claim without a coordinator"):
        for name in first:
            members.start(name, CLAIMS, maximum_claims=2)
        watch.until(
            "Two have their partitions",
            lambda: all(len(members.witnesses[name].partitions or ()) == 2 for name in first),
        )
        members.start(THIRD, CLAIMS, maximum_claims=4)
        watch.until("They share the partitions", lambda: watch.is_held_by((*first, THIRD)))


def _start_twin(watch: Watch) -> None:
    """A second process of a client id: the newer one goes on."""
    live, members = watch.live, watch.members
    older = members.witnesses[OLDER]
    had = older.partitions or ()
    live(f"Starting a second process of {OLDER}, which owns {show.partitions_text(older)}")
    members.start(NEWER, CLAIMS, maximum_claims=2, client_id=OLDER)
    newer = members.witnesses[NEWER]
    watch.until(
        "The newer process has the older one's partitions",
        lambda: newer.partitions == had and not older.partitions,
    )
    live("The newer process has taken them back, the older one has stopped reading")
    members.stop(OLDER)


def _kill_job(watch: Watch) -> datetime:
    """SIGKILL to the job, which nobody needs. Returns when it was gone."""
    watch.is_job_wanted = False
    watch.stack.kill_job()
    watch.live("Killed the job (SIGKILL)")
    return datetime.now(UTC)


def _kill(act: Act, watch: Watch) -> None:
    act.kill(watch)
    left = (NEWER, THIRD)
    watch.until("The others have its partitions", lambda: watch.is_held_by(left))
    watch.live("Its claims have expired, and the others own its partitions, without a job")


def _set_back(act: Act, watch: Watch) -> None:
    """Pause the group, and set each partition back."""
    members = watch.members
    watch.until("All are read", lambda: watch.consumed() >= SECOND_HOLD)
    config = {"bootstrap.servers": watch.stack.bootstrap_servers, "client.id": OPERATOR}
    with ClaimsAdmin(config | {"coord.prefix": NAME}, coordination_topic=act.claims) as admin:
        admin.pause(act.group, PAUSE_S)
        watch.until(
            "All have let go",
            lambda: not any(members.witnesses[name].partitions for name in members.running),
        )
        watch.live(f"The group is paused; setting its positions back by {SET_BACK} records")
        targets = {
            partition: max(0, 1 + end - SET_BACK) for partition, end in _read_to(watch).items()
        }
        watch.rewound.append(Deed(boottime_ns(), "rewound", offsets=targets))
        admin.set_positions(
            act.group, {TopicPartition(act.topic, each): to for each, to in targets.items()}
        )
    watch.until("They share the partitions again", lambda: watch.is_held_by(members.running))
    watch.live("The group goes on from there")


def _read_to(watch: Watch) -> Mapping[int, int]:
    """Partition -> largest offset that anybody has read."""
    found: dict[int, int] = {}
    for witness in watch.members.witnesses.values():
        for each in witness.consumed:
            found[each.partition] = max(each.offset, found.get(each.partition, -1))
    return found


def _show_claims(facts: Facts, print_table: show.PrintTable) -> None:
    assert isinstance(facts, ClaimsFacts)
    show.claims(facts.claims, print_table)


def _judge(facts: Facts) -> list[Any]:
    assert isinstance(facts, ClaimsFacts)
    return list(judge(facts))


def _last_positions(facts: Facts) -> dict[int, int]:
    assert isinstance(facts, ClaimsFacts)
    return last_positions(facts)


ACT: Final = ClaimsAct(
    title="Act claims: consumers that claim partitions in a log, and a job that was down",
    topic="payments",
    group="payment-readers",
    records=RECORDS,
    per_second=400,
    holds=(FIRST_HOLD, SECOND_HOLD),
    victim=VICTIM,
    file=recorded.CLAIMS_FILE,
    claims=COORDINATION,
    course=_course,
    judge=_judge,
    last_commits=_last_positions,
    show_owners=_show_claims,
)
