"""Which changes of state there are: Kafka's ClassicGroupTest, pair by pair."""

import msgspec
import pytest

from coordlib.core.engine.effects import REQUESTS, At, BrokenInvariant
from coordlib.core.groups.classic.group import Group, State, Step
from coordlib.core.groups.classic.protocol import CLASSIC
from coordlib.core.groups.classic.rebalance import select_protocol
from tests.tools.core import context
from tests.tools.driving import LEADER, SETTINGS, STATES, settled

AT = At(0, 1, REQUESTS, 7, 5, 5, "t", 1, "r0-7")

#: From a state to those that may follow. In Kafka Dead may follow all: a coordinator that gives a
#: partition away unloads its groups as they are. A shard never does.
LEGAL = {
    ("Empty", "PreparingRebalance"),
    ("PreparingRebalance", "CompletingRebalance"),
    ("PreparingRebalance", "Empty"),
    ("CompletingRebalance", "Stable"),
    ("CompletingRebalance", "PreparingRebalance"),
    ("Stable", "PreparingRebalance"),
    ("Empty", "Dead"),
}


@pytest.mark.parametrize("after", list(State))
@pytest.mark.parametrize("before", list(State))
def test_a_state_follows_along_the_table_only(before: State, after: State) -> None:
    """INV-12. testEmptyToStableIllegalTransition and its like: a step that would go another way
    is given up, and its group is set aside as it was."""
    step = Step(CLASSIC, "g", Group(group="g", state=before), AT, context(SETTINGS))

    if (before.value, after.value) in LEGAL:
        step.enter(after)
        assert step.live.state is after
        assert (step.live.state_since_ms, step.live.state_since_clock_ms) == (5, 5)
    else:
        with pytest.raises(BrokenInvariant):
            step.enter(after)


@pytest.mark.parametrize("state", [name for name in STATES if name != "absent"])
def test_groups_come_into_every_state(state: str) -> None:
    """The tables in the tests beside this one speak of the states that they name."""
    assert STATES[state]().group().state.value.startswith(state)


def test_an_offer_is_found_by_its_name() -> None:
    """testMetadata: the leader is shown what a member said for the chosen protocol; of one that
    it does not offer it has said nothing."""
    member = settled().group().members[LEADER]

    assert member.metadata_for("range") == b"m"
    assert member.metadata_for("sticky") == b""


def test_a_group_supports_what_all_its_members_offer() -> None:
    """testSupportsProtocols, testSelectProtocolChoosesCompatibleProtocol."""
    group = settled().group()
    other = msgspec.structs.replace(group.members[LEADER], member="x", protocols=())
    (offered,) = group.members[LEADER].protocols
    both = msgspec.structs.replace(
        other, protocols=(msgspec.structs.replace(offered, name="sticky"), offered)
    )

    assert group.supports("range")
    assert not group.supports("sticky")
    assert not msgspec.structs.replace(group, members={"x": other}).supports("range")
    assert select_protocol([*group.members.values(), both]) == "range"
    assert select_protocol([both]) == "sticky"
