"""What a store of the act `brokers` writes down, in its witness file, and what that says.

A line of a store's own is `store {…}`: what happened, when, and the fields that a store tells of
(`examples.store.server`). The others are those of all witnesses.
"""

import json
from pathlib import Path
from typing import Any

from coordlib.demo.history import Happened
from coordlib.demo.witness import Witness, WitnessFile


class StoreWitnessFile(WitnessFile):
    """Written by a store, from any of its threads."""

    def told(self, what: str, at_ns: int, **fields: Any) -> None:
        self._line("store", json.dumps({"what": what, "at_ns": at_ns, **fields}))


class StoreWitness(Witness):
    """A store's file, read by the demo while it grows."""

    def __init__(self, member: str, path: Path) -> None:
        super().__init__(member, path)
        self.happened: list[Happened] = []
        #: Partition -> epoch, of all that it leads by what it wrote.
        self.led: dict[int, int] = {}
        self.is_fenced = True

    def _take(self, kind: str, rest: str) -> None:
        if kind != "store":
            super()._take(kind, rest)
            if kind == "started":
                self.led, self.is_fenced = {}, True  # the process before it had these
            return
        line = json.loads(rest)
        what = line["what"]
        if what in ("fenced", "unfenced"):
            self.is_fenced = what == "fenced"
            return
        if what == "led":
            self.led[line["partition"]] = line["epoch"]
        elif what == "resigned":
            self.led.pop(line["partition"], None)
        self.happened.append(_happened(self.member, line))


def _happened(store: str, line: dict[str, Any]) -> Happened:
    return Happened(
        line["at_ns"] // 1_000_000,
        line["what"],
        member=store,
        partitions=(f"{line['topic']}-{line['partition']}",),
        generation=line["epoch"],
        fence=line["fence"],
        offset=line.get("offset", -1),
        key=line.get("key", ""),
        value=line.get("value") or "",
    )
