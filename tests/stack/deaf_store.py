"""A store of the demo that can be cut off from its responses alone (`tests.stack.deaf`).

It hears none while a file with its broker's number is in the folder that its configuration names as
`deaf`.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from coordlib.demo.member import run
from tests.stack.acts.store_member import connection_of, serve
from tests.stack.acts.store_witness import StoreWitnessFile
from tests.stack.deaf import deaf_transport


def _serve(
    config: dict[str, Any], topic: str, witness: StoreWitnessFile, is_over: Callable[[], bool]
) -> None:
    to = connection_of(config)
    while_there = Path(config["deaf"]) / str(config["broker"])
    transport = deaf_transport(while_there, to["config"], to["prefix"], config["client.id"])
    try:
        serve(config, topic, witness, is_over, transport=transport)
    finally:
        transport.close()


if __name__ == "__main__":
    sys.exit(run(_serve, StoreWitnessFile))
