"""Partitions move to other brokers in Kafka's phases (KIP-455).

A  the replicas are the target and those that are to go; those that are added follow
B  the whole target is in sync: a leader outside it is asked to let go; then the target alone stays,
   a new leader epoch begins, and what is removed is deleted
"""

from coordlib.core.controller import deletion, elections, leadership
from coordlib.core.controller.rows import Partition
from coordlib.core.controller.states import ReplicaState
from coordlib.core.controller.step import ClusterStep
from coordlib.core.engine.table import Place
from coordlib.core.wire import stored


def start(step: ClusterStep, place: Place, target: tuple[int, ...]) -> None:
    """Phase A; phase B at once where nobody has to catch up."""
    row = step.at_place(place)
    adding = tuple(each for each in target if each not in row.replicas)
    removing = tuple(each for each in row.replicas if each not in target)
    # A replica whose deletion failed comes back as it is; it was not made anew.
    kept = {broker: state for broker, state in row.deleting.items() if broker not in target}
    step.alter(
        place,
        replicas=(*target, *removing),
        adding=adding,
        removing=removing,
        new=(*row.new, *(each for each in adding if each not in row.deleting)),
        deleting=kept,
    )
    if adding or removing:
        detail = {"topic": place[0], "partition": place[1], "replicas": target}
        step.record(stored.EVENT_REASSIGNMENT_STARTED, reason=step.reason, detail=detail)
        if row.leader_epoch < 0:
            leadership.fill(step, place)  # nothing is written yet: who is added lacks nothing
        advance(step, place)


def advance(step: ClusterStep, place: Place) -> None:
    """Go on with a move, if the whole target is in sync by now."""
    row = step.at_place(place)
    if not (row.adding or row.removing) or row.leader < 0 or not set(row.target) <= set(row.isr):
        return
    if row.leader not in row.target:
        if row.move != elections.REASSIGN:
            leadership.want(step, place, elections.REASSIGN)
        row = step.at_place(place)
        if row.leader not in row.target:
            return
    _complete(step, place, row)


def _complete(step: ClusterStep, place: Place, row: Partition) -> None:
    """The target alone stays. Its leader goes on under a new epoch: followers have changed."""
    target = row.target
    detail = {"topic": place[0], "partition": place[1], "replicas": target}
    step.record(stored.EVENT_REASSIGNMENT_COMPLETED, reason=step.reason, detail=detail)
    # What its leader is asked for by now is of the former epoch: it is asked anew for this one.
    # Else it might read of the new epoch, lead, and lose it to the Release that it sent before.
    move = "" if row.move == elections.REASSIGN else row.move
    step.asking.add(row.leader)
    step.alter(
        place,
        is_new_epoch=True,
        move=move,
        replicas=target,
        isr=tuple(each for each in row.isr if each in target),
        adding=(),
        removing=(),
        new=tuple(each for each in row.new if each in target),
        deleting={**row.deleting, **dict.fromkeys(row.removing, int(ReplicaState.OFFLINE))},
    )
    deletion.start(step, place)


def cancel(step: ClusterStep, place: Place) -> None:
    """The replicas that it had stay, and what was added is deleted."""
    row = step.at_place(place)
    added = row.adding
    detail = {"topic": place[0], "partition": place[1], "removed": added}
    step.record(stored.EVENT_REASSIGNMENT_CANCELLED, reason=step.reason, detail=detail)
    step.alter(
        place,
        replicas=tuple(each for each in row.replicas if each not in added),
        isr=tuple(each for each in row.isr if each not in added),
        adding=(),
        removing=(),
        new=tuple(each for each in row.new if each not in added),
        deleting={**row.deleting, **dict.fromkeys(added, int(ReplicaState.OFFLINE))},
    )
    deletion.start(step, place)
