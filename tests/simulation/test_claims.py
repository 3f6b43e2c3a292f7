"""Seeds of claims: whatever breaks, the promises hold; and the checks see what they are for."""

import os
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest

from coordlib.client.claims.claim import Claim, Fence
from coordlib.client.claims.consumer import Taking
from coordlib.client.claims.transport import LogView
from coordlib.client.kit.events import TopicPartition
from coordlib.core.claims.slots import Slots
from coordlib.core.wire import claims
from tests.tools.simulation.campaign import CLAIMS, campaign, shrink
from tests.tools.simulation.claims import kinds
from tests.tools.simulation.claims.kinds import JOB_KINDS, KINDS, draw
from tests.tools.simulation.claims.logs import cut
from tests.tools.simulation.claims.run import run, run_in, run_seed
from tests.tools.simulation.claims.world import GROUP, ClaimsWorld, beginnings_of
from tests.tools.simulation.scheduler import Process
from tests.tools.simulation.violation import Violation

#: A change plays these; `make nightly` plays as many as the night has.
SEEDS = range(16)
#: A small world, where one fault is looked at.
SMALL: dict[str, Any] = {
    "interval_ms": 6_000,
    "length_ms": 36_000,
    "messages": 40,
    "entire_topic": 0,
    "maximum": 0,
    "releases_if_behind": 0,
    "from_start_max": 5_000_000,
}
DIGEST = """
import hashlib, sys
from tests.tools.one_mutant import digest_of
from tests.tools.simulation.claims.kinds import draw
from tests.tools.simulation.claims.run import run_in
from tests.tools.simulation.claims.world import ClaimsWorld
from tests.tools.simulation.quiet import quiet_logs
world = ClaimsWorld(draw(int(sys.argv[1])))
with quiet_logs():
    outcome = run_in(world)
print(outcome.events, digest_of(world))
"""


def test_no_promise_is_broken_whatever_breaks() -> None:
    """INV-45 to INV-51 and INV-61 to INV-66 are demanded after everything that happens."""
    summary = campaign(SEEDS, jobs=os.cpu_count() or 1, of=CLAIMS)

    assert [(each.seed, each.violation) for each in summary.violations] == []
    assert summary.sometimes["late reader agreed"] > 0
    assert summary.sometimes["claim expired"] > 0


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_every_kind_of_fault_alone_does_no_harm(kind: str) -> None:
    """Nothing else hides what it does, and it came."""
    outcome = run(draw(1_000_000, (kind,) * 3, **SMALL, has_job=int(kind in JOB_KINDS)))

    assert outcome.violation is None
    assert outcome.faults.keys() == {kind}


def test_a_seed_is_the_same_run_in_every_process() -> None:
    """INV-01: what a seed found once it finds again, on any machine."""
    runs = {
        subprocess.run(
            [sys.executable, "-c", DIGEST, "3"],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            check=True,
            text=True,
        ).stdout
        for hash_seed in ("1", "2")
    }

    assert len(runs) == 1


AT_THE_MARGIN = ("steps-at-a-fence",) * 3


@pytest.mark.parametrize("what", ["CAP = HI", "a fence of two intervals"])
def test_the_margin_is_met(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """INV-51: two steps of the clock at the fence find both, and nothing where all is right."""
    made = {**SMALL, "has_job": 0}
    assert [run(draw(seed, AT_THE_MARGIN, **made)).violation for seed in range(3)] == [None] * 3
    if what == "CAP = HI":
        usual = Slots.__init__

        def unclipped(self: Slots, *place: object, **how: object) -> None:
            usual(self, *place, **how)  # type: ignore[arg-type]
            self.cap_ms = self.interval_ms

        monkeypatch.setattr(Slots, "__init__", unclipped)
        monkeypatch.setattr("tests.tools.claims.rules.Rules.difference", lambda self, world: None)
    else:
        monkeypatch.setattr(Fence, "broken", _broken_late)
        monkeypatch.setattr(Fence, "closes_ms", lambda self, read_ms: self.sign_ms + 12_000)

    found = [run(draw(seed, AT_THE_MARGIN, **made)).violation for seed in range(12)]

    assert any(each is not None and each.startswith("INV-51") for each in found)


def _broken_late(self: Fence, now_ms: int, read_ms: int | None) -> Any:
    from coordlib.client.claims.claim import Stop

    return Stop.NO_SIGN if now_ms - self.sign_ms >= 12_000 else None


def test_a_violation_is_told_with_few_faults_and_a_story(monkeypatch: pytest.MonkeyPatch) -> None:
    """INV-49: commits by maximum; what is printed must lead to it."""
    from coordlib.client.claims.claim import CommitTracker

    usual = CommitTracker.commit

    def by_maximum(self: CommitTracker, offset: int) -> bool:
        is_seen = usual(self, offset)
        self.position = max(self.position, offset + 1)
        return is_seen

    monkeypatch.setattr(CommitTracker, "commit", by_maximum)
    made = {**SMALL, "delivery": "at-least-once", "strict": 0, "commits_later": 1, "has_job": 0}
    kinds = ("consumer-killed",) * 4
    plans = (draw(seed, kinds, **made) for seed in range(40))
    full = next(each for each in plans if run(each).violation is not None)

    small = shrink(full, tries=10, of=CLAIMS)

    assert small.violation is not None
    assert 0 < len(small.plan.faults) <= len(full.faults)
    assert any("Heartbeat" in line for line in small.story)


SLOW: dict[str, Any] = {
    **SMALL,
    "topics": (1,),
    "messages": 300,
    "delivery": "at-least-once",
    "strict": 1,
    "commits_later": 1,
}


def test_a_world_waits_for_users_who_take_one_message_and_commit_it_now_and_then() -> None:
    """INV-49: three hundred messages, one at a time, take longer than faults and peace."""
    assert run(draw(2, (), **SLOW).without(0, 99)).violation is None


def test_a_consumer_that_stands_still_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """INV-49: the wait for slow users ends where nobody reads on."""
    usual = Taking._may_hand_out

    def never_beyond(self: Taking, claim: Claim, offset: int) -> bool:
        return offset < 30 and usual(self, claim, offset)

    monkeypatch.setattr(Taking, "_may_hand_out", never_beyond)

    found = run(draw(2, (), **SLOW).without(0, 99)).violation

    assert found is not None
    assert "is read no further than 30" in found


# ---- the checks see ---------------------------------------------------------------------------


def begun(**traits: Any) -> ClaimsWorld:
    """A world in which consumers have claimed, and nothing breaks."""
    world = ClaimsWorld(replace(draw(5, ("foreign-bytes",), **{**SMALL, **traits}), faults=()))
    assert run_in(world).violation is None
    return world


def test_a_reader_that_concludes_otherwise_is_seen() -> None:
    """INV-61: one record that a client judges otherwise is enough."""
    world = begun(has_job=0)
    reading = world.ledger.readings[0]
    view = LogView(type(reading.world)(world.plan.topic, 0, world.plan.partitions), 0)
    for record in reading.log[:-1]:
        world.ledger.judged("somebody", view, view.judge(record, 0))
    view.world.clock_ms += 1

    with pytest.raises(Violation, match="INV-61"):
        world.ledger.judged("somebody", view, view.judge(reading.log[-1], 0))


def test_a_late_reader_that_has_another_owner_is_seen() -> None:
    """INV-62: it has settled, and believes what nobody else does."""
    world = begun(has_job=0)
    number = next(n for n, each in enumerate(world.ledger.readings) if any(each.owners))
    reading = world.ledger.readings[number]
    at = max(n for n, owners in enumerate(reading.owners) if owners)
    late = type(reading.world).restore(
        reading.snapshots[at], world.plan.topic, number, world.plan.partitions
    )
    late.is_late, late.clock_ms = True, late.clock_ms + 4 * late.interval_ms

    with pytest.raises(Violation, match="INV-62"):
        world.ledger.compare_state("somebody late", late)


def test_a_late_reader_begins_with_all_that_is_left_of_a_short_log() -> None:
    """INV-62: the log was cut, and has a pause that is older than the signs of who owns what.
    A reader that began with those alone did not know of it, and worked on while all others waited:
    when the pause was over, two owned a partition."""
    world = begun(has_job=0)
    log = world.cluster.partitions[world.plan.topic, 0]
    cut(log, 1)
    newest_ms, since_ms = log.records[-1].timestamp_ms, 8 * world.plan.interval_ms
    assert log.records[0].timestamp_ms < newest_ms - since_ms
    transport = world.connect(Process(world.scheduler, "late"), world.stream("late"))

    with beginnings_of(world.plan):
        transport.read([0])

    reading = transport._readings[0]
    assert (reading.view.world.is_late, reading.view.position) == (True, 1)


def test_a_job_that_writes_to_the_coordination_topic_is_seen() -> None:
    """INV-66: it reads along, and nothing else."""
    world = begun()
    transaction = world.cluster.open_transaction(world.engine.pipeline.query_name)

    with pytest.raises(Violation, match="INV-66"):
        world.cluster.append((world.plan.topic, 0), None, b"banana", transaction)


def test_a_record_that_is_handed_out_twice_is_seen() -> None:
    """INV-63, at most once: by the ledger, whoever has it."""
    world = begun(delivery="at-most-once", strict=0)
    (place, offset), _ = world.ledger.handed.most_common(1)[0]

    with pytest.raises(Violation, match="INV-63"):
        world.ledger.handed_out(world.programs[0], place, offset)


def test_a_consumer_that_skips_is_seen() -> None:
    """INV-49: it begins behind records that nobody has processed."""
    world = begun(has_job=0, delivery="at-least-once")
    place = TopicPartition(*world.places()[0])
    world.ledger.reached[place] = -1
    number = claims.partition_of(place.topic, world.plan.partitions)
    won = next(
        each
        for each in reversed(world.ledger.readings[number].judgements)
        if each.verdict.value == "won" and each.key == (GROUP, *place)
    )
    assert won.after is not None
    program = next(each for each in world.programs if each.client == won.after.client)
    claim = _Claim(place, won.offset, won.after.position or 0)
    if claim.position == 0:
        claim = _Claim(place, won.offset, 1)

    with pytest.raises(Violation, match="INV-49"):
        world.ledger.began(program, claim)  # type: ignore[arg-type]


class _Claim:
    """As much of a claim as is looked at."""

    def __init__(self, place: TopicPartition, epoch: int, position: int) -> None:
        self.place, self.epoch, self.position = place, epoch, position


def test_seeds_draw_every_kind() -> None:
    """A kind that no seed draws is never tried."""
    drawn = {fault.kind for seed in range(300) for fault in kinds.draw(seed).faults}

    assert drawn == set(KINDS)


def test_a_run_says_what_it_has_met() -> None:
    """Situations that a campaign adds up."""
    outcome = run_seed(0)

    assert outcome.violation is None
    assert outcome.sometimes["partition won"] > 0
