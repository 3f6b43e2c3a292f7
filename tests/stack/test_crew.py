"""What the witnesses of member processes prove, and what they do not let pass."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.stack.crew import Crew, Member
from tests.stack.truths import nobody_shared

P0 = ["t", 0]
P1 = ["t", 1]


def crew_of(folder: Path, **witnesses: list[tuple[int, str, Any]]) -> Crew:
    """Processes that wrote (time, what, partitions or offset of partition 0)."""
    crew = Crew(folder, "t", {})
    for name, rows in witnesses.items():
        member = crew.members[name] = Member(name, folder)
        lines = [{"at_ns": at_ns, "what": what} | _fields(what, of) for at_ns, what, of in rows]
        member.witness.write_text("".join(json.dumps(line) + "\n" for line in lines))
    crew.read_on()
    return crew


def _fields(what: str, of: Any) -> dict[str, Any]:
    if what == "record":
        return {"topic": "t", "partition": 0, "offset": of, "fence": 1}
    return {"partitions": of, "member": "m", "generation": 1, "fence": 1}


def test_a_partition_may_go_on_when_it_was_let_go_of(tmp_path: Path) -> None:
    a = [(1, "assigned", [P0, P1]), (5, "revoking", [P0]), (6, "revoked", [P0])]
    crew = crew_of(tmp_path, a=a, b=[(7, "assigned", [P0])])

    nobody_shared(crew)
    assert [sorted(member.owned) for member in crew.members.values()] == [[("t", 1)], [("t", 0)]]


def test_who_is_asked_to_let_go_owns_until_it_has(tmp_path: Path) -> None:
    a = [(1, "assigned", [P0]), (5, "revoking", [P0]), (8, "revoked", [P0])]

    with pytest.raises(AssertionError, match="two owners"):
        nobody_shared(crew_of(tmp_path, a=a, b=[(7, "assigned", [P0])]))


def test_who_was_never_told_to_go_owns_on(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="two owners"):
        nobody_shared(crew_of(tmp_path, a=[(1, "assigned", [P0])], b=[(7, "assigned", [P0])]))


def test_who_lost_a_partition_had_stopped_with_its_last_record(tmp_path: Path) -> None:
    """A suspended process hears of its loss when it wakes up, long after its successor began."""
    a = [(1, "assigned", [P0]), (4, "record", 0), (9, "lost", [P0])]

    nobody_shared(crew_of(tmp_path, a=a, b=[(7, "assigned", [P0])]))


def test_who_works_on_after_its_loss_is_caught(tmp_path: Path) -> None:
    a = [(1, "assigned", [P0]), (8, "record", 0), (9, "lost", [P0])]

    with pytest.raises(AssertionError, match="two owners"):
        nobody_shared(crew_of(tmp_path, a=a, b=[(7, "assigned", [P0])]))
