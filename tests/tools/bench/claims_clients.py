"""How quick consumers of claims are, on a broker of its own, without a job.

`judged` is the time from produce() of an attempt until its sender has judged it; `handed_over` from
the call of close() until the next owner's first message; `killed` from a SIGKILL of the owner until
a consumer that waits has its callback. The coordination topic has intervals of 6 s.
"""

import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from random import Random
from typing import Final

from confluent_kafka import Producer

from coordlib.cli.kit.output import say
from coordlib.client.claims import ConsumerOptions, MarshalConsumer, Marshaler
from coordlib.client.claims import events as sg
from coordlib.client.claims.kafka import KafkaClaims
from coordlib.client.claims.member import made_of
from coordlib.client.claims.transport import LogView
from coordlib.client.kit.events import TopicPartition
from coordlib.core.claims.slots import Judgement
from coordlib.core.wire import claims
from coordlib.kafka.cluster import create_topic
from tests.tools.bench.figures import spread, tell, tell_machine
from tests.tools.bench.stand import fresh_stack

BENCH: Final = "claims"
COORDINATION: Final = "__marshal.6s"
PATIENCE_S: Final = 60.0
_POLL_S: Final = 0.01
#: A process that claims the topic, says so, and waits to be killed.
_OWNER: Final = """
import sys
from coordlib.client.claims import Marshaler
marshaler = Marshaler({"bootstrap.servers": sys.argv[1], "group.id": sys.argv[2],
                       "client.id": "killed-" + sys.argv[4]}, coordination_topic=sys.argv[5])
consumer = marshaler.consumer([sys.argv[3]])
consumer.on_claimed = lambda some: print("claimed", flush=True)
while True:
    consumer.poll(0.05)
"""


def run(repeats: int, kills: int) -> int:
    """Measure all three, and tell them."""
    tell_machine(BENCH)
    with fresh_stack("bench-claims", COORDINATION) as stack:
        stack.start_broker()
        options = {"bootstrap.servers": stack.bootstrap_servers, "log_level": "0"}
        took = {
            "judged": judged(options, 10 * repeats),
            "handed_over": [handed_over(options) for _ in range(repeats)],
            "killed": [killed(options, number) for number in range(kills)],
        }
    for what, seconds in took.items():
        _tell(what, seconds)
    return 0


def _tell(what: str, seconds: Sequence[float]) -> None:
    found = {"times": len(seconds), "unit": "s", **spread(seconds, 0.5, 0.99)}
    tell(BENCH, what, **found, most=round(max(seconds), 3))


class _Prober:
    """Writes one attempt after the other, and waits until each is judged."""

    def __init__(self, transport: KafkaClaims, topic: str) -> None:
        self.topics = (topic,)
        self._transport, self._group = transport, uuid.uuid4().hex
        self._instance = transport.new_instance()
        self.changed = threading.Condition(transport.lock)
        self._judged: set[int] = set()
        self.problem: Exception | None = None
        transport.attach(self)

    def probe(self, number: int) -> float:
        write = sg.Write(number, sg.Kind.ATTEMPT, TopicPartition(self.topics[0], number))
        made = made_of(write, self._instance, "prober", self._group)
        shard = claims.partition_of(self.topics[0], self._transport.place.partitions)
        began = time.perf_counter()
        with self.changed:
            self._transport.send(self, number, shard, made)
            assert self.changed.wait_for(lambda: number in self._judged, PATIENCE_S)
        return time.perf_counter() - began

    def judged(self, view: LogView, judgement: Judgement) -> None:
        if judgement.key is not None and judgement.key[0] == self._group:
            with self.changed:
                self._judged.add(judgement.key[2])
                self.changed.notify_all()

    def feed(self, event: sg.Input) -> None:
        """It waits for judgements alone."""

    def wake_ms(self) -> int | None:
        return None

    def fail(self, problem: Exception) -> None:
        self.problem = problem


def judged(options: dict[str, str], times: int) -> list[float]:
    """Seconds from produce() of an attempt until it is judged, at random moments."""
    luck, topic = Random(1), "probed"
    transport = KafkaClaims(options, COORDINATION, client="prober")
    prober = _Prober(transport, topic)
    _until(lambda: transport.view_of(topic).may_act)
    took = []
    for number in range(times):
        time.sleep(luck.uniform(0.0, 0.1))
        took.append(prober.probe(number))
    transport.close()
    return took


def handed_over(options: dict[str, str]) -> float:
    """Seconds from close() of one consumer until the other's first message."""
    group, topic = _group_with_records(options)
    a, first = _consumer(options, group, topic, "a")
    _until(lambda: first.poll(_POLL_S) is not None)
    b, second = _consumer(options, group, topic, "b")
    ready_s = time.monotonic() + 2.0
    while time.monotonic() < ready_s:
        first.poll(0)
        assert second.poll(_POLL_S) is None
    closing = threading.Thread(target=first.close)
    began = time.perf_counter()
    closing.start()
    _until(lambda: second.poll(_POLL_S) is not None)
    took = time.perf_counter() - began
    closing.join()
    b.close(release=True)
    a.close()
    return took


def killed(options: dict[str, str], number: int) -> float:
    """Seconds from a SIGKILL of the owner until another one has claimed."""
    group, topic = _group_with_records(options)
    servers = options["bootstrap.servers"]
    arguments = [sys.executable, "-c", _OWNER, servers, group, topic, str(number), COORDINATION]
    owner = subprocess.Popen(arguments, stdout=subprocess.PIPE)
    try:
        assert owner.stdout is not None
        assert owner.stdout.readline() == b"claimed\n"
        waiting, consumer = _consumer(options, group, topic, "waits")
        ready_s = time.monotonic() + 2.0 + 6.0 * Random(number).random()
        while time.monotonic() < ready_s:
            consumer.poll(_POLL_S)
        owner.send_signal(signal.SIGKILL)
        began = time.perf_counter()
        _until(lambda: consumer.poll(_POLL_S) is not None or bool(consumer.claims()))
        took = time.perf_counter() - began
        waiting.close(release=True)
    finally:
        owner.kill()
        owner.wait()
    say(f"killed until claimed: {took:.1f} s")
    return took


def _consumer(
    options: dict[str, str], group: str, topic: str, client: str
) -> tuple[Marshaler, MarshalConsumer]:
    config = {**options, "group.id": group, "client.id": client}
    marshaler = Marshaler(config, coordination_topic=COORDINATION)
    return marshaler, marshaler.consumer([topic], ConsumerOptions(release_claims_if_behind=False))


def _group_with_records(options: dict[str, str]) -> tuple[str, str]:
    group = f"g-{uuid.uuid4().hex[:8]}"
    topic = f"of-{group}"
    create_topic(options, topic, 1)
    producer = Producer(options)
    for number in range(1_000):
        producer.produce(topic, str(number).encode())
    assert producer.flush(30) == 0
    return group, topic


def _until(holds: Callable[[], bool]) -> None:
    until = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < until, "nothing happened for a minute"
        time.sleep(0.001)
