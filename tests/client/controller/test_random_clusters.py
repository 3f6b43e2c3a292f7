"""Random lives of agents over the real core: writing, judging and reading take turns by chance.

After everything that happens: one acting leader (INV-71), one leader for a fence (INV-72). At rest:
what each broker believes is what the rows say (INV-79), and all is led (INV-81).
"""

from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest

from coordlib.client.controller.requests import BrokerReplaced
from coordlib.client.kit.events import TopicPartition
from coordlib.core.wire import api
from tests.client.controller.world import CLUSTER, Store, World
from tests.tools import clusters as c

BROKERS = (1, 2, 3)
PLACES = [TopicPartition(topic, number) for topic in "tu" for number in range(2)]
SEEDS = range(6)
#: What all lives together must meet.
KINDS = ("leader", "follower", "resign", "stop", "fenced", "unfenced")
MET = ("led", "isr", "stopped", "replaced")


class Life(World):
    """Three brokers with folders, operators, and what goes wrong."""

    def __init__(self, seed: int, path: Path) -> None:
        super().__init__()
        self.luck, self.path = Random(seed), path
        self.met: Counter[str] = Counter()
        for broker in BROKERS:
            self.begin(broker)
        self.run(1_000)
        for topic in "tu":
            self.create((1, 2, 3), (2, 3, 1), topic=topic, unclean=True)

    def begin(self, broker: int) -> None:
        store = self.enter(broker, client=f"store-{broker}-{self.log.now_ms}")
        store.agent.ready()

    def live(self, turns: int) -> None:
        acts = [self.cut, self.deafen, self.hang, self.stop, self.twin, self.operate, self.job]
        for number in range(turns):
            if number % 5 == 0:  # else soon nobody is left who could be asked for anything
                self.hint()
                self.log.stumble(12_000, self.luck, self.turn)
                self.log.append(0, c.elect("preferred", group=CLUSTER))
                self.stop()
            self.log.stumble(self.luck.choice([500, 2_000, 6_000]), self.luck, self.turn)
            self.luck.choice(acts)()

    def turn(self) -> None:
        for store in list(self.stores):
            if self.luck.random() < 0.7:
                store.poll()
            self.check()
            if store.is_over or any(isinstance(e, BrokerReplaced) for e in store.errors):
                self.met["replaced"] += not store.is_over
                self.met["stopped"] += store.is_over
                self.close(store)
            elif self.luck.random() < 0.1:
                self.change_isr(store)
        for broker in BROKERS:
            if broker not in [each.number for each in self.stores] and self.luck.random() < 0.2:
                self.begin(broker)

    def change_isr(self, store: Store) -> None:
        for place in store.acts_on():
            row = store.agent._machine._replicas.rows[place]
            known = store.agent._machine._picture._brokers
            isr = {each: known[each].incarnation for each in row.replicas if each in known}
            store.agent.alter_isr(*place, isr, has_recovered=True)
            assert store.agent.must_acknowledge(*place) >= set(row.isr) | {store.number}
            self.met["isr"] += 1

    # ---- what goes wrong ------------------------------------------------------------------------

    def one(self) -> Store:
        return self.luck.choice(self.stores)

    def cut(self) -> None:
        store = self.one()
        store.transport.is_cut = not store.transport.is_cut

    def deafen(self) -> None:
        store = self.one()
        store.transport.is_deaf = not store.transport.is_deaf

    def hang(self) -> None:
        store = self.one()
        store.is_busy = not store.is_busy

    def stop(self) -> None:
        self.one().agent.stop()

    def twin(self) -> None:
        """Another process with the same id; the older one may still run."""
        if self.luck.random() < 0.3:
            self.begin(self.luck.choice(BROKERS))

    def job(self) -> None:
        self.log.job_is_up = not self.log.job_is_up or self.luck.random() < 0.5

    def operate(self) -> None:
        place = self.luck.choice(PLACES)
        some = tuple(self.luck.sample(BROKERS, self.luck.randint(1, 3)))
        asked: list[Any] = [
            c.elect("preferred", group=CLUSTER),
            c.elect("unclean", group=CLUSTER),
            c.move(place, some, group=CLUSTER),
            c.move(place, None, group=CLUSTER),
            c.about(api.DeleteTopics, topics=(place.topic,), group=CLUSTER),
            c.create(c.new_topic(place.topic, assignment=[some] * 2), group=CLUSTER),
            c.leaves("ops", self.one().agent.member_id, group=CLUSTER),
        ]
        self.log.append(0, self.luck.choice(asked))

    # ---- at rest --------------------------------------------------------------------------------

    def hint(self) -> None:
        self.log.job_is_up = True
        for store in self.stores:
            store.transport.is_cut = store.transport.is_deaf = store.is_busy = False

    def heal(self) -> None:
        self.hint()
        self.run(60_000, step_ms=500)
        for store in list(self.stores):
            if store.is_over or any(isinstance(e, BrokerReplaced) for e in store.errors):
                self.close(store)
        for broker in BROKERS:
            if broker not in [each.number for each in self.stores]:
                self.begin(broker)
        self.run(30_000, step_ms=500)

    def check_rest(self) -> None:
        assert sorted(each.number for each in self.stores) == list(BROKERS)
        shown = [each.agent.metadata() for each in self.stores]
        assert shown[0] == shown[1] == shown[2]
        for place, row in shown[0].partitions.items():
            leaders = [each.number for each in self.stores if place in each.acts_on()]
            assert leaders == [row.leader], (place, row)
            for store in self.stores:
                if store.number in row.replicas:
                    assert store.agent._machine._replicas.rows[place] == row
                    assert (place in store.leads) == (row.leader == store.number)
            self.met["led"] += 1


def lived(seed: int, path: Path) -> Life:
    life = Life(seed, path)
    life.live(10)
    life.heal()
    life.check_rest()
    return life


@pytest.mark.parametrize("seed", SEEDS)
def test_promises_hold_whatever_happens(seed: int, tmp_path: Path) -> None:
    """INV-71, INV-72, INV-79, INV-81."""
    lived(seed, tmp_path)


def test_the_lives_are_full(tmp_path: Path) -> None:
    """A check that never meets its subject may be blind."""
    met: Counter[str] = Counter()
    callbacks: Counter[str] = Counter()
    for seed in (101, 102, 103):
        life = Life(seed, tmp_path)
        everybody: list[Store] = []
        enter = life.enter

        def kept(broker: int, enter: Any = enter, all_: Any = everybody, **more: Any) -> Store:
            store = enter(broker, **more)
            all_.append(store)
            return store  # type: ignore[no-any-return]

        life.enter = kept  # type: ignore[method-assign]
        everybody += life.stores
        life.live(10)
        life.heal()
        life.check_rest()
        met += life.met
        for store in everybody:
            callbacks += Counter(store.kinds())

    kinds = {kind for kind in KINDS if not callbacks[kind]}
    assert (kinds, {each for each in MET if not met[each]}) == (set(), set())
