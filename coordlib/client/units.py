"""Units of work: what a consumer has read and what a producer writes count together, or not at all.

    with exactly_once(consumer, producer):
        for message in consumer.consume(500, 1.0):
            producer.produce("out", work(message))

On an exception the unit is aborted and the consumer set back to where the unit began. Kafka does
not do that: there a program that goes on after an abort skips what it has aborted. If the exception
came out of the commit itself, the unit may count: the consumer then waits for the group's word.
"""

import time
import weakref
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any

from confluent_kafka import TopicPartition as KafkaTopicPartition

from coordlib.client.groups.consumer import CoordinatedConsumer
from coordlib.client.kit import offsets as of
from coordlib.client.kit.offsets import GroupMetadata, Outcome, Unit
from coordlib.client.transactions.by_kafka import OffsetsQuestion
from coordlib.client.transactions.machine import Severity, State, TransactionError
from coordlib.client.transactions.producer import TIMEOUT_S, CoordinatedProducer
from coordlib.errors import CoordError


def exactly_once(
    consumer: CoordinatedConsumer, producer: CoordinatedProducer, timeout: float = TIMEOUT_S
) -> AbstractContextManager[Unit]:
    """One unit of work, from the first message read in it to its commit.

    What it raises tells what to do with the producer. After an error with `txn_requires_abort()`
    the unit was aborted, so go on with another unit. That is so after a rebalance, too, and when
    the group did not answer in time. After `retriable()` the end of the unit was called and ran out
    of time: call `producer.commit_transaction` again, or `producer.abort_transaction` where
    `producer.state` is ABORTING; or close the producer. After `fatal()` close it. A new producer
    may then go on with the same consumer.

    Whatever it raises, the consumer loses nothing and doubles nothing. Before the commit was called
    the unit does not count, and the consumer is set back to where it began. Once it was called, and
    no abort has succeeded since, nobody can say whether the unit counts. The consumer then reads
    nothing of its partitions until Kafka has ended the transaction, at the latest after
    `transaction.timeout.ms`. If the group's offsets are the unit's then, it goes on behind them;
    else it is set back.

    Args:
        consumer: read from it inside the unit; what was read before does not belong to it.
        producer: after `init_transactions`.
        timeout: seconds for the group's answer, and for the commit.

    Raises:
        TransactionError: as above.
        SetupError: the consumer's `enable.auto.commit` is not false.
        CoordError: the consumer has a unit already.
    """
    consumer.refuse_auto_commit()
    unit = Unit()
    made = _steps(unit, consumer, producer, timeout)
    steps: weakref.ref[Any] = weakref.ref(made.gen)
    # An interruption may come before the consumer has taken the outcome.  # INV-155
    unit.is_over = lambda: (found := steps()) is None or found.gi_frame is None
    return made


@contextmanager
def _steps(
    unit: Unit, consumer: CoordinatedConsumer, producer: CoordinatedProducer, timeout: float
) -> Iterator[Unit]:
    # Taken first: the unit's offsets are held against what the member had then.
    metadata = consumer.consumer_group_metadata(timeout)
    is_committed = False
    in_transaction = (State.IN_TRANSACTION, State.ABORTABLE_ERROR)
    is_ours = producer.state not in in_transaction
    try:
        consumer.begin_unit(unit)
        producer.begin_transaction(timeout)
        yield unit
        rows = consumer.rows_in_transaction(unit.offsets)
        producer.send_rows(rows, metadata, timeout)
        _commit(producer, timeout)
        is_committed = True
    except BaseException as error:
        if is_ours and producer.state in in_transaction:
            # A Ctrl-C is raised, and not what comes of the abort: the producer's state tells that.
            with suppress(*(() if isinstance(error, Exception) else (CoordError,))):
                producer.abort_transaction(timeout)
            if isinstance(error, TransactionError) and error.retriable():
                # What could be called again is aborted.
                hint = "Begin another unit."
                severity = Severity.ABORTABLE
                raise TransactionError(severity, error.what, error.where, hint) from error
        raise
    finally:
        if is_committed:
            consumer.end_unit(unit, Outcome.COMMITTED)
        else:
            # Also if the abort has failed: what was never to be committed can only be aborted.
            may_count = producer.may_be_committed
            consumer.end_unit(unit, Outcome.UNKNOWN if may_count else Outcome.ABORTED)


def _commit(producer: CoordinatedProducer, timeout: float) -> None:
    """Commit, and go on with it while there is time: half-way there is no way back."""
    until = time.monotonic() + timeout
    while True:
        try:
            producer.commit_transaction(max(0.1, until - time.monotonic()))
            return
        except TransactionError as error:
            if not error.retriable() or time.monotonic() >= until:
                raise


def send_offsets_to_transaction(
    producer: Any,
    consumer: CoordinatedConsumer,
    positions: Sequence[KafkaTopicPartition] | None = None,
    group_metadata: GroupMetadata | None = None,
    timeout: float = TIMEOUT_S,
) -> None:
    """The same for a plain transactional Producer of confluent-kafka, between begin and commit.

    Without the cure of `CoordinatedProducer` for a late end of the transaction before.

    Args:
        producer: in a transaction, at the cluster of the coordinator.
        consumer: whose positions these are, and which hears the answer.
        positions: next offsets to read; None: after all that `poll` has returned.
        group_metadata: taken when the transaction began; None: of this moment, which is right only
            if no rebalance came between.
        timeout: seconds.

    Raises:
        TransactionError: the group has refused, so abort; or it has not answered in time: another
            call asks anew, and of two commits in one transaction the later one holds.
        SetupError: the consumer's `enable.auto.commit` is not false.
    """
    consumer.refuse_auto_commit()
    metadata = group_metadata or consumer.consumer_group_metadata()
    if positions is None:
        positions = [each for each in consumer.position(consumer.assignment()) if each.offset >= 0]
    rows = consumer.rows_in_transaction(of.rows_of_kafka(positions))
    if rows:
        question = OffsetsQuestion(metadata, rows)
        try:
            question.wait(producer, timeout)
        finally:
            question.close()
