"""Elections, as pure functions: who leads next, and who is in sync then.  # INV-77

`replicas` are in order of preference; `active` are the brokers that may be elected. None: nobody
can be. Source: PartitionLeaderElectionAlgorithms of Kafka's controller.
"""

from collections.abc import Collection
from typing import Final, NamedTuple

FIRST: Final = "first"
OFFLINE: Final = "offline"
SHUTDOWN: Final = "shutdown"
PREFERRED: Final = "preferred"
REASSIGN: Final = "reassign"
UNCLEAN: Final = "unclean"

Brokers = tuple[int, ...]


class Elected(NamedTuple):
    """The outcome of an election."""

    kind: str
    leader: int
    isr: Brokers
    #: Whether the leader may lack what was committed.
    recovering: bool = False


def first(replicas: Brokers, active: Collection[int]) -> Elected | None:
    """Of a partition that was never led: all that are Active are in sync, as nothing is written."""
    live = tuple(each for each in replicas if each in active)
    return Elected(FIRST, live[0], live) if live else None


def offline(replicas: Brokers, isr: Brokers, active: Collection[int]) -> Elected | None:
    """The leader has gone, or a broker came: the first that is Active and in sync."""
    return _first_of(OFFLINE, replicas, isr, active)


def shutdown(
    replicas: Brokers, isr: Brokers, active: Collection[int], stopping: Collection[int]
) -> Elected | None:
    """A leader that stops has let go: those that stop leave the ISR."""
    rest = tuple(each for each in isr if each not in stopping)
    return _first_of(SHUTDOWN, replicas, rest, active)


def preferred(replicas: Brokers, isr: Brokers, active: Collection[int]) -> Elected | None:
    """The head of the replicas, if it is Active and in sync."""
    return _first_of(PREFERRED, replicas[:1], isr, active)


def reassign(target: Brokers, isr: Brokers, active: Collection[int]) -> Elected | None:
    """The leader does not stay a replica: the first of those that do; they alone are in sync."""
    rest = tuple(each for each in isr if each in target)
    return _first_of(REASSIGN, target, rest, active)


def unclean(replicas: Brokers, isr: Brokers, active: Collection[int]) -> Elected | None:
    """Nobody in sync is Active: the first that is, though it may lack what was committed."""
    if any(each in active for each in isr):
        return None
    live = [each for each in replicas if each in active]
    return Elected(UNCLEAN, live[0], (live[0],), recovering=True) if live else None


def _first_of(
    kind: str, replicas: Brokers, isr: Brokers, active: Collection[int]
) -> Elected | None:
    for each in replicas:
        if each in active and each in isr:
            return Elected(kind, each, isr)
    return None
