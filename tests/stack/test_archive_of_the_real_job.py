"""The archive inside the job fails, and groups do not notice."""

import contextlib
from collections.abc import Callable

import pytest

from coordlib.errors import CannotReach
from coordlib.history.sql import query_tables
from coordlib.local.stack import Stack
from tests.kit.waiting import wait_until
from tests.stack.wire import RawMember, Wire, settle

pytestmark = pytest.mark.stack


@pytest.mark.chaos
def test_groups_get_answers_while_the_archive_fails_and_history_is_made_up_for(
    own_stack: Stack, start_job: Callable[..., None]
) -> None:
    """The table store cannot be written: it ended coordination for all, and each restart into the
    same failure did so again. The status says what fails until it works."""
    own_stack.tables.write_text("a file where the folder of the tables should be")
    start_job("--set", "engine.archive_interval_ms=500", archive=True)
    wait_until("the failure is told", lambda: "archive" in _failing(own_stack))
    with Wire(own_stack.bootstrap_servers) as wire:
        settle([RawMember(wire, "g", "first", session_timeout_ms=60_000)])
        assert "archive" in _failing(own_stack)
        assert own_stack.status().job_state == "running"
        own_stack.tables.unlink()

        # The pause before the next try has grown while the job was starting.
        wait_until("history is written", lambda: _generations(own_stack) == 1, patience_s=240)

        wait_until("nothing is told any more", lambda: _failing(own_stack) == set())
        row = {"topic": "t", "partition": 0, "offset": 1}
        assert wire.answer(wire.commit_position("h", offsets=[row]))["error"] == "NONE"


def _failing(stack: Stack) -> set[str]:
    return set(stack.status().job.get("watches_failing", {}))


def _generations(stack: Stack) -> int:
    with contextlib.suppress(CannotReach):  # the table is not there yet
        return int(query_tables(stack.tables, "SELECT count(*) FROM generations").rows[0][0])
    return 0
