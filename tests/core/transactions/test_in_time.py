"""What becomes of transactions by the clock: timeouts, expiry, and a job that was away."""

import json

import pytest

from coordlib.config import TransactionsConfig
from coordlib.core.engine.effects import EVENTS
from coordlib.core.transactions.protocol import TransactionsSettings
from coordlib.core.transactions.transaction import State
from coordlib.core.wire import api
from coordlib.core.wire.transactions import TRANSACTION
from coordlib.errors import ErrorCode
from tests.core.transactions.test_differences import asked, error
from tests.tools import core
from tests.tools import producers as p
from tests.tools.driving import SETTINGS

DAY_MS = 24 * 3_600_000


def settings(**changes: int) -> core.ShardSettings:
    config = TransactionsConfig(**changes)
    families = {**SETTINGS.families, TRANSACTION: TransactionsSettings(config)}
    return core.ShardSettings(
        shard=0,
        shards=1,
        reply_partitions=1,
        incarnation="t",
        families=families,
        checks_invariants=True,
    )


def types(talk: p.Talk) -> list[str]:
    return [json.loads(each.value or b"")["type"] for each in talk.outputs if each.topic == EVENTS]


def test_an_open_transaction_is_aborted_by_its_timeout_and_not_before() -> None:
    """Its process was killed: others wait for its offsets."""
    talk = p.Talk()
    talk.send_all(p.init(timeout_ms=6_000), p.add_group(0, 0))
    talk.wait(5_000)
    assert talk.producer().state is State.ONGOING
    talk.wait(1_000)

    assert talk.producer().state is State.PREPARE_ABORT
    ended = talk.producer().ended
    assert ended is not None
    assert (ended.epoch, ended.result, ended.reason) == (0, "abort", "timeout")


def test_an_idle_producer_has_no_deadline() -> None:
    """Nothing is open: no tick is owed, and CAP is that of a shard that waits for nobody."""
    for make in (p.empty, p.complete_commit, p.prepare_commit):
        assert not make().shard.status().has_deadline
    open_one = p.ongoing().shard.status()
    assert (open_one.has_deadline, open_one.cap_ms) == (True, p.TIMEOUT_MS // 5)


def test_a_job_that_was_away_aborts_nobody_whose_end_stands_in_the_log() -> None:
    """The log's clock takes one CAP for the hour in which nobody judged."""
    talk = p.Talk()
    talk.send_all(p.init(timeout_ms=6_000), p.add(0, 0))
    told = talk.send(p.end(0, 0), after_ms=3_600_000)

    assert "EndTxn" in told[-1]
    assert talk.producer().state is State.PREPARE_COMMIT


def test_an_id_that_nobody_uses_is_forgotten_at_a_check() -> None:
    """A deployment with random transactional ids: each start leaves one behind."""
    talk = p.complete_commit()
    talk.wait(7 * DAY_MS - 600_000, step_ms=600_000)
    assert talk.producer().state is State.COMPLETE_COMMIT
    talk.wait(3 * 600_000, step_ms=600_000)

    with pytest.raises(KeyError):
        talk.producer()
    talk.end_batch_raw()
    heads = [each for each in talk.outputs if each.topic == "transactions"]
    assert heads[-1].value is None
    assert error(talk, p.add(0, 1)) == "INVALID_PRODUCER_ID_MAPPING"


def test_another_retention_is_found_by_a_job_that_starts_with_it() -> None:
    """An operator shortens it because there are too many ids."""
    talk = p.empty()
    talk.end_batch_raw()
    talk.settings = settings(retention_ms=DAY_MS)
    talk.load(talk.shard.encode())
    talk.wait(DAY_MS + 1_200_000, step_ms=600_000)

    with pytest.raises(KeyError):
        talk.producer()


@pytest.mark.parametrize("timeout_ms", [0, 5_999, 900_001, 2**31 - 1])
def test_a_timeout_has_bounds(timeout_ms: int) -> None:
    """Below, ticks would have to come too often; above, one crash blocks others too long."""
    talk = p.Talk()

    assert error(talk, p.init(timeout_ms=timeout_ms)) == "INVALID_TRANSACTION_TIMEOUT"
    with pytest.raises(KeyError):
        talk.producer()


def test_an_id_in_quarantine_is_not_aborted_and_catches_up_when_it_is_released() -> None:
    """A defect set it aside; its group was told meanwhile."""
    talk = p.prepare_commit()
    talk.send(p.written(0, 0))
    talk.feed()
    row = talk.shard.row(p.ID, TRANSACTION)
    talk.shard._quarantine(talk.shard._here(), (TRANSACTION, p.ID), ZeroDivisionError("defect"))
    assert error(talk, p.describe()) == ErrorCode.COORDINATOR_NOT_AVAILABLE.name
    talk.hear()
    assert row.value.state is State.PREPARE_COMMIT

    free = api.ReleaseQuarantine(v=1, id="q", client="ops", group=p.ID, space=TRANSACTION)
    assert asked(talk, free)["error"] == "NONE"
    assert talk.producer().state is State.COMPLETE_COMMIT


def test_an_open_transaction_in_quarantine_has_its_full_time_again() -> None:
    """Released after an hour, its process may be there still."""
    talk = p.ongoing()
    talk.shard._quarantine(talk.shard._here(), (TRANSACTION, p.ID), ZeroDivisionError("defect"))
    talk.wait(2 * p.TIMEOUT_MS)
    free = api.ReleaseQuarantine(v=1, id="q", client="ops", group=p.ID, space=TRANSACTION)
    talk.send(free)
    talk.wait(p.TIMEOUT_MS - 2_000)

    assert talk.producer().state is State.ONGOING
    talk.wait(4_000)
    assert talk.producer().state is State.PREPARE_ABORT
