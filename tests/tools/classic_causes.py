"""What leads a group from one state to the next: the events along `VALID_PREVIOUS_STATES`.

An event is a request, by its type, or a deadline, by the name that history gives as the cause.
Several changes may follow from one event: the last member of a Stable group leaves, and the group
is Empty, by way of PreparingRebalance. Nothing is decided here: the page is drawn from this
table, and tests compare it with what groups really do.
"""

from typing import Final

from coordlib.core.groups import kind
from coordlib.core.groups.classic import protocol
from coordlib.core.groups.classic.group import State

JOIN: Final = "JoinGroup"
SYNC: Final = "SyncGroup"
LEAVE: Final = "LeaveGroup"
COMMIT: Final = "OffsetCommit"
DELETE: Final = "DeleteGroup"

INITIAL_DELAY: Final = f"deadline:{protocol.INITIAL_DELAY}"
JOIN_PHASE: Final = f"deadline:{protocol.JOIN_PHASE}"
SYNC_PHASE: Final = f"deadline:{protocol.SYNC_PHASE}"
SESSION: Final = f"deadline:{protocol.SESSION}"
NEWCOMER: Final = f"deadline:{protocol.NEWCOMER}"
PENDING: Final = f"deadline:{protocol.PENDING}"
GUARD: Final = f"deadline:{protocol.GUARD}"

#: From a state (None: there is no such group) to another: event -> when it does that.
CAUSES: Final[dict[tuple[State | None, State], dict[str, str]]] = {
    (None, State.EMPTY): {
        JOIN: "the name was never used, or not since the group was deleted",
        COMMIT: "the same, and offsets are to be kept without members",
    },
    (State.EMPTY, State.PREPARING_REBALANCE): {
        JOIN: "the first member joins",
    },
    (State.PREPARING_REBALANCE, State.COMPLETING_REBALANCE): {
        JOIN: "the last member that was waited for has joined",
        LEAVE: "the last member that was waited for left, or reports that it stopped",
        INITIAL_DELAY: "no member came while an empty group waited for more",
        JOIN_PHASE: "the rebalance timeout is over: members that have not joined are removed",
        SESSION: "the session of the last member that was waited for expired",
        NEWCOMER: "a newcomer is given up, which cuts a long initial delay short",
        PENDING: "an announced id that was waited for has not joined",
        GUARD: "the former owner that was waited for must have stopped",
    },
    (State.PREPARING_REBALANCE, State.EMPTY): {
        LEAVE: "the last member leaves",
        INITIAL_DELAY: "all members that came have left meanwhile",
        JOIN_PHASE: "no member has joined",
        SYNC_PHASE: "no member asked for the assignment in time",
        SESSION: "the last member's session expired",
        NEWCOMER: "the only member is given up within a long initial delay",
        PENDING: "all have left, and an announced id has not joined",
        GUARD: "all have left, and the former owner must have stopped",
    },
    (State.COMPLETING_REBALANCE, State.STABLE): {
        SYNC: "the leader brings the assignment, or the reason why there is none",
    },
    (State.COMPLETING_REBALANCE, State.PREPARING_REBALANCE): {
        JOIN: "a member is new, joins with other metadata, or takes another's place",
        SYNC: "the assignment is too large to be kept",
        LEAVE: "a member leaves or is removed",
        SYNC_PHASE: "the leader has not brought the assignment in time",
        SESSION: "a member's session expired",
    },
    (State.STABLE, State.PREPARING_REBALANCE): {
        JOIN: "a member is new, joins with other metadata, or is the leader",
        LEAVE: "a member leaves or is removed",
        SYNC_PHASE: "a member has not asked for the assignment in time",
        SESSION: "a member's session expired",
    },
    (State.EMPTY, State.DEAD): {
        DELETE: "an operator deletes it",
        kind.CAUSE: "its last offsets have expired, or it has held nothing for long",
    },
}
