"""What a second cell costs: the same load on one job over both shards, and on two with one each.

By turns on one broker, each turn with a prefix, folders and jobs of its own. On a machine that has
no cores for a second job this shows what it costs beside the first, not what it adds.
"""

import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from coordlib.kafka import topics
from coordlib.local.progress import phase, to_stderr
from coordlib.local.stack import Stack
from tests.tools.bench.figures import tell, tell_machine
from tests.tools.bench.gauges import Costs
from tests.tools.bench.generator import Generator
from tests.tools.bench.load import WARM_SLICE_S, measure
from tests.tools.bench.stand import JOB_ARGS, fresh_stack

SHARDS: Final = 2
RESPONSES: Final = 16
#: Of each cell, when it is compiled enough: a turn begins with new jobs.
WARM_BATCHES: Final = 60
#: Ranges of the jobs of a turn; none: one job without a range.
TURNS: Final[dict[str, tuple[str, ...]]] = {"one job": (), "two cells": ("0-0", "1-1")}


class CostsOfAll(Costs):
    """Of several jobs, and of the broker beside them."""

    def __init__(self, broker: Stack, jobs: Sequence[Stack]) -> None:
        super().__init__(broker)
        self._of_jobs = [Costs(job) for job in jobs]

    def begin(self) -> None:
        super().begin()
        for each in self._of_jobs:
            each.begin()

    def figures(self) -> dict[str, object]:
        found = super().figures()
        for name in ("cores", "memory_mib"):
            added: Counter[str] = Counter()
            for part in (found, *(each.figures() for each in self._of_jobs)):
                roles: Any = part[name]
                added.update({role: roles[role] for role in roles if role != "generator"})
            found[name] = {role: round(used, 2) for role, used in sorted(added.items())}
        return found


@contextmanager
def _jobs(broker: Stack, prefix: str, ranges: Sequence[str]) -> Iterator[list[Stack]]:
    """The jobs of one turn, until they have begun."""
    config = {"bootstrap.servers": broker.bootstrap_servers}
    topics.create(config, prefix, SHARDS, RESPONSES, 1)
    with tempfile.TemporaryDirectory(prefix="cells-", ignore_cleanup_errors=True) as folder:
        made = []
        try:
            for number, shards in enumerate(ranges or ("",)):
                job = Stack(Path(folder) / f"{number}", prefix=prefix)
                job.broker = broker.broker
                made.append(job)
                named = ("--shards", shards) if shards else ()
                rate = ("--set", "group.new_groups_per_second_max=1000000")
                job.launch_job((*JOB_ARGS, *rate, "--without-archive", *named))
            for job in made:
                job.job.wait_until_ready()
            yield made
        finally:
            for job in made:
                job.stop_job()
                job.kill_job()


def _turn(broker: Stack, prefix: str, name: str, groups: int, members: int, seconds: int) -> None:
    rate, config = groups * members / 3, {"bootstrap.servers": broker.bootstrap_servers}
    with _jobs(broker, prefix, TURNS[name]) as jobs:
        generator = Generator(config, prefix, groups, members)
        try:
            with phase(to_stderr, f"{name}: {groups} groups of {members} join"):
                generator.settle()
            with phase(to_stderr, f"{name}: warming up"):
                while not all(
                    job.job.last_status().get("batch_id", -1) > WARM_BATCHES for job in jobs
                ):
                    generator.load(WARM_SLICE_S, rate, probes_per_second=2)
            costs = CostsOfAll(broker, jobs)
            tell("cells", name, **measure(generator, costs, seconds, rate, 4.0))
        finally:
            generator.close()


def run(*, groups: int, members: int, seconds: int, rounds: int) -> int:
    """Each way once per round, one after the other."""
    tell_machine("cells")
    with fresh_stack("bench-cells") as broker:
        broker.start_broker()
        for number in range(rounds):
            for turn, name in enumerate(TURNS):
                _turn(broker, f"turn{number}-{turn}", name, groups, members, seconds)
    return 0
