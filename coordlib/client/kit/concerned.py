"""Which of the members that share a transport a response is for."""

from coordlib.client.kit.wording import Identity
from coordlib.core.wire import responses as rs


def concerns(identity: Identity, message: rs.AnyResponse) -> bool:
    """Whether a response is for this member: its answers, its group's notices, the job's own.

    A picture of partitions is for one member, whose id begins with its client's: a group
    of hundreds on one transport would spend its time on the pictures of others.
    """
    if isinstance(message, rs.Response):
        return message.id.rpartition("-")[0] == identity.token
    if isinstance(message, rs.OfTheCoordinator):
        return True
    if isinstance(message, rs.AssignmentChanged):
        is_own = message.member.startswith(f"{identity.client}-")
        return is_own and message.group == identity.group
    return message.group == identity.group
