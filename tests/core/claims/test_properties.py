"""Any log, any cut, any hash seed, any snapshot point: the same bytes, the same owners."""

import hashlib
import os
import subprocess
import sys
from collections.abc import Iterable
from random import Random

import pytest

from coordlib.core.claims import fold as restore
from coordlib.core.claims.fold import fold
from coordlib.core.claims.snapshots import read_pages
from coordlib.core.claims.soundness import check_invariants
from coordlib.core.claims.world import Verdict, World
from coordlib.core.engine.effects import EVENTS, SNAPSHOTS, Output
from coordlib.core.engine.state import InputRecord, ShardSettings
from tests.tools.claims import driving, logs
from tests.tools.claims.rules import Rules

LENGTH = 200
SEEDS = range(12)
PLACES = [("__marshal", 0, 1), ("__marshal.6s", 1, 2)]


def read_all(log: Iterable[InputRecord], place: tuple[str, int, int]) -> World:
    world = World(*place)
    for each in log:
        world.judge(each)
    return world


def drawn(seed: int, place: tuple[str, int, int]) -> list[InputRecord]:
    topic, partition, partitions = place
    return logs.hostile(seed, LENGTH, topic=topic, partition=partition, partitions=partitions)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("begins", [0, 60])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_second_reading_of_the_rules_agrees(
    seed: int, begins: int, place: tuple[str, int, int]
) -> None:
    """INV-45, INV-46, INV-47, INV-48, INV-50, INV-64: after every record, read early or late."""
    log = drawn(seed, place)
    world = World(*place)
    rules = Rules(world.interval_ms, *place[1:], is_late=begins > 0)
    for each in log[begins:]:
        judgement = world.judge(each)
        rules.read(each)

        assert rules.difference(world) is None
        check_invariants(world, judgement)


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_refused_changes_nothing_but_the_time(seed: int) -> None:
    """A hostile sender must not be able to touch by mistakes what it cannot touch by right."""
    world = World(*PLACES[0])
    for each in drawn(seed, PLACES[0]):
        before, pauses = dict(world.slots), dict(world.pauses)
        verdict = world.judge(each).verdict

        if verdict in (Verdict.IGNORED, Verdict.REFUSED, Verdict.REJECTED):
            assert (world.slots, world.pauses) == (before, pauses)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("seed", SEEDS)
def test_a_snapshot_anywhere_goes_on_as_the_whole_log(
    seed: int, place: tuple[str, int, int]
) -> None:
    """INV-65, INV-03: a client that begins with a snapshot sees what all others see."""
    log, cut = drawn(seed, place), Random(seed).randrange(LENGTH)
    first = read_all(log[:cut], place)
    again = World.restore(first.snapshot(), *place)

    assert again.snapshot() == first.snapshot()
    assert [again.judge(each) for each in log] == [first.judge(each) for each in log], (
        "records of before are repeated, and judged by neither"
    )
    assert again.snapshot() == first.snapshot() == read_all(log, place).snapshot()


def cuts_of(log: list[InputRecord], seed: int) -> list[list[InputRecord]]:
    """The log as batches of any size, which Spark hands over in any order."""
    dice, batches, rest = Random(seed), [], log
    while rest:
        size = dice.choice((0, 1, 2, 30, 100))
        batch, rest = rest[:size], rest[size:]
        batches.append(dice.sample(batch, len(batch)))
    return batches


def folded(
    batches: list[list[InputRecord]], settings: ShardSettings
) -> tuple[bytes | None, list[Output]]:
    blob, outputs = None, []
    for batch in batches:
        done = fold(blob, batch, settings)
        again = fold(blob, batch, settings)
        assert (done.blob, done.outputs) == (again.blob, again.outputs)  # INV-07
        blob, outputs = done.blob, outputs + done.outputs
    return blob, outputs


def compacted(outputs: list[Output]) -> dict[tuple[str, bytes], bytes | None]:
    return {(o.topic, o.key): o.value for o in outputs if o.topic not in (EVENTS, SNAPSHOTS)}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("seed", SEEDS)
def test_the_cut_into_batches_changes_no_history_and_no_newest_value(
    seed: int, place: tuple[str, int, int]
) -> None:
    """INV-02: a job that reads the log record by record, and one that has slept for a day."""
    log, settings = drawn(seed, place), driving.settings(*place)
    blob, outputs = folded([log], settings)
    blob_of_cut, cut = folded(cuts_of(log, seed), settings)

    assert [o for o in cut if o.topic == EVENTS] == [o for o in outputs if o.topic == EVENTS]
    assert compacted(cut) == compacted(outputs)
    assert blob is not None
    assert blob_of_cut is not None
    assert (
        restore.begun(blob, settings).snapshot() == restore.begun(blob_of_cut, settings).snapshot()
    )


@pytest.mark.parametrize("seed", SEEDS)
def test_the_engine_and_a_client_agree_at_every_offset(seed: int) -> None:
    """INV-61: they run one fold, and the engine's batches leave nothing out."""
    place, settings = PLACES[0], driving.settings(*PLACES[0])
    world, blob, log = World(*place), None, drawn(seed, PLACES[0])
    for batch in cuts_of(log, seed):
        blob = fold(blob, batch, settings).blob
        for each in sorted(batch, key=lambda one: one.offset):
            world.judge(each)

        assert restore.begun(blob, settings).snapshot() == world.snapshot()


@pytest.mark.parametrize("seed", SEEDS)
def test_a_lost_state_is_made_again_from_snapshot_and_log(seed: int) -> None:
    """INV-65: ages are exact, nobody gets time that clients do not see, nothing is said twice."""
    settings, log = driving.settings(*PLACES[0]), drawn(seed, PLACES[0])
    half = log[: LENGTH // 2]
    blob, outputs = folded(cuts_of(half, seed), settings)
    pages = {each.key: each.value for each in outputs if each.topic == SNAPSHOTS}
    snapshot = read_pages(value for value in pages.values() if value is not None)
    assert blob is not None
    assert snapshot is not None
    assert restore.belongs(snapshot, settings)

    behind = [each for each in half if each.offset > snapshot.offset]
    made = fold(restore.begin_at(snapshot), behind, settings).blob

    before, after = restore.begun(blob, settings), restore.begun(made, settings)
    assert after.snapshot() == before.snapshot()
    rest = log[LENGTH // 2 :]
    assert events_but_refusals(fold(made, rest, settings).outputs) == events_but_refusals(
        fold(blob, rest, settings).outputs
    )


def events_but_refusals(outputs: list[Output]) -> list[Output]:
    """Refusals and clocks are counted anew after a rebuild, as for groups."""
    counted = (b"Refused", b"MessageRejected", b"SenderClock")
    events = [each for each in outputs if each.topic == EVENTS and each.value]
    return [_without_id(e) for e in events if not any(word in (e.value or b"") for word in counted)]


def _without_id(event: Output) -> Output:
    """The line's number among its record's lines follows from the lines that are told."""
    _, _, rest = (event.value or b"").partition(b'"time_ms"')
    return Output(event.topic, event.partition, event.key, rest)


_DIGEST = """
import hashlib
from coordlib.core.claims.fold import fold
from tests.tools.claims import driving, logs
digest = hashlib.sha256()
for seed in range(10):
    done = fold(None, logs.hostile(seed, 200), driving.settings())
    digest.update(repr((done.blob, done.outputs)).encode())
print(digest.hexdigest())
"""


def test_hash_seeds_change_nothing() -> None:
    """INV-01: two workers have two hash seeds."""
    ran = [
        subprocess.run(
            [sys.executable, "-c", _DIGEST],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]

    assert ran[0] == ran[1]
    assert len(ran[0].strip()) == hashlib.sha256().digest_size * 2
