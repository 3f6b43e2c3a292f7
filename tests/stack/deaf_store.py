"""A store of the demo that can be cut off from its responses alone (`tests.stack.deaf`).

It hears none while a file with its broker's number is in the folder that its configuration names as
`deaf`.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from coordlib.client.kit.transport import KafkaTransport
from coordlib.demo.member import run
from tests.stack.acts.store_member import connection_of, serve
from tests.stack.acts.store_witness import StoreWitnessFile
from tests.stack.deaf import DeafReader


def _serve(
    config: dict[str, Any], topic: str, witness: StoreWitnessFile, is_over: Callable[[], bool]
) -> None:
    to = connection_of(config)
    transport = KafkaTransport(to["config"], to["prefix"], config["client.id"])
    while_there = Path(config["deaf"]) / str(config["broker"])
    transport._reader = DeafReader(transport._reader, while_there)  # type: ignore[assignment]
    try:
        serve(config, topic, witness, is_over, transport=transport)
    finally:
        transport.close()


if __name__ == "__main__":
    sys.exit(run(_serve, StoreWitnessFile))
