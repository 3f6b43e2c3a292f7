"""Errors that a member raises, beside those of `coordlib.errors`."""

from coordlib.client.kit.fence import Stop
from coordlib.core.wire.codec import printable
from coordlib.errors import ErrorCode, GroupError


class AssignmentFailed(GroupError):
    """The group's leader could not assign. `poll` raises it once for each such generation.

    The member stays in the group and owns nothing until the next rebalance; the leader begins one
    after a while, to try again. `code` and the message are the leader's.
    """

    def __init__(self, code: ErrorCode, where: str, message: str) -> None:
        problem = f"The leader could not assign partitions: {printable(message)}"
        super().__init__(code, where, problem)


class MemberFenced(GroupError):
    """The member may not act now: it stopped itself, or holds no assignment (rules 8 to 11)."""

    def __init__(self, where: str, stop: Stop | None) -> None:
        self.stop = stop
        why = stop.value if stop is not None else "it holds no assignment at this moment"
        message = f"The member may not commit: {why}. Call poll, and go on from what it assigns."
        super().__init__(ErrorCode.ILLEGAL_GENERATION, where, message)
