"""Group coordination as a Spark job. The clients of most programs: `from coordlib import Consumer`.

They are imported when they are asked for (PEP 562): what needs no Kafka client loads none. Their
types stand in `__init__.pyi`.
"""

from importlib import import_module
from typing import Any, Final

_CLIENTS: Final = {
    "AsyncConsumer": ("coordlib.client.groups.async_consumer", "AsyncConsumer"),
    "Consumer": ("coordlib.client.groups.consumer", "CoordinatedConsumer"),
    "Producer": ("coordlib.client.transactions.producer", "CoordinatedProducer"),
}
__all__ = ["AsyncConsumer", "Consumer", "Producer"]  # by `__getattr__`


def __getattr__(name: str) -> Any:
    if name not in _CLIENTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, of_module = _CLIENTS[name]
    return getattr(import_module(module), of_module)


def __dir__() -> list[str]:
    return [*globals(), *_CLIENTS]
