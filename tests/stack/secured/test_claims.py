"""Claims at brokers that allow nothing by default: the job's query, consumers, and lost rights."""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from coordlib.client.claims import ConsumerOptions, MarshalConsumer, Marshaler
from coordlib.errors import NotAllowed
from coordlib.kafka.acls import grant, withdraw
from coordlib.kafka.roles import Kind, Operation, Right, Role, rights
from coordlib.local.stack import Stack
from tests.kit.waiting import wait_until
from tests.stack.secured.scene import CLAIMING, COORDINATION, TOPIC, Options, Scene

pytestmark = pytest.mark.stack

READING = Right(Kind.TOPIC, COORDINATION, Operation.READ)
SNAPSHOTS = Right(Kind.TOPIC, "coord.claims.snapshots", Operation.READ)
GROUPS = Right(Kind.GROUP, CLAIMING, Operation.READ, is_prefix=True)


@contextmanager
def claiming(options: Options, group: str, **more: bool) -> Iterator[MarshalConsumer]:
    config = {**options, "group.id": f"{CLAIMING}{group}", "client.id": "c", "log_level": 0}
    with (
        Marshaler(config, coordination_topic=COORDINATION) as marshaler,
        marshaler.consumer([TOPIC], ConsumerOptions(greedy_claims=True, **more)) as consumer,
    ):
        yield consumer


@pytest.mark.chaos
def test_a_secured_stack_follows_claims_with_the_rights_of_its_job(
    secured_stack: Stack, scene: Scene
) -> None:
    """`coord up --secure --claims`: it was refused, since no role had a right for claims."""
    wait_until("claims run", lambda: (told(secured_stack) or {}).get("state") == "running")
    before = int((told(secured_stack) or {})["outputs"])
    with claiming(scene.lacking(Role.CLAIMANT, None), "followed") as consumer:
        wait_until("a claim", lambda: (consumer.poll(0.1), consumer.claims())[1])
    wait_until("history", lambda: int((told(secured_stack) or {})["outputs"]) > before)

    # As the operator of a local stack does: his role has rows for its coordination topic.
    operator = dict(secured_stack.client(str(Role.OPERATOR)))
    scene.command(operator, "claims", "list", "--claims-topic", COORDINATION)
    assert secured_stack.status().job["watches_failing"] == {}


def told(stack: Stack) -> dict[str, int | str] | None:
    found: dict[str, int | str] | None = stack.status().job.get("claims")
    return found


def test_who_may_not_read_snapshots_begins_without_them_and_says_so_once(
    secured_stack: Stack, scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    """A job that was added later must not stop clients that nobody has told of it."""
    with claiming(scene.lacking(Role.CLAIMANT, SNAPSHOTS), "plain") as consumer:
        wait_until("a claim", lambda: (consumer.poll(0.1), consumer.claims())[1])

    warned = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert len([each for each in warned if str(SNAPSHOTS) in each]) == 1


def test_a_copy_that_is_refused_is_told_and_work_goes_on(
    secured_broker: Stack, scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    """The right on Kafka's group was taken back; positions stand in the coordination topic."""
    somebody = scene.lacking(Role.CLAIMANT, None)
    principal = f"User:{somebody['sasl.username']}"
    read: list[int] = []
    with claiming(somebody, "copying") as consumer:

        def work() -> int:
            message = consumer.poll(0.1)
            if message is not None and message.error() is None:
                consumer.commit(message)
                read.append(message.offset())
            return len(read)

        wait_until("records", lambda: work() > 1)
        withdraw(secured_broker.client(), principal, [GROUPS])

        def is_told() -> bool:
            work()
            time.sleep(0.5)  # the records last until a copy comes behind the withdrawal
            return any("are not copied to Kafka's group" in r.getMessage() for r in caplog.records)

        wait_until("a warning", is_told)
        assert consumer.claims(), "the claims are not its fault"


@pytest.mark.chaos  # the query runs once more, which takes a while
def test_a_right_that_is_taken_from_the_query_and_given_back(
    secured_stack: Stack, scene: Scene
) -> None:
    """It stood still until somebody started the job again, and status did not say since when.

    It may still describe the topic, so the query fails when there is something to read.
    """
    job = f"User:{Role.JOB}"
    wait_until("claims run", lambda: (told(secured_stack) or {}).get("state") == "running")
    withdraw(secured_stack.client(), job, [READING])
    try:

        def trouble() -> str:
            found = secured_stack.status().job["watches_failing"].get("claims", {})
            return str(found.get("error", ""))

        with claiming(scene.lacking(Role.CLAIMANT, None), "unread") as consumer:

            def is_refused() -> bool:
                consumer.poll(0.1)
                return "A right is missing: Read on" in trouble()

            wait_until("claims fail", is_refused, 180)
        assert COORDINATION in trouble()
    finally:
        grant(secured_stack.client(), job, [READING])
    wait_until("claims run", lambda: (told(secured_stack) or {}).get("state") == "running", 180)
    wait_until("no trouble", lambda: not trouble())


@pytest.mark.parametrize("right", [READING], ids=str)
def test_a_right_that_is_taken_from_a_consumer_is_told(
    secured_broker: Stack, scene: Scene, right: Right
) -> None:
    """Its fence closed after HI, it claimed and lost for ever, and nothing was said."""
    somebody = scene.lacking(Role.CLAIMANT, None)
    principal = f"User:{somebody['sasl.username']}"
    with claiming(somebody, "reading") as consumer:
        wait_until("a claim", lambda: (consumer.poll(0.1), consumer.claims())[1])
        withdraw(secured_broker.client(), principal, [right])

        def poll() -> bool:
            consumer.poll(0.1)
            return False

        with pytest.raises(NotAllowed, match="Read on the topic") as refused:
            wait_until("a refusal", poll, 60)
    assert COORDINATION in str(refused.value)


def test_the_rows_of_these_tests_are_rows_of_the_table() -> None:
    """A right that nobody has takes nothing away."""
    assert {READING, SNAPSHOTS, GROUPS} <= set(
        rights(Role.CLAIMANT, "coord", [TOPIC], [f"{CLAIMING}*"], COORDINATION)
    )
