"""Announced members: ids handed out with MEMBER_ID_REQUIRED (KIP-394), for clients that cannot

know their id from the produce acknowledgement. A retry then finds its first id instead of making
another member. An announced id keeps a join phase open until it joins or its time is up."""

from coordlib.coordinators import deadlines
from coordlib.coordinators.classic import rebalance
from coordlib.coordinators.classic.draft import Draft
from coordlib.errors import ErrorCode
from coordlib.records import requests as rq
from coordlib.records import responses as rs


def announce(draft: Draft, request: rq.JoinGroup, member_id: str) -> None:
    """Hand out an id; the member joins with it."""
    timer = deadlines.reaction(request.session_timeout_ms, draft.at.offset)
    draft.change(pending={**draft.live.pending, member_id: timer})
    draft.refuse(request, rs.JoinGroupResponse, ErrorCode.MEMBER_ID_REQUIRED, member=member_id)


def forget(draft: Draft, member_id: str) -> None:
    """It has joined, or has gone."""
    draft.change(pending={n: t for n, t in draft.live.pending.items() if n != member_id})


def drop(draft: Draft, member_id: str) -> None:
    """Its time is up, or it left: perhaps the join phase waited for it alone."""
    forget(draft, member_id)
    rebalance.complete_if_all_joined(draft)
