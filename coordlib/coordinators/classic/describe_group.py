"""DescribeGroup: the group as its log has it at this place, for operators."""

from coordlib.coordinators.classic.draft import Draft
from coordlib.coordinators.classic.group import State
from coordlib.records import requests as rq
from coordlib.records import responses as rs


def describe_group(draft: Draft, request: rq.DescribeGroup) -> None:
    """Answer with state and members. A group that does not exist is Dead, and that is no error:
    so says Kafka up to version 5 of the request (version 6 refuses it, KIP-1043).
    """
    group = draft.group
    if group is None:
        draft.answer(
            request,
            rs.DescribeGroupResponse,
            state=State.DEAD.value,
            generation=-1,
            protocol_type=None,
            protocol=None,
            leader=None,
            members=(),
        )
        return
    draft.answer(
        request,
        rs.DescribeGroupResponse,
        state=group.state.value,
        generation=group.generation,
        protocol_type=group.protocol_type,
        # While members change, the protocol may too.
        protocol=group.protocol if group.state is State.STABLE else None,
        leader=group.leader,
        members=tuple(
            rs.DescribedMember(member.member, member.instance, member.client, member.assignment)
            for member in group.members.values()
        ),
    )
