"""No two members own one partition at one time, whoever was replaced or made to leave.

Processes keep the client's fence rules to the millisecond, without their margin: each works until
one session after its newest sign of life that stands in the log (rule 8), until it has not read
for its rebalance timeout (rules 9 and 10), or until it reads that it is out. Some are frozen while
they work, some write but cannot read, twins are started, operators remove members. Some lose their
generation and come back under their id; and a JoinGroup may come a second time, late (rule 12).
"""

import base64
import json
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coordlib.core.engine.effects import EVENTS, RESPONSES
from coordlib.core.groups.classic import join as join_group
from coordlib.core.groups.classic import members as guards
from coordlib.core.wire import api
from tests.tools import driving
from tests.tools.driving import Conversation
from tests.tools.examples import examples

PARTITIONS = range(4)
SEEDS = st.integers(0, 2**32)
PROFILE = settings(
    max_examples=examples(60),
    deadline=None,
    suppress_health_check=list(HealthCheck),
    derandomize=True,
)


class Process:
    """One process with a member in it, by the rules of the client."""

    def __init__(self, talk: Conversation, rnd: Random, name: str, instance: str | None) -> None:
        self.talk, self.name, self.instance = talk, name, instance
        self.session_ms, self.rebalance_ms = rnd.choice(
            ((6_000, 6_000), (6_000, 15_000), (9_000, 6_000), (12_000, 30_000))
        )
        self.member, self.generation = "", -1
        self.members: list[str] = []
        self.wants = "join"
        self.count = 0
        self.owned: set[int] = set()
        #: Newest sign of life that the log took; newest reading to the end.
        self.sign_ms = self.read_ms = talk.now_ms
        #: By when a rejoin must have been written (rule 10).
        self.owes_by_ms: int | None = None
        self.read = len(talk.outputs)
        self.is_frozen = self.is_deaf = self.is_gone = False

    @property
    def works(self) -> bool:
        """Whether it works now; once stopped it stays so until its next assignment."""
        now_ms = self.talk.now_ms
        if (
            now_ms >= self.sign_ms + self.session_ms
            or now_ms >= self.read_ms + self.rebalance_ms
            or (self.owes_by_ms is not None and now_ms >= self.owes_by_ms)
        ):
            self.owned = set()
        return bool(self.owned)

    def act(self) -> None:
        """Read, then write what is next."""
        can_read = self.talk.now_ms < self.read_ms + self.rebalance_ms
        if not self.is_deaf:
            self.listen()
        elif not can_read:
            return  # rule 9: it stops its heartbeats too
        if self.is_gone or self.wants == "wait":
            return
        verb, self.wants = self.wants, "wait"
        if verb == "join":
            self.join()
        elif verb == "sync":
            shares: dict[str, list[int]] = {member: [] for member in self.members}
            for partition in PARTITIONS if shares else ():
                shares[self.members[partition % len(shares)]].append(partition)
            written = {member: json.dumps(share).encode() for member, share in shares.items()}
            self.say(driving.sync, self.generation, self.member, assignments=written)
            self.sign_ms = self.talk.now_ms
        else:
            self.wants = "heartbeat"
            if self.works:
                self.say(driving.heartbeat, self.generation, self.member)
                self.sign_ms = self.talk.now_ms
            elif not self.is_deaf:
                self.lose_generation()

    def join(self) -> None:
        self.owned, self.owes_by_ms = set(), None  # consent to let go
        generation = self.generation if self.member else -1
        timeouts = {
            "session_timeout_ms": self.session_ms,
            "rebalance_timeout_ms": self.rebalance_ms,
        }
        self.say(driving.join, member=self.member, generation=generation, **timeouts)

    def lose_generation(self) -> None:
        """It has stopped, and does not know any more where the group is: back under its id."""
        self.owned, self.generation, self.wants = set(), -1, "join"

    def say(self, make: Any, *words: Any, **fields: Any) -> None:
        self.count += 1
        request = make(
            self.name, *words, id=f"{self.name}-{self.count}", instance=self.instance, **fields
        )
        self.talk.send(request)

    def leave(self, remain: bool = False) -> None:
        self.owned = set()
        self.talk.send(
            driving.leave(self.name, api.Leaver(self.member, self.instance), remain=remain)
        )

    def listen(self) -> None:
        read_before_ms, self.read_ms = self.read_ms, self.talk.now_ms
        outputs, self.read = self.talk.outputs[self.read :], len(self.talk.outputs)
        for output in outputs:
            if output.topic == RESPONSES and not self.is_gone:
                self.hear(json.loads(output.value or b"{}"), read_before_ms)

    def hear(self, said: dict[str, Any], read_before_ms: int) -> None:
        if said["type"] == "RebalanceInProgress":
            if said["generation"] == self.generation and self.wants == "heartbeat":
                self.rejoin(read_before_ms)
        elif said["type"] == "MemberRemoved":
            if said["member"] == self.member:
                self.stop("replaced" in said["reason"])
        elif said.get("client") == self.name and said["type"] != "LeaveGroup":
            if said["error"] != "NONE":
                self.refused(said, read_before_ms)
            elif said["id"] == f"{self.name}-{self.count}":  # nothing was asked for since
                self.answered(said)

    def refused(self, said: dict[str, Any], read_before_ms: int) -> None:
        if said["error"] == "FENCED_INSTANCE_ID":
            self.stop(for_good=True)
        elif said["error"] in ("UNKNOWN_MEMBER_ID", "ILLEGAL_GENERATION"):
            self.stop(for_good=False)
        elif said["error"] == "MEMBER_ID_REQUIRED":
            self.member, self.wants = said["member"], "join"
        else:
            self.rejoin(read_before_ms)

    def answered(self, said: dict[str, Any]) -> None:
        if said["type"] == "JoinGroup":
            self.member, self.generation = said["member"], said["generation"]
            self.members = [] if said["skip_assignment"] else [m["member"] for m in said["members"]]
            self.wants = "sync"
        elif said["type"] == "SyncGroup":
            share = base64.b64decode(said["assignment"])
            self.owned, self.wants = set(json.loads(share or b"[]")), "heartbeat"

    def rejoin(self, read_before_ms: int) -> None:
        self.wants = "join"
        if self.owes_by_ms is None:
            self.owes_by_ms = read_before_ms + self.rebalance_ms

    def stop(self, for_good: bool) -> None:
        """It is out: it stops, says so, and begins anew unless a twin has its place."""
        if self.member:
            self.leave()
        self.owned, self.owes_by_ms = set(), None
        self.member, self.generation, self.wants = "", -1, "join"
        self.is_gone = for_good


class World:
    def __init__(self, seed: int) -> None:
        self.rnd = Random(seed)
        bounds = {"requires_member_id": seed % 3 == 0, "initial_rebalance_delay_ms": 0}
        self.talk = Conversation(driving.settings(**bounds))
        self.processes: list[Process] = []
        for instance in ("i", "j", None):
            self.start(instance)

    def start(self, instance: str | None) -> None:
        name = f"n{len(self.processes)}"
        self.processes.append(Process(self.talk, self.rnd, name, instance))

    def live(self) -> list[Process]:
        return [p for p in self.processes if not (p.is_frozen or p.is_gone)]

    def step(self) -> None:
        rnd = self.rnd
        self.talk.now_ms += rnd.choice((0, 10, 100, 300, 600)) if rnd.random() < 0.98 else 5_000
        kind, live = rnd.random(), self.live()
        if kind < 0.15:
            self.talk.tick()
        elif kind < 0.18 or not live:
            self.start(rnd.choice(("i", "j", "i", None)))
        elif kind < 0.19:
            rnd.choice(live).is_frozen = True
        elif kind < 0.23:
            rnd.choice(live).is_deaf ^= True
        elif kind < 0.245:
            who = rnd.choice(self.processes)
            by_instance = who.instance is not None and rnd.random() < 0.7
            row = api.Leaver("", who.instance) if by_instance else api.Leaver(who.member)
            self.talk.send(driving.leave("admin", row, id=f"l{len(self.talk.log)}"))
        elif kind < 0.32:
            self.write_again()
        elif kind < 0.335:
            who = rnd.choice(live)
            if who.member:
                who.leave(remain=who.instance is not None)
            who.is_gone = True
        else:
            rnd.choice(live).act()

    def write_again(self) -> None:
        """A producer that was given up delivers a JoinGroup that the next one has written too."""
        read = [json.loads(each.value or b"{}") for each in self.talk.log[-120:]]
        joins = [each for each in read if each["type"] == "JoinGroup"]
        returns = [each for each in joins if each["member"] and each["generation"] < 0]
        if again := self.rnd.choice((joins, returns)):
            self.talk.send(json.dumps(self.rnd.choice(again)).encode())

    def check(self) -> None:
        owners: dict[int, str] = {}
        for process in self.processes:
            for partition in process.owned if process.works else ():
                assert partition not in owners, (partition, owners[partition], process.name)
                owners[partition] = process.name

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.step()
            self.check()

    def settle(self) -> None:
        """Faults end: who lives acts in turn, and the driver ticks."""
        self.start("i")
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
    """INV-19: twins, operators, frozen and deaf owners; and when all is quiet everything is owned
    again, however many of them are still believed to be alive."""
    world = World(seed)
    world.run(400)
    world.settle()

    owned = sorted(p for process in world.live() if process.works for p in process.owned)
    assert owned == list(PARTITIONS)
    assert not [o for o in world.talk.outputs if o.topic == EVENTS and b"Quarantined" in o.value]


def some_world_has_two_owners() -> bool:
    for seed in range(300):
        try:
            World(seed).run(400)
        except AssertionError:
            return True
    return False


def test_without_guards_two_would_own_one_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule 14 taken out: the property must find what the rule is for."""
    monkeypatch.setattr(guards, "_may_work", lambda _draft, _owner: False)

    assert some_world_has_two_owners()


def test_without_renewal_two_would_own_one_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    """An older twin that has not read yet that it is fenced heartbeats on, and may work on."""
    monkeypatch.setattr(guards, "renew_guard", lambda _draft, _member_id: None)

    assert some_world_has_two_owners()


def test_if_late_rejoins_counted_two_would_own_one_partition(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Rule 12 taken out for members that came back without a generation."""
    monkeypatch.setattr(join_group, "_is_repeat", lambda _request, _member: False)

    assert some_world_has_two_owners()
