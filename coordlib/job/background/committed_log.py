"""The committed offsets of all groups, as readers of `coord.committed` see them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Final, NamedTuple, Protocol

import msgspec
import structlog
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition
from msgspec import Meta

from coordlib.errors import NotAllowed
from coordlib.kafka.clients import denial, reader_config, reading
from coordlib.kafka.logs import Place

Exists = Callable[[Place], bool]


class Cut(NamedTuple):
    """The offsets of a group that are not followed."""

    group: str
    places: list[Place]


def shares(counts: Mapping[str, int], room: int) -> dict[str, int]:
    """The number for each group; the smallest share of a cut group is as large as possible.

    The remainder goes to the first groups by name.
    """
    found: dict[str, int] = {}
    waiting = sorted(counts, key=lambda group: (counts[group], group))
    for number, group in enumerate(waiting):
        level = room // (len(waiting) - number)
        if counts[group] > level:
            over = sorted(waiting[number:])
            more = room - level * len(over)
            return found | {each: level + (n < more) for n, each in enumerate(over)}
        found[group] = counts[group]
        room -= counts[group]
    return found


def cut(
    groups: Mapping[str, Mapping[Place, int]], offsets_max: int, exists: Exists
) -> Iterator[Cut]:
    """The offsets that are not to be followed; none while there is room for all."""
    here = {name: sum(map(exists, mine)) for name, mine in groups.items()}
    first = shares(here, offsets_max)
    rest = {name: len(mine) - here[name] for name, mine in groups.items()}
    second = shares(rest, offsets_max - sum(first.values()))
    for name, mine in groups.items():
        kept = first[name], second[name]
        if sum(kept) < len(mine):
            yield Cut(name, _beyond(mine, kept, exists))


def _beyond(mine: Mapping[Place, int], kept: tuple[int, int], exists: Exists) -> list[Place]:
    places = sorted(mine)
    here = [place for place in places if exists(place)]
    absent = [place for place in places if not exists(place)]
    return here[kept[0] :] + absent[kept[1] :]


#: Offsets that are followed; 300 bytes each. Those beyond have no lag and are not mirrored, until
#: one of them is committed again when there is room.
OFFSETS_MAX: Final = 500_000
#: This many more are taken in before a cut to the bound: a cut looks at all of them.
OFFSETS_OVER_MAX: Final = 50_000
#: At most this many offsets beyond the bound are counted, by a hash of each; groups likewise.
LEFT_OUT_MAX: Final = 100_000
_RECORDS_AT_ONCE: Final = 2_000

_log = structlog.get_logger()

#: Topic names that Kafka's clients take: they raise on others, which no topic has.
_Topic = Annotated[str, Meta(pattern="^[a-zA-Z0-9._-]+$", max_length=249)]
_Partition = Annotated[int, Meta(ge=0, le=2**31 - 1)]


class _Value(msgspec.Struct):
    offset: Annotated[int, Meta(ge=0, le=2**63 - 1)]


_decode_key: Final = msgspec.json.Decoder(tuple[str, _Topic, _Partition]).decode
_decode_value: Final = msgspec.json.Decoder(_Value).decode


class Change(NamedTuple):
    """One record of the topic; `offset` None: deleted."""

    group: str
    place: Place
    offset: int | None


def read_record(key: bytes | None, value: bytes | None) -> Change | None:
    """Decode a record; None for one that the job did not write, which the archive reports."""
    try:
        group, topic, partition = _decode_key(key or b"")
        offset = None if value is None else _decode_value(value).offset
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None
    return Change(group, Place(topic, partition), offset)


class Record(Protocol):
    """The part of confluent-kafka's Message that is used here."""

    def error(self) -> KafkaError | None: ...

    def key(self) -> Any: ...

    def value(self) -> Any: ...

    def partition(self) -> int | None: ...


class CommittedOffsets:
    """Group to partition to offset: a fold of the topic.

    Too many of them are left out (`cut`): which ones stay depends on the committed offsets
    and not on their order, so that it is the same after a restart.

    Args:
        exists: whether a partition exists; called only where some must be left out.
    """

    def __init__(
        self,
        is_wanted: Callable[[str], bool] = lambda _: True,
        exists: Callable[[], Exists] = lambda: lambda _: True,
    ) -> None:
        self._is_wanted, self._exists = is_wanted, exists
        #: No group without offsets.
        self.groups: dict[str, dict[Place, int]] = {}
        self._count = 0
        #: Hashes of offsets that exist and are not followed; there may be more than the bound.
        self._left_out: set[int] = set()
        #: Hashes of groups that lack some, or did once; there may be more than the bound.
        self._cut: set[int] = set()
        #: The number of them at which it is logged again.
        self._logged_at = 1

    @property
    def left_out(self) -> int:
        """Offsets that are not followed: at `LEFT_OUT_MAX`, so many or more."""
        return len(self._left_out)

    def is_known_whole(self, group: str) -> bool:
        """Whether none of this group's offsets was ever left out: then missing ones are deleted."""
        return len(self._cut) < LEFT_OUT_MAX and hash(group) not in self._cut

    def put(self, group: str, place: Place, offset: int | None) -> bool:
        """Take in a record; return whether it was a change. `offset` None: deleted."""
        if not self._is_wanted(group):
            return False
        if offset is None:
            return self._delete(group, place)
        mine = self.groups.setdefault(group, {})
        if mine.get(place) == offset:
            return False
        if place not in mine:
            self._count += 1
            if self._left_out:
                self._left_out.discard(hash((group, place)))
        mine[place] = offset
        if self._count >= OFFSETS_MAX + OFFSETS_OVER_MAX:
            self.trim()
        return True

    def trim(self) -> None:
        """Leave out offsets beyond the bound."""
        if self._count <= OFFSETS_MAX:
            return
        for group, places in list(cut(self.groups, OFFSETS_MAX, self._exists())):
            mine = self.groups[group]
            for place in places:
                del mine[place]
                self._leave_out(group, place)
            self._count -= len(places)
            if not mine:
                del self.groups[group]

    def _delete(self, group: str, place: Place) -> bool:
        mine = self.groups.get(group, {})
        if mine.pop(place, None) is None:
            self._left_out.discard(hash((group, place)))
            return False
        self._count -= 1
        if not mine:
            del self.groups[group]
        return True

    def _leave_out(self, group: str, place: Place) -> None:
        if len(self._cut) < LEFT_OUT_MAX:
            self._cut.add(hash(group))
        if self.left_out < LEFT_OUT_MAX:
            self._left_out.add(hash((group, place)))
        if self.left_out >= self._logged_at:
            self._logged_at = 10 * self.left_out
            _log.warning(
                "offsets have no lag and no mirror", left_out=self.left_out, followed=OFFSETS_MAX
            )


#: Called with every deletion and every change: group, partition, new offset or None.
OnChange = Callable[[str, Place, int | None], None]


class CommittedLog:
    """Follows the topic with a consumer of its own, from its beginning."""

    def __init__(
        self,
        client_options: Mapping[str, str],
        prefix: str,
        shards: Sequence[int],
        offsets: CommittedOffsets,
        on_change: OnChange,
    ) -> None:
        self.offsets, self._on_change = offsets, on_change
        self._options, self._topic = client_options, f"{prefix}.committed"
        #: Shards whose end was not seen yet: until then older offsets may still come before newer.
        self._behind = set(shards)
        self._consumer = Consumer(reader_config(client_options, log_level=2))
        places = [TopicPartition(self._topic, shard, OFFSET_BEGINNING) for shard in shards]
        self._consumer.assign(places)

    @property
    def has_caught_up(self) -> bool:
        """Whether every shard was read to its end at least once."""
        return not self._behind

    def turn(self, wait_s: float) -> None:
        """Read some records, for at most this long. Raises KafkaException, NotAllowed."""
        failure: KafkaException | NotAllowed | None = None
        for record in self._consumer.consume(_RECORDS_AT_ONCE, wait_s):
            try:
                self._take(record)
            except (KafkaException, NotAllowed) as problem:
                failure = failure or problem  # the records behind it have been consumed, too
        if failure is not None:
            raise failure

    def close(self) -> None:
        self._consumer.close()

    def _take(self, record: Record) -> None:
        error = record.error()
        if error is not None:
            if denied := denial(error, reading(self._topic), self._options):
                raise denied
            if error.code() != KafkaError._PARTITION_EOF:
                raise KafkaException(error)
            self._behind.discard(record.partition() or 0)
            return
        change = read_record(record.key(), record.value())
        if change is not None and (self.offsets.put(*change) or change.offset is None):
            self._on_change(*change)
