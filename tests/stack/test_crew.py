"""What the witnesses of member processes prove, and what they do not let pass."""

import json
from pathlib import Path
from typing import Any

import pytest

from coordlib.demo.history import Happened
from tests.stack.crew import Crew, Member
from tests.stack.recorded import history_of, keeps_every_promise
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
    if isinstance(of, dict):
        return of
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


MS = 1_000_000


def given(fence: int) -> dict[str, Any]:
    return {"partitions": [P0], "member": "m", "generation": fence, "fence": fence}


def acts(offset: int, fence: int) -> dict[str, Any]:
    return {"topic": "t", "partition": 0, "offset": offset, "fence": fence, "generation": fence}


def test_witnesses_are_one_history_in_the_order_of_the_machines_time(tmp_path: Path) -> None:
    commit = {"offsets": [["t", 0, 1]], "generation": 1}
    a = [
        (1 * MS, "ready", {}),
        (2 * MS, "assigned", given(1)),
        (4 * MS, "record", acts(0, 1)),
        (5 * MS, "commit", commit),
        (7 * MS, "committed", {"partitions": [P0], "offsets": [["t", 0, 1]]}),
    ]
    crew = crew_of(tmp_path, a=a, b=[(6 * MS, "working", acts(0, 1))])
    crew.faults.append((3 * MS, "fault", "the job is killed"))

    row = {"member": "a", "group": "g"}
    t0 = ("t-0",)
    assert history_of(crew, "g") == [
        Happened(1, "started", **row),
        Happened(2, "assigned", partitions=t0, generation=1, fence=1, **row),
        Happened(3, "fault", group="g", detail="the job is killed"),
        Happened(4, "act", partitions=t0, offset=0, generation=1, fence=1, **row),
        Happened(5, "commit", generation=1, offsets={"t-0": 1}, **row),
        Happened(7, "committed", partitions=t0, offsets={"t-0": 1}, **row),
    ]
    keeps_every_promise(crew, "g")


def test_who_works_on_a_record_after_its_successor_breaks_a_promise(tmp_path: Path) -> None:
    """A process wakes up and goes on where it was, without having asked whether it may."""
    a = [
        (1 * MS, "assigned", given(1)),
        (9 * MS, "record", acts(0, 1)),
        (10 * MS, "lost", given(1)),
    ]
    b = [(4 * MS, "assigned", given(2)), (5 * MS, "record", acts(0, 2))]
    crew = crew_of(tmp_path, a=a, b=b)

    with pytest.raises(AssertionError, match="INV-20: a acts on t-0 at 9 ms with fence 1"):
        keeps_every_promise(crew, "g")


def test_a_record_that_two_have_worked_on_needs_a_reason(tmp_path: Path) -> None:
    """The first of them was killed: that is one, and only its killer can write it down."""
    a = [(1 * MS, "assigned", given(1)), (2 * MS, "record", acts(0, 1))]
    b = [(4 * MS, "assigned", given(2)), (5 * MS, "record", acts(0, 2))]
    crew = crew_of(tmp_path, a=a, b=b)

    with pytest.raises(AssertionError, match="INV-60"):
        keeps_every_promise(crew, "g")
    crew["a"].killed_ns = 3 * MS
    keeps_every_promise(crew, "g")


def test_nobody_did_anything_is_no_proof(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="nobody did anything"):
        keeps_every_promise(crew_of(tmp_path, a=[(1 * MS, "assigned", given(1))]), "g")
