"""Topics that no expression matches: the coordinator's own and Kafka's.

One rule for both kinds of groups. A member of a classic group looks at the cluster itself; for
server-assigned groups the job's driver does, and leaves these out of what it tells its shards, so
that they are not given by name either.
"""

from typing import Final

#: Kafka's own topics (`__consumer_offsets`) and what follows their custom.
INTERNAL: Final = "__"
#: The coordinator's own topics, below its prefix: those of conf/topics.toml. Users may have others
#: there.
OWN: Final = (
    *("requests", "offsets", "responses", "assignments"),
    *("groups", "committed", "events", "lag", "progress"),
)


def own_topics(prefix: str) -> frozenset[str]:
    """The coordinator's own topics under this prefix."""
    return frozenset(f"{prefix}.{name}" for name in OWN)


def is_users(topic: str, own: frozenset[str]) -> bool:
    """Whether users may share it by an expression; `own`: the coordinator's topics."""
    return topic not in own and not topic.startswith(INTERNAL)
