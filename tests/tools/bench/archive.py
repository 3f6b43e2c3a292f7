"""What a turn of the archive takes, from Kafka to Delta, in one JVM as the job's.

Each way has topics and tables of its own and writes the same records, in turns: a JVM becomes
faster for minutes, and other work comes and goes. Only the second half of the turns is in the
summary. Ways, of which all are looked at unless others are named:

    now        as the archive works
    lookup     appends by Spark's writer, which asks Delta for the number of the newest append
    codegen    as now, but Spark compiles its expressions
    unpacked   as now, but Delta does not pack small files
    nocrc      as now, but Delta writes no checksum file beside a commit
"""

import json
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any, Final

import msgspec

from coordlib.local.progress import to_stderr
from tests.tools.bench.batch import job_blocks, own_broker
from tests.tools.bench.figures import tell, tell_machine

WAYS: Final = ("now", "lookup", "codegen", "unpacked", "nocrc")
NAME: Final = "bench-archive"
_SCRIPT: Final = Path(__file__).with_name("archive_job.py")


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What the benchmark asks its job to do."""

    ways: list[str]
    turns: int
    events: int
    commits: int
    #: The file of JSON lines.
    told: str


def run(*, turns: int, events: int, commits: int, ways: Sequence[str]) -> int:
    """A line for each turn, then one for each way."""
    tell_machine("archive")
    chosen = list(dict.fromkeys(ways or WAYS))
    with own_broker(NAME) as stack:
        told = stack.home / "logs" / "turns.jsonl"
        plan = Plan(ways=chosen, turns=turns, events=events, commits=commits, told=str(told))
        stack.start_job(("--plan", msgspec.json.encode(plan).decode()), (), _SCRIPT)
        found = []
        for each in job_blocks(stack, told):
            found.append(each)
            tell("archive", "turn", **each)
            to_stderr(f"turn {each['turn']}, {each['way']}: {each['took_s']} s")
    for row in summary(found, turns):
        tell("archive", "way", **row)
    return 0


def summary(found: Sequence[dict[str, Any]], turns: int) -> list[dict[str, Any]]:
    """Per way: its first turn, and the medians of the second half."""
    by_way: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for each in found:
        by_way[each["way"]].append(each)
    rows = []
    for way, its in by_way.items():
        late = [each for each in its if each["turn"] > turns // 2]
        rows.append(
            {
                "way": way,
                "first_s": its[0]["took_s"],
                "took_s": round(median(each["took_s"] for each in late), 3),
                "worst_s": max(each["took_s"] for each in late),
                "jvm_s": round(median(each["jvm_s"] for each in late), 3),
                "turns": len(late),
            }
        )
    return rows


def read(plan: str) -> Plan:
    """The plan in the job's argument."""
    return msgspec.convert(json.loads(plan), Plan)
