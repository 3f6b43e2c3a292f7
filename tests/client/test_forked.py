"""A process forks while it has clients: the child has none of them.  # INV-142"""

import os
import signal
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import TopicPartition

import coordlib.client as public
import coordlib.client.claims as public_claims
from coordlib.client.admin import Admin
from coordlib.client.claims.options import ConsumerOptions
from coordlib.client.kit.process import Closing, _of_parent
from coordlib.client.kit.transport import KafkaTransport
from coordlib.client.spark.reader import SparkGroupReader
from coordlib.errors import CoordError
from coordlib.testing.fake_log import FakeLog
from tests.client.claims.fake_claims import FakeClaimsLog
from tests.client.claims.world import marshaler_of
from tests.client.test_consumer import Program


def in_child(call: Callable[[], Any]) -> str:
    """What a call gives in a child of this process."""
    reads, writes = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(30)  # one that hangs ends, and has said nothing
        try:
            said = repr(call())
        except BaseException as problem:  # noqa: BLE001  # nothing of the child may go on
            said = str(problem).splitlines()[0]
        os.write(writes, said.encode())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(writes)
    with os.fdopen(reads) as found:
        return found.read()


def test_a_consumer_is_its_process_own() -> None:
    """Web servers and multiprocessing fork. Both processes handed out the same messages, or the
    child waited in `close` for threads that it has not got."""
    a = Program(FakeLog({"t": 2}), "a")
    a.settle()
    a.settle()
    consumer, other = a.consumer, "This CoordinatedConsumer was made in another process."

    with consumer.member._changed:  # some thread holds it when the process forks
        assert in_child(lambda: consumer.poll(0)) == other
        assert in_child(lambda: consumer.commit()) == other
        assert in_child(lambda: consumer.committed([TopicPartition("t", 0)])) == other
        assert in_child(lambda: consumer.member.may_work()) == "False"
        assert in_child(lambda: consumer.close()) == "None"
    assert a.poll() == (0, 0)


def test_a_consumer_of_claims_is_its_process_own() -> None:
    log = FakeClaimsLog({"t": 1})
    marshaler = marshaler_of(log)
    consumer = marshaler.consumer(["t"], ConsumerOptions())

    assert in_child(lambda: consumer.poll(0)) == (
        "This MarshalConsumer was made in another process."
    )
    assert in_child(lambda: marshaler.close()) == "None"
    consumer.poll(0)


PUBLIC: set[Any] = {
    each
    for each in [*vars(public).values(), *vars(public_claims).values(), Admin, SparkGroupReader]
    if isinstance(each, type)
}
#: Clients that do not refuse in a child by `Closing`, and why.
OTHERS = {
    KafkaTransport: "Its own base enters it, `FailingTransport`.",
    SparkGroupReader: "A Spark driver cannot be forked.",
    public.AsyncConsumer: "Its calls are those of a CoordinatedConsumer, which refuses.",
}


def test_every_public_client_is_of_a_base_that_enters_it() -> None:
    """A client is what can be closed, or left as a context."""
    clients = {each for each in PUBLIC if hasattr(each, "close") or hasattr(each, "__exit__")}

    assert {each for each in clients if not issubclass(each, Closing)} == OTHERS.keys()


@pytest.mark.parametrize(
    "kind",
    sorted((each for each in PUBLIC if issubclass(each, Closing)), key=repr),
)
def test_every_call_of_every_client_refuses_in_a_child(kind: type[Closing]) -> None:
    child: Any = object.__new__(_of_parent(kind))  # type: ignore[arg-type]

    for name in dir(kind):
        if name.startswith("_") or name in {"may_work", "may_lead", "close"}:
            continue
        if isinstance(getattr(kind, name), property) or callable(getattr(kind, name)):
            with pytest.raises(CoordError, match="another process"):
                getattr(child, name)()
    assert child.close() is None
