"""What belongs to a unit of work, and where a consumer goes back to when it was aborted."""

from coordlib.client.kit.events import TopicPartition
from coordlib.client.kit.offsets import Unit
from coordlib.core.wire import api

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def test_it_goes_from_the_first_message_to_behind_the_last() -> None:
    unit = Unit()
    for position in (5, 6, 9):
        unit.read(T1, position, 2)
    unit.read(T0, 1, -1)

    assert unit.offsets == (api.CommittedOffset("t", 0, 1), api.CommittedOffset("t", 1, 9, 2))
    assert unit.beginnings == {T0: 0, T1: 4}


def test_a_partition_that_has_gone_stays_in_the_offsets() -> None:
    """The output has its records: without its offset its next owner would write them again."""
    unit = Unit()
    unit.read(T0, 1, -1)
    unit.moved([T0])

    assert unit.offsets == (api.CommittedOffset("t", 0, 1),)


def test_a_consumer_is_not_set_back_where_others_may_have_gone_on() -> None:
    """It was let go of and given again: it is read from what is committed now."""
    unit = Unit()
    unit.read(T0, 1, -1)
    unit.read(T1, 1, -1)
    unit.moved([T0])

    assert unit.beginnings == {T1: 0}


def test_what_was_read_after_a_partition_came_back_is_read_again_too() -> None:
    """The group refuses the unit, for the rebalance in it; nobody else has read on from there."""
    unit = Unit()
    unit.read(T0, 1, -1)
    unit.moved([T0])
    for position in (8, 9):
        unit.read(T0, position, -1)

    assert unit.beginnings == {T0: 7}
    assert unit.spans == {T0: (7, 9)}
