"""Who leads next: elections of partitions that have no leader, and of those that are let go of.

There is no election while a former leader may still act (`Partition.guard`), and none while the
leader lives and has not let go: it is asked (`demands.py`).  # INV-71
"""

from typing import Any, Final

from coordlib.core.controller import elections
from coordlib.core.controller.elections import Elected
from coordlib.core.controller.rows import Partition
from coordlib.core.controller.step import ClusterStep
from coordlib.core.engine.table import Place

#: For whoever asks for what a guard holds up.
GUARDED: Final = "Wait: the former leader may still act."


def fill(step: ClusterStep, place: Place) -> None:
    """Elect a leader for a partition that has none, if somebody may lead."""
    row = step.at_place(place)
    topic = step.topic(place[0])
    if row.leader >= 0 or row.guard >= 0 or topic is None or topic.is_deleting:
        return
    active = step.active
    if row.leader_epoch < 0:
        elected = elections.first(row.replicas, active)
    else:
        elected = elections.offline(row.replicas, row.isr, active)
    if elected is None and topic.unclean and row.leader_epoch >= 0:
        elected = elections.unclean(row.replicas, row.isr, active)
    if elected is not None:
        install(step, place, elected)


def install(step: ClusterStep, place: Place, elected: Elected) -> None:
    """A leader is elected: a new leader epoch begins."""
    row = step.at_place(place)
    fields: dict[str, Any] = {}
    if elected.kind == elections.UNCLEAN:
        fields["recovering"] = True
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
    if row.move == elections.SHUTDOWN:
        elected = elections.shutdown(row.replicas, row.isr, active, step.stopping)
    elif row.move == elections.PREFERRED:
        elected = elections.preferred(row.replicas, row.isr, active)
    elif row.move == elections.REASSIGN:
        elected = elections.reassign(row.target, row.isr, active)
    return (
        elected
        or elections.offline(row.replicas, row.isr, active)
        or Elected(elections.OFFLINE, row.leader, row.isr)
    )
