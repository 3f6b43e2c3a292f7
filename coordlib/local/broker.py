"""A real Kafka broker on this machine: one KRaft node on 127.0.0.1, on plain Java.

Its folder holds all its files: server.properties (rendered at each start from
coordlib/conf/broker.properties), the log segments, ports.json and pid.json. A restart uses the same
ports and segments.
"""

import base64
import json
import shutil
import signal
import subprocess
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from string import Template

from coordlib.errors import NotReady, SetupError
from coordlib.installation import conf_file
from coordlib.kafka.cluster import has_brokers
from coordlib.local.home import command_for, last_lines, size_of, write_private
from coordlib.local.java import find_java, property_value
from coordlib.local.processes import (
    LOOPBACK,
    Program,
    belonging_to,
    environment_of,
    free_ports,
    is_answering,
    require_free,
)
from coordlib.local.secured import ADMIN, Secured
from coordlib.local.stack_folder import PRIVATE_UMASK

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 20.0  # a clean stop takes about a second; then SIGKILL
FREE_SPACE_MIN = 512 * 1024 * 1024  # bytes; on a full disk Kafka halts at once

#: C1 only: the broker starts in half the time and leaves the cores to Spark.
_JVM = ("-Xms256m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")


class Broker:
    """One local broker. Several may run beside each other in folders of their own.

    Args:
        home: the broker's folder; created at the first start.
        jars: the broker's jars, `ensure_jars().broker`.
        stack: the folder of the stack that it belongs to (by default `home`); its processes are
            marked with it.
        log: where stdout and stderr go; by default `broker.log` in `home`.
        secured: TLS, users and ACLs; None: everybody on this machine may do anything.
    """

    def __init__(
        self,
        home: Path,
        jars: Sequence[Path],
        stack: Path | None = None,
        log: Path | None = None,
        secured: Secured | None = None,
    ) -> None:
        self.home = home
        self.jars = tuple(jars)
        self.stack = stack or home
        self.log = log or home / "broker.log"
        self.secured = secured
        self._child: subprocess.Popen[bytes] | None = None
        self._log_start = 0  # earlier runs' lines would mislead

    @property
    def bootstrap_servers(self) -> str:
        """`127.0.0.1:<port>`.

        Raises:
            SetupError: the broker was never started.
        """
        ports = self.ports
        if ports is None:
            raise SetupError(
                "This broker was never started.",
                str(self.home),
                f"Run: {command_for(self.stack, 'up')}",
            )
        return f"{LOOPBACK}:{ports[0]}"

    @property
    def ports(self) -> tuple[int, int] | None:
        """Listener and controller port, from the first start on."""
        try:
            found = json.loads((self.home / "ports.json").read_text())
            return int(found["broker"]), int(found["controller"])
        except (FileNotFoundError, ValueError, TypeError, KeyError):  # cut short, or edited
            return None

    @property
    def program(self) -> Program | None:
        """The running broker, also one that another process started."""
        return Program.recorded(self.home / "pid.json")

    @property
    def left_stale(self) -> bool:
        """Whether an earlier run ended without a stop: its pid file is there, and no process."""
        return (self.home / "pid.json").exists() and self.program is None

    def choose_ports(self, new_ports: bool = False) -> None:
        """Have ports, so that `bootstrap_servers` is known; `new_ports`: others than before."""
        if self.program is None and (new_ports or self.ports is None):
            self._choose_ports()
        self._tell_clients()

    def start(self, timeout_s: float = START_TIMEOUT_S, new_ports: bool = False) -> None:
        """Start, and return when it answers. A running one is left as it is.

        Raises:
            SetupError: no Java, a port taken, no space, or it ended at once (with its last lines).
        """
        if self.program is not None:
            return
        self._require_one_path()
        self._require_space()
        self.end_leftovers()
        ports = None if new_ports else self.ports
        if ports is None:
            ports = self._choose_ports()
        for port in ports:
            require_free(port, self.stack)
        self._tell_clients()
        self._render(ports)
        self._format_once()
        self._launch()
        self._wait_until_it_answers(ports[0], time.monotonic() + timeout_s)

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """SIGTERM, then SIGKILL after `timeout_s`; returns when no process is left."""
        program = self.program
        if program is not None:
            program.signal(signal.SIGTERM)
            if not self._wait_until_gone(program, timeout_s):
                program.signal(signal.SIGKILL)
                self._wait_until_gone(program, STOP_TIMEOUT_S)
        self.end_leftovers()
        self._reap()
        (self.home / "pid.json").unlink(missing_ok=True)

    def kill(self) -> None:
        """SIGKILL, as a crash would; pid.json stays, as after a crash."""
        program = self.program
        if program is not None:
            program.signal(signal.SIGKILL)
            self._wait_until_gone(program, STOP_TIMEOUT_S)
        self._reap()

    def last_lines(self, count: int = 12) -> str:
        """The end of the broker's log, of the run that was started here if any."""
        return last_lines(self.log, count, self._log_start)

    def _choose_ports(self) -> tuple[int, int]:
        broker, controller = free_ports(2)
        self.home.mkdir(parents=True, exist_ok=True)
        chosen = json.dumps({"broker": broker, "controller": controller})
        (self.home / "ports.json").write_text(chosen)
        return broker, controller

    def _tell_clients(self) -> None:
        if self.secured is not None:
            self.secured.write_clients(self.bootstrap_servers)

    def _render(self, ports: tuple[int, int]) -> None:
        template = Template(conf_file("broker.properties").read_text())
        numbers = {"port": ports[0], "controller_port": ports[1]}
        segments = property_value(str(self.home / "segments"))
        text = template.substitute(numbers, log_dir=segments)
        if self.secured is not None:
            text += self.secured.broker_lines(numbers)
        write_private(self.home / "server.properties", text)

    def _format_once(self) -> None:
        if (self.home / "segments" / "meta.properties").exists():
            return
        # Not with a leading "-": the tool would take the id for an option.
        cluster = "c" + base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")[1:]
        command = self._java("kafka.tools.StorageTool")
        command += ["format", "-t", cluster, "-c", str(self.home / "server.properties")]
        users = self.home / "scram-users"
        if self.secured is not None:
            write_private(users, self.secured.scram_arguments())
            command.append(f"@{users}")
        try:
            answer = subprocess.run(
                command, capture_output=True, text=True, check=False, umask=PRIVATE_UMASK
            )
        finally:
            users.unlink(missing_ok=True)
        if answer.returncode != 0:
            shutil.rmtree(self.home / "segments", ignore_errors=True)
            raise SetupError(
                "The broker's storage could not be prepared.",
                (answer.stderr + answer.stdout).strip()[-1_000:],
                f"Check that {self.home} can be written, and that the disk is not full.",
            )

    def _launch(self) -> None:
        self.log.parent.mkdir(parents=True, exist_ok=True)
        self._log_start = size_of(self.log)
        with self.log.open("ab") as log:
            self._child = subprocess.Popen(
                [*self._java("kafka.Kafka"), str(self.home / "server.properties")],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment_of(self.stack, "broker"),
                umask=PRIVATE_UMASK,
                start_new_session=True,  # Ctrl-C at the terminal is for the command alone
            )
        program = Program.of(self._child.pid)
        assert program is not None  # our own child, not yet reaped
        program.record(self.home / "pid.json")

    def _java(self, main_class: str) -> list[str]:
        class_path = ":".join(str(jar) for jar in self.jars)
        logging = f"-Dlog4j2.configurationFile={conf_file('broker-log4j2.properties')}"
        return [str(find_java().path), *_JVM, logging, "-cp", class_path, main_class]

    def _wait_until_it_answers(self, port: int, deadline: float) -> None:
        while time.monotonic() < deadline:
            if self.program is None:
                raise self._ended()
            if is_answering(port) and has_brokers(self._admin_options(port), 5.0):
                return
            time.sleep(0.05)
        lines = self.last_lines()
        self.stop()
        raise NotReady(
            "The broker did not answer in time.",
            lines,
            f"Look into {self.log}; a loaded machine may just need another try.",
        )

    def _admin_options(self, port: int) -> dict[str, str]:
        if self.secured is not None:
            return self.secured.options_of(ADMIN)
        return {"bootstrap.servers": f"{LOOPBACK}:{port}"}

    def _ended(self) -> NotReady:
        self._reap()
        (self.home / "pid.json").unlink(missing_ok=True)
        lines = self.last_lines()
        if "No space left on device" in lines:
            return NotReady("The disk is full.", str(self.home), "Free some space and try again.")
        return NotReady(
            "The broker ended while it started.",
            lines,
            f"Look into {self.log}. If its files are damaged, start afresh: "
            f"{command_for(self.stack, 'down --wipe')}",
        )

    def _require_one_path(self) -> None:
        if "," in str(self.home):
            raise SetupError(
                "Kafka takes a path with a comma for two folders, the second one in whatever "
                "folder it is started in.",
                str(self.home),
                "Name a folder without a comma: --stack-folder, or COORD_HOME.",
            )

    def _require_space(self) -> None:
        self.home.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(self.home).free
        if free < FREE_SPACE_MIN:
            raise NotReady(
                f"The disk has only {free >> 20} MB left; {FREE_SPACE_MIN >> 20} MB are needed.",
                str(self.home),
                "Free some space, or let COORD_HOME name a folder on another disk.",
            )

    def end_leftovers(self) -> None:
        """SIGKILL brokers of this stack that no file names: two on the same segments would fight
        for Kafka's own lock."""
        for program in belonging_to(self.stack, "broker"):
            program.signal(signal.SIGKILL)
            self._wait_until_gone(program, STOP_TIMEOUT_S)

    def _wait_until_gone(self, program: Program, timeout_s: float) -> bool:
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            self._poll()
            if not program.is_running:
                return True
            time.sleep(0.02)
        return False

    def _poll(self) -> None:
        if self._child is not None:
            self._child.poll()

    def _reap(self) -> None:
        if self._child is not None:
            self._child.wait()
            self._child = None
