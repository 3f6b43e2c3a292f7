"""A coordination partition as consumers look at it."""

import pytest

from coordlib import limits
from coordlib.client.claims.transport import LogView
from coordlib.core.claims.world import World
from tests.tools.claims.driving import START_MS, message, record


def test_slots_that_made_room_leave_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test run of somebody has a group of its own: a consumer that lives for a year must not
    keep the name of each."""
    monkeypatch.setattr(limits, "SLOTS_MAX", 4)
    view = LogView(World("__marshal", 0, 1), 0)
    for number in range(40):
        instance, group = "01234567", f"run-{number}"
        attempt = message("ClaimingPartition", 0, {"instance": instance, "group": group})
        view.judge(record(2 * number, START_MS, attempt), 0)
        owner = f"{instance}-{2 * number}"
        release = message("ReleasingPartition", 0, {"instance": owner, "group": group})
        view.judge(record(2 * number + 1, START_MS, release), 0)

    assert len(view.world.slots) == 4
    assert len(view._keys) == 4
