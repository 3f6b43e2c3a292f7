"""A stack of its own, a group of processes at work on it, and whoever breaks something."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

from confluent_kafka import IsolationLevel, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from coordlib import exit_codes
from coordlib.demo.history import Happened, write
from coordlib.errors import SetupError
from coordlib.job import crash
from coordlib.local.job import READY_TIMEOUT_S
from coordlib.local.processes import Program, belonging_to
from coordlib.local.stack import Stack
from tests.kit.waiting import wait_until
from tests.stack.conftest import JOB_ARGS
from tests.stack.crew import Crew
from tests.stack.flow import Flow
from tests.stack.lists import Lists, fetched, history_of
from tests.stack.recorded import HISTORY
from tests.stack.truths import holds, outputs_are_exactly_once
from tests.stack.wire import Wire

GROUP: Final = "crew"
SESSION_MS: Final = 6_000
TOLD: Final = ("assigned", "revoking", "revoked", "lost")
MEMBER: Final[dict[str, Any]] = {
    "group.id": GROUP,
    "auto.offset.reset": "earliest",
    "session.timeout.ms": SESSION_MS,
    "heartbeat.interval.ms": 1_000,
    "max.poll.interval.ms": 60_000,
    "partition.assignment.strategy": "cooperative-sticky",
}
PATIENCE_S: Final = 180.0


class Scene(AbstractContextManager["Scene"]):
    """Everything of one scenario; nothing of it outlives it."""

    def __init__(self, stack: Stack, folder: Path) -> None:
        self.stack = stack
        self._open = ExitStack()
        servers = stack.bootstrap_servers
        self.wire = self._open.enter_context(Wire(servers))
        self.flow = self._open.enter_context(Flow(servers, "records", 6))
        member = MEMBER | {"bootstrap.servers": servers}
        self.crew = self._open.enter_context(Crew(folder, self.flow.topic, member))
        self._marks: dict[str, int] = {}
        #: Where the job died, one after the other.
        self.crashes: list[str] = []
        #: For spark-submit, before the script.
        self.spark_args: list[str] = []
        self.ready_timeout_s = READY_TIMEOUT_S
        self.patience_s = PATIENCE_S

    # ---- the job --------------------------------------------------------------------------------

    def start_job(self, *arguments: str, fault: str = "", archive: bool = False) -> None:
        """Start it, with a crash in its way."""
        without = () if archive else ("--without-archive",)
        with patch.dict(os.environ, {crash.VARIABLE: fault}):
            self.launch_job((*JOB_ARGS, *without, *arguments))

    def launch_job(self, arguments: tuple[str, ...]) -> None:
        """Start it where this scene has its jobs run; returns when it runs."""
        given = self.stack._job_arguments(arguments)
        self.stack.job.start(given, self.spark_args, timeout_s=self.ready_timeout_s)

    def job_crashes(self, place: str, *arguments: str, after: int = 0) -> None:
        """Run the job until it dies at this place, in the first batch that has at least this
        number; nothing of it is left."""
        try:
            self.start_job(*arguments, fault=f"{place}:{after}")
        except SetupError:
            pass  # it died before it was ready; `job_ended` looks
        self.job_ended()
        self.note("fault", f"the job died: {place}")
        assert f"{crash.VARIABLE}: {place}" in self.stack.last_job_lines(5_000)
        self.stack.kill_job()
        self.crashes.append(place)

    def job_ended(self) -> int | None:
        """Wait until the job has ended by itself; its exit code."""
        wait_until("the job has ended", lambda: not self.stack.job.is_running, PATIENCE_S)
        return self.stack.job.exit_code

    def job_refuses(self, *arguments: str) -> list[str]:
        """A start that must end with 4: nobody may start it again as it is; in which words."""
        try:
            self.start_job(*arguments)
        except SetupError:
            assert self.stack.job.exit_code == exit_codes.REFUSED
            return self.last_words()
        raise AssertionError("it started")

    def last_words(self) -> list[str]:
        """What happened, where, what to do: the three lines with which the job ended."""
        lines = self.stack.last_job_lines(5_000).splitlines()
        (at,) = [n for n, line in enumerate(lines) if line.startswith("coordinator: ")]
        return lines[at : at + 3]

    def supervised(self) -> AbstractContextManager[list[int | None]]:
        """As `supervised`, with this scene's way to start the job."""
        return supervised(self.stack, self.start_job)

    def batch(self) -> int:
        """The newest that the job told of; -1 while it starts."""
        return int(self.stack.status().job.get("batch_id", -1))

    def job_goes_on(self) -> None:
        """Wait until it has committed further batches."""
        before = self.batch()
        wait_until("further batches", lambda: self.batch() > before + 1, self.patience_s)

    def programs(self) -> list[Program]:
        """The job's processes: launcher, JVM, driver, workers."""
        return belonging_to(self.stack.home, "job")

    def suspend_job(self) -> None:
        self.note("fault", "the job is suspended")
        for each in self.programs():
            each.signal(signal.SIGSTOP)

    def resume_job(self) -> None:
        for each in self.programs():
            each.signal(signal.SIGCONT)
        self.note("healed", "the job goes on")

    def until_transaction_is_over(self) -> None:
        """Wait until the broker has given up the transaction that the job has left open: until then
        no read-committed reader gets past it. The progress marker is in each of them."""
        place = TopicPartition(f"{self.stack.prefix}.progress", 0)
        admin = AdminClient({"bootstrap.servers": self.stack.bootstrap_servers})

        def end(isolation: IsolationLevel) -> int:
            newest = OffsetSpec.latest()  # type: ignore[no-untyped-call]  # a client without stubs
            asked = admin.list_offsets({place: newest}, isolation_level=isolation)
            return asked[place].result(30).offset

        def is_open() -> bool:
            return end(IsolationLevel.READ_COMMITTED) < end(IsolationLevel.READ_UNCOMMITTED)

        assert is_open(), "there is no transaction"
        wait_until("the broker has given it up", lambda: not is_open(), PATIENCE_S)

    # ---- the crew -------------------------------------------------------------------------------

    def crew_works(self, *names: str, **config: Any) -> None:
        """Start these; returns when they share the records and read them."""
        self.crew.start(*names, **config)
        self.flow.begin()
        self.crew.until_shared(self.flow.places, *names)
        self.all_read_on()

    def all_read_on(self) -> None:
        """Wait until everybody who owns something has read more of it than now."""
        self.crew.read_on()
        seen = {n: len(m.readings) for n, m in self.crew.members.items() if m.owned}
        assert seen, "nobody owns anything"
        self.crew.until(
            "they read on", lambda: all(len(self.crew[n].readings) > k for n, k in seen.items())
        )

    def mark(self) -> None:
        """From here on `is_undisturbed` looks."""
        self.crew.read_on()
        self._marks = {name: member.mark() for name, member in self.crew.members.items()}

    def is_undisturbed(self) -> None:
        """Nobody was told anything since the mark, and everybody goes on."""
        self.all_read_on()
        for name, mark in self._marks.items():
            assert not self.crew[name].since(mark, *TOLD), name

    def expelled(self, group: str = GROUP) -> list[str]:
        return [event["reason"] for event in self.wire.events(group, "MemberRemoved")]

    def note(self, what: str, detail: str) -> None:
        self.crew.note(what, detail)

    # ---- transactions ---------------------------------------------------------------------------

    def starts_appender(self, name: str, lists: Lists) -> None:
        """Start a process that appends in transactions which Kafka decides."""
        more: dict[str, Any] = {
            "program": "tests.stack.copier",
            "sink": lists.topic,
            "lists": lists.lists,
            "transactional__id": f"appender-{name}",
            "transaction__timeout__ms": 8_000,
            "max__poll__interval__ms": 30_000,
        }
        self.crew.start(name, **more)

    def appenders_work(self, lists: Lists, *names: str) -> None:
        """Start these; returns when each has ended a transaction."""
        for name in names:
            self.starts_appender(name, lists)
        self.flow.begin()
        members = [self.crew[name] for name in names]
        self.crew.until("all append", lambda: all(each.told("ended") for each in members))

    def appenders_end(self, lists: Lists, folder: Path) -> list[Happened]:
        """Let them append all that is there, and end; the history, which `tell` checks."""
        self.flow.pause()
        self.crew.until("all is copied", lambda: lists.count >= sum(self.flow.ends.values()))
        self.crew.stop()
        lists.read_all()
        flow, servers = self.flow, self.stack.bootstrap_servers
        last = fetched(servers, GROUP, flow.topic, flow.partitions)
        history = history_of(self.crew, [*lists.told, last])
        write(folder / HISTORY, history)
        return history

    # ---- the end --------------------------------------------------------------------------------

    def ends_well(self) -> str:
        """All was read and committed, everything was written once, and the recorded history passes
        what `tests.tools check` checks (`holds`). In words, for the summary."""
        holds(self.crew, self.flow, self.wire, GROUP)
        outputs_are_exactly_once(self.wire)
        acts, records = len(self.crew.readings), sum(self.flow.ends.values())
        return f"{records} records, {acts - records} read twice"

    def __exit__(self, *_: object) -> None:
        self.resume_job()  # a suspended one could not be stopped
        self._open.close()


@contextmanager
def supervised(stack: Stack, start_job: Callable[[], None]) -> Iterator[list[int | None]]:
    """While this is open, the job is started again whenever it has ended, as in production. Yields
    the exit codes with which it ended."""
    ended: list[int | None] = []
    is_over = threading.Event()

    def supervise() -> None:
        while not is_over.wait(0.5):
            if not stack.job.is_running:
                ended.append(stack.job.exit_code)
                stack.kill_job()
                with suppress(SetupError):  # then it is started once more
                    start_job()

    supervisor = threading.Thread(target=supervise, daemon=True)
    supervisor.start()
    try:
        yield ended
    finally:
        is_over.set()
        supervisor.join(PATIENCE_S)


def sleep_for_ms(duration_ms: int) -> None:
    """For what is about time that passes: a session that must be over."""
    time.sleep(duration_ms / 1000)
