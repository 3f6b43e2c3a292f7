"""The states of brokers, partitions and replicas: the tables, and the page drawn of them."""

from itertools import product
from typing import Any

import pytest

from coordlib.core.controller import states
from coordlib.core.controller.states import BrokerState, PartitionState, ReplicaState
from coordlib.core.engine.effects import BrokenInvariant
from tests.tools import broker_diagram, state_diagram
from tests.tools import clusters as c

MOVES: list[tuple[Any, Any, Any]] = [
    (states.move_broker, BrokerState, states.VALID_PREVIOUS_BROKER_STATES),
    (states.move_partition, PartitionState, states.VALID_PREVIOUS_PARTITION_STATES),
    (states.move_replica, ReplicaState, states.VALID_PREVIOUS_REPLICA_STATES),
]


@pytest.mark.parametrize(("move", "enum", "table"), MOVES)
def test_what_is_not_in_the_table_breaks_the_step(move: Any, enum: Any, table: Any) -> None:
    """INV-76: a defect puts one cluster into quarantine, and no partition into a third state."""
    for before, after in product(enum, enum):
        if before in table[after]:
            move(before, after)
        else:
            with pytest.raises(BrokenInvariant):
                move(before, after)


@pytest.mark.parametrize("state", list(BrokerState))
@pytest.mark.parametrize("target", list(BrokerState))
def test_a_target_leads_where_the_table_says(state: BrokerState, target: BrokerState) -> None:
    """Source: KIP-343; BrokerHeartbeatManagerTest.testCalculateNextBrokerState for KRaft's."""
    talk = c.registered() if state is BrokerState.INACTIVE else c.active()
    if state is BrokerState.STOPPING:
        c.says(talk, 1, "Stopping")
    c.says(talk, 1, target.value)

    assert c.cluster_of(talk.shard).brokers[1].state is states.TARGETS[state][target]


def test_the_page_is_drawn_of_the_tables() -> None:
    """Whoever changes a table runs `make diagrams`."""
    page = broker_diagram.PAGE.read_text()

    assert page == state_diagram.between_marks(page, broker_diagram.drawn())
