"""The states of brokers, partitions and replicas, drawn from the code's own tables.

`python -m tests.tools.state_diagram` (make diagrams) writes them into the page about brokers.
"""

import ast
import inspect
from collections.abc import Iterator, Mapping
from enum import Enum
from pathlib import Path
from typing import Any, Final

from coordlib.core.controller import states
from coordlib.core.controller.states import BrokerState, PartitionState, ReplicaState

PAGE: Final = Path(__file__).parents[2] / "docs/explanation/controller.md"
#: Kafka's names.
REPLICA_NAMES: Final[Mapping[ReplicaState, str]] = {
    ReplicaState.NEW: "NewReplica",
    ReplicaState.ONLINE: "OnlineReplica",
    ReplicaState.OFFLINE: "OfflineReplica",
    ReplicaState.DELETION_STARTED: "ReplicaDeletionStarted",
    ReplicaState.DELETION_SUCCESSFUL: "ReplicaDeletionSuccessful",
    ReplicaState.DELETION_INELIGIBLE: "ReplicaDeletionIneligible",
    ReplicaState.NON_EXISTENT: "NonExistentReplica",
}
_TABLES: Final[tuple[tuple[str, type[Enum], Mapping[Any, Any]], ...]] = (
    ("Brokers", BrokerState, states.VALID_PREVIOUS_BROKER_STATES),
    ("Partitions", PartitionState, states.VALID_PREVIOUS_PARTITION_STATES),
    ("Replicas", ReplicaState, states.VALID_PREVIOUS_REPLICA_STATES),
)


def drawn() -> str:
    """All that stands between the marks of the page."""
    return "\n".join([*_targets(), *(line for table in _TABLES for line in states_drawn(*table))])


def _targets() -> Iterator[str]:
    """What follows from a BrokerHeartbeat."""
    targets = list(BrokerState)
    yield f"| state of a broker | {' | '.join(f'says {each.value}' for each in targets)} |"
    yield "|---|" + "---|" * len(targets)
    for state, row in states.TARGETS.items():
        yield f"| {state.value} | {' | '.join(row[each].value for each in targets)} |"
    yield ""


def states_drawn(title: str, enum: type[Enum], table: Mapping[Any, Any]) -> Iterator[str]:
    """States with what is done in them, and a diagram of the transitions."""
    yield f"### {title}"
    yield "| state | what it means | what is done in it | then |"
    yield "|---|---|---|---|"
    for state, words in _words(enum).items():
        meaning, _, rest = words.partition("action: ")
        action, _, then = rest.partition("transition: ")
        cells = (_name(state), *(" ".join(each.split()) for each in (meaning, action, then)))
        yield f"| {' | '.join(cells)} |"
    yield from ("", "```mermaid", "stateDiagram-v2")
    for before in enum:
        for after, allowed in table.items():
            if before in allowed:
                yield f"    {_name(before)} --> {_name(after)}"
    yield from ("```", "")


def _name(state: Any) -> str:
    return REPLICA_NAMES[state] if isinstance(state, ReplicaState) else str(state.value)


def _words(enum: type[Enum]) -> dict[Enum, str]:
    """The text below each member, which Python itself throws away."""
    (body,) = ast.parse(inspect.getsource(enum)).body
    assert isinstance(body, ast.ClassDef)
    found: dict[Enum, str] = {}
    for member, below in zip(body.body, body.body[1:], strict=False):
        if isinstance(member, ast.Assign) and isinstance(below, ast.Expr):
            (name,) = member.targets
            assert isinstance(name, ast.Name)
            assert isinstance(below.value, ast.Constant)
            found[enum[name.id]] = str(below.value.value)
    return found
