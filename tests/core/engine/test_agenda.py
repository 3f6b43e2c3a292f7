"""The index over the facts of rows: after any changes it is what counting anew would give."""

from random import Random

import pytest

from coordlib import limits
from coordlib.core.engine.effects import REQUESTS, Key
from coordlib.core.engine.rows import Agenda, note
from coordlib.core.engine.step import Facts
from coordlib.core.engine.time import NEVER
from tests.tools.core import InputRecord, Shard
from tests.tools.driving import SETTINGS

INTERVAL_MS = 100


def draw(luck: Random) -> Facts:
    return Facts(
        next_due_ms=luck.choice([NEVER, luck.randrange(1_000)]),
        first_unread_offset=luck.choice([-1, luck.randrange(9)]),
        timeout_ms=luck.choice([0, 6_000, 10_000, 30_000]),
        next_maintenance_ms=luck.choice([NEVER, luck.randrange(1_000)]),
        size_bytes=luck.randrange(500),
    )


@pytest.mark.parametrize("seed", range(30))
def test_an_index_that_is_kept_in_step_is_as_one_that_is_made_anew(seed: int) -> None:
    """INV-15: rows come, change and go; what the heaps keep of before names nobody."""
    luck = Random(seed)
    rows: dict[Key, Facts] = {("group", name): draw(luck) for name in "abc"}
    agenda = Agenda([note([(key, facts, 0) for key, facts in rows.items()])], INTERVAL_MS)
    for _ in range(60):
        key = ("group", luck.choice("abcdef"))
        before, after = rows.pop(key, None), None if luck.random() < 0.3 else draw(luck)
        if before is None and after is None:
            continue
        agenda.replace(key, before, after)
        if after is not None:
            rows[key] = after
        anew = Agenda([note([(key, facts, 0) for key, facts in rows.items()])], INTERVAL_MS)

        assert agenda.size_bytes == anew.size_bytes
        assert agenda.cap_ms == anew.cap_ms
        assert agenda.uncovered == anew.uncovered
        assert {*anew.due} <= {*agenda.due}
        assert {*anew.looks} <= {*agenda.looks}


def test_an_empty_shard_has_the_clock_of_nobody() -> None:
    """Rule 1: whoever left holds the clock no more."""
    agenda = Agenda([], INTERVAL_MS)
    facts = Facts(timeout_ms=10_000)
    agenda.replace(("group", "g"), None, facts)
    assert agenda.cap_ms == 2_000

    agenda.replace(("group", "g"), facts, None)
    assert agenda.cap_ms == limits.CLOCK_CAP_IDLE_MS


def test_what_is_due_now_is_due(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule 2: a deadline or a look at this very millisecond is not left to the next record."""
    agenda = Agenda(
        [note([(("group", "g"), Facts(next_due_ms=500, next_maintenance_ms=401), 0)])], INTERVAL_MS
    )

    assert [agenda.has_due(at_ms) for at_ms in (499, 500)] == [False, True]
    assert [agenda.has_look(at_ms) for at_ms in (499, 500)] == [False, True]
    shard, fired = Shard(None, SETTINGS), []
    monkeypatch.setattr(shard, "_agenda", agenda)
    monkeypatch.setattr(shard, "_fire_due", lambda at: fired.append(at.clock_ms))
    for offset, at_ms in enumerate((499, 500)):
        shard.judge(InputRecord(REQUESTS, offset, at_ms, None))
    assert fired == [500]
