"""A process that is killed between the group's acceptance and the commit of its transaction.

    python -m tests.tools.bench.transactions_killed SIDE CONFIG PREFIX WAY NAME TOPIC TIMEOUT_MS

It prints "accepted" then, and waits.
"""

import json
import os
import sys
import time
from typing import Final

from tests.tools.bench.transactions_sides import opened

RECORDS: Final = 10
#: No commit of the benchmark that counts has this position.
POSITION: Final = 1_000_000_000


def main(side: str, config: str, prefix: str, way: str, *rest: str) -> None:
    """Come so far, and wait for the kill."""
    name, topic, timeout_ms = rest
    parent = os.getppid()
    copier = opened(side, json.loads(config), prefix, way).copier(name, int(timeout_ms))
    copier.init()
    copier.begin(topic, RECORDS, POSITION)
    print("accepted", flush=True)
    while os.getppid() == parent:
        time.sleep(0.1)


if __name__ == "__main__":
    main(*sys.argv[1:])
