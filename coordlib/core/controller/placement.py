"""On which brokers new partitions lie: Kafka's AdminUtils, with its random numbers from the log.

Both numbers come of the record's offset: they only have to differ from topic to topic.
Source: AdminUtils.assignReplicasToBrokersRackUnaware and …RackAware (KIP-36).
"""

from collections.abc import Mapping
from itertools import zip_longest

#: Broker -> its rack, if it has one.
Racks = Mapping[int, str | None]


def place(
    racks: Racks, count: int, replicas: int, seed: int, first: int = 0
) -> dict[int, tuple[int, ...]]:
    """Partitions `first` to `first + count - 1` by number, over at least `replicas` brokers."""
    brokers = sorted(racks)
    start, shift = seed % len(brokers), seed // len(brokers) % len(brokers)
    by_rack = all(rack is not None for rack in racks.values())
    order = _alternating(racks) if by_rack else brokers
    found: dict[int, tuple[int, ...]] = {}
    for number in range(first, first + count):
        if number > 0 and number % len(order) == 0:
            shift += 1
        index = (number + start) % len(order)
        if by_rack:
            found[number] = _over_racks(racks, order, index, shift, replicas)
        else:
            found[number] = _in_turn(order, index, shift, replicas)
    return found


def _in_turn(brokers: list[int], index: int, shift: int, replicas: int) -> tuple[int, ...]:
    rest = (_at(index, shift, each, len(brokers)) for each in range(replicas - 1))
    return (brokers[index], *(brokers[each] for each in rest))


def _over_racks(
    racks: Racks, order: list[int], index: int, shift: int, replicas: int
) -> tuple[int, ...]:
    """A rack gets a second replica only when all racks have one."""
    rack_count = len(set(racks.values()))
    chosen = [order[index]]
    used = {racks[order[index]]}
    turn = 0
    while len(chosen) < replicas:
        broker = order[_at(index, shift * rack_count, turn, len(order))]
        turn += 1
        is_new_rack = racks[broker] not in used or len(used) == rack_count
        if is_new_rack and broker not in chosen:
            chosen.append(broker)
            used.add(racks[broker])
    return tuple(chosen)


def _at(first: int, shift: int, turn: int, count: int) -> int:
    return (first + 1 + (shift + turn) % (count - 1)) % count


def _alternating(racks: Racks) -> list[int]:
    """Brokers, a rack after the other in turn."""
    by_rack: dict[str, list[int]] = {}
    for broker in sorted(racks):
        by_rack.setdefault(str(racks[broker]), []).append(broker)
    rounds = zip_longest(*(by_rack[rack] for rack in sorted(by_rack)))
    return [broker for each in rounds for broker in each if broker is not None]
