"""The lists that appenders append to: what readers see of them, and the history of both."""

import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, closing
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Consumer, IsolationLevel, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec  # type: ignore[attr-defined]
from deltalake import DeltaTable

from coordlib.client import CommittedReader, CoordinatedConsumer
from coordlib.client.kit.process import boottime_ms
from coordlib.client.transactions.committed import UndecidedTransaction
from coordlib.core.wire.offsets import COORDINATOR, KAFKA
from coordlib.demo.history import Happened
from coordlib.errors import CannotReach
from coordlib.kafka.reading import read_to_end
from tests.kit.processes import PATIENCE_S
from tests.stack.crew import Crew

_POLL_S: Final = 0.2
_LATE: Final = (KafkaError._PARTITION_EOF, KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT)
_LAST: Final = "last reader"
#: What the rows of a table are called, as the partition of a list.
TABLE: Final = "table-0"


class Lists(AbstractContextManager["Lists"]):
    """A topic of lists, and a reader of them that never stops.

    Args:
        lists: partitions of the topic.
        decided_by: who decides about what is appended.
    """

    def __init__(
        self, bootstrap_servers: str, topic: str, lists: int, decided_by: str = KAFKA
    ) -> None:
        self.topic, self.lists, self._decided_by = topic, lists, decided_by
        self._options: dict[str, Any] = {"bootstrap.servers": bootstrap_servers}
        admin = AdminClient(self._options)
        admin.create_topics([NewTopic(topic, lists, 1)])[topic].result(30)
        self.told: list[Happened] = []
        #: Values that the reader has been given; none is given twice, or the history says so.
        self.count = 0
        self._failures: list[str] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def read_all(self) -> None:
        """Once no transaction is open: every list to its end, by a new reader."""
        self._stop.set()
        self._thread.join(PATIENCE_S)
        assert not self._failures, self._failures[0]
        began_ms = boottime_ms()
        self._until_decided()
        for message in self._messages():
            self._read(_LAST, message)
        names = tuple(f"{self.topic}-{place}" for place in range(self.lists))
        self._tell("read_to_end", member=_LAST, partitions=names, began_ms=began_ms)

    def _messages(self) -> Iterator[Any]:
        if self._decided_by == COORDINATOR:
            yield from self._messages_decided_here()
            return
        for place in range(self.lists):
            yield from read_to_end(self._options, self.topic, place)

    def _messages_decided_here(self) -> Iterator[Any]:
        ends, deadline = self._ends(IsolationLevel.READ_UNCOMMITTED), time.monotonic() + PATIENCE_S
        with CommittedReader(self._options) as reader:
            reader.assign(self._beginnings())
            while any(
                reader.last_stable(place) < end
                for place, end in zip(self._beginnings(), ends, strict=True)
            ):
                assert time.monotonic() < deadline, "a transaction stays open"
                if (message := _next(reader)) is not None:
                    yield message
            while (message := _next(reader)) is not None:
                yield message

    def _beginnings(self) -> list[TopicPartition]:
        return [TopicPartition(self.topic, place, 0) for place in range(self.lists)]

    def _until_decided(self) -> None:
        """Wait until the last stable offsets are the ends of the logs."""
        deadline = time.monotonic() + PATIENCE_S
        while self._ends(IsolationLevel.READ_COMMITTED) != self._ends(
            IsolationLevel.READ_UNCOMMITTED
        ):
            assert time.monotonic() < deadline, "a transaction stays open"
            time.sleep(0.2)

    def _ends(self, isolation: IsolationLevel) -> list[int]:
        newest = OffsetSpec.latest()  # type: ignore[no-untyped-call]  # a client without stubs
        wanted = {TopicPartition(self.topic, place): newest for place in range(self.lists)}
        admin = AdminClient(self._options)  # its answers are lost with it
        asked = admin.list_offsets(wanted, isolation_level=isolation)
        return [asked[place].result(30).offset for place in wanted]

    def _follow(self) -> None:
        """Read all lists from their beginnings, also while brokers come and go."""
        try:
            with closing(self._open()) as reader:
                reader.assign(self._beginnings())
                while not self._stop.is_set():
                    if (message := _next(reader)) is not None:
                        self._read("reader", message)
                        self.count += 1
        except Exception as problem:  # told by `read_all`
            self._failures.append(repr(problem))
            raise

    def _open(self) -> Any:
        config: dict[str, Any] = {**self._options, "log_level": 0}
        if self._decided_by == COORDINATOR:
            return CommittedReader(config)
        config |= {"group.id": "lists", "enable.auto.commit": False}
        return Consumer({**config, "isolation.level": "read_committed"})

    def _read(self, reader: str, message: Any) -> None:
        place = f"{message.topic()}-{message.partition()}"
        value = message.value().decode()
        self._tell("read", member=reader, partitions=(place,), offset=message.offset(), value=value)

    def _tell(self, what: str, **fields: Any) -> None:
        self.told.append(Happened(boottime_ms(), what, **fields))

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(PATIENCE_S)


def _next(reader: Any) -> Any:
    """The next record; None: none in time, or none can be known just now."""
    try:
        message = reader.poll(_POLL_S)
    except (CannotReach, UndecidedTransaction):
        time.sleep(_POLL_S)  # the coordinator is away
        return None
    if message is None:
        return None
    error = message.error()
    if error is None:
        return message
    if error.fatal() or not (error.retriable() or error.code() in _LATE):
        raise AssertionError(error.str())
    return None


def read_table(table: Path) -> list[Happened]:
    """All rows of a table that `tests.stack.lake_appender` has appended to, as one list.

    A table has no order; its rows are given that of their batches.
    """
    began_ms = boottime_ms()
    rows = DeltaTable(table).to_pyarrow_table().to_pylist()
    rows.sort(key=lambda row: (row["sent_ns"], row["partition"], row["offset"]))
    told: dict[str, Any] = {"member": _LAST, "partitions": (TABLE,)}
    found = [
        Happened(boottime_ms(), "read", offset=n, value=row["value"], **told)
        for n, row in enumerate(rows)
    ]
    return [*found, Happened(boottime_ms(), "read_to_end", began_ms=began_ms, **told)]


def fetched(bootstrap_servers: str, group: str, topic: str, partitions: int) -> Happened:
    """What a group has committed."""
    began_ms = boottime_ms()
    with CoordinatedConsumer({"bootstrap.servers": bootstrap_servers, "group.id": group}) as reader:
        rows = reader.committed([TopicPartition(topic, n) for n in range(partitions)])
    offsets = {f"{row.topic}-{row.partition}": max(-1, row.offset) for row in rows}
    return Happened(
        boottime_ms(), "fetched", member="last", group=group, offsets=offsets, began_ms=began_ms
    )


def history_of(crew: Crew, told: Iterable[Happened]) -> list[Happened]:
    """Everything that appenders and readers have told, in the order of time."""
    crew.read_on()
    found = [
        _happened(line, member.name)
        for member in crew.members.values()
        for line in member.lines
        if "transaction" in line
    ]
    found += [Happened(ns // 1_000_000, what, detail=text) for ns, what, text in crew.faults]
    found += [Happened(ns // 1_000_000, "ended", member=name) for ns, name in crew.gone]
    return sorted([*found, *told], key=lambda each: each.t_ms)


def _happened(line: dict[str, Any], member: str) -> Happened:
    """A line of an appender."""
    more: dict[str, Any] = {}
    if line["what"] == "sent":
        place = f"{line['topic']}-{line['partition']}"
        more = {"partitions": (place,), "value": line["value"], "key": line["key"]}
    elif line["what"] == "offsets":
        offsets = {f"{topic}-{n}": offset for topic, n, offset in line["offsets"]}
        more = {"group": line["group"], "offsets": offsets}
    elif line["what"] == "ended":
        more = {"detail": line["outcome"]}
    return Happened(
        line["at_ns"] // 1_000_000,
        line["what"],
        member=member,
        transaction=line["transaction"],
        **more,
    )
