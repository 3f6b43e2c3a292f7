"""A client of the replicated store, which finds the leaders.

    client = StoreClient("entries", 6, [("127.0.0.1", 7001), ("127.0.0.1", 7002)])
    client.put("colour", "blue")
    client.get("colour").value

`Refused` means that nothing was done, `OutcomeUnknown` that a put may be done, now or later.
"""

import time
import zlib
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from examples.store.wire import UNKNOWN, Address, Connection, Refused

RETRY_S: Final = 0.1


class OutcomeUnknown(Exception):
    """A put that was sent and not acknowledged: a later get may return it, or never."""


class Found(NamedTuple):
    """A value, and where it stands in the partition's log; None and -1: there is none."""

    value: Any
    offset: int


def partition_of(key: str, partitions: int) -> int:
    """The partition of a key."""
    return zlib.crc32(key.encode()) % partitions


class StoreClient:
    """Puts and gets at the leaders. Used by one thread.

    Args:
        addresses: of some stores; from the first that answers it learns who leads.
        patience_s: for how long it looks for a leader that takes a request.
    """

    def __init__(
        self,
        topic: str,
        partitions: int,
        addresses: Iterable[Address],
        patience_s: float = 60.0,
    ) -> None:
        self._topic, self._partitions = topic, partitions
        self._addresses, self._patience_s = list(addresses), patience_s
        self._open: dict[Address, Connection] = {}
        self._leaders: Mapping[str, list[Any]] = {}

    def put(self, key: str, value: Any) -> Found:
        """Store a value; returns when it is acknowledged.

        Raises:
            OutcomeUnknown: it was sent and not acknowledged. It is not sent again: the first one
                may still come, after what another client puts meanwhile.
            Refused: no leader took it in time, for this reason.
        """
        return Found(**self._ask("put", key, value=value))

    def get(self, key: str) -> Found:
        """The newest value that was acknowledged, or one that is just being put.

        Raises Refused: no leader answered in time.
        """
        return Found(**self._ask("get", key))

    def close(self) -> None:
        """Close all connections."""
        for address in list(self._open):
            self._forget(address)

    def _ask(self, what: str, key: str, **fields: Any) -> dict[str, Any]:
        until = time.monotonic() + self._patience_s
        place = {"topic": self._topic, "partition": partition_of(key, self._partitions)}
        while True:
            try:
                return self._ask_leader(what, place, key=key, **fields)
            except Refused as refusal:
                if what == "put" and refusal.error == UNKNOWN:
                    raise OutcomeUnknown(refusal.error) from refusal
                if time.monotonic() > until:
                    raise
            self._leaders = {}
            time.sleep(RETRY_S)

    def _ask_leader(self, what: str, place: dict[str, Any], **fields: Any) -> dict[str, Any]:
        if not self._leaders:
            self._leaders = self._find_leaders()
        host, port = self._leaders.get(str(place["partition"])) or (None, 0)
        if host is None:
            raise Refused("LEADER_NOT_AVAILABLE")
        connection = self._connect((host, port))
        try:
            return connection.ask(what, **place, **fields)
        except OSError as problem:
            self._forget((host, port))
            if what == "put":
                raise OutcomeUnknown(str(problem)) from problem
            raise Refused("NETWORK_EXCEPTION") from problem

    def _find_leaders(self) -> Mapping[str, list[Any]]:
        """Partition (JSON has no other keys than text) -> its leader's address."""
        for address in self._addresses:
            try:
                found = self._connect(address).ask("leaders", topic=self._topic)["leaders"]
            except OSError:
                self._forget(address)
            except Refused:
                pass  # it is fenced, or just begins: another store may know
            else:
                return dict(found)
        raise Refused("LEADER_NOT_AVAILABLE")

    def _connect(self, address: Address) -> Connection:
        """Raises Refused: nothing was sent."""
        if address not in self._open:
            try:
                self._open[address] = Connection(address)
            except OSError as problem:
                raise Refused("NETWORK_EXCEPTION") from problem
        return self._open[address]

    def _forget(self, address: Address) -> None:
        if (connection := self._open.pop(address, None)) is not None:
            connection.close()
