"""What an act is: a topic, a group whose members share it, and what is done to them."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from coordlib.core.wire.envelope import shard_of
from coordlib.demo import facts as of
from coordlib.demo import history as of_members
from coordlib.demo import show
from coordlib.demo.members import Members
from coordlib.demo.production import Production
from coordlib.demo.verdict import Check, Facts, judge
from coordlib.demo.watch import Watch
from coordlib.demo.witness import Witness
from coordlib.errors import CannotReach, NotReady
from coordlib.kafka.cluster import create_topic
from coordlib.local.progress import phase
from coordlib.local.stack import Stack

#: Name of the stack, and prefix of its topics.
NAME: Final = "demo"
JOB_ARGS: Final = (
    *("--set", "group.initial_rebalance_delay_ms=0"),
    *("--set", "engine.archive_interval_ms=5000"),
    *("--set", "engine.lag_interval_ms=2000"),  # an act is short: else its lag has three samples
)
HISTORY_TIMEOUT_S = 120.0
#: Records that the victim has read and not committed when it is killed, so that some must be read
#: again.
UNCOMMITTED_MIN: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """An act of members that share the partitions of a topic: its group and its course."""

    title: str
    topic: str
    group: str
    #: File of the history that is recorded, in the stack's folder.
    file: str

    records: int
    per_second: int
    #: Numbers of records after which none is written until the course of the act goes on.
    holds: tuple[int, ...]
    #: The member that is killed.
    victim: str
    #: The course of the act, until the last members share the partitions.
    course: Callable[["Act", Watch], None]
    #: Partition that the victim had at its end -> its committed offset.
    last_commits: Callable[[Facts], Mapping[int, int]]
    show_owners: Callable[[Facts, show.PrintTable], None]
    partitions: int = 6
    #: Configuration of a CoordinatedConsumer, beside that of all members.
    config: Mapping[str, Any] = field(default_factory=dict)

    def play(self, stack: Stack, live: show.Live) -> Facts:
        """Run members and records until all are consumed and archived."""
        self._create_topic(stack, live)
        servers = stack.bootstrap_servers
        with (
            Members(stack.home, self.topic, self.config_of(servers), Witness) as members,
            Production(
                servers, self.topic, self.records, self.per_second, self.holds
            ) as production,
        ):
            watch = Watch(
                *(stack, members, production, live),
                records=self.records,
                partitions=self.partitions,
            )
            self.course(self, watch)
            production.go_on()  # the last records are held until then, for machines of any speed
            watch.all_consumed()
            with phase(live, "Stopping the members: they commit and leave"):
                members.stop()
            of_members.record(
                stack.home / self.file,
                members.witnesses.values(),
                members.killed_ns,
                self.topic,
                self.group,
                watch.rewound,
            )
            return self.gather(stack, watch)

    def tell(self, facts: Facts, print_table: show.PrintTable) -> list[Check]:
        """Show the tables, and whether the promises hold."""
        checks = judge(facts, self.last_commits(facts))
        show.act(self.title)
        if facts.generations:
            show.generations(facts, print_table)
        self.show_owners(facts, print_table)
        show.partitions(facts, self.last_commits(facts), print_table)
        show.verdict(checks)
        return checks

    def config_of(self, servers: str) -> dict[str, Any]:
        """The configuration of all members."""
        return {
            "group.id": self.group,
            "bootstrap.servers": servers,
            "coord.prefix": NAME,
            "auto.offset.reset": "earliest",
            "session.timeout.ms": 10_000,
            "max.poll.interval.ms": 20_000,
            "heartbeat.interval.ms": 2_000,
            **self.config,
        }

    def looks(self) -> list[str]:
        """Commands that show what the act has left behind."""
        return [
            f"coord groups history {self.group} --owners --stack {NAME}",
            f'coord sql --stack {NAME} "select * from ownership"',
        ]

    def produce(self, watch: Watch) -> None:
        watch.live(f"Producing {self.records:,} records, {self.per_second} a second")
        watch.production.start()

    def kill(self, watch: Watch) -> None:
        """SIGKILL to the victim, which has read records that it has not committed."""
        victim = watch.members.witnesses[self.victim]
        watch.members.kill(self.victim)
        victim.read_on()
        watch.live(self.killed_text(victim))

    def killed_text(self, victim: Witness) -> str:
        return (
            f"Killed {self.victim} (SIGKILL) in generation {victim.generation} after "
            f"{len(victim.consumed):,} records, {victim.uncommitted} of them not committed; it "
            f"owned {show.partitions_text(victim)}"
        )

    def _create_topic(self, stack: Stack, live: show.Live) -> None:
        what = f"Creating the data topic {self.topic} with {self.partitions} partitions"
        with phase(live, what):
            client = {"bootstrap.servers": stack.bootstrap_servers}
            try:
                create_topic(client, self.topic, self.partitions)
            except CannotReach as problem:
                raise NotReady(problem.what, problem.where, str(stack.home)) from problem

    def gather(self, stack: Stack, watch: Watch) -> Facts:
        """The facts of an act that is over, once Delta has all of them."""
        live, witnesses = watch.live, watch.members.witnesses.values()
        history = of.History(stack.tables, self.group, self.topic)
        client: dict[str, Any] = {"bootstrap.servers": stack.bootstrap_servers}
        shard = shard_of(self.group, stack.shards)
        topic = f"{NAME}.committed"
        committed = of.committed_in_kafka(client, topic, shard, self.group, self.topic)
        with phase(live, "Waiting until Delta has the whole history"):
            deadline = time.monotonic() + HISTORY_TIMEOUT_S
            while not history.is_complete(committed) and time.monotonic() < deadline:
                live.show(f"{history.events():,} events of the group are in Delta, not yet its end")
                time.sleep(0.5)
        with phase(live, "Reading owners and commits from Delta, log ends from the broker"):
            return Facts(
                records=self.records,
                placed=watch.production.placed,
                consumed=[each for witness in witnesses for each in witness.consumed],
                generations=history.generations(),
                owners=history.owners(),
                commits=history.commits(),
                committed=committed,
                committed_in_history=history.committed(),
                log_ends=of.log_ends(client, self.topic, self.partitions),
                killed=self.victim,
                tenures=history.tenures(),
                history=of_members.read(stack.home / self.file),
            )
