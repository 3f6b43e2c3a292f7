"""A stack of another state version is refused: the error names the remedy, and nothing is changed.

`stacks/state-version-1.tgz` was made by code of state version 1, which was never released: `coord
up`, a classic member, a server-assigned one, a tool's offset, the archive's first batches, `coord
down`.
"""

import tarfile
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
from confluent_kafka import Producer

from coordlib.core.wire.stored import MARKER_VERSION
from coordlib.errors import SetupError
from coordlib.history.sql import query_tables
from coordlib.kafka.reading import newest_by_key
from coordlib.local.stack import Stack
from tests.kit.waiting import wait_until
from tests.stack.wire import Wire, close

pytestmark = pytest.mark.fault

STACKS: Final = Path(__file__).parent / "stacks"
PROGRESS: Final = "coord.progress"


@pytest.mark.chaos
def test_a_stack_of_another_version_is_refused(tmp_path: Path) -> None:
    """INV-08: its marker, a marker of code to come, then its checkpoint, before a state is read."""
    with tarfile.open(STACKS / "state-version-1.tgz") as packed:
        packed.extractall(tmp_path, filter="data")
    stack = Stack(tmp_path / "before")
    try:
        with pytest.raises(SetupError):
            stack.up(new_ports=True)
        assert "progress marker: version 1, this code knows 2" in stack.last_job_lines(40)
        assert "Start the code that wrote it" in stack.last_job_lines(40)

        marker = _marker(stack)
        _write_marker(stack, marker | {"v": 99})
        with pytest.raises(SetupError):
            stack.start_job()
        assert "progress marker: version 99, this code knows 2" in stack.last_job_lines(40)

        _write_marker(stack, _as_of_today(marker))
        with Wire(stack.bootstrap_servers) as wire:
            wire.send("DescribeGroup", "billing", "ops")
        stack.launch_job()
        wait_until("the job ends", lambda: not stack.job.is_running, patience_s=120)
        assert "code of another version made it" in stack.last_job_lines(40)
        assert "--rebuild" in stack.last_job_lines(40)

        assert query_tables(stack.tables, "SELECT count(*) FROM events", []).rows == ((5,),)
        _write_marker(stack, marker)
    finally:
        stack.down()


def _marker(stack: Stack) -> dict[str, Any]:
    found = newest_by_key(stack.client(), PROGRESS, 0)[b"marker"]
    marker: dict[str, Any] = msgspec.json.decode(found)
    return marker


def _write_marker(stack: Stack, marker: dict[str, Any]) -> None:
    producer = Producer({"bootstrap.servers": stack.bootstrap_servers})
    producer.produce(PROGRESS, msgspec.json.encode(marker), key=b"marker", partition=0)
    close(producer)


def _as_of_today(marker: dict[str, Any]) -> dict[str, Any]:
    """The same places in the form of this code, so that the job comes to the states."""
    shards = {}
    for number, position in marker["shards"].items():
        rest = {name: position[name] for name in position if not name.endswith("offset")}
        offsets = {"r": position["offset"], "o": position["commits_offset"]}
        shards[number] = rest | {"offsets": offsets}
    return marker | {"v": MARKER_VERSION, "shards": shards}
