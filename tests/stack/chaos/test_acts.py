"""A course for claims, one for a replicated store, and one for transactions: somebody is killed, or
suspended, at the worst moment, and what must hold then is looked up in Kafka and in Delta.
"""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from deltalake import DeltaTable

from coordlib.demo.act import JOB_ARGS, NAME
from coordlib.demo.history import write
from coordlib.demo.show import Live
from coordlib.demo.verdict import Check
from coordlib.history.sql import query_tables
from coordlib.local.progress import to_stderr
from coordlib.local.stack import Stack
from examples.store.server import CLUSTER
from examples.store.wire import UNKNOWN
from tests.kit.waiting import wait_until
from tests.stack.acts import HISTORY_TIMEOUT_S, claims_act, claims_course, transactions_act
from tests.stack.acts.brokers_course import Course, Stores, partition_of, store_of
from tests.stack.acts.brokers_facts import ClusterHistory, Row
from tests.stack.acts.claims_verdict import ClaimsFacts
from tests.stack.acts.claims_verdict import judge as judge_claims
from tests.stack.acts.store_witness import StoreWitness
from tests.stack.chaos.conftest import Tell
from tests.stack.recorded import HISTORY
from tests.tools.checking import stores

ENTRIES = "entries"
pytestmark = [
    pytest.mark.stack,
    pytest.mark.fault,
    pytest.mark.chaos,
    pytest.mark.timeout(1500),  # on a busy machine
]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Stack]]:
    """Start a stack of its own, with the job as the demo has it; nothing of it is left."""
    started: list[Stack] = []

    def start(claims: str = "") -> Stack:
        stack = Stack(tmp_path / "stack", prefix=NAME, claims=claims)
        started.append(stack)
        stack.up(to_stderr, JOB_ARGS)
        return stack

    yield start
    for each in started:
        each.down()


def all_hold(checks: list[Check]) -> str:
    """No check has an offence; the numbers that were looked at, in words."""
    broken = [f"{each.what}: {each.offences}" for each in checks if not each.is_ok]
    assert not broken, "\n".join(broken)
    return "; ".join(each.numbers for each in checks)


def test_claims_go_on_without_a_job(
    start: Callable[..., Stack], tell: Tell, tmp_path: Path
) -> None:
    """A twin takes over; the job is killed, then a consumer; the group is paused and set back while
    the next job starts, which writes the history of all of it."""
    stack = start(claims_course.COORDINATION)
    facts = claims_act.ACT.play(stack, Live(to_stderr))
    assert isinstance(facts, ClaimsFacts)
    (stack.home / claims_act.ACT.file).rename(tmp_path / HISTORY)
    checks = judge_claims(facts)

    assert len(checks) == 8
    ended = query_tables(stack.tables, "SELECT type FROM events WHERE type = 'ClaimExpired'", [])
    assert ended.rows
    tell(all_hold(checks))


def test_leaders_of_a_store_are_killed_suspended_and_shut_down(
    start: Callable[..., Stack], tell: Tell, tmp_path: Path
) -> None:
    """While clients put and get; Delta has each election, and what Kafka has in the end."""
    stack = start()
    config = {"bootstrap.servers": stack.bootstrap_servers, "coord.prefix": stack.prefix}
    with Stores(stack.home, ENTRIES, config, StoreWitness) as members:
        course = Course(stack, members, Live(to_stderr), ENTRIES)
        with course.traffic:
            course.play()
        delta = ClusterHistory(stack.tables, CLUSTER, ENTRIES)
        wait_until(
            "nobody leads, and Delta has what Kafka has",
            lambda: _is_over(course.partitions()) and course.partitions() == delta.partitions(),
            HISTORY_TIMEOUT_S,
        )
    happened = sorted([*course.happened(), *delta.changes()], key=lambda each: each.t_ms)
    write(tmp_path / HISTORY, happened)  # `tell` checks it
    assert not stores.unread_puts(happened)

    leaders = delta.leaders()
    elected = {(e.partition, e.epoch, e.fence, store_of(e.leader)) for e in leaders}
    acts = [each for each in happened if each.what in ("acknowledged", "answered")]
    did = {(partition_of(each), each.generation, each.fence, each.member) for each in acts}
    assert did
    assert did <= elected
    assert len(elected) == len(leaders)
    hits = ((course.killed, "offline"), (course.suspended, "offline"), (course.stopped, "shutdown"))
    for hit, election in hits:
        assert hit.led, "it led nothing"
        assert hit.until_ms > 0, "it did not end by itself"
        for partition, epoch in hit.led.items():
            (after, *_) = (
                e for e in leaders if (e.partition, e.epoch > epoch) == (partition, True)
            )
            assert (after.leader != hit.broker, after.election) == (True, election)
    late = [
        each
        for each in acts
        if each.member == store_of(course.suspended.broker)
        and course.suspended.led.get(partition_of(each)) == each.generation
        and each.t_ms >= course.suspended.until_ms
    ]
    assert not late, "it acknowledged after it had been replaced"
    (waited,) = [each for each in happened if each.member == "waiting-writer"]
    assert waited.key == course.suspended.key
    assert (waited.what, waited.detail) == ("put_unknown", UNKNOWN), "it stood in its log"
    assert waited.t_ms >= course.suspended.until_ms, "it was answered before it went on"
    puts = sum(each.what == "put" for each in happened)
    tell(f"{puts:,} puts, {len(acts):,} answers in {len(leaders)} leader epochs")


def _is_over(rows: Mapping[int, Row]) -> bool:
    return bool(rows) and all(row.leader < 0 for row in rows.values())


def test_a_copy_and_a_table_are_whole_when_writer_copier_and_job_die(
    start: Callable[..., Stack], tell: Tell, tmp_path: Path
) -> None:
    """A writer dies behind its commit of Delta, a copier inside its transaction, then the job."""
    stack = start()
    checks = transactions_act.ACT.play(stack, Live(to_stderr), tmp_path / HISTORY)

    assert len(checks) == 10
    table = DeltaTable(stack.home / "readings-table").to_pyarrow_table()
    assert sorted(table["number"].to_pylist()) == list(range(transactions_act.ACT.records))
    tell(all_hold(checks))
