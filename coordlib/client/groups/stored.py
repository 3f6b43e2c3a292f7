"""The offsets of one consumer that are stored: what is processed, and is committed later.

With `enable.auto.offset.store` a message is stored when the call after the one that has returned it
begins: then it is processed. librdkafka stores it when it is returned, so a crash may lose it; the
rule here is that of Java's consumer. Without, `store_offsets` alone stores.  # INV-158

A stored offset leaves by its commit, or is dropped: when its partition is lost, begun anew or
sought, or when a commit of the partition has passed it.
"""

from collections.abc import Collection, Iterable

from coordlib.client.kit.events import TopicPartition
from coordlib.client.kit.offsets import rows_of_positions
from coordlib.core.wire import api


class StoredOffsets:
    """For calls one at a time: its `Reading` holds a lock.

    Args:
        is_automatic: whether what was handed out is stored.
    """

    def __init__(self, is_automatic: bool) -> None:
        self.is_automatic = is_automatic
        self._stored: dict[TopicPartition, api.CommittedOffset] = {}
        #: The positions after what the last call has returned: its messages may be unfinished.
        self._last: dict[TopicPartition, tuple[int, int]] = {}
        #: The newest offset that was committed, and the newest of which the answer is missing.
        self._committed: dict[TopicPartition, int] = {}
        self._asked: dict[TopicPartition, int] = {}
        #: The partitions that a running `on_revoke` has committed; None: it does not run.
        self._own: set[TopicPartition] | None = None

    # ---- stored -------------------------------------------------------------------------------

    def handed_out(self, place: TopicPartition, position: tuple[int, int], is_last: bool) -> None:
        """A message was returned to the program.

        Args:
            position: after it, with its leader epoch.
            is_last: by the last call, so it is not processed yet.
        """
        if not self.is_automatic:
            return
        if is_last:
            self._last[place] = position
        else:
            self._last.pop(place, None)
            self.store(rows_of_positions({place: position}))

    def call_begins(self) -> None:
        """What the calls before have returned is processed."""
        if self._last:
            last, self._last = self._last, {}
            self.store(rows_of_positions(last))

    def forget_last(self) -> None:
        """What the last call has returned is not processed, and never will be by this consumer."""
        self._last = {}

    def store(self, rows: Iterable[api.CommittedOffset]) -> None:
        """Store these; one that a commit has reached is dropped."""
        for row in rows:
            place = _place(row)
            self._stored[place] = row
            self._drop_reached(place)

    def drop(self, gone: Iterable[TopicPartition]) -> None:
        """Nothing is known of these any more."""
        for each in gone:
            for known in (self._stored, self._last, self._committed, self._asked):
                known.pop(each, None)

    # ---- committed ----------------------------------------------------------------------------

    def begun(self, place: TopicPartition, offset: int) -> None:
        """It is read from the offset that the group has committed."""
        self._committed[place] = offset
        self._drop_reached(place)

    def uncommitted(
        self, among: Collection[TopicPartition] | None, unanswered: bool = False
    ) -> list[api.CommittedOffset]:
        """What is stored, of all partitions or some.

        Args:
            unanswered: also what a commit names that was not answered yet.
        """
        return [
            row
            for place, row in sorted(self._stored.items())
            if (among is None or place in among)
            and (unanswered or self._asked.get(place, -1) < row.offset)
        ]

    def asked(self, rows: Iterable[api.CommittedOffset]) -> None:
        """A commit of these is under way."""
        self._asked.update({_place(row): row.offset for row in rows})

    def answered(
        self, rows: Iterable[api.CommittedOffset], refused: Collection[TopicPartition] | None
    ) -> None:
        """The commit of these has an answer. `refused`: some of them; None: all."""
        for row in rows:
            place = _place(row)
            if place not in self._asked:  # dropped since
                continue
            if self._asked[place] == row.offset:
                del self._asked[place]
            if refused is not None and place not in refused:
                self._committed[place] = row.offset
                self._drop_reached(place)

    def _drop_reached(self, place: TopicPartition) -> None:
        row = self._stored.get(place)
        if row is not None and row.offset <= self._committed.get(place, -1):
            del self._stored[place]

    # ---- revoked ------------------------------------------------------------------------------

    def revoke_begins(self) -> None:
        """`on_revoke` is called next."""
        self._own = set()

    def committed_by_user(self, rows: Iterable[api.CommittedOffset]) -> None:
        """The program commits these itself; inside `on_revoke` nothing else is then committed."""
        if self._own is not None:
            self._own.update(map(_place, rows))

    def revoked(self, partitions: Collection[TopicPartition]) -> list[api.CommittedOffset]:
        """`on_revoke` has returned: what is still to be committed of these."""
        own, self._own = self._own or set(), None
        return self.uncommitted([each for each in partitions if each not in own])


def _place(row: api.CommittedOffset) -> TopicPartition:
    return TopicPartition(row.topic, row.partition)
