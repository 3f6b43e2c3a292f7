"""What the words of a command say: fields of requests, partitions and offsets (`transcript`)."""

from collections.abc import Mapping
from typing import Any

from coordlib.core.wire import api
from coordlib.core.wire import consumer_protocol as cp

_NAMES = {"session": "session_timeout_ms", "rebalance": "rebalance_timeout_ms"}
_NUMBERS = frozenset({"session", "rebalance", "generation", "reply", "capacity", "cause"})


def by_name(words: list[str]) -> dict[str, str]:
    return {name: value for name, _, value in (word.partition("=") for word in words)}


def leaver(text: str) -> api.Leaver:
    member, _, instance = text.partition("/")
    return api.Leaver(member, instance or None)


def typed(words: dict[str, str]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for name, value in words.items():
        if name == "protocols":
            pairs = (pair.partition(":") for pair in value.split(","))
            fields[name] = {protocol: metadata.encode() for protocol, _, metadata in pairs}
        elif name == "topics":  # as Kafka's consumers say it
            wanted = cp.Subscription(version=0, topics=tuple(value.split(",")))
            fields["protocols"] = {"range": cp.encode_subscription(wanted)}
            fields["protocol_type"] = cp.CONSUMER
        elif name == "type":
            fields["protocol_type"] = value
        elif name == "remain":
            fields[name] = bool(int(value))
        elif name == "stable":
            fields["require_stable"] = bool(int(value))
        else:
            fields[_NAMES.get(name, name)] = int(value) if name in _NUMBERS else value
    return fields


def offsets(fields: dict[str, Any]) -> tuple[api.CommittedOffset, ...]:
    places = [name for name in fields if "/" in name]
    return tuple(api.CommittedOffset(*place(name), int(fields.pop(name))) for name in places)


def places_in(fields: Mapping[str, Any]) -> list[tuple[str, int]]:
    return [place(name) for name in fields if "/" in name]


def place(text: str) -> tuple[str, int]:
    topic, _, partition = text.rpartition("/")
    return topic, int(partition)
