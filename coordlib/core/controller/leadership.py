"""Who leads next: elections, and demands to let go of leaderships.  # INV-77

Elections are pure functions. `replicas` are in order of preference; `active` are the brokers that
may be elected. None: nobody can be. There is no election while a former leader may still act
(`Partition.guard`), and none while the leader lives and has not let go: it is asked.  # INV-71
Source: PartitionLeaderElectionAlgorithms of Kafka's controller.

Leaders are asked to let go, a slice at a time ("gradually", KIP-343), and never hurried.
The rows of a slice are `asked` under the record's offset as cause; the Release that names the
cause elects their next leaders, and asks for the next slice.
"""

from collections.abc import Collection
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from coordlib.core.controller.states import Broker, Demand, Partition
from coordlib.core.controller.step import ClusterStep
from coordlib.core.engine import effects as fx
from coordlib.core.engine.tables import Place
from coordlib.core.engine.time import reaction
from coordlib.core.wire import api, stored

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


def elect_first(replicas: Brokers, active: Collection[int]) -> Elected | None:
    """Of a partition that was never led: all that are Active are in sync, as nothing is written."""
    live = tuple(each for each in replicas if each in active)
    return Elected(FIRST, live[0], live) if live else None


def elect_offline(replicas: Brokers, isr: Brokers, active: Collection[int]) -> Elected | None:
    """The leader has gone, or a broker came: the first that is Active and in sync."""
    return _first_of(OFFLINE, replicas, isr, active)


def elect_shutdown(
    replicas: Brokers, isr: Brokers, active: Collection[int], stopping: Collection[int]
) -> Elected | None:
    """A leader that stops has let go: those that stop leave the ISR."""
    rest = tuple(each for each in isr if each not in stopping)
    return _first_of(SHUTDOWN, replicas, rest, active)


def elect_preferred(replicas: Brokers, isr: Brokers, active: Collection[int]) -> Elected | None:
    """The head of the replicas, if it is Active and in sync."""
    return _first_of(PREFERRED, replicas[:1], isr, active)


def elect_reassigned(target: Brokers, isr: Brokers, active: Collection[int]) -> Elected | None:
    """The leader does not stay a replica: the first of those that do; they alone are in sync."""
    rest = tuple(each for each in isr if each in target)
    return _first_of(REASSIGN, target, rest, active)


def elect_unclean(replicas: Brokers, isr: Brokers, active: Collection[int]) -> Elected | None:
    """No replica in sync is Active: the first that is, though it may lack what was committed."""
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


#: For requests that a guard holds up.
GUARDED: Final = "Wait: the former leader may still act."


def fill(step: ClusterStep, place: Place) -> None:
    """Elect a leader for a partition that has none, if a broker may lead."""
    row = step.at_place(place)
    topic = step.topic(place[0])
    if row.leader >= 0 or row.guard >= 0 or topic is None or topic.is_deleting:
        return
    active = step.active
    if row.leader_epoch < 0:
        elected = elect_first(row.replicas, active)
    else:
        elected = elect_offline(row.replicas, row.isr, active)
    if elected is None and topic.unclean and row.leader_epoch >= 0:
        elected = elect_unclean(row.replicas, row.isr, active)
    if elected is not None:
        install(step, place, elected)


def install(step: ClusterStep, place: Place, elected: Elected) -> None:
    """A leader is elected: a new leader epoch begins."""
    row = step.at_place(place)
    fields: dict[str, Any] = {"recovering": True} if elected.recovering else {}
    step.alter(
        place,
        election=elected.kind,
        is_new_epoch=True,
        leader=elected.leader,
        isr=elected.isr,
        new=tuple(each for each in row.new if each not in elected.isr),
        **fields,
    )


def want(step: ClusterStep, place: Place, kind: str) -> None:
    """Another is to lead: by this election, once the leader has let go.

    Nothing can be asked of a legacy broker, and nothing proved: it loses the leadership at once.
    """
    row = step.alter(place, move=kind)
    leader = step.broker(row.leader)
    if leader is not None and leader.is_legacy:
        hand_over(step, place)
    else:
        step.asking.add(row.leader)


def hand_over(step: ClusterStep, place: Place) -> None:
    """The leader has let go: by the election that was wanted, or of itself anew.

    What it let go of is over for it (rule 15), so it too gets a new epoch.
    """
    row = step.at_place(place)
    install(step, place, _next(step, row))


def _next(step: ClusterStep, row: Partition) -> Elected:
    active = step.active
    elected = None
    if row.move == SHUTDOWN:
        elected = elect_shutdown(row.replicas, row.isr, active, step.stopping)
    elif row.move == PREFERRED:
        elected = elect_preferred(row.replicas, row.isr, active)
    elif row.move == REASSIGN:
        elected = elect_reassigned(row.target, row.isr, active)
    return (
        elected
        or elect_offline(row.replicas, row.isr, active)
        or Elected(OFFLINE, row.leader, row.isr)
    )


def ask(step: ClusterStep) -> None:
    """Ask all whom this step wants to let go, and who are not asked for anything."""
    for number in sorted(step.asking):
        broker = step.broker(number)
        if broker is not None and broker.is_ready and broker.moving and broker.demand is None:
            _ask(step, broker)
    step.asking.clear()


def _ask(step: ClusterStep, broker: Broker) -> None:
    places = _wanted(step, broker)[: step.config.rows_per_demand_max]
    cause = step.at.offset
    if not places:
        return
    for place in places:
        step.alter(place, asked=cause)
    timer = reaction(broker.release_timeout_ms, cause)
    step.put(
        replace(step.live.brokers[broker.broker], demand=Demand(timer=timer, count=len(places)))
    )
    rows = _by_topic(places)
    notice = api.LeadershipDemanded(
        group=step.name, cause=cause, member=broker.member, partitions=rows
    )
    step.emit(fx.Notify(broker.reply, notice))
    step.record(
        stored.EVENT_LEADERSHIP_DEMANDED,
        member=broker.member,
        reason=step.reason,
        detail={
            "broker": broker.broker,
            "cause": cause,
            "partitions": {row.topic: row.partitions for row in rows},
        },
    )


def _wanted(step: ClusterStep, broker: Broker) -> list[Place]:
    """The partitions that it is to release, in order of names."""
    number = broker.broker
    before = step.before.brokers.get(number)
    # Where nothing was wanted before this step, all that is wanted is of this step.
    is_all_new = before is not None and not before.moving
    rows = step.changed_rows_of(number) if is_all_new else step.rows_of(number)
    return [place for place, row in rows if row.leader == number and row.move and row.asked < 0]


def _by_topic(places: list[Place]) -> tuple[api.LedPartitions, ...]:
    found: dict[str, list[int]] = {}
    for topic, number in places:
        found.setdefault(topic, []).append(number)
    return tuple(api.LedPartitions(topic, tuple(some)) for topic, some in found.items())


def finish(step: ClusterStep) -> None:
    """The end of every step: ask whom it wants to let go, and write what it has changed."""
    if not step.is_written:
        ask(step)
    step.write()
