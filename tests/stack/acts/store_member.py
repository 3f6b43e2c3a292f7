"""One process of the replicated store: a broker that writes down what it did.

Started by the demo as members are; its configuration says which broker it is, where it is reached,
where its data lie, and what it promises in time.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from coordlib.client import BrokerTiming
from coordlib.demo.member import run
from examples.store.server import Store
from tests.stack.acts.store_witness import StoreWitnessFile


def serve(
    config: dict[str, Any],
    _topic: str,
    witness: StoreWitnessFile,
    is_over: Callable[[], bool],
    **options: Any,
) -> None:
    """Serve until it is over, then let others lead."""
    store = Store(
        config["broker"],
        (config["host"], config["port"]),
        Path(config["folder"]),
        tell=witness.told,
        client=config["client.id"],
        timing=BrokerTiming(**config["timing"]),
        **(options or connection_of(config)),
    )
    try:
        with store.agent as agent:
            agent.ready()
            while not is_over():
                store.poll()
            agent.stop()
            while store.poll():
                pass
    finally:
        store.close()


def connection_of(config: dict[str, Any]) -> dict[str, Any]:
    """How to reach the coordinator."""
    servers = "bootstrap.servers"
    return {"config": {servers: config[servers]}, "prefix": config["coord.prefix"]}


if __name__ == "__main__":
    sys.exit(run(serve, StoreWitnessFile))
