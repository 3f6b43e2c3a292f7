"""Run a file of assignor cases against the assignors here.

    python -m tests.tools.vectors FILE

On stdout one JSON object: how many cases there are and agree, every mismatch with what was
expected and what came out, and how the cases fared that state properties instead of an answer.
Exit code 1 if anything does not agree, 2 if the file cannot be run. Assignments are compared as
sets. Where a cooperative assignor has partitions that another member must revoke first, the case
agrees if they are missing at first and arrive with the following rebalance.

`range(server)`, `uniform` and `uniform(heterogeneous)` are oracles that no group runs
(`tests.tools.oracles`); `docs/explanation/reliability.md` says which cases test what runs.
"""

import json
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from coordlib.core.groups.assignors.model import Assignments, Member
from tests.tools.assignor_cases import BadFile, Case, Scale, read_cases, readable
from tests.tools.assignor_group import (
    ASSIGNORS,
    Cluster,
    Group,
    Held,
    TwoHolders,
    described,
    pairs,
)
from tests.tools.assignor_properties import judge
from tests.tools.assignor_stories import STORIES
from tests.tools.oracles.server_range import NotAssignable

USAGE: Final = "usage: python -m tests.tools.vectors FILE"


class Report:
    """What came out so far."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._cases = 0
        self._wrong: set[int] = set()
        self._mismatches: list[dict[str, Any]] = []
        self._stating = self._stating_failed = 0
        self._held: Counter[str] = Counter()
        self._failed: Counter[str] = Counter()
        self._took_cpu_s: dict[str, float] = {}

    def run(self, case: Case, scale_divisor: int = 1) -> None:
        """Run a case with all its assignors."""
        before = len(self._mismatches)
        for assignor in case.assignors:
            try:
                self._run(case, assignor, scale_divisor)
            except (NotAssignable, TwoHolders) as problem:
                self._mismatch(case, assignor, "error", case.expected_error, str(problem))
        if len(self._mismatches) > before:
            self._wrong.add(self._cases)
        if case.expected_properties:
            self._stating += 1
            self._stating_failed += len(self._mismatches) > before
        self._cases += 1

    def _run(self, case: Case, assignor: str, scale_divisor: int) -> None:
        if case.expected_error is not None:
            self._expect_error(case, assignor)
            return
        if case.scale is not None:
            self._large(case, case.scale, assignor, scale_divisor)
            return
        if case.expected_assignment is not None and case.check != "property":
            self._compare(case, assignor)
        if case.expected_properties:
            for check, what in judge(case.group(assignor)).items():
                self._property(case, assignor, check, what)
            if story := STORIES.get(case.source_test):
                self._property(case, assignor, case.source_test, story(case.group(assignor)))

    def _expect_error(self, case: Case, assignor: str) -> None:
        try:
            given = case.group(assignor).round()
        except NotAssignable:
            return
        self._mismatch(case, assignor, "error", case.expected_error, readable(given))

    def _compare(self, case: Case, assignor: str) -> None:
        group, expected = case.group(assignor), case.expected()
        given = group.round()
        if assignor != "cooperative-sticky" or len(case.assignors) == 1:
            self._equal(case, assignor, "assignment", expected, given)
        else:
            later = case.transferring()
            early = {
                name: frozenset(each for each in some if later.get(each) != name)
                for name, some in expected.items()
            }
            self._equal(case, assignor, "first assignment", early, given)
            self._equal(case, assignor, "last assignment", expected, group.rebalance())
        if (most := case.expected_rack_mismatches) is not None and most >= 0:
            far = _far(group, given)
            if far != most:
                self._mismatch(case, assignor, "rack mismatches", most, far)

    def _equal(self, case: Case, assignor: str, what: str, expected: Held, given: Held) -> None:
        if expected != given:
            self._mismatch(case, assignor, what, readable(expected), readable(given))

    def _large(self, case: Case, scale: Scale, assignor: str, divisor: int) -> None:
        group = large_group(scale, assignor, divisor, "NonEqual" in case.source_test)
        first, first_s = _timed(group)
        group.hold(pairs(first))
        del group.members[min(group.members)]
        second, second_s = _timed(group)
        took_s = first_s + second_s
        self._took_cpu_s[f"{case.name} {assignor}"] = round(took_s, 2)
        late = f"{took_s:.1f} s, {scale.timeout_s} s allowed" if took_s > scale.timeout_s else None
        self._property(case, assignor, "in time", late)
        # Whoever is left keeps what it had.
        lost = [
            name
            for name, rows in second.items()
            if any(set(some).difference(rows[topic]) for topic, some in first[name].items())
        ]
        self._property(case, assignor, "sticky", f"{lost[0]} loses partitions" if lost else None)

    def _property(self, case: Case, assignor: str, check: str, what: str | None) -> None:
        (self._held if what is None else self._failed)[check] += 1
        if what is not None:
            self._mismatch(case, assignor, f"property: {check}", case.expected_properties, what)

    def _mismatch(
        self, case: Case, assignor: str, what: str, expected: object, actual: object
    ) -> None:
        self._mismatches.append(
            {
                "case": case.name,
                "assignor": assignor,
                "what": what,
                "expected": expected,
                "actual": actual,
            }
        )

    def summary(self) -> dict[str, Any]:
        """All of it, for JSON."""
        return {
            "cases": self._cases,
            "agree": self._cases - len(self._wrong),
            "mismatches": self._mismatches,
            "properties": {
                "cases": self._stating,
                "agree": self._stating - self._stating_failed,
                "held": dict(sorted(self._held.items())),
                "failed": dict(sorted(self._failed.items())),
                "took_cpu_s": self._took_cpu_s,
            },
            "source": self._source,
        }


def _timed(group: Group) -> tuple[Assignments, float]:
    """An assignment and its seconds of the processor: others may be at work here."""
    began = time.process_time()
    given = ASSIGNORS[group.assignor](group.members, group.cluster)
    return given, time.process_time() - began


def _far(group: Group, given: Held) -> int:
    """How many partitions have no replica in the rack of the member that gets them."""
    racks = group.cluster.racks
    return sum(
        bool(member.rack) and member.rack not in racks.get(topic, [[]] * (number + 1))[number]
        for name, member in group.members.items()
        for topic, number in given[name]
    )


def large_group(scale: Scale, assignor: str, divisor: int, is_unequal: bool) -> Group:
    """Kafka's large groups: everybody wants all topics; if unequal, the last one the first only."""
    topics = tuple(f"t{number:04}" for number in range(max(1, scale.topics // divisor)))
    members = {f"c{number:04}": Member(topics) for number in range(scale.consumers)}
    if is_unequal and members:
        members[max(members)] = Member(topics[:1])
    cluster = Cluster(dict.fromkeys(topics, scale.partitions_per_topic))
    described_members = {
        name: described(assignor, member, (), 0) for name, member in members.items()
    }
    return Group(assignor, described_members, cluster)


def run_file(path: Path, scale_divisor: int = 1) -> dict[str, Any]:
    """The summary of a file.

    Raises:
        BadFile: it cannot be run.
    """
    source, cases = read_cases(path)
    report = Report(source)
    for case in cases:
        report.run(case, scale_divisor)
    return report.summary()


def main(arguments: Sequence[str]) -> int:
    """The command line."""
    if len(arguments) != 1 or arguments[0].startswith("-"):
        print(USAGE, f"assignors: {', '.join(ASSIGNORS)}", sep="\n", file=sys.stderr)
        return 0 if arguments in (["-h"], ["--help"]) else 2
    try:
        summary = run_file(Path(arguments[0]))
    except BadFile as problem:
        print(f"vectors: {problem}", file=sys.stderr)
        return 2
    print(json.dumps(summary, indent=2))
    return 1 if summary["mismatches"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
