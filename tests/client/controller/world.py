"""Programs with one broker each, over the real core in memory. Two acting leaders are refused.

S = 8 s, RT = 12 s, F = 16 s, a heartbeat every 2 s, so the margin is 2 s.
"""

from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from coordlib.client import BrokerAgent, BrokerTiming, Endpoint, Following, Leadership
from coordlib.client.admin import Admin
from coordlib.client.kit.events import Partitions, TopicPartition
from coordlib.core.wire import api
from coordlib.errors import CoordError
from coordlib.testing.fake_log import FakeLog, FakeTransport
from tests.tools import clusters as c

TIMING = BrokerTiming(
    session_timeout_ms=8_000, release_timeout_ms=12_000, heartbeat_interval_ms=2_000
)
CLUSTER = "shop"
T0 = TopicPartition("t", 0)


class Store:
    """A program with one broker: leads and follows what it is told, and writes that down."""

    def __init__(self, log: FakeLog, broker: int, **more: Any) -> None:
        self.transport: FakeTransport = more.pop("transport", None) or log.transport()
        self.number = broker
        self.told: list[tuple[Any, ...]] = []
        #: What it would act on, by its callbacks: place to leadership.
        self.leads: dict[TopicPartition, Leadership] = {}
        self.is_open = self.is_busy = False
        #: Raised by the next callback.
        self.raises: Exception | None = None
        self.errors: list[CoordError] = []
        self.is_over = False
        common: dict[str, Any] = {
            "client": f"store-{broker}",
            "endpoints": [Endpoint("in", f"host-{broker}", 9092)],
            "timing": TIMING,
            "on_leader": self._leader,
            "on_follower": self._follower,
            "on_resign": self._resign,
            "on_stop": self._stop,
            "on_fenced": self._fenced,
            "on_unfenced": self._unfenced,
        }
        self.agent = BrokerAgent(
            CLUSTER,
            broker=broker,
            transport=self.transport,
            **{**common, **more},
        )

    def acts_on(self) -> set[TopicPartition]:
        """What it acts on as leader at this moment."""
        return {place for place in self.leads if self.agent.may_lead(*place)}

    def poll(self) -> None:
        if self.is_busy or self.is_over:
            return
        try:
            self.is_over = not self.agent.poll()
        except CoordError as error:
            self.errors.append(error)

    def kinds(self) -> list[str]:
        """The callbacks that it was told, in order."""
        return [each[0] for each in self.told]

    # ---- callbacks ------------------------------------------------------------------------------

    def _leader(self, given: Leadership) -> None:
        self._tell("leader", given.topic, given.partition, given.epoch)
        self.leads[TopicPartition(given.topic, given.partition)] = given

    def _follower(self, told: Following) -> None:
        self._tell("follower", told.topic, told.partition, told.epoch, told.leader)
        self.leads.pop(TopicPartition(told.topic, told.partition), None)

    def _resign(self, some: Partitions) -> None:
        self._tell("resign", some)
        assert self.leads.keys() >= set(some), "asked for what it was not told to lead"
        for each in some:
            del self.leads[each]

    def _stop(self, topic: str, partition: int, delete: bool) -> None:
        self._tell("stop", topic, partition, delete)
        self.leads.pop(TopicPartition(topic, partition), None)

    def _fenced(self, reason: str) -> None:
        self._tell("fenced", reason)
        self.leads.clear()
        self.is_open = False

    def _unfenced(self) -> None:
        self._tell("unfenced")
        assert not self.leads, "it leads behind a closed door"
        self.is_open = True

    def _tell(self, *what: Any) -> None:
        self.told.append(what)
        raised, self.raises = self.raises, None
        if raised is not None:
            raise raised


class World:
    """Some brokers, and time."""

    def __init__(self) -> None:
        self.log = FakeLog({})
        self.stores: list[Store] = []
        #: All leaderships that ever acted: who, in which epoch.
        self.led: dict[tuple[TopicPartition, int], int] = {}

    def start(self, *brokers: int, is_ready: bool = True, **more: Any) -> list[Store]:
        """Brokers that are Active, and nothing else is to be done."""
        made = [self.enter(broker, **more) for broker in brokers]
        if is_ready:
            for each in made:
                each.agent.ready()
        self.run(1_000)
        return made

    def enter(self, broker: int, **more: Any) -> Store:
        store = Store(self.log, broker, **more)
        self.stores.append(store)
        return store

    def say(self, request: api.Request) -> None:
        """Somebody writes a request."""
        self.log.append(0, request)
        self.run(500)

    def create(self, *replicas: tuple[int, ...], topic: str = "t", **fields: Any) -> None:
        made = c.new_topic(topic, assignment=list(replicas), **fields)
        self.say(c.create(made, group=CLUSTER))

    def close(self, store: Store) -> None:
        """Without time for others to take over."""
        self.stores.remove(store)
        store.agent.close(timeout_s=0)

    def poll_all(self) -> None:
        for each in self.stores:
            each.poll()
            self.check()

    def check(self) -> None:
        """INV-71: one acting leader; INV-72: a leader epoch has one."""
        acting = Counter(place for each in self.stores for place in each.acts_on())
        assert max(acting.values(), default=0) <= 1, f"two acting leaders: {acting}"
        for each in self.stores:
            for place in each.acts_on():
                epoch = each.leads[place].epoch
                key = (place, each.leads[place].fence)
                who = each.agent.incarnation
                assert each.agent.may_lead(*place, epoch)
                assert self.led.setdefault(key, who) == who, "one fence, two leaders"

    def run(self, for_ms: int, step_ms: int = 250) -> None:
        self.log.pump()
        self.log.advance(for_ms, self.poll_all, step_ms)

    def until(self, what: Callable[[], bool], within_ms: int = 40_000) -> int:
        """Let time pass until something holds; how long that took."""
        begun_ms = self.log.now_ms
        while not what():
            assert self.log.now_ms - begun_ms < within_ms, "it does not come"
            self.run(250)
        return self.log.now_ms - begun_ms

    @property
    def requests(self) -> list[api.Request]:
        """All that was written, in the order of the log."""
        return [request for batch in self.log.batches for request in batch]

    def of(self, broker: int, kind: type[Any]) -> list[Any]:
        """What one broker wrote of a kind."""
        client = f"store-{broker}"
        return [each for each in self.requests if each.client == client and isinstance(each, kind)]


def outcome(future: "Future[api.AlteredRow]") -> api.AlteredRow | BaseException:
    """What a future ended with, or will raise."""
    assert future.done()
    return future.exception() or future.result()


def folder(path: Path, broker: int) -> dict[str, Any]:
    """Arguments of a broker with a folder of its own."""
    return {"folder": path / f"data-{broker}"}


def admin(log: FakeLog) -> Admin:
    """An operator."""
    return Admin(transport=log.transport())
