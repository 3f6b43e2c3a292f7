"""Streams of hostile messages through a coordination partition, beside a second reading of the
rules: whatever comes, both come to the same, and no promise is broken.
"""

from typing import Final

from coordlib.core.claims.soundness import check_invariants
from coordlib.core.claims.world import World
from tests.tools.claims import driving, logs
from tests.tools.claims.rules import Rules
from tests.tools.fuzz.shards import Folded

STREAM_LENGTH: Final = 400


def fold(seed: int, count: int) -> Folded:
    """Streams of at least `count` records, drawn from this seed."""
    folded = Folded()
    while folded.records < count:
        said = _play(seed)
        if said is not None:
            folded.failures.append((seed, said))
        folded.records += STREAM_LENGTH
        seed += 1
    return folded


def _play(seed: int) -> str | None:
    world, rules = World(driving.TOPIC, 0, 1), Rules(60_000, 0, 1)
    try:
        for each in logs.hostile(seed, STREAM_LENGTH):
            judgement = world.judge(each)
            rules.read(each)
            check_invariants(world, judgement)
            if (difference := rules.difference(world)) is not None:
                return f"m0-{each.offset}: {difference}"
    except Exception as problem:  # noqa: BLE001  that is what is looked for
        return f"{type(problem).__name__}: {problem}"
    return None
