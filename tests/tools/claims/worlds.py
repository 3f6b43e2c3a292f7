"""One seed of claims: hostile logs beside the second reading, honest consumers, snapshots, folds.

What `tests.tools.one_mutant` runs for a world `kind=claims`.
"""

import hashlib
from collections.abc import Iterator

from coordlib.core.claims import fold as restore
from coordlib.core.claims.fold import fold
from coordlib.core.claims.soundness import check_invariants
from coordlib.core.claims.world import World
from tests.tools.claims import driving, logs
from tests.tools.claims.honest import Honest
from tests.tools.claims.rules import Rules

LENGTH = 150


def play(seed: int) -> tuple[str | None, str]:
    """The promise that was broken, or None; and a digest of what came of it."""
    digest = hashlib.sha256()
    try:
        for part in (_hostile(seed), _honest(seed)):
            for some in part:
                digest.update(some)
    except AssertionError as problem:
        return str(problem), digest.hexdigest()
    return None, digest.hexdigest()


def _hostile(seed: int) -> Iterator[bytes]:
    for begins, place in ((0, (driving.TOPIC, 0, 1)), (50, ("__marshal.6s", 1, 2))):
        topic, partition, partitions = place
        log = logs.hostile(seed, LENGTH, topic=topic, partition=partition, partitions=partitions)[
            begins:
        ]
        world = World(*place)
        rules = Rules(world.interval_ms, partition, partitions, is_late=begins > 0)
        again = World(*place)
        for number, each in enumerate(log):
            judgement = world.judge(each)
            rules.read(each)
            check_invariants(world, judgement)
            difference = rules.difference(world)
            assert difference is None, difference
            if number % 40 == 39:
                again = World.restore(again.snapshot(), *place)
            again.judge(each)
            assert again.snapshot() == world.snapshot(), "INV-65: a snapshot leads elsewhere"
        settings = driving.settings(*place)
        done = fold(None, log, settings)
        assert restore.begun(done.blob, settings).snapshot() == world.snapshot(), "INV-61: engine"
        yield repr(done.outputs).encode()


def _honest(seed: int) -> Iterator[bytes]:
    world = Honest(seed)
    world.run(600)
    yield world.exact.snapshot()
