"""Offsets between Kafka's objects and the wire."""

from confluent_kafka import OFFSET_INVALID
from confluent_kafka import TopicPartition as KafkaTopicPartition

from coordlib.client.shell import offsets as of


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
