"""The load of the batch benchmark, a process of its own: `python -m tests.tools.bench.batch_load`.

Orders are JSON lines on stdin, answers JSON lines on stdout; it ends with its stdin, so that it
outlives nobody. One coordinator after the other has its members:

    {"do": "join", "bootstrap": …, "prefix": …, "groups": …, "members": …, "offsets": …}
    {"do": "beat", "seconds": …, "rate": …, "probes": …}    heartbeats and probes, nothing else
    {"do": "tell"}                                          what came of the last `beat`
    {"do": "end"}
"""

import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from coordlib.errors import CannotReach, CoordError
from tests.tools.bench.figures import spread
from tests.tools.bench.generator import ANSWERS_LIMIT_S, Generator

FILL_TIMEOUT_S: Final = 120.0

Order = Mapping[str, Any]


class Load(Generator):
    """The members of one coordinator."""

    def fill(self, offsets: int) -> None:
        """One member of each group commits so many offsets. Raises CannotReach."""
        self._write(self.crowd.commit(number, offsets) for number in range(self.crowd.groups))
        if self.drain(FILL_TIMEOUT_S) is None:
            raise CannotReach("The commits of the load were not judged in time.")

    def beat(self, seconds: float, rate: float, probes_per_second: float) -> dict[str, Any]:
        """Load for so long; when it was, in epoch seconds."""
        self.probes.forget()
        self.pace.begin()
        self.crowd.refused.clear()
        self.lateness_s, sent_before = 0.0, self.sent
        began_s = time.time()
        self.load(seconds, rate, probes_per_second)
        ended_s = time.time()
        self._sent_per_s = (self.sent - sent_before) / (ended_s - began_s)
        return {"from_s": began_s, "to_s": ended_s}

    def figures(self) -> dict[str, Any]:
        """What came of it, with the answers that were still on their way."""
        self._run(lambda: not self.probes.unanswered, ANSWERS_LIMIT_S, 0, 0)
        return {
            "join_s": spread(self.probes.took_s, 0.5, 0.9),
            "probes": len(self.probes.took_s),
            "unanswered": self.probes.unanswered + self.probes.refused,
            "sent_per_s": round(self._sent_per_s),
            "refused": dict(self.crowd.refused),
            "write_errors": dict(self.write_errors),
            "generator_late_s": round(self.lateness_s, 3),
        }


def answers(lines: Iterable[str], opened: Callable[[Order], Load]) -> Iterator[dict[str, Any]]:
    """An answer to each order; `failed` says what went wrong."""
    load: Load | None = None
    for line in lines:
        order = json.loads(line)
        try:
            if order["do"] == "join":
                load = opened(order)
                yield {"settled_s": round(_settled(load, order["offsets"]), 2)}
                continue
            assert load is not None, "nobody has joined"
            if order["do"] == "beat":
                yield load.beat(order["seconds"], order["rate"], order["probes"])
            elif order["do"] == "tell":
                yield load.figures()
            else:
                load.close()
                load = None
                yield {}
        except CoordError as problem:
            yield {"failed": str(problem)}


def _settled(load: Load, offsets: int) -> float:
    began = time.monotonic()
    load.settle()
    if offsets:
        load.fill(offsets)
    return time.monotonic() - began


def _opened(order: Order) -> Load:
    # Connections of closed clients end with the broker, not before.
    config = {"bootstrap.servers": order["bootstrap"], "log_level": "2"}
    return Load(config, order["prefix"], order["groups"], order["members"])


def main() -> None:
    """Until stdin ends."""
    for answer in answers(sys.stdin, _opened):
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
