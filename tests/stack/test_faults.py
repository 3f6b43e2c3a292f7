"""What a user may expect when things break. Each test has a broker of its own, and kills."""

import json
import threading
import time
from collections.abc import Callable

import pytest

from coordlib.errors import SetupError
from coordlib.local.stack import Stack
from coordlib.records.partitioner import shard_of
from tests.stack.conftest import wait_until
from tests.stack.truths import outputs_are_exactly_once
from tests.stack.wire import REBALANCE_MS, SESSION_MS, RawMember, Wire, settle

pytestmark = [pytest.mark.stack, pytest.mark.fault]
#: What `make chaos` runs too, and `make test` has no time for.
CHAOS = pytest.mark.chaos

StartJob = Callable[..., None]


def expelled(wire: Wire, group: str) -> list[str]:
    wire.read_everything()
    return [event["reason"] for event in wire.events(group, "MemberRemoved")]


@CHAOS
def test_a_job_killed_in_its_first_batch_starts_again(
    own_stack: Stack, start_job: StartJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark has planned batch 0, nothing was committed: no marker yet, no reason to refuse."""
    monkeypatch.setenv("COORD_FAULT", "before-commit:0")
    with pytest.raises(SetupError):
        start_job()
    monkeypatch.delenv("COORD_FAULT")
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
    own_stack: Stack, start_job: StartJob, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """SIGKILL to a Python worker, or to the driver around its commit; the batch runs again. The
    other places are tried by `make chaos`.  # INV-34"""
    monkeypatch.setenv("COORD_FAULT", f"{place}:3")
    start_job()
    monkeypatch.delenv("COORD_FAULT")
    with Wire(own_stack.bootstrap_servers) as wire:
        group, sent = "g", []
        member = RawMember(wire, group, "client", session_timeout_ms=60_000)
        while own_stack.status().job_state == "running":
            sent.append(wire.commit_position(f"offsets-{len(sent) % 5}", offsets=[_row(len(sent))]))
            time.sleep(0.2)
        asked = member.ask_join()
        own_stack.kill_job()
        start_job()

        member.joined(asked)
        assert [wire.answer(coordinate)["error"] for coordinate in sent] == ["NONE"] * len(sent)
        fetched = wire.answer(wire.send("OffsetFetch", f"offsets-{(len(sent) - 1) % 5}"))
        assert fetched["offsets"][0]["offset"] == len(sent) - 1
        outputs_are_exactly_once(wire)


def _row(offset: int) -> dict[str, object]:
    return {"topic": "t", "partition": 0, "offset": offset}


def test_a_job_that_was_away_expels_nobody(own_stack: Stack, start_job: StartJob) -> None:
    """A rebalance begins in a log that nobody judges, for longer than session and rebalance

    timeout. The members heartbeat all along and rejoin as soon as they hear of it; the deadline
    for that must begin when they can hear, not where the newcomer's request stands."""
    start_job()
    with Wire(own_stack.bootstrap_servers) as wire:
        first, second = (RawMember(wire, "g", name) for name in ("first", "second"))
        settle([first, second])
        for member in (first, second):
            member.start_heartbeats()
        own_stack.kill_job()
        late = RawMember(wire, "g", "late")
        asked = late.ask_join()
        time.sleep((SESSION_MS + REBALANCE_MS) / 1000 + 3)
        starting = threading.Thread(target=start_job)
        starting.start()

        wire.wait(
            "notice of the rebalance",
            lambda: [v for v in wire.values("responses") if v.get("cause") == asked],
        )
        rejoined = [first.ask_join(), second.ask_join()]
        answers = [m.joined(c) for m, c in zip((first, second), rejoined, strict=True)]
        answers.append(late.joined(asked))
        starting.join()

        assert [answer["error"] for answer in answers] == ["NONE"] * 3
        assert {member.generation for member in (first, second, late)} == {first.generation}
        assert expelled(wire, "g") == []
        for member in (first, second):
            member.die()


@CHAOS
def test_members_die_while_the_job_is_away_and_are_expelled_after_it_is_back(
    own_stack: Stack, start_job: StartJob
) -> None:
    """The start tick makes time pass, although nobody writes any more."""
    start_job()
    with Wire(own_stack.bootstrap_servers) as wire:
        settle([RawMember(wire, "g", "first"), RawMember(wire, "g", "second")])
        own_stack.kill_job()
        time.sleep(SESSION_MS / 1000)
        start_job()

        wire.event("g", "GroupEmptied")
        assert expelled(wire, "g") == ["session expired"] * 2


def test_a_large_backlog_is_read_in_bounded_batches(own_stack: Stack, start_job: StartJob) -> None:
    """Hours of requests wait; heartbeats in them keep their members."""
    with Wire(own_stack.bootstrap_servers) as wire:
        member = RawMember(wire, "g", "client")
        asked = member.ask_join()
        value = {"v": 1, "type": "OffsetFetch", "id": "b", "client": "b", "group": "g"}
        for _ in range(30_000):
            wire._producer.produce(
                "coord.requests", json.dumps(value), partition=shard_of("g", wire.shards)
            )
            wire._producer.poll(0)
        wire._producer.flush(60)
        start_job("--set", "engine.max_offsets_per_trigger=5000")

        assert member.joined(asked)["error"] == "NONE"
        last = wire.send("OffsetFetch", "g")
        wire.answer(last)
        markers = [v for v in wire.values("progress") if "batch" in v]
        sizes = [b - a + 1 for m in markers for r in m["ranges"].values() for a, b in r.values()]
        assert max(sizes) <= 5_000
        outputs_are_exactly_once(wire)


def test_the_newer_driver_wins_and_the_older_says_so(
    own_stack: Stack, start_job: StartJob, tmp_path: object
) -> None:
    """A supervisor started a second job while the first still runs (F-24)."""
    start_job()
    older = own_stack.job_pid
    with Wire(own_stack.bootstrap_servers) as wire:
        settle([RawMember(wire, "g", "client", session_timeout_ms=120_000)])
        newer = Stack(own_stack.home.parent / "newer")
        newer.broker = own_stack.broker
        newer.home.mkdir(parents=True, exist_ok=True)
        try:
            newer.start_job(
                ("--without-archive", "--rebuild", "--set", "group.initial_rebalance_delay_ms=0")
            )
            coordinate = wire.send("OffsetFetch", "g")
            wire.answer(coordinate)
            wait_until("older ended", lambda: own_stack.job_pid != older)
            assert "newer driver" in own_stack.last_job_lines(60)
            assert own_stack.stop_job() not in (0, None) or own_stack.status().job_state == "down"
            outputs_are_exactly_once(wire)
        finally:
            newer.kill_job()


def test_a_broker_restart_costs_a_pause(own_stack: Stack, start_job: StartJob) -> None:
    """The broker goes and comes within the session: nobody is expelled (F-16)."""
    start_job()
    with Wire(own_stack.bootstrap_servers) as wire:
        member = RawMember(wire, "g", "client", session_timeout_ms=30_000)
        settle([member])
        member.start_heartbeats()
        own_stack.broker.stop()
        own_stack.broker.start()
        if own_stack.status().job_state != "running":
            # A batch that met the outage ends the job, as designed; its supervisor is we.
            own_stack.kill_job()
            start_job()

        assert wire.answer(member.commit(5))["failed"] == []
        assert expelled(wire, "g") == []
        outputs_are_exactly_once(wire)
        member.die()


def test_sigterm_ends_the_job_between_batches_with_0(own_stack: Stack, start_job: StartJob) -> None:
    start_job()
    with Wire(own_stack.bootstrap_servers) as wire:
        coordinates = [wire.send("OffsetFetch", f"g{n}") for n in range(50)]
        assert own_stack.stop_job() == 0
        start_job()
        for coordinate in coordinates:
            wire.answer(coordinate)
        outputs_are_exactly_once(wire)


def test_a_lost_checkpoint_is_refused_and_rebuilt(own_stack: Stack, start_job: StartJob) -> None:
    """F-25: groups and offsets come back from the compacted topics; nobody has to rejoin."""
    start_job()
    with Wire(own_stack.bootstrap_servers) as wire:
        member = RawMember(wire, "g", "client", session_timeout_ms=60_000)
        settle([member])
        wire.answer(member.commit(77))
        assert own_stack.stop_job() == 0
        own_stack.checkpoint.rename(own_stack.home / "lost")

        with pytest.raises(SetupError) as refused:
            start_job()
        assert "--rebuild" in str(refused.value)

        start_job("--rebuild")
        assert wire.answer(member.commit(78))["failed"] == []
        assert wire.answer(wire.send("OffsetFetch", "g"))["offsets"][0]["offset"] == 78
        outputs_are_exactly_once(wire)
