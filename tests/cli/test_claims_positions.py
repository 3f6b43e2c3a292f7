"""`coord claims`: which offsets `--to-datetime` and `--shift-by` mean, and how slots are named as
their last sign grows old."""

from collections.abc import Mapping
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from coordlib.cli.claims.admin import Target, _Aim, _since
from coordlib.cli.claims.view import state_of
from coordlib.client.kit import events
from coordlib.errors import CannotReach, SetupError
from coordlib.kafka import clients
from tests.core.claims.test_vectors import KEY, Topic, heartbeat

PLACES = [events.TopicPartition("orders", number) for number in range(3)]
BOUNDS = dict.fromkeys(PLACES, (0, 9_000))
HI_S = 60  # of `__marshal`
WHERE = cast("Any", SimpleNamespace(client=dict))


class Broker:
    """Answers for times: an offset, -1 where no record is so new, nothing for partitions that it
    does not know."""

    def __init__(self, offsets: Mapping[int, int]) -> None:
        self.offsets = offsets

    def list_offsets(
        self, places: Mapping[TopicPartition, Any], **_: object
    ) -> dict[TopicPartition, "Future[Any]"]:
        return {place: self._answer(place.partition) for place in places}

    def _answer(self, partition: int) -> "Future[Any]":
        answer: Future[Any] = Future()
        if partition in self.offsets:
            answer.set_result(SimpleNamespace(offset=self.offsets[partition]))
        else:
            answer.set_exception(KafkaException(KafkaError(KafkaError._TIMED_OUT)))
        return answer


def test_the_end_is_for_partitions_without_such_a_record(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "open_admin", lambda _: Broker({0: 500, 1: 0, 2: -1}))

    assert list(_since(WHERE, 1_000, BOUNDS).values()) == [500, 0, 9_000]


def test_a_partition_that_does_not_answer_is_not_set_to_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """To find a time in an old part of a log takes a broker long, longer than to say where the log
    ends: the group would have gone on at the end, and nobody had read what lies before."""
    monkeypatch.setattr(clients, "open_admin", lambda _: Broker({0: 500, 2: -1}))

    with pytest.raises(CannotReach, match="orders:1"):
        _since(WHERE, 1_000, BOUNDS)


def test_a_position_that_is_not_known_is_not_shifted(capsys: pytest.CaptureFixture[str]) -> None:
    """The log was cut, so that nobody knows where one partition stood: its consumers were to read
    100 records again, and would have read it from its beginning."""
    aim = _Aim.of(Target(shift_by="-100"))

    assert aim.over(WHERE, {PLACES[0]: 8_000, PLACES[1]: None}, BOUNDS) == {PLACES[0]: 7_900}
    assert "no position of them: orders:1." in capsys.readouterr().err
    with pytest.raises(SetupError):
        aim.over(WHERE, {PLACES[1]: None}, BOUNDS)


# -- states of slots --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("age_s", "state"),
    [
        (HI_S - 1, "live"),
        (HI_S, "aging"),
        (2 * HI_S - 1, "aging"),
        (2 * HI_S, "stale"),
        (2 * HI_S + 1, "stale"),
    ],
)
def test_a_claim_is_fresh_then_unknown_then_stale(age_s: int, state: str) -> None:
    """Seed 003, with its bounds; nobody may claim it before the last of them."""
    topic = Topic()
    topic.say(heartbeat(1, "cl", 0))

    topic.at(1 + age_s)

    assert topic.world.clock_ms - topic.slot().heard_ms == age_s * 1_000
    assert state_of(topic.world, "gr", topic.world.slots[KEY]) == state
    assert (topic.owner() is None) == (state == "stale")
