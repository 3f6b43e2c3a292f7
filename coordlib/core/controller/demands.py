"""Leaders are asked to let go, a slice at a time ("gradually", KIP-343), and never hurried.

The rows of a slice are `asked` under the record's offset as cause; the Release that names the
cause elects their next leaders, and asks for the next slice. A demand is never taken back.
"""

from msgspec.structs import replace

from coordlib.core.controller.cluster import Broker, Demand
from coordlib.core.controller.step import ClusterStep
from coordlib.core.engine import clock as deadlines
from coordlib.core.engine import effect as fx
from coordlib.core.engine.table import Place
from coordlib.core.wire import responses as rs
from coordlib.core.wire import stored


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
    timer = deadlines.reaction(broker.release_timeout_ms, cause)
    step.put(
        replace(step.live.brokers[broker.broker], demand=Demand(timer=timer, count=len(places)))
    )
    rows = _by_topic(places)
    notice = rs.LeadershipDemanded(
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
    """What it is to let go of, in order of names."""
    number = broker.broker
    before = step.before.brokers.get(number)
    # Where nothing was wanted before this step, all that is wanted is of this step.
    is_all_new = before is not None and not before.moving
    rows = step.changed_rows_of(number) if is_all_new else step.rows_of(number)
    return [place for place, row in rows if row.leader == number and row.move and row.asked < 0]


def _by_topic(places: list[Place]) -> tuple[rs.LedPartitions, ...]:
    found: dict[str, list[int]] = {}
    for topic, number in places:
        found.setdefault(topic, []).append(number)
    return tuple(rs.LedPartitions(topic, tuple(some)) for topic, some in found.items())


def finish(step: ClusterStep) -> None:
    """The end of every step: ask whom it wants to let go, and write what it has changed."""
    if not step.is_written:
        ask(step)
    step.write()
