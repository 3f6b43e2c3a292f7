"""Offsets between Kafka's objects and the wire."""

from confluent_kafka import OFFSET_INVALID
from confluent_kafka import TopicPartition as KafkaTopicPartition

from coordlib.client.kit import offsets as of
from coordlib.client.kit.events import TopicPartition
from coordlib.core.wire import api


def test_partitions_without_a_position_are_not_committed() -> None:
    """`commit(offsets=consumer.position(consumer.assignment()))` before anything was polled from
    one of them: an invalid offset, stored, would send its next owner to auto.offset.reset."""
    given = [KafkaTopicPartition("t", 0, 7), KafkaTopicPartition("t", 1, OFFSET_INVALID)]

    assert [(row.partition, row.offset) for row in of.rows_of_kafka(given)] == [(0, 7)]


def test_a_partition_that_is_named_twice_is_committed_once() -> None:
    """A program that keeps one row per message: the coordinator takes each partition once only,
    and the last row counts, as in Kafka."""
    given = [KafkaTopicPartition("t", p, offset) for p, offset in ((0, 7), (1, 3), (0, 9))]

    assert [(row.partition, row.offset) for row in of.rows_of_kafka(given)] == [(0, 9), (1, 3)]
    assert of.once(of.rows_of_kafka(given)) == of.rows_of_kafka(given)


def test_metadata_and_epoch_are_committed_and_read_as_by_confluent_kafka() -> None:
    """A program keeps its own place within a batch in the metadata of its commit. It was stored,
    and `committed` left it out: after a restart the program began the batch anew."""
    (row,) = of.rows_of_kafka([KafkaTopicPartition("t", 0, 7, "line 12", leader_epoch=3)])

    assert (row.metadata, row.leader_epoch) == ("line 12", 3)

    found = {
        TopicPartition("t", 0): api.FetchedOffset("t", 0, 7, 3, "line 12"),
        TopicPartition("t", 1): api.FetchedOffset("t", 1, 8, -1, ""),
        TopicPartition("t", 2): api.FetchedOffset("t", 2, -1, -1, ""),
        TopicPartition("t", 3): api.FetchedOffset("t", 3, 9, -1, "a\0b"),
    }
    read = of.committed_of((*found, TopicPartition("t", 4)), found)

    assert [(each.offset, each.metadata, each.leader_epoch) for each in read] == [
        (7, "line 12", 3),
        (8, None, None),
        (OFFSET_INVALID, None, None),
        (9, "a\N{REPLACEMENT CHARACTER}b", None),
        (OFFSET_INVALID, None, None),
    ]
