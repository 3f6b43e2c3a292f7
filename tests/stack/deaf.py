"""A member that can write and is not spoken to: its reader of responses, cut off on demand.

Why in the program, and not in the network: what cuts one partition off and not the topic's others
does not exist between a client and its broker. One TCP connection carries all partitions of a
broker. Deleting the partition's records does nothing to a reader that stands at its end, ACLs need
an authorizer, and then end the reader with an error, which is not being cut off. So the reader
stands still as with a broker that never answers its fetches, beside heartbeats that are taken.
"""

import time
from pathlib import Path
from typing import Any

WAIT_S = 0.02


class DeafReader:
    """A ResponseReader that reads nothing while a file is there. Used by one thread."""

    def __init__(self, reader: Any, while_there: Path) -> None:
        self._reader, self._while_there = reader, while_there

    def read(self) -> list[tuple[bytes, bytes]]:
        if self._while_there.exists():
            time.sleep(WAIT_S)
            return []
        found: list[tuple[bytes, bytes]] = self._reader.read()
        return found

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reader, name)
