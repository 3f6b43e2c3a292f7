"""Writers and readers of the act `brokers`, and what they wrote down: a line when each is answered.

A writer and a reader for each partition, so that one without a leader holds up no other. A writer
puts a new key, then a newer value of the partition's counter, in turn; its reader gets the counter.
In the end every key is read that was put.
"""

import itertools
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

import msgspec
from msgspec.structs import replace

from coordlib.client.kit.process import boottime_ms
from coordlib.demo.history import Happened
from coordlib.errors import CoordError
from examples.store.client import Found, OutcomeUnknown, StoreClient, partition_of
from examples.store.wire import Address, Connection, Refused

PACE_S: Final = 0.1
WAITING_S: Final = 60.0
END_TIMEOUT_S: Final = 30.0


class Traffic(AbstractContextManager["Traffic"]):
    """Clients of one topic.

    Args:
        file: where they write down what they were answered.
        addresses: of all stores.
    """

    def __init__(
        self, file: Path, topic: str, partitions: int, addresses: Sequence[Address]
    ) -> None:
        self._topic, self._partitions = topic, partitions
        self._addresses = addresses
        self._file = file.open("ab", buffering=0)
        self._changed = threading.Lock()
        self.happened: list[Happened] = []
        #: Partition -> the number of its puts that were acknowledged.
        self.acknowledged = dict.fromkeys(range(partitions), 0)
        self._failure: Exception | None = None
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """Begin, in threads."""
        for partition in range(self._partitions):
            self._run(self._write, partition)
            self._run(self._read, partition)

    def check(self) -> None:
        """Raises CoordError when a client has failed."""
        if self._failure is not None:
            raise CoordError("A client of the store failed.", repr(self._failure), "Run it again.")

    def wait_at(self, address: Address, partition: int) -> str:
        """Send a put to a leader that will be suspended, and wait for its answer in a thread; the
        key."""
        key = next(_keys(partition, self._partitions, "waiting"))
        self._run(self._put_there, partition, address, key)
        return key

    def stop(self) -> None:
        """No more of them; what was begun is answered, or its outcome is unknown."""
        self._end(END_TIMEOUT_S)
        self.check()

    def read_everything(self) -> None:
        """Every key that was put, once.

        A read that begins in the millisecond in which a put has ended is not known to begin after
        it (`stores.unread_puts`), so this one waits for the next.
        """
        time.sleep(0.002)
        for partition in range(self._partitions):
            where = f"{self._topic}-{partition}"
            puts = {each.key: None for each in self.happened if where in each.partitions}
            client = self._client()
            for key in puts:
                self._get(client, f"last-reader-{partition}", partition, key)
            client.close()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._end(END_TIMEOUT_S if kind is None else 1.0)

    def _end(self, timeout_s: float) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(timeout_s)

    # ---- in threads -----------------------------------------------------------------------------

    def _run(self, work: Callable[..., None], *arguments: object) -> None:
        def run() -> None:
            try:
                work(*arguments)
            except Exception as problem:  # noqa: BLE001  # whatever it is, `check` raises it
                self._failure = problem

        thread = threading.Thread(target=run, name=f"demo-{work.__name__}", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _write(self, partition: int) -> None:
        client, keys = self._client(), _keys(partition, self._partitions, "order")
        counter = next(_keys(partition, self._partitions, "counter"))
        for number in itertools.count():
            if self._stop.wait(PACE_S):
                break
            key = counter if number % 2 else next(keys)
            asked = self._asked(f"writer-{partition}", partition, key, str(number))
            self._put(asked, client.put)
        client.close()

    def _read(self, partition: int) -> None:
        client = self._client()
        counter = next(_keys(partition, self._partitions, "counter"))
        while not self._stop.wait(PACE_S):
            self._get(client, f"reader-{partition}", partition, counter)
        client.close()

    def _put_there(self, partition: int, address: Address, key: str) -> None:
        """At this leader alone, however long it takes."""

        def put(key: str, value: str) -> Found:
            where = {"topic": self._topic, "partition": partition}
            try:
                connection = Connection(address, WAITING_S)
                try:
                    return Found(**connection.ask("put", **where, key=key, value=value))
                finally:
                    connection.close()
            except OSError as problem:
                raise OutcomeUnknown(str(problem)) from problem

        self._put(self._asked("waiting-writer", partition, key, "waits"), put)

    def _put(self, asked: Happened, put: Callable[[str, str], Found]) -> None:
        try:
            offset = put(asked.key, asked.value).offset
        except (OutcomeUnknown, Refused) as problem:
            # What is refused is not done; it is written down like the others, and never found.
            self._note(replace(asked, t_ms=boottime_ms(), detail=str(problem)))
        else:
            self._note(replace(asked, t_ms=boottime_ms(), what="put", offset=offset))

    def _get(self, client: StoreClient, name: str, partition: int, key: str) -> None:
        asked = self._asked(name, partition, key)
        try:
            found = client.get(key)
        except Refused as refusal:
            # Nobody led for a long time, or many in turn; the next one asks again.
            self._note(replace(asked, t_ms=boottime_ms(), what="not_got", detail=str(refusal)))
            return
        value = found.value or ""
        self._note(replace(asked, t_ms=boottime_ms(), what="got", value=value, offset=found.offset))

    def _asked(self, name: str, partition: int, key: str, value: str = "") -> Happened:
        return Happened(
            -1,
            "put_unknown",
            member=name,
            partitions=(f"{self._topic}-{partition}",),
            key=key,
            value=value,
            began_ms=boottime_ms(),
        )

    def _note(self, happened: Happened) -> None:
        with self._changed:
            self._file.write(msgspec.json.encode(happened) + b"\n")
            self.happened.append(happened)
            if happened.what == "put":
                (place,) = happened.partitions
                self.acknowledged[int(place.rpartition("-")[2])] += 1

    def _client(self) -> StoreClient:
        return StoreClient(self._topic, self._partitions, self._addresses)


def _keys(partition: int, partitions: int, word: str) -> Iterator[str]:
    """Keys that lie in a partition."""
    for number in itertools.count():
        if partition_of(key := f"{word}-{number}", partitions) == partition:
            yield key
