"""Seeds of the simulated world: whatever breaks, the promises hold, and a seed is a run."""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.tools.simulation import drawing
from tests.tools.simulation.campaign import campaign, shrink
from tests.tools.simulation.kinds import KINDS
from tests.tools.simulation.run import run, run_seed
from tests.tools.simulation.situations import SITUATIONS

#: Of these seeds a change plays as many as draw each kind of fault so often: once, and thrice in
#: `make chaos`; `make nightly` plays as many as the night has.
SEEDS = range(400)
TIMES = [1, pytest.param(3, marks=pytest.mark.chaos)]
DIGEST = """
import hashlib, sys
import msgspec
from tests.tools.simulation.quiet import quiet_logs
from tests.tools.simulation.run import run_seed
with quiet_logs():
    outcome = run_seed(int(sys.argv[1]))
told = b"".join(msgspec.json.encode(line) for line in outcome.history)
print(outcome.events, hashlib.sha256(told).hexdigest())
"""


@pytest.mark.parametrize("times", TIMES)
def test_no_promise_is_broken_whatever_breaks(times: int) -> None:
    """INV-28 to INV-33 are demanded when the faults have ended, all others at every moment.

    So few worlds need not have met each situation, as 200 and more must: most of them.
    """
    summary = campaign(busy_seeds(times), jobs=os.cpu_count() or 1)

    assert [(each.seed, each.violation) for each in summary.violations] == []
    assert [kind for kind in KINDS if not summary.faults[kind]] == []
    missed = [name for name in SITUATIONS if not summary.sometimes[name]]
    assert len(missed) <= len(SITUATIONS) // (10 if times > 1 else 4), missed


def busy_seeds(times: int) -> list[int]:
    """Few seeds that draw each kind of fault so often: next is always the one that adds most."""
    drawn = {seed: {fault.kind for fault in drawing.draw(seed).faults} for seed in SEEDS}
    wanted = Counter(dict.fromkeys(KINDS, times))
    chosen: list[int] = []
    while +wanted:
        chosen.append(max(drawn, key=lambda seed: sum(wanted[kind] > 0 for kind in drawn[seed])))
        wanted.subtract(drawn.pop(chosen[-1]))
    return chosen


@pytest.mark.parametrize("seed", [3, pytest.param(14, marks=pytest.mark.chaos)])
def test_a_seed_is_the_same_run_in_every_process(seed: int) -> None:
    """INV-01: what a seed found once it finds again, on any machine."""
    runs = {
        subprocess.run(
            [sys.executable, "-c", DIGEST, str(seed)],
            env={**os.environ, "PYTHONHASHSEED": hash_seed, "TZ": zone},
            capture_output=True,
            check=True,
            text=True,
        ).stdout
        for hash_seed, zone in (("1", "UTC"), ("2", "Asia/Kathmandu"))
    }

    assert len(runs) == 1


@pytest.mark.parametrize("kind", sorted(KINDS))
@pytest.mark.chaos
def test_every_kind_of_fault_alone_does_no_harm(kind: str) -> None:
    """Nothing else hides what it does."""
    outcome = run_seed(1_000_000, (kind,) * 4)

    assert outcome.violation is None
    assert outcome.faults.keys() <= {kind}


def test_a_broken_promise_is_told_with_few_faults_and_a_story(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Somebody makes clients forget their fence: what is printed must lead to it."""
    from coordlib.client.kit.fence import Fence

    monkeypatch.setattr(Fence, "_broken_rule", lambda self, now_ms, sign_ms: None)
    seed = next(seed for seed in range(200) if run_seed(seed, PAUSES).violation is not None)
    full = drawing.draw(seed, PAUSES)

    small = shrink(full, tries=40)

    assert small.violation is not None
    assert small.violation.startswith("INV-21")
    assert 0 < len(small.plan.faults) < len(full.faults)
    assert {fault.kind for fault in small.plan.faults} == {"member-cut-off"}
    assert any("writes Heartbeat" in line for line in small.story)
    assert run(small.plan).violation == small.violation


PAUSES = ("member-cut-off",) * 6


def test_a_history_is_written_and_read_again(tmp_path: Path) -> None:
    """What a simulated run records is what `tests.tools check` reads."""
    from coordlib.demo import history

    told = run_seed(0).history
    history.write(tmp_path / "history.jsonl", told)

    assert history.read(tmp_path / "history.jsonl") == told
    assert all(json.loads(line) for line in (tmp_path / "history.jsonl").read_text().splitlines())
