"""The lists that appenders append to: what readers see of them, and the history of both."""

import threading
import time
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Final

from confluent_kafka import Consumer, IsolationLevel, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec  # type: ignore[attr-defined]

from coordlib.checking.history import Happened
from coordlib.client import CoordinatedConsumer
from coordlib.client.shell.clock import boottime_ms
from coordlib.kafka.reading import read_to_end
from tests.stack.crew import Crew
from tests.stack.processes import PATIENCE_S

_POLL_S: Final = 0.2
_LATE: Final = (KafkaError._PARTITION_EOF, KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT)


class Lists(AbstractContextManager["Lists"]):
    """A topic of lists, and a reader of them that never stops.

    Args:
        lists: partitions of the topic.
    """

    def __init__(self, bootstrap_servers: str, topic: str, lists: int) -> None:
        self.topic, self.lists = topic, lists
        self._options = {"bootstrap.servers": bootstrap_servers}
        admin = AdminClient(self._options)
        admin.create_topics([NewTopic(topic, lists, 1)])[topic].result(30)
        self.told: list[Happened] = []
        #: Values that the reader has been given; none is given twice, or the history says so.
        self.count = 0
        self._failures: list[str] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def read_all(self, group: str, source: str, partitions: int) -> None:
        """Once no transaction is open: every list to its end, by a new reader, and what the group
        has committed."""
        self._stop.set()
        self._thread.join(PATIENCE_S)
        assert not self._failures, self._failures[0]
        began_ms = boottime_ms()
        self._until_decided()
        for place in range(self.lists):
            for message in read_to_end(self._options, self.topic, place):
                self._read("last reader", message)
        names = tuple(f"{self.topic}-{place}" for place in range(self.lists))
        self._tell("read_to_end", member="last reader", partitions=names, began_ms=began_ms)
        self._fetch(group, source, partitions)

    def history(self, crew: Crew, group: str) -> list[Happened]:
        """Everything that appenders and readers have told, in the order of time."""
        crew.read_on()
        found = [
            _happened(line, member.name, group, self.topic)
            for member in crew.members.values()
            for line in member.lines
            if "transaction" in line
        ]
        found += [
            Happened(at_ns // 1_000_000, what, group=group, detail=detail)
            for at_ns, what, detail in crew.faults
        ]
        return sorted([*found, *self.told], key=lambda each: each.t_ms)

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

    def _fetch(self, group: str, source: str, partitions: int) -> None:
        began_ms = boottime_ms()
        with CoordinatedConsumer({**self._options, "group.id": group}) as consumer:
            rows = consumer.committed([TopicPartition(source, n) for n in range(partitions)])
        offsets = {f"{row.topic}-{row.partition}": max(-1, row.offset) for row in rows}
        self._tell("fetched", member="last", group=group, offsets=offsets, began_ms=began_ms)

    def _follow(self) -> None:
        """Read all lists from their beginnings, also while brokers come and go."""
        config = {"group.id": "lists", "enable.auto.commit": False, "log_level": 0}
        reader = Consumer({**self._options, **config, "isolation.level": "read_committed"})
        reader.assign([TopicPartition(self.topic, place, 0) for place in range(self.lists)])
        try:
            while not self._stop.is_set():
                message = reader.poll(_POLL_S)
                if message is None:
                    continue
                error = message.error()
                if error is None:
                    self._read("reader", message)
                    self.count += 1
                elif error.fatal() or not (error.retriable() or error.code() in _LATE):
                    self._failures.append(error.str())
                    return
        finally:
            reader.close()

    def _read(self, reader: str, message: Any) -> None:
        place = f"{message.topic()}-{message.partition()}"
        value = message.value().decode()
        self._tell("read", member=reader, partitions=(place,), offset=message.offset(), value=value)

    def _tell(self, what: str, **fields: Any) -> None:
        self.told.append(Happened(boottime_ms(), what, **fields))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join(PATIENCE_S)


def _happened(line: dict[str, Any], member: str, group: str, sink: str) -> Happened:
    """A line of an appender."""
    more: dict[str, Any] = {}
    if line["what"] == "sent":
        place = f"{sink}-{line['partition']}"
        more = {"partitions": (place,), "value": line["value"], "key": line["key"]}
    elif line["what"] == "offsets":
        more = {"offsets": {f"{topic}-{n}": offset for topic, n, offset in line["offsets"]}}
    elif line["what"] == "ended":
        more = {"detail": line["outcome"]}
    return Happened(
        line["at_ns"] // 1_000_000,
        line["what"],
        member=member,
        group=group,
        transaction=line["transaction"],
        **more,
    )
