"""Stacks of releases, started by the code of today: nobody has to join again, nothing is lost.

`python -m tests.tools.release` has made them; its docstring says what they have.
"""

import base64
import json
import lzma
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from coordlib.client.admin import Admin
from coordlib.core.registry import REGISTRY
from coordlib.core.wire import claims as marshal
from coordlib.core.wire.envelope import Refusal
from coordlib.history.sql import query_tables
from coordlib.local.stack import Stack
from tests.kit.waiting import wait_until
from tests.stack.wire import Wire
from tests.tools.release import COORDINATION, RECORDS, clients_of, stack_of

STACKS: Final = Path(__file__).parent / "stacks"
RELEASES: Final = ("0.1.0",)


def written(release: str) -> list[dict[str, Any]]:
    """What the clients of the release have written."""
    lines = lzma.decompress(clients_of(release, STACKS).read_bytes()).splitlines()
    return [json.loads(line) for line in lines]


@pytest.mark.parametrize("release", RELEASES)
def test_what_clients_of_a_release_write_is_read(release: str) -> None:
    """INV-84: clients are upgraded after the job."""
    kinds: set[str] = set()
    for each in written(release):
        value = base64.b64decode(each["value"])
        if each["topic"] == COORDINATION:
            message = marshal.read(value)
            assert not isinstance(message, marshal.Rejected), value
        else:
            message = REGISTRY.reader.read(value)
            assert not isinstance(message, Refusal), message
        kinds.add(type(message).__name__)

    assert kinds >= {
        *("JoinGroup", "SyncGroup", "Subscribe", "Heartbeat", "OffsetCommit", "DescribeGroup"),
        *("RegisterBroker", "BrokerHeartbeat", "CreateTopics"),
        *("InitProducerId", "AddPartitionsToTxn", "TxnOffsetCommit"),
        *("ClaimingPartition",),
    }


@pytest.fixture(params=RELEASES)
def stack(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stack]:
    with tarfile.open(stack_of(request.param, STACKS)) as packed:
        packed.extractall(tmp_path, filter="data")
    stack = Stack(tmp_path / "stack")
    yield stack
    stack.down()


@pytest.mark.stack
@pytest.mark.fault
def test_the_stack_of_a_release_goes_on(stack: Stack) -> None:
    """An upgrade: stop, install, start on the same checkpoint. Requests that were parked are
    answered, open rebalances end, and the transaction is decided."""
    events = events_in(stack)
    stack.up(job_args=("--set", "engine.archive_interval_ms=1000"), new_ports=True)
    with Wire(stack.bootstrap_servers) as wire, Admin(stack.client()) as admin:
        groups_are_there(admin)
        rebalances_end(wire)
        the_syncing_group_gets_its_assignment(wire)
        the_transaction_ends(wire, admin)
    claims = stack.status().job.get("claims") or {}
    assert (claims["topic"], stack.status().job.get("watches_failing")) == (COORDINATION, {})
    wait_until("history goes on", lambda: events_in(stack) > events)


def events_in(stack: Stack) -> int:
    ((count,),) = query_tables(stack.tables, "SELECT count(*) FROM events", []).rows
    return int(count)


def groups_are_there(admin: Admin) -> None:
    states = {
        group: admin.describe_group(group).state
        for group in ("billing", "rebalancing", "reconciling", "syncing", "tools")
    }
    assert states == {
        "billing": "Stable",
        "rebalancing": "PreparingRebalance",
        "reconciling": "Reconciling",
        "syncing": "CompletingRebalance",
        "tools": "Empty",
    }
    committed = {row.partition: row.offset for row in admin.committed("billing")}
    assert sum(committed.values()) == RECORDS
    assert [row.offset for row in admin.committed("tools")] == [5]
    shop = admin.metadata("shop")
    assert (sorted(shop.brokers), {place.topic for place in shop.partitions}) == ([1, 2], {"items"})


def rebalances_end(wire: Wire) -> None:
    """The member that was not polled leaves: the other one, whose request waits, gets all."""
    for group in ("rebalancing", "reconciling"):
        before = wire.answer(wire.send("DescribeGroup", group, "ops"))
        (first,) = (row["member"] for row in before["members"] if row["client"] == f"{group}-1")
        left = wire.send("LeaveGroup", group, f"{group}-1", members=[{"member": first}])
        assert wire.answer(left)["error"] == "NONE"
    wire.wait("the parked JoinGroup is answered", lambda: told(wire, "JoinGroup", "rebalancing-2"))
    wire.wait("the share is told", lambda: told(wire, "AssignmentChanged", "", "reconciling"))


def told(wire: Wire, type_: str, client: str, group: str = "") -> list[Any]:
    """Answers and notices of this kind since the start; the member is not there to read them."""
    return [
        each
        for each in wire.values("responses")
        if (each["type"], each.get("error", "NONE")) == (type_, "NONE")
        and (each.get("client") == client if client else each.get("group") == group)
    ]


def the_syncing_group_gets_its_assignment(wire: Wire) -> None:
    """Its leader assigns: the follower's SyncGroup, which waits, is answered."""
    assert told(wire, "SyncGroup", "b") == []
    group = wire.answer(wire.send("DescribeGroup", "syncing", "ops"))
    share = base64.b64encode(b"a share").decode()
    rows = [{"member": row["member"], "assignment": share} for row in group["members"]]
    named = {"generation": group["generation"], "member": group["leader"], "assignments": rows}
    assert wire.answer(wire.send("SyncGroup", "syncing", "a", **named))["error"] == "NONE"
    (answer,) = wire.wait("the parked SyncGroup is answered", lambda: told(wire, "SyncGroup", "b"))
    assert answer["assignment"] == share


def the_transaction_ends(wire: Wire, admin: Admin) -> None:
    """An operator aborts it: what was sent does not count."""
    before = {row.partition: row.offset for row in admin.committed("billing")}
    assert admin.abort_transaction("copier", "its producer is gone") == "abort"
    wire.event("billing", "OffsetsDropped")
    assert {row.partition: row.offset for row in admin.committed("billing")} == before
