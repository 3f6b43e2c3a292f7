"""Codec and rules of claims against steps of Marshal's own handlers, run in Go.

    python -m tests.tools.marshal FILE…    a JSON summary; exit 1 if anything differs

A line of a file is a log: a list of steps `[now_s, text, outcome]`, where the broker's stamp is
`now_s`. The outcome of a step is

    null                                it cannot be decoded
    {"claimed", "client", "instance", "offset", "encoded"}    the slot of the message
    {"paused", "until", "encoded"}      the group that is paused, and until when by the sender

Owners are compared where the sender's time is the broker's: for others Marshal's outcome depends on
the reader's clock (B1, B3). Pauses, decoding and `encoded` are compared for all.
"""

import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from coordlib.core.claims.world import World
from coordlib.core.engine.state import InputRecord
from coordlib.core.wire import claims
from coordlib.core.wire.claims import AnyMessage, Rejected, ReleaseGroup

#: Differences that are shown; all are counted.
SHOWN_MAX: Final = 20
#: The group whose senders have the broker's time.
COMPARED: Final = "g"


class Difference(NamedTuple):
    """A step that came out otherwise."""

    where: str
    text: str
    expected: Any
    found: Any


class Replay:
    """One log, from its beginning, in a coordination topic of one partition."""

    def __init__(self) -> None:
        self._world = World("__marshal", 0, 1)

    def step(self, now_s: int, text: str) -> dict[str, Any] | None:
        """What the message has led to, in the words of Marshal's outcome."""
        value = text.encode("utf-8", "surrogatepass")
        message = claims.decode(value)
        offset = self._world.offset + 1
        self._world.judge(InputRecord("m", offset, now_s * 1_000, value))
        if isinstance(message, Rejected):
            return None
        found = self._pause(message) if isinstance(message, ReleaseGroup) else self._slot(message)
        return {**found, "encoded": claims.encode(message).decode()}

    def _pause(self, message: ReleaseGroup) -> dict[str, Any]:
        """On the sender's clock; a pause that has ended already is none here, and was one there."""
        until_s = message.expire_s
        if self._world.paused_by(message.group) is not None:
            until_ms, _ = self._world.pauses[message.group]
            until_s = message.time_s + (until_ms - self._world.clock_ms) // 1_000
        return {"paused": message.group, "until": until_s}

    def _slot(self, message: AnyMessage) -> dict[str, Any]:
        slot = self._world.slots.get((message.group, message.topic, message.partition))
        return {
            "claimed": self._world.is_live(slot),
            "client": slot.client if slot else "",
            "instance": slot.instance if slot else "",
            "offset": slot.position or 0 if slot else 0,
        }


def compare(name: str, lines: Iterable[str]) -> Iterator[Difference | None]:
    """Each step of a file: how it differs, or None."""
    for number, line in enumerate(lines, 1):
        replay = Replay()
        for place, (now_s, text, expected) in enumerate(json.loads(line)):
            found = _comparable(text, replay.step(now_s, text), expected)
            where = f"{name}:{number}[{place}]"
            yield None if found is None else Difference(where, text, expected, found)


def _comparable(text: str, found: Any, expected: Any) -> Any:
    """What was found, if it differs in what may be compared."""
    if found is None or expected is None:
        return None if found is expected else found or "rejected"
    if "paused" in expected or text.split("/")[5] == COMPARED:
        return None if found == expected else found
    return None if found["encoded"] == expected["encoded"] else found


def main(arguments: list[str]) -> int:
    steps = 0
    different: list[Difference] = []
    for name in arguments:
        with Path(name).open(encoding="utf-8") as lines:
            for difference in compare(name, lines):
                steps += 1
                if difference is not None:
                    different.append(difference)
    shown = [each._asdict() for each in different[:SHOWN_MAX]]
    print(json.dumps({"steps": steps, "different": len(different), "first": shown}))
    return 1 if different or not steps else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
