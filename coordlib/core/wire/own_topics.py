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
    "transactions",
    "outbox",
    "events",
)
#: Written beside the batches; nothing is decided by it.
LAG: Final = "lag"
#: The coordinator's own topics, below its prefix: those of coordlib/conf/topics.toml. Users may
#: have others there.
OWN: Final = (*INPUTS, *OUTPUTS, LAG, "progress")
#: The claims plane has topics of its own below `<prefix>.claims`; it reads a topic of others.
CLAIMS: Final = "claims"
CLAIMS_OUTPUTS: Final = ("assignments", "committed", "events", "snapshots")
CLAIMS_OWN: Final = (*CLAIMS_OUTPUTS, LAG, "progress")
CLAIMS_EVENTS: Final = f"{CLAIMS}.events"
CLAIMS_LAG: Final = f"{CLAIMS}.{LAG}"
#: The coordination topic of claims, where nothing else is said: Marshal's.
COORDINATION_TOPIC: Final = "__marshal"
#: Read by the archive, where claims are followed.
CLAIMS_ARCHIVED: Final = (CLAIMS_EVENTS, CLAIMS_LAG)
#: What the archive reads; events first, which a prefix always has.
ARCHIVED: Final = ("events", "groups", "committed", LAG, *CLAIMS_ARCHIVED)


def claims_prefix(prefix: str) -> str:
    """The prefix of the claims plane's topics."""
    return f"{prefix}.{CLAIMS}"


def own_topics(prefix: str) -> frozenset[str]:
    """The coordinator's own topics under this prefix, those of the claims plane among them."""
    claims = (f"{claims_prefix(prefix)}.{name}" for name in CLAIMS_OWN)
    return frozenset((*(f"{prefix}.{name}" for name in OWN), *claims))


def is_users(topic: str, own: frozenset[str]) -> bool:
    """Whether users may share it by an expression; `own`: the coordinator's topics."""
    return topic not in own and not topic.startswith(INTERNAL)
