"""INV-69 in a simulated world: others write what only drivers may, and a check of it can fail."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import pytest

from coordlib.core.engine.refusals import ControlRecords
from coordlib.core.wire import api
from coordlib.core.wire.envelope import Refusal
from coordlib.job.control import ED25519
from coordlib.testing.signing import stand_in
from tests.simulation.test_checks import assert_breaks
from tests.tools.simulation import forgeries, signed_worlds, signing
from tests.tools.simulation.checks import evidence_of
from tests.tools.simulation.drawing import draw
from tests.tools.simulation.plan import ASSIGNED, Fault, Plan
from tests.tools.simulation.quiet import quiet_logs
from tests.tools.simulation.run import play
from tests.tools.simulation.situations import count_sometimes
from tests.tools.simulation.situations_beside import OF_FORGERIES
from tests.tools.simulation.world import World


@cache
def calm(kind: str = ASSIGNED) -> Plan:
    """A small world with two shards in which nothing happens."""
    plans = (draw(seed, kind=kind) for seed in range(1_000))
    found = next(each for each in plans if each.shards == 2 and not each.group_size_max)
    return replace(found, faults=(), unsigned_ms=0, length_ms=30_000, messages=20)


@quiet_logs()
def played(chosen: Plan) -> World:
    world = World(chosen)
    play(world)
    return world


def forged(*kinds: str) -> World:
    """A topic grows, so that there are listings of before; then come these faults."""
    faults = [Fault(5_000, "topic-grows", 0, 7), *(Fault(8_000, k, 15_000, 7) for k in kinds)]
    return played(replace(calm(), faults=tuple(faults)))


def met(world: World) -> set[str]:
    found = count_sometimes(world)
    return {name for name in OF_FORGERIES if found[name]}


def test_forgeries_and_copies_change_nothing() -> None:
    """What follows is about the tampering, and not about the world."""
    world = forged("forged-ticks", "forged-listings", "copied-control")

    assert met(world) == {
        "forged record refused",
        "control record copied",
        "control record moved to another shard",
    }


@pytest.mark.parametrize(
    ("kind", "believes"),
    [
        ("forged-ticks", "unsigned"),
        ("forged-listings", "unsigned"),
        ("copied-control", "copied"),
    ],
)
def test_a_forgery_that_counted_is_seen(
    kind: str, believes: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """INV-69: without forgeries the log says something else."""
    world = forged(kind)
    real: Callable[..., object] = ControlRecords.judge

    def judge(self: ControlRecords, request: api.Control, record: object) -> object:
        judged = real(self, request, record)
        refused = isinstance(judged, Refusal) if believes == "unsigned" else judged is None
        return request if refused else judged

    monkeypatch.setattr(ControlRecords, "judge", judge)

    assert_breaks("INV-69", lambda: forgeries.check(world))


def test_a_prefix_of_before_goes_over_without_a_stop() -> None:
    """Batches that drivers of before had judged run again under one that signs: INV-07 and INV-37
    are demanded all the same, and of the old ticks none is refused."""
    crashes = tuple(Fault(at_ms, "driver-crashes", 0, at_ms) for at_ms in (8_000, 14_900, 16_000))
    world = played(replace(calm(), unsigned_ms=15_000, faults=crashes))
    refused = [each for each in evidence_of(world).told if "driver alone" in each.reason]
    unsigned = [
        offset for offset in signing.controls(world, 0) if (0, offset) not in world.engine.written
    ]

    assert "prefix of before goes over" in met(world)
    assert world.checkpoints == 1
    assert unsigned
    assert len(refused) <= 1, "one that a driver of before had under way when it ended"


def test_ed25519_makes_no_other_world_than_the_stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most worlds sign with the cheap one: what they show must hold for the real one."""
    chosen = replace(calm(), faults=(Fault(5_000, "forged-ticks", 10_000, 7),))
    told = []
    for signatures in (ED25519, stand_in(b"")):
        same = signatures._replace(new_secret=lambda: b"s" * 32)
        monkeypatch.setattr(signing, "signatures_of", lambda seed, same=same: same)
        world = played(chosen)
        assert world.engine.settings.verify is signatures.verify
        told.append((world.scheduler.events, world.history))

    assert told[0] == told[1]


def test_some_worlds_sign_with_the_real_one() -> None:
    """And all draw their secrets from the seed: a seed is a run."""
    kinds = [signed_worlds.signatures_of(seed).verify for seed in range(100)]
    secrets = {signed_worlds.signatures_of(7).new_secret() for _ in range(3)}

    assert 0 < kinds.count(ED25519.verify) < 30
    assert len(secrets) == 1
    assert len(secrets.pop()) == 32


def test_what_is_forged_before_anything_is_signed_counts() -> None:
    """Rule 17 begins with the first signed record; until then times of a shard may end early."""
    forged = Fault(at_ms=1, kind="forged-ticks", for_ms=1, dice=1)
    other = Fault(at_ms=1, kind="forged-listings", for_ms=1, dice=1)
    plan = replace(draw(0), unsigned_ms=1_000, faults=(forged,))

    assert signed_worlds.believes_forgeries(plan)
    assert not signed_worlds.believes_forgeries(replace(plan, unsigned_ms=0))
    assert not signed_worlds.believes_forgeries(replace(plan, faults=(other,)))
