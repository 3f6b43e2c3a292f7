"""Clusters with very many topics: what is said of them goes out in parts that the log takes."""

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from coordlib import limits
from coordlib.client.controller.metadata import Picture
from coordlib.core.controller.states import PARTITIONS, TOPICS, Partition, ReplicaState, Topic
from coordlib.core.wire import api, codec
from tests.tools import clusters as c
from tests.tools import core
from tests.tools.driving import Conversation

#: The envelope of a part.
ENVELOPE_BYTES = 512


def with_topics(talk: Conversation, count: int, deleted_on: int | None = None) -> list[str]:
    """So many topics of one partition on broker 1, or on one that is to delete it; their names."""
    row, names = (
        c.row_of(talk.shard),
        [f"{n:05}".ljust(limits.NAME_LENGTH_MAX, "x") for n in range(count)],
    )
    is_deleted = deleted_on is not None
    deleting = {deleted_on: int(ReplicaState.DELETION_INELIGIBLE)} if is_deleted else {}
    replicas = (deleted_on if deleted_on is not None else 1,)
    for number, name in enumerate(names):
        row.entries(TOPICS).set((name, 0), Topic(number, 1, 1, False, is_deleted))
        row.entries(PARTITIONS).set(
            (name, 0),
            Partition(number, -1, 0, 0, 0, replicas, replicas, deleting=deleting),
        )
    head = msgspec.structs.replace(row.value, topic_count=count, partition_count=count)
    core.set_value(talk.shard, "g", head, "cluster")
    return names


def said(talk: Conversation, request: Any) -> list[bytes]:
    """All values that a request makes the shard write, if it does not fail."""
    outputs = talk.send_raw(request)
    assert not c.row_of(talk.shard).is_quarantined
    return [each.value for each in outputs if each.value is not None]


def read(values: list[bytes], kind: str, into: Callable[[Any], Any]) -> int:
    """Feed all responses of a kind to a reader; how many there are."""
    found = [value for value in values if json.loads(value)["type"] == kind]
    assert max(map(len, found)) <= limits.METADATA_PART_BYTES_MAX + ENVELOPE_BYTES
    for value in found:
        into(codec.decode_response(value))
    return len(found)


def test_topics_of_an_answer_stand_in_parts() -> None:
    """INV-43: every agent asks for all topics when it registers; one record with 7 MB of them is
    nearly more than an output topic takes, and readers hold it whole."""
    talk, picture = c.registered(), Picture()
    names = with_topics(talk, 20_000)
    parts = read(said(talk, c.about(api.Metadata)), "Metadata", picture.answered)
    picture.complete()
    shown = picture.show()

    assert parts > 20_000 * 2 * limits.NAME_LENGTH_MAX // limits.METADATA_PART_BYTES_MAX
    assert shown is not None
    assert sorted(shown.topics) == names
    assert len(shown.partitions) == 20_000


def test_an_answer_that_is_too_large_by_its_topics_is_refused() -> None:
    """INV-43: topics count as partitions do: anybody's question must not quarantine a cluster."""
    talk = c.registered()
    names = with_topics(talk, 25_000)
    answer, *_ = said(talk, c.about(api.Metadata))
    assert json.loads(answer)["error"] == "INVALID_REQUEST"
    for some in (names[:3_000], []):
        picture = Picture()
        read(said(talk, c.about(api.Metadata, topics=some)), "Metadata", picture.answered)
        picture.complete()
        shown = picture.show()
        assert shown is not None
        assert sorted(shown.topics) == some


@pytest.mark.parametrize(
    ("count", "part_bytes"),
    [(200, 8 * limits.KIB), pytest.param(25_000, 512 * limits.KIB, marks=pytest.mark.chaos)],
)
def test_topics_of_one_change_stand_in_parts(
    count: int, part_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """INV-43: the deletion of very many topics has waited for one broker; it is unregistered. In
    one record they have 8.5 MB."""
    monkeypatch.setattr(limits, "METADATA_PART_BYTES_MAX", part_bytes)
    talk, picture = c.registered(), Picture()
    talk.send(c.register(9))
    talk.tick()
    names = with_topics(talk, count, deleted_on=9)
    asked = c.about(api.Metadata, topics=names[-100:])
    read(said(talk, asked), "Metadata", picture.answered)
    talk.send(c.leaves("b9", c.cluster_of(talk.shard).brokers[9].member))
    forget = c.about(api.UnregisterBroker, broker=9)
    parts = read(said(talk, forget), "MetadataChanged", picture.changed)
    picture.complete()
    shown = picture.show()

    assert parts > count * limits.NAME_LENGTH_MAX // part_bytes
    assert shown is not None
    assert not shown.topics
    assert not shown.partitions
    assert c.topics_of(talk.shard) == {}
