"""Every command of the page about clusters is run, in its order, with other addresses."""

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest

from coordlib.local.processes import belonging_to, environment_of, free_ports, is_answering
from coordlib.local.stack import Stack
from tests.architecture.test_tidy import ROOT
from tests.kit.waiting import wait_until
from tests.stack.cluster_page import blocks, commands
from tests.stack.wire import RawMember, Wire

pytestmark = [pytest.mark.stack, pytest.mark.fault, pytest.mark.chaos]
PATIENCE_S: Final = 600.0


class Reader:
    """Somebody who types what the page says."""

    def __init__(self, broker: Stack, folder: Path) -> None:
        self._folder, self._port = folder, free_ports(1)[0]
        self._other = {
            "HOST:PORT": broker.bootstrap_servers,
            "127.0.0.1:7077": f"127.0.0.1:{self._port}",
            "--port 7077": f"--port {self._port}",
            "/shared": str(folder / "shared"),
            "--replication 3": "--replication 1",  # there is one broker
            "--prefix coord": "--prefix paged",  # whose topics are not there yet
            "coord status": "coord status --prefix paged",
        }
        self._env = environment_of(folder, "cluster")
        self._env.pop("PYTHONPATH", None)
        self._running: list[subprocess.Popen[bytes]] = []

    @property
    def has_master(self) -> bool:
        return is_answering(self._port)

    def types(self, text: str) -> int:
        """A command, or a block of them; its exit code."""
        return self.begins(text).wait(PATIENCE_S)

    def begins(self, text: str) -> subprocess.Popen[bytes]:
        for page, here in self._other.items():
            text = text.replace(page, here)
        with (self._folder / "terminal.log").open("ab") as log:
            running = subprocess.Popen(
                ["bash", "-euc", text], env=self._env, cwd=ROOT, stdout=log, stderr=log
            )
        self._running.append(running)
        return running

    def leaves(self) -> None:
        while left := belonging_to(self._folder, "cluster"):
            for program in left:
                program.signal(signal.SIGKILL)
            for running in self._running:
                with suppress(subprocess.TimeoutExpired):
                    running.wait(0.1)


@pytest.fixture
def reader(own_stack: Stack, tmp_path: Path) -> Iterator[Reader]:
    reader = Reader(own_stack, tmp_path)
    yield reader
    reader.leaves()


def test_the_commands_of_the_page_do_what_it_says(reader: Reader, own_stack: Stack) -> None:
    cluster, job = blocks()
    create, submit, status = commands(job)

    assert reader.types(cluster) == 0
    wait_until("the master answers", lambda: reader.has_master, PATIENCE_S)
    assert reader.types(create) == 0
    running = reader.begins(f"exec {submit.removesuffix(' &')}")
    deadline = time.monotonic() + PATIENCE_S
    with Wire(own_stack.bootstrap_servers, "paged", shards=8) as wire:
        member = RawMember(wire, "g", "client", session_timeout_ms=300_000)
        asked = member.ask_join()
        assert wire.answer(asked, PATIENCE_S)["error"] == "NONE"
        assert running.poll() is None
    while reader.types(status) != 0:
        assert time.monotonic() < deadline
    os.kill(running.pid, signal.SIGTERM)

    assert running.wait(PATIENCE_S) == 0
