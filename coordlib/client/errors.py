"""What a member raises beside the errors of `coordlib.errors`."""

from coordlib.client.fence import Stop
from coordlib.errors import ErrorCode, GroupError


class MemberFenced(GroupError):
    """The member may not act now: it stopped itself, or holds no assignment (rules 8 to 11)."""

    def __init__(self, where: str, stop: Stop | None) -> None:
        self.stop = stop
        why = stop.value if stop is not None else "it holds no assignment at this moment"
        message = f"The member may not commit: {why}. Call poll, and go on from what it assigns."
        super().__init__(ErrorCode.ILLEGAL_GENERATION, where, message)
