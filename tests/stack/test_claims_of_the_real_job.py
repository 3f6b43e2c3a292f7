"""The claims query in the real job: exactly once whatever dies, and groups go on when it fails."""

import gc
import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from statistics import median
from unittest.mock import patch

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions

from coordlib.errors import CannotReach, SetupError
from coordlib.history.sql import query_tables
from coordlib.job import crash
from coordlib.kafka.coordination import create, create_coordination
from coordlib.local.stack import Stack
from tests.kit.waiting import wait_until
from tests.stack.claimants import HI_S, PREFIX, TOPIC, Claimants
from tests.stack.conftest import JOB_ARGS
from tests.stack.wire import RawMember, Wire, settle

pytestmark = [pytest.mark.stack, pytest.mark.fault]
#: What `make chaos` runs too, and `make test` has no time for.
CHAOS = pytest.mark.chaos
#: Of the time that groups take while claims work, at most so many times as much while they fail:
#: their query begins again and again, on the cores that groups use.
SLOWER_MAX = 4.0
StartJob = Callable[..., None]


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    """A broker with a coordination topic of four partitions, whose job follows it."""
    stack = Stack(tmp_path / "stack", claims=TOPIC)
    stack.start_broker()
    yield stack
    gc.collect()  # clients that are not closed would tell that the broker is gone
    stack.down()


@pytest.fixture
def start(stack: Stack) -> StartJob:
    """Start the job, perhaps with a crash in its way."""

    def start(*arguments: str, fault: str = "", archive: bool = False) -> None:
        stack.kill_job()
        extra = () if archive else ("--without-archive",)
        with patch.dict(os.environ, {crash.VARIABLE: fault}):
            stack.start_job((*JOB_ARGS, *extra, *arguments))

    return start


def failing(stack: Stack) -> dict[str, dict[str, object]]:
    return dict(stack.status().job.get("watches_failing", {}))


def told(stack: Stack) -> dict[str, object]:
    return dict(stack.status().job.get("claims") or {})


def times_struck(stack: Stack, place: str) -> int:
    """How often the fault of this name came, in the newest run."""
    return stack.last_job_lines(5_000).count(f"{crash.VARIABLE}: {place} in batch")


@CHAOS
@pytest.mark.parametrize("place", crash.WORKER_PLACES)
def test_groups_are_answered_while_claims_fail_and_history_is_exactly_once_afterwards(
    stack: Stack, start: StartJob, place: str
) -> None:
    """Its worker dies in each batch from one on, so that the query fails, begins again and fails;
    members join and commit before and meanwhile, and hardly notice. Then the job is killed, and the
    next one judges everything: each change of owner stands in history once, and in Delta.

    # INV-34, INV-39
    """
    claimants = Claimants(stack.bootstrap_servers)
    with Wire(stack.bootstrap_servers) as wire, claimants.at_work():
        start(fault=f"{place}:15@claims")
        pace = Pace(wire)
        before_s = pace.until(lambda: "claims" in failing(stack))
        since_ms = failing(stack)["claims"]["since_ms"]
        meanwhile_s = pace.until(lambda: times_struck(stack, place) > 2, least=8)
        assert stack.status().job_state == "running"
        assert failing(stack)["claims"]["since_ms"] == since_ms, "it has failed all along"
        # The first one waited for the start, and the fault came within the last one.
        slower = compared(before_s[1:-1], meanwhile_s)
        stack.kill_job()

        start("--set", "engine.archive_interval_ms=500", archive=True)
        wait_until("claims run", lambda: told(stack).get("state") == "running", 240.0)
        pace.take_s()
    claimants.until_all_is_judged()

    events = claimants.holds()

    assert events > 10
    assert "claims" not in failing(stack)
    wait_until("history is in Delta", lambda: archived(stack) == (events, events), 240.0)
    assert slower < SLOWER_MAX


class Pace:
    """How long groups take."""

    def __init__(self, wire: Wire) -> None:
        self._wire, self._groups = wire, count()

    def until(self, is_so: Callable[[], bool], least: int = 1) -> list[float]:
        """So many times, and until it holds."""
        taken_s: list[float] = []
        deadline_s = time.monotonic() + 240.0
        while len(taken_s) < least or not is_so():
            assert time.monotonic() < deadline_s, taken_s
            taken_s.append(self.take_s())
        return taken_s

    def take_s(self) -> float:
        """A member makes a group of its own and commits: three answers of the coordinator."""
        began_s = time.monotonic()
        group = f"g-{next(self._groups)}"
        member = RawMember(self._wire, group, "client", session_timeout_ms=60_000)
        settle([member])
        assert self._wire.answer(member.commit(5))["failed"] == []
        return time.monotonic() - began_s


def compared(before_s: list[float], meanwhile_s: list[float]) -> float:
    """How many times as long it takes."""
    assert len(before_s) > 3, "claims failed too early"
    before, meanwhile = median(before_s), median(meanwhile_s)
    print(
        f"join, sync and commit, p50: {before:.2f} s ({len(before_s)}) while claims work, "
        f"{meanwhile:.2f} s ({len(meanwhile_s)}) while they fail: {meanwhile / before:.2f} times"
    )
    return meanwhile / before


def archived(stack: Stack) -> tuple[int, ...]:
    """Events of claims in Delta, and different ones."""
    sql = "SELECT count(*), count(DISTINCT event_id) FROM events WHERE space = 'claims'"
    with suppress(CannotReach):  # the table is not there yet
        return query_tables(stack.tables, sql).rows[0]
    return ()


@CHAOS
@pytest.mark.parametrize("place", crash.DRIVER_PLACES)
def test_a_job_killed_inside_a_batch_of_claims_writes_everything_once(
    stack: Stack, start: StartJob, place: str
) -> None:
    """SIGKILL at each place of a batch at which the driver may end, twice.  # INV-34"""
    claimants = Claimants(stack.bootstrap_servers)
    with claimants.at_work():
        for batch in (1, 3):
            with suppress(SetupError):  # it may die before the groups' query is ready
                start(fault=f"{place}:{batch}@claims")
            wait_until("the job has died", lambda: not stack.job.is_running, 240.0)
            assert times_struck(stack, place) == 1
        start()
        time.sleep(5)
    claimants.until_all_is_judged()

    assert claimants.holds() > 10


@CHAOS
def test_a_lost_checkpoint_of_claims_is_refused_and_rebuilt(stack: Stack, start: StartJob) -> None:
    """The folder beside the groups' is gone. Groups go on; who owns what is known again from the
    snapshot and the log behind it.  # INV-65"""
    claimants = Claimants(stack.bootstrap_servers)
    start()
    with claimants.at_work():
        wait_until("a snapshot is due", lambda: claimants.sent > 300, 240.0)
        assert stack.stop_job() == 0
        lost = stack.checkpoint.with_name("checkpoint-claims")
        lost.rename(stack.home / "lost")
        start()
        wait_until("it is refused", lambda: "claims" in failing(stack), 240.0)
        assert "--rebuild-claims" in str(failing(stack)["claims"]["error"])
        assert stack.status().job_state == "running"
        stack.stop_job()
        start("--rebuild-claims")
        wait_until("claims run", lambda: told(stack).get("state") == "running", 240.0)
    claimants.until_all_is_judged()

    assert claimants.holds() > 10


@CHAOS
def test_a_log_that_was_cut_under_the_job_is_followed_behind_the_cut(
    stack: Stack, start: StartJob
) -> None:
    """The job was away for longer than somebody else keeps his topic. The query begins a new
    checkpoint by itself, late, and history says which messages nobody judged."""
    claimants = Claimants(stack.bootstrap_servers)
    start()
    with claimants.at_work(0.05):
        wait_until("something is judged", lambda: len(claimants.judged()) == 4, 240.0)
        stack.kill_job()
        time.sleep(3)
    cut(stack, ends := {shard: end - 2 for shard, end in enumerate(claimants.ends())})

    start()
    wait_until("claims run", lambda: told(stack).get("state") == "running", 240.0)
    with claimants.at_work():

        def gaps() -> set[object]:
            return {e["detail"]["to_offset"] for e in claimants.events() if e["type"] == "LogGap"}

        wait_until("the gaps are told", lambda: gaps() == {*ends.values()})
        time.sleep(7 * HI_S)  # a late reader knows all owners after four
    claimants.until_all_is_judged()

    assert "claims" not in failing(stack)
    claimants.is_verified()


def cut(stack: Stack, before: dict[int, int]) -> None:
    """Delete what stands before, as retention does."""
    admin = AdminClient({"bootstrap.servers": stack.bootstrap_servers})
    places = [TopicPartition(TOPIC, shard, offset) for shard, offset in before.items()]
    for future in admin.delete_records(places).values():
        future.result(60)


@CHAOS
def test_a_coordination_topic_that_grew_ends_claims_and_not_groups(
    stack: Stack, start: StartJob
) -> None:
    """Its owner has added partitions: what belongs where has changed, and nothing is to be judged
    by the former number."""
    claimants = Claimants(stack.bootstrap_servers)
    claimants.turn(0)
    start()
    claimants.until_all_is_judged()
    admin = AdminClient({"bootstrap.servers": stack.bootstrap_servers})
    admin.create_partitions([NewPartitions(TOPIC, 5)])[TOPIC].result(60)
    time.sleep(1)

    for _ in range(2):  # under the query, and when it is to start
        wait_until("it is refused", lambda: "must be 4" in str(failing(stack).get("claims")), 240.0)
        with Wire(stack.bootstrap_servers) as wire:
            settle([RawMember(wire, "g", "client", session_timeout_ms=60_000)])
        stack.stop_job()
        start()
    wait_until("it is refused", lambda: "must be 4" in str(failing(stack).get("claims")), 240.0)

    own = [name for name in admin.list_topics(timeout=60).topics if name.startswith(PREFIX + ".")]
    stack.stop_job()
    for future in admin.delete_topics(own).values():
        future.result(60)
    wait_until("they are gone", lambda: not {*own} & {*admin.list_topics(timeout=60).topics})
    create(claimants.client, "coord", TOPIC, 1)
    stack.checkpoint.with_name("checkpoint-claims").rename(stack.home / "former")
    start()
    wait_until("claims run", lambda: told(stack).get("state") == "running", 240.0)


@CHAOS
def test_partitions_that_are_added_to_the_jobs_topics_for_claims_change_nothing(
    stack: Stack, start: StartJob
) -> None:
    """Before a start, and under the query: it goes on with those that it has recorded."""
    claimants = Claimants(stack.bootstrap_servers)
    start()
    admin = AdminClient({"bootstrap.servers": stack.bootstrap_servers})
    own = [name for name in admin.list_topics(timeout=60).topics if name.startswith(PREFIX + ".")]
    for number in (6, 7):
        for future in admin.create_partitions(
            [NewPartitions(each, number) for each in own]
        ).values():
            future.result(60)
        claimants.turn(number)
        claimants.until_all_is_judged()
        stack.stop_job()
        start()
    claimants.turn(8)
    claimants.until_all_is_judged()

    assert "claims" not in failing(stack)


@CHAOS
def test_a_coordination_topic_that_is_made_anew_ends_claims_and_not_groups(
    stack: Stack, start: StartJob
) -> None:
    """Somebody deletes it under the job and creates it again: offsets, and with them tokens, begin
    at 0 once more. Nothing of it is judged as if it went on, now and after a restart."""
    claimants = Claimants(stack.bootstrap_servers)
    start()
    for number in range(5):
        claimants.turn(number)
    claimants.until_all_is_judged()
    events = claimants.events()
    admin = AdminClient({"bootstrap.servers": stack.bootstrap_servers})
    admin.delete_topics([TOPIC])[TOPIC].result(60)
    wait_until("it is there again", lambda: create_coordination(claimants.client, TOPIC, 4, 1))
    Claimants(stack.bootstrap_servers).turn(0)

    # What it says first depends on what it finds: no topic for a moment, or another one.
    wait_until("it has failed", lambda: "claims" in failing(stack), 240.0)

    with Wire(stack.bootstrap_servers) as wire:
        settle([RawMember(wire, "g", "client", session_timeout_ms=60_000)])
        start()
        wait_until("it is refused", lambda: "made anew" in str(failing(stack).get("claims")), 240.0)
        settle([RawMember(wire, "h", "client", session_timeout_ms=60_000)])
    assert TOPIC in str(failing(stack)["claims"]["error"])
    assert claimants.events() == events
