"""All tellers of a world, and what must be true of the transactions that the job decides."""

from collections import Counter
from functools import partial
from itertools import count
from random import Random
from typing import Any, Final

import msgspec

from coordlib.core.groups.offsets.pending_commit import key_of
from coordlib.core.wire import api, codec
from coordlib.core.wire.offsets import COORDINATOR
from coordlib.core.wire.transactions import COMMIT
from coordlib.demo.history import Happened
from tests.tools.simulation.evidence import Evidence, Told
from tests.tools.simulation.transactions import given
from tests.tools.simulation.transactions.teller import BOOK, Teller
from tests.tools.simulation.violation import Violation
from tests.tools.simulation.world import PREFIX, World

#: A situation.
WORD_AGAIN: Final = "teller's request came again"
STARTS_MS: Final = 5_000
LOOKS_MS: Final = 1_000
#: For how long a supervisor leaves it alone: once longer than the timeout of a transaction.
AWAY_MS: Final = (0, 0, 10_000)
READER: Final = "reader of books"
#: Requests that may come once more, from wherever they were held up.
_WORDS: Final = (api.InitProducerId, api.TxnOffsetCommit, api.EndTxn)
_NEWEST: Final = 300
#: What only the newest producer may ask.
#: What the history of a group calls the two.
OUTCOMES: Final = {"OffsetsCommitted": "commit", "OffsetsDropped": "abort"}


class Tellers:
    """Up to two transactional ids, each with a process that a supervisor starts again."""

    def __init__(self, world: World) -> None:
        self.world, self.luck = world, world.stream("tellers")
        ids = self.luck.choice([0, 1, 1, 2])
        self.groups = {f"teller-{n}": tuple(f"books-{n}-{m}" for m in range(3)) for n in range(ids)}
        self.numbers = {name: count(1) for name in self.groups}
        self.tellers: list[Teller] = []
        self.newest: dict[str, Teller] = {}
        #: When the next process of an id starts, of those whose newest has ended.
        self._back_ms: dict[str, float] = {}
        self.met: Counter[str] = Counter()
        self._is_ending = False

    def begin(self) -> None:
        """One after the other."""
        for name in self.groups:
            self.world.scheduler.after(
                self.luck.uniform(0, STARTS_MS), partial(self._start_first, name)
            )
        self.world.every(LOOKS_MS, self._look_after)

    def _start_first(self, name: str) -> None:
        self.start(name)

    def start(self, name: str) -> Teller:
        """One more process of this id; older ones are fenced by it."""
        world = self.world
        process = f"{name}-{len(self.tellers)}"
        teller = Teller(
            world.cluster,
            process,
            name,
            self.groups[name],
            world.plan.shards,
            PREFIX,
            world.stream(f"teller {process}"),
            self.numbers[name],
            world.history.append,
        )
        self.tellers.append(teller)
        self.newest[name] = teller
        return teller

    def _look_after(self) -> bool:
        now_ms = self.world.scheduler.now_ms
        for name, teller in list(self.newest.items()):
            if teller.is_done and not self._is_ending:
                if name not in self._back_ms:
                    self._back_ms[name] = now_ms + self.luck.choice(AWAY_MS)
                if now_ms >= self._back_ms[name]:
                    del self._back_ms[name]
                    self.start(name)
        return True

    def running(self) -> list[Teller]:
        """The newest of each id, without those that are stopped."""
        return [each for each in self.newest.values() if not (each.is_done or each.is_stopped)]

    def words_again(self, luck: Random) -> None:
        """One of the newest requests of tellers stands in its log once more."""
        place = f"{PREFIX}.requests", luck.randrange(self.world.plan.shards)
        records = self.world.cluster.partitions[place].records[-_NEWEST:]
        told = [each for each in records if isinstance(codec.decode_request(each.value), _WORDS)]
        if told:
            again = luck.choice(told)
            self.met[WORD_AGAIN] += 1
            self.world.cluster.append(place, again.key, again.value)

    def heal(self) -> None:
        """Older processes are gone."""
        for teller in self.tellers:
            if teller not in self.newest.values():
                teller.kill()

    def end(self) -> None:
        """Each ends behind its transaction."""
        self._is_ending = True
        for teller in self.tellers:
            teller.is_ending = True

    def kill(self) -> None:
        """The world is over: no thread stays."""
        self._is_ending = True
        for teller in self.tellers:
            teller.kill()

    # ---- what the history needs ----------------------------------------------------------------

    def lines(self) -> list[Happened]:
        """What each group has at the end, for the history."""
        now_ms, found = self.world.scheduler.now_ms, []
        for shard in range(self.world.plan.shards):
            known = self.world.cluster.newest_by_key(f"{PREFIX}.committed", shard)
            for key, value in known.items():
                group, topic, number = msgspec.json.decode(key)
                if topic == BOOK:
                    at = {f"{topic}-{number}": msgspec.json.decode(value)["offset"]}
                    fields: dict[str, Any] = {"group": group, "offsets": at, "began_ms": now_ms}
                    found.append(Happened(now_ms, "fetched", member=READER, **fields))
        return found


def check(world: World, evidence: Evidence) -> None:
    """INV-91 to INV-96 and INV-98, by the history of the job, of all that it decides."""
    decided = decisions(evidence)
    done: dict[tuple[str, str], str] = {}
    for event in evidence.told:
        if event.type not in OUTCOMES or event.detail.get("decided_by") != COORDINATOR:
            continue
        key, outcome = event.detail["transaction"], OUTCOMES[event.type]
        if (event.group, key) in done:
            raise Violation(f"INV-95: {event.group} was told of {key} twice")
        done[event.group, key] = outcome
        if decided.get(key) != outcome:
            raise Violation(
                f"INV-91: {event.group} has {outcome} of {key}, and it is {decided.get(key)}"
            )
    for group, key in _waited(evidence):
        if (group, key) not in done:
            raise Violation(f"INV-96: offsets of {key} still wait in {group}")
    _check_told(world)
    given.check(evidence.asked, evidence.answers, evidence.told)


def _check_told(world: World) -> None:
    """INV-95, INV-96: nothing is left to be told to another shard."""
    for shard in range(world.plan.shards):
        outbox = world.cluster.newest_by_key(f"{PREFIX}.outbox", shard)
        left = [key for key in outbox if isinstance(msgspec.json.decode(key)[0], int)]
        if left:
            raise Violation(f"INV-96: {left[0].decode()} was never fed, or never confirmed")


def decisions(evidence: Evidence) -> dict[str, str]:
    """Key of a transaction -> its result. Raises Violation: it was decided twice."""
    found: dict[str, str] = {}
    for event in evidence.told:
        if event.type == "TransactionPrepared":
            key = key_of(event.detail["producer_id"], event.detail["epoch"])
            if key in found:
                raise Violation(f"INV-92: {key} was decided twice")
            found[key] = COMMIT if event.detail["result"] == COMMIT else "abort"
    return found


def _waited(evidence: Evidence) -> set[tuple[str, str]]:
    """Group and key of all offsets that a transaction of the coordinator has left to wait."""

    def is_ours(event: Told) -> bool:
        return event.type == "OffsetsPending" and event.detail.get("decided_by") == COORDINATOR

    return {(each.group, each.detail["transaction"]) for each in evidence.told if is_ours(each)}
