"""`coord topics create` and `check`: the coordinator's own topics."""

from coordlib.cli.numbers import Partitions, Replication
from coordlib.cli.output import counted, print_json, print_table, say
from coordlib.cli.where import HERE, Where


def create(
    *,
    shards: Partitions | None = None,
    responses: Partitions | None = None,
    replication: Replication = 3,
    where: Where = HERE,
) -> int:
    """Create the topics that are missing; existing topics are left as they are.

    Parameters
    ----------
    shards
        Partitions of the requests topic; 2 for a new prefix, then fixed for its life.
    responses
        Partitions of the responses topic, then fixed for its life; for a new prefix four times the
        shards, at least 16.
    replication
        Replicas of each partition; 1 for a single broker.
    """
    from coordlib.kafka import topics

    where.reach()
    created = topics.create(where.client(), where.topic_prefix(), shards, responses, replication)
    if where.format == "json":
        print_json("topics create", created=created)
        return 0
    for name in created:
        print(name)
    say(f"{counted(len(created), 'topic')} created")
    return 0


def check(*, where: Where = HERE) -> int:
    """Check the topics' settings; exit code 3 when the job would not start on them."""
    from coordlib.kafka import topics

    where.reach()
    prefix = where.topic_prefix()
    checked = topics.check(where.client(), prefix)
    rows = [(f.topic, f.what, f.must, f.is_fatal, f.mend) for f in checked.findings]
    if where.format == "json":
        keys = ("topic", "what", "must", "is_fatal", "mend")
        layout = checked.layout
        print_json(
            "topics check",
            topic_prefix=prefix,
            ok=layout is not None,
            shards=layout.shards if layout else None,
            responses=layout.responses if layout else None,
            findings=[dict(zip(keys, row, strict=True)) for row in rows],
        )
    elif rows:
        headers = ("TOPIC", "IS", "MUST-BE", "LEVEL", "MEND")
        levels = {True: "error", False: "warning"}
        print_table(headers, [(t, w, m, levels[fatal], mend) for t, w, m, fatal, mend in rows])
    if checked.layout is not None:
        layout = checked.layout
        say(f"Topics of {prefix} are good: {layout.shards} shards, {layout.responses} responses")
    return 0 if checked.layout is not None else 3
