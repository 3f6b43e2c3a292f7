"""What hostile clients write: each flood in one or two ways, and how much of it may be taken. Pure.

Every client of a flood has a name that begins with `hostile-`, so that its answers are told from
those of others by their bytes.
"""

from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar, Final, NamedTuple

import msgspec

from coordlib.config import BrokersConfig, GroupConfig, TransactionsConfig
from coordlib.core.engine.time import BURST_MS
from coordlib.core.wire import api, codec
from coordlib.core.wire.control import with_signature
from coordlib.core.wire.envelope import shard_of
from coordlib.core.wire.offsets import KAFKA
from coordlib.core.wire.transactions import TxnMarker
from tests.tools import driving
from tests.tools.bench.crowd import METADATA, Record

#: Stands in a template for the number of the request; in JSON it is a number, too.
_NUMBER: Final = b"10000000"
_NAME: Final = "hostile-10000000"
#: How long a second of the log may take longer than one of the generator.
_SLACK_S: Final = 2.0
#: Entries that one producer leaves open, and into how many groups in the second part.
PENDINGS: Final = 10_000
PENDING_GROUPS: Final = 20


class Place(NamedTuple):
    """What a flood knows of the log."""

    shards: int
    token: str
    #: Names of the keys by which shards know control records; whoever may read can read them.
    keys: Sequence[str] = ()


class Flood:
    """One kind of requests. `begin` a part, then `next`, again and again."""

    PARTS: ClassVar[tuple[str, ...]]
    #: Whether it stands in one open transaction of Kafka's.
    IS_TRANSACTION: ClassVar[bool] = False

    def __init__(self, place: Place) -> None:
        self.place, self.part, self.asked, self._begun = place, "", 0, 0

    def begin(self, part: str) -> None:
        """From now on the requests of this part."""
        self.part, self._begun = part, self.asked
        self.template()

    @property
    def asked_in_part(self) -> int:
        return self.asked - self._begun

    def template(self) -> None:
        """Make what is the same in all requests of this part."""

    def next(self) -> Record | None:
        """One that was never sent before; None: there are no more in this part."""
        self.asked += 1
        return self._next(b"1%07d" % self.asked)

    @abstractmethod
    def _next(self, number: bytes) -> Record: ...

    def taken_max(self, seconds: float) -> int | None:  # of some floods
        """How many of this part may be accepted in so many seconds; None: there is no cap."""
        return None

    def _named(self, more: str = "") -> str:
        return f"hostile-{self.place.token}-{self.part}{more}"

    def _at(self, value: bytes, name: str) -> Record:
        return Record(value, name.encode(), shard_of(name, self.place.shards))

    def _new_ones_max(self, seconds: float) -> int:
        """New entities that all shards may make meanwhile."""
        spent_s = seconds + _SLACK_S + BURST_MS / 1_000
        return int(self.place.shards * GroupConfig().new_groups_per_second_max * spent_s)


class Joins(Flood):
    """Members that nobody has seen before: into one group, or each into a group of its own."""

    PARTS = ("one-group", "ever-new-groups")

    def template(self) -> None:
        self._group = self._named("" if self.part == self.PARTS[0] else f"-{_NUMBER.decode()}")
        request = driving.join(
            _NAME, _NAME, group=self._group, reply=0, protocols={"range": METADATA}
        )
        self._value = codec.encode(request)  # once: encoding each would slow the flood

    def _next(self, number: bytes) -> Record:
        group = self._group.replace(_NUMBER.decode(), number.decode())
        return self._at(self._value.replace(_NUMBER, number), group)

    def taken_max(self, seconds: float) -> int:
        if self.part == self.PARTS[0]:
            return GroupConfig().max_size
        return self._new_ones_max(seconds)


class Ids(Flood):
    """Transactional ids that nobody has seen before."""

    PARTS = ("ever-new-ids",)

    def template(self) -> None:
        self._id = self._named(f"-{_NUMBER.decode()}")
        request = api.InitProducerId(
            v=1, id=_NAME, client=_NAME, group=self._id, reply=0, timeout_ms=60_000
        )
        self._value = codec.encode(request)

    def _next(self, number: bytes) -> Record:
        named = self._id.replace(_NUMBER.decode(), number.decode())
        return self._at(self._value.replace(_NUMBER, number), named)

    def taken_max(self, seconds: float) -> int:
        kept = self.place.shards * TransactionsConfig().ids_per_shard_max
        return min(kept, self._new_ones_max(seconds))


class Pendings(Flood):
    """One producer's offset commits in a transaction that stays open: 10,000, then no more."""

    PARTS = ("one-group", "many-groups")
    IS_TRANSACTION = True

    def next(self) -> Record | None:
        return super().next() if self.asked_in_part < PENDINGS else None

    def _next(self, number: bytes) -> Record:
        many = f"-{self.asked % PENDING_GROUPS}" if self.part == self.PARTS[1] else ""
        group = self._named(many)
        request = api.PendingCommit(
            v=1,
            id=f"hostile-{number.decode()}",
            client="hostile-one",
            group=group,
            reply=0,
            decided_by=KAFKA,
            offsets=(api.CommittedOffset("t", 0, self.asked),),
        )
        return self._at(codec.encode(request), group)

    def taken_max(self, seconds: float) -> int:
        groups = 1 if self.part == self.PARTS[0] else PENDING_GROUPS
        return min(PENDINGS, groups * TransactionsConfig().pending_per_group_max)


class Messages(Flood):
    """FromShard of somebody who is not the job's driver, with any number.

    Unsigned it is refused at once. With the name of the job's key, which is no secret, and a
    signature of nothing, each has to be verified.
    """

    PARTS = ("unsigned", "falsely-signed")

    def template(self) -> None:
        marker = TxnMarker(
            group="g", transactional_id="hostile", producer_id=1, epoch=0, result="commit"
        )
        self._body = msgspec.Raw(codec.encode(marker))

    def _next(self, number: bytes) -> Record:
        shard = self.asked % self.place.shards
        record = api.FromShard(v=1, source=0, seq=self.asked, body=self._body)
        if self.part == self.PARTS[0]:
            return Record(codec.encode(record), b"", shard)
        key = self.place.keys[self.asked % len(self.place.keys)]
        named = msgspec.structs.replace(record, n=(1_000, self.asked), key=key)
        # As one of Ed25519, whose second half is a number below 2^252: else it is refused unseen.
        signature = (number * 8)[:-1] + b"\0"
        return Record(with_signature(codec.encode(named), signature), b"", shard)

    def taken_max(self, seconds: float) -> int:
        return 0


class Registrations(Flood):
    """RegisterBroker: of one id, each of which supersedes the one before, and of ever-new ids."""

    PARTS = ("one-id", "ever-new-ids")

    def template(self) -> None:
        self._cluster = self._named()
        request = api.RegisterBroker(
            v=1,
            id=_NAME,
            client=_NAME,
            group=self._cluster,
            reply=0,
            broker=1 if self.part == self.PARTS[0] else int(_NUMBER),
            endpoints=(api.Endpoint("in", "localhost", 9_092),),
            session_timeout_ms=9_000,
            release_timeout_ms=18_000,
        )
        self._value = codec.encode(request)

    def _next(self, number: bytes) -> Record:
        return self._at(self._value.replace(_NUMBER, number), self._cluster)

    def taken_max(self, seconds: float) -> int | None:
        return None if self.part == self.PARTS[0] else BrokersConfig().brokers_max


FLOODS: Final[dict[str, type[Flood]]] = {
    "joins": Joins,
    "ids": Ids,
    "pendings": Pendings,
    "messages": Messages,
    "registrations": Registrations,
}


def error_of(answer: bytes) -> str | None:
    """The error of an answer to a flood; "": a notice to it; None: it is to somebody else.

    By its bytes: to decode all of them would delay the probes.
    """
    if b"hostile-" not in answer:
        return None
    return answer.partition(b'"error":"')[2].partition(b'"')[0].decode()
