"""A cluster of brokers over the real core, for commands that speak to it or read its topics."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from coordlib.cli.controller import view as cluster_view
from coordlib.cli.groups import view as group_view
from coordlib.cli.kit import reading
from coordlib.cli.kit.listing import AsOf
from coordlib.cli.kit.where import Where
from coordlib.cli.transactions import view as transaction_view
from coordlib.client import admin
from coordlib.client.admin import Admin
from coordlib.core.engine.effects import Output
from coordlib.core.wire import api
from coordlib.kafka.reading import Stamped
from coordlib.testing.fake_log import EPOCH_MS, FakeLog
from tests.tools.background import judged

WHERE = ["--bootstrap-servers", "nowhere:1", "--prefix", "coord"]
TOPIC = SimpleNamespace(error=None, partitions={0: None})
NAMES = ("clusters", "metadata", "groups", "transactions", "outbox", "requests")
REACHED = {f"coord.{name}": TOPIC for name in NAMES}


def newest(outputs: Iterable[Output], topic: str) -> dict[bytes, bytes]:
    """A topic as compaction leaves it."""
    found: dict[bytes, bytes] = {}
    for each in outputs:
        if each.topic == topic:
            found.pop(each.key, None)
            if each.value is not None:
                found[each.key] = each.value
    return found


def ask(client: Admin, kind: type[api.Request], **fields: Any) -> Any:
    """A request of a broker; the whole answer, of one part."""
    (answer,) = client._ask_in_space("shop", api.RegisterBroker.SPACE, kind, 30.0, **fields)
    return answer


class Shop:
    """Processes of brokers that say what they are told to say."""

    def __init__(self, log: FakeLog) -> None:
        self.log = log
        self.known: dict[int, Any] = {}
        self.clients: dict[int, Admin] = {}

    def start(self, *brokers: int) -> None:
        """Brokers register, and are Active."""
        for number in brokers:
            client = Admin(transport=self.log.transport(), client=f"b{number}")
            answer = ask(
                *(client, api.RegisterBroker),
                broker=number,
                endpoints=(api.Endpoint("in", f"host-{number}", 9092),),
                session_timeout_ms=10_000,
                release_timeout_ms=20_000,
                storage=f"disk-{number}",
            )
            self.known[number], self.clients[number] = answer, client
            self.wants(number, "Active")

    def wants(self, number: int, target: str) -> None:
        known = self.known[number]
        answer = ask(
            *(self.clients[number], api.BrokerHeartbeat),
            broker=number,
            incarnation=known.incarnation,
            since=known.since,
            target_state=target,
        )
        self.known[number] = SimpleNamespace(
            incarnation=known.incarnation, member=known.member, since=answer.since
        )


@contextmanager
def open_log(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeLog]:
    """A log that is judged in the background; commands speak to it and read its topics."""
    log = FakeLog({"t": 1})

    def live(_client: object, topic: str, _shard: int) -> dict[bytes, bytes]:
        return newest(list(log.outputs), topic.removeprefix("coord."))

    def stamped(*place: Any) -> dict[bytes, Stamped]:
        return {key: Stamped(value, EPOCH_MS + log.now_ms) for key, value in live(*place).items()}

    monkeypatch.setattr(admin, "KafkaTransport", lambda *_: log.transport())
    monkeypatch.setattr(Where, "reach", lambda _: REACHED)
    monkeypatch.setattr(reading, "newest_by_key", live)
    for view in (cluster_view, group_view, transaction_view):
        monkeypatch.setattr(view, "newest_by_key", live)
        monkeypatch.setattr(view, "read_as_of", lambda *_: AsOf(41, 1_772_409_590_000, 2))
    monkeypatch.setattr(transaction_view, "newest_stamped", stamped)
    with judged(log):
        yield log


@contextmanager
def open_shop(monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    """A shop over such a log."""
    with open_log(monkeypatch) as log:
        yield Shop(log)
