"""Processes that share a topic by claims (`tests.stack.claimer`), and what they wrote down."""

import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from coordlib.client.claims.admin import Survey
from coordlib.core.claims.slots import Judgement, Verdict
from coordlib.core.wire import claims
from coordlib.core.wire.claims import AnyMessage
from coordlib.demo.history import AT_MOST_ONCE, Happened, write
from coordlib.kafka.cluster import create_topic
from coordlib.kafka.coordination import create_coordination
from tests.kit.processes import Line, Processes, Witness
from tests.stack.recorded import HISTORY, checked_history, events

#: HI is 6 s.
COORDINATION = "__marshal.6s"
PARTITIONS = 4
HI_S = 6.0
#: What a process tells -> what happened.
_WHAT = {
    "ready": "started",
    "claimed": "assigned",
    "released": "revoked",
    "lost": "lost",
    "record": "act",
    "gave_up": "commit_failed",
    "refused": "commit_failed",
    "failed": "ended",
    "closed": "ended",
}


class Claimer(Witness):
    """One process."""

    def __init__(self, name: str, client: str, delivery: str, folder: Path) -> None:
        super().__init__(name, folder)
        self.client, self.delivery = client, delivery

    @property
    def partitions(self) -> set[int]:
        """What its callbacks have given it, less what they took."""
        held: set[int] = set()
        for line in self.told("claimed", "released", "lost"):
            some = set(line["partitions"])
            held = held | some if line["what"] == "claimed" else held - some
        return held


class Claimers(Processes[Claimer]):
    """A topic, its coordination topic, and the processes of one group."""

    def __init__(self, servers: str, folder: Path, partitions: int) -> None:
        super().__init__(folder)
        self.config, self.partitions = {"bootstrap.servers": servers}, partitions
        self.group = f"claims-{uuid.uuid4().hex[:8]}"
        self.topic = f"records-of-{self.group}"
        create_coordination(self.config, COORDINATION, PARTITIONS, 1)
        create_topic(self.config, self.topic, partitions)
        self.written = 0
        self._producer = Producer({**self.config, "linger.ms": 5})

    def start(self, client: str, work_s: float = 0.0, **options: Any) -> Claimer:
        """Start one more; several may have one client id, one after the other."""
        delivery = AT_MOST_ONCE if options.get("delivery") == AT_MOST_ONCE else ""
        return self.launch(
            Claimer(f"{client}.{len(self.members)}", client, delivery, self.folder),
            "tests.stack.claimer",
            config={**self.config, "group.id": self.group, "client.id": client},
            topic=self.topic,
            coordination=COORDINATION,
            options=options,
            work_s=work_s,
        )

    def put(self, count: int) -> None:
        """So many records, into the partitions in turn."""
        for _ in range(count):
            number = self.written % self.partitions
            self._producer.produce(self.topic, str(self.written).encode(), partition=number)
            self.written += 1
        assert self._producer.flush(30) == 0

    def done(self, *kinds: str) -> list[tuple[int, int]]:
        """(partition, offset) of all lines of these kinds, of all processes."""
        self.read_on()
        rows = (line for each in self.members.values() for line in each.told(*kinds or ("record",)))
        return [(line["partition"], line["offset"]) for line in rows]

    def every_record(self) -> set[tuple[int, int]]:
        count, of = self.written, self.partitions
        return {(number % of, number // of) for number in range(count)}

    def keeps_every_promise(self) -> Path:
        """Write the history to a file and have it checked from there, as `tests.tools check` does;
        returns the file."""
        self.read_on()
        rows = events(self.members.values())
        found = [self._happened(line, each) for line, each in rows if line["what"] in _WHAT]
        write(self.folder / HISTORY, found)
        return checked_history(self.folder)

    def _happened(self, line: Line, of: Claimer) -> Happened:
        what = _WHAT[line["what"]]
        if line["what"] == "gave_up":  # at least once it was given up, and not done
            what = "handed_out" if of.delivery else "commit_failed"
        rows = line.get("partitions", [line["partition"]] if "partition" in line else [])
        return Happened(
            line["at_ns"] // 1_000_000,
            what,
            member=of.name,
            group=self.group,
            partitions=tuple(f"{self.topic}-{partition}" for partition in rows),
            offset=line.get("offset", -1),
            fence=line.get("epoch", -1),
            detail=str(line.get("text") or line.get("error") or ""),
            delivery=of.delivery if what == "started" else "",
        )

    def judgements(self) -> list[Judgement]:
        """The group's part of the log, as any reader judges it, in its order."""
        found: list[Judgement] = []

        def note(_: int, __: Any, judgement: Judgement) -> None:
            if judgement.key is not None and judgement.key[0] == self.group:
                found.append(judgement)

        survey = Survey(self.config, COORDINATION, "coord")
        try:
            survey.read(is_whole=True, on_record=note)
        finally:
            survey.close()
        return found

    def write(self, message: AnyMessage) -> Judgement:
        """Write it as it is; what becomes of it."""
        offsets: list[int | None] = []
        self._producer.produce(
            COORDINATION,
            claims.encode(message),
            partition=claims.partition_of(self.topic, PARTITIONS),
            on_delivery=lambda _, record: offsets.append(record.offset()),
        )
        assert self._producer.flush(30) == 0
        return next(each for each in self.judgements() if each.offset == offsets[0])

    def held_by(self, some: Iterable[Claimer]) -> set[int]:
        """The partitions that these have, together."""
        return {number for each in some for number in each.partitions}

    def tokens_rise(self) -> None:
        """In the log: epochs of a slot rise, and no sign of an earlier one counts again."""
        newest: dict[object, int] = {}
        for judgement in self.judgements():
            if judgement.verdict in (Verdict.WON, Verdict.SIGN, Verdict.RECLAIMED):
                assert judgement.after is not None
                assert judgement.after.epoch >= newest.get(judgement.key, -1)
                newest[judgement.key] = judgement.after.epoch
