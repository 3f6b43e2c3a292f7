"""The jobs of a checkout, started by `spark-submit.sh` and the scripts in jobs/: on a real broker
each does its work, and ends in order when it is told to."""

import json
import os
import signal
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from coordlib import exit_codes
from coordlib.core.wire.topics import COORDINATION_TOPIC
from coordlib.history.sql import query_tables
from coordlib.kafka import coordination, topics
from tests.kit.waiting import wait_until
from tests.stack.wire import RawMember, Wire

if TYPE_CHECKING:
    from coordlib.local.broker import Broker

pytestmark = pytest.mark.stack

ROOT = Path(__file__).parents[2]


class Scripts:
    """Jobs over one prefix, each in a folder of its own."""

    def __init__(self, broker: "Broker", folder: Path) -> None:
        self.servers = broker.bootstrap_servers
        self.prefix, self.folder = f"s{uuid.uuid4().hex[:8]}", folder
        client = {"bootstrap.servers": self.servers}
        topics.create(client, self.prefix, 2, 4, 1)
        coordination.create_coordination(client, self.claims, coordination.PARTITIONS, 1)
        coordination.create(client, self.prefix, self.claims, 1)

    @property
    def claims(self) -> str:
        return f"{COORDINATION_TOPIC}-{self.prefix}"

    @contextmanager
    def running(self, script: str, *arguments: str) -> Iterator[Path]:
        """One of them, until SIGTERM; gives its status file."""
        log, status = self.folder / f"{script}.log", self.folder / f"{script}.json"
        command = [
            *(str(ROOT / "spark-submit.sh"), str(ROOT / "jobs" / script)),
            *("--bootstrap-servers", self.servers, "--prefix", self.prefix),
            *("--checkpoint", str(self.folder / f"{script}.checkpoint"), *arguments),
        ]
        with log.open("wb") as out:
            job = subprocess.Popen(command, stdout=out, stderr=out, env=dict(os.environ))
        try:
            yield status
            assert job.poll() is None, log.read_text()[-3_000:]
        finally:
            job.send_signal(signal.SIGTERM)
            code = job.wait()
        assert code == exit_codes.OK, log.read_text()[-3_000:]


def _is_running(status: Path) -> bool:
    return status.exists() and json.loads(status.read_text())["state"] == "running"


def test_the_scripts_of_a_checkout_do_their_work_and_end_in_order(
    broker: "Broker", tmp_path: Path
) -> None:
    """Groups, history and claims in three applications, as on a cluster."""
    scripts = Scripts(broker, tmp_path)
    status, tables = str(tmp_path / "coordinate.py.json"), tmp_path / "tables"
    alone = ("--without-archive", "--without-claims", "--status-file", status)
    with (
        scripts.running("coordinate.py", *alone) as told,
        Wire(scripts.servers, scripts.prefix) as wire,
    ):
        wait_until("the job runs", lambda: _is_running(told), 300)
        member = RawMember(wire, "billing", "a")
        assert member.joined(member.ask_join())["error"] == "NONE"
    with scripts.running("archive.py", "--tables", str(tables), "--interval-seconds", "1"):
        wait_until(
            "history is there",
            lambda: (
                (tables / "lag" / "_delta_log").exists()
                and query_tables(tables, "SELECT count(*) FROM events").rows[0][0] > 0
            ),
            300,
        )
    status = str(tmp_path / "claims.py.json")
    with scripts.running("claims.py", "--topic", scripts.claims, "--status-file", status) as told:
        wait_until("claims are followed", lambda: _is_running(told), 300)
