"""Claims of code of another age in one log: no version of messages can make a reader refuse it."""

import re

import pytest

from coordlib.core.claims.slots import Verdict
from coordlib.core.claims.world import World
from coordlib.core.wire import claims
from tests.tools.claims import driving
from tests.tools.claims.driving import START_MS, record

KEY = ("g", "t", 0)
ID = "A" * 22
#: The instance ids of code that names no topic's id.
WITHOUT_IDS = re.compile(r"([0-9a-f]{8})(?:-(0|[1-9][0-9]{0,18}))?()", re.ASCII)


@pytest.mark.parametrize(("version", "topic_id"), [(2, ID), (2, ""), (3, "")])
def test_a_reader_without_ids_leaves_what_others_have_alone(
    monkeypatch: pytest.MonkeyPatch, version: int, topic_id: str
) -> None:
    """Any version but its own is Marshal's to a reader, as the longer instance id is: it believes
    the signs, and nobody wins the slot while they come, nor after the release of somebody else."""
    monkeypatch.setattr(claims, "_INSTANCE", WITHOUT_IDS)
    monkeypatch.setattr(claims, "_SENDERS", {})
    world = World("__marshal", 0, 1)

    def say(kind: str, **fields: object) -> Verdict:
        value = claims.encode(driving.message(kind, START_MS, fields))
        return world.judge(record(world.offset + 1, START_MS, value)).verdict

    signs = {"client": "new", "version": version}
    instance = claims.instance_of("0badc0de", 0, topic_id)
    own = Verdict.SIGN if (version, topic_id) == (2, "") else Verdict.TAKEN_OVER
    assert say("ClaimingPartition", instance="0badc0de", **signs) is Verdict.WON
    assert say("Heartbeat", instance=instance, offset=7, **signs) is own
    assert say("ClaimingPartition", client="old", instance="01d01d01") is Verdict.IGNORED
    assert say("Heartbeat", client="old", instance="01d01d01-1") is Verdict.REFUSED
    assert say("ReleasingPartition", client="old", instance="01d01d01-1") is Verdict.REFUSED
    assert say("Heartbeat", instance=instance, offset=9, **signs) is Verdict.SIGN
    assert world.slots[KEY].position == 9
    assert say("ReleasingPartition", instance=instance, offset=9, **signs) is Verdict.RELEASED
    assert say("ClaimingPartition", client="old", instance="01d01d01") is Verdict.WON
