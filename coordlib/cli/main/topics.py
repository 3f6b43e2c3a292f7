"""`coord topics create` and `check`: the coordinator's own topics."""

from typing import TYPE_CHECKING

from coordlib.cli.kit.numbers import Partitions, Replication
from coordlib.cli.kit.output import counted, print_json, print_line, print_table, say
from coordlib.cli.kit.where import HERE, Where
from coordlib.errors import NotAllowed

if TYPE_CHECKING:
    from coordlib.kafka.findings import Finding


def create(
    *,
    shards: Partitions | None = None,
    responses: Partitions | None = None,
    replication: Replication = 3,
    claims: str | None = None,
    where: Where = HERE,
) -> int:
    """Create the topics that are missing; existing topics are left as they are.

    Parameters
    ----------
    shards
        Partitions of the requests topic; 2 for a new prefix, then fixed for its life.
    responses
        Partitions of the responses topic, then fixed for its life; for a new prefix eight times the
        shards, at least 32 and at most 256.
    replication
        Replicas of each partition; 1 for a single broker.
    claims
        The coordination topic that the job is to follow: also the job's own topics for it, with as
        many partitions.
    """
    from coordlib.kafka import coordination, topics

    where.reach()
    client, prefix = where.client(), where.topic_prefix()
    created = topics.create(client, prefix, shards, responses, replication)
    if claims:
        created += coordination.create(client, prefix, claims, replication)
    if where.format == "json":
        print_json("topics create", created=created)
        return 0
    for name in created:
        print_line(name)
    say(f"{counted(len(created), 'topic')} created")
    return 0


def check(*, claims: str | None = None, where: Where = HERE) -> int:
    """Check the topics' settings; exit code 3 when the job would not start on them.

    Parameters
    ----------
    claims
        Also a coordination topic of claims, and the job's topics for it; else those that the job
        has followed before.
    """
    from coordlib.kafka import coordination, topics

    where.reach()
    client, prefix = where.client(), where.topic_prefix()
    checked = topics.check(client, prefix)
    beside, followed = None, claims
    findings = list(checked.findings)
    try:
        followed = claims or coordination.followed(client, prefix)
        beside = coordination.check(client, prefix, followed) if followed else None
        findings += beside.findings if beside else ()
    except NotAllowed as problem:
        if claims:
            raise
        findings.append(_not_seen(problem, followed))
    rows = [(f.topic, f.what, f.must, f.is_fatal, f.mend) for f in findings]
    is_good = checked.layout is not None and (beside is None or beside.layout is not None)
    if where.format == "json":
        keys = ("topic", "what", "must", "is_fatal", "mend")
        layout = checked.layout
        print_json(
            "topics check",
            topic_prefix=prefix,
            ok=is_good,
            shards=layout.shards if layout else None,
            responses=layout.responses if layout else None,
            claims=followed,
            coordination_partitions=beside.layout.shards if beside and beside.layout else None,
            findings=[dict(zip(keys, row, strict=True)) for row in rows],
        )
    elif rows:
        headers = ("TOPIC", "IS", "MUST-BE", "LEVEL", "MEND")
        levels = {True: "error", False: "warning"}
        print_table(headers, [(t, w, m, levels[fatal], mend) for t, w, m, fatal, mend in rows])
    if checked.layout is not None:
        layout = checked.layout
        say(f"Topics of {prefix} are good: {layout.shards} shards, {layout.responses} responses")
    if beside is not None and beside.layout is not None:
        say(f"Those for {followed} are good: {beside.layout.shards} coordination partitions")
    return 0 if is_good else 3


def _not_seen(problem: NotAllowed, followed: str | None) -> "Finding":
    """Topics of claims that nobody asked for, and that whoever checks groups may not see: what is
    found of the groups' stands."""
    from coordlib.kafka.findings import Finding

    what = f"was not checked: {problem.what}"
    return Finding(followed or "topics of claims", what, "visible", problem.mend, is_fatal=False)
