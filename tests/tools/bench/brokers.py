"""A cluster of brokers on the real stack: what its rows cost a batch, and how soon others lead.

All brokers are light (`brokers_light`): real agents with their own sessions and fences, in this one
process. One part after the other, each on the same cluster:

    idle        only signs of life: the time of a batch, and how soon others' joins are answered
    kill        until each partition of a broker has a leader that was told so
    isr         until the broker that came back is in sync everywhere again
    shutdown    how long a broker takes to leave in order, and how long each partition pauses
    rebuild     from a start without checkpoint until an AlterPartition is answered
"""

import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final
from uuid import uuid4

from coordlib.cli.kit.where import Where
from coordlib.client import BrokerFenced, BrokerTiming
from coordlib.client.admin import Admin
from coordlib.client.kit.events import TopicPartition
from coordlib.client.kit.transport import Transport
from coordlib.core.wire.api import NewTopic
from coordlib.errors import CannotReach, SetupError
from coordlib.local.progress import phase, to_stderr
from coordlib.local.stack import Stack
from tests.tools.bench.brokers_light import LightBrokers, open_transports
from tests.tools.bench.brokers_terms import Place, Terms
from tests.tools.bench.figures import spread, tell, tell_machine
from tests.tools.bench.gauges import Costs
from tests.tools.bench.generator import Generator
from tests.tools.bench.load import warm_up
from tests.tools.bench.rebuild import told
from tests.tools.bench.settle import load_1m
from tests.tools.bench.stand import JOB_ARGS, Stand, standing

BENCH: Final = "brokers"
PARTITIONS_PER_TOPIC: Final = 1_000
#: Whole topics of one request, which may make 10,000 partitions.
TOPICS_PER_REQUEST: Final = 10
SESSION_S: Final = BrokerTiming().session_timeout_ms / 1_000
WAIT_S: Final = 180.0
LOOK_EVERY_S: Final = 0.02
PROBES_PER_SECOND: Final = 4.0
REPLICAS_MIN: Final = 2


class Bench:
    """One cluster while it is measured."""

    def __init__(
        self, stand: Stand, transports: Sequence[Transport], size: Mapping[str, int]
    ) -> None:
        self._stand, self._transports, self.size = stand, transports, size
        self._cluster = f"bench-{uuid4().hex[:8]}"
        self._terms = Terms()
        self._brokers = LightBrokers(transports, self._cluster, self._terms)

    def close(self) -> None:
        self._brokers.close()

    # ---- the cluster --------------------------------------------------------------------------

    def begin(self) -> None:
        """Start the brokers and make the topics; returns when all of it is led."""
        numbers = range(self.size["brokers"])
        with phase(to_stderr, f"{len(numbers)} brokers register"):
            began = time.monotonic()
            for number in numbers:
                self._brokers.start(number)
            self._until("all brokers are Active", lambda: self._are_active(numbers))
            active_s = time.monotonic() - began
        with phase(to_stderr, f"{self.size['partitions']:,} partitions are made"):
            began = time.monotonic()
            self._make_topics()
            self._until("all partitions are led", self._are_all_led)
            led_s = time.monotonic() - began
        self._tell("made", active_s=round(active_s, 2), led_s=round(led_s, 2))

    def _make_topics(self) -> None:
        wanted = list(topics_of(self.size["partitions"], self.size["replicas"]))
        admin = Admin(prefix=self._stand.prefix, transport=self._transports[0])
        for first in range(0, len(wanted), TOPICS_PER_REQUEST):
            some = wanted[first : first + TOPICS_PER_REQUEST]
            for row in admin.create_topics(self._cluster, some, WAIT_S):
                if row.error != "NONE":
                    raise CannotReach(f"A topic was not made: {row.error}", row.topic)

    # ---- idle ---------------------------------------------------------------------------------

    def idle(self, seconds: float) -> None:
        """Only signs of life, and probes beside them."""
        generator, costs = self._generator(), Costs(self._stand.stack)
        try:
            warm_up(generator, self._stand, rate=0)
            generator.probes.forget()
            generator.pace.begin()
            self._terms.begin()
            costs.begin()
            with phase(to_stderr, f"Idle for {seconds:g} s"):
                generator.load(seconds, 0, PROBES_PER_SECOND)
            found = {**generator.pace.figures(), **costs.figures()}
            generator.drain(WAIT_S)
        finally:
            generator.close()
        stack = self._stand.stack
        self._tell(
            "idle",
            join_s=spread(generator.probes.took_s, 0.5, 0.99),
            probes=len(generator.probes.took_s),
            unanswered=generator.probes.unanswered,
            state_bytes=None if stack is None else stack.job.last_status().get("state_bytes"),
            fenced=self._terms.fenced,
            **found,
        )

    def _generator(self) -> Generator:
        """For its probes alone."""
        return Generator(self._stand.config, self._stand.prefix, groups=1, members=1)

    # ---- deaths -------------------------------------------------------------------------------

    def kill(self, number: int) -> list[float]:
        """Seconds until each partition of this broker has another leader that was told so."""
        lost = self._terms.led_by(number)
        self._terms.begin()
        began = time.monotonic()
        self._brokers.kill(number)
        self._until("others lead", lambda: not self._terms.left(lost, number))
        return self._terms.took_s(lost, began)

    def kills(self, numbers: Sequence[int]) -> None:
        """One broker after the other is killed and comes back."""
        took_s, returns = list[float](), list[dict[str, Any]]()
        for number in numbers:
            with phase(to_stderr, f"Broker {number} is killed"):
                took_s += self.kill(number)
            returns.append(self.come_back(number))
        self._tell(
            "kill",
            times=len(numbers),
            partitions_moved=len(took_s),
            session_s=SESSION_S,
            led_again_s=spread(took_s, 0.5, 0.99, 1.0),
            fenced=self._terms.fenced,
        )
        back_s = [each["seconds"] for each in returns]
        rows = sum(each["rows"] for each in returns)
        self._tell("isr", times=len(numbers), rows=rows, in_sync_s=spread(back_s, 0.5, 1.0))

    # ---- back again ---------------------------------------------------------------------------

    def come_back(self, number: int) -> dict[str, Any]:
        """Start this broker anew; its leaders take it into their ISRs at once."""
        self._brokers.start(number)
        self._until("it is Active", lambda: self._are_active([number]))
        began = time.monotonic()
        rows = self._take_in(number)
        return {"rows": rows, "seconds": time.monotonic() - began}

    def _take_in(self, number: int) -> int:
        """Ask for the ISRs without which others could not lead after the next death."""
        self._until("its leaders know it", lambda: self._is_known(number))
        futures = []
        picture = self._brokers.agent(number).metadata()
        for place, row in picture.partitions.items():
            if number in row.replicas and number not in row.isr and row.leader >= 0:
                isr = {each: self._brokers.agent(each).incarnation for each in (*row.isr, number)}
                leader = self._brokers.agent(row.leader)
                futures.append(leader.alter_isr(place.topic, place.partition, isr))
        for each in futures:
            answer = each.result(WAIT_S)
            if number not in answer.isr:  # type: ignore[operator]  # an accepted row has one
                raise CannotReach(f"A broker was not taken in: {answer}", self._cluster)
        return len(futures)

    def _is_known(self, number: int) -> bool:
        """Whether all have read that this process of it is there, and it has read all of them."""
        incarnation = self._brokers.agent(number).incarnation
        try:
            pictures = [self._brokers.agent(n).metadata() for n in range(self.size["brokers"])]
        except BrokerFenced:
            return False  # it has not read the picture yet
        known = [each.brokers.get(number) for each in pictures]
        return all(each is not None and each.incarnation == incarnation for each in known)

    # ---- controlled shutdown ------------------------------------------------------------------

    def shut_down(self, number: int) -> float:
        """Seconds until this broker has left in order."""
        led = self._terms.led_by(number)
        self._terms.begin()
        began = time.monotonic()
        with phase(to_stderr, f"Broker {number} shuts down"):
            self._brokers.stop(number)
        took_s = time.monotonic() - began
        self._until("others lead", lambda: not self._terms.left(led, number))
        return took_s

    def shutdowns(self, numbers: Sequence[int]) -> None:
        """One broker after the other leaves in order and comes back."""
        took_s, pauses_s = list[float](), list[float]()
        for number in numbers:
            took_s.append(self.shut_down(number))
            pauses_s += self._terms.pauses_s
            self.come_back(number)
        self._tell(
            "shutdown",
            times=len(numbers),
            partitions_moved=len(pauses_s),
            shutdown_s=spread(took_s, 0.5, 1.0),
            pause_s=spread(pauses_s, 0.5, 0.99, 1.0),
        )

    # ---- rebuild ------------------------------------------------------------------------------

    def rebuild(self, stack: Stack) -> None:
        """The checkpoint is lost; a leader asks for an ISR meanwhile."""
        place = self._led_place()
        leader = self._brokers.agent(self._terms.leader(place))
        row = leader.metadata().partitions[TopicPartition(*place)]
        isr = {each: self._brokers.agent(each).incarnation for each in row.isr}
        stack.kill_job()
        shutil.rmtree(stack.checkpoint)
        began, began_s = time.monotonic(), time.time()
        answer = leader.alter_isr(*place, isr)
        stack.start_job((*JOB_ARGS, "--without-archive", "--rebuild"))
        found = answer.result(WAIT_S)
        answered_s = time.monotonic() - began
        if found.error != "NONE":
            raise CannotReach(f"The rebuilt cluster refuses its leader: {found}", self._cluster)
        shards, rebuilt_s = told(stack.job.log.read_text())
        self._tell(
            "rebuild",
            answered_s=round(answered_s, 2),
            until_rebuilt_s=round(rebuilt_s - began_s, 2),
            reading_s=round(sum(line["read_s"] for line in shards), 2),
            restoring_s=round(sum(line["restored_s"] for line in shards), 2),
            rows=sum(line.get("metadata", 0) for line in shards),
        )

    def _led_place(self) -> Place:
        for number in range(self.size["brokers"]):
            if led := self._terms.led_by(number):
                return led[0]
        raise CannotReach("Nothing is led", self._cluster)

    # ---- small things -------------------------------------------------------------------------

    def _are_active(self, numbers: Sequence[int]) -> bool:
        return all(self._brokers.is_active(each) for each in numbers)

    def _are_all_led(self) -> bool:
        return len(self._terms) == self.size["partitions"]

    def _until(self, what: str, is_so: Callable[[], bool]) -> None:
        until = time.monotonic() + WAIT_S
        while not is_so():
            self._brokers.check()
            if time.monotonic() > until:
                raise CannotReach(f"Not within {WAIT_S:.0f} s: {what}", self._cluster)
            time.sleep(LOOK_EVERY_S)

    def _tell(self, what: str, **fields: Any) -> None:
        tell(BENCH, what, **self.size, load_1m=load_1m(), **fields)


def topics_of(partitions: int, replicas: int) -> Iterator[NewTopic]:
    """So many partitions, in topics of a thousand."""
    for number, first in enumerate(range(0, partitions, PARTITIONS_PER_TOPIC)):
        yield NewTopic(
            topic=f"topic-{number:04}",
            partitions=min(PARTITIONS_PER_TOPIC, partitions - first),
            replication_factor=replicas,
        )


def chosen(brokers: int, repeats: int) -> tuple[list[int], list[int]]:
    """Who is killed, and who shuts down: others, as far as there are enough."""
    numbers = [number % brokers for number in range(2 * repeats)]
    return numbers[:repeats], numbers[repeats:]


@contextmanager
def _made(stand: Stand, size: Mapping[str, int]) -> Iterator[Bench]:
    bench = Bench(stand, open_transports(stand.config, stand.prefix), size)
    try:
        bench.begin()
        yield bench
    finally:
        bench.close()


def run(
    *, where: Where, brokers: int, partitions: int, replicas: int, repeats: int, seconds: float
) -> int:
    """All parts in turn. Raises CannotReach, SetupError."""
    if not REPLICAS_MIN <= replicas <= brokers:
        hint = "Say --replicas 2 or more, and at least as many --brokers."
        raise SetupError("Nobody could lead after a death.", f"--replicas {replicas}", hint)
    tell_machine(BENCH)
    killed, stopped = chosen(brokers, repeats)
    size = {"brokers": brokers, "partitions": partitions, "replicas": replicas}
    with standing(where) as stand, _made(stand, size) as bench:
        bench.idle(seconds)
        bench.kills(killed)
        bench.shutdowns(stopped)
        if stand.stack is None or where.names_stack:
            to_stderr("A cluster that was named is not rebuilt")
        else:
            bench.rebuild(stand.stack)
    return 0
