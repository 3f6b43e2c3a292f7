"""The consumer of a group whose coordinator divides, over the real core; messages from a list."""

from typing import Any

import pytest

from coordlib.client.groups.settings import read_settings
from coordlib.core.wire import api
from coordlib.errors import SetupError
from coordlib.testing.fake_log import FakeLog
from tests.client.test_consumer import CONFIG, Program

ASSIGNED: dict[str, Any] = {"group.protocol": "assigned"}


@pytest.fixture
def log() -> FakeLog:
    log = FakeLog({"t": 2})
    log.tell_topics()
    return log


def programs(log: FakeLog, *clients: str, **config: Any) -> list[Program]:
    made = [Program(log, client, **ASSIGNED, **config) for client in clients]
    for _ in range(4):
        for program in made:
            program.settle()
    return made


def handed_over(log: FakeLog) -> tuple[Program, Program, int]:
    """a reads three messages, then b comes and gets one of the partitions; which."""
    (a,) = programs(log, "a")
    assert [a.poll() for _ in range(3)] == [(0, 0), (1, 0), (0, 1)]
    b = Program(log, "b", **ASSIGNED)
    for program in (b, a, b, a, b):
        program.settle()
    ((_, (moved,)),) = [told for told in a.told if told[0] == "revoke"]
    return a, b, moved


def test_a_consumer_reads_what_the_coordinator_gives_it(log: FakeLog) -> None:
    (a,) = programs(log, "a", **{"group.remote.assignor": "range"})

    assert [sorted(number for number, _ in some) for some in a.reader.started] == [[0, 1]]
    assert [a.poll() for _ in range(3)] == [(0, 0), (1, 0), (0, 1)]
    assert a.consumer.member.strategy == "range"  # type: ignore[union-attr]


def test_a_newcomer_reads_on_where_the_former_owner_stopped(log: FakeLog) -> None:
    """commit() in on_revoke says just what goes, in one record with letting go of it."""
    a, b, number = handed_over(log)

    releases = [each for batch in log.batches for each in batch if isinstance(each, api.Release)]
    commits = [
        each for batch in log.batches for each in batch if isinstance(each, api.OffsetCommit)
    ]
    done = {0: 2, 1: 1}[number]
    ((row,),) = [each.offsets for each in releases]
    assert (row.partition, row.offset) == (number, done)
    assert commits == []
    assert b.reader.started == [[(number, done)]]
    assert b.poll() == (number, done)
    kept = 1 - number
    assert a.poll() in [(kept, 1), (kept, 2)]


def test_what_stays_is_read_on_and_committed_later(log: FakeLog) -> None:
    a, _, gone = handed_over(log)

    a.consumer.commit()
    log.pump()

    (commit,) = [e for batch in log.batches for e in batch if isinstance(e, api.OffsetCommit)]
    kept = 1 - gone
    assert [(row.partition, row.offset) for row in commit.offsets] == [(kept, {0: 2, 1: 1}[kept])]


def test_the_share_is_in_proportion_to_the_capacity() -> None:
    log = FakeLog({"t": 8})
    log.tell_topics()
    strong = Program(log, "a", **ASSIGNED, **{"group.capacity": 3})
    weak = Program(log, "b", **ASSIGNED)
    for _ in range(6):
        strong.settle()
        weak.settle()

    shares = [len(each.consumer.assignment()) for each in (strong, weak)]
    assert shares == [6, 2]


@pytest.mark.parametrize(
    "wrong",
    [
        {**ASSIGNED, "group.instance.id": "till-7"},
        {**ASSIGNED, "partition.assignment.strategy": "range"},
        {"group.remote.assignor": "sticky"},
        {"group.capacity": 2},
        {"group.protocol": "consumer"},
        {**ASSIGNED, "group.capacity": 0},
    ],
    ids=str,
)
def test_keys_of_the_other_protocol_are_refused(log: FakeLog, wrong: dict[str, Any]) -> None:
    """What they promise would not be kept."""
    with pytest.raises(SetupError):
        Program(log, "a", **wrong)


def test_keys_of_the_protocol_go_to_no_kafka_client() -> None:
    keys = {**ASSIGNED, "group.remote.assignor": "uniform", "group.capacity": "4"}
    settings = read_settings({**CONFIG, **keys, "bootstrap.servers": "b:1"})

    assert (settings.kind, settings.strategy, settings.capacity) == ("assigned", "uniform", 4)
    assert settings.common == {"bootstrap.servers": "b:1"}


def test_who_is_asked_for_many_parts_at_once_waits_for_no_message_between_them() -> None:
    """Hundreds join at once: the first owner of everything owes each of them a Release of its own,
    and all of them wait for him."""
    log = FakeLog({"t": 10})
    log.tell_topics()
    (a,) = programs(log, "a")
    happened: list[str] = []
    others = [Program(log, client, **ASSIGNED) for client in "bcde"]
    log.pump()
    a.reader.ahead.clear()  # nobody writes to the topic
    a.reader.waits = lambda timeout_s: happened.append("wait") if timeout_s else None
    a.consumer.subscribe(
        ["t"], on_revoke=lambda *_: happened.append("revoke"), on_assign=lambda *_: None
    )

    a.consumer.poll(0.5)  # a busy machine may stop for a while

    assert happened[:4] == ["revoke"] * 4
    assert "wait" in happened
    log.pump()
    for other in others:
        other.settle()
    assert sum(len(other.consumer.assignment()) for other in others) == 8
