"""What topics must be (`coordlib/conf/topics.toml`), and how they differ, with remedies."""

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from coordlib.core.wire.topics import CLAIMS_LAG, LAG
from coordlib.errors import SetupError
from coordlib.installation import conf_file

#: Topics that may be lost and created again: no decision depends on them. By their names below the
#: prefix of their pipeline, and below that of the groups.
REPLACEABLE = frozenset({LAG, CLAIMS_LAG})
#: Tables of topics.toml: the topics of the groups' pipeline, and those of the claims pipeline.
GROUPS_TABLE, CLAIMS_TABLE = "topics", "claims"


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """The required properties of one topic."""

    name: str  # without the prefix: "requests"
    partitions: Literal["shards", "responses"] | int
    config: Mapping[str, str]

    def count(self, shards: int, responses: int) -> int:
        """Its partitions in a prefix with so many shards and response partitions."""
        match self.partitions:
            case "shards":
                return shards
            case "responses":
                return responses
            case fixed:
                return fixed


def read_plans(path: Path | None = None, pipeline: str = GROUPS_TABLE) -> tuple[TopicPlan, ...]:
    """The plans of one pipeline in coordlib/conf/topics.toml, or in another file of that form.

    Raises:
        SetupError: there is no such file, or it is not TOML.
    """
    path = path or conf_file("topics.toml")
    try:
        table = tomllib.loads(path.read_text())
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise SetupError(
            "The topics' plan cannot be read.",
            f"{path}: {error}",
            "Restore it, or install coordlib again.",
        ) from error
    return tuple(
        TopicPlan(name, topic["partitions"], table["defaults"] | topic["config"])
        for name, topic in table[pipeline].items()
    )


REPLICATION_SAFE = 3  # survives one broker while writes go on
#: Says the counts of a prefix whose job has started once.
RECORDED = "the prefix's record"


@dataclass(frozen=True, slots=True)
class Finding:
    """One difference between a topic and what it must be."""

    topic: str
    what: str  # the actual value
    must: str  # the required value
    hint: str
    is_fatal: bool = True  # False: it works, and survives less

    def __str__(self) -> str:
        word = "must be" if self.is_fatal else "should be"
        return f"{self.topic}: {self.what}; {word} {self.must}. {self.hint}"


@dataclass(frozen=True, slots=True)
class Seen:
    """One topic as the cluster describes it."""

    partitions: int
    replication: int
    topic_id: str
    config: Mapping[str, str]


def missing(
    plans: Mapping[str, TopicPlan], seen: Mapping[str, Seen], command: str
) -> Iterable[Finding]:
    """Planned topics that are not there; `command` creates them."""
    hint = f"Run: {command}"
    replication = min((topic.replication for topic in seen.values()), default=REPLICATION_SAFE)
    if replication != REPLICATION_SAFE:
        hint += f" --replication {replication}"
    return (Finding(name, "does not exist", "there", hint) for name in plans if name not in seen)


@dataclass(frozen=True, slots=True)
class Counts:
    """How many partitions the topics of a prefix have: those that its job has recorded."""

    shards: int
    responses: int
    #: Where the numbers come from: the job's record; before there is one, a topic with so many
    #: shards.
    source: str

    @property
    def are_recorded(self) -> bool:
        """Whether a job has started with them. Then they are fixed, whatever is added."""
        return self.source == RECORDED


def differences(
    plans: Mapping[str, TopicPlan], seen: Mapping[str, Seen], counts: Counts
) -> Iterable[Finding]:
    """Where topics that are there differ from their plans."""
    for name, plan in plans.items():
        if (topic := seen.get(name)) is not None:
            yield from _partition_findings(name, plan, topic, counts)
            yield from _config_findings(name, plan, topic)
            yield from safety_findings(name, topic)


def fixed_ids(plans: Mapping[str, TopicPlan], seen: Mapping[str, Seen]) -> dict[str, str]:
    """The ids of the topics that must stay, by full name."""
    return {
        name: topic.topic_id for name, topic in seen.items() if plans[name].name not in REPLACEABLE
    }


def _partition_findings(
    name: str, plan: TopicPlan, topic: Seen, counts: Counts
) -> Iterable[Finding]:
    must = plan.count(counts.shards, counts.responses)
    if must in (0, topic.partitions):
        return
    if topic.partitions > must and (counts.are_recorded or plan.partitions != "shards"):
        yield added(name, topic.partitions, must)
        return
    # Adding partitions would move groups to other shards, so nothing here is fixed in place.
    source = f", as {counts.source} has" if plan.partitions == "shards" else ""
    yield Finding(
        name,
        f"has {topic.partitions} partitions",
        f"{must}{source}",
        "The number is fixed for the topics' life: use another prefix, or delete all topics of "
        "this one and create them again.",
    )


def added(name: str, partitions: int, recorded: int) -> Finding:
    """Partitions that were added to a topic since its prefix was recorded: nobody reads them.

    It is no reason to refuse a start: Kafka cannot take partitions back, and the recorded ones have
    all that was written by their number.  # INV-115
    """
    return Finding(
        name,
        f"has {partitions} partitions",
        f"{recorded}, as the prefix was made",
        "What was added is not read, and requests in it get no answer: let nobody write there. "
        "Kafka cannot remove partitions; nothing else has to be done.",
        is_fatal=False,
    )


def _config_findings(name: str, plan: TopicPlan, topic: Seen) -> Iterable[Finding]:
    for key in ("cleanup.policy", "message.timestamp.type", "unclean.leader.election.enable"):
        must, found = plan.config.get(key), topic.config.get(key)
        if must is not None and found != must:
            yield Finding(name, f"{key} is {found}", must, alter(name, key, must))
    key = "max.message.bytes"
    must, found = plan.config[key], topic.config.get(key, "0")
    if int(found) < int(must):
        yield Finding(name, f"{key} is {found}", f"{must} or more", alter(name, key, must))


def safety_findings(name: str, topic: Seen) -> Iterable[Finding]:
    """What may be lost, or not written, by its replicas."""
    in_sync = int(topic.config.get("min.insync.replicas", "1"))
    if in_sync > topic.replication:
        yield Finding(
            name,
            f"min.insync.replicas is {in_sync} with {topic.replication} replicas",
            f"at most {topic.replication}, or nothing can be written",
            alter(name, "min.insync.replicas", str(max(1, topic.replication - 1))),
        )
    elif topic.replication < REPLICATION_SAFE:
        yield Finding(
            name,
            f"has {topic.replication} replica(s)",
            f"{REPLICATION_SAFE} or more",
            "A lost disk loses groups and offsets: good for a laptop only.",
            is_fatal=False,
        )
    elif in_sync < REPLICATION_SAFE - 1:
        yield Finding(
            name,
            f"min.insync.replicas is {in_sync}",
            "2 or more",
            alter(name, "min.insync.replicas", "2"),
            is_fatal=False,
        )


def merged(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Findings that are equal for many topics, merged into one."""
    alike: dict[Finding, list[str]] = {}
    for finding in findings:
        alike.setdefault(replace(finding, topic=""), []).append(finding.topic)
    return tuple(replace(one, topic=", ".join(names)) for one, names in alike.items())


def alter(name: str, key: str, value: str) -> str:
    """The hint of a setting."""
    return (
        f"Run: kafka-configs.sh --bootstrap-server … --alter --entity-type topics "
        f"--entity-name {name} --add-config {key}={value}"
    )
