"""No two processes work on one partition at one time, whoever is slow, deaf, frozen or removed.

Processes keep the client's fence rules to the millisecond, without their margin: each works until
one session after its newest sign of life that stands in the log (rule 8), until it has not read
for its rebalance timeout (rule 9), until a demand that it has read of must be met (rule 10), or
until it reads that it is out. Anything that was written may come a second time, late (rule 12).
"""

import json
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coordlib.core.engine.effects import EVENTS, RESPONSES
from coordlib.core.groups.assigned import members, reconciliation
from coordlib.core.groups.assigned.group import Group, Member
from coordlib.core.groups.assigned.protocol import ASSIGNED
from coordlib.core.wire import api
from tests.tools import driving
from tests.tools.assigned_groups import let_go, subscribe, topics
from tests.tools.driving import Conversation
from tests.tools.examples import examples

SEEDS = st.integers(0, 2**32)
PROFILE = settings(
    max_examples=examples(40),
    deadline=None,
    suppress_health_check=list(HealthCheck),
    derandomize=True,
)
STRATEGIES = ("sticky", "uniform", "range", "roundrobin")


class Process:
    """One process with a member in it, by the rules of the client."""

    def __init__(self, talk: Conversation, rnd: Random, name: str, strategy: str) -> None:
        self.talk, self.rnd, self.name, self.strategy = talk, rnd, name, strategy
        self.session_ms, self.rebalance_ms = rnd.choice(
            ((6_000, 6_000), (6_000, 15_000), (9_000, 6_000), (12_000, 30_000))
        )
        self.count = 0
        self.read = len(talk.outputs)
        self.is_frozen = self.is_deaf = self.is_gone = False
        self.begin_anew()

    def begin_anew(self) -> None:
        self.member, self.generation, self.is_asking = "", -1, False
        self.owned: set[int] = set()
        #: Of what it must let go of: cause -> (partitions, by when).
        self.owes: dict[int, tuple[set[int], int]] = {}
        self.released: set[int] = set()
        self.sign_ms = self.read_ms = self.talk.now_ms

    @property
    def works(self) -> bool:
        """Whether it works now; once stopped it begins anew (rule 11)."""
        now_ms = self.talk.now_ms
        dues = [due_ms for _, due_ms in self.owes.values()]
        if now_ms >= min(self.sign_ms + self.session_ms, self.read_ms + self.rebalance_ms, *dues):
            self.owned = set()
        return bool(self.owned)

    @property
    def may_go_on(self) -> bool:
        now_ms = self.talk.now_ms
        dues = [due_ms for _, due_ms in self.owes.values()]
        return now_ms < min(self.sign_ms + self.session_ms, self.read_ms + self.rebalance_ms, *dues)

    def act(self) -> None:
        """Read, then write what is next."""
        if not self.is_deaf:
            self.listen()
        if self.is_asking or self.is_gone:
            return
        if not self.member:
            self.ask()
        elif not self.may_go_on:
            self.stop()
        else:
            if self.owes and self.rnd.random() < 0.5:
                self.release(next(iter(self.owes)))
            self.say(driving.heartbeat(self.name, self.generation, self.member))
            self.sign_ms = self.talk.now_ms

    def ask(self) -> None:
        self.count += 1
        self.is_asking, self.sign_ms = True, self.talk.now_ms
        self.say(
            subscribe(
                self.name,
                f"{self.name}-{self.count}",
                strategy=self.strategy,
                session_timeout_ms=self.session_ms,
                rebalance_timeout_ms=self.rebalance_ms,
            )
        )

    def release(self, cause: int) -> None:
        partitions, _ = self.owes.pop(cause)
        self.owned -= partitions
        self.released.add(cause)
        self.say(let_go(self.name, self.generation, self.member, cause))

    def stop(self) -> None:
        """It has stopped for whatever reason: it says so, and begins anew."""
        if self.member:
            self.say(driving.leave(self.name, self.member))
        self.begin_anew()

    def say(self, request: api.AnyRequest) -> None:
        self.talk.send(request)

    def listen(self) -> None:
        read_before_ms, self.read_ms = self.read_ms, self.talk.now_ms
        outputs, self.read = self.talk.outputs[self.read :], len(self.talk.outputs)
        for output in outputs:
            if output.topic == RESPONSES and not self.is_gone:
                self.hear(json.loads(output.value or b"{}"), read_before_ms)

    def hear(self, said: dict[str, Any], read_before_ms: int) -> None:
        if said["type"] == "Subscribe" and said["id"] == f"{self.name}-{self.count}":
            self.is_asking = False
            if said["error"] == "NONE" and not self.member:
                self.member = said["member"]
                self.take(said, read_before_ms)
        elif said["type"] == "AssignmentChanged" and said["member"] == self.member:
            self.take(said, read_before_ms)
        elif self.is_out_by(said):
            self.stop()

    def is_out_by(self, said: dict[str, Any]) -> bool:
        if said["type"] == "MemberRemoved":
            return bool(said["member"] == self.member)
        return said.get("error") == "UNKNOWN_MEMBER_ID" and said["client"] == self.name

    def take(self, picture: dict[str, Any], read_before_ms: int) -> None:
        """All that it holds by now; what it has let go of meanwhile may be in it still."""
        self.generation = picture["generation"]
        was_owned = self.owned
        self.owned = {p for row in picture["partitions"] for p in row["partitions"]}
        for row in picture["release"]:
            partitions = {p for some in row["partitions"] for p in some["partitions"]}
            if row["cause"] not in self.released:
                self.owned |= partitions & was_owned
                due_ms = read_before_ms + self.rebalance_ms
                self.owes.setdefault(row["cause"], (partitions, due_ms))


class TwoOwners(AssertionError):
    """Two processes work on one partition."""


class World:
    def __init__(self, seed: int) -> None:
        self.rnd = Random(seed)
        self.talk = Conversation()
        self.talk.send(topics({"t": 5}))
        self.strategy = self.rnd.choice(STRATEGIES)
        self.processes: list[Process] = []
        for _ in range(3):
            self.start()

    def start(self) -> None:
        name = f"n{len(self.processes)}"
        self.processes.append(Process(self.talk, self.rnd, name, self.strategy))

    def live(self) -> list[Process]:
        return [p for p in self.processes if not (p.is_frozen or p.is_gone)]

    def step(self) -> None:
        rnd = self.rnd
        self.talk.now_ms += rnd.choice((0, 10, 100, 300, 600)) if rnd.random() < 0.98 else 5_000
        kind, live = rnd.random(), self.live()
        if kind < 0.15:
            self.talk.tick()
        elif kind < 0.17 or not live:
            self.start()
        elif kind < 0.18:
            rnd.choice(live).is_frozen = True
        elif kind < 0.22:
            rnd.choice(live).is_deaf ^= True
        elif kind < 0.25:
            who = rnd.choice(self.processes)
            self.talk.send(driving.leave("admin", who.member or "x", id=f"l{len(self.talk.log)}"))
        elif kind < 0.32:
            self.talk.send(rnd.choice(self.talk.log[-150:]).value)
        elif kind < 0.335:
            who = rnd.choice(live)
            who.stop()
            who.is_gone = True
        elif kind < 0.35:
            self.talk.send(topics({"t": rnd.choice((4, 5, 6))}))
        else:
            rnd.choice(live).act()

    def check(self) -> None:
        owners: dict[int, str] = {}
        for process in self.processes:
            for partition in process.owned if process.works else ():
                if partition in owners:
                    raise TwoOwners(partition, owners[partition], process.name)
                owners[partition] = process.name

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.step()
            self.check()

    def settle(self) -> None:
        """Faults end: who lives acts in turn, and the driver ticks."""
        self.start()
        self.talk.send(topics({"t": 5}))
        for process in self.processes:
            process.is_deaf = False
        for _ in range(150):
            self.talk.now_ms += 300
            self.talk.tick()
            for process in self.live():
                process.act()
            self.check()


@PROFILE
@given(SEEDS)
def test_nobody_works_on_what_another_one_owns(seed: int) -> None:
    """INV-09, INV-57: and when all is quiet everything is owned again, whoever is frozen still."""
    world = World(seed)
    world.run(400)
    world.settle()

    owned = sorted(p for process in world.live() if process.works for p in process.owned)
    assert owned == [0, 1, 2, 3, 4]
    assert not [o for o in world.talk.outputs if o.topic == EVENTS and b"Quarantined" in o.value]


def some_world_has_two_owners() -> bool:
    for seed in range(150):
        try:
            World(seed).run(400)
        except TwoOwners:
            return True
    return False


def test_without_guards_two_would_own_one_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule 14 taken out: the property must find what the rule is for."""
    monkeypatch.setattr(members, "place_guard", lambda _draft, _owner, _reason: None)

    assert some_world_has_two_owners()


def test_without_renewal_two_would_own_one_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who was removed and has not read it yet heartbeats on, and may work on."""
    monkeypatch.setattr(members, "renew_guard", lambda _draft, _member_id: None)

    assert some_world_has_two_owners()


def test_if_demanded_partitions_were_free_two_would_own_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A grant that does not wait for the Release."""

    def taken(group: Group, wanted: set[str]) -> dict[str, frozenset[int]]:
        kept = {topic: set[int]() for topic in wanted}
        for member in group.members.values():
            for topic, some in member.owned.items():
                kept.setdefault(topic, set()).update(
                    set(some) - set(member.asked_back.get(topic, ()))
                )
        return {topic: frozenset(some) for topic, some in kept.items()}

    monkeypatch.setattr(reconciliation, "_taken", taken)
    monkeypatch.setattr(ASSIGNED, "check", lambda _: None)

    assert some_world_has_two_owners()


def test_if_any_release_ended_any_demand_two_would_own_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Rule 12 taken out: a late duplicate lets go of what its member is working on."""
    monkeypatch.setattr(
        Member, "demand", lambda self, _cause: self.demands[0] if self.demands else None
    )

    assert some_world_has_two_owners()
