"""The topics of the claims pipeline: its own below `<prefix>.claims`, and the coordination topic.

The coordination topic belongs to its clients: the job reads it, and nothing here changes it once it
is there. What the engine needs of it is that the brokers stamp its records (LogAppendTime), for
time is in the log, and that it is not compacted, for a message has no key.
"""

from collections.abc import Iterable
from typing import Final

from coordlib.core.wire.claims import heartbeat_interval_ms
from coordlib.core.wire.topics import claims_prefix
from coordlib.errors import SetupError, StartRefused
from coordlib.kafka.clients import open_admin
from coordlib.kafka.layout import recorded_counts, recorded_layout
from coordlib.kafka.plans import (
    CLAIMS_TABLE,
    REPLICATION_SAFE,
    Counts,
    Finding,
    Seen,
    TopicPlan,
    alter,
    differences,
    fixed_ids,
    merged,
    missing,
    read_plans,
    safety_findings,
)
from coordlib.kafka.topics import (
    REACH_TIMEOUT_S,
    AdminConf,
    Checked,
    Layout,
    create_planned,
    describe,
    look_up,
    present_topics,
    refuse_hidden,
)

#: Partitions of a coordination topic, where no number is given: enough for a laptop.
PARTITIONS: Final = 4
_STAMP: Final = "message.timestamp.type"
_UNCLEAN: Final = "unclean.leader.election.enable"
_POLICY: Final = "cleanup.policy"
_COUNTED: Final = "the coordination topic"
#: Of a coordination topic that is made here.
_CONFIG: Final = {
    _POLICY: "delete",
    _STAMP: "LogAppendTime",
    "retention.ms": "604800000",  # 7 days: how long the job may be away without losing history
    _UNCLEAN: "false",  # readers would disagree about who owns what
    "min.insync.replicas": "2",
}


def require_name(topic: str, named_by: str) -> None:
    """Check that a heartbeat interval belongs to a coordination topic's name.

    Args:
        named_by: the setting or option that names it.

    Raises:
        SetupError: none does.
    """
    try:
        heartbeat_interval_ms(topic)
    except ValueError as problem:
        raise SetupError(
            str(problem),
            f"{named_by} {topic[:200]!r}",
            "Name a topic that ends in .6s to .3600s, or one without such an end: 60 s.",
        ) from problem


def create(admin_conf: AdminConf, prefix: str, topic: str, replication: int) -> list[str]:
    """Create the claims pipeline's topics that are missing; returns their names.

    Args:
        prefix: of the groups' pipeline.
        topic: the coordination topic, which gives the number of partitions.

    Raises:
        CannotReach: no broker answers.
        NotAllowed: the coordination topic may not be seen.
        SetupError: there is no such topic, or the cluster refuses.
    """
    admin = open_admin(admin_conf)
    present = present_topics(admin, admin_conf)
    if topic not in present:
        refuse_hidden(admin, [topic], admin_conf)
        raise SetupError(
            "The coordination topic does not exist.",
            topic,
            f"Name the topic that the clients use, or create it: coord claims create {topic}",
        )
    plans = {name: plan for name, plan in _plans(prefix).items() if name not in present}
    if not plans:
        return []
    recorded = recorded_counts(admin_conf, claims_prefix(prefix), present, topic)
    count = recorded.shards if recorded else len(present[topic].partitions)
    return create_planned(admin, admin_conf, plans, (count, 0), replication)


def check(admin_conf: AdminConf, prefix: str, topic: str) -> Checked:
    """Compare the claims pipeline's topics with their plans, and the coordination topic.

    Raises:
        CannotReach: no broker answers.
        SetupError: the cluster does not allow the description.
    """
    plans = _plans(prefix)
    seen = describe(open_admin(admin_conf), [*plans, topic], admin_conf)
    read = seen.pop(topic, None)
    findings = list(coordination_findings(topic, read))
    findings += missing(plans, seen, f"coord topics create --prefix {prefix} --claims {topic}")
    below, partitions = claims_prefix(prefix), 0 if read is None else read.partitions
    recorded = recorded_counts(admin_conf, below, seen, topic)
    counts = recorded or Counts(partitions, 0, _COUNTED)
    if read is not None and recorded and partitions != counts.shards:
        findings.append(other_count(topic, partitions, counts.shards, prefix))
    findings += differences(plans, seen, counts)
    layout = None
    if read is not None and not any(finding.is_fatal for finding in findings):
        ids = fixed_ids(plans, seen) | {topic: read.topic_id}
        layout = Layout(below, counts.shards, 0, ids, topic)
    return Checked(layout, merged(findings))


def other_count(topic: str, partitions: int, recorded: int, prefix: str) -> Finding:
    """The coordination topic has grown. Not as a topic of ours: its clients place their messages by
    the present number, so that the recorded partitions have no longer all that is theirs."""
    return Finding(
        topic,
        f"has {partitions} partitions",
        f"{recorded}, as the job has recorded",
        "Its clients place messages by that number, so no record is processed by the former one. "
        f"To follow the topic again, delete the job's topics {claims_prefix(prefix)}.*, run: coord "
        f"topics create --prefix {prefix} --claims {topic}, and start in an empty folder.",
    )


def require_count(admin_conf: AdminConf, prefix: str, topic: str, recorded: int) -> None:
    """Whether a topic that is followed has as many partitions as before; for a running job.

    Raises:
        StartRefused: it has others.
        KafkaException: no broker answers.
        NotAllowed: the topic may no longer be seen.
    """
    found = look_up(open_admin(admin_conf, log_level=2), [topic], admin_conf).get(topic)
    if found is not None and len(found.partitions) != recorded:
        finding = other_count(topic, len(found.partitions), recorded, prefix)
        raise StartRefused(
            "The coordination topic has another number of partitions.",
            f"{topic} {finding.what}; must be {finding.must}",
            finding.hint,
        )


def followed(admin_conf: AdminConf, prefix: str) -> str | None:
    """The coordination topic that a job of this prefix has followed; None: none. CannotReach."""
    below = claims_prefix(prefix)
    if f"{below}.progress" not in present_topics(open_admin(admin_conf), admin_conf):
        return None
    layout = recorded_layout(admin_conf, below)
    return layout.input or None if layout is not None else None


def require(admin_conf: AdminConf, prefix: str, topic: str) -> tuple[Layout, tuple[Finding, ...]]:
    """The claims pipeline's layout and the warnings.

    Raises:
        StartRefused: there are fatal findings; the message lists all of them.
    """
    checked = check(admin_conf, prefix, topic)
    if checked.layout is None:
        raise StartRefused(
            "The topics of the claims plane are not as the engine needs them.",
            "\n".join(str(finding) for finding in checked.fatal),
            f"Fix them, and look again with: coord topics check --prefix {prefix} --claims {topic}",
        )
    return checked.layout, checked.warnings


def create_coordination(
    admin_conf: AdminConf, topic: str, partitions: int, replication: int | None = None
) -> bool:
    """Create a coordination topic; returns whether it was not there. One that is stays as it is.

    Args:
        replication: of each partition; None: `REPLICATION_SAFE`, or as many as there are brokers.

    Raises:
        CannotReach: no broker answers.
        SetupError: the cluster refuses.
    """
    admin = open_admin(admin_conf)
    if topic in present_topics(admin, admin_conf):
        return False
    if replication is None:
        brokers = admin.list_topics(timeout=REACH_TIMEOUT_S).brokers
        replication = min(REPLICATION_SAFE, len(brokers))
    plan = TopicPlan(topic, partitions, _CONFIG)
    return bool(create_planned(admin, admin_conf, {topic: plan}, (partitions, 0), replication))


def check_coordination(admin_conf: AdminConf, topic: str) -> tuple[Finding, ...]:
    """What of a coordination topic is not as readers need it. Raises CannotReach, SetupError."""
    return tuple(
        coordination_findings(
            topic, describe(open_admin(admin_conf), [topic], admin_conf).get(topic)
        )
    )


def coordination_findings(topic: str, seen: Seen | None) -> Iterable[Finding]:
    """The same of a description; None: it is not there."""
    if seen is None:
        hint = f"Name the clients' topic (--claims-topic), or run: coord claims create {topic}"
        yield Finding(topic, "does not exist", "there", hint)
        return
    for key in (_STAMP, _POLICY, _UNCLEAN):
        found, must = seen.config.get(key), _CONFIG[key]
        if found != must:
            yield Finding(topic, f"{key} is {found}", must, alter(topic, key, must))
    yield from safety_findings(topic, seen)


def _plans(prefix: str) -> dict[str, TopicPlan]:
    """By full name."""
    below = claims_prefix(prefix)
    return {f"{below}.{plan.name}": plan for plan in read_plans(pipeline=CLAIMS_TABLE)}
