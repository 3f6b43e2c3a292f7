"""Between confluent-kafka's partitions and messages and the group's own rows; and units of work.

A unit of work is what a consumer has read since it began; its outcome is that of all of it.
"""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeVar

import msgspec
from confluent_kafka import OFFSET_INVALID, Message
from confluent_kafka import TopicPartition as KafkaTopicPartition
from msgspec.structs import replace

from coordlib import limits
from coordlib.client.kit.events import Partitions, TopicPartition, by_topic
from coordlib.client.kit.requests import Identity
from coordlib.client.kit.transport import Transport
from coordlib.core.wire import api, codec
from coordlib.errors import ErrorCode, GroupError, SetupError

NamedT = TypeVar("NamedT")
RowT = TypeVar("RowT")
#: Of a request, for its rows; the rest is for its other fields.
ROWS_BYTES_MAX = limits.REQUEST_BYTES_MAX - 8 * limits.KIB
_read_rows = msgspec.json.Decoder(tuple[api.CommittedOffset, ...]).decode

#: partition -> (next offset to read, leader epoch of the record before it)
Positions = Mapping[TopicPartition, tuple[int, int]]


def after(message: Message) -> tuple[TopicPartition, tuple[int, int]]:
    """The position once this message is done."""
    topic, partition, offset = message.topic(), message.partition(), message.offset()
    if topic is None or partition is None or offset is None:
        raise ValueError("An error event has no position.")
    epoch = message.leader_epoch()
    return TopicPartition(topic, partition), (offset + 1, -1 if epoch is None else epoch)


def rows_of_positions(positions: Positions) -> tuple[api.CommittedOffset, ...]:
    return tuple(
        api.CommittedOffset(
            topic=each.topic, partition=each.partition, offset=offset, leader_epoch=epoch
        )
        for each, (offset, epoch) in positions.items()
    )


def under_ids(
    rows: Iterable[api.CommittedOffset], id_of: Callable[[str], str]
) -> tuple[api.CommittedOffset, ...]:
    """The rows with the ids of their topics, where these are known."""
    return tuple(replace(row, topic_id=id_of(row.topic) or row.topic_id) for row in rows)


def rows_of_partitions(partitions: Iterable[TopicPartition]) -> tuple[api.TopicPartitions, ...]:
    """Partitions as requests name them: by topic."""
    return tuple(
        api.TopicPartitions(topic=topic, partitions=numbers)
        for topic, numbers in by_topic(partitions).items()
    )


def rows_of_kafka(offsets: Sequence[KafkaTopicPartition]) -> tuple[api.CommittedOffset, ...]:
    """Each partition with its offset; without those that have only a logical one.

    `position` gives OFFSET_INVALID before the first message: committed, it would make the next
    owner start anywhere.
    """
    return once(
        api.CommittedOffset(
            topic=each.topic,
            partition=each.partition,
            offset=each.offset,
            leader_epoch=-1 if each.leader_epoch is None else each.leader_epoch,
            metadata=each.metadata or "",
        )
        for each in offsets
        if each.offset >= 0
    )


def rows_fault(rows: tuple[api.CommittedOffset, ...], where: str) -> GroupError | None:
    """What is wrong with some of these rows; None: the coordinator can read them.

    Looked at before they are sent: a Release that carried them would be refused with them.
    """
    for row in rows:
        # In bytes of UTF-8 it is no shorter than this; what is shorter, the coordinator judges.
        if len(row.topic) + len(row.metadata) > ROWS_BYTES_MAX:
            what = f"{row.topic[:300]}-{row.partition}: the metadata are longer than a request."
            return GroupError(ErrorCode.OFFSET_METADATA_TOO_LARGE, where, what)
    try:
        _read_rows(codec.encode(rows))
    except (msgspec.MsgspecError, UnicodeError, OverflowError) as problem:
        return GroupError(ErrorCode.INVALID_REQUEST, where, str(problem))
    return None


def _fitting(
    named: tuple[NamedT, ...], as_rows: Callable[[tuple[NamedT, ...]], tuple[RowT, ...]], most: int
) -> Iterator[tuple[RowT, ...]]:
    """The rows of what is named, in as many parts as there must be requests, in order.

    Args:
        named: partitions, or rows.
        as_rows: some of them as a request carries them.
        most: how many of them one request may name.
    """
    rows = as_rows(named)
    is_one = len(named) <= most and len(codec.encode(rows)) <= ROWS_BYTES_MAX
    if is_one or len(named) == 1:  # a single one is refused by whoever writes it
        yield rows
        return
    half = len(named) // 2
    for part in (named[:half], named[half:]):
        yield from _fitting(part, as_rows, most)


def parts_of_commit(rows: tuple[api.CommittedOffset, ...]) -> list[tuple[api.CommittedOffset, ...]]:
    """The rows of a commit, by the requests that carry them: each row is judged by itself."""
    return list(_fitting(rows, tuple, limits.OFFSETS_PER_REQUEST_MAX))


def parts_of_fetch(
    partitions: Iterable[TopicPartition],
) -> list[tuple[api.TopicPartitions, ...]]:
    """What is fetched, by the requests that ask for it."""
    wanted = tuple(dict.fromkeys(partitions))
    try:
        return list(_fitting(wanted, rows_of_partitions, limits.FETCH_PARTITIONS_MAX))
    except (UnicodeError, OverflowError):
        return [rows_of_partitions(wanted)]  # refused by whoever writes it


def once(rows: Iterable[api.CommittedOffset]) -> tuple[api.CommittedOffset, ...]:
    """Each partition once, as a request must name them: the last row for it, as in Kafka."""
    return tuple({(row.topic, row.partition): row for row in rows}.values())


def kafka_of_rows(rows: Iterable[api.CommittedOffset]) -> list[KafkaTopicPartition]:
    return [KafkaTopicPartition(row.topic, row.partition, row.offset) for row in rows]


def kafka_of(partitions: Partitions) -> list[KafkaTopicPartition]:
    return [KafkaTopicPartition(each.topic, each.partition) for each in partitions]


def ours(partitions: Iterable[KafkaTopicPartition]) -> Partitions:
    return tuple(TopicPartition(each.topic, each.partition) for each in partitions)


def with_offsets(
    partitions: Partitions, found: Mapping[TopicPartition, int], otherwise: int = OFFSET_INVALID
) -> list[KafkaTopicPartition]:
    """Each partition with its offset, or another where there is none (-1)."""
    offsets = [(each, found.get(each, -1)) for each in partitions]
    return [KafkaTopicPartition(*each, at if at >= 0 else otherwise) for each, at in offsets]


def committed_of(
    partitions: Partitions, found: Mapping[TopicPartition, api.FetchedOffset]
) -> list[KafkaTopicPartition]:
    """Each partition as it was committed, with metadata and epoch; OFFSET_INVALID: it was not."""
    return [_committed(each, found.get(each)) for each in partitions]


def _committed(partition: TopicPartition, row: api.FetchedOffset | None) -> KafkaTopicPartition:
    if row is None or row.offset < 0:
        return KafkaTopicPartition(*partition, OFFSET_INVALID)
    # Other clients may commit NUL characters, which confluent-kafka's objects cannot hold.
    metadata = row.metadata.replace("\0", "\N{REPLACEMENT CHARACTER}")
    topic, number, epoch = *partition, row.leader_epoch
    if not metadata:
        return KafkaTopicPartition(topic, number, row.offset, leader_epoch=epoch)
    return KafkaTopicPartition(topic, number, row.offset, metadata, epoch)


def refusal_of_partitions(failed: Sequence[api.FailedPartition], group: str) -> GroupError | None:
    """The error of a commit of which some partitions were refused; None when none was."""
    if not failed:
        return None
    names = ", ".join(f"{row.topic}-{row.partition}: {row.error}" for row in failed)
    known = ErrorCode.__members__.get(failed[0].error, ErrorCode.UNKNOWN_SERVER_ERROR)
    return GroupError(known, f"group {group}", f"The other partitions are committed; not {names}.")


def auto_commit_refusal(group: str) -> SetupError:
    """The error where the offsets of a transaction would be committed beside it, too."""
    hint = "Set enable.auto.commit to false: the transaction commits."
    return SetupError("A transaction needs enable.auto.commit=false.", f"group {group}", hint)


@dataclass(frozen=True, slots=True)
class GroupMetadata:
    """A member at one moment: what it has read from now on belongs to this generation.

    Take it when a unit of work begins. Offsets that are sent under it are refused once the member
    has lost what it read: by a rebalance of a classic group, or, in a server-assigned group, when
    it lost one of the partitions.
    """

    member: str
    generation: int
    #: How the answer reaches this program.
    identity: Identity = field(repr=False)
    transport: Transport = field(repr=False, compare=False)
    #: Whether its consumer commits by itself: then no transaction takes its offsets.
    has_auto_commit: bool = field(default=False, repr=False, compare=False)

    def asking(self) -> Identity:
        """The same member under a token of its own, so that answers are told apart."""
        return dataclasses.replace(self.identity, token=self.transport.new_token())

    def refuse_auto_commit(self) -> None:
        """Raises SetupError: offsets would be committed whether the transaction is or not."""
        if self.has_auto_commit:
            raise auto_commit_refusal(self.identity.group)


class Outcome(Enum):
    """How a unit of work has ended, and what its consumer does then."""

    #: Action: go on.
    COMMITTED = "committed"
    #: Action: read it again.
    ABORTED = "aborted"
    #: Its commit was called, and nobody can say whether it counts. Action: wait until the group's
    #: offsets are stable; go on if they are the unit's, else read it again.
    UNKNOWN = "unknown"


class Unit:
    """The messages of one unit, by their positions. For the consumer's own thread."""

    def __init__(self) -> None:
        #: Called before it is asked, to note what was returned to the program last.
        self.note: Callable[[], object] = tuple
        #: Whether it has ended, also where its consumer was not given the outcome.
        self.is_over: Callable[[], bool] = bool
        #: The first message of each partition since it was let go of, lost or given: before that,
        #: another member may have gone on.
        self._first: dict[TopicPartition, int] = {}
        #: The position after the last one, with the leader epoch.
        self._next: dict[TopicPartition, tuple[int, int]] = {}

    def read(self, partition: TopicPartition, position: int, epoch: int) -> None:
        """A message was returned to the program; `position` is that after it."""
        self._first.setdefault(partition, position - 1)
        self._next[partition] = position, epoch

    def moved(self, partitions: Iterable[TopicPartition]) -> None:
        """These have come or gone."""
        for each in partitions:
            self._first.pop(each, None)

    @property
    def offsets(self) -> tuple[api.CommittedOffset, ...]:
        """What is done when this unit is. Also of partitions that have gone: the group refuses

        them, and so the whole unit. To leave them out would commit the output of what others read
        again.
        """
        self.note()
        return tuple(
            api.CommittedOffset(each.topic, each.partition, offset, epoch)
            for each, (offset, epoch) in sorted(self._next.items())
        )

    @property
    def beginnings(self) -> dict[TopicPartition, int]:
        """Where to read again when the unit was aborted. A partition that has moved was begun at

        what is committed, which another member may have pushed on: not before that.
        """
        self.note()
        return dict(self._first)

    @property
    def spans(self) -> dict[TopicPartition, tuple[int, int]]:
        """`beginnings`, each with the offset that the group has if the unit counts."""
        self.note()
        return {each: (at, self._next[each][0]) for each, at in self._first.items()}
