"""AlterPartition: a leader wants other in-sync replicas; each row is judged by itself, in order.

A change writes the partition's row and leaves the head alone. Only the leader adds, and only
brokers that are Active in the incarnation that it names.  # INV-75

A refused row changes nothing, and the others are judged all the same.  # INV-82
"""

from collections.abc import Iterator

from msgspec import UNSET, UnsetType

from coordlib import limits
from coordlib.core.controller import arrivals, leadership, reassignment
from coordlib.core.controller.leadership import finish
from coordlib.core.controller.states import Broker, Partition
from coordlib.core.controller.step import DESIGN_ERRORS, ClusterStep, find_own
from coordlib.core.engine.tables import Place
from coordlib.core.wire import api, stored
from coordlib.errors import ErrorCode

#: A place, the id of its topic (UNSET: any), and its row of the request.
Asked = tuple[Place, int | UnsetType, api.AlteredPartition]
FORMER_TOPIC = "The topic was deleted; one of its name was created since."
NOT_AN_ISR = "isr must name replicas of the partition, each once, and the leader among them."
STILL_RECOVERING = "While it recovers, the leader alone is in sync: say recovered first."


def alter_partition(step: ClusterStep, request: api.AlterPartition) -> None:
    """Judge one AlterPartition."""
    broker = find_own(step, request)
    if not isinstance(broker, Broker):
        return step.refuse(request, *broker)
    step.reason = "in-sync replicas changed"
    judged = [(asked, _judge(step, broker, asked)) for asked in _asked(request)]
    _record_refused(step, broker, judged)
    finish(step)
    return step.answer(request, results=tuple(_results(step, judged)))


def _asked(request: api.AlterPartition) -> Iterator[Asked]:
    for topic in request.topics:
        for row in topic.partitions:
            yield (topic.topic, row.partition), topic.topic_id, row


def _judge(step: ClusterStep, broker: Broker, asked: Asked) -> tuple[ErrorCode, str | None]:
    """The error of one row, and a sentence where the error's own does not do."""
    place, topic_id, wanted = asked
    row = step.row(*place)
    topic = step.topic(place[0])
    if row is None or topic is None or topic.is_deleting:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None
    if topic_id not in (UNSET, row.topic_id):  # late, of a topic that was deleted  # INV-78
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, FORMER_TOPIC
    code, why = _fault(step, broker, row, wanted)
    if code is not ErrorCode.NONE:
        return code, why
    _accept(step, place, row, wanted)
    after = step.at_place(place)
    is_led_on = after.leader == broker.broker
    return ErrorCode.NONE if is_led_on else ErrorCode.NEW_LEADER_ELECTED, None


def _fault(
    step: ClusterStep, broker: Broker, row: Partition, wanted: api.AlteredPartition
) -> tuple[ErrorCode, str | None]:
    isr = [each.broker for each in wanted.isr]
    if wanted.leader_epoch > row.leader_epoch or wanted.partition_epoch > row.partition_epoch:
        return ErrorCode.NOT_CONTROLLER, None
    if row.leader != broker.broker:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER, None
    if wanted.leader_epoch < row.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH, None
    if wanted.partition_epoch < row.partition_epoch:
        return ErrorCode.INVALID_UPDATE_VERSION, None
    if len(set(isr)) < len(isr) or not set(isr) <= set(row.replicas) or broker.broker not in isr:
        return ErrorCode.INVALID_REQUEST, NOT_AN_ISR
    if row.recovering and not wanted.recovered and len(isr) > 1:
        return ErrorCode.INVALID_REQUEST, STILL_RECOVERING
    if not all(_may_enter(step, row, each) for each in wanted.isr):
        return ErrorCode.INELIGIBLE_REPLICA, None
    return ErrorCode.NONE, None


def _may_enter(step: ClusterStep, row: Partition, named: api.InSyncReplica) -> bool:
    """A leader that stops stays in its own ISR; no other broker that is not Active does."""
    broker = step.broker(named.broker)
    if broker is None or broker.incarnation != named.incarnation:
        return False
    return broker.is_active or broker.broker == row.leader


def _accept(step: ClusterStep, place: Place, row: Partition, wanted: api.AlteredPartition) -> None:
    named = {each.broker for each in wanted.isr}
    isr = tuple(each for each in row.replicas if each in named)
    after = step.alter(
        place,
        is_counted=True,
        isr=isr,
        recovering=row.recovering and not wanted.recovered,
        new=tuple(each for each in row.new if each not in named),
    )
    if arrivals.must_move(step, after):
        leadership.want(step, place, leadership.SHUTDOWN)
    reassignment.advance(step, place)


def _results(
    step: ClusterStep, judged: list[tuple[Asked, tuple[ErrorCode, str | None]]]
) -> Iterator[api.AlteredRow]:
    for (place, *_), (code, why) in judged:
        fields: dict[str, object] = {}
        if code is not ErrorCode.NONE:
            fields["message"] = why or code.what_to_do
        if code in DESIGN_ERRORS:
            fields["design_error"] = DESIGN_ERRORS[code]
        row = step.row(*place)
        if row is not None:
            fields |= {
                "leader": row.leader,
                "leader_epoch": row.leader_epoch,
                "partition_epoch": row.partition_epoch,
                "isr": row.isr,
            }
        yield api.AlteredRow(topic=place[0], partition=place[1], error=code.name, **fields)  # type: ignore[arg-type]


def _record_refused(
    step: ClusterStep,
    broker: Broker,
    judged: list[tuple[Asked, tuple[ErrorCode, str | None]]],
) -> None:
    """History of the rows that were refused, but for those that a newer epoch has overtaken."""
    rows = [
        {"topic": place[0], "partition": place[1], "error": code.name}
        for (place, *_), (code, _) in judged
        if code not in (ErrorCode.NONE, ErrorCode.NEW_LEADER_ELECTED)
    ]
    for start in range(0, len(rows), limits.ROWS_PER_LINE_MAX):
        step.record(
            stored.EVENT_ISR_REFUSED,
            member=broker.member,
            detail={
                "broker": broker.broker,
                "partitions": rows[start : start + limits.ROWS_PER_LINE_MAX],
            },
        )
