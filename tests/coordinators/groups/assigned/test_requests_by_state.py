"""What follows from each request in each state of a server-assigned group, effect for effect.

The tables lie in `by_state`, one file for each request: in brackets the states of `STATES`, below
them all that follows there. A request's own place in the log reads HERE, a member it makes NEW.
"""

from pathlib import Path

import pytest

from coordlib.records import requests as rq
from tests.tools.assigned_groups import STATES, A, B, let_go, said_in, subscribe, topics
from tests.tools.driving import commit, delete, describe, heartbeat, join, leave

FOLDER = Path(__file__).parent / "by_state"


def rows(*places: int) -> tuple[rq.CommittedOffset, ...]:
    return tuple(rq.CommittedOffset("t", partition, 7) for partition in places)


REQUESTS: dict[str, rq.AnyRequest] = {
    "newcomer-subscribes": subscribe("n"),
    "first-subscribe-once-more": subscribe("a"),
    "member-wants-more": subscribe("a", "j2", member=A, generation=2, topics=("t", "u")),
    "late-subscribe": subscribe("a", "j2", member=A, generation=0, topics=("u",)),
    "subscribe-names-no-generation": subscribe("a", "j2", member=A, topics=("u",)),
    "subscribe-from-the-future": subscribe("a", "j2", member=A, generation=9),
    "release-of-an-open-demand": let_go("b", 3, B, cause=6, offsets=rows(3, 0, 2)),
    "release-of-no-open-demand": let_go("a", 2, A, cause=3, offsets=rows(0)),
    "release-by-another-member": let_go("a", 2, B, cause=6),
    "heartbeat": heartbeat("b", 2, B),
    "heartbeat-from-the-future": heartbeat("b", 9, B),
    "commit-of-ones-own-and-another's": commit("b", 2, B, offsets=rows(2, 0)),
    "commit-before-the-grant": commit("b", 1, B, offsets=rows(2)),
    "commit-from-the-future": commit("b", 9, B),
    "commit-without-a-generation": commit("b", -1, B, offsets=rows(2)),
    "commit-of-nobody": commit("x"),
    "member-leaves": leave("b", B),
    "operator-removes-a-member": leave("ops", A),
    "topic-grows": topics({"t": 5}),
    "topic-vanishes": topics({}),
    "describe": describe("x"),
    "delete": delete("x"),
    "join-of-the-other-kind": join("x"),
}


def table(name: str) -> dict[str, list[str]]:
    """A file, by state."""
    found: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in (FOLDER / f"{name}.txt").read_text().splitlines():
        if line.startswith("["):
            lines = []
            found |= dict.fromkeys(line[1:-1].split(), lines)
        elif line:
            lines.append(line)
    return found


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("name", REQUESTS)
def test_what_follows_from_a_request_in_a_state(name: str, state: str) -> None:
    """Nothing more and nothing less: who owes nothing is told nothing, refusals disturb nobody."""
    assert said_in(state, REQUESTS[name]) == table(name)[state]


def test_every_table_has_a_request_and_all_states() -> None:
    """A table that nobody reads would lie in peace."""
    assert {path.stem for path in FOLDER.iterdir()} == set(REQUESTS)
    for name in REQUESTS:
        assert table(name).keys() == STATES.keys()
