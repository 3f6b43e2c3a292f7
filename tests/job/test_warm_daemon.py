"""The daemon of Spark's Python workers: what a worker finds in itself when it begins."""

import json
import os
import socket
import struct
import subprocess
import sys
from contextlib import closing
from pathlib import Path

from coordlib.job import warm_daemon
from coordlib.job.workers import LOW_NICENESS, environment_of

#: Spark's daemon starts modules of this beginning only.
WORKER = "pyspark_that_tells"
SECRET = b"a secret"
#: Linux's.
NICENESS_MAX = 19
TELLS = """
import gc, json, os, sys

def main(infile, outfile):
    told = {"frozen": gc.get_freeze_count(), "tracked": len(gc.get_objects()),
            "niceness": os.getpriority(os.PRIO_PROCESS, 0),
            "modules": [name for name in ("pandas", "pyarrow", "coordlib.job.operator")
                        if name in sys.modules]}
    outfile.write(json.dumps(told).encode() + b"\\n")
    sys.exit(1)  # the daemon shall not hand it on to a next task
"""


def _a_worker_tells(daemon: "subprocess.Popen[bytes]") -> dict[str, object]:
    """What JVM and daemon say to one another until a worker runs (pyspark/daemon.py)."""
    assert daemon.stdout is not None
    (port,) = struct.unpack("!i", daemon.stdout.read(4))
    with closing(socket.create_connection(("127.0.0.1", port), 20)) as connection:
        stream = connection.makefile("rwb")
        (pid,) = struct.unpack("!i", stream.read(4))
        assert pid != daemon.pid, "a worker is a process of its own"
        stream.write(struct.pack("!i", len(SECRET)) + SECRET)
        stream.flush()
        assert stream.read(6)[4:] == b"ok"
        told: dict[str, object] = json.loads(stream.readline())
        return told


def test_a_worker_is_forked_with_its_imports_done_and_its_heap_frozen(tmp_path: Path) -> None:
    """pyspark collects garbage after every task. What the daemon has imported must not be walked
    each time: that took more than the judging."""
    told = _of_a_worker(tmp_path)

    assert told["modules"] == ["pandas", "pyarrow", "coordlib.job.operator"]
    frozen, tracked = told["frozen"], told["tracked"]
    assert isinstance(frozen, int)
    assert isinstance(tracked, int)
    assert frozen > 50_000
    assert tracked < frozen / 20, "what is left to walk is the worker's own"
    assert told["niceness"] == os.getpriority(os.PRIO_PROCESS, 0)


def test_workers_of_a_query_that_gives_way_inherit_their_daemons_priority(tmp_path: Path) -> None:
    """A backlog of claims is judged while a member joins: on two cores the join comes first."""
    told = _of_a_worker(tmp_path, **environment_of({}, LOW_NICENESS))

    own = os.getpriority(os.PRIO_PROCESS, 0)
    assert told["niceness"] == min(NICENESS_MAX, own + LOW_NICENESS)


def _of_a_worker(tmp_path: Path, **variables: str) -> dict[str, object]:
    (tmp_path / f"{WORKER}.py").write_text(TELLS)
    environment = {
        **variables,
        "PATH": "/usr/bin:/bin",
        "PYTHONPATH": str(tmp_path),
        "PYTHON_WORKER_FACTORY_SECRET": SECRET.decode(),
    }
    command = [sys.executable, "-m", warm_daemon.__name__, WORKER]
    with subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as daemon:
        try:
            return _a_worker_tells(daemon)
        finally:
            assert daemon.stdin is not None
            daemon.stdin.close()  # so the JVM ends it
