"""`coord transactions list|describe|pending`: what the topics tell, job up or down."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from inline_snapshot import snapshot

from coordlib.cli.kit import where
from coordlib.cli.transactions.app import STATES
from coordlib.cli.transactions.view import seen_in, unheard
from coordlib.core.transactions.transaction import State
from coordlib.exit_codes import FAILED
from coordlib.kafka.reading import Stamped
from coordlib.testing.fake_log import EPOCH_MS
from tests.cli.kit import Cli
from tests.cli.shop import REACHED, WHERE, newest
from tests.cli.till import Till, open_till
from tests.tools import producers as p

#: Ten minutes after what was written.
NOW = datetime.fromtimestamp(EPOCH_MS / 1000 + 600, UTC)


@pytest.fixture
def till(monkeypatch: pytest.MonkeyPatch) -> Iterator[Till]:
    """`copier-1` has a transaction open, `copier-2` none, `copier-3` has committed and nobody has
    been told; two commits of `billing` wait for Kafka."""
    monkeypatch.setattr(where, "now", lambda: NOW)
    with open_till(monkeypatch) as made:
        producer = made.begin("copier-1", 0, 1)
        made.add_group("copier-1", *producer, "billing")
        made.begin("copier-2")
        third = made.begin("copier-3", 7)
        made.add_group("copier-3", *third, "billing")
        made.end("copier-3", *third)
        made.pend("billing", 5, 6)
        made.pend("billing", 9)
        yield made


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Cli:
    return Cli(capsys, "transactions", where=WHERE)


def test_list_shows_how_each_id_stands(till: Till, cli: Cli) -> None:
    assert cli("list").shown == snapshot("""\
TRANSACTIONAL-ID  STATE          PRODUCER-ID  EPOCH  OPEN-FOR  GROUPS  PARTITIONS  UNWRITTEN  CLIENT-ID
copier-1          Ongoing        0            0      10m00s    1       2           0          copier-b
copier-2          Empty          3            0      -         0       0           0          copier-b
copier-3          PrepareCommit  4            1      10m00s    1       0           1          copier-b
2> 3 transactional ids as of 2023-11-14T22:23:20.000Z
""")
    ids = cli.json("list")["ids"]
    assert [row["open-for"] for row in ids] == [600_000, None, 600_000]
    assert [row["started"] for row in ids] == ["2023-11-14T22:13:20.000Z", None, ids[0]["started"]]


def test_an_empty_list_names_what_shows_transactions_of_kafka(
    monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    """A copier hung in a transaction of Kafka: the list was empty, and did not say why."""
    monkeypatch.setattr(where, "now", lambda: NOW)
    with open_till(monkeypatch) as made:
        made.pend("billing", 5)
        assert cli("list").shown == snapshot("""\
TRANSACTIONAL-ID  STATE  PRODUCER-ID  EPOCH  OPEN-FOR  GROUPS  PARTITIONS  UNWRITTEN  CLIENT-ID
2> 0 transactional ids as of 2023-11-14T22:23:20.000Z
2> Transactions that Kafka decides are not listed: coord transactions pending shows their offsets, coord transactions find-hanging those that do not end.
""")


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ("--state ongoing", ["copier-1"]),
        ("--state Empty,PrepareCommit", ["copier-2", "copier-3"]),
        ("--state Quarantined", []),
        ("--longer-than 9m", ["copier-1", "copier-3"]),
        ("--longer-than 601s", []),
        ("--longer-than 9m --state PrepareCommit", ["copier-3"]),
    ],
)
def test_list_shows_those_that_were_asked_for(
    till: Till, cli: Cli, given: str, names: list[str]
) -> None:
    assert [row["transactional-id"] for row in cli.json(f"list {given}")["ids"]] == names


def test_the_states_are_those_of_the_coordinator() -> None:
    assert {*STATES} == {state.value for state in State} - {State.DEAD.value}


def test_describe_shows_who_has_not_been_told(till: Till, cli: Cli) -> None:
    assert cli("describe copier-3").shown == snapshot("""\
TRANSACTIONAL-ID  copier-3
STATE             PrepareCommit
PRODUCER-ID       4
EPOCH             1
OPEN-FOR          10m00s
GROUPS            1
PARTITIONS        0
UNWRITTEN         1
CLIENT-ID         copier-b
STARTED           2023-11-14T22:13:20.000Z
TIMEOUT           1m00s
ENDED             commit by client, epoch 0
SHARD             0
AS-OF             r0-41 at 2026-03-01T23:59:50.000Z, 2 records not read yet

GROUP    COMMITS  PENDING
billing  0        0

CLUSTER  TOPIC  PARTITION  MARKER
c        out    7          missing
""")
    assert cli.json("describe copier-3")["ended"] == {
        "producer-id": 4, "epoch": 0, "result": "commit", "reason": "client",
    }  # fmt: skip
    found = cli.json("describe copier-1")
    assert found["groups"] == [{"group": "billing", "commits": 0, "pending": 0}]
    assert [row["marker"] for row in found["partitions"]] == ["open", "open"]
    assert (found["ended"], found["timeout"], found["as_of_offset"]) == (None, 60_000, 41)


def test_an_id_that_is_not_there_is_told_in_three_lines(till: Till, cli: Cli) -> None:
    """Most often it is one of Kafka's own transactions."""
    assert cli.error("describe copier-k", code=FAILED) == snapshot(
        [
            "TRANSACTIONAL_ID_NOT_FOUND",
            "transactional id copier-k, prefix coord, shard 0",
            "Check it: coord transactions list. Ids of producers whose transactions Kafka decides are not there: Kafka keeps them.",
        ]
    )


def test_pending_shows_what_waits_for_whom(till: Till, cli: Cli) -> None:
    assert cli("pending").shown == snapshot("""\
GROUP    KEY    DECIDED-BY  WAITS-FOR  PARTITIONS  CLIENT-ID  MEMBER-ID  GENERATION  DECISION
billing  r0-10  kafka       10m00s     2           copier-b   -          -1          -
billing  r0-11  kafka       10m00s     1           copier-b   -          -1          -
2> 2 commits wait for a decision as of 2023-11-14T22:23:20.000Z
""")
    assert cli("pending billing").shown == snapshot("""\
GROUP    KEY    DECIDED-BY  WAITS-FOR  PARTITIONS  CLIENT-ID  MEMBER-ID  GENERATION  DECISION
billing  r0-10  kafka       10m00s     2           copier-b   -          -1          -
billing  r0-11  kafka       10m00s     1           copier-b   -          -1          -

KEY    TOPIC   PARTITION  PENDING-OFFSET
r0-10  orders  0          5
r0-10  orders  1          6
r0-11  orders  0          9
2> 2 commits of group billing wait for a decision as of 2023-11-14T22:23:20.000Z
""")
    assert cli("pending nobody").shown == snapshot("""\
GROUP  KEY  DECIDED-BY  WAITS-FOR  PARTITIONS  CLIENT-ID  MEMBER-ID  GENERATION  DECISION
2> 0 commits of group nobody wait for a decision as of 2023-11-14T22:23:20.000Z
""")
    found = cli.json("pending billing")["pending"]
    assert found[1]["offsets"] == [{"topic": "orders", "partition": 0, "pending-offset": 9}]
    assert (found[0]["waits-for"], found[0]["table"]) == (600_000, None)


@pytest.mark.parametrize("command", ["list", "pending", "describe x"])
def test_where_the_topic_is_missing_it_says_how_to_make_it(
    command: str, till: Till, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody has removed it."""
    monkeypatch.delitem(REACHED, "coord.transactions")
    monkeypatch.setattr("coordlib.cli.kit.reading.require_visible", lambda *_: None)
    what, _, hint = cli.error(command)

    assert what == "There is no topic coord.transactions."
    assert "coord topics create" in hint


# -- what stands in the topic ---------------------------------------------------------------------


def test_what_others_wrote_into_the_topic_is_left_out() -> None:
    records = {
        b"": b"",
        b"x": b"{}",
        b"[]": b"{}",
        b'["id"]': b"{}",
        b'["pending","g"]': b"{}",
        b'["pending","g","k"]': b"{}",
    }
    seen = seen_in({key: Stamped(value, 0) for key, value in records.items()}, 0)

    assert (seen.ids, seen.pending) == ((), ())


def test_an_id_that_newer_code_wrote_is_shown_as_such() -> None:
    records = {b'["id","a"]': b'{"kind":"producer","v":2}', b'["id","b"]': b"?"}
    found = seen_in({key: Stamped(value, 0) for key, value in records.items()}, 0).ids

    assert [(each.name, each.unreadable) for each in found] == [
        ("a", "kind producer, version 2"),
        ("b", "no kind"),
    ]


@pytest.mark.parametrize("state", [p.empty, p.ongoing, p.prepare_commit, p.complete_abort])
def test_the_topic_has_what_the_coordinator_has(state: Any) -> None:
    talk = state()
    talk.end_batch_raw()
    records = newest(talk.outputs, "transactions")
    (found,) = seen_in({key: Stamped(value, 7) for key, value in records.items()}, 0).ids

    assert found.value == talk.producer()
    assert (found.name, found.written_ms, found.is_quarantined) == (p.ID, 7, False)


def test_shards_that_have_not_been_told_are_found_in_the_outbox() -> None:
    outbox = [b"[0,1,7]", b"[0,2,3]", b'["sent",1]', b'["heard",2]', b"?", b"[0,3,9]"]

    assert unheard({1: 7, 2: 2, 3: 12}, outbox) == (1, 3)
