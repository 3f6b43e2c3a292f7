"""Create and verify the engine's topics (coordlib/conf/topics.toml), on a laptop or a cluster.

Creating is idempotent and never changes a topic that exists: a partition count cannot go back, and
the settings of a cluster are its owner's. The check reports differences, each with its remedy.
"""

import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its stubs do not re-export
    AdminClient,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from coordlib.errors import CannotReach, CoordError, SetupError, StartRefused
from coordlib.kafka.clients import denial, hidden, open_admin, reading, unreachable
from coordlib.kafka.clients import missing as missing_right
from coordlib.kafka.cluster import topic_id_of
from coordlib.kafka.layout import recorded_counts
from coordlib.kafka.plans import (
    REPLICATION_SAFE,
    Counts,
    Finding,
    Seen,
    TopicPlan,
    differences,
    fixed_ids,
    merged,
    missing,
    read_plans,
)
from coordlib.kafka.roles import Kind, Operation, Right

REACH_TIMEOUT_S = 5.0  # until "no broker answers" is said; a reachable one answers in milliseconds
ADMIN_TIMEOUT_S = 15.0
VISIBLE_TIMEOUT_S = 30.0
SHARDS = 2  # partitions of a new prefix, where no number is given
RESPONSES_PER_SHARD, RESPONSES_MIN, RESPONSES_MAX = 8, 32, 256
LOCAL_RESPONSES_PER_SHARD, LOCAL_RESPONSES_MIN = 4, 16
INCARNATION_LENGTH = 8
PREFIX_LENGTH_MAX = 200  # Kafka's 249 for a topic's name, less the longest of ours
_ABSENT = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.TOPIC_EXCEPTION)  # which no topic can have
_PREFIX = re.compile(r"[A-Za-z0-9._-]+")

AdminConf = Mapping[str, str]
"""librdkafka's options of an admin client, `bootstrap.servers` among them."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The layout of a prefix whose topics are all in order."""

    prefix: str
    shards: int  # P
    responses: int  # R
    #: By full topic name; Kafka's, so a re-created topic differs. Without REPLACEABLE ones.
    topic_ids: Mapping[str, str]
    #: The topic whose partitions are the shards; empty: `<prefix>.requests`.
    input: str = ""

    @property
    def incarnation(self) -> str:
        """The first characters of that topic's id; part of every member id."""
        return self.topic_ids[self.input or f"{self.prefix}.requests"][:INCARNATION_LENGTH]


@dataclass(frozen=True, slots=True)
class Checked:
    """Outcome of a check: a layout unless something fatal was found; warnings beside it."""

    layout: Layout | None
    findings: tuple[Finding, ...]

    @property
    def fatal(self) -> tuple[Finding, ...]:
        """The findings with which the engine does not start."""
        return tuple(finding for finding in self.findings if finding.is_fatal)

    @property
    def warnings(self) -> tuple[Finding, ...]:
        """The findings with which it starts."""
        return tuple(finding for finding in self.findings if not finding.is_fatal)


def responses_for(shards: int) -> int:
    """Response partitions of a new prefix, where no number is given.

    A client reads the whole of one partition: the more there are, the fewer answers to others it
    reads. But each shard notifies all of its readers of its progress, so nearly every batch
    writes into all of them. What a partition more costs is in docs/how-to/size.md.
    """
    return min(max(RESPONSES_MIN, RESPONSES_PER_SHARD * shards), RESPONSES_MAX)


def local_responses_for(shards: int) -> int:
    """The same on one machine, which has few client processes, and a broker that shares its cores.

    A batch's transaction writes to each partition into which it answers.
    """
    return max(LOCAL_RESPONSES_MIN, LOCAL_RESPONSES_PER_SHARD * shards)


def require_prefix(prefix: str) -> None:
    """Check that topics may be named so, before anything is started for them.

    Raises:
        SetupError: Kafka refuses such names.
    """
    if len(prefix) > PREFIX_LENGTH_MAX or not _PREFIX.fullmatch(prefix):
        raise SetupError(
            "This is no prefix of topics.",
            f"--prefix {prefix[:200]!r}",
            f"A prefix has 1 to {PREFIX_LENGTH_MAX} letters, digits, dots, dashes and underscores.",
        )


def create(
    admin_conf: AdminConf,
    prefix: str,
    shards: int | None,
    responses: int | None,
    replication: int,
) -> list[str]:
    """Create the topics that are missing; returns their names once every partition has a leader.

    Args:
        shards, responses: partitions of a new prefix; None: those that the prefix has, else
            SHARDS and `responses_for` them.

    Raises:
        CannotReach: no broker answers.
        SetupError: the cluster refuses, say for too few brokers or for lack of permission, or the
            prefix has other numbers of partitions and lacks a topic.
    """
    admin = open_admin(admin_conf)
    present = present_topics(admin, admin_conf)
    named = {f"{prefix}.{plan.name}": plan for plan in read_plans()}
    plans = {name: plan for name, plan in named.items() if name not in present}
    if not plans:
        return []
    known = {name: len(topic.partitions) for name, topic in present.items()}
    if recorded := recorded_counts(admin_conf, prefix, present):
        known |= {f"{prefix}.requests": recorded.shards, f"{prefix}.responses": recorded.responses}
    of_requests = _agreed(shards, f"{prefix}.requests", known, SHARDS)
    otherwise = responses_for(of_requests)
    counts = of_requests, _agreed(responses, f"{prefix}.responses", known, otherwise)
    return create_planned(admin, admin_conf, plans, counts, replication)


def create_planned(
    admin: AdminClient,
    admin_conf: AdminConf,
    plans: Mapping[str, TopicPlan],
    counts: tuple[int, int],
    replication: int,
) -> list[str]:
    """Create these topics; returns their names once every partition has a leader.

    Args:
        plans: by full name.
        counts: shards, and partitions of the responses.

    Raises:
        CannotReach: no broker answers.
        SetupError: the cluster refuses.
    """
    new = {name: _new_topic(name, plan, counts, replication) for name, plan in plans.items()}
    futures = admin.create_topics(list(new.values()), operation_timeout=ADMIN_TIMEOUT_S)
    for name, future in futures.items():
        try:
            future.result(ADMIN_TIMEOUT_S)
        except KafkaException as error:
            _refuse_unless_exists(name, error, admin_conf)
    partitions = {name: topic.num_partitions for name, topic in new.items()}
    _wait_until_visible(admin, partitions, admin_conf)
    return sorted(new)


def check(admin_conf: AdminConf, prefix: str) -> Checked:
    """Compare the topics of a prefix with their plans.

    Raises:
        CannotReach: no broker answers.
        NotAllowed: the cluster does not allow the description.
    """
    admin = open_admin(admin_conf)
    plans = {f"{prefix}.{plan.name}": plan for plan in read_plans()}
    seen = describe(admin, plans, admin_conf)
    findings = list(missing(plans, seen, f"coord topics create --prefix {prefix}"))
    counts = recorded_counts(admin_conf, prefix, seen) or Counts(
        _count(seen.get(f"{prefix}.requests")),
        _count(seen.get(f"{prefix}.responses")),
        "the requests topic",
    )
    findings += differences(plans, seen, counts)
    layout = None
    if not any(finding.is_fatal for finding in findings):
        ids = fixed_ids(plans, seen)
        layout = Layout(prefix, counts.shards, counts.responses, ids)
    return Checked(layout, merged(findings))


def _count(topic: Seen | None) -> int:
    return 0 if topic is None else topic.partitions


def require(admin_conf: AdminConf, prefix: str) -> tuple[Layout, tuple[Finding, ...]]:
    """The layout and the warnings; for a job that cannot start without a good layout.

    Raises:
        StartRefused: there are fatal findings; the message lists all of them.
    """
    checked = check(admin_conf, prefix)
    if checked.layout is None:
        raise StartRefused(
            f"The topics of prefix {prefix} are not as the engine needs them.",
            "\n".join(str(finding) for finding in checked.fatal),
            f"Fix them, and look again with: coord topics check --prefix {prefix}",
        )
    return checked.layout, checked.warnings


def _agreed(asked: int | None, topic: str, known: Mapping[str, int], otherwise: int) -> int:
    """Partitions of new topics: a topic with others than the rest could never be fixed."""
    if topic not in known:
        return otherwise if asked is None else asked
    found = known[topic]
    if asked not in (None, found):
        raise SetupError(
            f"The prefix has {found} partitions here, not {asked}.",
            topic,
            "Leave the number out: new topics then get what the others have.",
        )
    return found


def _new_topic(name: str, plan: TopicPlan, counts: tuple[int, int], replication: int) -> NewTopic:
    config = dict(plan.config)
    if replication < REPLICATION_SAFE:
        config["min.insync.replicas"] = "1"
    return NewTopic(
        name,
        num_partitions=plan.count(*counts),
        replication_factor=replication,
        config=config,
    )


def _refuse_unless_exists(name: str, error: KafkaException, conf: AdminConf) -> None:
    if denied := denial(error, Right(Kind.TOPIC, name, Operation.CREATE), conf):
        raise denied from error
    code = error.args[0].name()
    if code != "TOPIC_ALREADY_EXISTS":  # another client created it at this moment: as good
        raise SetupError(
            f"The topic {name} could not be created.",
            error.args[0].str(),
            "Ask for a replication that the cluster has brokers for: --replication N",
        ) from error


def _wait_until_visible(admin: AdminClient, wanted: Mapping[str, int], conf: AdminConf) -> None:
    """Wait for new topics: clients see them a moment after their creation was acknowledged."""
    deadline = time.monotonic() + VISIBLE_TIMEOUT_S
    while time.monotonic() < deadline:
        present = present_topics(admin, conf)
        refuse_hidden(admin, [name for name in wanted if name not in present], conf)
        if all(_led(present.get(name)) == count for name, count in wanted.items()):
            return
        time.sleep(0.05)
    raise CannotReach(
        f"New topics have no leader after {VISIBLE_TIMEOUT_S:.0f} s.",
        ", ".join(wanted),
        "Look into the broker's log, then run the same command again.",
    )


def present_topics(admin: AdminClient, conf: AdminConf) -> dict[str, Any]:
    """All topics' metadata, by name. Raises CannotReach."""
    try:
        return dict(admin.list_topics(timeout=REACH_TIMEOUT_S).topics)
    except KafkaException as error:
        raise _silent(conf, error) from error


def _silent(conf: AdminConf, error: KafkaException) -> CoordError:
    hint = "Check --bootstrap-servers and the security options; on a laptop, run: coord up"
    return unreachable(conf, "No Kafka broker answers.", error, hint)


def refuse_hidden(admin: AdminClient, names: list[str], conf: AdminConf) -> None:
    """Raises NotAllowed for topics that may be there, and that this principal may not see."""
    try:
        unseen = hidden(admin, names, ADMIN_TIMEOUT_S)
    except KafkaException as error:
        hint = "Look into the broker's log."
        raise unreachable(conf, "The topics are not described.", error, hint) from error
    if unseen:
        raise missing_right(reading(unseen[0]), conf)


def _led(topic: Any) -> int:
    """How many partitions have a leader."""
    return 0 if topic is None else sum(each.leader >= 0 for each in topic.partitions.values())


def look_up(admin: AdminClient, wanted: Iterable[str], conf: AdminConf) -> dict[str, Any]:
    """Those of these topics that are there, described by Kafka; no other topic is asked for.

    Raises:
        KafkaException: no broker answers.
        NotAllowed: one of them may not be seen, whether it is there or not.
    """
    names = list(dict.fromkeys(wanted))
    if not names:
        return {}
    answers = admin.describe_topics(TopicCollection(names), request_timeout=REACH_TIMEOUT_S)
    found = {name: _described(name, answers[name], conf) for name in names}
    return {name: each for name, each in found.items() if each is not None}


def _described(name: str, answer: Any, conf: AdminConf) -> Any:
    try:
        return answer.result()
    except KafkaException as error:
        if error.args[0].code() in _ABSENT:
            return None
        if denied := denial(error, reading(name), conf):
            raise denied from error
        raise


def describe(admin: AdminClient, wanted: Iterable[str], conf: AdminConf) -> dict[str, Seen]:
    """Those of these topics that are there, with their settings.

    Raises:
        CannotReach: no broker answers.
        NotAllowed: the cluster does not allow the description.
    """
    try:
        topics = look_up(admin, wanted, conf)
    except KafkaException as error:
        if error.args[0].code() > 0:
            raise _not_described(error) from error
        raise _silent(conf, error) from error
    if not topics:
        return {}
    resources = [ConfigResource(ResourceType.TOPIC, name) for name in topics]
    asked = next(iter(topics))  # whose answer is read; a refusal is about this topic alone
    configs: dict[str, Mapping[str, Any]] = {}
    try:
        answers = admin.describe_configs(resources, request_timeout=ADMIN_TIMEOUT_S)
        for resource, future in answers.items():
            asked = resource.name
            configs[asked] = future.result(ADMIN_TIMEOUT_S)
    except KafkaException as error:
        right = Right(Kind.TOPIC, asked, Operation.DESCRIBE_CONFIGS)
        raise denial(error, right, conf) or _not_described(error) from error
    return {name: _seen(each, configs[name]) for name, each in topics.items()}


def _not_described(error: KafkaException) -> CannotReach:
    hint = "Look into the broker's log."
    return CannotReach("The topics cannot be described.", error.args[0].str(), hint)


def _seen(description: Any, config: Mapping[str, Any]) -> Seen:
    return Seen(
        partitions=len(description.partitions),
        replication=min((len(p.replicas) for p in description.partitions), default=0),
        topic_id=topic_id_of(description),
        config={key: str(entry.value) for key, entry in config.items()},
    )
