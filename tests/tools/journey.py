"""The way of one request through coordinator and client: which files, and how often they change.

    python -m tests.tools.journey [heartbeat|join|commit|client …]

A batch of one record is judged as the job judges it: bytes as Kafka has them go in, rows of outputs
come out, and groups are not checked after every step. Half of that is done once for a batch, with
however many records; so what one record costs, inside `Shard.judge`, is counted apart. The client's
way leads from `subscribe` to the assignment that the user is given, over a log in memory.

Counted are calls of functions of coordlib; comprehensions and generators are not, which newer
Pythons make a part of the function around them. A change of file is a call in another file than the
call before it. Returns are not counted, so a function that calls two others in one file changes
files once. What is traced has been done once before: what a process makes only once is not counted.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final, NamedTuple

import msgspec

import coordlib
from coordlib.client.groups.member import ClassicMember
from coordlib.core.engine.effects import REQUESTS
from coordlib.core.engine.fold import Shard
from coordlib.core.engine.state import InputRecord
from coordlib.core.wire import api, codec
from coordlib.job import batch
from coordlib.job.pipelines import fold_groups
from coordlib.testing.fake_log import FakeLog
from tests.tools import driving

_ROOT: Final = Path(coordlib.__file__).parent
#: Between the newest request of the group and this one; no deadline falls due meanwhile.
_AFTER_MS: Final = 500
#: Names of code that is no function of its own in newer Pythons.
_COMPREHENSIONS: Final = frozenset({"<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"})
#: Of the log's time, until a lone member has its assignment.
_ASSIGNED_MS: Final = 10_000


class Cost(NamedTuple):
    """How far a way is, or should be at most."""

    files: int
    changes: int

    def __str__(self) -> str:
        return f"{self.files} / {self.changes}"


class Trace(NamedTuple):
    """The file of each call, in order, relative to the package."""

    calls: Sequence[str]

    @property
    def files(self) -> list[str]:
        """Those passed, in the order of first visit."""
        return list(dict.fromkeys(self.calls))

    @property
    def cost(self) -> Cost:
        """Files, and how often a call is in another file than the call before it."""
        changes = sum(before != after for before, after in pairwise(self.calls))
        return Cost(len(self.files), changes)


class Traced(NamedTuple):
    """A journey as a whole, and what of it belongs to one record."""

    whole: Trace
    record: Trace | None = None


class Journey(NamedTuple):
    """A journey, and what it should cost at most."""

    title: str
    run: Callable[[], Traced]
    aim: Cost
    record_aim: Cost | None = None


def _request(request: api.Request) -> Traced:
    """Judge it, in a Stable classic group of two members."""
    settings = msgspec.structs.replace(driving.SETTINGS, checks_invariants=False)
    talk = driving.settled(settings)
    talk.end_batch()
    blob, value = talk.shard.encode(), codec.encode(request)
    records = [InputRecord(REQUESTS, talk.next_offset, talk.now_ms + _AFTER_MS, value)]
    batch.judge_readable(fold_groups, blob, records, settings)
    return _traced(
        lambda: batch.judge_readable(fold_groups, blob, records, settings), Shard.judge.__code__
    )


def _client() -> Traced:
    """A lone member of a classic group subscribes and polls until it is assigned a partition."""
    _assigned(*_member())
    log, member = _member()
    whole = _traced(lambda: _assigned(log, member)).whole
    return Traced(Trace([file for file in whole.calls if file.startswith("client/")]))


def _member() -> tuple[FakeLog, ClassicMember]:
    log = FakeLog({"t": 2})
    transport = log.transport()
    return log, ClassicMember("orders", transport=transport, client="a", assignors=("range",))


def _assigned(log: FakeLog, member: ClassicMember) -> None:
    member.subscribe(["t"])
    log.pump()
    while not member.assignment:
        assert log.now_ms < _ASSIGNED_MS, "the member was assigned nothing"
        log.advance(_AFTER_MS, step_ms=_AFTER_MS)
        member.poll()


def _traced(run: Callable[[], object], of_record: CodeType | None = None) -> Traced:
    calls: list[str] = []
    inside: list[str] = []
    root, depth = f"{_ROOT}/", 0

    def note(frame: FrameType, event: str, _: Any) -> None:
        nonlocal depth
        code = frame.f_code
        if event not in ("call", "return"):
            return
        if code is of_record:
            depth += 1 if event == "call" else -1
        is_ours = code.co_filename.startswith(root) and code.co_name not in _COMPREHENSIONS
        if event == "call" and is_ours:
            file = code.co_filename.removeprefix(root)
            calls.append(file)
            if depth:
                inside.append(file)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        run()
    finally:
        sys.setprofile(before)
    return Traced(Trace(calls), None if of_record is None else Trace(inside))


JOURNEYS: Final[dict[str, Journey]] = {
    "heartbeat": Journey(
        "a heartbeat of an old generation, in a Stable classic group of two members",
        lambda: _request(driving.heartbeat("b", 1, driving.FOLLOWER)),
        aim=Cost(9, 25),
        record_aim=Cost(7, 10),
    ),
    "commit": Journey(
        "an OffsetCommit of a member, in a Stable classic group of two members",
        lambda: _request(driving.commit("b", 2, driving.FOLLOWER)),
        aim=Cost(11, 45),
        record_aim=Cost(10, 28),
    ),
    "join": Journey(
        "a JoinGroup of a newcomer, in a Stable classic group of two members",
        lambda: _request(driving.join("c")),
        aim=Cost(14, 65),
        record_aim=Cost(12, 45),
    ),
    "client": Journey(
        "a client from subscribe to its assignment, alone in a classic group",
        _client,
        aim=Cost(9, 200),
    ),
}


def trace(name: str) -> Traced:
    """Go a journey. Raises KeyError when there is no such journey."""
    return JOURNEYS[name].run()


def table(traced: dict[str, Traced]) -> list[tuple[str, Cost, Cost]]:
    """What is counted, what it is now, and what it should be at most."""
    rows = []
    for name, found in traced.items():
        journey = JOURNEYS[name]
        rows.append((name, found.whole.cost, journey.aim))
        if found.record is not None and journey.record_aim is not None:
            rows.append((f"{name}, inside one record", found.record.cost, journey.record_aim))
    return rows


def report(traced: dict[str, Traced]) -> str:
    """The files of journeys and their numbers, beside what they should be at most."""
    lines = []
    for name, found in traced.items():
        lines.append(f"{name}: {JOURNEYS[name].title}")
        inside = set() if found.record is None else set(found.record.files)
        lines += [
            f"  {number:3d}  {'*' if file in inside else ' '} {file}"
            for number, file in enumerate(found.whole.files, 1)
        ]
        lines.append("")
    lines.append(f"{'files / changes of file':30}{'now':>10}{'aim':>10}")
    lines += [f"{what:30}{now!s:>10}{aim!s:>10}" for what, now, aim in table(traced)]
    lines.append("* also inside one record; the other files are passed once for a batch")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the journeys that are named, or all."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.tools.journey",
        description="Which files a request passes, and how often they change.",
    )
    parser.add_argument("of", nargs="*", metavar="OF", help=", ".join(JOURNEYS))
    given = parser.parse_args(arguments).of
    unknown = [name for name in given if name not in JOURNEYS]
    if unknown:
        parser.error(f"{', '.join(unknown)}: there is {', '.join(JOURNEYS)}")
    sys.stdout.write(report({name: trace(name) for name in given or JOURNEYS}) + "\n")


if __name__ == "__main__":
    main()
