"""Which partitions a consumer attempts to claim next: pure planners over what the log shows.

Source: Marshal's consumer.go (claim loop, whole topics, greedy claims, fast reclaim, bug B8);
vectors V14 to V17.
"""

from collections.abc import Iterable, Iterator

from coordlib.client.claims.claim import Phase
from coordlib.client.claims.standing import Standing
from coordlib.client.kit.signals import TopicPartition

Place = TopicPartition


def room(me: Standing) -> int:
    """How many more partitions, or topics, it may take; a large number without a limit."""
    most = me.options.maximum_claims
    if not most:
        return 1 << 30
    return most - (len(_topics_taken(me)) if me.options.claim_entire_topic else len(_taken(me)))


def to_attempt(me: Standing, now_ms: int) -> list[Place]:
    """The attempts of one pass: one partition or topic, or with `greedy_claims` all that is free.

    It begins at a random partition, so that consumers that wake together try different ones.
    """
    free = [each for each in _rotated(me, wanted(me)) if _is_free(me, each, now_ms)]
    if not me.options.claim_entire_topic:
        return free[: room(me) if me.options.greedy_claims else min(1, room(me))]
    keys = [each for each in free if each.partition == 0]
    rest = [each for each in free if each.partition > 0]
    return rest + (keys if me.options.greedy_claims else keys[:1])[: room(me)]


def wanted(me: Standing) -> list[Place]:
    """All partitions that it would take if they were free; none when it has enough.

    Of a topic that is claimed whole, partition 0 is the key: the others follow once it is held.
    """
    taken = _taken(me)
    if not me.options.claim_entire_topic:
        if room(me) <= 0:
            return []
        return [each for each in _all(me) if each not in taken]
    return [
        each
        for each in _all(me)
        if each not in taken
        and (_holds_key(me, each.topic) if each.partition else room(me) > 0)
        and not (each.partition == 0 and each.topic in _topics_taken(me))
    ]


def to_reclaim(me: Standing, topic: str) -> list[Place]:
    """What an earlier process of this client id still holds of a topic. `maximum_claims` does not
    count for partitions, as in Marshal; for topics it does, and 0 is no limit (bug B8)."""
    if not me.options.fast_reclaim:
        return []
    found = me.view_of(topic).slots(me.identity.group, topic)
    mine = [
        Place(topic, number)
        for number, slot in sorted(found.items())
        if slot.is_live and slot.client == me.identity.client
    ]
    places = [each for each in mine if each not in me.claims and each not in me.attempts]
    if me.options.claim_entire_topic and (Place(topic, 0) not in places or room(me) <= 0):
        return []
    return places


def is_wanted(me: Standing, place: Place) -> bool:
    """Whether a partition that was just won may be kept. Its attempt is not counted any more."""
    if me.is_closing or place.partition >= me.counts.get(place.topic, 0):
        return False
    if me.options.claim_entire_topic and place.partition:
        return _holds_key(me, place.topic)
    return room(me) > 0


def topics_claimed(me: Standing) -> tuple[str, ...]:
    """The topics whose key this consumer holds."""
    held = {each.topic for each, claim in me.claims.items() if not each.partition and claim.is_told}
    return tuple(sorted(held)) if me.options.claim_entire_topic else ()


def _taken(me: Standing) -> set[Place]:
    """Held, and attempted. What is being let go of is neither, but not to be attempted either."""
    return set(me.claims) | set(me.attempts)


def _topics_taken(me: Standing) -> set[str]:
    return {each.topic for each in _taken(me)}


def _holds_key(me: Standing, topic: str) -> bool:
    claim = me.claims.get(Place(topic, 0))
    return claim is not None and claim.phase is not Phase.LETTING_GO


def _all(me: Standing) -> Iterator[Place]:
    for topic in me.identity.topics:
        yield from me.places(topic)


def _rotated(me: Standing, places: list[Place]) -> Iterable[Place]:
    if not places:
        return places
    start = me.luck.randrange(len(places))
    return places[start:] + places[:start]


def _is_free(me: Standing, place: Place, now_ms: int) -> bool:
    """Whether an attempt may win now: the log shows no live owner, and it is not cooling down."""
    if now_ms < me.cooling_ms.get(place, now_ms):
        return False
    view = me.view(place)
    slot = view.slot(me.identity.group, place)
    return me.reads(place.topic, now_ms) and view.may_act and (slot is None or not slot.is_live)
