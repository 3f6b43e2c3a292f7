"""The act `brokers`: three processes keep a store's partitions, and a controller says who leads.

Clients put and get all the time, while the leader of most is killed, another one is suspended
beyond its session and goes on, and a third is shut down in order.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from coordlib.checking import history
from coordlib.demo import recorded, show
from coordlib.demo.act import HISTORY_TIMEOUT_S, NAME, Playable
from coordlib.demo.brokers_course import Course
from coordlib.demo.brokers_facts import ClusterHistory
from coordlib.demo.brokers_verdict import BrokersFacts, Row, judge
from coordlib.demo.members import Members
from coordlib.demo.store_witness import StoreWitness
from coordlib.demo.verdict import Check
from coordlib.examples.replicated_store import CLUSTER
from coordlib.local.progress import phase
from coordlib.local.stack import Stack


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokersAct(Playable):
    """An act of brokers, which share nothing but a cluster."""

    def play(self, stack: Stack, live: show.Live) -> BrokersFacts:
        config = {"bootstrap.servers": stack.bootstrap_servers, "coord.prefix": NAME}
        with Members(stack.home, self.topic, config, StoreWitness) as members:
            course = Course(stack, members, live, self.topic)
            with course.traffic:
                course.play()
            return self._gather(stack, course, live)

    def tell(self, facts: BrokersFacts, home: Path, print_table: show.PrintTable) -> list[Check]:
        checks = [*judge(facts), recorded.check(home / self.file)]
        show.act(self.title)
        show.leaders(facts.leaders, print_table)
        show.verdict(checks)
        return checks

    def looks(self) -> list[str]:
        return [
            f"coord cluster history {self.group} --stack {NAME}",
            f'coord sql --stack {NAME} "select * from leaders order by topic, partition, fence"',
        ]

    def _gather(self, stack: Stack, course: Course, live: show.Live) -> BrokersFacts:
        delta = ClusterHistory(stack.tables, self.group, self.topic)
        with phase(live, "Waiting until Delta has the whole history"):
            in_kafka, in_delta = _at_the_end(course, delta, live)
        found = [*course.happened(), *delta.changes()]
        happened = sorted(found, key=lambda each: each.t_ms)
        history.write(stack.home / self.file, happened)
        return BrokersFacts(
            topic=self.topic,
            history=happened,
            leaders=delta.leaders(),
            in_sync=delta.in_sync(),
            states=delta.states(),
            in_kafka=in_kafka,
            in_delta=in_delta,
            killed=course.killed,
            suspended=course.suspended,
            stopped=course.stopped,
        )


def _at_the_end(
    course: Course, delta: ClusterHistory, live: show.Live
) -> tuple[Mapping[int, Row], Mapping[int, Row]]:
    """The partitions in Kafka and in Delta, once the last broker has gone and both are the same;
    else as they are, and the verdict says so."""
    deadline = time.monotonic() + HISTORY_TIMEOUT_S
    while True:
        # A broker leaves without waiting for the controller, which has then more to do.
        in_kafka, in_delta = course.partitions(), delta.partitions()
        is_over = all(row.leader < 0 for row in in_kafka.values())
        if (is_over and in_kafka == in_delta) or time.monotonic() > deadline:
            return in_kafka, in_delta
        live.show(
            f"{sum(in_kafka.get(n) == row for n, row in in_delta.items())} of "
            f"{len(in_kafka)} partitions are in Delta as they are in Kafka"
        )
        time.sleep(0.5)


ACT: Final = BrokersAct(
    title="Act brokers: a replicated store, whose leaders a controller without servers elects",
    topic="entries",
    group=CLUSTER,
    file=recorded.BROKERS_FILE,
)
