"""Announced members: ids handed out with MEMBER_ID_REQUIRED (KIP-394).

For clients that cannot know their id from the produce acknowledgement: a retry finds its first id
instead of making another member. An announced id keeps a join phase open until it joins or its time
is up. As in Kafka it has no place in the group yet: a group may be full when it joins.
"""

from coordlib.core.engine import clock as deadlines
from coordlib.core.groups.classic import rebalance
from coordlib.core.groups.classic.group import Announced
from coordlib.core.groups.classic.step import Step
from coordlib.core.wire import requests as rq
from coordlib.errors import ErrorCode


def find(step: Step, request: rq.JoinGroup) -> str | None:
    """The id that this very JoinGroup was given, when it comes once more."""
    for member_id, announced in step.live.pending.items():
        if (announced.client, announced.first_id) == (request.client, request.id):
            return member_id
    return None


def announce(step: Step, request: rq.JoinGroup, member_id: str) -> None:
    """Hand out an id, perhaps again; the member joins with it."""
    announced = Announced(
        timer=deadlines.reaction(request.session_timeout_ms, step.at.offset),
        client=request.client,
        first_id=request.id,
    )
    step.change(pending={**step.live.pending, member_id: announced})
    step.refuse(request, ErrorCode.MEMBER_ID_REQUIRED, member=member_id)


def forget(step: Step, member_id: str) -> None:
    """Remove an announced id that has joined, or has gone."""
    step.change(pending={n: a for n, a in step.live.pending.items() if n != member_id})


def drop(step: Step, member_id: str) -> None:
    """Give up an announced id; the join phase may have waited for it alone."""
    forget(step, member_id)
    rebalance.go_on(step)
