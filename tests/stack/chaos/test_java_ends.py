"""Java ends under the driver, as with exit code 52, and cannot write down with which batch."""

import os
import signal
from collections.abc import Callable
from unittest.mock import patch

import msgspec
import psutil
import pytest

from coordlib.job import crash
from coordlib.job.checkpoint import Ended
from coordlib.local.stack import Stack
from tests.kit.waiting import wait_until
from tests.stack.conftest import JOB_ARGS
from tests.stack.wire import RawMember, Wire, settle

pytestmark = [pytest.mark.stack, pytest.mark.fault, pytest.mark.chaos]


def test_the_batch_is_noted_without_it_and_does_not_run_as_it_is(
    own_stack: Stack, start_job: Callable[..., None]
) -> None:
    """INV-131: the note was written through the process that had just ended, so the same batch ran
    three times until it was halved."""
    start_job()
    with Wire(own_stack.bootstrap_servers) as wire:
        honest = RawMember(wire, "honest", "honest", session_timeout_ms=600_000)
        settle([honest])
        own_stack.stop_job()
        with patch.dict(os.environ, {crash.VARIABLE: "batch-begins:0:stop"}):
            own_stack.launch_job((*JOB_ARGS, "--without-archive"))
        job = own_stack.job
        wait_until(
            "the driver is suspended in a batch",
            lambda: f"{crash.VARIABLE}: batch-begins" in own_stack.last_job_lines(50),
            300,
        )
        driver = job.driver_pid
        assert driver is not None
        os.kill(psutil.Process(driver).ppid(), signal.SIGKILL)
        os.kill(driver, signal.SIGCONT)
        wait_until("the job has ended", lambda: not job.is_running, 120)

        noted = own_stack.checkpoint / "ended.json"
        ended = msgspec.json.decode(noted.read_bytes(), type=Ended)
        assert (own_stack.checkpoint / "offsets" / str(ended.batch)).exists()
        start_job()
        assert "batches have fewer records: one has ended the job" in own_stack.last_job_lines(500)
        assert wire.answer(honest.commit(7), patience_s=120)["error"] == "NONE"
