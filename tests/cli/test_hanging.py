"""`coord transactions find-hanging`: what does not end by itself, and the command that fixes it."""

from collections.abc import Iterator
from dataclasses import astuple
from datetime import UTC, datetime
from typing import Any

import pytest
from inline_snapshot import snapshot

from coordlib.cli.transactions import app, view
from coordlib.cli.transactions.view import (
    HANGING,
    Hanging,
    SeenId,
    SeenPending,
    of_coordinator,
    of_deleted_records,
    of_held_up,
    of_members,
    of_quarantined,
    seen_in,
)
from coordlib.core.wire import codec
from coordlib.core.wire.stored import PendingOffset, PendingValue
from coordlib.exit_codes import UNHEALTHY
from coordlib.kafka.logs import Place
from coordlib.kafka.reading import Stamped
from coordlib.kafka.transactions import HeldUp
from coordlib.testing.fake_log import EPOCH_MS, FakeLog
from tests.cli.kit import Cli
from tests.cli.shop import WHERE, newest
from tests.cli.till import Till, open_till
from tests.tools import producers as p
from tests.tools.driving import pending_commit

MINUTE_MS = 60_000
NOW_MS = 10 * MINUTE_MS


def seen(talk: p.Talk) -> SeenId:
    """The id of a conversation, written at 0."""
    talk.end_batch_raw()
    records = newest(talk.outputs, "transactions")
    (found,) = seen_in({key: Stamped(value, 0) for key, value in records.items()}, 0).ids
    return found


def found(talk: p.Talk, unheard: tuple[int, ...] = (), now_ms: int = NOW_MS) -> list[Hanging]:
    return list(of_coordinator([seen(talk)], now_ms, MINUTE_MS, lambda _: unheard))


# -- the coordinator's ----------------------------------------------------------------------------


def test_what_lacks_markers_and_groups_has_both_remedies() -> None:
    markers, groups = found(p.prepare_commit(), (0, 3))

    assert astuple(markers) == (
        *("coordinator", "copier", NOW_MS, "1 partition without its marker"),
        "coord transactions finish copier",
    )
    assert groups.reason == "groups in shard 0, 3 have not been told"
    assert groups.hint.startswith("coord status")


def test_what_has_its_markers_waits_for_the_job() -> None:
    talk = p.prepare_abort()
    talk.send(p.written(0, 0))

    (one,) = found(talk)
    assert one.reason == "all have been told, and the coordinator has not noted it"


@pytest.mark.parametrize("state", [p.empty, p.ongoing, p.complete_commit, p.complete_abort])
def test_what_is_not_decided_or_complete_does_not_hang(state: Any) -> None:
    """An open transaction ends by its timeout."""
    assert found(state(), (0,)) == []


def test_what_was_decided_a_moment_ago_does_not_hang() -> None:
    assert found(p.prepare_commit(), (0,), MINUTE_MS) == []


# -- pending offsets ------------------------------------------------------------------------------


def waits(decided_by: str = "delta", key: str = "41", **fields: Any) -> SeenPending:
    """Offsets of `billing` that have waited since 0."""
    row = PendingOffset(topic="t", partition=0, offset=5, leader_epoch=-1, metadata="", record=41)
    named = {"decided_by": decided_by, "client": "c", "id": "i", "member": "m1", "generation": 3}
    entry = PendingValue(**named | {"since_ms": 0, "offsets": (row,)} | fields)
    return SeenPending("billing", key, 1, entry)


def test_whose_member_is_gone_is_decided_by_hand() -> None:
    (one,) = of_members([waits()], NOW_MS, MINUTE_MS, {"billing": ["m2"]})

    assert astuple(one) == (
        *("delta", "group billing, key 41", NOW_MS),
        "member m1 is gone; a member that starts resolves it",
        "coord transactions decide billing 41 --commit (or --abort) --reason WHY",
    )


@pytest.mark.parametrize(
    ("each", "members", "now_ms"),
    [
        (waits(), {"billing": ["m1"]}, NOW_MS),
        (waits(), {}, NOW_MS),
        (waits(), {"billing": ["m2"]}, MINUTE_MS),
        (waits("kafka"), {"billing": ["m2"]}, NOW_MS),
        (waits(decision="commit"), {"billing": ["m2"]}, NOW_MS),
    ],
    ids=["its member lives", "unreadable group", "young", "Kafka decides", "decided"],
)
def test_others_are_resolved_by_themselves(each: Any, members: Any, now_ms: int) -> None:
    assert list(of_members([each], now_ms, MINUTE_MS, members)) == []


def test_a_record_that_was_deleted_can_be_decided_by_hand_alone() -> None:
    (one,) = of_deleted_records([waits("kafka", "r1-41")], NOW_MS, {1: 42})

    assert one.reason == "its record was deleted before the job could look how it ended"
    assert one.hint.startswith("coord transactions decide billing r1-41 ")


@pytest.mark.parametrize(
    ("each", "starts"),
    [
        (waits("kafka", "r1-42"), {1: 42}),
        (waits("kafka", "r1-41"), {0: 99}),
        (waits("delta", "41"), {1: 99}),
        (waits("kafka", "r1-41", decision="abort"), {1: 99}),
        (waits("kafka", "odd"), {1: 99}),
    ],
    ids=["it is there", "another shard", "Delta", "decided", "no coordinate"],
)
def test_other_records_can_be_looked_at(each: Any, starts: Any) -> None:
    assert list(of_deleted_records([each], NOW_MS, starts)) == []


def test_what_a_quarantined_group_holds_back_needs_its_release() -> None:
    (one,) = of_quarantined([waits(decision="commit"), waits()], NOW_MS, MINUTE_MS)

    assert (one.hint, one.for_ms) == ("coord groups release billing", NOW_MS)


# -- open transactions of Kafka -------------------------------------------------------------------


def held(**fields: Any) -> HeldUp:
    return HeldUp(
        **{"place": Place("coord.requests", 1), "offset": 7, "end": 9, "time_ms": 0} | fields
    )


def hangs(each: HeldUp, now_ms: int = NOW_MS) -> list[Hanging]:
    return list(of_held_up([each], now_ms, MINUTE_MS, "b:9092"))


def test_a_producer_that_named_its_id_is_fenced_by_it() -> None:
    value = codec.encode(pending_commit("copier-7", group="billing"))
    (one,) = hangs(held(value=value, transactional_id="copier-7"))

    assert astuple(one) == (
        *("kafka", "coord.requests-1", NOW_MS),
        "it holds up 2 records from offset 7 on; it began with a PendingCommit of group billing of "
        "client copier-7",
        "coord transactions abort copier-7 --of-kafka",
    )


def test_of_others_kafkas_own_tool_tells_the_id() -> None:
    (one,) = hangs(held(place=Place("orders", 3), key=b"k" * 100))

    assert one.reason.endswith(f"its first record has the key {b'k' * 60!r}")
    assert "kafka-transactions.sh --bootstrap-server b:9092 describe-producers" in one.hint
    assert "--topic orders --partition 3" in one.hint


def test_a_record_that_cannot_be_read_is_shown_as_such() -> None:
    (one,) = hangs(held(time_ms=None, unread="it is gone"))

    assert one.for_ms is None
    assert one.reason.endswith("its first record is not known: it is gone")


def test_a_transaction_at_work_does_not_hang() -> None:
    assert hangs(held(), MINUTE_MS) == []


# -- the command ----------------------------------------------------------------------------------


@pytest.fixture
def till(monkeypatch: pytest.MonkeyPatch) -> Iterator[Till]:
    """`copier` was committed ten minutes ago; an offset of `billing` waits for Kafka."""
    now = datetime.fromtimestamp(EPOCH_MS / 1000 + 600, UTC)
    monkeypatch.setattr(app, "now", lambda: now)
    monkeypatch.setattr(view, "log_starts", lambda *_: {0: 0})
    monkeypatch.setattr(view, "held_up", lambda *_: [])
    monkeypatch.setattr(FakeLog, "_feed", lambda *_: False)  # groups are not told
    with open_till(monkeypatch) as made:
        producer = made.begin("copier", 0)
        made.add_group("copier", *producer, "billing")
        made.end("copier", *producer)
        made.pend("billing", 5)
        yield made


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Cli:
    return Cli(capsys, "transactions", where=WHERE)


def test_the_exit_code_says_whether_something_hangs(till: Till, cli: Cli) -> None:
    assert cli("find-hanging", code=UNHEALTHY).shown == snapshot("""\
DECIDED-BY   WHAT    HANGS-FOR  REASON                                HINT
coordinator  copier  10m00s     1 partition without its marker        coord transactions finish copier
coordinator  copier  10m00s     groups in shard 0 have not been told  coord status (the job tells it when it runs)
2> 2 transactions hanging as of 2023-11-14T22:23:20.000Z
""")
    assert cli("find-hanging --longer-than 11m").shown == snapshot(
        "2> 0 transactions hanging as of 2023-11-14T22:23:20.000Z\n"
    )
    rows = cli.json("find-hanging", code=UNHEALTHY)["hanging"]
    assert [*rows[0]] == [name.lower() for name in HANGING.headers]
    assert rows[0]["hangs-for"] == 600_000


def test_a_deleted_record_is_found(till: Till, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(view, "log_starts", lambda *_: {0: 1_000})
    found = cli("find-hanging --longer-than 11m", code=UNHEALTHY).out

    assert "its record was deleted before the job could look" in found


def test_a_topic_that_is_not_there_is_wrong_usage(till: Till, cli: Cli) -> None:
    assert cli.error("find-hanging --topic nowhere")[0].startswith("There is no such topic")
