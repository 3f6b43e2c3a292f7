"""What follows from a request in each state of a group, as text files.

    python -m tests.tools.by_state [FILE…]             names files that would change; then exit 1
    python -m tests.tools.by_state --rewrite [FILE…]   writes what follows now (make transcripts)

A file is prose, one command of `tests.tools.transcript`, a line `----`, and the states: in
brackets their names, below them all that follows there, in the notation of `tests.tools.notation`.
A request that names no id has that of `tests.tools.driving`.

    # A follower fetches its share, before or after the leader spoke.
    b sync
    ----
    [absent Empty]
    answer b#s1 SyncGroup UNKNOWN_MEMBER_ID
    …

    [Completing]

The offset of the request itself reads HERE, and the member id that it makes CLIENT-NEW.
The folder of a file says which states there are, and which member ids and generation the clients
know (`SETTINGS`). Rewrite only if you understand what caused the difference.
"""

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

import msgspec

from tests.tools import (
    announced_groups,
    assigned_groups,
    clusters,
    driving,
    producers,
    static_groups,
)
from tests.tools.driving import FOLLOWER, LEADER, Conversation
from tests.tools.transcript import RULER, Session

TESTS: Final = Path(__file__).parents[1]
GROUPS: Final = TESTS / "core" / "groups"


class Setting(msgspec.Struct, frozen=True):
    """The states of a group in which the requests of one folder are tried."""

    states: Mapping[str, Callable[[], Conversation]]
    #: By client: the member id and the generation that it names unless the command says otherwise.
    known: Mapping[str, tuple[str, int]]
    #: A member id that depends on the state, by its name in commands and in what follows.
    names: Callable[[Conversation], Mapping[str, str]] = lambda _talk: {}


class Table(msgspec.Struct, frozen=True):
    """A file: its prose, its command, and what follows by state."""

    prose: str
    command: str
    lines: Mapping[str, list[str]]


_CLASSIC: Final = {"a": (LEADER, 2), "b": (FOLLOWER, 2)}
SETTINGS: Final[Mapping[Path, Setting]] = {
    GROUPS / "classic/by_state/dynamic": Setting(driving.STATES, _CLASSIC),
    GROUPS / "classic/by_state/static": Setting(static_groups.STATES, _CLASSIC),
    GROUPS / "classic/by_state/announced": Setting(
        announced_groups.STATES, _CLASSIC, announced_groups.names
    ),
    TESTS / "core/controller/by_state": Setting(clusters.STATES, {}),
    TESTS / "core/transactions/by_state": Setting(producers.STATES, {}),
    GROUPS / "assigned/by_state": Setting(
        assigned_groups.STATES, {"a": (assigned_groups.A, 2), "b": (assigned_groups.B, 2)}
    ),
}


def files() -> list[Path]:
    """All files, by folder."""
    return [path for folder in SETTINGS for path in sorted(folder.glob("*.txt"))]


def read(path: Path) -> Table:
    """A file. Raises ValueError if it does not have one command, or names a state twice."""
    head, ruler, tail = path.read_text().partition(f"\n{RULER}\n")
    prose = [line for line in head.splitlines() if line.startswith("#")]
    commands = [line for line in head.splitlines() if line and not line.startswith("#")]
    if not ruler or len(commands) != 1:
        raise ValueError(f"{path} must have one command above {RULER}.")
    found: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in tail.splitlines():
        if line.startswith("["):
            lines = []
            names = line[1:-1].split()
            if found.keys() & set(names) or len(set(names)) < len(names):
                raise ValueError(f"{path} names a state twice: {line}.")
            found |= dict.fromkeys(names, lines)
        elif line:
            lines.append(line)
    return Table("\n".join(prose), commands[0], found)


def said_in(setting: Setting, state: str, command: str) -> list[str]:
    """All that follows from a command to a group in this state."""
    talk = setting.states[state]()
    names = setting.names(talk)
    for name, member in names.items():
        command = command.replace(name, member)
    session = Session(setting.known)
    session.talk = talk  # who knows a cluster knows its state
    request = session.request(command)
    place = talk.next_offset
    shown = [
        (f"r0-{place}", "HERE"),
        *((f"{field}={place}", f"{field}=HERE") for field in ("fence", "sync", "cause")),
        *((member, name) for name, member in names.items()),
    ]
    if f"-t-0-{place}" not in msgspec.json.encode(request).decode():
        shown.append((f"-t-0-{place}", "-NEW"))
    return [_replaced(line, shown) for line in talk.send(request)]


def _replaced(line: str, shown: list[tuple[str, str]]) -> str:
    for what, name in shown:
        line = line.replace(what, name)
    return line


def rewritten(path: Path) -> str:
    """The text of a file with what follows now; states in which the same follows stand together."""
    table, setting = read(path), SETTINGS[path.parent]
    return "\n".join(_written(table, setting)) + "\n"


def _written(table: Table, setting: Setting) -> Iterator[str]:
    if table.prose:
        yield table.prose
    yield from (table.command, RULER)
    states: dict[tuple[str, ...], list[str]] = {}
    for state in setting.states:
        states.setdefault(tuple(said_in(setting, state, table.command)), []).append(state)
    for place, (lines, names) in enumerate(states.items()):
        yield from ([""] if place else [])
        yield f"[{' '.join(names)}]"
        yield from lines


def main(arguments: list[str] | None = None) -> int:
    """Rewrite files, or say which ones would change: 1 if any."""
    parser = argparse.ArgumentParser(prog="python -m tests.tools.by_state")
    parser.add_argument("--rewrite", action="store_true", help="write what follows now")
    parser.add_argument("files", nargs="*", type=Path, default=files())
    chosen = parser.parse_args(arguments)
    differs = False
    for path in (each.resolve() for each in chosen.files):
        text = rewritten(path)
        if text == path.read_text():
            continue
        differs = True
        print(path)
        if chosen.rewrite:
            path.write_text(text)
    return int(differs and not chosen.rewrite)


if __name__ == "__main__":
    sys.exit(main())
