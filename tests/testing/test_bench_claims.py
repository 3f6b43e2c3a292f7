"""The claims benchmarks: honest messages, their writer's orders, and what counts as sustained."""

import io
import json
from collections import Counter
from typing import Any
from unittest.mock import MagicMock, PropertyMock

import pytest

from coordlib import exit_codes
from coordlib.core.claims.slots import Verdict
from coordlib.core.claims.world import World
from coordlib.core.engine.state import InputRecord
from coordlib.core.wire import claims as marshal
from coordlib.demo.history import Happened
from coordlib.errors import NotReady
from tests.tools.bench import claims_job, claims_writer
from tests.tools.bench.claims_joins import compared
from tests.tools.bench.claims_log import GROUPS, Owners, claims_of, topics_of_all
from tests.tools.bench.claims_simulated import claimed_after, plan_of, waited_ms
from tests.tools.bench.claims_work import is_sustained
from tests.tools.commands import main

NOW_S = 1_700_000_000
SHARDS = 4


def won(count: int) -> Owners:
    """Owners of so many claims, each won at its own number."""
    owners = Owners(claims_of(count, SHARDS))
    for number in range(count):
        owners.won(number, number)
    return owners


def test_a_sign_is_what_marshals_encoder_writes() -> None:
    """It is put together from bytes, since a generator at 40,000 a second has no time to encode."""
    owners = won(300)
    held = owners.claims[257]
    expected = marshal.Heartbeat(
        2, NOW_S, f"{held.process}-257", held.client, held.group, held.topic, held.partition, 12
    )
    assert owners.sign(257, NOW_S, 12) == marshal.encode(expected)


def test_the_fold_accepts_what_the_owners_write() -> None:
    """A load whose signs were refused would look light: each is of its claim's own epoch, and an
    attempt meets a live claim."""
    claims, verdicts = 300, Counter[Verdict]()
    owners = Owners(claims_of(claims, SHARDS))
    worlds = [World("__marshal", shard, SHARDS) for shard in range(SHARDS)]

    def judge(shard: int, value: bytes) -> int:
        offset = worlds[shard].offset + 1
        record = InputRecord("m", offset, NOW_S * 1_000 + offset, value)
        verdicts[worlds[shard].judge(record).verdict] += 1
        return offset

    for number, held in enumerate(owners.claims):
        owners.won(number, judge(held.shard, owners.attempt(number, NOW_S)))
    assert verdicts == {Verdict.WON: claims}
    for number in range(10 * claims):
        judge(*owners.message(number, NOW_S))

    assert verdicts == {Verdict.WON: claims, Verdict.SIGN: 9 * claims, Verdict.IGNORED: claims}


def test_every_claim_has_signs_in_every_turn_but_one_of_ten() -> None:
    """Attempts at every tenth number met the same claims for ever, and these expired."""
    owners, beats = won(20), Counter[str]()
    for number in range(10 * 20):
        _, value = owners.message(number, NOW_S)
        message = marshal.read(value)
        assert not isinstance(message, marshal.Rejected)
        if isinstance(message, marshal.Heartbeat):
            beats[message.client] += 1
    assert set(beats.values()) == {9}


def test_who_attempts_is_of_the_group_that_has_the_claim() -> None:
    """A claim belongs to a group: an attempt of another one would win a slot of its own."""
    claims = claims_of(1_000, SHARDS)
    for number, held in enumerate(claims):
        assert claims[(number + GROUPS) % len(claims)].group == held.group


def test_claims_are_distinct_and_their_topics_lie_in_all_coordination_partitions() -> None:
    claims = claims_of(10_000, SHARDS)
    assert len({(each.group, each.topic, each.partition) for each in claims}) == 10_000
    assert len({each.client for each in claims}) == 200
    assert {each.shard for each in claims} == set(range(SHARDS))
    wanted = topics_of_all(SHARDS, "free")
    assert [marshal.partition_of(each, SHARDS) for each in wanted] == list(range(SHARDS))


# -- the writer's orders --------------------------------------------------------------------------


class FakeWriter(claims_writer.Writer):
    """Its messages go into a list; their offsets are their places."""

    def __init__(self, claims: int) -> None:
        self._owners = Owners(claims_of(claims, SHARDS))
        self._producer, self._next, self._topic = MagicMock(), 0, "__marshal"
        self._producer.flush.return_value = 0
        self.errors = Counter()
        self.written: list[bytes] = []

    def offset(self) -> int:
        """Of the message that is delivered."""
        return len(self.written)

    def _write(self, shard: int, value: bytes, told: Any) -> None:
        told(None, self)
        self.written.append(value)


def orders(writer: claims_writer.Writer, *given: dict[str, Any]) -> list[dict[str, Any]]:
    lines = io.StringIO("\n".join(map(json.dumps, given)))
    return list(claims_writer.answers(lines, writer))


def test_the_clients_claim_then_write_what_they_are_told() -> None:
    writer = FakeWriter(40)
    found = orders(writer, {"do": "claim"}, {"do": "burst", "messages": 5_001})
    assert [each["sent"] for each in found] == [40, 5_001]
    assert len(writer.written) == 5_041
    assert writer.written[41].split(b"/")[3] == b"00000001-1"  # the epoch of its own attempt


def test_a_rate_is_kept_over_the_time() -> None:
    writer = FakeWriter(40)
    (_, found) = orders(writer, {"do": "claim"}, {"do": "beat", "seconds": 0.3, "rate": 1_000})
    assert 250 <= found["sent"] <= 300
    assert found["to_s"] - found["from_s"] >= 0.3


def test_messages_that_the_broker_did_not_take_end_the_measurement() -> None:
    """Else fewer would be judged than were asked for, in a better time."""
    writer = FakeWriter(4)
    writer._producer.flush.return_value = 3
    (found,) = orders(writer, {"do": "claim"})
    assert "not written" in found["failed"]


def test_clients_that_have_ended_are_not_waited_for() -> None:
    clients = claims_writer.Clients("127.0.0.1:1", "__marshal", 1)
    clients._process.kill()
    with pytest.raises(NotReady, match="ended"):
        clients.ended()
    clients.close()


# -- verdicts and comparisons ---------------------------------------------------------------------


def test_a_rate_is_sustained_only_if_everything_holds() -> None:
    good = {"target_per_s": 1_000, "sent_per_s": 990, "lag_grew": False, "drained_s": 3.0}
    assert is_sustained(good)
    for bad in ({"sent_per_s": 900}, {"lag_grew": True}, {"drained_s": None}, {"drained_s": 9.0}):
        assert not is_sustained(good | bad)


def test_joins_are_compared_with_quiet_ones_of_the_same_run() -> None:
    found = compared([0.1, 0.2, 0.3], {"at_rate": [0.4, 0.4, 0.9], "behind": []})
    assert found["quiet_s"] == {"p50": 0.2, "p99": 0.3}
    assert found["at_rate_of_quiet"] == {"p50": 2.0, "p99": 3.0}
    assert (found["behind_joins"], found["behind_of_quiet"]) == (0, {})


def test_a_wait_ends_with_the_first_who_is_told_of_the_partition() -> None:
    lines = [
        Happened(5, "assigned", partitions=("t-0", "t-1")),
        Happened(30, "assigned", partitions=("t-0",)),
        Happened(40, "assigned", partitions=("t-1", "t-2")),
        Happened(50, "assigned", partitions=("t-0",)),
    ]
    assert claimed_after(lines, {"t-0", "t-1"}, since_ms=10) == [20, 30]
    with pytest.raises(AssertionError, match="claimed"):
        claimed_after(lines, {"t-0", "t-9"}, since_ms=10)


def test_a_killed_owners_partitions_are_claimed_within_the_bound_at_marshals_interval() -> None:
    """2·HI since its newest sign, which is up to 3/4·HI old, then who waits fills the silence."""
    waited = waited_ms(plan_of(1, 60))
    assert waited
    assert all(60_000 < each < 2 * 60_000 + 15_000 for each in waited)


# -- the job's batches ----------------------------------------------------------------------------


def test_each_progress_of_each_query_is_told_once(tmp_path: Any, monkeypatch: Any) -> None:
    """A query that failed keeps its last progress, and the next one begins beside it."""
    told = tmp_path / "told"
    progress = [MagicMock(timestamp=f"t{number}", json=f'{{\n"n": {number}}}') for number in (1, 2)]
    old, new = MagicMock(), MagicMock()
    type(old.query).lastProgress = PropertyMock(return_value=progress[0])
    # Spark's end is the thread's.
    type(new.query).lastProgress = PropertyMock(side_effect=[progress[1], progress[1], OSError])
    monkeypatch.setattr(claims_job, "LOOK_EVERY_S", 0.0)
    claims_job.watch([old, new], told)
    assert [json.loads(line)["n"] for line in told.read_text().splitlines()] == [1, 2]


# -- the command ----------------------------------------------------------------------------------


def test_a_log_has_a_message_for_each_claim_at_least(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["bench", "claims", "catch-up", "--messages", "10", "--claimed", "20"])
    assert code == exit_codes.USAGE
    assert "more claims than messages" in capsys.readouterr().err
