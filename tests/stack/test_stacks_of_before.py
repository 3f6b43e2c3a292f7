"""A stack as older code has left it: broker, checkpoint and tables, started by the code of today.

`stacks/state-version-1.tgz` was made by the last code of state version 1: `coord up`, a classic
member with 70 committed offsets, a server-assigned member, a tool's offset by `coord.offsets`, the
archive's first batches, `coord down`. Sessions are five minutes: they live on, however long ago
that was, since a shard's clock takes one CAP of the time in which it was away (rule 1).
"""

import tarfile
from pathlib import Path
from typing import Any, Final

import pytest

from coordlib.history.sql import query_tables
from coordlib.local.stack import Stack
from tests.stack.conftest import wait_until
from tests.stack.wire import Wire

pytestmark = pytest.mark.fault

STACKS: Final = Path(__file__).parent / "stacks"
MEMBER: Final[dict[str, Any]] = {
    "generation": 1,
    "member": "a-ikRcZ7ca-1-2",
    "instance": "till",
}
DIVIDED: Final = "b-ikRcZ7ca-0-2"


def test_a_stack_of_state_version_1_goes_on(tmp_path: Path) -> None:
    """An upgrade: stop, install, start on the same checkpoint. Nobody has to join again. The tables
    of history do not say whose they are: they are refused, and begun anew in their place."""
    with tarfile.open(STACKS / "state-version-1.tgz") as packed:
        packed.extractall(tmp_path, filter="data")
    stack = Stack(tmp_path / "before")
    events = "SELECT count(*) FROM events"
    assert query_tables(stack.tables, events, []).rows == ((5,),)
    try:
        stack.up(job_args=("--set", "engine.archive_interval_ms=1000"), new_ports=True)
        with Wire(stack.bootstrap_servers) as wire:
            _go_on(wire)
        wait_until("the tables are refused", lambda: "neither a prefix" in _archive_error(stack))
        assert query_tables(stack.tables, events, []).rows == ((5,),)
        stack.down()
        stack.tables.rename(tmp_path / "kept")
        stack.up(job_args=("--set", "engine.archive_interval_ms=1000"))
        wait_until("there are tables", lambda: (stack.tables / "lag" / "_delta_log").exists())
        wait_until(
            "the archive has begun anew",
            lambda: query_tables(stack.tables, events, []).rows[0][0] > 5,
        )
    finally:
        stack.down()


def _archive_error(stack: Stack) -> str:
    failing = stack.job.told().get("watches_failing") or {}
    return str(failing.get("archive", {}).get("error", ""))


def _go_on(wire: Wire) -> None:
    later = {"topic": "t", "partition": 1, "offset": 99}
    commit = wire.send("OffsetCommit", "billing", "a", offsets=[later], **MEMBER)
    assert wire.answer(commit)["failed"] == []
    fetched = wire.answer(wire.send("OffsetFetch", "billing", "a"))["offsets"]
    assert [row["offset"] for row in fetched] == [10, 99, *range(12, 80)]
    stale = wire.send("Heartbeat", "billing", "a", **{**MEMBER, "generation": 6})
    assert wire.answer(stale)["error"] == "ILLEGAL_GENERATION"

    fleet = wire.answer(wire.send("DescribeGroup", "fleet", "ops"))
    assert (fleet["state"], fleet["generation"]) == ("Stable", 1)
    assert [each["member"] for each in fleet["members"]] == [DIVIDED]
    tools = wire.answer(wire.send("OffsetFetch", "tools", "tool"))["offsets"]
    assert [row["offset"] for row in tools] == [5]
