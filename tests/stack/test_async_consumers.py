"""`AsyncConsumer` on the real stack: many in one loop, which come, go and are cancelled."""

import asyncio
import random
from typing import Any

import psutil
import pytest
from confluent_kafka import TopicPartition

from coordlib.client import AsyncConsumer, KafkaTransport
from coordlib.local.stack import Stack
from tests.stack.flow import Flow

pytestmark = pytest.mark.stack
CONSUMERS = 12
THREADS_MAX = 20


def read(message: Any) -> tuple[int, int]:
    assert message.error() is None, message.error()
    return message.partition(), message.offset()


@pytest.mark.parametrize("protocol", ["classic", "assigned"])
def test_consumers_that_are_cancelled_come_and_go_miss_no_record(
    shared_stack: Stack, flow: Flow, group: str, protocol: str
) -> None:
    servers, luck = shared_stack.bootstrap_servers, random.Random(5)
    config: dict[str, Any] = {
        "bootstrap.servers": servers,
        "group.id": group,
        "group.protocol": protocol,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    # One more reads with a reader of its own: another group, on the same partitions.
    other = {**config, "group.id": f"{group}-other"}
    seen: dict[str, list[tuple[int, int]]] = {group: [], other["group.id"]: []}
    committed: list[int] = []

    async def revoked(consumer: AsyncConsumer, _: list[TopicPartition]) -> None:
        await asyncio.sleep(0)
        await consumer.commit()

    async def work(settings: dict[str, Any], transport: KafkaTransport, lasts_s: float) -> None:
        until = asyncio.get_running_loop().time() + lasts_s
        async with AsyncConsumer(settings, transport=transport) as consumer:
            await consumer.subscribe([flow.topic], on_revoke=revoked)
            while asyncio.get_running_loop().time() < until:
                try:
                    async with asyncio.timeout(luck.choice([0.001, 0.01, 0.1])):
                        seen[settings["group.id"]].append(read(await consumer.__anext__()))
                except TimeoutError:
                    await asyncio.sleep(0)
            assert await consumer.commit(asynchronous=False) is not None

    async def course() -> None:
        transport = await asyncio.to_thread(KafkaTransport, {"bootstrap.servers": servers}, "coord")
        own = psutil.Process()
        before = own.num_threads()
        works = [
            asyncio.create_task(work(config, transport, luck.uniform(3, 12)))
            for _ in range(CONSUMERS)
        ]
        works.append(asyncio.create_task(work(other, transport, 12)))
        flow.begin()
        await asyncio.sleep(8)
        threads = own.num_threads() - before
        await asyncio.to_thread(flow.pause)
        await asyncio.gather(*works)
        # Whoever comes last reads the rest, from what the others have committed.
        async with AsyncConsumer(config, transport=transport) as last:
            await last.subscribe([flow.topic])
            while len(set(seen[group])) < sum(flow.ends.values()):
                seen[group].append(read(await last.poll()))
            await last.commit(asynchronous=False)
            places = [TopicPartition(flow.topic, each) for each in flow.ends]
            committed.extend(each.offset for each in await last.committed(places))
        await asyncio.to_thread(transport.close)
        # Those of the second reader, which only the other group needs, are among them.
        assert threads <= THREADS_MAX

    asyncio.run(course())

    records = {(part, at) for part, end in flow.ends.items() for at in range(end)}
    assert set(seen[group]) == records
    assert committed == list(flow.ends.values())
    assert set(seen[other["group.id"]])
    # No member was fenced or killed, and each commits what it has returned before it lets go.
    assert sorted(seen[group]) == sorted(records)
