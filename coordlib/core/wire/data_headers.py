"""Headers of the records that transactions of the coordinator write into users' topics.

A record of a transaction has the header `coord-txn`, and after the end each of the partitions gets
a marker: a record without a value, with the header `coord-marker`. A producer without transactional
id numbers its records only. Source: the batch header and the control records of KIP-98, which a
client of Kafka cannot write itself.

Whoever may write a topic can write such headers: they are as trustworthy as the topic's writers.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Final, NamedTuple

import msgspec
from msgspec import UNSET, Meta, UnsetType

from coordlib import limits
from coordlib.core.wire import codec
from coordlib.core.wire.transactions import Epoch, Result

TXN_HEADER: Final = "coord-txn"
MARKER_HEADER: Final = "coord-marker"
#: As confluent-kafka has them.
Value = bytes | str | None
Headers = Sequence[tuple[str, Value]] | Mapping[str, Value]
_Count = Annotated[int, Meta(ge=0)]
_Name = Annotated[str, Meta(min_length=1, max_length=limits.NAME_LENGTH_MAX)]


class Txn(NamedTuple):
    """One transaction. Those of one id in one incarnation are in the order of (p, e)."""

    #: Of the coordinator's topics; a producer id is unique within it.
    incarnation: str
    transactional_id: str
    producer_id: int
    epoch: int


class Stamp(msgspec.Struct, frozen=True, kw_only=True):
    """Who wrote a record, and which of its records in this partition it is."""

    i: _Name
    p: _Count
    #: In this partition: of a transaction from 0, of a producer without id from its beginning.
    s: _Count
    #: Transactional id and epoch; left out: the record is part of no transaction.
    t: _Name | UnsetType = UNSET
    e: Epoch | UnsetType = UNSET

    @property
    def txn(self) -> Txn | None:
        """Its transaction; None: it is part of none."""
        if isinstance(self.t, str) and isinstance(self.e, int):
            return Txn(self.i, self.t, self.p, self.e)
        return None


class Marker(msgspec.Struct, frozen=True, kw_only=True):
    """How a transaction has ended, in a partition to which it may have written."""

    i: _Name
    t: _Name
    p: _Count
    e: Epoch
    r: Result
    #: How many records of it stand in this partition. Left out by another process than its
    #: producer, which cannot tell.
    n: _Count | UnsetType = UNSET

    @property
    def txn(self) -> Txn:
        """The transaction that ended."""
        return Txn(self.i, self.t, self.p, self.e)


_decode_stamp: Final = msgspec.json.Decoder(Stamp).decode
_decode_marker: Final = msgspec.json.Decoder(Marker).decode


def header_of(what: Stamp | Marker) -> tuple[str, bytes]:
    """The header that says this."""
    return (TXN_HEADER if isinstance(what, Stamp) else MARKER_HEADER), codec.encode(what)


def read_headers(headers: Headers | None, *, has_value: bool) -> Stamp | Marker | None:
    """What a record's headers say; None: it is a record of somebody else.

    So are headers that no producer of ours writes, such as a marker with a value, and a record with
    two of them: of an unknown writer, as those without a header.
    """
    pairs = headers.items() if isinstance(headers, Mapping) else headers or ()
    ours = [(name, value) for name, value in pairs if name in (TXN_HEADER, MARKER_HEADER)]
    if len(ours) != 1:
        return None
    ((name, value),) = ours
    if value is None:
        return None
    try:
        if name == TXN_HEADER:
            stamp = _decode_stamp(value)
            return stamp if (stamp.t is UNSET) == (stamp.e is UNSET) else None
        return None if has_value else _decode_marker(value)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):  # the last: `[[[[…`
        return None


def names_ours(headers: Iterable[tuple[str, object]]) -> bool:
    """Whether a user's own headers have one of these names."""
    return any(name in (TXN_HEADER, MARKER_HEADER) for name, _ in headers)
