"""What leads a group from one state to the next: the events along `VALID_PREVIOUS_STATES`.

An event is a request or a listing of topics, by its type, or a deadline, by the name that history
gives as the cause. Nothing is decided here: the page is drawn from it, and tests hold it against
what groups really do.
"""

from typing import Final

from coordlib.coordinators.groups.assigned import timers
from coordlib.coordinators.groups.assigned.group import State
from coordlib.coordinators.groups.offsets import retention

SUBSCRIBE: Final = "Subscribe"
RELEASE: Final = "Release"
LEAVE: Final = "LeaveGroup"
DELETE: Final = "DeleteGroup"
TOPICS: Final = "TopicMetadata"

SESSION: Final = f"deadline:{timers.SESSION}"
RELEASE_DUE: Final = f"deadline:{timers.RELEASE}"
GUARD: Final = f"deadline:{timers.GUARD}"

#: From a state (None: there is no such group) to another: event -> when it does that.
CAUSES: Final[dict[tuple[State | None, State], dict[str, str]]] = {
    (None, State.EMPTY): {
        SUBSCRIBE: "nobody has used the name, or nobody since it was deleted",
    },
    (State.EMPTY, State.STABLE): {
        SUBSCRIBE: "the first member comes, and is given everything at once",
    },
    (State.STABLE, State.RECONCILING): {
        SUBSCRIBE: "somebody is new or wants something else, and another must let go for it",
        LEAVE: "a member is removed by somebody else; or it leaves, and shares of others move too",
        TOPICS: "partitions came or went, and somebody must let go",
        SESSION: "a member is dead, and shares of others move too",
    },
    (State.STABLE, State.EMPTY): {
        LEAVE: "the last member leaves",
        SESSION: "the last member is dead",
    },
    (State.RECONCILING, State.STABLE): {
        RELEASE: "the last one that owed something has let go",
        LEAVE: "the last one that was waited for has left, or says that it has stopped",
        SUBSCRIBE: "what a former owner may still have is wanted no more",
        TOPICS: "what a former owner may still have does not exist any more",
        SESSION: "the last one that was waited for is dead",
        RELEASE_DUE: "the last one that was waited for has not let go in time",
        GUARD: "the former owner that was waited for must have stopped",
    },
    (State.RECONCILING, State.EMPTY): {
        LEAVE: "the last member leaves",
        SESSION: "the last member is dead",
        RELEASE_DUE: "the last member has not let go in time",
        GUARD: "all have left, and the former owner must have stopped",
    },
    (State.EMPTY, State.DEAD): {
        DELETE: "an operator deletes it",
        retention.CAUSE: "its last offsets have expired, or it has held nothing for long",
    },
}
