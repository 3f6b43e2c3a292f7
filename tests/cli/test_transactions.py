"""`coord transactions list|describe|pending`: what the topics tell, job up or down."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from coordlib.cli.kit import where
from coordlib.cli.main.main import main
from coordlib.cli.transactions import rows as listings
from coordlib.cli.transactions.app import STATES
from coordlib.cli.transactions.view import seen_in, unheard
from coordlib.core.transactions.transaction import State
from coordlib.exit_codes import FAILED, OK, USAGE
from coordlib.kafka.reading import Stamped
from coordlib.testing.fake_log import EPOCH_MS
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


def told(capsys: pytest.CaptureFixture[str], *command: str) -> tuple[list[str], str]:
    """Lines of the result, and what was said."""
    capsys.readouterr()
    assert main(["transactions", *command, *WHERE]) == OK
    printed = capsys.readouterr()
    return printed.out.splitlines(), printed.err


def objects(capsys: pytest.CaptureFixture[str], *command: str) -> dict[str, Any]:
    (line,), _ = told(capsys, *command, "--format", "json")
    found: dict[str, Any] = json.loads(line)
    return found


def errors(capsys: pytest.CaptureFixture[str], *command: str) -> tuple[int, list[str]]:
    """The exit code, and what was said."""
    capsys.readouterr()
    return main(["transactions", *command, *WHERE]), capsys.readouterr().err.splitlines()


def test_list_shows_how_each_id_stands(till: Till, capsys: pytest.CaptureFixture[str]) -> None:
    lines, said = told(capsys, "list")

    assert [line.split() for line in lines] == [
        [*listings.ids(0).headers],
        ["copier-1", "Ongoing", "0", "0", "10m00s", "1", "2", "0", "copier-b"],
        ["copier-2", "Empty", "3", "0", "-", "0", "0", "0", "copier-b"],
        ["copier-3", "PrepareCommit", "4", "1", "10m00s", "1", "0", "1", "copier-b"],
    ]
    assert said.startswith("3 transactional ids as of ")
    ids = objects(capsys, "list")["ids"]
    assert [row["open-for"] for row in ids] == [600_000, None, 600_000]
    assert [row["started"] for row in ids] == ["2023-11-14T22:13:20.000Z", None, ids[0]["started"]]


def test_an_empty_list_names_what_shows_transactions_of_kafka(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A copier hung in a transaction of Kafka: the list was empty, and did not say why."""
    with open_till(monkeypatch) as made:
        made.pend("billing", 5)
        _, said = told(capsys, "list")

    assert said.splitlines()[1] == (
        "Transactions that Kafka decides are not listed: coord transactions pending shows their "
        "offsets, coord transactions find-hanging those that do not end."
    )


@pytest.mark.parametrize(
    ("given", "names"),
    [
        (["--state", "ongoing"], ["copier-1"]),
        (["--state", "Empty,PrepareCommit"], ["copier-2", "copier-3"]),
        (["--state", "Quarantined"], []),
        (["--longer-than", "9m"], ["copier-1", "copier-3"]),
        (["--longer-than", "601s"], []),
        (["--longer-than", "9m", "--state", "PrepareCommit"], ["copier-3"]),
    ],
)
def test_list_shows_those_that_were_asked_for(
    till: Till, capsys: pytest.CaptureFixture[str], given: list[str], names: list[str]
) -> None:
    assert [row["transactional-id"] for row in objects(capsys, "list", *given)["ids"]] == names


@pytest.mark.parametrize(
    ("given", "what"),
    [
        (["--state", "Stable"], "Stable is no state of a transactional id."),
        (["--longer-than", "5"], '"5" is not a duration'),
        (["--longer-than", "5 m"], '"5 m" is not a duration'),
        (["--longer-than=-5m"], '"-5m" is not a duration'),
        (["--longer-than", "1.5h"], '"1.5h" is not a duration'),
    ],
)
def test_what_cannot_be_asked_for_is_wrong_usage(
    capsys: pytest.CaptureFixture[str], given: list[str], what: str
) -> None:
    code, lines = errors(capsys, "list", *given)

    assert (code, len(lines)) == (USAGE, 3)
    assert what in lines[0]


def test_the_states_are_those_of_the_coordinator() -> None:
    assert {*STATES} == {state.value for state in State} - {State.DEAD.value}


def test_describe_shows_who_has_not_been_told(
    till: Till, capsys: pytest.CaptureFixture[str]
) -> None:
    lines, _ = told(capsys, "describe", "copier-3")

    first, second = (at for at, line in enumerate(lines) if not line)
    head = dict(line.split(maxsplit=1) for line in lines[:first])
    assert head["STATE"] == "PrepareCommit"
    assert head["ENDED"] == "commit by client, epoch 0"
    assert head["TIMEOUT"] == "1m00s"
    assert head["AS-OF"] == "r0-41 at 2026-03-01T23:59:50.000Z, 2 records not read yet"
    assert [line.split() for line in lines[first + 1 : second]] == [
        [*listings.GROUPS.headers],
        ["billing", "0", "0"],
    ]
    assert [line.split() for line in lines[second + 1 :]] == [
        [*listings.PARTITIONS.headers],
        ["c", "out", "7", "missing"],
    ]


def test_describe_as_json_has_all_of_it(till: Till, capsys: pytest.CaptureFixture[str]) -> None:
    found = objects(capsys, "describe", "copier-1")

    assert found["groups"] == [{"group": "billing", "commits": 0, "pending": 0}]
    assert [row["marker"] for row in found["partitions"]] == ["open", "open"]
    assert (found["ended"], found["timeout"], found["as_of_offset"]) == (None, 60_000, 41)
    ended = objects(capsys, "describe", "copier-3")["ended"]
    assert ended == {"producer-id": 4, "epoch": 0, "result": "commit", "reason": "client"}


def test_an_id_that_is_not_there_is_told_in_three_lines(
    till: Till, capsys: pytest.CaptureFixture[str]
) -> None:
    """Most often it is one of Kafka's own transactions."""
    code, (what, where, hint) = errors(capsys, "describe", "copier-k")

    assert code == FAILED
    assert "TRANSACTIONAL_ID_NOT_FOUND" in what
    assert "transactional id copier-k" in where
    assert "coord transactions list" in hint


def test_pending_shows_what_waits_for_whom(till: Till, capsys: pytest.CaptureFixture[str]) -> None:
    lines, said = told(capsys, "pending")

    first, second = till_keys(till)
    assert [line.split() for line in lines] == [
        [*listings.pending(0).headers],
        ["billing", first, "kafka", "10m00s", "2", "copier-b", "-", "-1", "-"],
        ["billing", second, "kafka", "10m00s", "1", "copier-b", "-", "-1", "-"],
    ]
    assert said.startswith("2 commits wait for a decision as of ")


def till_keys(till: Till) -> list[str]:
    found = newest(list(till.log.outputs), "transactions")
    seen = seen_in({key: Stamped(value, 0) for key, value in found.items()}, 0)
    return [each.key for each in seen.pending]


def test_pending_of_a_group_shows_the_offsets(
    till: Till, capsys: pytest.CaptureFixture[str]
) -> None:
    lines, said = told(capsys, "pending", "billing")

    first, second = till_keys(till)
    assert [line.split() for line in lines[lines.index("") + 1 :]] == [
        [*listings.OFFSETS.headers],
        [first, "orders", "0", "5"],
        [first, "orders", "1", "6"],
        [second, "orders", "0", "9"],
    ]
    assert said.startswith("2 commits of group billing wait")
    found = objects(capsys, "pending", "billing")["pending"]
    assert found[1]["offsets"] == [{"topic": "orders", "partition": 0, "pending-offset": 9}]
    assert (found[0]["waits-for"], found[0]["table"]) == (600_000, None)


def test_nothing_waits_of_a_group_that_is_not_there(
    till: Till, capsys: pytest.CaptureFixture[str]
) -> None:
    lines, said = told(capsys, "pending", "nobody")

    assert (len(lines), said.split(" as of ")[0]) == (
        1,
        "0 commits of group nobody wait for a decision",
    )


def test_where_the_topic_is_missing_it_says_how_to_make_it(
    till: Till, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody has removed it."""
    monkeypatch.delitem(REACHED, "coord.transactions")
    monkeypatch.setattr("coordlib.cli.kit.reading.require_visible", lambda *_: None)
    for command in (["list"], ["pending"], ["describe", "x"]):
        code, (what, _, hint) = errors(capsys, *command)
        assert (code, what) == (USAGE, "There is no topic coord.transactions.")
        assert "coord topics create" in hint


@pytest.mark.parametrize("command", ["describe", "pending", "abort", "release", "history"])
@pytest.mark.parametrize("name", ["", "x" * 250, "a\nb"])
def test_what_is_no_name_is_wrong_usage(
    capsys: pytest.CaptureFixture[str], command: str, name: str
) -> None:
    code, lines = errors(capsys, command, name)

    assert (code, len(lines)) == (USAGE, 3)


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
