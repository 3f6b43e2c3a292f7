"""A server-assigned group that is set aside: what history says of it."""

import msgspec

from coordlib.testing.assigned_groups import subscribe
from coordlib.testing.defects import Defect, in_force
from coordlib.testing.driving import SETTINGS, Conversation, commit, release


def test_the_lines_about_a_quarantine_name_the_kind_of_the_group() -> None:
    """Who looks for all that happened to groups of one protocol must find the worst of it, too."""
    talk = Conversation(SETTINGS)
    talk.send(subscribe("a"))
    with in_force([Defect("g", "OffsetCommit", 0)]):
        talk.send(commit("a"))
    talk.send(release("ops"))

    told = [msgspec.json.decode(each.value) for each in talk.outputs if each.topic == "events"]
    kinds = {line["type"]: line["protocol"] for line in told}
    assert (kinds["GroupQuarantined"], kinds["GroupReleased"]) == ("assigned", "assigned")
