"""The witnesses of member processes as a history, for the checkers that simulated runs pass too."""

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from coordlib.demo.history import Happened, read, write
from tests.kit.processes import Line, WitnessT
from tests.stack.crew import Crew
from tests.tools.checking import checkers

HISTORY: Final = "history.jsonl"
#: Without one of these lines a history says nothing.
_DEEDS: Final = ("act", "acknowledged", "begin")
#: What a member tells -> what happened. All else is no fact about the group.
_WHAT: Final = {
    "ready": "started",
    "assigned": "assigned",
    "revoked": "revoked",
    "lost": "lost",
    "record": "act",
    "commit": "commit",
    "committed": "committed",
    "refused": "commit_failed",
    "failed": "ended",
    "closed": "ended",
}


def history_of(crew: Crew, group: str) -> list[Happened]:
    """All that the processes wrote down, in the order of the machine's boot time."""
    found = [
        (line["at_ns"], _happened(line, member.name, group))
        for line, member in events(crew.members.values())
        if line["what"] in _WHAT
    ]
    found += [
        (at_ns, Happened(_ms(at_ns), what, group=group, detail=detail))
        for at_ns, what, detail in crew.faults
    ]
    return [each for _, each in sorted(found, key=lambda row: row[0])]


def keeps_every_promise(crew: Crew, group: str) -> Path:
    """At the end of a scenario: write the history to a file, and have it checked from there, as
    `tests.tools check` does; returns the file."""
    crew.read_on()
    path = crew.folder / HISTORY
    write(path, history_of(crew, group))
    checked_history(crew.folder)
    return path


def checked_history(folder: Path) -> Path:
    """The history that was written there; it keeps every promise."""
    path = folder / HISTORY
    found = read(path)
    assert any(each.what in _DEEDS for each in found), "nobody did anything"
    assert not (broken := checkers.check(found)), "\n".join([str(path), *broken])
    return path


def events(members: Iterable[WitnessT]) -> list[tuple[Line, WitnessT]]:
    """All lines in the order of the machine's boot time; the death of who was killed is one."""
    rows = []
    for each in members:
        rows += [(line, each) for line in each.lines]
        if each.killed_ns is not None:
            rows.append(({"what": "failed", "at_ns": each.killed_ns, "text": "killed"}, each))
    return sorted(rows, key=lambda row: row[0]["at_ns"])


def _happened(line: Line, member: str, group: str) -> Happened:
    rows = line.get("partitions", [])
    if line["what"] == "record":
        rows = [(line["topic"], line["partition"])]
    return Happened(
        _ms(line["at_ns"]),
        _WHAT[line["what"]],
        member=member,
        group=group,
        partitions=tuple(f"{topic}-{partition}" for topic, partition in rows),
        offset=line.get("offset", -1),
        generation=line.get("generation", -1),
        fence=-1 if line.get("fence") is None else line["fence"],
        offsets={f"{row[0]}-{row[1]}": row[2] for row in line.get("offsets", [])},
        detail=str(line.get("text") or line.get("code") or ""),
    )


def _ms(at_ns: int) -> int:
    return at_ns // 1_000_000
