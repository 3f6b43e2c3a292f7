"""Processes that share a topic by claims (`tests.stack.claimer`), and what they wrote down."""

import json
import signal
import subprocess
import time
import uuid
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from coordlib.client.claims.admin import Survey
from coordlib.client.kit.process import boottime_ns
from coordlib.core.claims.slots import Judgement, Verdict
from coordlib.core.wire import claims
from coordlib.core.wire.claims import AnyMessage
from coordlib.demo.history import AT_MOST_ONCE, Happened, write
from coordlib.kafka.cluster import create_topic
from coordlib.kafka.coordination import create_coordination
from tests.stack.processes import launch
from tests.stack.recorded import HISTORY, checked_history

#: HI is 6 s.
COORDINATION = "__marshal.6s"
PARTITIONS = 4
HI_S = 6.0
#: Longer than any wait should be, on a machine that does much else; who reaches it fails.
PATIENCE_S = 120.0


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


def _death_of(of: "Claimer") -> list[dict[str, Any]]:
    if of.killed_ns is None:
        return []
    return [{"what": "failed", "at_ns": of.killed_ns, "text": "killed"}]


class Claimer:
    """One process."""

    def __init__(self, started: "subprocess.Popen[bytes]", client: str, witness: Path) -> None:
        self.process, self.client, self._witness = started, client, witness
        self.killed_ns: int | None = None

    @property
    def lines(self) -> list[dict[str, Any]]:
        """What it wrote down, whole lines only."""
        if not self._witness.exists():
            return []
        text = self._witness.read_text()
        return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]

    def told(self, *kinds: str) -> list[dict[str, Any]]:
        return [line for line in self.lines if line["what"] in kinds]

    @property
    def partitions(self) -> set[int]:
        """What its callbacks have given it, less what they took."""
        held: set[int] = set()
        for line in self.told("claimed", "released", "lost"):
            some = set(line["partitions"])
            held = held | some if line["what"] == "claimed" else held - some
        return held

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        self.process.wait()
        self.killed_ns = boottime_ns()


class Claimers(AbstractContextManager["Claimers"]):
    """A topic, its coordination topic, and the processes of one group."""

    def __init__(self, servers: str, folder: Path, partitions: int) -> None:
        self.config = {"bootstrap.servers": servers}
        self.folder, self.partitions = folder, partitions
        self.group = f"claims-{uuid.uuid4().hex[:8]}"
        self.topic = f"records-of-{self.group}"
        create_coordination(self.config, COORDINATION, PARTITIONS, 1)
        create_topic(self.config, self.topic, partitions)
        self.all: list[Claimer] = []
        #: `delivery` of each process.
        self._deliveries: dict[Claimer, str] = {}
        self.written = 0
        self._producer = Producer({**self.config, "linger.ms": 5})

    def start(self, client: str, work_s: float = 0.0, **options: Any) -> Claimer:
        witness = self.folder / f"{client}-{len(self.all)}.jsonl"
        config = {**self.config, "group.id": self.group, "client.id": client}
        started = launch(
            witness.with_suffix(".log"),
            "tests.stack.claimer",
            config=json.dumps(config),
            topic=self.topic,
            coordination=COORDINATION,
            witness=str(witness),
            options=json.dumps(options),
            work_s=str(work_s),
        )
        made = Claimer(started, client, witness)
        self.all.append(made)
        if options.get("delivery") == AT_MOST_ONCE:
            self._deliveries[made] = AT_MOST_ONCE
        return made

    def put(self, count: int) -> None:
        """So many records, into the partitions in turn."""
        for _ in range(count):
            number = self.written % self.partitions
            self._producer.produce(self.topic, str(self.written).encode(), partition=number)
            self.written += 1
        assert self._producer.flush(30) == 0

    def wait(self, what: str, until: Callable[[], object]) -> float:
        """Until it holds; the seconds that passed."""
        began = time.monotonic()
        while not until():
            assert time.monotonic() - began < PATIENCE_S, what
            time.sleep(0.05)
        return time.monotonic() - began

    def done(self, *kinds: str) -> list[tuple[int, int]]:
        """(partition, offset) of all lines of these kinds, of all processes."""
        rows = (line for each in self.all for line in each.told(*kinds or ("record",)))
        return [(line["partition"], line["offset"]) for line in rows]

    def every_record(self) -> set[tuple[int, int]]:
        count, of = self.written, self.partitions
        return {(number % of, number // of) for number in range(count)}

    def history(self) -> list[Happened]:
        """All that the processes wrote down, for the checkers that simulated runs pass too."""
        found = [
            (line["at_ns"], self._happened(line, number, each))
            for number, each in enumerate(self.all)
            for line in [*each.lines, *_death_of(each)]
            if line["what"] in _WHAT
        ]
        return [each for _, each in sorted(found, key=lambda row: row[0])]

    def keeps_every_promise(self) -> Path:
        """Write the history to a file and check it from there, as `tests.tools check` does."""
        path = self.folder / HISTORY
        write(path, self.history())
        return checked_history(self.folder)

    def _happened(self, line: dict[str, Any], number: int, of: Claimer) -> Happened:
        delivery = self._deliveries.get(of, "")
        what = _WHAT[line["what"]]
        if line["what"] == "gave_up":  # at least once it was given up, and not done
            what = "handed_out" if delivery else "commit_failed"
        rows = line.get("partitions", [line["partition"]] if "partition" in line else [])
        return Happened(
            line["at_ns"] // 1_000_000,
            what,
            member=f"{of.client}.{number}",
            group=self.group,
            partitions=tuple(f"{self.topic}-{partition}" for partition in rows),
            offset=line.get("offset", -1),
            fence=line.get("epoch", -1),
            detail=str(line.get("text") or line.get("error") or ""),
            delivery=delivery if what == "started" else "",
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

    def __exit__(self, *_: object) -> None:
        for each in self.all:
            if each.process.poll() is None:
                each.signal(signal.SIGCONT)
                each.kill()
