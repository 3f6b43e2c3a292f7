from coordlib.client.groups.async_consumer import AsyncConsumer as AsyncConsumer
from coordlib.client.groups.consumer import CoordinatedConsumer as Consumer
from coordlib.client.transactions.producer import CoordinatedProducer as Producer

__all__ = ["AsyncConsumer", "Consumer", "Producer"]
