"""What leads a group from one state to the next: the events along `VALID_PREVIOUS_STATES`.

An event is a request or a listing of topics, by its type, or a deadline, by the name that history
gives as the cause. Nothing is decided here: the page is drawn from this table, and tests compare
it with what groups really do.
"""

from typing import Final

from coordlib.core.groups import kind
from coordlib.core.groups.assigned import protocol
from coordlib.core.groups.assigned.group import State

SUBSCRIBE: Final = "Subscribe"
RELEASE: Final = "Release"
LEAVE: Final = "LeaveGroup"
DELETE: Final = "DeleteGroup"
TOPICS: Final = "TopicMetadata"

SESSION: Final = f"deadline:{protocol.SESSION}"
RELEASE_DUE: Final = f"deadline:{protocol.RELEASE}"
GUARD: Final = f"deadline:{protocol.GUARD}"

#: From a state (None: there is no such group) to another: event -> when it does that.
CAUSES: Final[dict[tuple[State | None, State], dict[str, str]]] = {
    (None, State.EMPTY): {
        SUBSCRIBE: "the name was never used, or not since the group was deleted",
    },
    (State.EMPTY, State.STABLE): {
        SUBSCRIBE: "the first member joins, and gets all partitions at once",
    },
    (State.STABLE, State.RECONCILING): {
        SUBSCRIBE: "a member is new or wants other topics, and another must let go",
        LEAVE: "an operator removes a member; or it leaves, and shares of others move too",
        TOPICS: "partitions came or went, and a member must let go",
        SESSION: "a member's session expired, and shares of others move too",
    },
    (State.STABLE, State.EMPTY): {
        LEAVE: "the last member leaves",
        SESSION: "the last member's session expired",
    },
    (State.RECONCILING, State.STABLE): {
        RELEASE: "the last demand is met",
        LEAVE: "the last member that was waited for left, or reports that it stopped",
        SUBSCRIBE: "partitions that a former owner may still have are wanted no more",
        TOPICS: "partitions that a former owner may still have exist no more",
        SESSION: "the session of the last member that was waited for expired",
        RELEASE_DUE: "the last member that was waited for has not let go in time",
        GUARD: "the former owner that was waited for must have stopped",
    },
    (State.RECONCILING, State.EMPTY): {
        LEAVE: "the last member leaves",
        SESSION: "the last member's session expired",
        RELEASE_DUE: "the last member has not let go in time",
        GUARD: "all have left, and the former owner must have stopped",
    },
    (State.EMPTY, State.DEAD): {
        DELETE: "an operator deletes it",
        kind.CAUSE: "its last offsets have expired, or it has held nothing for long",
    },
}
