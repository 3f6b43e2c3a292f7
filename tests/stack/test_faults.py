"""What a user may expect when things break: kills, restarts, losses.

All but one break the same job on the same broker, one after the other, as happens in production:
who finds it down starts it, and leaves it as it may be. Groups are each test's own.
"""

import gc
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch
from uuid import uuid4

import pytest

from coordlib.core.wire.envelope import shard_of
from coordlib.errors import SetupError
from coordlib.job import crash
from coordlib.local.processes import belonging_to
from coordlib.local.stack import Stack
from tests.kit.waiting import wait_until
from tests.stack.conftest import JOB_ARGS
from tests.stack.crew import Crew
from tests.stack.flow import Flow
from tests.stack.spark_crew import until_even
from tests.stack.truths import holds, outputs_are_exactly_once
from tests.stack.wire import REBALANCE_MS, SESSION_MS, RawMember, Wire, settle

pytestmark = [pytest.mark.stack, pytest.mark.fault]
#: What `make chaos` runs too, and `make test` has no time for.
CHAOS = pytest.mark.chaos
MEMBER: Final[dict[str, Any]] = {
    "group.protocol": "assigned",
    "auto.offset.reset": "earliest",
    "session.timeout.ms": 6_000,
    "heartbeat.interval.ms": 1_000,
    "max.poll.interval.ms": 60_000,
}

StartJob = Callable[..., None]


@pytest.fixture(scope="module")
def battered(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A broker and a job that goes on, whatever the tests do to it."""
    stack = Stack(tmp_path_factory.mktemp("battered") / "stack")
    stack.start_broker()
    yield stack
    gc.collect()  # clients that are not closed would tell that the broker is gone
    stack.down()


@pytest.fixture
def start(battered: Stack) -> StartJob:
    """Start the job of `battered`, perhaps with a crash in its way."""

    def start(*arguments: str, fault: str = "") -> None:
        battered.kill_job()
        with patch.dict(os.environ, {crash.VARIABLE: fault}):
            battered.start_job((*JOB_ARGS, "--without-archive", *arguments))

    return start


@pytest.fixture
def running(battered: Stack, start: StartJob) -> Stack:
    """`battered`, with its job at work."""
    if battered.status().job_state != "running":
        start()
    return battered


def expelled(wire: Wire, group: str) -> list[str]:
    return [event["reason"] for event in wire.events(group, "MemberRemoved")]


@CHAOS
def test_a_job_killed_in_its_first_batch_starts_again(
    own_stack: Stack, start_job: StartJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark has planned batch 0, nothing was committed: no marker yet, no reason to refuse."""
    monkeypatch.setenv(crash.VARIABLE, "before-commit:0")
    with pytest.raises(SetupError):
        start_job()
    monkeypatch.delenv(crash.VARIABLE)
    own_stack.kill_job()
    start_job()
    with Wire(own_stack.bootstrap_servers) as wire:
        settle([RawMember(wire, "g", "client", session_timeout_ms=60_000)])
        outputs_are_exactly_once(wire)


@pytest.mark.parametrize(
    "place",
    [*(pytest.param(each, marks=CHAOS) for each in ("in-task", "before-commit")), "after-commit"],
)
def test_a_job_killed_inside_a_batch_writes_everything_once(
    battered: Stack, start: StartJob, group: str, place: str
) -> None:
    """SIGKILL to a Python worker, or to the driver around its commit; the batch runs again. The
    other places are tried by `make chaos`.  # INV-34"""
    batch = battered.job.last_status().get("batch_id") or 0
    start(fault=f"{place}:{batch + 3}")
    with Wire(battered.bootstrap_servers) as wire:
        sent = []
        member = RawMember(wire, group, "client", session_timeout_ms=60_000)
        while battered.status().job_state == "running":
            position = {"topic": "t", "partition": 0, "offset": len(sent)}
            sent.append(wire.commit_position(f"{group}-{len(sent) % 5}", offsets=[position]))
            time.sleep(0.2)
        asked = member.ask_join()
        start()

        member.joined(asked)
        assert [wire.answer(coordinate)["error"] for coordinate in sent] == ["NONE"] * len(sent)
        fetched = wire.answer(wire.send("OffsetFetch", f"{group}-{(len(sent) - 1) % 5}"))
        assert fetched["offsets"][0]["offset"] == len(sent) - 1
        outputs_are_exactly_once(wire)


@CHAOS
def test_a_job_that_was_away_expels_nobody(running: Stack, start: StartJob, group: str) -> None:
    """A rebalance begins in a log that nobody judges, for longer than session and rebalance

    timeout. The members heartbeat all along and rejoin as soon as they hear of it; the deadline
    for that must begin when they can hear, not where the newcomer's request stands."""
    with Wire(running.bootstrap_servers) as wire:
        first, second = (RawMember(wire, group, name) for name in ("first", "second"))
        settle([first, second])
        for member in (first, second):
            member.start_heartbeats()
        running.kill_job()
        assert belonging_to(running.home, "job") == []
        assert running.status().job_state == "down"
        late = RawMember(wire, group, "late")
        asked = late.ask_join()
        time.sleep((SESSION_MS + REBALANCE_MS) / 1000 + 3)
        starting = threading.Thread(target=start)
        starting.start()

        wire.wait(
            "notice of the rebalance",
            lambda: [v for v in wire.values("responses") if v.get("cause") == asked],
            120,
        )
        rejoined = [first.ask_join(), second.ask_join()]
        answers = [m.joined(c) for m, c in zip((first, second), rejoined, strict=True)]
        answers.append(late.joined(asked))
        starting.join()

        assert [answer["error"] for answer in answers] == ["NONE"] * 3
        assert {member.generation for member in (first, second, late)} == {first.generation}
        assert expelled(wire, group) == []
        for member in (first, second):
            member.die()


@CHAOS
def test_members_die_while_the_job_is_away_and_are_expelled_after_it_is_back(
    running: Stack, start: StartJob, group: str
) -> None:
    """The start tick makes time pass, although nobody writes any more."""
    with Wire(running.bootstrap_servers) as wire:
        settle([RawMember(wire, group, "first"), RawMember(wire, group, "second")])
        running.kill_job()
        time.sleep(SESSION_MS / 1000)
        start()

        wire.event(group, "GroupEmptied")
        assert expelled(wire, group) == ["session expired"] * 2


@CHAOS  # but for the requests on their way, the next test shows the same
def test_sigterm_ends_the_job_between_batches_with_0(running: Stack, start: StartJob) -> None:
    with Wire(running.bootstrap_servers) as wire:
        names = [f"g{n}-{uuid4().hex[:8]}" for n in range(50)]
        coordinates = [wire.send("OffsetFetch", name) for name in names]
        assert running.stop_job() == 0
        start()
        for coordinate in coordinates:
            wire.answer(coordinate)
        outputs_are_exactly_once(wire)


@pytest.mark.chaos
def test_a_lost_checkpoint_is_refused_and_rebuilt(
    running: Stack, start: StartJob, group: str
) -> None:
    """F-25: groups and offsets come back from the compacted topics; nobody has to rejoin."""
    with Wire(running.bootstrap_servers) as wire:
        member = RawMember(wire, group, "client", session_timeout_ms=60_000)
        settle([member])
        wire.answer(member.commit(77))
        assert running.stop_job() == 0
        running.checkpoint.rename(running.home / f"lost-{group}")

        with pytest.raises(SetupError) as refused:
            start()
        assert "--rebuild" in str(refused.value)

        start("--rebuild")
        assert wire.answer(member.commit(78))["failed"] == []
        assert wire.answer(wire.send("OffsetFetch", group))["offsets"][0]["offset"] == 78
        outputs_are_exactly_once(wire)


@CHAOS
def test_a_large_backlog_is_read_in_bounded_batches(
    battered: Stack, start: StartJob, group: str
) -> None:
    """Hours of requests wait; heartbeats in them keep their members."""
    battered.kill_job()
    with Wire(battered.bootstrap_servers) as wire:
        member = RawMember(wire, group, "client")
        asked = member.ask_join()
        value = {"v": 1, "type": "OffsetFetch", "id": "b", "client": "b", "group": group}
        for _ in range(30_000):
            wire._producer.produce(
                "coord.requests", json.dumps(value), partition=shard_of(group, wire.shards)
            )
            wire._producer.poll(0)
        wire._producer.flush(60)
        start("--set", "engine.max_offsets_per_trigger=5000")

        assert member.joined(asked)["error"] == "NONE"
        last = wire.send("OffsetFetch", group)
        wire.answer(last)
        markers = [v for v in wire.values("progress") if "batch" in v]
        sizes = [b - a + 1 for m in markers for r in m["ranges"].values() for a, b in r.values()]
        assert 1_000 < max(sizes) <= 5_000
        outputs_are_exactly_once(wire)


@CHAOS
@pytest.mark.parametrize("place", ["before-commit", "after-commit"])
def test_the_job_dies_while_partitions_change_hands(
    running: Stack, start: StartJob, group: str, tmp_path: Path, place: str
) -> None:
    """SIGKILL between what was demanded and the Release, and another one around its commit: who
    was asked goes on letting go, and nobody is given a partition twice."""
    servers, first = running.bootstrap_servers, ("a", "b")
    config = MEMBER | {"bootstrap.servers": servers, "group.id": group}
    with (
        Wire(servers) as wire,
        Flow(servers, f"records-of-{group}", 6) as flow,
        Crew(tmp_path, flow.topic, config) as crew,
    ):
        crew.start(*first)
        flow.begin()
        until_even(crew, flow.places, *first)
        for name in first:
            crew[name].hold.touch()
        crew.start("c")
        crew.until("they are asked", lambda: all(crew[n].told("revoking") for n in first))
        running.kill_job()
        for name in first:
            crew[name].hold.unlink()
        with suppress(SetupError):
            start(fault=f"{place}:1")  # it may die before it is ready
        wait_until("the job has died", lambda: not running.job.is_running, 180.0)
        start()
        until_even(crew, flow.places, *first, "c")
        assert not wire.events(group, "MemberRemoved")
        holds(crew, flow, wire, group)
        outputs_are_exactly_once(wire)


@CHAOS
def test_a_broker_restart_costs_a_pause(running: Stack, start: StartJob, group: str) -> None:
    """The broker goes and comes within the session: nobody is expelled (F-16)."""
    with Wire(running.bootstrap_servers) as wire:
        member = RawMember(wire, group, "client", session_timeout_ms=30_000)
        settle([member])
        member.start_heartbeats()
        running.broker.stop()
        running.broker.start()
        if running.status().job_state != "running":
            # A batch that met the outage ends the job, as designed; its supervisor is we.
            start()

        assert wire.answer(member.commit(5))["failed"] == []
        assert expelled(wire, group) == []
        outputs_are_exactly_once(wire)
        member.die()


@CHAOS
def test_the_newer_driver_wins_and_the_older_says_so(running: Stack, group: str) -> None:
    """A supervisor started a second job while the first still runs (F-24). This is the last test:
    from now on the older checkpoint is refused."""
    older = running.job_pid
    with Wire(running.bootstrap_servers) as wire:
        settle([RawMember(wire, group, "client", session_timeout_ms=120_000)])
        newer = Stack(running.home.parent / "newer")
        newer.broker = running.broker
        newer.home.mkdir(parents=True, exist_ok=True)
        try:
            newer.start_job(
                ("--without-archive", "--rebuild", "--set", "group.initial_rebalance_delay_ms=0")
            )
            coordinate = wire.send("OffsetFetch", group)
            wire.answer(coordinate)
            wait_until("older ended", lambda: running.job_pid != older)
            assert "newer driver" in running.last_job_lines(60)
            assert running.stop_job() not in (0, None) or running.status().job_state == "down"
            outputs_are_exactly_once(wire)
        finally:
            newer.kill_job()
