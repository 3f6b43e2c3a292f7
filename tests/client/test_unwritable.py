"""Commits, fetches and subscriptions that cannot be written: text or a number from the user."""

from typing import Any

import pytest

from coordlib import limits
from coordlib.client.kit.events import TopicPartition
from coordlib.core.wire import api, codec
from coordlib.errors import CannotReach, CoordError, ErrorCode, GroupError
from coordlib.testing.fake_log import FakeLog
from tests.client.test_consumer import Program

SURROGATE = "\udc80"  # of a file name that is no UTF-8, as os.fsdecode gives it
BAD: dict[str, dict[str, Any]] = {
    "a surrogate": {"metadata": SURROGATE},
    "beyond 64 bits": {"offset": 2**70},
    "an epoch below -1": {"leader_epoch": -5},
}


def row(partition: int, **fields: Any) -> api.CommittedOffset:
    return api.CommittedOffset(**{"topic": "t", "partition": partition, "offset": 5} | fields)


def program(log: FakeLog, client: str = "a", **config: Any) -> Program:
    made = Program(log, client, **config)
    run(log, made)
    return made


def run(log: FakeLog, *programs: Program, rounds: int = 10) -> None:
    for _ in range(rounds):
        for each in programs:
            each.poll()
        log.advance(200)


@pytest.fixture
def log() -> FakeLog:
    made = FakeLog({"t": 4})
    made.tell_topics()
    return made


@pytest.mark.parametrize("bad", BAD)
def test_a_commit_that_cannot_be_written_is_refused_before_it_is_counted(
    log: FakeLog, bad: str
) -> None:
    """The commit raised in the middle of the member, which then waited for its answer: `close`
    took its whole time, and ended before the log had taken that the member leaves."""
    a = program(log)
    with pytest.raises(GroupError) as refused:
        a.consumer.member.commit([row(0, **BAD[bad])])

    assert refused.value.code is ErrorCode.INVALID_REQUEST
    assert not a.consumer.member._open_commits
    assert not a.consumer.member._machine._pending.are_open()


@pytest.mark.parametrize("bad", BAD)
def test_a_bad_commit_in_on_revoke_does_not_spoil_the_release_that_would_carry_it(
    log: FakeLog, bad: str
) -> None:
    """The coordinator refused Release and commit together: the member failed for good, and the
    newcomer waited until its session had ended."""
    a = program(log, **{"group.protocol": "assigned"})
    told: list[Any] = []

    def revoked(_: Any, some: list[Any]) -> None:
        rows = [row(each.partition, **BAD[bad]) for each in some]
        told.append(a.consumer.member.commit_async(rows))

    a.consumer.subscribe(["t"], on_revoke=revoked)
    b = program(log, "b", **{"group.protocol": "assigned"})
    run(log, a, b)

    assert [each.result().error.code for each in told] == [ErrorCode.INVALID_REQUEST]
    assert [len(each.consumer.assignment()) for each in (a, b)] == [2, 2]


def test_a_fetch_that_cannot_be_written_ends_at_once(log: FakeLog) -> None:
    """It was asked again and again, and the caller waited for the whole timeout."""
    a = program(log)
    asked = a.consumer.member.committed_async([TopicPartition(SURROGATE, 0)])
    log.pump()

    assert isinstance(asked.result(0).error, CannotReach)


def test_a_subscription_that_cannot_be_written_fails_in_poll(log: FakeLog) -> None:
    """`subscribe` raised, and the member waited for the answer to what it had never sent, also
    after it was subscribed anew."""
    a = program(log, **{"group.protocol": "assigned"})
    a.consumer.subscribe([f"^{SURROGATE}"])
    log.pump()
    a.consumer.poll(0)  # all is lost

    with pytest.raises(CoordError, match="cannot be written"):
        a.consumer.poll(0)


# ---- what is larger than a request -----------------------------------------------------------


def commits_of(log: FakeLog) -> list[api.OffsetCommit]:
    return [each for batch in log.batches for each in batch if isinstance(each, api.OffsetCommit)]


@pytest.mark.parametrize("kind", ["classic", "assigned"])
@pytest.mark.parametrize("size", [2**20 - 100, 2**20 + 60_000, 3 * 2**20])
def test_metadata_that_no_request_can_carry_are_refused_at_once(
    log: FakeLog, kind: str, size: int
) -> None:
    """The request was written, and dropped by the job without an answer: `commit` waited for its
    whole time, and no `on_commit` was called any more."""
    a = program(log, **{"group.protocol": kind})
    with pytest.raises(GroupError) as refused:
        a.consumer.member.commit([row(0), row(1, metadata="m" * size)], timeout_s=0)
    assert refused.value.code is ErrorCode.OFFSET_METADATA_TOO_LARGE

    later = a.consumer.member.commit_async([row(0)])
    run(log, a)
    assert later.result(0).error is None
    assert [len(each.offsets) for each in commits_of(log)] == [1]


@pytest.mark.parametrize(
    ("rows", "size"), [(255, 4_096), (300, 4_096), (9_000, 60), (10_001, 0), (20_000, 0)]
)
def test_a_commit_whose_rows_are_all_allowed_is_written(rows: int, size: int) -> None:
    """As many requests as it needs, one behind the other."""
    log = FakeLog({"t": 2})
    a = program(log)
    done = a.consumer.member.commit_async([row(n, metadata="m" * size) for n in range(rows)])
    run(log, a)

    assert (done.result(0).error, done.result(0).failed) == (None, ())
    written = commits_of(log)
    assert [each.partition for one in written for each in one.offsets] == list(range(rows))
    assert all(len(codec.encode(each)) <= limits.REQUEST_BYTES_MAX for each in written)
    asked = a.consumer.member.committed_async([TopicPartition("t", n) for n in (0, rows - 1)])
    run(log, a)
    assert [each.offset for each in asked.result(0).offsets] == [5, 5]


def test_rows_that_are_refused_are_told_of_every_part(log: FakeLog) -> None:
    a = program(log)
    rows = [row(n, metadata="m" * (5_000 if n in {3, 280} else 4_000)) for n in range(300)]
    done = a.consumer.member.commit_async(rows)
    run(log, a)

    assert len(commits_of(log)) > 1
    assert [each.partition for each in done.result(0).failed] == [3, 280]


def test_a_commit_in_parts_is_in_the_log_before_what_it_lets_go(log: FakeLog) -> None:
    """The next owner begins behind all of it, also where a Release carries the last part."""
    a = program(log, **{"group.protocol": "assigned"})

    def revoked(_: Any, some: list[Any]) -> None:
        first = some[0].partition
        a.consumer.member.commit_async(
            [row(first, metadata="a" * 4_000)]
            + [row(first, topic=f"{n}", metadata="b" * 4_000) for n in range(300)]
        )
        a.consumer.member.commit_async([row(each.partition, offset=7) for each in some])

    a.consumer.subscribe(["t"], on_revoke=revoked)
    b = program(log, "b", **{"group.protocol": "assigned"})
    run(log, a, b)

    assert [len(each.consumer.assignment()) for each in (a, b)] == [2, 2]
    here = tuple(TopicPartition("t", each.partition) for each in b.consumer.assignment())
    asked = b.consumer.member.committed_async(here)
    run(log, a, b)
    assert {each.offset for each in asked.result(0).offsets} == {7}


def test_a_part_that_is_refused_refuses_the_commit(log: FakeLog) -> None:
    a = program(log)
    rows = [row(n, metadata="m" * 4_000) for n in range(300)]
    done = a.consumer.member.commit_async(rows)
    a.consumer.member.fail(RuntimeError("broken"))

    assert isinstance(done.result(0).error, CoordError)


def test_offsets_of_more_partitions_than_a_request_names_are_fetched() -> None:
    """A member that is granted all of a large cluster's partitions began none of them."""
    log = FakeLog({"t": 1})
    a = program(log)
    named = [TopicPartition(f"{topic:0249}", n) for topic in range(3_000) for n in range(10)]
    asked = a.consumer.member.committed_async(named)
    run(log, a)

    answer = asked.result(0)
    assert answer.error is None
    assert {(each.topic, each.partition) for each in answer.offsets} == set(named)
    fetches = [each for batch in log.batches for each in batch if isinstance(each, api.OffsetFetch)]
    assert all(len(codec.encode(each)) <= limits.REQUEST_BYTES_MAX for each in fetches)


def test_a_subscription_that_no_request_can_carry_fails_in_poll(log: FakeLog) -> None:
    a = program(log, **{"group.protocol": "assigned"})
    a.consumer.subscribe([f"{number:0249}" for number in range(5_000)])
    log.pump()
    a.consumer.poll(0)  # all is lost

    with pytest.raises(CoordError, match="and a request at most 1,048,576"):
        a.consumer.poll(0)
