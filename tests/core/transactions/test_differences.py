"""What is not as in Kafka, on purpose: differences-from-kafka.md names these tests."""

import json
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from coordlib.core.engine.effects import EVENTS, RESPONSES
from coordlib.core.transactions.transaction import State
from coordlib.core.wire.envelope import shard_of
from coordlib.core.wire.transactions import TRANSACTION
from tests.tools import core
from tests.tools import producers as p
from tests.tools.driving import SETTINGS

PAGE = Path(__file__).parents[3] / "docs/explanation/differences-from-kafka.md"


def asked(talk: p.Talk, request: Any) -> dict[str, Any]:
    """The answer to a request; none: empty."""
    before = len(talk.outputs)
    talk.send(request)
    told = [
        json.loads(each.value or b"") for each in talk.outputs[before:] if each.topic == RESPONSES
    ]
    return next((each for each in told if "id" in each), {})


def error(talk: p.Talk, request: Any) -> str:
    return str(asked(talk, request).get("error", ""))


def producer(told: dict[str, Any]) -> tuple[int, int]:
    return told["producer_id"], told["epoch"]


def test_every_row_of_the_page_has_its_test() -> None:
    """A difference that nothing holds is a bug that is called a decision."""
    named = {line.rsplit("`", 2)[1] for line in PAGE.read_text().splitlines() if "| `test_" in line}

    assert named
    assert named <= set(globals())


def test_a_zombie_does_not_end_its_successors_transaction() -> None:
    """The process that had epoch 0 wakes up and asks for its producer again, while its successor
    has a transaction open. Kafka looks at the producer id alone, and aborts that transaction."""
    talk = p.ongoing()

    assert error(talk, p.init(0, 0, client="z", id="zombie")) == "PRODUCER_FENCED"
    assert talk.producer().state is State.ONGOING
    assert asked(talk, p.end(0, 1))["error"] == "NONE"


@pytest.mark.parametrize("make", [p.ongoing, p.prepare_commit, p.complete_commit, p.complete_abort])
def test_a_late_copy_does_not_fence_its_own_process(make: Callable[[], p.Talk]) -> None:
    """It was asked twice, since the first answer was late, and the log took the second one later
    still. Nothing changes: the process goes on with the producer that it has."""
    talk = make()
    before = talk.producer()
    assert error(talk, p.init(client=before.client, id=before.init_id)) == "PRODUCER_FENCED"
    assert talk.producer() == before
    talk.send(p.init(client=before.client, id="a new process"))
    assert talk.producer() != before


def test_a_fence_takes_one_epoch() -> None:
    """Kafka adds one for the abort and one for the new producer; the second one overflowed."""
    talk = p.fenced()

    assert talk.producer().epoch == 1
    assert producer(asked(talk, p.init())) == (0, 2)


def test_a_producer_goes_on_after_its_timeout() -> None:
    """A long pause of the garbage collector: nobody took over, so nobody must be kept out."""
    talk = p.timed_out()

    for request in (p.add(0, 0), p.end(0, 0), p.offsets(0, 0)):
        assert error(talk, request) == "TRANSACTION_ABORTABLE"
    told = asked(talk, p.end(0, 0, "abort"))
    assert (told["error"], producer(told)) == ("NONE", (0, 1))
    assert error(talk, p.add(0, 1)) == "NONE"


def test_a_fenced_producer_learns_no_epoch() -> None:
    """The epoch of now would make it the producer that has fenced it."""
    talk = p.fenced()

    for request in (p.end(0, 0, "abort"), p.end(0, 0), p.add(0, 0), p.init(0, 0, client="z")):
        told = asked(talk, request)
        assert told["error"] == "PRODUCER_FENCED"
        assert "epoch" not in told


def test_the_epoch_before_survives_a_rebuild() -> None:
    """The answer to an InitProducerId with an epoch is lost, and so is the job's checkpoint."""
    talk = p.Talk()
    assert producer(asked(talk, p.init())) == (0, 0)
    assert producer(asked(talk, p.init(0, 0, id="again"))) == (0, 1)
    position = talk.shard.status().position
    talk.end_batch_raw()
    talk.load(core.restored(talk.outputs, position))

    assert producer(asked(talk, p.init(0, 0, id="once more"))) == (0, 1)
    assert error(talk, p.init(0, 7, id="another")) == "PRODUCER_FENCED"


def test_producer_ids_are_coordinates() -> None:
    """Nothing is allotted, so nothing is allotted twice when a job starts anew.  # INV-98"""
    talk = p.Talk()
    told = [asked(talk, p.init(group=name)) for name in ("one", "two", None)]

    assert [each["producer_id"] for each in told] == [0, 1, 2]
    assert (TRANSACTION, "a") not in talk.shard.rows, "an idempotent producer is not kept"


def test_offsets_behind_the_end_are_refused() -> None:
    """A TxnOffsetCommit was on its way when its transaction ended: the group never sees it."""
    talk = p.ongoing()
    talk.send(p.end(0, 1, "abort"))
    waiting = talk.outbox()

    assert error(talk, p.offsets(0, 1)) == "PRODUCER_FENCED"
    assert talk.outbox() == waiting


def test_a_commit_names_how_many_offsets_were_accepted() -> None:
    """One of two commits was lost, or refused by its group: the other one must not count alone."""
    talk = p.ongoing()
    talk.send_all(p.offsets(0, 1, 0), p.offsets(0, 1, 1))

    assert error(talk, p.end(0, 1, accepted=1)) == "TRANSACTION_ABORTABLE"
    assert talk.producer().state is State.ONGOING
    assert error(talk, p.end(0, 1, accepted=2)) == "NONE"


def test_who_waits_is_told_of_the_end() -> None:
    """Two processes start at once, in other partitions of the answers, while a third one's
    transaction is being ended."""
    how = core.ShardSettings(
        shard=0, shards=1, reply_partitions=3, incarnation="t", checks_invariants=True
    )
    talk = p.Talk(how)
    talk.send_all(p.init(reply=0), p.add(0, 0, reply=0), p.add_group(0, 0, reply=0))
    talk.send(p.end(0, 0, reply=0))
    for reply in (2, 1, 2):
        assert error(talk, p.init(id=f"new-{reply}", reply=reply)) == "CONCURRENT_TRANSACTIONS"
    talk.send(p.written(0, 0, reply=0))
    before = len(talk.outputs)
    talk.settle()

    told = [
        (each.partition, json.loads(each.value or b""))
        for each in talk.outputs[before:]
        if each.topic == RESPONSES
    ]
    assert [
        (partition, each["type"], each["transactional_id"], each["epoch"], each["result"])
        for partition, each in told
        if each["type"] == "TransactionCompleted"
    ] == [(n, "TransactionCompleted", p.ID, 0, "commit") for n in (0, 1, 2)]


def test_an_id_that_has_something_to_tell_does_not_expire() -> None:
    """The cluster of its partition has been away for a fortnight: the decision still stands."""
    talk = p.prepare_commit()
    talk.settle()
    talk.wait(15 * 24 * 3_600_000, step_ms=600_000)

    assert talk.producer().state is State.PREPARE_COMMIT
    talk.send(p.written(0, 0))
    talk.wait(15 * 24 * 3_600_000, step_ms=600_000)
    with pytest.raises(KeyError):
        talk.producer()
    types = [json.loads(each.value or b"")["type"] for each in talk.outputs if each.topic == EVENTS]
    assert types.count("TransactionalIdExpired") == 1


def test_markers_are_the_producers_to_write() -> None:
    """Its process dies behind its EndTxn. The job, which may not even reach that cluster, writes
    nothing there; the transaction waits until somebody says that the marker is in the log."""
    talk = p.prepare_commit()
    talk.settle()
    ours = {each.topic for each in talk.outputs}

    assert talk.producer().state is State.PREPARE_COMMIT
    assert talk.producer().unwritten == {"c": {"t": (0,)}}
    assert "t" not in ours
    assert error(talk, p.written(0, 0, client="the next process")) == "NONE"
    assert talk.producer().state is State.COMPLETE_COMMIT


def test_a_timeout_is_at_least_six_seconds() -> None:
    """A program with Kafka's smallest timeouts would make its shard tick all the time."""
    talk = p.Talk()

    assert error(talk, p.init(timeout_ms=5_999)) == "INVALID_TRANSACTION_TIMEOUT"
    assert error(talk, p.init(timeout_ms=6_000)) == "NONE"


@pytest.mark.parametrize(("shards", "told"), [(256, "NONE"), (257, "INVALID_REQUEST")])
def test_a_prefix_of_more_than_256_shards_has_no_ids(shards: int, told: str) -> None:
    """Each pair of shards would have a channel, of which every blob and every start keeps a row."""
    talk = p.Talk(structs.replace(SETTINGS, shards=shards))
    name = next(each for each in map(str, count()) if shard_of(each, shards) == 0)

    answer = asked(talk, p.init(group=name))

    assert answer["error"] == told
    assert told == "NONE" or "at most 256 shards" in answer["message"]
