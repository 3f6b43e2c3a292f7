"""Partitions that were added to a prefix's topics: who counts by the record, and what is told."""

from types import SimpleNamespace
from typing import Any

import pytest

from coordlib.cli.kit import reading
from coordlib.cli.main import status
from coordlib.core.wire.stored import Layout
from coordlib.kafka import layout, topics
from coordlib.kafka.layout import Grown, find_place, grown
from coordlib.kafka.logs import Bounds, Place
from coordlib.kafka.plans import CLAIMS_TABLE, read_plans

CLIENT = {"bootstrap.servers": "127.0.0.1:1"}
RECORD = Layout(shards=2, reply_partitions=16, topic_ids={"coord.requests": "abcdefghijkl"})
OF_CLAIMS = Layout(shards=4, reply_partitions=0, topic_ids={"c.6s": "mnopqrstuvwx"}, input="c.6s")


def topics_with(**more: int) -> dict[str, Any]:
    """The metadata of a prefix's topics; some have more partitions than it was made with."""
    counts = {plan.name: plan.count(2, 16) for plan in read_plans()} | more
    return {
        f"coord.{name}": SimpleNamespace(partitions=dict.fromkeys(range(count)), error=None)
        for name, count in counts.items()
    }


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> dict[str, Layout | None]:
    """What the progress topic of each pipeline has."""
    found: dict[str, Layout | None] = {"coord": RECORD}
    monkeypatch.setattr(layout, "recorded_layout", lambda _, prefix, *__: found.get(prefix))
    monkeypatch.setattr(
        reading, "read_progress", lambda _, prefix: reading.SeenProgress(found.get(prefix))
    )
    return found


@pytest.mark.parametrize("name", [plan.name for plan in read_plans()])
def test_each_topic_that_has_grown_is_named(name: str) -> None:
    counts = {topic: len(each.partitions) for topic, each in topics_with().items()}
    assert grown("coord", RECORD, counts) == []
    topic = f"coord.{name}"

    assert grown("coord", RECORD, counts | {topic: counts[topic] + 1}) == [
        Grown(topic, counts[topic] + 1, counts[topic])
    ]


def test_of_claims_the_coordination_topic_counts_too() -> None:
    """It is others', and the job has as many shards as it had at first."""
    names = [f"coord.claims.{plan.name}" for plan in read_plans(pipeline=CLAIMS_TABLE)]
    counts = dict.fromkeys(names, 4) | {"coord.claims.progress": 1, "c.6s": 5}

    assert grown("coord.claims", OF_CLAIMS, counts) == [Grown("c.6s", 5, 4)]


def test_a_client_counts_shards_and_answers_by_the_record(
    monkeypatch: pytest.MonkeyPatch, recorded: dict[str, Layout | None]
) -> None:
    """By the topics its group would have another shard, where no job answers."""
    seen = topics_with(requests=3, responses=17)
    counts = {name: len(each.partitions) for name, each in seen.items()}
    monkeypatch.setattr(layout, "_first_counts", lambda *_: counts)

    place = find_place(CLIENT, "coord")

    assert (place.shards, place.reply_partitions) == (2, 16)


@pytest.mark.parametrize("name", ["groups", "clusters", "transactions"])
def test_commands_look_in_the_shards_of_the_record(
    name: str, recorded: dict[str, Layout | None]
) -> None:
    """`coord groups describe` said that there is no such group."""
    grown_by_one = topics_with(**{name: 3})
    assert reading.read_shards(CLIENT, grown_by_one, "coord", name)[0] == 2
    recorded["coord"] = None
    assert reading.read_shards(CLIENT, grown_by_one, "coord", name)[0] == 3


def test_a_topic_that_an_upgrade_brings_has_as_many_as_the_record(
    monkeypatch: pytest.MonkeyPatch, recorded: dict[str, Layout | None]
) -> None:
    """Its partitions would be one too many, for ever."""
    present, made = topics_with(requests=3, responses=17), list[tuple[int, int]]()
    del present["coord.outbox"]
    monkeypatch.setattr(topics, "open_admin", lambda _: None)
    monkeypatch.setattr(topics, "present_topics", lambda *_: present)
    monkeypatch.setattr(topics, "create_planned", lambda *given: made.append(given[3]))

    topics.create(CLIENT, "coord", None, None, 1)

    assert made == [(2, 16)]


def test_status_counts_the_records_that_nobody_reads(
    monkeypatch: pytest.MonkeyPatch, recorded: dict[str, Layout | None]
) -> None:
    seen = topics_with(requests=4, groups=3)
    seen["coord.claims.progress"] = SimpleNamespace(partitions=[0])
    seen["c.6s"] = SimpleNamespace(partitions=range(5))
    recorded["coord.claims"] = OF_CLAIMS
    logs = {Place("coord.requests", 3): Bounds(2, 9), Place("c.6s", 4): Bounds(0, 1)}

    def bounds(_: Any, places: list[Place], *__: Any, **___: Any) -> dict[Place, Bounds]:
        assert sorted(places) == [
            *(Place("c.6s", 4), Place("coord.groups", 2)),
            *(Place("coord.requests", 2), Place("coord.requests", 3)),
        ]
        return dict.fromkeys(places, Bounds(0, 0)) | logs

    monkeypatch.setattr("coordlib.kafka.clients.Admin", lambda _: None)
    monkeypatch.setattr("coordlib.kafka.bounds.log_bounds", bounds)
    rows = status._added(CLIENT, seen, "coord", RECORD)

    assert rows == [
        {"topic": "coord.requests", "partitions": 4, "recorded": 2, "records": 7},
        {"topic": "coord.groups", "partitions": 3, "recorded": 2, "records": 0},
        {"topic": "c.6s", "partitions": 5, "recorded": 4, "records": 1},
    ]
    told = status.added_lines(SimpleNamespace(fields={"partitions_added": rows}))  # type: ignore[arg-type]
    assert "7 records there will have no answer" in told[0]


def test_what_waits_is_counted_in_the_shards_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A record that is never judged would be lag for ever."""
    monkeypatch.setattr("coordlib.kafka.clients.Admin", lambda _: None)
    monkeypatch.setattr(
        "coordlib.kafka.bounds.log_bounds",
        lambda _, places, *__, **___: dict.fromkeys(places, Bounds(0, 1)),
    )

    waiting = status._waiting(CLIENT, topics_with(requests=3, offsets=3), "coord", 2, None)

    assert {place.partition for place in waiting} == {0, 1}
