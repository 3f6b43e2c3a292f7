"""Errors that a broker's agent raises, beside those of `coordlib.errors`."""

from coordlib.errors import CoordError, ErrorCode, GroupError


class BrokerReplaced(GroupError):
    """A newer process is registered as this broker; this one is over for good.

    Kafka's STALE_BROKER_EPOCH; INVALID_INCARNATION_ID in KIP-343.
    """

    def __init__(self, where: str) -> None:
        message = "A newer process is registered as this broker: end this one."
        super().__init__(ErrorCode.STALE_BROKER_EPOCH, where, message)


class BrokerFenced(CoordError):
    """The broker's door is closed: it is not Active, or has no contact with the log."""

    def __init__(self, where: str, why: str) -> None:
        super().__init__(f"The broker is fenced: {why}", where, "Poll on, and try again.")


class MetadataRefused(GroupError):
    """The controller does not answer what this broker asks about the cluster.

    The broker leads and follows all the same, and is told of every change.
    """

    def __init__(self, refusal: GroupError) -> None:
        why = f"The cluster's metadata were refused: {refusal.mend}".rstrip(".")
        mend = "Ask for topics by name (Admin.metadata), or read coord.metadata."
        super().__init__(refusal.code, refusal.where, f"{why}. {mend}")


class NotLeader(GroupError):
    """This broker does not lead the partition, or not at this moment."""

    def __init__(self, where: str) -> None:
        super().__init__(ErrorCode.NOT_LEADER_OR_FOLLOWER, where)
