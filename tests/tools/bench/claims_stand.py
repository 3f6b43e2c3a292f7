"""Where claims are measured with a job: a broker with a coordination topic, its clients, the job.

The job is one of ours as it is, under `claims_job.py`: the claims query in an application of its
own, so that all its processor time is the query's, or beside the groups, as it runs by default.
"""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Literal, Self
from unittest.mock import patch
from uuid import uuid4

import msgspec
from confluent_kafka import Consumer, TopicPartition

from coordlib.core.wire.stored import decode_marker
from coordlib.core.wire.topics import claims_prefix
from coordlib.errors import CannotReach
from coordlib.installation import checkout
from coordlib.job.progress import MARKER_KEY
from coordlib.kafka.bounds import log_bounds
from coordlib.kafka.clients import open_admin, reader_config
from coordlib.kafka.coordination import PARTITIONS
from coordlib.kafka.logs import Place
from coordlib.kafka.reading import newest_of_each
from coordlib.local.stack import Stack
from tests.tools.bench.batch_figures import Progress
from tests.tools.bench.claims_writer import Clients
from tests.tools.bench.gauges import Costs, Pace
from tests.tools.bench.stand import JOB_ARGS, fresh_stack

NAME: Final = "bench-claims"
#: Marshal's own: its heartbeat interval is 60 s.
TOPIC: Final = "__marshal"
#: The log's end is asked for so often while it is waited for.
LOOK_EVERY_S: Final = 0.2
_SCRIPT: Final = Path(__file__).with_name("claims_job.py")

Job = Literal["claims", "coordinate"]


class Markers:
    """The marker of each batch of claims, as readers of committed records have it."""

    def __init__(self, options: dict[str, str], prefix: str) -> None:
        self._consumer = Consumer(
            reader_config(options) | {"group.id": f"coordlib-unused-{uuid4().hex}"}
        )
        self._consumer.assign([TopicPartition(f"{prefix}.progress", 0, 0)])

    def read(self, pace: Pace, wait_s: float = 0.0) -> None:
        """Tell the pace of all that have come."""
        for message in self._consumer.consume(100, timeout=wait_s):
            if message.error() is None and message.key() == MARKER_KEY:
                marker = decode_marker(message.value() or b"")
                pace.saw(marker, message.timestamp()[1] / 1000, TOPIC)

    def close(self) -> None:
        self._consumer.close()


class ClaimsStand:
    """A broker with a coordination topic, and what a job makes of it."""

    def __init__(self, stack: Stack, clients: Clients) -> None:
        self.stack, self.clients = stack, clients
        self.options = {"bootstrap.servers": stack.bootstrap_servers}
        self.prefix = claims_prefix(stack.prefix)
        self.pace, self.costs = Pace(), Costs(stack)
        self._told = stack.home / "logs" / "batches.jsonl"
        self._markers = Markers(self.options, self.prefix)

    @classmethod
    def of(cls, stack: Stack, claims: int) -> Self:
        """A stand without a job yet, whose clients have claimed nothing."""
        return cls(stack, Clients(stack.bootstrap_servers, TOPIC, claims))

    def start(self, job: Job, *arguments: str) -> None:
        """Start the job; returns when it runs. Raises SetupError."""
        stack = self.stack
        own = ("--job", job, "--told", str(self._told))
        if job == "coordinate":
            stack.start_job((*own, *JOB_ARGS, *arguments), script=_SCRIPT)
            return
        places = ("--bootstrap-servers", stack.bootstrap_servers, "--prefix", stack.prefix)
        kept = ("--checkpoint", str(stack.checkpoint), "--status-file", str(stack.job.status_file))
        stack.job.start((*own, *places, *kept, "--topic", TOPIC, *arguments), script=str(_SCRIPT))

    def close(self) -> None:
        self._markers.close()
        self.clients.close()

    # -- the log, and how far it is judged -----------------------------------------------------

    def end(self) -> int:
        """Sum over the coordination partitions of the next message that will be written."""
        places = [Place(TOPIC, shard) for shard in range(PARTITIONS)]
        admin = open_admin(self.options)
        return sum(each.end for each in log_bounds(admin, places).values() if each is not None)

    def read(self, wait_s: float = 0.0) -> None:
        """Look at the markers that have come."""
        self._markers.read(self.pace, wait_s)

    def drain(self, limit_s: float) -> float | None:
        """Seconds until all that is written is judged; None: not in time."""
        began, end = time.monotonic(), self.end()
        self.read()
        while self.pace.judged < end and time.monotonic() - began < limit_s:
            self.read(LOOK_EVERY_S)
        return time.monotonic() - began if self.pace.judged >= end else None

    def must_drain(self, limit_s: float) -> float:
        """The same. Raises CannotReach: the job has not judged all of it in time."""
        drained_s = self.drain(limit_s)
        if drained_s is None:
            what = f"{self.pace.judged:,} messages of {self.end():,} within {limit_s:.0f} s"
            raise CannotReach("Not all messages were judged.", what, self.stack.last_job_lines())
        return drained_s

    # -- what came of it -----------------------------------------------------------------------

    def progress(self) -> list[Progress]:
        """What Spark has told of each batch of claims."""
        lines = self._told.read_bytes().splitlines(keepends=True)
        return [msgspec.json.decode(line) for line in lines if line.endswith(b"\n")]

    def owned(self) -> int:
        """Claims that have an owner, by the job's outputs."""
        newest = newest_of_each(self.options, f"{self.prefix}.assignments", range(PARTITIONS))
        return sum(map(len, newest.values()))

    def must_own(self, claims: int) -> None:
        """Raises CannotReach: the job has judged that some of these claims have ended."""
        if (owned := self.owned()) != claims:
            raise CannotReach("Not all claims are owned.", f"{owned:,} of {claims:,}")

    def sizes(self) -> dict[str, Any]:
        """Bytes of the states and snapshots of all coordination partitions, and of the largest."""
        newest = newest_of_each(self.options, f"{self.prefix}.snapshots", range(PARTITIONS))
        snapshots = [sum(map(len, pages.values())) for pages in newest.values()]
        told = self.stack.job.last_status().get("claims") or {}
        return {
            "state_bytes": told.get("state_bytes"),
            "snapshot_bytes": sum(snapshots),
            "largest_snapshot_bytes": max(snapshots),
        }


@contextmanager
def claims_stand(claims: int) -> Iterator[ClaimsStand]:
    """A stand of our own, whose job finds this checkout's modules. Raises NotReady."""
    root = checkout() or Path.cwd()
    path = os.pathsep.join(filter(None, (str(root), os.environ.get("PYTHONPATH"))))
    with fresh_stack(NAME, TOPIC) as stack, patch.dict(os.environ, PYTHONPATH=path):
        stack.start_broker()
        stand = ClaimsStand.of(stack, claims)
        try:
            yield stand
        finally:
            stand.close()
