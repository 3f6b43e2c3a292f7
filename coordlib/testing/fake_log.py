"""A coordination log in memory, with the real core as its job and time that stands still.

Members run against it unchanged, over a `FakeTransport`. Nothing happens by itself: `pump` runs
everything that needs no time, `advance` lets time pass. Faults are switches: the job may be
down, a transport may be cut off. The driver's duties (ticks, time-and-fencing.md, rules 5 to 7) are
played in their simplest form: outputs are visible as soon as a batch is done.
"""

import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from random import Random
from types import MappingProxyType
from zlib import crc32

from msgspec import Raw

from coordlib.client.kit import events as sg
from coordlib.client.kit.requests import concerns
from coordlib.client.kit.transport import Handler
from coordlib.config import GroupConfig
from coordlib.core.engine.effects import REQUESTS, RESPONSES, Output
from coordlib.core.engine.fold import fold
from coordlib.core.engine.state import InputRecord, ShardSettings, Status
from coordlib.core.groups.assignors.model import ReplicaRacks
from coordlib.core.groups.group import GroupSettings
from coordlib.core.registry import REGISTRY
from coordlib.core.wire import api, codec
from coordlib.core.wire.stored import GROUP_SPACE
from coordlib.core.wire.topics import is_users, own_topics
from coordlib.errors import NotAllowed
from coordlib.job.background.feeder import messages_of
from coordlib.kafka.layout import Place
from coordlib.testing.signing import Keyholder

EPOCH_MS = 1_700_000_000_000  # log time at the beginning
INCARNATION = "FakeLog0"
ROUNDS_MAX = 1_000


class FakeLog:
    """Requests, responses, and the job between them.

    Args:
        topics: the topics that members share: name -> partition count.
        shards: partitions of the requests topic.
        group: the coordinator's bounds; by default without the initial rebalance delay.
        racks: of topics' replicas; other topics have none.
    """

    def __init__(
        self,
        topics: Mapping[str, int],
        shards: int = 1,
        group: GroupConfig | None = None,
        racks: ReplicaRacks = MappingProxyType({}),
    ) -> None:
        self.topics = dict(topics)
        #: How often each topic was deleted and made anew.
        self.made_anew: dict[str, int] = {}
        #: As `topics`, they may be changed while members run.
        self.racks = dict(racks)
        #: Topics that no member may see.
        self.hidden: set[str] = set()
        #: The number of questions for racks.
        self.racks_asked = 0
        self.now_ms = 0
        #: Whether the job judges what is written.
        self.job_is_up = True
        self.place = Place("coord", shards, 1, INCARNATION)
        config = group or GroupConfig(initial_rebalance_delay_ms=0)
        self._shards = [_Shard(number, shards, config) for number in range(shards)]
        self.responses: list[Output] = []
        self.outputs: list[Output] = []
        #: Members' requests, by the batch of the job that judged them.
        self.batches: list[list[api.Request]] = []
        self._unjudged: list[api.Request] = []
        self._transports: list[FakeTransport] = []
        self._tokens = 0

    def transport(self) -> "FakeTransport":
        """A transport of its own, to be cut off alone."""
        made = FakeTransport(self)
        self._transports.append(made)
        return made

    def new_token(self) -> str:
        self._tokens += 1
        return f"{self._tokens:016x}"

    def append(self, shard: int, request: api.Request) -> int:
        """Write a request; its offset."""
        self._unjudged.append(request)
        return self._shards[shard].append(codec.encode(request), self.now_ms)

    def id_of(self, topic: str) -> str:
        """Kafka's id of the topic that has this name now."""
        return f"{crc32(topic.encode()):08x}{self.made_anew.get(topic, 0):014d}"

    def make_anew(self, topic: str) -> None:
        """Somebody deletes a topic, and makes another one with its name."""
        self.made_anew[topic] = self.made_anew.get(topic, 0) + 1

    def tell_topics(self) -> None:
        """Write a listing of the topics, as the driver does for server-assigned groups."""
        own = own_topics(self.place.prefix)
        listed = [name for name in sorted(self.topics) if is_users(name, own)]
        rows = tuple(api.Topic(name, self.topics[name], self.id_of(name)) for name in listed)
        for shard in self._shards:
            shard.tell(api.TopicMetadata(v=1, topics=rows), self.now_ms)

    def tell_ended(
        self, committed: Sequence[int] = (), aborted: Sequence[int] = (), shard: int = 0
    ) -> None:
        """Write how transactions ended, by the requests in them, as the driver does."""
        ended = api.TxnDecided(v=1, committed=tuple(committed), aborted=tuple(aborted))
        self._shards[shard].tell(ended, self.now_ms)

    def pump(self) -> None:
        """Run everything that needs no time."""
        for _ in range(ROUNDS_MAX):
            moved = [transport.write() for transport in self._transports]
            moved += [self._judge()] if self.job_is_up else []
            moved += [transport.read() for transport in self._transports]
            if not any(moved):
                return
        raise AssertionError(f"Members and coordinator do not come to rest in {ROUNDS_MAX} rounds")

    def advance(
        self, by_ms: int, each: Callable[[], None] | None = None, step_ms: int = 500
    ) -> None:
        """Let time go on in steps; `each` is called after each (users poll there)."""
        until_ms = self.now_ms + by_ms
        while self.now_ms < until_ms:
            self.now_ms = min(until_ms, self.now_ms + step_ms)
            for transport in self._transports:
                transport.tell_time()
            if self.job_is_up:
                for shard in self._shards:
                    shard.tick_if_silent(self.now_ms)
            self.pump()
            if each is not None:
                each()
                self.pump()

    def stumble(self, by_ms: int, rng: Random, each: Callable[[], None]) -> None:
        """Let time go on while writing, judging and reading take their turns by chance."""
        until_ms = self.now_ms + by_ms
        while self.now_ms < until_ms:
            self.now_ms += rng.choice([20, 100, 400])
            for transport in self._transports:
                transport.tell_time()
            if self.job_is_up:
                for shard in self._shards:
                    shard.tick_if_silent(self.now_ms)
            turns: list[Callable[[], object]] = [t.write for t in self._transports]
            turns += [t.read for t in self._transports]
            turns += [self._judge] if self.job_is_up else []
            for turn in rng.sample(turns, rng.randint(len(turns) // 2, len(turns))):
                turn()
                each()

    def _judge(self) -> bool:
        if self._unjudged:
            self.batches.append(self._unjudged)
            self._unjudged = []
        made = [output for shard in self._shards for output in shard.judge(self.now_ms)]
        self.outputs += made
        has_fed = self._feed(made)
        answers = [output for output in made if output.topic == RESPONSES]
        self.responses += answers
        return bool(answers) or has_fed

    def _feed(self, made: Sequence[Output]) -> bool:
        """Messages of shards, and what has become of them, as the driver writes them."""
        has_fed = False
        for (source, to), number, body in messages_of(made):
            message = api.FromShard(v=1, source=source, seq=number, body=Raw(body))
            self._shards[to].tell(message, self.now_ms)
            has_fed = True
        for to, shard in enumerate(self._shards):
            for source, number in shard.heard_since():
                self._shards[source].tell_heard(to, number, self.now_ms)
                has_fed = True
        return has_fed


class _Shard:
    def __init__(self, number: int, shards: int, group: GroupConfig) -> None:
        driver = Keyholder()
        self._settings = driver.settings(
            ShardSettings(
                shard=number,
                shards=shards,
                reply_partitions=1,
                incarnation=INCARNATION,
                families={GROUP_SPACE: GroupSettings(group)},
                checks_invariants=True,
            )
        )
        self._signer = driver.signer(self._settings)
        self._blob: bytes | None = None
        #: A test's thread may write while another one judges.
        self._lock = threading.Lock()
        self._unjudged: list[InputRecord] = []
        self._end = 0
        self._newest_ms = 0
        self._status: Status | None = None
        #: Shard -> newest message of it that was judged, as the driver has told it.
        self._heard: dict[int, int] = {}

    def append(self, value: bytes, now_ms: int) -> int:
        with self._lock:
            offset, self._end, self._newest_ms = self._end, self._end + 1, now_ms
            self._unjudged.append(InputRecord(REQUESTS, offset, EPOCH_MS + now_ms, value))
        return offset

    def tell(self, record: api.Control, now_ms: int) -> int:
        """Write what only the driver may."""
        return self.append(self._signer.value(self._settings.shard, record), now_ms)

    def judge(self, now_ms: int) -> list[Output]:
        with self._lock:
            records, self._unjudged = self._unjudged, []
        if not records:
            return []
        done = fold(self._blob, records, self._settings, REGISTRY)
        self._blob, self._status = done.blob, done.status
        if done.status.owed > done.status.position.published:  # rule 6
            self._tick(now_ms)
        return done.outputs

    def heard_since(self) -> list[tuple[int, int]]:
        """Shards, and the newest message of each that was judged here since the last time."""
        now = dict(self._status.heard) if self._status is not None else {}
        new = [(shard, n) for shard, n in sorted(now.items()) if self._heard.get(shard) != n]
        self._heard = now
        return new

    def tell_heard(self, by: int, number: int, now_ms: int) -> None:
        """A tick that says which of its messages another shard has judged."""
        judged = self._status.position.offset if self._status is not None else -1
        self.tell(api.Tick(v=1, published=judged, heard={by: number}), now_ms)

    def tick_if_silent(self, now_ms: int) -> None:
        """Rule 7."""
        status = self._status
        if status is None or not status.has_deadline:
            return
        if now_ms - self._newest_ms >= status.cap_ms // 2:
            self._tick(now_ms)

    def _tick(self, now_ms: int) -> None:
        judged = self._status.position.offset if self._status is not None else -1
        self.tell(api.Tick(v=1, published=judged), now_ms)


def refuse_as_kafka(topics: Iterable[str]) -> None:
    """Raise what confluent-kafka raises for names that it does not pass on to librdkafka."""
    for index, name in enumerate(topics):
        if not name or name.startswith("\0"):
            raise ValueError(f"Empty topic name at index {index} isn't allowed")


class FakeTransport:
    """A transport to a `FakeLog`.

    `is_cut` holds back all that is written and read; `is_deaf` only what is read, `is_mute` only
    what is written.
    """

    #: Where its program runs, as members name it.
    host: str | None = None

    def __init__(self, log: FakeLog) -> None:
        self._log = log
        self.is_cut = self.is_deaf = self.is_mute = False
        #: So many of the next requests are given up by the producer.
        self.fail_next = 0
        self.place, self.reply = log.place, 0
        self._handlers: dict[str, Handler] = {}
        self._unwritten: deque[tuple[Handler, api.Request, int]] = deque()
        self._work: deque[Callable[[], None]] = deque()
        self._position = len(log.responses)
        self._read_ms = log.now_ms

    def now_ms(self) -> int:
        return self._log.now_ms

    def new_token(self) -> str:
        return self._log.new_token()

    def attach(self, handler: Handler) -> None:
        self._handlers[handler.identity.token] = handler
        handler.feed(sg.ReadToEnd(self.now_ms(), self._read_ms))

    def detach(self, handler: Handler) -> None:
        self._handlers.pop(handler.identity.token, None)

    def send(self, handler: Handler, request: api.Request) -> None:
        try:
            codec.encode_request(request)
        except ValueError as problem:
            event = sg.NotWritten(self.now_ms(), request.id, str(problem), is_final=True)
            self._work.append(lambda: handler.feed(event))
            return
        self._unwritten.append((handler, request, self.now_ms()))

    def in_background(self, handler: Handler, work: Callable[[], None]) -> None:
        def done() -> None:
            try:
                work()
            except NotAllowed as problem:
                handler.fail(problem)

        self._work.append(done)

    def partition_counts(
        self, topics: Sequence[str] | None, own: Collection[str] | None = None
    ) -> dict[str, int]:
        refuse_as_kafka(topics or ())
        required = topics if own is None else own
        if unseen := self._log.hidden.intersection(required or ()):
            raise NotAllowed(f"A right is missing: Read on topic {min(unseen)}.")
        known = {t: n for t, n in self._log.topics.items() if t not in self._log.hidden}
        return {topic: known[topic] for topic in known if topics is None or topic in topics}

    def topic_ids(self, topics: Collection[str]) -> dict[str, str]:
        return {topic: self._log.id_of(topic) for topic in topics if topic in self._log.topics}

    def replica_racks(self, topics: Sequence[str]) -> ReplicaRacks:
        self._log.racks_asked += 1
        known = self._log.topics
        return {topic: self._log.racks.get(topic, ()) for topic in topics if topic in known}

    def check(self) -> None:
        pass

    def close(self) -> None:
        pass

    def tell_time(self) -> None:
        for handler in list(self._handlers.values()):
            wake_ms = handler.wake_ms()
            if wake_ms is not None and wake_ms <= self.now_ms():
                handler.feed(sg.Elapsed(self.now_ms()))

    def write(self) -> bool:
        """Write and acknowledge what was sent; whether there was anything."""
        if self.is_cut:
            return False
        moved = bool(self._work)
        while self._work:
            self._work.popleft()()
        while self._unwritten and not self.is_mute:
            moved = True
            handler, request, produced_ms = self._unwritten.popleft()
            if self.fail_next:
                self.fail_next -= 1
                handler.feed(sg.NotWritten(self.now_ms(), request.id, "given up"))
                continue
            offset = self._log.append(handler.identity.shard, request)
            handler.feed(sg.Acknowledged(self.now_ms(), request.id, offset, produced_ms))
        return moved

    def read(self) -> bool:
        """Hand out everything up to the end; whether there was anything."""
        if self.is_cut or self.is_deaf:
            return False
        asked_ms = self.now_ms()
        fresh = self._log.responses[self._position :]
        self._position += len(fresh)
        for output in fresh:
            if output.value is not None:
                self._dispatch(codec.decode_response(output.value))
        self._read_ms = asked_ms
        for handler in list(self._handlers.values()):
            handler.feed(sg.ReadToEnd(self.now_ms(), asked_ms))
        return bool(fresh)

    def _dispatch(self, message: api.AnyResponse) -> None:
        for handler in list(self._handlers.values()):
            if concerns(handler.identity, message):
                handler.feed(sg.Received(self.now_ms(), message))
