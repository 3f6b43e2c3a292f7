"""A rich cluster for the fixtures of stored states (`tests.tools.stored_state`).

Brokers in every state, with and without a session; rows with every field away from its default:
asked, wanted elsewhere, guarded, recovering, moving, being deleted, new.
"""

from typing import Any

from coordlib.core.engine.tables import Place
from coordlib.core.wire import api
from tests.tools import clusters as c
from tests.tools.driving import Conversation

#: The offsets of the first registrations.
BROKERS = {1: 0, 2: 1, 3: 2, 4: 3, 5: 4}
FIRST: dict[str, Any] = {"t": [(1, 2, 3)] * 2, "guarded": [(3, 2)], "deleted": [(2, 5, 1)]}
SECOND: dict[str, Any] = {"leaderless": [(5,)], "recovering": [(5, 2)], "wanted": [(4, 2)]}


def have_everything(talk: Conversation) -> None:
    """All of it; what readers cannot see yet is counted."""
    fields: dict[int, dict[str, Any]] = {
        2: {"rack": "r1", "reply": 0, "reason": "scaled out"},
        4: {"version": 4},
        5: {"release_timeout_ms": 9_000},
    }
    for number in BROKERS:
        talk.send(c.register(number, storage=f"disk-{number}", **fields.get(number, {})))
    talk.tick()
    for number in (1, 2, 3, 5):
        c.says(talk, number, "Active")
    topics = [c.new_topic(name, assignment=rows) for name, rows in {**FIRST, **SECOND}.items()]
    talk.send(c.create(*topics, c.new_topic("unclean", 3, 2, unclean=True, min_isr=2)))
    talk.tick()
    _change_isr(talk, ("recovering", 0), 5)
    talk.send(c.move(("t", 0), (2, 5)))
    _change_isr(talk, ("t", 0), 1, 2, 3, 5)  # all of the target: the leader is asked
    talk.send(c.move(("t", 1), (1, 5)))
    c.says(talk, 5, "Inactive")
    talk.send(c.elect("unclean", ("recovering", 0)))
    talk.tick()
    talk.send(c.register(3, client="b3-new", storage="disk-3", id="again"))
    talk.send(c.about(api.DeleteTopics, topics=("deleted",)))
    row = c.partition(talk, "deleted")
    told = api.DeletedReplica(topic="deleted", topic_id=row.topic_id, partition=0)
    talk.send(c.deleted(1, BROKERS[1], told))
    talk.send(c.create(c.new_topic("new", assignment=[(5, 3)])))
    c.says(talk, 2, "Stopping")  # nobody has read of the demand
    talk.send(c.register(1, group="other", endpoints=_endpoints(2)))


def _endpoints(count: int) -> tuple[api.Endpoint, ...]:
    return tuple(api.Endpoint(f"listener-{n}", "h\u00f6st", 1 + n) for n in range(count))


def _change_isr(talk: Conversation, place: Place, *isr: int) -> None:
    row = c.partition(talk, *place)
    wanted = {
        place: (row.leader_epoch, row.partition_epoch, tuple((each, BROKERS[each]) for each in isr))
    }
    talk.send(c.alter(row.leader, BROKERS[row.leader], wanted))


def go_on(talk: Conversation) -> None:
    """A log in which everything that was stored matters once more."""
    for number in (1, 2):
        talk.send(c.lives(f"b{number}", c.MEMBERS[number]), after_ms=200)
    ask: dict[str, Any] = {"space": "cluster", "client": "ops"}
    talk.send(c.about(api.DescribeGroup, **ask))
    talk.send(c.about(api.Metadata))
    talk.tick()
    for number in (1, 2):
        known = c.cluster_of(talk.shard).brokers[number]
        if known.demand is not None:
            cause = known.demand.timer.cause
            talk.send(c.lets_go(f"b{number}", known.member, cause))
    c.says(talk, 5, "Active")
    told = api.DeletedReplica(
        topic="deleted", topic_id=c.partition(talk, "deleted").topic_id, partition=0
    )
    talk.send(c.deleted(5, BROKERS[5], told))
    row = c.partition(talk, "recovering")
    wanted = {("recovering", 0): (row.leader_epoch, row.partition_epoch, ((row.leader, 1),))}
    talk.send(c.alter(row.leader, 1, wanted, recovered=True))
    talk.send(c.register(3, storage="disk-3"))  # the first registration comes again
    talk.send(c.move(("t", 1), None))
    talk.wait(30_000, 2_000)
    talk.send(c.about(api.DescribeGroup, **ask))
    talk.send(c.about(api.DescribeGroup, **{**ask, "group": "other"}))
