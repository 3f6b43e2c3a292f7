"""The coordinator's own topics, and which topics no expression matches: those and Kafka's.

The lists here are the source for all code that needs one. For expressions there is one rule for
both kinds of groups. A member of a classic group looks at the cluster itself; for server-assigned
groups the job's driver does, and leaves these out of what it tells its shards, so that they are not
given by name either.
"""

from typing import Final

#: Kafka's own topics (`__consumer_offsets`) and what follows their custom.
INTERNAL: Final = "__"
#: The job reads them.
INPUTS: Final = ("requests", "offsets")
#: The job writes them, each batch in one transaction, together with `progress`.
OUTPUTS: Final = (
    "responses",
    "assignments",
    "groups",
    "committed",
    "clusters",
    "metadata",
    "events",
)
#: Written beside the batches; nothing is decided by it.
LAG: Final = "lag"
#: What the archive reads; events first, which a prefix always has.
ARCHIVED: Final = ("events", "groups", "committed", LAG)
#: The coordinator's own topics, below its prefix: those of coordlib/conf/topics.toml. Users may
#: have others there.
OWN: Final = (*INPUTS, *OUTPUTS, LAG, "progress")


def own_topics(prefix: str) -> frozenset[str]:
    """The coordinator's own topics under this prefix."""
    return frozenset(f"{prefix}.{name}" for name in OWN)


def is_users(topic: str, own: frozenset[str]) -> bool:
    """Whether users may share it by an expression; `own`: the coordinator's topics."""
    return topic not in own and not topic.startswith(INTERNAL)
