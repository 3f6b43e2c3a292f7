"""Recorded logs of all protocols give the bytes that they gave: a rebuild of the code changes none.

Where a change of behaviour is meant, `python -m tests.tools.recorded --write`, and read the diff.
"""

import json
from pathlib import Path

import pytest

from tests.tools import recorded

SOME = "world-stores"


@pytest.mark.parametrize("name", recorded.names())
def test_a_recorded_log_gives_the_bytes_that_it_gave(name: str) -> None:
    """INV-02: an upgrade in the middle of a batch: the batch that runs again must be the same."""
    assert recorded.differences(name) == []


@pytest.mark.parametrize("seed", recorded.HASH_SEEDS)
def test_the_order_of_sets_is_in_no_output(seed: str) -> None:
    """INV-01, INV-02: executors are processes with hash seeds of their own."""
    done = recorded.with_hash_seed(seed, SOME, "assigned")

    assert (done.returncode, done.stdout) == (0, ""), done.stderr


def test_all_protocols_have_recorded_logs() -> None:
    """A rebuild of what no log enters would go unseen."""
    topics, errors = set(), 0
    for name in recorded.names():
        log = recorded.load(name)
        for output in recorded.judged(log, [log.records]).outputs:
            topics.add(f"{log.pipeline.label}/{output.topic}")
            errors += b'"error":"' in (output.value or b"")

    assert len(recorded.names()) >= 20
    assert {f"groups/{each}" for each in recorded.groups("coord").restored_from} <= topics
    assert {"claims/assignments", "claims/committed", "claims/events"} <= topics
    assert {"groups/responses", "groups/events", "groups/assignments"} <= topics
    assert errors > 1_000, "refusals are a part of it"


def test_a_difference_is_seen_and_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A comparison that cannot fail proves nothing."""
    kept = json.loads(recorded.DIGESTS.read_text())
    whole = kept["pending"].pop("whole")
    tens = kept["pending"]["tens"]["of_outputs"]
    kept["pending"]["tens"]["of_outputs"] = "0" * 24
    changed = tmp_path / "digests.json"
    changed.write_text(json.dumps(kept))
    monkeypatch.setattr(recorded, "DIGESTS", changed)

    assert recorded.differences("pending") == [
        *(f"pending, cut whole: {what} is {value}, not kept" for what, value in whole.items()),
        f"pending, cut tens: of_outputs is {tens}, not {'0' * 24}",
    ]
