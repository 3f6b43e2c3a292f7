"""The states of one member, and the step of the protocol that it has under way."""

from dataclasses import dataclass
from enum import Enum

from coordlib.client.kit.asks import backoff_ms
from coordlib.client.kit.signals import Divide, Send


class State(Enum):
    """Where a member stands in the protocol."""

    #: action: nothing is asked. transition: a subscription and nothing held -> JOINING
    IDLE = "Idle"
    #: action: JoinGroup unanswered, no heartbeats. transition: answer -> DIVIDING, SYNCING, IDLE
    JOINING = "Joining"
    #: action: this leader's assignor runs. transition: result -> SYNCING; notice -> JOINING
    DIVIDING = "Dividing"
    #: action: SyncGroup unanswered. transition: answer -> STABLE; notice, refusal -> JOINING, IDLE
    SYNCING = "Syncing"
    #: action: heartbeats; the user works. transition: notice and let go -> JOINING; removed -> IDLE
    STABLE = "Stable"
    #: action: every poll raises. transition: close -> LEAVING
    FAILED = "Failed"
    #: action: LeaveGroup is being written. transition: acknowledged or given up -> LEFT
    LEAVING = "Leaving"
    #: action: none. transition: none
    LEFT = "Left"


#: The member has a generation: it heartbeats, and notices concern it.
IN_GENERATION = frozenset({State.DIVIDING, State.SYNCING, State.STABLE})
#: Others wait for this member: it must show that its user is alive.
ACTIVE = IN_GENERATION | {State.JOINING}
#: No question is taken any more.
ENDED = frozenset({State.FAILED, State.LEAVING, State.LEFT})
VALID_PREVIOUS_STATES: dict[State, frozenset[State]] = {
    State.IDLE: ACTIVE,
    State.JOINING: IN_GENERATION | {State.IDLE},
    State.DIVIDING: frozenset({State.JOINING}),
    State.SYNCING: frozenset({State.JOINING, State.DIVIDING}),
    State.STABLE: frozenset({State.SYNCING}),
    State.FAILED: ACTIVE | {State.IDLE},
    State.LEAVING: ACTIVE | {State.IDLE, State.FAILED},
    State.LEFT: frozenset({State.LEAVING}),
}


@dataclass(slots=True)
class Step:
    """JoinGroup, the assignor's run, or SyncGroup: at most one is under way."""

    output: Send | Divide
    #: When it was first sent; an answered one counts as a sign of life from then (rule 8).
    first_ms: int
    #: Where the log took it; None: not acknowledged yet.
    offset: int | None = None
    attempt: int = 0
    #: When to repeat it; None: sent, and waiting for the answer.
    again_ms: int | None = None

    @property
    def id(self) -> str | None:
        return self.output.request.id if isinstance(self.output, Send) else None

    def repeat_later(self, now_ms: int, wait_ms: int = 0) -> None:
        """The same again, under the same id: should both be written, they are one request.

        `wait_ms`: not before that.
        """
        self.attempt += 1
        self.again_ms = now_ms + max(backoff_ms(self.attempt), wait_ms)

    def replace_later(self, now_ms: int, send: Send, wait_ms: int = 0) -> None:
        """It was judged and refused for now: the next attempt is another request."""
        self.output, self.offset = send, None
        self.repeat_later(now_ms, wait_ms)
        self.first_ms = self.again_ms or now_ms

    def repeat(self, now_ms: int) -> Send | Divide | None:
        """What is to be sent again now."""
        if self.again_ms is None or self.again_ms > now_ms:
            return None
        self.again_ms = None
        return self.output
