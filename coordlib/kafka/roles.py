"""What each role may do at brokers that allow nothing by default: the one table of rights.

A role is what a program does for the coordinator, whatever principal it logs in as. `coord acl`
gives a principal the rows of a role, the secured page prints them, and a local secured stack is
made of them. Kafka lets whoever may read or write a topic describe it, too; so no row repeats that.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from coordlib.errors import SetupError
from coordlib.records.own_topics import ARCHIVED, OUTPUTS


class Role(StrEnum):
    """What a program does for the coordinator."""

    JOB = "job"
    ARCHIVE = "archive"
    MEMBER = "member"
    PUBLISHER = "publisher"
    READER = "reader"
    OPERATOR = "operator"


class Kind(StrEnum):
    """What a right is about, in the words of Kafka's own tools."""

    TOPIC = "topic"
    GROUP = "group"
    TRANSACTIONAL_ID = "transactional-id"
    CLUSTER = "cluster"


class Operation(StrEnum):
    """Kafka's operations, as far as a role needs them."""

    READ = "Read"
    WRITE = "Write"
    DESCRIBE = "Describe"
    DESCRIBE_CONFIGS = "DescribeConfigs"
    CREATE = "Create"
    DELETE = "Delete"
    ALTER = "Alter"


@dataclass(frozen=True, slots=True)
class Right:
    """One operation on one resource, or on all whose names begin so."""

    kind: Kind
    name: str
    operation: Operation
    is_prefix: bool = False

    def __str__(self) -> str:
        if self.kind is Kind.CLUSTER:
            return f"{self.operation} on the cluster"
        which = "that begin with " if self.is_prefix else ""
        kind = f"{self.kind}s" if self.is_prefix else f"the {self.kind}"
        return f"{self.operation} on {kind} {which}{self.name}"


@dataclass(frozen=True, slots=True)
class Row:
    """A right of a role, for any prefix.

    Args:
        name: `{prefix}` is the topics' prefix. A row with `{topic}` or `{group}` is there once for
            each topic or group that is named; if none is, it is not there.
        purpose: what fails without it.
    """

    kind: Kind
    name: str
    operation: Operation
    purpose: str
    is_prefix: bool = False


#: librdkafka asks for the coordinator of a consumer's group, also where the group is never joined.
UNUSED_GROUPS: Final = "coordlib-"


def _topic(name: str, operation: Operation, purpose: str) -> Row:
    return Row(Kind.TOPIC, f"{{prefix}}.{name}", operation, purpose)


def _every(operation: Operation, purpose: str) -> Row:
    return Row(Kind.TOPIC, "{prefix}.", operation, purpose, is_prefix=True)


def _data(operation: Operation, purpose: str) -> Row:
    return Row(Kind.TOPIC, "{topic}", operation, purpose)


_UNUSED: Final = Row(
    Kind.GROUP,
    UNUSED_GROUPS,
    Operation.DESCRIBE,
    "consumers that join no group of Kafka's still ask for its coordinator",
    is_prefix=True,
)
_LAYOUT: Final = _topic("progress", Operation.READ, "learns the number of shards")
_PURPOSES_OF_READING: Final = {
    "responses": "reads answers",
    "assignments": "reads who owns which partition, with its fencing token",
    "groups": "reads the groups' states",
    "committed": "reads committed offsets",
    "events": "reads history",
    "lag": "reads samples of lag",
}

#: Rows for claims are not built: the secured page says which rights they need. No command reads
#: clusters yet.
_READ_BY_READERS: Final = _PURPOSES_OF_READING.keys() - {"responses"}


def _reads(names: Sequence[str]) -> tuple[Row, ...]:
    return tuple(_topic(name, Operation.READ, _PURPOSES_OF_READING[name]) for name in names)


TABLE: Final[Mapping[Role, tuple[Row, ...]]] = {
    Role.JOB: (
        _every(Operation.READ, "reads requests, and its own outputs after a restart"),
        _every(Operation.WRITE, "writes answers, states, history and ticks"),
        _every(Operation.DESCRIBE_CONFIGS, "checks its topics when it starts"),
        Row(Kind.TOPIC, "*", Operation.DESCRIBE, "finds the topics of groups, and where logs end"),
        Row(
            Kind.TRANSACTIONAL_ID,
            "{prefix}-coordinator",
            Operation.WRITE,
            "writes each batch once, in a transaction",
        ),
        _UNUSED,
        Row(Kind.GROUP, "{group}", Operation.READ, "mirrors this group's offsets"),
        Row(Kind.GROUP, "{group}", Operation.DELETE, "deletes a mirrored group with its original"),
        _data(Operation.READ, "Kafka lets offsets be mirrored by those who may read the topic"),
    ),
    Role.ARCHIVE: _reads(tuple(name for name in ARCHIVED if name in _PURPOSES_OF_READING)),
    Role.MEMBER: (
        _topic("requests", Operation.WRITE, "joins, keeps alive, commits"),
        *_reads(("responses",)),
        _LAYOUT,
        _data(Operation.READ, "reads the partitions that it is assigned"),
        _UNUSED,
    ),
    Role.PUBLISHER: (
        _topic("offsets", Operation.WRITE, "publishes positions"),
        _LAYOUT,
    ),
    Role.READER: (
        *_reads(tuple(name for name in (*OUTPUTS, "lag") if name in _READ_BY_READERS)),
        _topic("progress", Operation.READ, "learns how far the job has come"),
        _topic("requests", Operation.DESCRIBE, "learns how many requests wait"),
        _data(Operation.DESCRIBE, "learns where logs end, for lag"),
    ),
    Role.OPERATOR: (
        _every(Operation.READ, "reads answers, groups, offsets, and how far the job has come"),
        _every(Operation.CREATE, "creates the coordinator's topics"),
        _every(Operation.DESCRIBE_CONFIGS, "checks the coordinator's topics"),
        _topic("requests", Operation.WRITE, "asks the coordinator to release, delete, remove"),
        _data(Operation.DESCRIBE, "learns where logs end, for lag"),
        _UNUSED,
    ),
}
_TOPIC_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")
_NAME_LENGTH_MAX: Final = 249


def rights(
    role: Role, prefix: str, topics: Sequence[str] = (), groups: Sequence[str] = ()
) -> tuple[Right, ...]:
    """The rights of a role, each once, in the table's order.

    Args:
        prefix: of the coordinator's topics.
        topics: data topics. `orders-*` means all whose names begin with `orders-`, `*` all.
        groups: groups that the job mirrors to Kafka; named as topics are.

    Raises:
        SetupError: a name is none, or the role has no row for such names.
    """
    _require_names(role, topics, groups)
    filled = (
        right for row in TABLE[role] for right in _filled(row, prefix, tuple(topics), tuple(groups))
    )
    return tuple(dict.fromkeys(filled))


def _filled(row: Row, prefix: str, topics: Sequence[str], groups: Sequence[str]) -> Iterator[Right]:
    names = {"{topic}": topics, "{group}": groups}.get(row.name)
    if names is None:
        yield Right(row.kind, row.name.format(prefix=prefix), row.operation, row.is_prefix)
        return
    for name in names:
        is_prefix = name.endswith("*") and name != "*"
        yield Right(row.kind, name[:-1] if is_prefix else name, row.operation, is_prefix)


def _require_names(role: Role, topics: Sequence[str], groups: Sequence[str]) -> None:
    for name in topics:
        if name != "*" and not _TOPIC_NAME.fullmatch(name.removesuffix("*")):
            mend = "Name a topic, the beginning of names (orders-*), or * for all."
            raise SetupError("This names no topics.", f"--topics {name[:200]!r}", mend)
    for name in groups:
        if not name or len(name.encode()) > _NAME_LENGTH_MAX or not name.isprintable():
            mend = "Name a group, the beginning of names (orders-*), or * for all."
            raise SetupError("This names no groups.", f"--groups {name[:200]!r}", mend)
    if role is Role.JOB and bool(topics) != bool(groups):
        what = "Offsets are mirrored of groups, and of topics that the job may read."
        raise SetupError(what, "--groups --topics", "Name both, or neither.")
    for option, names, place in (("--topics", topics, "{topic}"), ("--groups", groups, "{group}")):
        if names and all(row.name != place for row in TABLE[role]):
            what = f"The role {role} has no right to what {option} names."
            raise SetupError(what, f"{option} {names[0]}", f"Leave {option} out.")
