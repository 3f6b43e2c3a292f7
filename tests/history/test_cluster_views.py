"""Views over clusters in DuckDB, over what the real core wrote: they say what was so, and when."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from itertools import groupby
from typing import Any

import duckdb
import msgspec
import pytest

from coordlib.core.controller import states as kept
from coordlib.core.engine.effects import METADATA, Output
from coordlib.core.engine.tables import Place
from coordlib.core.wire import api
from coordlib.core.wire.stored import PartitionValue
from coordlib.history.delta_files import declare
from coordlib.history.engines import register_duckdb
from coordlib.history.tables import COLUMNS, EVENTS
from tests.history.cluster_life import (
    ASK_UNPROVED,
    CLUSTER,
    START,
    UNPROVED,
    ClusterLife,
    a_legacy_leader_is_replaced,
    a_life_of_a_cluster,
    rows_of_events,
)
from tests.tools import clusters as c
from tests.tools.broker_logs import Life
from tests.tools.driving import Conversation

Row = tuple[Any, ...]


class Tables:
    """The history's views over rows in memory."""

    def __init__(self) -> None:
        self._connection = duckdb.connect()
        self._connection.execute("SET TimeZone = 'UTC'")
        declare(self._connection)
        register_duckdb(self._connection)
        self._connection.execute(f"CREATE TABLE kept AS SELECT * FROM {EVENTS}")
        self._connection.execute(f"CREATE OR REPLACE VIEW {EVENTS} AS SELECT * FROM kept")

    def add(self, rows: list[dict[str, Any]]) -> None:
        values = [[row.get(name) for name in COLUMNS[EVENTS]] for row in rows]
        marks = ", ".join("?" for _ in COLUMNS[EVENTS])
        if values:
            self._connection.executemany(f"INSERT INTO kept VALUES ({marks})", values)

    def ask(self, sql: str) -> list[Row]:
        return self._connection.execute(sql).fetchall()


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


# -- a life that can be read ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def told() -> Tables:
    tables = Tables()
    tables.add(a_life_of_a_cluster().rows())
    return tables


def test_a_leader_has_its_times_and_the_reasons(told: Tables) -> None:
    """Who led orders/0 at three, and why not broker 1? One process of it was replaced while it led:
    nobody led until it must have stopped."""
    found = told.ask(
        "SELECT leader, incarnation, leader_epoch, since, until, election, reason FROM leaders "
        "WHERE topic = 'orders' AND partition = 0 ORDER BY leader_epoch"
    )

    assert found == [
        (1, 0, 0, at(0), at(23), "first", "topic created"),
        (2, 79, 2, at(32), None, "offline", "former leader must have stopped"),
    ]


def test_who_leads_nothing_is_told_with_the_reason(told: Tables) -> None:
    found = told.ask(
        "SELECT topic, partition, since, until, was, why, reason FROM leaderless "
        "WHERE until > since ORDER BY since, topic, partition"
    )

    assert found == [
        ("audit", 0, at(14), at(20), 2, "no replica in sync is active", "session expired"),
        ("orders", 0, at(23), at(32), 1, "former leader may still act",
         "superseded by a newer registration"),
        ("gone", 0, at(37), at(39), 3, "no replica in sync is active", "broker goes"),
    ]  # fmt: skip


def test_in_sync_replicas_have_their_times(told: Tables) -> None:
    found = told.ask(
        "SELECT isr, since, until, reason FROM isr_history "
        "WHERE topic = 'orders' AND partition = 0 ORDER BY partition_epoch"
    )

    assert found == [
        ([1, 2, 3], at(0), at(14), "topic created"),
        ([1, 3], at(14), at(20), "session expired"),
        ([1, 2, 3], at(20), at(23), "in-sync replicas changed"),
        ([2, 3], at(23), at(35), "superseded by a newer registration"),
        ([2], at(35), None, "broker stops"),
    ]


def test_a_broker_has_its_states_in_every_incarnation(told: Tables) -> None:
    found = told.ask(
        "SELECT broker, incarnation, state, since, until, reason FROM broker_history "
        "WHERE broker <> 3 AND (until IS NULL OR until > since) ORDER BY broker, since"
    )

    assert found == [
        (1, 0, "Active", at(0), at(23), "broker comes"),
        (1, 101, "Active", at(23), None, "broker comes"),
        (2, 4, "Active", at(0), at(14), "broker comes"),
        (2, 4, "Inactive", at(14), at(20), "session expired"),
        (2, 79, "Active", at(20), None, "broker comes"),
    ]


def test_current_brokers_have_what_they_registered_with(told: Tables) -> None:
    found = told.ask(
        "SELECT broker, state, client_id, member_id, rack, storage, endpoints, "
        "session_timeout_ms, release_timeout_ms, is_legacy, registered FROM current_brokers "
        "ORDER BY broker"
    )

    assert [row[:4] for row in found] == [
        (1, "Active", "b1-again", "b1-again-t-0-101"),
        (2, "Active", "b2-again", "b2-again-t-0-79"),
        (3, "Active", "b3", "b3-t-0-8"),
    ]
    endpoints = '[{"name":"in","host":"host-3","port":9092}]'
    assert found[2][4:] == ("r3", "disk-3", endpoints, 10_000, 20_000, False, at(0))


def test_a_topic_that_is_deleted_has_no_current_partitions(told: Tables) -> None:
    found = told.ask("SELECT topic, partition FROM current_partitions ORDER BY ALL")

    assert found == [("audit", 0), ("orders", 0), ("orders", 1), ("orders", 2)]
    assert told.ask("SELECT count(*) FROM leaders WHERE topic = 'gone' AND until IS NULL") == [(0,)]


def test_a_topic_that_is_made_anew_has_a_life_of_its_own() -> None:
    """Epochs begin again at 0: what led in the former life must not be mistaken for it."""
    life = ClusterLife()
    life.register(1)
    for _ in range(2):
        life.say(c.create(c.new_topic("t", assignment=[(1,)])))
        life.passes(2)
        row = c.partitions_of(life.talk.shard, CLUSTER)["t", 0]
        life.say(c.about(api.DeleteTopics, topics=("t",)))
        deleted = api.DeletedReplica(topic="t", topic_id=row.topic_id, partition=0)
        life.passes(1)
        life.say(c.deleted(1, life.cluster.brokers[1].incarnation, deleted))
        life.passes(1)
    life.say(c.create(c.new_topic("t", assignment=[(1,)])))
    tables = Tables()
    tables.add(life.rows())

    found = tables.ask("SELECT leader_epoch, since, until FROM leaders ORDER BY since")
    assert found == [(0, at(0), at(2)), (0, at(4), at(6)), (0, at(8), None)]
    found = tables.ask("SELECT since, until, why FROM leaderless ORDER BY since")
    assert found == [
        (at(2), at(3), "topic is being deleted"),
        (at(6), at(7), "topic is being deleted"),
    ]
    topic_id = c.topics_of(life.talk.shard, CLUSTER)["t"].topic_id
    assert tables.ask("SELECT topic, topic_id FROM current_partitions") == [("t", topic_id)]


def test_clusters_of_two_shards_and_two_names_do_not_mix() -> None:
    """Offsets of two shards have nothing to do with each other."""
    tables = Tables()
    rows = a_life_of_a_cluster().rows()
    tables.add(rows)
    before = tables.ask("SELECT * FROM leader_epochs ORDER BY ALL")
    other = [row | {"group_id": "other", "event_id": "o" + row["event_id"]} for row in rows]
    tables.add(other)

    of_one = f"SELECT * FROM leader_epochs WHERE group_id = '{CLUSTER}' ORDER BY ALL"
    assert tables.ask(of_one) == before


# -- random lives against the core ----------------------------------------------------------------


class Timed(Conversation):
    """A conversation that keeps the time of each output."""

    def __init__(self) -> None:
        super().__init__()
        self.times: list[datetime] = []

    def _new_outputs(self) -> list[Output]:
        new = super()._new_outputs()
        self.times += [datetime.fromtimestamp(self.now_ms / 1000, UTC)] * len(new)
        return new


class NotedLife(Life):
    """A random life; what the core had after each record is noted."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.talk: Timed = Timed()
        #: By topic id, place and leader epoch.
        self.incarnations: dict[tuple[int, Place, int], int] = {}
        #: By broker, what it was, without repeats.
        self.states: dict[int, list[Row]] = {}
        #: Number of outputs, and what the core had then.
        self.moments: list[tuple[int, list[Row], list[Row]]] = []

    def _listen(self) -> None:
        """After every record."""
        super()._listen()
        shard = self.talk.shard
        if ("cluster", "g") not in shard.rows:
            return
        brokers = c.cluster_of(shard).brokers
        for place, row in c.partitions_of(shard).items():
            if row.leader >= 0:
                key = row.topic_id, place, row.leader_epoch
                self.incarnations[key] = brokers[row.leader].incarnation
        for number, each in brokers.items():
            state = each.incarnation, each.state.value, time_of(each.since_ms)
            seen = self.states.setdefault(number, [])
            if not seen or seen[-1] != state:
                seen.append(state)

    def check(self) -> None:
        super().check()
        if self.random.random() < 0.02:
            self.note()

    def note(self) -> None:
        """What the core has now."""
        shard = self.talk.shard
        brokers = [
            (n, b.incarnation, b.state.value, time_of(b.since_ms), b.client, b.storage)
            for n, b in c.cluster_of(shard).brokers.items()
        ]
        partitions = [
            (topic, number, row.topic_id, row.leader, row.leader_epoch, row.partition_epoch,
             row.fence, [*row.replicas], [*row.isr])
            for (topic, number), row in sorted(c.partitions_of(shard).items())
        ]  # fmt: skip
        self.moments.append((len(self.talk.outputs), brokers, partitions))


def time_of(time_ms: int) -> datetime:
    return datetime.fromtimestamp(time_ms / 1000, UTC)


def lived(seed: int) -> NotedLife:
    life = NotedLife(seed)
    life.run(400)
    life.note()
    return life


def values_of(talk: Timed) -> Mapping[Place, list[tuple[datetime, PartitionValue | None]]]:
    """What `coord.metadata` said of each partition, record by record; None: it is gone."""
    found: dict[Place, list[tuple[datetime, PartitionValue | None]]] = {}
    for output, time in zip(talk.outputs, talk.times, strict=True):
        key = kept.PARTITIONS.place(output.key) if output.topic == METADATA else None
        if key is not None:
            value = output.value and msgspec.json.decode(output.value, type=PartitionValue)
            found.setdefault(key[1], []).append((time, value or None))
    return found


def spans(
    values: list[tuple[datetime, PartitionValue | None]], what: Any
) -> Iterator[tuple[PartitionValue, datetime, datetime | None]]:
    """Runs of values for which `what` is the same: the first one, its time, the time of the end."""
    runs = [next(run) for _, run in groupby(values, lambda each: each[1] and what(each[1]))]
    for (since, value), end in zip(runs, [*runs[1:], None], strict=True):
        if value is not None:
            yield value, since, end and end[0]


@pytest.mark.parametrize("seed", range(5))
def test_views_say_what_the_core_said(seed: int) -> None:
    """Random lives with deaths, guards, moves, deletions and unclean elections: leaders and ISRs
    begin and end as in `coord.metadata`, and current views are the state, at whatever moment."""
    life, tables = lived(seed), Tables()
    done = 0
    for count, brokers, partitions in life.moments:
        tables.add(rows_of_events(life.talk.outputs[done:count]))
        done = count
        assert tables.ask(CURRENT_BROKERS) == brokers
        assert tables.ask(CURRENT_PARTITIONS) == partitions
    leaders: list[Row] = []
    isrs: list[Row] = []
    for place, values in values_of(life.talk).items():
        for value, since, until in spans(values, lambda v: (v.topic_id, v.leader_epoch)):
            key = value.topic_id, place, value.leader_epoch
            incarnation = life.incarnations.get(key) if value.leader >= 0 else None
            leaders.append((*place, value.leader, incarnation, *key[2:], since, until))
        for value, since, until in spans(values, lambda v: (v.topic_id, v.isr)):
            isrs.append((*place, [*value.isr], value.partition_epoch, since, until))
    seen = {(row[0], row[1], row[4], row[5]) for row in leaders if row[3] is None}
    found = [
        (*row[:3], None if (row[0], row[1], row[4], row[5]) in seen else row[3], *row[4:])
        for row in tables.ask(LEADERS)
    ]

    assert by_text(found) == by_text(leaders)
    assert by_text(tables.ask(ISRS)) == by_text(isrs)
    for broker, states in life.states.items():
        rows = tables.ask(f"{STATES} WHERE broker = {broker} ORDER BY incarnation, since, until")
        assert [row[:3] for row in rows if row[:3] in states] == states
        assert all(row[2] == row[3] for row in rows if row[:3] not in states)


CURRENT_BROKERS = """
    SELECT broker, incarnation, state, since, client_id, storage FROM current_brokers
    ORDER BY broker"""
CURRENT_PARTITIONS = """
    SELECT topic, partition, topic_id, leader, leader_epoch, partition_epoch, fence, replicas, isr
    FROM current_partitions ORDER BY topic, partition"""
LEADERS = """
    SELECT topic, partition, leader, incarnation, leader_epoch, since, until FROM leaders
    UNION ALL
    SELECT topic, partition, -1, NULL, leader_epoch, since, until FROM leaderless"""
ISRS = "SELECT topic, partition, isr, partition_epoch, since, until FROM isr_history"
STATES = "SELECT incarnation, state, since, until FROM broker_history"


def by_text(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=repr)


def test_what_a_legacy_leader_led_was_led_by_others_without_a_proof() -> None:
    """Two may have acted: whoever looks for the cause of lost writes must see it."""
    tables = Tables()
    tables.add(a_legacy_leader_is_replaced().rows())

    assert tables.ask(ASK_UNPROVED) == UNPROVED
