"""A transaction that ended, and the partitions that lack its marker."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from coordlib.core.wire.data_headers import Marker, Txn
from coordlib.core.wire.producers import EndedTransaction, Result, TopicsOfCluster, places_of


class Place(NamedTuple):
    """A partition of a topic in some cluster."""

    cluster: str
    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class Unmarked:
    """A transaction that ended, and the partitions that lack its marker."""

    txn: Txn
    result: Result
    #: With the number of its records; None: not known, since another process wrote them.
    places: Mapping[Place, int | None]

    @classmethod
    def told(
        cls,
        incarnation: str,
        transactional_id: str,
        ended: EndedTransaction,
        rows: Iterable[TopicsOfCluster],
    ) -> "Unmarked":
        """What an answer of the coordinator says: its fields `ended` and `unwritten`."""
        txn = Txn(incarnation, transactional_id, ended.producer_id, ended.epoch)
        return cls(txn, ended.result, {Place(*each): None for each in places_of(rows)})

    def marker(self, place: Place) -> Marker:
        """The marker for one of the partitions."""
        count = self.places[place]
        named = {} if count is None else {"n": count}
        txn = self.txn
        return Marker(
            i=txn.incarnation,
            t=txn.transactional_id,
            p=txn.producer_id,
            e=txn.epoch,
            r=self.result,
            **named,
        )
