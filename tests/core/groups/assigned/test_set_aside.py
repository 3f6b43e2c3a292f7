"""A server-assigned group that is set aside, and released: what is told, and what it still owes."""

import msgspec

from tests.tools.assigned_groups import B, group_of, let_go, owned_in, reconciling, subscribe
from tests.tools.defects import Defect, in_force
from tests.tools.driving import SETTINGS, Conversation, commit, release


def test_the_lines_about_a_quarantine_name_the_kind_of_the_group() -> None:
    """Who looks for all that happened to groups of one protocol must find the worst of it, too."""
    talk = Conversation(SETTINGS)
    talk.send(subscribe("a"))
    with in_force([Defect("g", "OffsetCommit", 0)]):
        talk.send(commit("a"))
    talk.send(release("ops"))

    told = [msgspec.json.decode(each.value) for each in talk.outputs if each.topic == "events"]
    kinds = {line["type"]: line["kind"] for line in told}
    assert (kinds["GroupQuarantined"], kinds["GroupReleased"]) == ("assigned", "assigned")


def test_who_was_asked_to_let_go_has_all_of_its_time_again() -> None:
    """An operator looks at the group for a while; b could not answer, and is not removed for it."""
    talk = reconciling()
    (asked,) = [m for m in group_of(talk).members.values() if m.demands]
    assert asked.member == B
    with in_force([Defect("g", "OffsetCommit", 0)]):
        talk.send(commit("a"))
    assert group_of(talk).is_quarantined
    talk.wait(15_000)

    talk.send(release("ops"))
    (demand,) = group_of(talk).members[B].demands
    timeout_ms = asked.rebalance_timeout_ms

    assert demand.partitions == asked.demands[0].partitions
    assert demand.timer.due_ms == talk.shard.clock_ms + timeout_ms
    talk.send(let_go("b", group_of(talk).generation, B, demand.timer.cause))
    assert [len(each["t"]) for each in owned_in(talk).values()] == [2, 1, 1]
