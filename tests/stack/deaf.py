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
from unittest.mock import patch

from coordlib.client.kit import transport
from coordlib.client.kit.reading import ResponseReader
from coordlib.client.kit.transport import KafkaTransport

WAIT_S = 0.02


def deaf_transport(while_there: Path, *args: Any, **given: Any) -> KafkaTransport:
    """A KafkaTransport of these arguments that reads no response while a file is there."""

    class DeafReader(ResponseReader):
        def read(self) -> list[tuple[bytes, bytes]]:
            if while_there.exists():
                time.sleep(WAIT_S)
                return []
            return super().read()

    # Its thread keeps the reader's method from the start: another reader could not be set later.
    with patch.object(transport, "ResponseReader", DeafReader):
        return KafkaTransport(*args, **given)
