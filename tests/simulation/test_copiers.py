"""Copiers in simulated worlds: drawn apart, on virtual time, and checked record by record."""

from collections import Counter
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from coordlib.core.wire import api
from tests.simulation.as_they_were import drawn
from tests.tools.simulation import drawing, plan, run
from tests.tools.simulation.cluster import Cluster, Outcome
from tests.tools.simulation.evidence import Asked
from tests.tools.simulation.kinds import COPIER_KINDS
from tests.tools.simulation.quiet import quiet_logs
from tests.tools.simulation.scheduler import Clock, Gone, Process, Scheduler
from tests.tools.simulation.situations_beside import OF_COPIERS
from tests.tools.simulation.transactions.checks import UNSTABLE, Waiting
from tests.tools.simulation.transactions.fibers import Fiber
from tests.tools.simulation.violation import Violation
from tests.tools.simulation.world import World

#: As little as there can be beside the copiers.
SMALL: dict[str, Any] = {"members": 2, "partitions": 1, "messages": 5, "length_ms": 40_000}


# -- worlds ----------------------------------------------------------------------------------------


def test_some_seeds_have_copiers_and_the_others_are_as_they_were(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Known bugs of groups and stores are found by the seeds that their headers name."""
    named = [drawing.draw(seed, kind=plan.CLASSIC) for seed in range(400)]
    monkeypatch.setattr(drawing, "_with_couriers", lambda drawn: drawn)
    with_them = drawn(monkeypatch, "_with_copiers", COPIER_KINDS, copiers=0)

    assert 0.05 < sum(each.copiers > 0 for each in with_them) / 400 < 0.2
    assert not any(each.copiers for each in named)


def test_faults_of_copiers_bring_copiers() -> None:
    """`--fault copier-killed` draws from that kind only."""
    drawn = drawing.draw(5, ("copier-killed", "copier-killed"))

    assert drawn.copiers in (2, 3)
    assert {fault.kind for fault in drawn.faults} == {"copier-killed"}


FAULTS = (
    *("copier-dies-inside", "copier-stalls-inside", "copier-joins", "copier-ends-late"),
    *("teller-killed", "teller-twin", "teller-words-again"),
)
#: What these faults must bring about, in one of the worlds at least.
MET = {
    *("copier struck at begun", "copier struck at asked", "copier struck at unheard-commit"),
    *("copier struck at committing", "copier struck at aborting"),
    *("users' transaction committed", "users' transaction aborted"),
    *("offsets of a transaction dropped", "offsets of a transaction refused"),
    *("end of a transaction unknown to its process", "teller's transaction committed"),
    *("teller's transaction aborted", "teller's transaction timed out"),
    *("teller's transaction ended by a newer process", "teller's request came again"),
    "teller's transaction told to several shards",
}


@pytest.mark.chaos
def test_copiers_and_tellers_come_through() -> None:
    """INV-91, INV-92, INV-93, INV-94, INV-95, INV-96, INV-97, INV-98, INV-99.

    A campaign plays more.
    """
    met: Counter[str] = Counter()
    for seed in (14, 40, 58, 60):
        world = World(replace(drawing.draw(seed, FAULTS * 3), **SMALL, shards=2))
        with quiet_logs():
            outcome = run.run_in(world)

        assert outcome.violation is None
        met.update(outcome.sometimes)
        assert world.copying is not None
        assert all(copier.fiber.is_over for copier in world.copying.processes)
    assert OF_COPIERS.keys() >= MET
    assert [name for name in MET if not met[name]] == []


# -- threads on virtual time -----------------------------------------------------------------------


def test_a_thread_runs_only_in_its_turns_and_ends_with_its_process() -> None:
    """One that is stopped goes on later, and one that is killed does nothing more."""
    scheduler = Scheduler(Random(1))
    process, seen = Process(scheduler, "p"), []

    def work() -> None:
        try:
            for _ in range(3):
                seen.append(scheduler.now_ms)
                fiber.sleep(10)
        except Gone:
            seen.append(-1)
            raise

    fiber = Fiber(process, work)
    process.after(1, fiber.resume)
    scheduler.after(5, process.stop)
    scheduler.after(40, process.resume)
    scheduler.run(45, lambda: None)
    assert seen == [1, 40]

    process.kill()
    fiber.resume()
    assert seen == [1, 40, -1]
    assert fiber.is_over


def test_what_a_thread_raises_is_raised_in_the_world() -> None:
    """A defect of a client must not be lost with the thread that met it."""
    scheduler = Scheduler(Random(1))

    def work() -> None:
        raise Violation("INV-97: seen")

    process = Process(scheduler, "p")
    process.after(1, Fiber(process, work).resume)

    with pytest.raises(Violation, match="INV-97"):
        scheduler.run(5, lambda: None)


def test_markers_of_one_id_leave_those_of_others_on_their_way() -> None:
    """Who starts ends its own transaction, and nobody else's."""
    scheduler = Scheduler(Random(1))
    cluster = Cluster(scheduler, Random(2), [Clock(scheduler)])
    cluster.create("t", 1)
    for name in ("a", "b"):
        cluster.init_transactions(name)
        transaction = cluster.open_transaction(name)
        transaction.places["t", 0] = cluster.append(("t", 0), None, b"", transaction)
        cluster.end_transaction(name, Outcome.COMMITTED)
    cluster.init_transactions("a")

    assert not cluster.is_ending("a")
    assert cluster.is_ending("b")
    assert cluster.partitions["t", 0].last_stable == 1


# -- checks that find nothing may be blind ---------------------------------------------------------


def asked(offset: int, request: api.Request) -> Asked:
    return Asked(0, offset, offset, request)


def pending(offset: int, at: int) -> Asked:
    rows = (api.CommittedOffset("draft", 0, at),)
    who: dict[str, Any] = {"v": 1, "id": "1", "client": "k", "group": "copiers", "reply": 0}
    return asked(offset, api.PendingCommit(**who, decided_by="kafka", offsets=rows))


def fetch(offset: int) -> Asked:
    who: dict[str, Any] = {"v": 1, "id": "1", "client": "k", "group": "copiers", "reply": 0}
    return asked(offset, api.OffsetFetch(**who, topics=None, require_stable=True))


def told(offset: int = -1, error: str = "NONE") -> list[dict[str, Any]]:
    row = {"topic": "draft", "partition": 0, "offset": offset, "error": error}
    return [{"error": "NONE", "offsets": [row]}]


def decided(**outcomes: tuple[int, ...]) -> api.TxnDecided:
    return api.TxnDecided(v=1, **outcomes)


@pytest.fixture
def waiting() -> Waiting:
    """Offset 7 waits, by record 3."""
    made = Waiting(0)
    made.judge(pending(3, 7), [{"error": "NONE"}])
    return made


def test_an_honest_log_passes(waiting: Waiting) -> None:
    """INV-93: waiting, committed, and a second transaction that was aborted."""
    waiting.judge(fetch(4), told(error=UNSTABLE))
    waiting.decide(decided(committed=(3,)))
    waiting.judge(fetch(5), told(7))
    waiting.judge(pending(6, 9), [{"error": "NONE"}])
    waiting.decide(decided(aborted=(6,)))
    waiting.judge(fetch(8), told(7))


@pytest.mark.parametrize(
    ("record", "answer"),
    [
        pytest.param(None, told(-1), id="told while it waits"),
        pytest.param(decided(committed=(3,)), told(error=UNSTABLE), id="waits for ever"),
        pytest.param(decided(committed=(3,)), told(-1), id="committed and lost"),
        pytest.param(decided(aborted=(3,)), told(7), id="aborted and kept"),
    ],
)
def test_a_wrong_answer_is_seen(
    waiting: Waiting, record: api.TxnDecided | None, answer: list[dict[str, Any]]
) -> None:
    """INV-93."""
    if record is not None:
        waiting.decide(record)

    with pytest.raises(Violation, match="INV-93"):
        waiting.judge(fetch(9), answer)


def test_offsets_that_were_refused_do_not_wait() -> None:
    """Nothing is to be decided about them."""
    made = Waiting(0)
    made.judge(pending(3, 7), [{"error": "ILLEGAL_GENERATION"}])
    made.decide(decided(committed=(3,)))

    made.judge(fetch(4), told(-1))
