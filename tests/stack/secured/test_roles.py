"""Every role does its work with its rows alone, and says which one it lacks."""

import time
from collections.abc import Iterator

import pytest

from coordlib.client import CoordinatedConsumer
from coordlib.client.admin import Admin
from coordlib.core.wire import api
from coordlib.errors import NotAllowed
from coordlib.kafka.roles import Kind, Operation, Right, Role
from coordlib.local.stack import Stack
from tests.stack.secured.scene import (
    CLUSTER,
    GROUP,
    TOPIC,
    Scene,
    open_broker,
    rights_of,
)

#: Of the jobs' rows: what their running processes need is in the chaos tests.
_BESIDE_THE_START = {Right(Kind.TOPIC, "*", Operation.DESCRIBE)}
#: The row of each role that every run of the tests takes away; the others are for `make chaos`.
USUAL = {
    Role.JOB: Operation.DESCRIBE_CONFIGS,
    Role.ARCHIVE: Operation.READ,
    Role.MEMBER: Operation.WRITE,
    Role.AGENT: Operation.WRITE,
    Role.PUBLISHER: Operation.WRITE,
    Role.READER: Operation.DESCRIBE,
    Role.OPERATOR: Operation.CREATE,
    Role.CLAIMS: Operation.DESCRIBE_CONFIGS,
    Role.CLAIMANT: Operation.WRITE,
}


def rows() -> Iterator[object]:
    """Each row of each role; those that are not usual only in `make chaos`."""
    for role in Role:
        usual = USUAL[role]
        for right in rights_of(role):
            is_job = role in (Role.JOB, Role.CLAIMS)
            if is_job and (right in _BESIDE_THE_START or right.kind is Kind.GROUP):
                continue
            marks = [] if right.operation is usual else [pytest.mark.chaos]
            usual = None if right.operation is usual else usual
            yield pytest.param(role, right, id=f"{role}: {right}", marks=marks)


@pytest.fixture(scope="session")
def billing(secured_stack: Stack) -> None:
    """The group that readers and operators look at: it has offsets. And a cluster with a topic."""
    options = secured_stack.client()
    config = {**options, "group.id": GROUP, "auto.offset.reset": "earliest"}
    own = {"session.timeout.ms": 9_000, "enable.auto.commit": False}
    with CoordinatedConsumer({**config, **own}) as consumer:
        consumer.subscribe([TOPIC])
        deadline = time.monotonic() + 60
        while (message := consumer.poll(1.0)) is None or message.error() is not None:
            assert time.monotonic() < deadline
        consumer.commit()
    topic = api.NewTopic(topic="parcels", assignment={"0": (1,)})
    with (
        open_broker(options, secured_stack.prefix, broker=1),
        Admin(options, secured_stack.prefix) as admin,
    ):
        admin.create_topics(CLUSTER, [topic])


@pytest.mark.stack
@pytest.mark.usefixtures("billing")
@pytest.mark.parametrize("role", Role, ids=str)
def test_a_role_does_its_work_with_its_rows_alone(scene: Scene, role: Role) -> None:
    """An operator of brokers grants what the table says; more is not needed."""
    scene.work(role, scene.lacking(role, None))


@pytest.mark.stack
@pytest.mark.usefixtures("billing")
@pytest.mark.parametrize(("role", "right"), list(rows()))
def test_without_a_row_what_needs_it_says_so(scene: Scene, role: Role, right: Right) -> None:
    """A row that nobody misses must not be in the table; one that is missed is named."""
    somebody = scene.lacking(role, right)

    with pytest.raises(NotAllowed) as refused:
        scene.work(role, somebody)

    told = str(refused.value)
    assert f"A right is missing: {right.operation} on" in told
    assert right.name in told
    assert somebody["sasl.password"] not in told
    assert somebody["sasl.username"] in told
