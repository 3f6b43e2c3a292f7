"""What each role may do at brokers that allow nothing by default: the one table of rights."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from coordlib.core.wire.topics import ARCHIVED, CLAIMS, LAG, OUTPUTS, claims_prefix, own_topics
from coordlib.errors import SetupError

#: Places in the names of rows, each filled by what is named.
TOPIC, GROUP, COORDINATION = "{topic}", "{group}", "{claims}"
TRANSACTION, OUTPUT = "{transaction}", "{output}"
#: What fills each place.
OPTIONS: Final = {
    TOPIC: "--topics",
    GROUP: "--groups",
    COORDINATION: "--claims",
    TRANSACTION: "--transactional-ids",
    OUTPUT: "--outputs",
}
_TOPIC_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")
_NAME_LENGTH_MAX: Final = 249


def require_names(prefix: str, named: Mapping[str, Sequence[str]]) -> None:
    """Check what is named for a role.

    Args:
        prefix: of the coordinator's topics.
        named: by the place that it fills.

    Raises:
        SetupError: a name is none, or what may be written there is the coordinator's own.
    """
    for place in (TOPIC, OUTPUT):
        for name in named[place]:
            if name != "*" and not _TOPIC_NAME.fullmatch(name.removesuffix("*")):
                raise _names_no("topic", place, name)
    for place, what in ((GROUP, "group"), (TRANSACTION, "transactional id")):
        for name in named[place]:
            if not name or len(name.encode()) > _NAME_LENGTH_MAX or not name.isprintable():
                raise _names_no(what, place, name)
    for name in named[COORDINATION]:
        if not _TOPIC_NAME.fullmatch(name):
            hint = "Name one topic: --claims __marshal"
            raise SetupError("This names no coordination topic.", f"--claims {name[:200]!r}", hint)
    _refuse_own(prefix, named)


def _refuse_own(prefix: str, named: Mapping[str, Sequence[str]]) -> None:
    """Raises SetupError: a name that is written covers the coordinator's own. A producer of the
    job's transactional id ends the job, and whoever writes its topics answers in its place."""
    topics = sorted(own_topics(prefix))
    ids = [f"{prefix}-coordinator", f"{claims_prefix(prefix)}-coordinator"]
    for place, own in ((OUTPUT, topics), (COORDINATION, topics), (TRANSACTION, ids)):
        for name in named[place]:
            if covered := [each for each in own if _covers(name, each, is_id=own is ids)]:
                raise SetupError(
                    "This name covers the coordinator's own: a client that writes there can end "
                    "the job, or answer in its place.",
                    f"{OPTIONS[place]} {name}: {covered[0]}",
                    "Name what the programs of this role write, or the beginning of such names, "
                    "as billing-*",
                )


def _covers(name: str, own: str, *, is_id: bool) -> bool:
    """Whether a right to `name` is one to the coordinator's own name; jobs over a part of the
    shards have longer ids."""
    if name.endswith("*") and own.startswith(name[:-1]):
        return True
    return name == own or (is_id and name.startswith(f"{own}-"))


def _names_no(what: str, place: str, name: str) -> SetupError:
    is_any = "" if place in (OUTPUT, TRANSACTION) else ", or * for all"
    hint = f"Name a {what}, or the beginning of names (orders-*){is_any}."
    return SetupError(f"This names no {what}s.", f"{OPTIONS[place]} {name[:200]!r}", hint)


class Role(StrEnum):
    """What a program does for the coordinator."""

    JOB = "job"
    ARCHIVE = "archive"
    MEMBER = "member"
    #: Of a broker of a cluster of ours: the program that keeps the replicas.
    AGENT = "agent"
    PUBLISHER = "publisher"
    READER = "reader"
    OPERATOR = "operator"
    #: The job that follows claims alone: `coord submit claims`.
    CLAIMS = "claims"
    #: A consumer of claims, and `ClaimsAdmin`.
    CLAIMANT = "claimant"


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
        name: `{prefix}` is the topics' prefix. A row with another place (`{topic}`, `{group}`,
            `{claims}`, `{transaction}`, `{output}`) is there once for each topic, group,
            coordination topic, transactional id or output topic that is named; if none is, it is
            not there. Nor are rows of the claims pipeline's own names without a coordination topic.
        purpose: what fails without it.
    """

    kind: Kind
    name: str
    operation: Operation
    purpose: str
    is_prefix: bool = False


#: librdkafka asks for the coordinator of a consumer's group, also where the group is never joined.
UNUSED_GROUPS: Final = "coordlib-"
#: How the names of the claims pipeline begin: its topics, and its transactional id.
_CLAIMS: Final = f"{{prefix}}.{CLAIMS}"


def _topic(name: str, operation: Operation, purpose: str) -> Row:
    return Row(Kind.TOPIC, f"{{prefix}}.{name}", operation, purpose)


def _every(operation: Operation, purpose: str, pipeline: str = "") -> Row:
    below = f"{pipeline}." if pipeline else ""
    return Row(Kind.TOPIC, f"{{prefix}}.{below}", operation, purpose, is_prefix=True)


def _coordination(operation: Operation, purpose: str) -> Row:
    return Row(Kind.TOPIC, COORDINATION, operation, purpose)


def _data(operation: Operation, purpose: str) -> Row:
    return Row(Kind.TOPIC, TOPIC, operation, purpose)


_UNUSED: Final = Row(
    Kind.GROUP,
    UNUSED_GROUPS,
    Operation.DESCRIBE,
    "consumers that join no group of Kafka's still ask for its coordinator",
    is_prefix=True,
)
_LAYOUT: Final = _topic("progress", Operation.READ, "learns the number of shards")
_LAYOUT_OF_CLAIMS: Final = _topic(
    f"{CLAIMS}.progress", Operation.READ, "learns the number of coordination partitions"
)
_PURPOSES_OF_READING: Final = {
    "responses": "reads answers",
    "assignments": "reads who owns which partition, with its fencing token",
    "groups": "reads the groups' states",
    "committed": "reads committed offsets",
    "clusters": "reads which brokers a cluster has",
    "metadata": "reads topics and partitions of clusters, and who leads them",
    "events": "reads history",
    "lag": "reads samples of lag",
    "claims.assignments": "reads who owns which partition by a claim, with its fencing token",
    "claims.committed": "reads positions of claims",
    "claims.events": "reads history of claims",
    "claims.lag": "reads samples of lag of claims",
    "claims.snapshots": "begins with the newest snapshot, where a job writes them",
}
_CLAIMS_READ_BY_READERS: Final = (
    "claims.assignments",
    "claims.committed",
    "claims.events",
    "claims.lag",
)
_READ_BY_READERS: Final = tuple(
    name for name in (*OUTPUTS, LAG) if name in _PURPOSES_OF_READING and name != "responses"
)


def _reads(names: Sequence[str]) -> tuple[Row, ...]:
    return tuple(_topic(name, Operation.READ, _PURPOSES_OF_READING[name]) for name in names)


#: Of the job that follows claims, beside the groups or alone.
_FOLLOWS_CLAIMS: Final = (
    _coordination(Operation.READ, "follows the claims"),
    _coordination(Operation.DESCRIBE_CONFIGS, "checks the coordination topic when it starts"),
    Row(
        Kind.TRANSACTIONAL_ID,
        f"{_CLAIMS}-coordinator",
        Operation.WRITE,
        "writes each batch of claims once, in a transaction",
    ),
)

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
        Row(
            Kind.TRANSACTIONAL_ID,
            "{prefix}-coordinator-",
            Operation.WRITE,
            "as a job instance (--shards), and takes the shards of another one over",
            is_prefix=True,
        ),
        _UNUSED,
        Row(Kind.GROUP, GROUP, Operation.READ, "mirrors this group's offsets"),
        Row(Kind.GROUP, GROUP, Operation.DELETE, "deletes a mirrored group with its original"),
        _data(Operation.READ, "Kafka lets offsets be mirrored by those who may read the topic"),
        *_FOLLOWS_CLAIMS,
    ),
    Role.ARCHIVE: (*_reads(ARCHIVED), _LAYOUT, _LAYOUT_OF_CLAIMS),
    Role.MEMBER: (
        _topic("requests", Operation.WRITE, "joins, keeps alive, commits"),
        *_reads(("responses",)),
        _LAYOUT,
        _data(Operation.READ, "reads the partitions that it is assigned"),
        Row(
            Kind.TRANSACTIONAL_ID,
            TRANSACTION,
            Operation.WRITE,
            "commits offsets in a transaction of its own",
        ),
        Row(Kind.TOPIC, OUTPUT, Operation.WRITE, "writes its results in that transaction"),
        Row(
            Kind.TOPIC,
            OUTPUT,
            Operation.DESCRIBE_CONFIGS,
            "refuses a compacted topic, where the coordinator decides",
        ),
        _UNUSED,
    ),
    Role.AGENT: (
        _topic(
            "requests",
            Operation.WRITE,
            "registers a broker, keeps it alive, changes in-sync replicas, lets go",
        ),
        *_reads(("responses",)),
        _LAYOUT,
        _UNUSED,
    ),
    Role.PUBLISHER: (
        _topic("offsets", Operation.WRITE, "publishes positions"),
        _LAYOUT,
    ),
    Role.READER: (
        *_reads(_READ_BY_READERS),
        _topic("progress", Operation.READ, "learns how far the job has come"),
        _topic("requests", Operation.DESCRIBE, "learns how many requests wait"),
        _data(Operation.DESCRIBE, "learns where logs end, for lag"),
        *_reads(_CLAIMS_READ_BY_READERS),
        _LAYOUT_OF_CLAIMS,
    ),
    Role.OPERATOR: (
        _every(Operation.READ, "reads answers, groups, offsets, and how far the job has come"),
        _every(Operation.CREATE, "creates the coordinator's topics"),
        _every(Operation.DESCRIBE_CONFIGS, "checks the coordinator's topics"),
        _topic(
            "requests", Operation.WRITE, "asks the coordinator to release, delete, remove, abort"
        ),
        _data(Operation.DESCRIBE, "learns where logs end, for lag"),
        _UNUSED,
        _coordination(Operation.READ, "reads who owns which partition, and how the log is kept"),
        _coordination(Operation.WRITE, "pauses groups of claims, and sets their positions"),
        _coordination(Operation.CREATE, "creates the coordination topic"),
        _coordination(Operation.DESCRIBE_CONFIGS, "checks the coordination topic"),
        Row(
            Kind.GROUP,
            GROUP,
            Operation.DESCRIBE,
            "reads the position of a group of claims without one in the log",
        ),
        Row(
            Kind.TRANSACTIONAL_ID,
            TRANSACTION,
            Operation.WRITE,
            "fences the producer of a transaction of Kafka that hangs",
        ),
        Row(Kind.TOPIC, OUTPUT, Operation.WRITE, "writes markers that a transaction lacks"),
    ),
    Role.CLAIMS: (
        _every(Operation.READ, "reads its own outputs after a restart", CLAIMS),
        _every(Operation.WRITE, "writes owners, positions, history and snapshots", CLAIMS),
        _every(Operation.DESCRIBE_CONFIGS, "checks its topics when it starts", CLAIMS),
        Row(Kind.TOPIC, "*", Operation.DESCRIBE, "learns where logs end, for lag"),
        _UNUSED,
        *_FOLLOWS_CLAIMS,
    ),
    Role.CLAIMANT: (
        _coordination(Operation.WRITE, "claims, keeps alive, releases"),
        _coordination(Operation.READ, "reads who owns which partition"),
        _coordination(Operation.DESCRIBE_CONFIGS, "checks that brokers stamp its records"),
        *_reads(("claims.snapshots",)),
        _data(Operation.READ, "reads the partitions that it claims"),
        Row(
            Kind.GROUP,
            GROUP,
            Operation.READ,
            "begins at Kafka's committed offsets, and copies positions there",
        ),
        _UNUSED,
    ),
}


def rights(
    role: Role,
    prefix: str,
    topics: Sequence[str] = (),
    groups: Sequence[str] = (),
    claims: str | None = None,
    *,
    transactional_ids: Sequence[str] = (),
    outputs: Sequence[str] = (),
) -> tuple[Right, ...]:
    """The rights of a role, each once, in the table's order.

    Args:
        prefix: of the coordinator's topics.
        topics: data topics. `orders-*` means all whose names begin with `orders-`, `*` all.
        groups: groups that the job mirrors to Kafka, or that claim; named as topics are.
        claims: the coordination topic of claims; None: there are none.
        transactional_ids: of a member's own transactions; named as topics are, but not `*`.
        outputs: topics that a member writes in its transactions; named as topics are, but not `*`.

    Raises:
        SetupError: a name is none, the role has no row for such names, or what it may write covers
            the coordinator's own.
    """
    named = {
        TOPIC: topics,
        GROUP: groups,
        COORDINATION: () if claims is None else (claims,),
        TRANSACTION: transactional_ids,
        OUTPUT: outputs,
    }
    require_names(prefix, named)
    _require_rows(role, named)
    filled = (right for row in TABLE[role] for right in _filled(row, prefix, named))
    return tuple(dict.fromkeys(filled))


def options_of(role: Role) -> dict[str, str]:
    """Which options name something for rows of this role: option -> the place that it fills."""
    return {
        option: place
        for place, option in OPTIONS.items()
        if any(place in _places_of(row) for row in TABLE[role])
    }


def _places_of(row: Row) -> set[str]:
    """What must be named for a row to be there."""
    if row.name.startswith(_CLAIMS):
        return {COORDINATION}
    return {row.name} & OPTIONS.keys()


def _filled(row: Row, prefix: str, named: Mapping[str, Sequence[str]]) -> Iterator[Right]:
    if not all(named[place] for place in _places_of(row)):
        return
    for name in named.get(row.name, ()):
        is_prefix = name.endswith("*") and name != "*"
        yield Right(row.kind, name[:-1] if is_prefix else name, row.operation, is_prefix)
    if row.name not in named:
        yield Right(row.kind, row.name.format(prefix=prefix), row.operation, row.is_prefix)


def _require_rows(role: Role, named: Mapping[str, Sequence[str]]) -> None:
    """Raises SetupError: the role can do nothing with some of the names."""
    if role is Role.JOB and bool(named[TOPIC]) != bool(named[GROUP]):
        what = "Offsets are mirrored of groups, and of topics that the job may read."
        raise SetupError(what, "--groups --topics", "Name both, or neither.")
    taken = options_of(role)
    for place, option in OPTIONS.items():
        if named[place] and option not in taken:
            what = f"The role {role} has no right to what {option} names."
            raise SetupError(what, f"{option} {named[place][0]}", f"Leave {option} out.")
