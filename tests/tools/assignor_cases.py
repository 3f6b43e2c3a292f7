"""Test cases for assignors, as files in JSON: what is in them, and what is wrong with them.

    {"source": …, "format": …, "vectors": [{"name", "assignor", "partitions_per_topic", "members",
     "expected_assignment" | "expected_error" | "expected_properties" | "scale", …}, …]}

`assignor` may name several, joined by `+`. Fields that are not known here are left alone.
"""

from pathlib import Path
from typing import Annotated, Any

import msgspec

from coordlib.core.groups.assignors.model import NO_GENERATION, Member
from tests.tools.assignor_group import ASSIGNORS, Cluster, Group, Held, Partition, described

Count = Annotated[int, msgspec.Meta(ge=0)]
Pairs = list[tuple[str, Count]]


class BadFile(ValueError):
    """The file holds no test cases, or such as nobody could run."""


class MemberRow(msgspec.Struct, frozen=True):
    """A member of a case."""

    topics: list[str]
    owned: Pairs | None = None
    generation: int = NO_GENERATION
    group_instance_id: str | None = None
    rack: str | None = None


class Scale(msgspec.Struct, frozen=True):
    """A case too large to be written down: all topics alike, members with all of them."""

    topics: Count
    partitions_per_topic: Count
    consumers: Count
    timeout_s: float


class Case(msgspec.Struct, frozen=True):
    """One case, for one or more assignors."""

    name: str
    assignor: str
    partitions_per_topic: dict[str, Count]
    members: dict[str, MemberRow]
    source_test: str = ""
    #: `property`: the expected assignment is an illustration.
    check: str | None = None
    expected_assignment: dict[str, Pairs] | None = None
    expected_error: str | None = None
    expected_properties: list[str] = []
    expected_rack_mismatches: int | None = None
    #: `topic-partition` -> the member that gets it only after another one revoked it.
    partitions_transferring_ownership: dict[str, str] | None = None
    #: For each partition the racks of its replicas; null: of a broker that names none.
    partition_replica_racks: dict[str, list[list[str | None]]] = {}
    force_rack_aware: bool = False
    topic_iteration_order: list[str] | None = None
    scale: Scale | None = None

    @property
    def assignors(self) -> list[str]:
        """Those that the case is for."""
        return self.assignor.split("+")

    def group(self, assignor: str) -> Group:
        """The group that this case describes."""
        cluster = Cluster(
            self.partitions_per_topic,
            {
                topic: [[rack for rack in some if rack is not None] for some in rows]
                for topic, rows in self.partition_replica_racks.items()
            },
            self.force_rack_aware,
            self.topic_iteration_order,
        )
        members = {name: _member(assignor, row) for name, row in self.members.items()}
        return Group(assignor, members, cluster)

    def expected(self) -> Held:
        """Who should hold what when the rebalance is over."""
        rows = self.expected_assignment or {}
        return {name: frozenset(rows.get(name, ())) for name in {**self.members, **rows}}

    def transferring(self) -> dict[Partition, str]:
        """What its new member gets later than the rest; found by comparison if it is not said."""
        if self.partitions_transferring_ownership is not None:
            told = self.partitions_transferring_ownership
            return {_partition(text): member for text, member in told.items()}
        owners: dict[Partition, set[str]] = {}
        for name, row in self.members.items():
            for each in row.owned or ():
                owners.setdefault(each, set()).add(name)
        return {
            each: name
            for name, some in self.expected().items()
            for each in some
            if name not in owners.get(each, {name})
        }


def _partition(text: str) -> Partition:
    topic, _, number = text.rpartition("-")
    return topic, int(number)


def _member(assignor: str, row: MemberRow) -> Member:
    member = Member(tuple(row.topics), instance=row.group_instance_id, rack=row.rack)
    if row.owned is None:
        return member
    return described(assignor, member, row.owned, row.generation)


class _File(msgspec.Struct, frozen=True):
    vectors: list[Case]
    source: str = ""


def read_cases(path: Path) -> tuple[str, list[Case]]:
    """The source that a file names, and its cases.

    Raises:
        BadFile: it cannot be read, or a case is not complete.
    """
    try:
        file = msgspec.json.decode(path.read_bytes(), type=_File)
    except OSError as problem:
        raise BadFile(f"{path} cannot be read: {problem.strerror}") from problem
    except msgspec.MsgspecError as problem:
        raise BadFile(f"{path} holds no test cases: {problem}") from problem
    for case in file.vectors:
        if what := _wrong(case):
            raise BadFile(f"{path}, case {case.name}: {what}")
    return file.source, file.vectors


def _wrong(case: Case) -> str | None:
    if unknown := [name for name in case.assignors if name not in ASSIGNORS]:
        return f"assignor {unknown[0]!r} is not known; known are {', '.join(ASSIGNORS)}"
    answers = (case.expected_assignment, case.expected_error, case.scale)
    if not case.expected_properties and all(answer is None for answer in answers):
        return "nothing is expected of it"
    if not set(case.topic_iteration_order or ()) <= set(case.partitions_per_topic):
        return "topic_iteration_order names a topic without partitions_per_topic"
    for text in case.partitions_transferring_ownership or {}:
        if not text.rpartition("-")[2].isdecimal():
            return f"{text!r} in partitions_transferring_ownership is no topic-partition"
    return None


def readable(held: Held) -> dict[str, list[Any]]:
    """The same for JSON, in order."""
    return {member: sorted(map(list, some)) for member, some in sorted(held.items())}
