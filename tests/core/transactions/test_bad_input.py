"""Requests about transactional ids that are wrong, too many or too large: each has its error, and
disturbs nobody else."""

import json
from typing import Any

import msgspec
import pytest

from coordlib.core.engine.effects import OUTBOX
from coordlib.core.transactions.transaction import State
from coordlib.core.wire import api, codec
from coordlib.core.wire.envelope import shard_of
from tests.core.transactions.test_differences import asked, error
from tests.core.transactions.test_in_time import settings
from tests.tools import producers as p


def raw(talk: p.Talk, **fields: Any) -> dict[str, Any]:
    """What a record of these fields is answered."""
    request = {"v": 1, "id": "x", "client": "a", "transactional_id": p.ID, **fields}
    return asked(talk, json.dumps(request).encode())


@pytest.mark.parametrize(
    "fields",
    [
        {"type": "InitProducerId", "timeout_ms": 60_000, "transactional_id": ""},
        {"type": "InitProducerId", "timeout_ms": 60_000, "producer_id": 0},
        {"type": "InitProducerId", "timeout_ms": 60_000, "epoch": 0},
        {"type": "InitProducerId", "timeout_ms": 60_000, "producer_id": 0, "epoch": 32_767},
        {"type": "InitProducerId", "timeout_ms": 60_000, "producer_id": -1, "epoch": 0},
        {"type": "EndTxn", "producer_id": 0, "epoch": 0, "result": "perhaps"},
        {"type": "EndTxn", "producer_id": 0, "epoch": 0},
        {"type": "AddPartitionsToTxn", "producer_id": 0, "epoch": 0, "partitions": []},
        {"type": "AddOffsetsToTxn", "producer_id": 0, "epoch": 0, "group": ""},
        {"type": "TxnOffsetCommit", "producer_id": 0, "epoch": 0, "group": "g", "number": 0},
        {"type": "DescribeTransaction", "transactional_id": "x" * 250},
    ],
)
def test_a_request_that_cannot_be_is_refused(fields: dict[str, Any]) -> None:
    """The answer names the fault, and the id stands as before."""
    talk = p.empty()
    before = talk.producer()

    assert raw(talk, **fields)["error"] == "INVALID_REQUEST"
    assert talk.producer() is before


def test_partitions_are_named_once() -> None:
    """Two rows of one topic may overlap as well."""
    talk = p.empty()
    row = api.TopicsOfCluster(cluster="c", topic="t", partitions=(0, 1))

    for rows in ((row, row), (api.TopicsOfCluster(cluster="c", topic="t", partitions=(2, 2)),)):
        assert error(talk, p.add(0, 1, partitions=rows)) == "INVALID_REQUEST"
    assert talk.producer().state is State.EMPTY


def test_a_transaction_has_a_bounded_number_of_partitions() -> None:
    """10,000 in all, however many requests they come by; what is refused leaves it as it was."""
    talk = p.empty()
    many = api.TopicsOfCluster(cluster="c", topic="t", partitions=tuple(range(10_000)))
    assert error(talk, p.add(0, 1, partitions=(many,))) == "NONE"
    one_more = api.TopicsOfCluster(cluster="c", topic="t", partitions=(10_000,))
    before = talk.producer()

    assert error(talk, p.add(0, 1, partitions=(one_more,))) == "INVALID_REQUEST"
    assert talk.producer() is before
    too_many = api.TopicsOfCluster(cluster="c", topic="u", partitions=tuple(range(10_001)))
    assert error(talk, p.add(0, 1, partitions=(too_many,))) == "INVALID_REQUEST"


def test_a_transaction_has_a_bounded_number_of_groups() -> None:
    """100; and the hundred-and-first is refused without a message to its shard."""
    talk = p.empty()
    for number in range(100):
        assert error(talk, p.add_group(0, 1, f"g{number}")) == "NONE"
    assert error(talk, p.add_group(0, 1, "one more")) == "INVALID_REQUEST"
    assert error(talk, p.offsets(0, 1, of_group="one more")) == "INVALID_REQUEST"
    assert talk.outbox() == {}
    talk.send(p.end(0, 1))

    assert len(talk.outbox()) == 100


def test_commits_have_numbers() -> None:
    """The newest may come again; an older one would take the place of later offsets."""
    talk = p.ongoing()
    assert error(talk, p.offsets(0, 1, 1)) == "INVALID_REQUEST"
    for number in (0, 0, 1, 1):
        assert error(talk, p.offsets(0, 1, number)) == "", "the group answers"
    assert error(talk, p.offsets(0, 1, 0)) == "INVALID_REQUEST"
    assert error(talk, p.offsets(0, 1, 3)) == "INVALID_REQUEST"

    assert len(talk.outbox()) == 4
    assert talk.producer().commits == 2


def test_the_first_commit_may_begin_a_transaction() -> None:
    """The transaction before had commits, too: their numbers do not count any more."""
    talk = p.ongoing()
    talk.send_all(p.offsets(0, 1, 0), p.offsets(0, 1, 1), p.end(0, 1, "abort"))
    talk.send(p.written(0, 1))
    talk.settle()

    assert error(talk, p.offsets(0, 2, 1)) == "INVALID_REQUEST"
    assert talk.producer().state is State.COMPLETE_ABORT
    assert error(talk, p.offsets(0, 2, 0)) == ""
    assert talk.producer().state is State.ONGOING


def test_offsets_must_fit_into_the_record_that_brings_them() -> None:
    """A request of nearly 1 MiB, and what wraps it: the log of the group would refuse it."""
    talk = p.ongoing()
    rows = tuple(api.CommittedOffset("t", number, 5, metadata="m" * 4_000) for number in range(256))
    large = p.offsets(0, 1, offsets=rows)
    assert 1_040_384 < len(codec.encode(large)) <= 1_048_576

    assert error(talk, large) == "INVALID_REQUEST"
    assert error(talk, p.offsets(0, 1, offsets=rows[:255])) == ""
    assert all(len(body) <= 1_040_384 for body in talk.outbox().values())


def test_a_shard_has_a_bounded_number_of_ids() -> None:
    """A client that invents ids reaches its bound; who has one goes on."""
    talk = p.Talk(settings(ids_per_shard_max=3))
    told = [error(talk, p.init(group=f"id-{number}")) for number in range(5)]

    assert told == ["NONE"] * 3 + ["COORDINATOR_NOT_AVAILABLE"] * 2
    assert error(talk, p.add(0, 0, group="id-0")) == "NONE"


def test_new_ids_have_a_rate() -> None:
    """10,000 new ids a second: five seconds' worth come at once, the others wait."""
    talk = p.Talk()
    told = [asked(talk, p.init(group=f"id-{number}")) for number in range(600)]

    assert [each["error"] for each in told].count("NONE") == 500
    late = told[-1]
    assert late["error"] == "THROTTLING_QUOTA_EXCEEDED"
    assert late["throttle_time_ms"] > 0


def test_a_shard_that_is_far_behind_is_sent_no_more_offsets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It would only grow; what was promised a decision gets it all the same."""
    monkeypatch.setattr("coordlib.limits.UNHEARD_MAX", 2)
    talk = p.ongoing()
    talk.send_all(p.offsets(0, 1, 0), p.offsets(0, 1, 1))

    assert error(talk, p.offsets(0, 1, 2)) == "THROTTLING_QUOTA_EXCEEDED"
    assert error(talk, p.add_group(0, 1, "h")) == "THROTTLING_QUOTA_EXCEEDED"
    assert error(talk, p.end(0, 1, accepted=2)) == "NONE"
    assert len(talk.outbox()) == 3


def test_an_id_may_be_called_as_a_group_is() -> None:
    """They are two spaces of names."""
    talk = p.Talk()
    assert error(talk, p.init(group="g")) == "NONE"
    commit = api.OffsetCommit(
        v=1, id="c", client="b", group="g", offsets=(api.CommittedOffset("t", 0, 5),)
    )
    assert error(talk, commit) == "NONE"
    assert error(talk, api.DescribeGroup(v=1, id="d", client="b", group="g")) == "NONE"

    assert [space for space, _ in sorted(talk.shard.rows)] == ["group", "transaction"]
    saved = [each for each in talk.end_batch_raw() if b"g" in (each.key or b"")]
    assert {each.topic for each in saved} == {"groups", "transactions"}


def test_an_id_belongs_into_one_partition() -> None:
    """A client that computes another hash is told where it belongs; nothing is made."""
    talk = p.Talk(msgspec.structs.replace(settings(), shard=1, shards=2))
    told = asked(talk, p.init(group=next(n for n in "abc" if shard_of(n, 2) == 0)))

    assert (told["error"], told["type"]) == ("WRONG_SHARD", "Rejected")
    assert talk.shard.rows == {}


def test_only_what_rests_can_be_deleted() -> None:
    """An operator's hand must not lose a decision."""
    for make, wanted in ((p.ongoing, "NON_EMPTY_GROUP"), (p.prepare_commit, "NON_EMPTY_GROUP")):
        request = api.DeleteGroup(v=1, id="d", client="ops", group=p.ID, space="transaction")
        assert error(make(), request) == wanted
    talk = p.empty()
    request = api.DeleteGroup(v=1, id="d", client="ops", group=p.ID, space="transaction")
    assert error(talk, request) == "NONE"
    assert error(talk, p.add(0, 1)) == "INVALID_PRODUCER_ID_MAPPING"


def test_what_changes_nothing_writes_nothing() -> None:
    """A question, and a request that is refused: no head, no message."""
    talk = p.ongoing()
    talk.end_batch_raw()
    talk.send_all(p.describe(), p.add(0, 1), p.add(0, 0), p.end(0, 7))

    topics = {each.topic for each in talk.end_batch_raw()}
    assert topics.isdisjoint({"transactions", OUTBOX})
