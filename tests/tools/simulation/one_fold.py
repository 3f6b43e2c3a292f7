"""What the topics hold, held against one fold of the whole log.

The claims, of a shard whose checkpoint was never lost:

- Of requests alone any cut into batches says the same (INV-02). What is written once per batch
  (saved states, Progress) depends on the cut, its newest value does not.
- Positions of those who are no members are judged after the requests of their batch, so their
  place among the requests comes from the cut. With this place, and no other trace of the cut, the
  fold says the same.
- Wherever they stand, positions make no difference to who is a member, and since which record.
"""

from collections.abc import Iterator
from typing import Final

import msgspec

from coordlib.core.engine.effects import REQUESTS, Output
from coordlib.core.engine.state import topics_of
from coordlib.core.groups.protocol import COMMITS
from coordlib.core.registry import REGISTRY
from coordlib.core.wire import api
from tests.tools.core import InputRecord, Shard
from tests.tools.defects import in_force
from tests.tools.simulation import inspection
from tests.tools.simulation.evidence import Evidence, newest_marker
from tests.tools.simulation.world import PREFIX, Violation, World

#: Who is a member, and why no more.
MEMBERSHIP: Final = ("MemberJoined", "MemberRemoved", "MemberFenced")


def check(world: World, evidence: Evidence) -> None:
    """INV-02, INV-35, INV-37, INV-38: the topics hold what one fold of the whole log says."""
    for shard in range(world.plan.shards):
        if world.checkpoints == 1:
            _check_outputs(world, evidence, shard)
        _check_state(world, shard)


def _check_state(world: World, shard: int) -> None:
    """The state by the newest batch that was written, against the shard's compacted topics.

    A run may end while a batch has been judged and not written: its state is newer.
    """
    newest = world.cluster.newest_by_key
    marker = newest_marker(world.cluster)
    if marker is None or marker.checkpoint != world.checkpoint.path:
        return
    blob = world.checkpoint.states[marker.batch].get(shard)
    if blob is not None:
        topics = {name: newest(f"{PREFIX}.{name}", shard) for name in topics_of(REGISTRY)}
        inspection.check_against_topics(shard, blob, topics)


def _check_outputs(world: World, evidence: Evidence, shard: int) -> None:
    records = list(in_order_of_batches(world, evidence, shard))
    if not records:
        return
    outputs = _folded(world, shard, records)
    expected = [o.value for o in outputs if o.topic == "events"]
    written = [record.value for record in evidence.records("events", shard)]
    if expected != written:
        number = next(
            (n for n, (a, b) in enumerate(zip(expected, written, strict=False)) if a != b),
            min(len(expected), len(written)),
        )
        raise Violation(f"INV-37: line {number} of shard {shard}'s history is not the fold's")
    for topic in (*topics_of(REGISTRY), "assignments"):
        newest = {o.key: o.value for o in outputs if o.topic == topic}
        live = {key: value for key, value in newest.items() if value is not None}
        found = world.cluster.newest_by_key(f"{PREFIX}.{topic}", shard)
        if live != found:
            raise Violation(f"INV-38: {topic} of shard {shard} is not what the fold says")
    if any(record.topic == COMMITS for record in records) and not _is_crowded(world, evidence):
        requests = [record for record in records if record.topic == REQUESTS]
        _check_membership(shard, outputs, _folded(world, shard, requests))


def in_order_of_batches(world: World, evidence: Evidence, shard: int) -> Iterator[InputRecord]:
    """The input of a shard in the order in which it was judged: of each batch, requests first."""
    places = [(f"{PREFIX}.requests", REQUESTS), (f"{PREFIX}.offsets", COMMITS)]
    done = dict.fromkeys((topic for topic, _ in places), 0)
    for cut in evidence.cuts:
        for topic, letter in places:
            end = cut.get(topic, {}).get(str(shard), 0)
            records = world.cluster.partitions[topic, shard].records[done[topic] : end]
            for each in (each for each in records if not each.is_marker):
                yield InputRecord(letter, each.offset, each.timestamp_ms, each.value)
            done[topic] = max(done[topic], end)


def _folded(world: World, shard: int, records: list[InputRecord]) -> list[Output]:
    """All outputs of these, judged in their order as one batch."""
    settings = msgspec.structs.replace(world.engine.settings, shard=shard)
    with in_force(world.engine.defects), inspection.sizes_divided(world.plan.sizes):
        folded = Shard(None, settings)
        for record in records:
            folded.judge(record)
        return folded.close()


def _is_crowded(world: World, evidence: Evidence) -> bool:
    """Whether positions may legally keep somebody out, or keep a group alive that would go.

    They take room and turns from groups that are new, and a group with offsets is not deleted when
    it is empty. A step that breaks by a position sets its group aside.
    """
    plan = world.plan
    is_near = plan.retention_ms or plan.new_groups_per_second or plan.shard_bytes
    return bool(is_near or world.engine.defects) or any(
        isinstance(each.request, api.DeleteGroup) for each in evidence.asked
    )


def _check_membership(shard: int, outputs: list[Output], others: list[Output]) -> None:
    """INV-24: positions that are no member's make nobody a member, and keep nobody one."""
    mine, theirs = _machine(outputs), _machine(others)
    for ours, without in zip(mine, theirs, strict=False):
        if ours != without:
            raise Violation(
                f"INV-24: with positions shard {shard} says {ours}, without them {without}"
            )
    if len(mine) != len(theirs):
        raise Violation(f"INV-24: positions change who is a member in shard {shard}")


def _machine(outputs: list[Output]) -> list[tuple[str, str, str, str, str]]:
    events = [msgspec.json.decode(o.value or b"{}") for o in outputs if o.topic == "events"]
    return [
        (each["type"], each["group"], each["member"], each["reason"], each["cause"])
        for each in events
        if each["type"] in MEMBERSHIP
    ]
