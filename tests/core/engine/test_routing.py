"""Where each effect is written."""

import msgspec
import pytest

from coordlib import limits
from coordlib.core.engine import effects as fx
from coordlib.core.engine.effects import EffectTooLarge, Output, route
from coordlib.core.wire import api, stored

EVENT = stored.Event(
    event_id="t-r3-1-0",
    time_ms=1,
    type="GroupCreated",
    group="g",
    protocol="classic",
    generation=0,
    member="",
    cause="r3-1",
    reason="",
    detail={},
)
COMMITTED = stored.CommittedValue(
    offset=5,
    leader_epoch=-1,
    metadata="",
    commit_ms=1,
    commit_clock_ms=1,
    generation=2,
    member="m",
)
ASSIGNMENT = stored.AssignmentValue(
    generation=2, protocol="range", assignment=b"p", fence=7, since_ms=1
)
NOTICE = api.RebalanceInProgress(group="g", cause="r3-1", generation=1)
ANSWER = api.LeaveGroupResponse(id="1", client="c", group="g", cause="r3-1", members=())


@pytest.mark.parametrize(
    ("effect", "topic", "partition", "key"),
    [
        (fx.Respond(1, ANSWER), "responses", 1, b"g"),
        (fx.Notify(2, NOTICE), "responses", 2, b"g"),
        (fx.Notify(2, api.Progress(shard=3, offset=1, time_ms=1)), "responses", 2, b""),
        (fx.Event(EVENT), "events", 3, b"g"),
        (fx.Publish("assignments", b'["g","m"]', ASSIGNMENT), "assignments", 3, b'["g","m"]'),
        (
            fx.Put("committed", b'["g","t",0]', "g", "committed", ("t", 0), COMMITTED),
            "committed",
            3,
            b'["g","t",0]',
        ),
        (fx.Save("groups", b"g", b"{}"), "groups", 3, b"g"),
    ],
)
def test_everything_of_a_group_stays_in_its_shard_and_answers_go_to_their_reader(
    effect: fx.Effect, topic: str, partition: int, key: bytes
) -> None:
    """Keys decide what compaction keeps; partitions who reads."""
    output = route(effect, 3)

    assert (output.topic, output.partition, output.key) == (topic, partition, key)
    assert output.value


@pytest.mark.parametrize(
    ("effect", "expected"),
    [
        (
            fx.Publish("assignments", b'["g","m\\""]', None),
            Output("assignments", 3, b'["g","m\\""]', None),
        ),
        (
            fx.Put("committed", b'["g","t",0]', "g", "committed", ("t", 0), None),
            Output("committed", 3, b'["g","t",0]', None),
        ),
        (fx.Save("groups", b"g", None), Output("groups", 3, b"g", None)),
    ],
)
def test_what_is_gone_is_a_tombstone(effect: fx.Effect, expected: Output) -> None:
    """Compaction forgets it some day."""
    assert route(effect, 3) == expected


def test_an_effect_that_no_record_holds_is_a_defect() -> None:
    """INV-43. The group that made it is quarantined; the transaction of all others goes through."""
    too_large = msgspec.structs.replace(EVENT, reason="x" * limits.OUTPUT_BYTES_MAX)

    with pytest.raises(EffectTooLarge):
        route(fx.Event(too_large), 3)


def test_a_history_line_without_its_id_has_no_route() -> None:
    """The shard completes it; anything else would write lines that nobody can tell apart."""
    with pytest.raises(AssertionError, match="History"):
        route(fx.History(type="GroupCreated", group="g", kind=None, cause="r3-1"), 3)
