"""Claims are restored from a snapshot and the log behind it; if that was cut, they begin late."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordlib.core.claims.fold import decode_blob
from coordlib.core.claims.world import World
from coordlib.core.engine.effects import Output
from coordlib.core.engine.state import InputRecord
from coordlib.core.wire.stored import Marker, ShardPosition
from coordlib.errors import StartRefused
from coordlib.job import rebuild
from coordlib.job.rebuild import Replay
from tests.history.claims_life import PLANE, SETTINGS, TOPIC, ClaimsLife, a_life_of_claims

Saved = dict[bytes, bytes]


@dataclass
class Log:
    """The coordination topic, of which retention has left what begins at `start`."""

    records: list[InputRecord]
    start: int = 0
    #: (first, end) of each reading.
    read_from: list[tuple[int, int]] = field(default_factory=list)

    def starts(self) -> Mapping[int, int]:
        return {0: self.start}

    def read(self, shard: int, first: int, end: int) -> Iterator[InputRecord]:
        assert first >= self.start, "retention has removed it"
        self.read_from.append((first, end))
        yield from (each for each in self.records if first <= each.offset < end)


def saved(life: ClaimsLife) -> dict[str, Saved]:
    """The compacted topics: the newest value under each key."""
    found: dict[str, Saved] = {"snapshots": {}, "committed": {}, "assignments": {}}
    for key, value, topic, *_ in life.log.rows:
        name = topic.removeprefix("coord.claims.")
        if name in found:
            found[name].pop(key, None)
            if value is not None:
                found[name][key] = value
    return found


def marker_at(end: int) -> Marker:
    return Marker(
        checkpoint="c",
        batch=7,
        ranges={},
        digest="",
        next_offsets={TOPIC: {"0": end}} if end else {},
        shards={"0": ShardPosition(clock_ms=0, previous_ms=0, published=-1)},
    )


def rebuilt(topics: dict[str, Saved], log: Log, end: int) -> bytes:
    """The state with which a rebuilt job begins behind `end`."""
    seeds = rebuild.seed_blobs(
        lambda topic, _: topics[topic.removeprefix("coord.claims.")],
        {},
        PLANE,
        1,
        marker_at(end),
        Replay.of(SETTINGS, log),
    )
    return seeds[0]


def world_of(blob: bytes) -> World:
    return World.restore(decode_blob(blob).world, TOPIC, 0, 1)


def test_a_rebuild_gives_the_world_that_was_lost() -> None:
    """The checkpoint is gone. Signs keep their true age, so nobody gets time that clients do not
    see; what was judged behind the snapshot is read again, and nothing before it.  # INV-65"""
    life = a_life_of_claims()
    topics = saved(life)
    late = life.beat(22, "worker-2", 0, "99999999-9", 95)
    log = Log(life.records)
    before = PLANE.fold(life.blob, life.records[late:], SETTINGS).blob

    blob = rebuilt(topics, log, late + 1)

    assert decode_blob(blob).world == decode_blob(before).world
    assert log.read_from == [(late, late + 1)]


def test_without_a_snapshot_the_whole_log_is_read_again() -> None:
    """The job died within its first minute."""
    life = a_life_of_claims()
    log = Log(life.records)

    blob = rebuilt({"snapshots": {}, "committed": {}}, log, len(life.records))

    assert life.blob is not None
    assert decode_blob(blob).world == decode_blob(life.blob).world
    assert log.read_from == [(0, len(life.records))]


def test_a_snapshot_of_another_topic_does_not_count() -> None:
    """The topic was made anew, with other offsets."""
    life = a_life_of_claims()
    of = msgspec.structs.replace(SETTINGS.families["claims"], topic_id="another")
    anew = msgspec.structs.replace(SETTINGS, families={"claims": of})
    log = Log(life.records)
    topics = saved(life)

    Replay.of(anew, log).brought_up(PLANE, 0, topics, len(life.records))

    assert log.read_from == [(0, len(life.records))]


def test_a_state_whose_log_was_cut_begins_late_and_history_says_so_once() -> None:
    """Retention was shorter than the job was away: records that nobody judged are gone. The
    positions are known, owners are learnt anew.  # INV-62"""
    life = a_life_of_claims()
    topics, judged = saved(life), len(life.records)
    for seconds in range(22, 40, 2):
        life.beat(seconds, "worker-2", 0, "99999999-9", 90 + seconds)
    log = Log(life.records, start=judged + 3)

    blob = rebuilt(topics, log, judged)

    world = world_of(blob)
    assert world.is_late
    assert {key: slot.position for key, slot in world.slots.items()} == {
        ("payments", "orders", 0): 89,
        ("payments", "orders", 1): 42,
    }
    assert not any(world.is_live(slot) for slot in world.slots.values())
    first = PLANE.fold(blob, life.records[judged + 3 : judged + 5], SETTINGS)
    again = PLANE.fold(first.blob, life.records[judged + 5 :], SETTINGS)
    gaps = [
        msgspec.json.decode(each.value or b"")
        for each in [*first.outputs, *again.outputs]
        if each.topic == "events" and b"LogGap" in (each.value or b"")
    ]
    assert [gap["detail"] for gap in gaps] == [
        {"partition": 0, "from_offset": judged, "to_offset": judged + 3}
    ]


def test_owners_that_a_late_state_does_not_know_are_withdrawn() -> None:
    """Their clients may be dead: nobody would ever write that they own nothing any more."""
    life = a_life_of_claims()
    topics = saved(life)
    replay = Replay.of(SETTINGS, Log(life.records, start=len(life.records) + 1))

    def newest(topic: str, _: int) -> Saved:
        return topics[topic.removeprefix("coord.claims.")]

    assert rebuild.withdrawn(newest, PLANE, replay) == [], "no state has begun late"
    rebuild.seed_blobs(newest, {}, PLANE, 1, marker_at(len(life.records)), replay)

    keys = [b'["payments","orders",0]', b'["payments","orders",1]']
    assert rebuild.withdrawn(newest, PLANE, replay) == [
        Output("assignments", 0, key, None) for key in keys
    ]


def test_what_is_gone_is_what_lies_between_the_marker_and_the_log() -> None:
    """By it a start finds out that it cannot go on with its checkpoint."""
    brought = Replay(SETTINGS, Log([]), {0: 10, 1: 5, 2: 0, 3: 7})

    assert brought.cut({"0": 8, "1": 5, "2": 3}) == {0: (8, 10)}


def test_a_snapshot_that_this_code_cannot_read_is_refused_with_the_hint() -> None:
    """Newer code has run, and the checkpoint is lost."""
    life = a_life_of_claims()
    topics = saved(life)
    topics["snapshots"] = dict.fromkeys(topics["snapshots"], b"\x9a\x63")

    with pytest.raises(StartRefused, match="newer code"):
        rebuilt(topics, Log(life.records), len(life.records))


@given(at=st.integers(0, 19), parts=st.integers(1, 7))
def test_wherever_the_snapshot_is_and_however_the_log_is_read(at: int, parts: int) -> None:
    """INV-65: a snapshot and the log behind it give the state that the whole log gives."""
    life = a_life_of_claims()
    begun = PLANE.fold(None, life.records[:at], SETTINGS)
    pages = {o.key: o.value or b"" for o in begun.outputs if o.topic == "snapshots"}
    log = Log(life.records)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rebuild, "AT_ONCE", parts)
        blob = rebuilt({"snapshots": pages, "committed": {}}, log, len(life.records))

    assert life.blob is not None
    assert decode_blob(blob).world == decode_blob(life.blob).world
    assert not pages or log.read_from == [(at, len(life.records))]
