"""The way of one request through the coordinator: which files it passes, and how often they change.

    python -m tests.tools.journey [heartbeat|join|commit …]

A batch of one record is judged as the job judges it: bytes as Kafka has them go in, rows of outputs
come out, and groups are not checked after every step. Counted are calls of functions of coordlib,
comprehensions and generators included; a change of file is a call in another file than the call
before it. Returns are not counted, so a function that calls two others in one file changes files
once. The batch is judged once before it is traced: what a process makes only once is not counted.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any, Final, NamedTuple

import msgspec

import coordlib
from coordlib.coordinators.shard.blob import InputRecord
from coordlib.coordinators.shard.transition import REQUESTS
from coordlib.records import codec
from coordlib.records import requests as rq
from coordlib.streaming import operator
from coordlib.streaming.plane import fold_groups
from tests.tools import driving

_ROOT: Final = Path(coordlib.__file__).parent
#: Between the newest request of the group and this one; no deadline falls due meanwhile.
_AFTER_MS: Final = 500


class Journey(NamedTuple):
    """A request to a Stable classic group of two members, and what it should cost at most."""

    title: str
    request: Callable[[], rq.Request]
    files_aim: int
    changes_aim: int


class Trace(NamedTuple):
    """The file of each call, in order, relative to the package."""

    calls: Sequence[str]

    @property
    def files(self) -> list[str]:
        """Those passed, in the order of first visit."""
        return list(dict.fromkeys(self.calls))

    @property
    def changes(self) -> int:
        """How often a call is in another file than the call before it."""
        return sum(before != after for before, after in pairwise(self.calls))


JOURNEYS: Final[dict[str, Journey]] = {
    "heartbeat": Journey(
        "a heartbeat of an old generation",
        lambda: driving.heartbeat("b", 1, driving.FOLLOWER),
        files_aim=12,
        changes_aim=30,
    ),
    "join": Journey(
        "a JoinGroup of a newcomer", lambda: driving.join("c"), files_aim=20, changes_aim=90
    ),
    "commit": Journey(
        "an OffsetCommit of a member",
        lambda: driving.commit("b", 2, driving.FOLLOWER),
        files_aim=14,
        changes_aim=45,
    ),
}


def trace(name: str) -> Trace:
    """Judge the request of a journey. Raises KeyError when there is no such journey."""
    settings = msgspec.structs.replace(driving.SETTINGS, checks_invariants=False)
    talk = driving.settled(settings)
    talk.end_batch()
    blob, value = talk.shard.encode(), codec.encode(JOURNEYS[name].request())
    records = [InputRecord(REQUESTS, talk.next_offset, talk.now_ms + _AFTER_MS, value)]
    operator.judge_readable(fold_groups, blob, records, settings)
    return _traced(lambda: operator.judge_readable(fold_groups, blob, records, settings))


def _traced(run: Callable[[], object]) -> Trace:
    calls: list[str] = []
    root = f"{_ROOT}/"

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(root):
            calls.append(frame.f_code.co_filename.removeprefix(root))

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        run()
    finally:
        sys.setprofile(before)
    return Trace(calls)


def report(name: str) -> str:
    """The files of a journey and its numbers, beside what they should be at most."""
    journey, found = JOURNEYS[name], trace(name)
    lines = [f"{name}: {journey.title}, in a Stable classic group of two members"]
    lines += [f"  {number:3d}  {file}" for number, file in enumerate(found.files, 1)]
    lines += [
        f"  files   {len(found.files):4d}   aim {journey.files_aim}",
        f"  changes {found.changes:4d}   aim {journey.changes_aim}",
        f"  calls   {len(found.calls):4d}",
    ]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the journeys that are named, or all."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.tools.journey",
        description="Which files one request passes in the coordinator, and how often they change.",
    )
    parser.add_argument("of", nargs="*", metavar="OF", help=", ".join(JOURNEYS))
    given = parser.parse_args(arguments).of
    unknown = [name for name in given if name not in JOURNEYS]
    if unknown:
        parser.error(f"{', '.join(unknown)}: there is {', '.join(JOURNEYS)}")
    sys.stdout.write("\n\n".join(map(report, given or JOURNEYS)) + "\n")


if __name__ == "__main__":
    main()
