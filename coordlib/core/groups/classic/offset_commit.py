"""OffsetCommit of a classic group's member: in its generation, once it has its assignment."""

from typing import Final

from coordlib.core.groups.classic.group import State
from coordlib.core.groups.classic.membership import find_in_generation
from coordlib.core.groups.classic.step import Step
from coordlib.core.groups.offsets import offset_commit as offsets
from coordlib.core.wire import requests as rq
from coordlib.errors import ErrorCode

_NOT_ASSIGNED: Final = "Sync first, then commit what is still yours: a generation has just begun."


def offset_commit(step: Step, request: rq.OffsetCommit) -> None:
    """Judge one OffsetCommit."""
    offsets.offset_commit(step, request, _refused)


def _refused(step: Step, request: rq.OffsetCommit) -> offsets.Refused:
    member = find_in_generation(step, request.member, request.instance, request.generation)
    if isinstance(member, ErrorCode):
        return member, None
    if step.live.state is State.COMPLETING_REBALANCE:
        return ErrorCode.REBALANCE_IN_PROGRESS, _NOT_ASSIGNED
    return None
