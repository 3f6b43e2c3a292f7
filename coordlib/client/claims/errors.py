"""Errors that consumers of claims raise, beside those of `coordlib.errors`.

CoordError
├── ClaimLost               the claim was given up: another consumer may have the partition
├── UnseenOffset            a commit of a message that was never handed out under this claim
├── ForeignToken            a token of another claim, consumer or process
└── StartRefused
    └── CoordinationTopicChanged    another topic id or number of partitions, or its end is lost
"""

from coordlib.errors import CoordError, StartRefused


class ClaimLost(CoordError):
    """This consumer does not hold the partition, or not any more. Source: design, section 6."""

    def __init__(self, where: str, why: str = "it is not claimed by this consumer") -> None:
        super().__init__(
            f"The partition may not be worked on: {why}.",
            where,
            "Drop what is unfinished; whoever claims the partition next reads it again.",
        )


class UnseenOffset(CoordError):
    """A commit names an offset that this claim has not handed out."""

    def __init__(self, where: str, offset: int) -> None:
        super().__init__(
            f"Offset {offset} was not handed out under this claim.",
            where,
            "Commit messages that poll or consume has returned since the partition was claimed.",
        )


class ForeignToken(CoordError):
    """A commit token that was not made by this consumer, or under another claim."""

    def __init__(self, where: str) -> None:
        super().__init__(
            "The token is not one of this consumer's present claim.",
            where,
            "Commit with a token of the consumer that read the message, while it has its claim.",
        )


class CoordinationTopicChanged(StartRefused):
    """The coordination topic is not the one that this process began to read.

    Epochs compare within one topic id, and messages stand where its number of partitions says.
    Where the log has lost its end, epochs that were given out would be given out again.
    """

    def __init__(self, what: str, where: str, mend: str = "") -> None:
        usual = "Stop all of its consumers, then start them again on the topic as it is now."
        super().__init__(what, where, mend or usual)


def log_cut(topic: str, partition: int, known: int, now: str) -> CoordinationTopicChanged:
    """What is raised where the log has lost its end; `known`: the newest offset that was there."""
    return CoordinationTopicChanged(
        f"The coordination topic has lost its end: offset {known} was there, and {now}.",
        f"{topic}, partition {partition}",
        "Stop all of its consumers. Unless somebody has just made the topic anew, delete it and "
        "create it again. Then start them.",
    )
