"""What it costs to hold many claims: real consumers, a coordination topic in memory, virtual time.

`held` is the processor's time of all consumers together, per second of the log, once all is claimed
and nothing else happens: signs of life, their judgements, health looks. Nothing is read from the
claimed partitions. Each client judges all messages, as in reality.
"""

import time
from typing import Final

from coordlib.client.claims.consumer import Marshaler
from coordlib.client.claims.options import ConsumerOptions
from tests.client.claims.fake_claims import FakeClaimsLog, FakeReader
from tests.tools.bench.figures import tell, tell_machine

BENCH: Final = "claims"
#: Its heartbeat interval is 60 s.
TOPIC: Final = "__marshal"
#: How often users poll, and the log's time moves.
STEP_MS: Final = 100
_STEPS_MAX: Final = 600


def run(claims: int, clients: int, seconds: int) -> int:
    """Measure it, and tell it."""
    tell_machine(BENCH)
    log = FakeClaimsLog({"held": claims}, topic=TOPIC, partitions=1)
    consumers = []
    for number in range(clients):
        config = {"group.id": "bench", "client.id": f"client-{number}"}
        marshaler = Marshaler(config, transport=log.transport(), data_consumer=FakeReader(log))
        most = -(-claims // clients)
        options = ConsumerOptions(
            greedy_claims=True, maximum_claims=most, release_claims_if_behind=False
        )
        consumers.append(marshaler.consumer(["held"], options))

    def poll() -> None:
        for each in consumers:
            each.poll(0)

    for _ in range(_STEPS_MAX):
        if sum(each.current_load() for each in consumers) == claims:
            break
        log.advance(STEP_MS, poll, STEP_MS)
    written, began = len(log.records[0]), time.process_time()
    log.advance(seconds * 1_000, poll, STEP_MS)
    spent = time.process_time() - began
    held = sum(each.current_load() for each in consumers)
    messages = len(log.records[0]) - written
    tell(
        BENCH,
        "held",
        claims=held,
        clients=clients,
        interval_s=log.place.interval_ms // 1_000,
        messages_per_second=round(messages / seconds, 1),
        cores=round(spent / seconds, 3),
        cores_per_client=round(spent / seconds / clients, 4),
    )
    return 0 if held == claims else 1
