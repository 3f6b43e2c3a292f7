"""Views over transactions in DuckDB, over what the real core wrote: what was decided, and why."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

import pytest

from coordlib.cli.transactions.view import seen_in
from coordlib.core.engine.effects import Output
from coordlib.kafka.reading import Stamped
from tests.cli.shop import newest
from tests.history.cluster_life import rows_of_events
from tests.history.test_cluster_views import Tables
from tests.history.transaction_life import GROUP, ID, START, a_life_of_transactions
from tests.tools.driving import SETTINGS, Conversation
from tests.tools.pending_logs import draw_log


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


@pytest.fixture(scope="module")
def told() -> Tables:
    tables = Tables()
    tables.add(a_life_of_transactions().rows())
    return tables


def test_why_a_transaction_was_aborted(told: Tables) -> None:
    found = told.ask(
        "SELECT epoch, started, ended, result, reason, ended_by, comment FROM transactions "
        f"WHERE id = '{ID}' ORDER BY epoch"
    )

    assert found == [
        (0, at(1), at(4), "commit", "client", None, None),
        (1, at(10), at(14), "abort", "operator", "ops", "INC-512"),
        (2, at(20), at(22), "abort", "fenced", "b", None),
        (4, at(25), None, None, None, None, None),
    ]


def test_what_a_transaction_had_and_how_long_it_took(told: Tables) -> None:
    found = told.ask(
        "SELECT producer_id, epoch, groups, partitions, completed, duration_ms, client_id, "
        "transaction FROM transactions ORDER BY epoch"
    )

    assert found == [
        (0, 0, [GROUP], 1, at(5), 4_000, "a", "0-0"),
        (0, 1, [GROUP], 1, at(14), 4_000, "a", "0-1"),
        (0, 2, [], 1, at(22), 2_000, "a", "0-2"),
        (0, 4, None, None, None, None, "a", "0-4"),
    ]


def test_a_group_is_found_among_those_of_transactions(told: Tables) -> None:
    sql = f"SELECT epoch FROM transactions WHERE array_contains(groups, '{GROUP}') ORDER BY 1"

    assert told.ask(sql) == [(0,), (1,)]


def test_who_was_fenced_by_whom(told: Tables) -> None:
    found = told.ask("SELECT id, epoch, client_id, fenced, fenced_by FROM fenced_producers")

    assert found == [(ID, 2, "a", at(22), "b")]


def test_which_offsets_waited_how_long(told: Tables) -> None:
    """The first commit of partition 0 was replaced by the transaction's own second one."""
    found = told.ask(
        'SELECT partition, "offset", transaction, decided_by, since, until, outcome '
        f"FROM pending_offsets WHERE group_id = '{GROUP}' ORDER BY since, partition"
    )

    assert found == [
        (0, 5, "0-0", "coordinator", at(1), at(2), "superseded"),
        (1, 7, "0-0", "coordinator", at(1), at(4), "committed"),
        (0, 6, "0-0", "coordinator", at(2), at(4), "committed"),
        (0, 9, "0-1", "coordinator", at(10), at(14), "dropped"),
        (1, 8, "0-4", "coordinator", at(25), None, None),
    ]


def test_what_a_later_commit_took_out_did_not_wait_any_more(told: Tables) -> None:
    """A plain commit, or a younger transaction's, has the partition then."""
    found = told.ask(
        'SELECT partition, "offset", since, until, outcome FROM pending_offsets '
        "WHERE group_id = 'kafka' AND decided_by = 'kafka' ORDER BY since, partition"
    )

    assert found == [
        (0, 1, at(30), at(32), "committed"),
        (0, 2, at(33), at(35), "dropped"),
        (0, 3, at(36), at(37), "superseded"),
        (1, 4, at(36), at(38), "committed"),
        (2, 1, at(40), at(42), "superseded"),
        (2, 2, at(41), at(42), "committed"),
        (3, 5, at(44), None, None),
    ]


def test_a_commit_names_its_transaction(told: Tables) -> None:
    found = told.ask(
        'SELECT group_id, partition, "offset", decided_by, transaction IS NOT NULL '
        "FROM offset_history ORDER BY time, partition"
    )

    assert found == [
        (GROUP, 0, 6, "coordinator", True),
        (GROUP, 1, 7, "coordinator", True),
        ("kafka", 0, 1, "kafka", True),
        ("kafka", 0, 10, None, False),
        ("kafka", 1, 4, "kafka", True),
        ("kafka", 2, 2, "kafka", True),
    ]


# -- any log ----------------------------------------------------------------------------------

Waiting = tuple[str, str, int, int, str]


def waiting(outputs: Iterable[Output]) -> set[Waiting]:
    """What waits for a decision, as the compacted topic has it."""
    records = newest(outputs, "transactions")
    seen = seen_in({key: Stamped(value, 0) for key, value in records.items()}, 0)
    return {
        (each.group, row.topic, row.partition, row.offset, each.key)
        for each in seen.pending
        for row in each.entry.offsets
    }


@pytest.mark.parametrize("seed", range(6))
def test_what_waited_at_any_time_is_what_the_coordinator_had_then(seed: int) -> None:
    log, _ = draw_log(seed, 300, SETTINGS)
    talk, tables = Conversation(), Tables()
    had: dict[int, set[Waiting]] = {}
    for record in log:
        talk.send(record.value, record.timestamp_ms - talk.now_ms)
        had[record.timestamp_ms] = waiting(talk.outputs)
    tables.add(rows_of_events(talk.outputs))

    assert any(had.values())
    rows = tables.ask(
        'SELECT since, until, group_id, topic, partition, "offset", transaction '
        "FROM pending_offsets"
    )
    for time_ms, expected in had.items():
        time = datetime.fromtimestamp(time_ms / 1000, UTC)
        waited = {row[2:] for row in rows if row[0] <= time and (row[1] is None or row[1] > time)}
        assert waited == expected, time_ms
