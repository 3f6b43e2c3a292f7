"""Random lives of a cluster amid mutations of all that its brokers and operators write.

Whatever comes, no step breaks an invariant and the rows stay sound. Whether one process at most
acts as leader is not asked here: a mutation may say in a leader's name that it has let go.
"""

from collections.abc import Callable
from random import Random
from typing import Any, Final

from coordlib.core.wire import api, codec
from tests.tools import clusters as c
from tests.tools.broker_logs import Life
from tests.tools.cluster_soundness import (
    changes,
    expected_metadata,
    faults,
    published,
    shortened,
)
from tests.tools.fuzz import inputs
from tests.tools.fuzz.mutate import Mutator, crossed
from tests.tools.fuzz.shards import Folded

STEPS: Final = 150
_MUTATED_SHARE: Final = 0.3
_SAID_KEPT: Final = 15


class HostileLife(Life):
    """A cluster in which somebody else writes, too."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._others = Random(f"others {seed}")
        self._said: list[bytes] = []
        self._mutate: Callable[[], bytes] = Mutator(
            self._others, inputs.of_brokers(), is_json=True
        ).draw

    def say(self, request: Any) -> int:
        while self._others.random() < _MUTATED_SHARE:
            super().say(self._mutated())
        if isinstance(request, api.Request):
            self._said = [*self._said[-_SAID_KEPT:], codec.encode(request)]
        return super().say(request)

    def _mutated(self) -> bytes:
        """Of anything, or of what was just written: that fits the cluster as it is."""
        luck = self._others
        if not self._said or luck.random() < 0.2:
            return self._mutate()
        if luck.random() < 0.3:
            return Mutator(luck, self._said, is_json=True).draw()
        return crossed(luck, luck.choice(self._said), luck.choice(self._said))

    def check(self) -> None:
        """INV-72 to INV-77, INV-80: what must hold of rows whoever writes."""
        shard = self.talk.shard
        for key, row in shard.rows.items():
            assert not row.is_quarantined, f"{key}: {self.talk.outputs[-3:]}"
        if ("cluster", "g") not in shard.rows:
            return
        found = list(faults(c.cluster_of(shard), c.topics_of(shard), c.partitions_of(shard)))
        found += changes(self._published, self._new_outputs())
        assert found == [], found

    def _new_outputs(self) -> list[Any]:
        of_g = [each for each in self.talk.outputs[self._checked :] if b'"g"' in each.key]
        self._checked = len(self.talk.outputs)
        return of_g

    def check_metadata(self) -> None:
        """INV-79: `coord.metadata` has what the rows say."""
        shard = self.talk.shard
        if ("cluster", "g") not in shard.rows:
            return
        of_g = [each for each in self.talk.outputs if each.key.startswith(b'["g",')]
        told = expected_metadata(c.cluster_of(shard), c.topics_of(shard), c.partitions_of(shard))
        assert shortened(published(of_g)) == told


def fold(seed: int, count: int) -> Folded:
    """Lives until `count` records are judged."""
    folded = Folded()
    while folded.records < count:
        life = HostileLife(seed)
        try:
            life.run(STEPS)
            life.end_batch()
            life.check_metadata()
        except Exception as problem:  # noqa: BLE001  that is what is looked for
            folded.failures.append((seed, f"{type(problem).__name__}: {problem}"[:300]))
            folded.quarantined += "quarantined" in str(problem)
        folded.records += len(life.talk.log)
        seed += 1
    return folded
