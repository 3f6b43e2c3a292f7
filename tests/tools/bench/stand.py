"""Where a benchmark runs: a stack of its own that is deleted afterwards, or one that was named."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from coordlib.cli.kit.where import Where
from coordlib.errors import NotReady
from coordlib.local.stack import Stack

NAME: Final = "bench"
#: Answered at once: with Kafka's default of 3 s the figures would be of the waiting.
JOB_ARGS: Final = ("--set", "group.initial_rebalance_delay_ms=0")
#: The first batches are two to three times slower: the JVM has not compiled its way yet.
WARM_BATCHES: Final = 120


@dataclass(frozen=True, slots=True)
class Stand:
    """A running engine under measurement."""

    config: dict[str, str]
    prefix: str
    #: None: a cluster that was named by its address; its processes are not ours to look at.
    stack: Stack | None

    def batches(self) -> int | None:
        """Number of the newest batch; None when it cannot be known from here."""
        return None if self.stack is None else int(self.stack.job.last_status().get("batch_id", -1))

    def state_bytes(self) -> int | None:
        """Of all shards, unpacked; None when it cannot be known from here."""
        return None if self.stack is None else self.stack.job.last_status().get("state_bytes")

    def is_warm(self) -> bool:
        """Whether the job has judged enough batches; a cluster's job is taken to have."""
        return (batches := self.batches()) is None or batches >= WARM_BATCHES


@contextmanager
def standing(where: Where, *job_args: str) -> Iterator[Stand]:
    """The engine that is named, or one of our own for as long as the benchmark takes.

    Args:
        job_args: what only a job of our own is started with.

    Raises:
        NotReady: an earlier benchmark's stack still runs.
    """
    if not where.is_local:
        where.reach()
        yield Stand(where.client(), where.topic_prefix(), None)
    elif where.names_stack:
        where.reach()
        yield Stand(where.client(), where.topic_prefix(), where.local())
    else:
        with fresh_stack(NAME) as stack:
            stack.up(job_args=(*JOB_ARGS, *job_args))
            yield Stand({"bootstrap.servers": stack.bootstrap_servers}, stack.prefix, stack)


@contextmanager
def fresh_stack(name: str, claims: str | None = None) -> Iterator[Stack]:
    """A stack of a benchmark's own, of which nothing is there before and after.

    Args:
        claims: the coordination topic that it follows, if any.

    Raises:
        NotReady: an earlier benchmark's stack still runs.
    """
    stack = Stack(name, claims=claims)
    if stack.job.is_running:
        raise NotReady(
            "A benchmark runs already", str(stack.home), f"Or end it: coord down --stack {name}"
        )
    if stack.home.exists():
        stack.down(wipe=True)
    try:
        yield stack
    finally:
        stack.down(wipe=True)
