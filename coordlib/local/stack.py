"""The whole engine on one machine: broker, topics and job, in one folder (stack_folder.py).

Stacks beside each other (`local`, `demo`, tests) share only the jars. All processes started here
run on when the starter ends; `down` finds them again, from any shell.
"""

import fcntl
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from coordlib.errors import NotReady, StartRefused
from coordlib.installation import require_job_modules
from coordlib.kafka import coordination, topics
from coordlib.kafka.roles import Role
from coordlib.local import class_archive, stack_folder
from coordlib.local.broker import Broker
from coordlib.local.home import command_for, stack_home
from coordlib.local.jars import ensure_jars
from coordlib.local.java import find_java
from coordlib.local.job import Job
from coordlib.local.processes import belonging_to
from coordlib.local.progress import Progress, phase, silent, to_stderr
from coordlib.local.secured import ADMIN, Secured
from coordlib.local.submission import COORDINATE


@dataclass(frozen=True, slots=True)
class StackStatus:
    """The state of a stack's processes, as far as it can be told without asking Kafka."""

    home: str
    bootstrap_servers: str | None  # None: never started
    prefix: str
    shards: int
    responses: int
    broker_state: str  # running | stopped | down (ended without being asked)
    broker_pid: int | None
    job_state: str  # running | starting | stopped | down
    job_pid: int | None  # the Python driver's
    job: dict[str, Any]  # the job's newest job.json


class Stack:
    """One local stack.

    Args:
        stack: a name, of a folder in .coord/stacks, or a `Path`, which is the folder itself.
        prefix: of the topics.
        shards: partitions of the requests topic; fixed from the first `up` on.
        responses: partitions of the responses topic; fixed likewise. None: those that this stack
            has, else `topics.local_responses_for` the shards.
        is_secured: TLS, passwords and ACLs; fixed likewise. A stack that has them keeps them.
        claims: a coordination topic that the job follows, made where it is missing; empty: none.
            None: the one that this stack follows, if any.
    """

    def __init__(
        self,
        stack: str | Path = "local",
        prefix: str = "coord",
        shards: int = 2,
        responses: int | None = None,
        is_secured: bool = False,
        claims: str | None = None,
    ) -> None:
        self.home = stack_home(stack)
        self.prefix, self.shards = prefix, shards
        self.claims: str = self._kept_claims() if claims is None else claims
        kept = responses or self._kept_responses()
        self.responses: int = kept or topics.local_responses_for(shards)
        secured = Secured(self.home)
        self.secured = secured if is_secured or secured.is_made else None
        self.broker = Broker(
            self.home / "broker", (), self.home, self.home / "logs/broker.log", self.secured
        )
        self.job = Job(self.home)

    @property
    def bootstrap_servers(self) -> str:
        """`127.0.0.1:<port>`; the same after every restart."""
        return self.broker.bootstrap_servers

    def client(self, user: str = ADMIN) -> dict[str, str]:
        """librdkafka's options of a role, or of the admin; of anybody where nothing is secured."""
        if self.secured is not None:
            return self.secured.options_of(user)
        return {"bootstrap.servers": self.bootstrap_servers}

    @property
    def checkpoint(self) -> Path:
        """The job's checkpoint folder."""
        return self.home / "checkpoint"

    @property
    def tables(self) -> Path:
        """The folder of the Delta tables."""
        return self.home / "tables"

    @property
    def job_pid(self) -> int | None:
        """Process id of the running Python driver."""
        return self.job.driver_pid

    def up(
        self, progress: Progress = to_stderr, job_args: Sequence[str] = (), new_ports: bool = False
    ) -> None:
        """Start all parts that do not run: jars, broker, topics, job. Returns when the job runs.

        A job whose broker has ended is started again with it.

        Raises:
            SetupError: pyspark, Java, a port, the disk, the network, a broker or job that ended, or
                a folder that holds something else.
            NotReady: the job runs, and follows other claims.
            StartRefused: topics of an earlier run with other partition counts.
        """
        require_job_modules()  # before anything is started or written
        find_java()
        with self._lock():
            if self.job.is_running and self.broker.program is not None:
                self._require_same_claims()
                self.start_broker(progress, new_ports)
                self._wait_for_launched_job(progress)
            else:
                self._start_both(progress, job_args, new_ports)
        class_archive.make_in_background(ensure_jars(silent).spark, progress)  # for the next start

    def _require_same_claims(self) -> None:
        """A job has its topics from its start on, with arguments that only its starter knows."""
        followed = self._kept_claims()
        if self.claims == followed:
            return
        runs = f"with the claims of {followed}" if followed else "without claims"
        wanted = f"--claims-topic {self.claims}" if self.claims else "--no-claims"
        raise NotReady(
            f"The job runs already, {runs}; nothing was changed.",
            str(self.home),
            f"Start it again: {command_for(self.home, 'down')}, and then "
            f"{command_for(self.home, 'up')} {wanted}",
        )

    def _start_both(self, progress: Progress, job_args: Sequence[str], new_ports: bool) -> None:
        """The broker and the job side by side: the job's JVM starts while the broker does."""
        self._prepare(progress)
        self.broker.choose_ports(new_ports)
        begin = self.home / stack_folder.BEGIN
        begin.unlink(missing_ok=True)
        began_s = time.monotonic()
        self.job.launch(self._job_arguments(job_args), begin_file=begin)
        try:
            self._start_broker(progress)
            begin.touch()
        except BaseException:
            self.job.kill()
            raise
        self._wait_for_job(progress, began_s)

    def start_broker(self, progress: Progress = to_stderr, new_ports: bool = False) -> None:
        """Jars, broker and topics, without the job."""
        self._prepare(progress)
        self._start_broker(progress, new_ports)

    def _start_broker(self, progress: Progress, new_ports: bool = False) -> None:
        if self.broker.program is None:
            with phase(progress, "Starting the broker"):
                self.broker.start(new_ports=new_ports)
        else:
            progress(f"The broker runs already at {self.bootstrap_servers}")
        self._write_state()
        conf = self.client()
        with phase(progress, f"Preparing the topics {self.prefix}.*"):
            topics.create(conf, self.prefix, self.shards, self.responses, replication=1)
            layout, _ = topics.require(conf, self.prefix)
            if self.claims:
                coordination.create_coordination(conf, self.claims, coordination.PARTITIONS, 1)
                coordination.create(conf, self.prefix, self.claims, 1)
                coordination.require(conf, self.prefix, self.claims)
        self._write_state(self.claims)  # not before: its topic may be one that cannot be followed
        if self.secured is not None:
            with phase(progress, "Granting the roles their rights"):
                self.secured.grant_roles(self.prefix, self.claims or None)
        if (layout.shards, layout.responses) != (self.shards, self.responses):
            raise StartRefused(
                f"The topics have {layout.shards} shards and {layout.responses} response "
                f"partitions, not {self.shards} and {self.responses}.",
                f"prefix {self.prefix} in {self.home}",
                "Leave the numbers as they were, or start afresh: "
                f"{command_for(self.home, 'down --wipe')}",
            )

    def _prepare(self, progress: Progress) -> None:
        stack_folder.make(self.home)
        if not self._read_state():
            self._write_state()  # first of all, so that the files of a failed start can be wiped
        find_java()
        self._secure(progress)
        self._tell_stale(progress)
        self.broker.jars = ensure_jars(progress).broker

    def _secure(self, progress: Progress) -> None:
        """Make users and certificates at the first start of a secured stack."""
        if self.secured is None or self.secured.is_made:
            return
        if self.broker.ports is not None:
            raise StartRefused(
                "This stack was started without security, which is fixed from its first start on.",
                str(self.home),
                f"Start another one, or wipe this one: {command_for(self.home, 'down --wipe')}",
            )
        with phase(progress, "Making a certificate authority and users"):
            self.secured.make()

    def down(self, wipe: bool = False, progress: Progress = to_stderr) -> None:
        """Stop the job, then the broker; nothing of the stack runs afterwards.

        Args:
            wipe: then delete a stack's files (topics, checkpoint, tables, logs), and the folder if
                no other file lies in it.

        Raises:
            SetupError: `wipe`, and this is no stack's folder.
        """
        if wipe and self.home.exists():
            stack_folder.require_stack(self.home)
        elif not stack_folder.holds_stack(self.home):  # _lock would make a folder there
            progress(f"There is no stack in {self.home}")
            self._end_homeless(progress)
            return
        with self._lock():
            with phase(progress, "Stopping the job"):
                self.job.stop()
                self.job.kill()
            with phase(progress, "Stopping the broker"):
                self.broker.stop()
            left = stack_folder.wipe(self.home) if wipe else []
        if left:
            progress(f"Deleted what is the stack's in {self.home}; left there: {', '.join(left)}")
        else:
            progress(f"{'Deleted' if wipe else 'Data is kept in'} {self.home}")

    def status(self) -> StackStatus:
        """The state of the stack's processes. Asks only this machine; never fails."""
        known = self._read_state()
        broker = self.broker.program
        return StackStatus(
            home=str(self.home),
            bootstrap_servers=self.bootstrap_servers if self.broker.ports else None,
            prefix=known.get("prefix", self.prefix),
            shards=known.get("shards", self.shards),
            responses=known.get("responses", self.responses),
            broker_state=("running" if broker else "down" if self.broker.left_stale else "stopped"),
            broker_pid=broker.pid if broker else None,
            job_state=self.job.state,
            job_pid=self.job_pid,
            job=self.job.last_status(),
        )

    def start_job(
        self,
        extra_args: Sequence[str] = (),
        spark_args: Sequence[str] = (),
        script: str | Path = COORDINATE,
        progress: Progress = to_stderr,
    ) -> None:
        """Start the job and wait until it reports that it runs.

        Args:
            extra_args: for the job `coordinate`, after those that this stack implies.
            spark_args: for spark-submit, before the script.
            script: another script than the job's, with the same arguments.

        Raises:
            SetupError: it ended, or did not get ready in time; with its last lines.
        """
        began_s = time.monotonic()
        self.launch_job(extra_args, spark_args, script)
        self._wait_for_job(progress, began_s)

    def launch_job(
        self,
        extra_args: Sequence[str] = (),
        spark_args: Sequence[str] = (),
        script: str | Path = COORDINATE,
        begin_file: Path | None = None,
    ) -> None:
        """As `start_job`, but it returns at once.

        Args:
            begin_file: the job waits for this file before it asks for the broker.
        """
        self.job.launch(self._job_arguments(extra_args), spark_args, script, begin_file)

    def _job_arguments(self, extra: Sequence[str]) -> list[str]:
        return [
            *("--bootstrap-servers", self.bootstrap_servers, "--prefix", self.prefix),
            *("--checkpoint", str(self.checkpoint), "--tables", str(self.tables)),
            *("--status-file", str(self.job.status_file), *self._job_login()),
            *(("--set", f"claims.topic={self.claims}") if self.claims else ()),
            *extra,
        ]

    def _job_login(self) -> list[str]:
        if self.secured is None:
            return []
        return ["--kafka-file", str(self.secured.file_of(Role.JOB))]

    def _wait_for_job(self, progress: Progress, began_s: float) -> None:
        progress("Starting the job ...")
        self.job.wait_until_ready()
        progress(f"Starting the job: done in {time.monotonic() - began_s:.1f} s")
        spent = self.job.last_status().get("start_s", {})
        if spent:
            progress("  spent on " + ", ".join(f"{name} {s:.1f} s" for name, s in spent.items()))

    def _wait_for_launched_job(self, progress: Progress) -> None:
        """Of a job that another command has launched, which may have been killed since then."""
        if self.job.state == "running":
            progress("The job runs already")
            return
        began_s = time.monotonic()
        (self.home / stack_folder.BEGIN).touch()
        self._wait_for_job(progress, began_s)

    def stop_job(self) -> int | None:
        """SIGTERM to the launcher, and wait; returns the driver's exit code (None: unknown)."""
        return self.job.stop()

    def kill_job(self) -> None:
        """SIGKILL launcher, JVM, driver and workers at once, as a power cut would."""
        self.job.kill()

    def last_job_lines(self, count: int = 20) -> str:
        """The end of the job's log."""
        return self.job.last_lines(count)

    def _tell_stale(self, progress: Progress) -> None:
        """Recognise processes of an earlier run, end those that must not go on, and report it."""
        if self.broker.left_stale:
            progress("The last broker here ended without a stop; its segments are recovered")
        leftovers = belonging_to(self.home, "job")
        if leftovers and (self.broker.program is None or not self.job.is_running):
            pids = ", ".join(str(program.pid) for program in leftovers)
            progress(f"An earlier job was left without its launcher or broker: ended pid {pids}")
            self.job.kill()

    def _end_homeless(self, progress: Progress) -> None:
        """Somebody has deleted the folder of a stack that ran: no file names its processes."""
        if left := belonging_to(self.home):
            pids = ", ".join(str(program.pid) for program in left)
            self.job.kill()
            self.broker.end_leftovers()
            progress(f"Its folder was deleted while it ran: ended pid {pids}")

    def _write_state(self, claims: str | None = None) -> None:
        """Write the stack's facts. `claims`: followed from now on; None: as before."""
        servers = self.bootstrap_servers if self.broker.ports else None
        state = {"bootstrap_servers": servers, "prefix": self.prefix}
        state |= {"shards": self.shards, "responses": self.responses}  # type: ignore[dict-item]
        state |= {"claims": self._kept_claims() if claims is None else claims}
        broker = self.broker.program
        state |= {"broker": asdict(broker) if broker else None}  # type: ignore[dict-item]
        stack_folder.write_state(self.home, state)

    def _kept_responses(self) -> int | None:
        """The number that this stack began with; newer code has another default."""
        kept = self._read_state().get("responses")
        return kept if isinstance(kept, int) and kept > 0 else None

    def _kept_claims(self) -> str:
        """The coordination topic that the job has followed; empty: none."""
        kept = self._read_state().get("claims")
        return kept if isinstance(kept, str) else ""

    def _read_state(self) -> dict[str, Any]:
        return stack_folder.read_state(self.home)

    @contextmanager
    def _lock(self) -> Iterator[None]:
        stack_folder.make(self.home)
        with (self.home / stack_folder.LOCK).open("a+") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                lock.seek(0)
                raise NotReady(
                    "Another command is starting or stopping this stack.",
                    f"{self.home}, pid {lock.read().strip() or 'unknown'}",
                    "Wait until it is done, then try again.",
                ) from None
            # Only for the message above: want of space is a reason to stop or wipe a stack.
            with suppress(OSError):
                lock.truncate(0)
                os.write(lock.fileno(), str(os.getpid()).encode())
            yield
