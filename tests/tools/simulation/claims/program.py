"""A process with one consumer of claims, and its user, who works on what he is handed out.

He asks whether he may work before he does, and commits what is done. With delivery at most once he
has what he was handed out; whether he may still work on it decides nothing about that.
"""

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any, Protocol

from coordlib.client.claims.claim import Claim, Phase
from coordlib.client.claims.consumer import MarshalConsumer, Marshaler
from coordlib.client.claims.events import ClaimLost, UnseenOffset
from coordlib.client.claims.machine import ClaimMachine
from coordlib.client.claims.member import ClaimingMember
from coordlib.client.claims.options import ConsumerOptions
from coordlib.client.kit.events import TopicPartition
from coordlib.demo.history import Happened
from coordlib.errors import CoordError
from tests.tools.simulation.claims.logs import ClaimsReader
from tests.tools.simulation.claims.transport import ClaimsTransport
from tests.tools.simulation.cluster import Cluster
from tests.tools.simulation.scheduler import Process
from tests.tools.simulation.waiting import VirtualCondition


@dataclass
class Habits:
    """How a user behaves; drawn by the seed."""

    luck: Random
    poll_every_ms: int
    work_ms: Callable[[], float]
    takes: int
    config: dict[str, Any]
    #: Whether what is done is committed later, and in no order: several work at once.
    commits_later: bool = False
    #: While set, his thread is stuck in something and does not poll.
    is_busy: bool = False


class Ledger(Protocol):
    """Who compares what programs do with what the log says."""

    def began(self, program: "Program", claim: Claim) -> None: ...

    def handed_out(self, program: "Program", place: TopicPartition, offset: int) -> None: ...

    def acted(self, program: "Program", place: TopicPartition, offset: int) -> None: ...


class Program(Process):
    """One process; it fails alone, and its supervisor is told."""

    def __init__(  # noqa: PLR0917  # all that one process is
        self,
        name: str,
        client: str,
        cluster: Cluster,
        habits: Habits,
        options: ConsumerOptions,
        topics: list[str],
        connect: Callable[[Process], ClaimsTransport],
        tell: Callable[[Happened], None],
        ledger: Ledger,
        failed: Callable[["Program"], None],
    ) -> None:
        super().__init__(cluster.scheduler, name)
        self.client, self.habits, self.options = client, habits, options
        self.topics = topics
        self.group = str(habits.config["group.id"])
        self._record, self._ledger, self._failed = tell, ledger, failed
        self.transport = connect(self)
        self._marshaler = Marshaler(
            {**habits.config, "client.id": client},
            transport=self.transport,
            data_consumer=ClaimsReader(cluster),
        )
        self.consumer: MarshalConsumer = self._marshaler.consumer(topics, options)
        self.member: ClaimingMember = self.consumer._member
        self.member.changed = VirtualCondition(self)  # type: ignore[assignment]  # as much as it uses
        self.consumer.on_claimed = self._claimed
        self.consumer.on_released = self._released
        self.consumer.on_lost = lambda places: self._gone("lost", places)
        self._pending: deque[tuple[Any, int]] = deque()
        #: What is begun, and not committed yet.
        self._open: list[Any] = []
        self.is_done = False
        #: Whether it takes all that it can get.
        self.covers = False
        #: What it has met.
        self.counts: Counter[str] = Counter()
        self.tell("started", delivery=options.delivery if options.is_at_most_once else "")
        self.transport.on_given_up = lambda: self.tell("commit_failed")
        self.after(1, self._turn)

    @property
    def instance(self) -> str:
        """The 8 digits of its process."""
        return self._marshaler.instance

    @property
    def life(self) -> ClaimMachine:
        return self.member.life

    def told(self) -> list[TopicPartition]:
        """What its user was told to have, whether or not he may work on it."""
        return [place for place, claim in self.life.me.claims.items() if claim.is_reported]

    def is_told_of(self, place: TopicPartition) -> bool:
        claim = self.life.me.claims.get(place)
        return claim is not None and claim.is_reported

    def may_work_on(self, place: TopicPartition) -> bool:
        """By its own clock, at this moment of true time; asking changes nothing."""
        return (
            self.member.failure is None
            and not self.is_done
            and self.life.claim_of(place, self.transport.now_ms()) is not None
        )

    def tell(self, what: str, **fields: Any) -> None:
        now_ms = self.scheduler.now_ms
        self._record(Happened(now_ms, what, member=self.name, group=self.group, **fields))

    # ---- callbacks ----------------------------------------------------------------------------

    def _claimed(self, places: tuple[TopicPartition, ...]) -> None:
        self.tell("assigned", partitions=tuple(map(name_of, places)))
        for place in places:
            self.counts["claimed"] += 1
            self._ledger.began(self, self.life.me.claims[place])

    def _released(self, places: tuple[TopicPartition, ...]) -> None:
        """He commits what is done."""
        for message in [each for each in self._open if place_of(each) in places]:
            self._open.remove(message)
            self._commit(message)
        self._gone("revoked", places)

    def _gone(self, what: str, places: tuple[TopicPartition, ...]) -> None:
        self.counts[what] += 1
        self.tell(what, partitions=tuple(map(name_of, places)))
        self._pending = deque(row for row in self._pending if place_of(row[0]) not in places)
        self._open = [each for each in self._open if place_of(each) not in places]

    # ---- the user's thread --------------------------------------------------------------------

    def _turn(self) -> None:
        if self.is_done:
            return
        if self.habits.is_busy:
            self.after(self.habits.poll_every_ms, self._turn)
            return
        try:
            self._commit_some()
            for message in self.consumer.consume(self.habits.takes, 0):
                if message.error() is None:
                    place = place_of(message)
                    token = self.life.me.claims[place].epoch
                    self._note_handed_out(place, message.offset())
                    self._pending.append((message, token))
        except CoordError as problem:
            self._fail(problem)
            return
        self._go_on()

    def _note_handed_out(self, place: TopicPartition, offset: int) -> None:
        if self.options.is_at_most_once:
            self.tell("handed_out", partitions=(name_of(place),), offset=offset)
        self._ledger.handed_out(self, place, offset)

    def _go_on(self) -> None:
        if self._pending:
            message, token = self._pending[0]
            self.after(self.habits.work_ms(), lambda: self._act(message, token))
        else:
            self.after(self.habits.poll_every_ms, self._turn)

    def _act(self, message: Any, token: int) -> None:
        if self.is_done:
            return
        if not self._pending or self._pending[0][0] is not message:
            self._go_on()  # it has lost the partition meanwhile
            return
        self._pending.popleft()
        place, offset = place_of(message), message.offset()
        if self.consumer.may_work(message):
            self.tell("act", partitions=(name_of(place),), offset=offset, fence=token)
            self._open.append(message)
            self._commit_some()
        else:
            self.counts["stopped before it worked"] += 1
        if self._pending:
            self._go_on()
        else:
            self.after(1, self._turn)

    def _commit_some(self) -> None:
        """All that is done, or by luck some of it."""
        habits, luck = self.habits, self.habits.luck
        done = [each for each in self._open if not habits.commits_later or luck.random() < 0.3]
        luck.shuffle(done)
        for message in done:
            self._open.remove(message)
            self._commit(message)

    def _commit(self, message: Any) -> None:
        try:
            self.consumer.commit(message)
            self._ledger.acted(self, place_of(message), message.offset())
        except (ClaimLost, UnseenOffset):  # it was lost while he worked
            self.counts["commit after a loss"] += 1

    # ---- ends ---------------------------------------------------------------------------------

    def close(self, releases: bool = True) -> None:
        """The user ends it in good order; what is still on its way gets its time."""
        if not self.is_alive or self.is_done:
            return
        self.consumer.close(releases, timeout=0)
        self.is_done = True
        self.tell("ended", detail="closed")
        self.after(2 * self.transport.place.interval_ms, self._exit)

    def _fail(self, problem: CoordError) -> None:
        self.counts["failed"] += 1
        self.is_done = True
        self.tell("ended", detail=f"failed: {problem.what}")
        self._exit()
        self._failed(self)

    def _exit(self) -> None:
        super().kill()
        self.transport.close()

    def kill(self) -> None:
        if self.is_alive:
            self._exit()
            self.tell("ended", detail="killed")

    @property
    def is_in(self) -> bool:
        """Whether its user has not ended it."""
        return self.is_alive and not self.is_done

    def is_at_a_batch(self) -> bool:
        """Whether a batch of it is announced, and not handed out."""
        return any(claim.batch_end > claim.allowed_end for claim in self.life.me.claims.values())

    def held(self) -> list[TopicPartition]:
        claims = self.life.me.claims.items()
        return [place for place, claim in claims if claim.phase is Phase.HELD]


def place_of(message: Any) -> TopicPartition:
    return TopicPartition(message.topic(), message.partition())


def name_of(place: TopicPartition) -> str:
    """As recorded histories name a partition."""
    return f"{place.topic}-{place.partition}"
