"""What the engine says of the World's judgements: history, owners, positions, snapshots."""

import hashlib
import json
from typing import Any

import msgspec
import pytest

from coordlib import limits
from coordlib.core.claims import fold as restore
from coordlib.core.claims.fold import CLOCK_WARNING_MS, StoredClaims, decode_blob, encode_blob, fold
from coordlib.core.claims.snapshots import Page, read_pages
from coordlib.core.claims.world import World
from coordlib.core.engine.effects import ASSIGNMENTS, COMMITTED, EVENTS, SNAPSHOTS, Output, Refusals
from coordlib.core.engine.state import UnknownStateVersion
from tests.tools.claims import driving
from tests.tools.claims.driving import START_MS, Talk, process_of, settings

DAY_MS = 86_400_000
KEY = b'["g","t",0]'


def message(kind: str, client: str = "a", epoch: int | None = None, **fields: Any) -> Any:
    process = process_of(client)
    instance = process if epoch is None else f"{process}-{epoch}"
    time_s = START_MS // 1_000
    return driving.message(
        kind, 0, {"client": client, "instance": instance, "time_s": time_s, **fields}
    )


def events(outputs: list[Output], *types: str) -> list[dict[str, Any]]:
    lines = [json.loads(each.value or b"") for each in outputs if each.topic == EVENTS]
    return [line for line in lines if not types or line["type"] in types]


def newest(outputs: list[Output], topic: str) -> dict[bytes, Any]:
    found = {each.key: each.value for each in outputs if each.topic == topic}
    return {key: value and json.loads(value) for key, value in found.items()}


def quiet(talk: Talk, duration_ms: int) -> None:
    """Time, by records that mean nothing and leave no line."""
    cap_ms = talk.claims.world.cap_ms
    while duration_ms > 0:
        step_ms = min(duration_ms, cap_ms)
        duration_ms -= step_ms
        talk.send(message("ClaimingMessages", version=1), step_ms)


def test_a_line_says_what_when_and_because_of_what() -> None:
    """Who owned the partition at three, and why not any more?"""
    talk = Talk(settings())
    talk.send(message("ClaimingPartition"), 1_000)
    (line,) = events(talk.news())

    assert line == {
        "v": 1,
        "event_id": "incarnat-m0-0-0",
        "time_ms": START_MS + 1_000,
        "group": "g",
        "protocol": "claims",
        "kind": "claims",
        "space": "claims",
        "type": "ClaimWon",
        "generation": 0,
        "member": "a",
        "cause": "m0-0",
        "reason": "",
        "detail": {
            "topic": "t",
            "partition": 0,
            "epoch": 0,
            "client": "a",
            "instance": process_of("a"),
            "position": None,
            "how": "claimed",
            "former": None,
            "skew_ms": -1_000,
        },
    }


def test_owners_and_positions_are_those_of_the_end_of_the_batch() -> None:
    """A replay of millions of messages writes each key once."""
    talk = Talk()
    talk.send(message("ClaimingPartition"))
    talk.send(message("Heartbeat", epoch=0, offset=5), 1_000)
    talk.send(message("Heartbeat", epoch=0, offset=9), 1_000)
    outputs = talk.end_batch()

    assert [each.topic for each in outputs if each.topic != EVENTS] == [ASSIGNMENTS, COMMITTED]
    assert newest(outputs, ASSIGNMENTS)[KEY] == {
        "client": "a",
        "instance": process_of("a"),
        "epoch": 0,
        "since_ms": START_MS,
        "how": "claimed",
    }
    committed = newest(outputs, COMMITTED)[KEY]
    assert committed["offset"] == 9
    assert committed["commit_ms"] == START_MS + 2_000
    assert committed["commit_clock_ms"] == 2_000
    assert (committed["generation"], committed["member"]) == (0, "a")
    assert talk.end_batch() == [], "nothing changed, nothing is written"


def test_a_heartbeat_that_moves_nothing_writes_nothing() -> None:
    """10,000 claims send 333 heartbeats a second."""
    talk = Talk()
    talk.send(message("ClaimingPartition"))
    talk.send(message("Heartbeat", epoch=0, offset=5))
    talk.end_batch()
    now_s = START_MS // 1_000 + 30
    talk.send(message("Heartbeat", epoch=0, offset=5, time_s=now_s), 30_000)

    assert talk.end_batch() == []


def test_an_expiry_is_told_by_the_first_record_beyond_it() -> None:
    """Nobody sends it. It has a place in history all the same, and takes the owner away."""
    talk = Talk()
    talk.send(message("ClaimingPartition"))
    talk.send(message("ClaimingPartition", partition=1), 500)
    quiet(talk, 119_499)
    talk.end_batch()
    talk.send(message("ClaimingMessages", version=1), 1_000)
    outputs = talk.end_batch()

    expired = events(outputs, "ClaimExpired")
    assert [(e["detail"]["partition"], e["detail"]["idle_ms"]) for e in expired] == [
        (0, 120_999),
        (1, 120_499),
    ]
    assert [e["event_id"] for e in expired] == ["incarnat-m0-7-0", "incarnat-m0-7-1"]
    assert newest(outputs, ASSIGNMENTS) == {KEY: None, b'["g","t",1]': None}
    assert events(talk.end_batch()) == []


def test_a_late_sign_resumes_the_claim() -> None:
    """Its owner was slow, and nobody wanted the partition."""
    talk = Talk()
    talk.send(message("ClaimingPartition"))
    quiet(talk, 130_000)
    talk.end_batch()
    talk.send(message("Heartbeat", epoch=0, offset=3))
    outputs = talk.end_batch()

    (line,) = events(outputs)
    assert (line["type"], line["detail"]["idle_ms"]) == ("ClaimResumed", 130_000)
    assert newest(outputs, ASSIGNMENTS)[KEY]["how"] == "resumed"


def test_positions_are_withdrawn_seven_days_after_the_last_sign() -> None:
    """As Kafka's own offsets; who comes back later is known again."""
    talk = Talk()
    talk.send(message("ClaimingPartition"))
    talk.send(message("ReleasingPartition", epoch=0, offset=5))
    quiet(talk, 7 * DAY_MS - 1)
    assert newest(talk.end_batch(), COMMITTED)[KEY]["offset"] == 5
    quiet(talk, 1)
    assert newest(talk.end_batch(), COMMITTED) == {KEY: None}
    talk.send(message("ClaimingPartition", client="b"))

    assert newest(talk.end_batch(), COMMITTED)[KEY]["offset"] == 5


def test_a_takeover_by_marshals_heartbeat_is_a_loss_and_a_win() -> None:
    """Both tenures end and begin at the same record."""
    talk = Talk()
    talk.send(message("ClaimingPartition"))
    talk.send(message("Heartbeat", client="m", version=1, offset=2))
    lines = events(talk.news())

    assert [(each["type"], each["member"]) for each in lines] == [
        ("ClaimWon", "a"),
        ("ClaimLost", "a"),
        ("ClaimWon", "m"),
    ]
    assert lines[-1]["detail"]["how"] == "heartbeat"
    assert lines[-1]["detail"]["former"] == "a"


def test_a_position_that_goes_back_is_told() -> None:
    """A rewind, by whoever did it."""
    talk = Talk()
    talk.send(message("ClaimingPartition"))
    talk.send(message("Heartbeat", epoch=0, offset=9))
    talk.send(message("Heartbeat", epoch=0, offset=4))
    (line,) = events(talk.news(), "PositionMoved")

    assert (line["reason"], line["detail"]["from"], line["detail"]["position"]) == ("back", 9, 4)


def test_a_clock_that_is_wrong_is_told_once_an_hour() -> None:
    """Beyond a quarter of the interval; a client stamped a day ahead decides nothing by it."""
    talk = Talk()
    ahead = START_MS // 1_000 + 86_400
    talk.send(message("ClaimingPartition", time_s=ahead))
    talk.end_batch()
    for _ in range(200):
        talk.send(message("Heartbeat", epoch=0, offset=1, time_s=ahead), 20_000)
        talk.end_batch()
    lines = events(talk.outputs, "SenderClock")

    assert [each["detail"]["skew_ms"] for each in lines] == [
        86_400_000,
        86_400_000 - CLOCK_WARNING_MS,
    ]
    talk.send(message("Heartbeat", epoch=0, offset=1, time_s=talk.now_ms // 1_000 + 15), 0)
    assert events(talk.end_batch(), "SenderClock") == []


def test_wrong_clocks_are_told_of_so_many_clients_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """INV-43: names are for nothing."""
    monkeypatch.setattr(limits, "CLOCKS_REPORTED_MAX", 3)
    talk = Talk()
    for n in range(5):
        talk.send(message("ClaimingPartition", client=f"c{n}", time_s=1))

    assert len(events(talk.end_batch(), "SenderClock")) == 3


def test_a_time_beyond_all_bounds_is_told_as_a_number_that_json_has() -> None:
    """9,223,372,036,854,775,807 seconds are decodable."""
    talk = Talk()
    talk.send(message("ClaimingPartition", time_s=2**63 - 1))
    talk.send(message("ReleaseGroup", time_s=-(2**63), expire_s=2**63 - 1))

    assert {each["detail"]["skew_ms"] for each in events(talk.end_batch())} == {
        2**53 - 1,
        -(2**53) + 1,
    }


def test_a_flood_of_refusals_leaves_few_lines() -> None:
    """A zombie that repeats itself, and bytes that nobody can read, in one batch or in many."""
    talk = Talk()
    talk.send(message("ClaimingPartition"))
    for n in range(300):
        talk.send(message("Heartbeat", client="b", epoch=0))
        talk.send(b"banana")
        if n % 50 == 0:
            talk.end_batch()
    outputs = [*talk.outputs, *talk.end_batch()]

    assert len(events(outputs, "HeartbeatRefused")) == limits.REFUSALS_REPORTED_MAX
    assert len(events(outputs, "MessageRejected")) == limits.REFUSALS_REPORTED_MAX


def test_what_fills_silence_is_no_refusal() -> None:
    """While a group is paused each consumer that waits writes such a message now and then: it was
    told as a claim that is refused, of consumers that do what they should."""
    talk = Talk(settings())
    talk.send(message("ClaimingPartition"), 1_000)
    talk.news()
    talk.send(message("ClaimingMessages", client="waits"), 1_000)
    talk.send(message("ClaimingMessages", client="waits", partition=7), 1_000)

    assert events(talk.news()) == []


def test_refusals_are_counted_together_where_nothing_is_known() -> None:
    """INV-43: a flood under a thousand names must not leave a thousand counters."""
    talk = Talk()
    for n in range(200):
        talk.send(message("ReleasingPartition", client="b", epoch=0, group=f"h{n}"))
    talk.end_batch()

    assert len(events(talk.outputs, "ReleaseRefused")) == limits.REFUSALS_REPORTED_MAX
    assert decode_blob(talk.claims.encode()).refusals_of == []


def test_a_snapshot_is_written_when_the_clock_crosses_an_interval() -> None:
    """Clients begin from it exactly; it needs no state of its own."""
    talk = Talk()
    talk.send(message("ClaimingPartition"))
    quiet(talk, 59_999)
    assert not any(each.topic == SNAPSHOTS for each in talk.end_batch())
    quiet(talk, 1)
    pages = [each for each in talk.end_batch() if each.topic == SNAPSHOTS]

    assert [each.key for each in pages] == [b"0"]
    snapshot = read_pages(each.value for each in pages if each.value is not None)
    assert snapshot is not None
    assert (snapshot.topic_id, snapshot.partitions) == (driving.TOPIC_ID, 1)
    assert (snapshot.offset, snapshot.clock_ms, snapshot.pages) == (4, 60_000, 1)
    world = World.restore(snapshot.world, driving.TOPIC, 0, 1)
    assert world.snapshot() == talk.claims.world.snapshot()


#: That no packer makes short.
LONG = "".join(hashlib.sha256(bytes([n])).hexdigest() for n in range(4))


def test_surplus_pages_get_tombstones(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader that finds an old page beside new ones could not tell."""
    monkeypatch.setattr(limits, "SNAPSHOT_PAGE_BYTES_MAX", 1_024 + 40)
    monkeypatch.setattr(limits, "SLOTS_MAX", 2)
    talk = Talk()
    talk.send(message("ClaimingPartition", group=LONG[:120]))
    talk.send(message("ClaimingPartition", group=LONG[120:]))
    quiet(talk, 60_000)
    first = [each for each in talk.end_batch() if each.topic == SNAPSHOTS]
    quiet(talk, 60_000)
    talk.send(message("ClaimingPartition", time_s=talk.now_ms // 1_000))
    talk.send(message("ClaimingPartition", time_s=talk.now_ms // 1_000, partition=1))
    second = [each for each in talk.end_batch() if each.topic == SNAPSHOTS]

    written = [each for each in second if each.value is not None]
    assert len(first) > len(written) >= 1
    assert [each.key for each in second] == [each.key for each in first]
    assert read_pages(each.value or b"" for each in written) is not None


def test_a_log_that_was_cut_is_told_once_and_read_late() -> None:
    """Records after the snapshot are gone: positions are all that is known."""
    how = settings()
    blob = restore.begin_late({("g", "t", 0): (7, "")}, gap_from=100, settings=how, pages=2)
    records = [
        driving.record(150, START_MS, message("ClaimingPartition")),
        driving.record(151, START_MS, message("Heartbeat", client="b", epoch=90, offset=9)),
    ]
    done = fold(blob, records[:1], how)
    after = fold(done.blob, records[1:], how)

    gap, won = events(done.outputs)
    assert (gap["type"], gap["detail"]) == (
        "LogGap",
        {"partition": 0, "from_offset": 100, "to_offset": 150},
    )
    assert (won["type"], won["detail"]["position"]) == ("ClaimWon", 7)
    assert [each["type"] for each in events(after.outputs)] == ["ClaimLost", "ClaimWon"]
    world = restore.begun(after.blob, how)
    assert world.is_late
    assert restore.positions_of(world) == {("g", "t", 0): (9, "")}
    assert decode_blob(after.blob).pages == 2


def test_a_snapshot_of_another_topic_is_not_taken() -> None:
    """A topic that was made anew has other offsets under the same name."""
    talk = Talk()
    quiet(talk, 60_001)
    quiet(talk, 60_001)
    pages = [each.value for each in talk.end_batch() if each.topic == SNAPSHOTS]
    snapshot = read_pages(value for value in pages if value is not None)
    assert snapshot is not None

    assert restore.belongs(snapshot, talk.settings)
    assert not restore.belongs(None, talk.settings)
    assert not restore.belongs(msgspec.structs.replace(snapshot, topic_id="x"), talk.settings)
    assert not restore.belongs(snapshot, settings(partitions=2))


def test_a_blob_of_other_code_is_refused() -> None:
    """It names the remedy, and nothing is judged with half a state."""
    blob = encode_blob(StoredClaims(9, b""))
    with pytest.raises(UnknownStateVersion, match="version 9, this code knows 1"):
        fold(blob, [], settings())
    with pytest.raises(UnknownStateVersion, match="cannot be read"):
        fold(encode_blob(StoredClaims(1, b"x")), [], settings())
    with pytest.raises(msgspec.MsgspecError):
        fold(b"", [], settings())
    talk = Talk()
    talk.send(None)
    talk.claims.close()
    with pytest.raises(UnknownStateVersion, match="is of partition 0 of 1 of __marshal"):
        fold(talk.claims.encode(), [], settings("__marshal.6s"))


def test_a_record_that_was_judged_does_nothing() -> None:
    """INV-04: a batch that runs again after the state was kept."""
    talk = Talk()
    talk.send(message("ClaimingPartition"))
    talk.end_batch()

    done = fold(talk.claims.encode() or None, [], talk.settings)
    again = fold(done.blob, talk.log, talk.settings)
    assert (again.blob, again.outputs) == (done.blob, [])


def test_the_status_owes_no_ticks() -> None:
    """Time is the senders' affair here: the driver writes nothing to this topic."""
    talk = Talk()
    talk.send(message("ClaimingPartition"))
    status = talk.claims.status()

    assert (status.has_deadline, status.owed, status.cap_ms) == (False, -1, 24_000)
    assert status.position.offsets == {"m": 0}
    assert (status.position.published, status.position.previous_ms) == (-1, START_MS)
    assert Talk().claims.status().position.offsets == {}


def test_refusals_that_count_as_absent_are_left_out_of_the_blob() -> None:
    """The blob must not depend on when it was written.  # INV-03"""
    talk = Talk()
    talk.send(message("ClaimingPartition"))
    talk.send(message("Heartbeat", client="b", epoch=0))
    talk.end_batch()
    assert decode_blob(talk.claims.encode()).refusals_of == [("g", Refusals(0, 1, 0))]
    quiet(talk, limits.REFUSALS_WINDOW_MS)

    assert decode_blob(talk.claims.encode()).refusals_of == []


def test_pages_name_what_they_are_of() -> None:
    """Values of `coord.claims.snapshots` are read by clients of any age."""
    talk = Talk()
    quiet(talk, 60_001)
    quiet(talk, 60_001)
    (page,) = [each for each in talk.end_batch() if each.topic == SNAPSHOTS]
    decoded = msgspec.msgpack.decode(page.value or b"", type=Page)

    assert (decoded.version, decoded.topic_id, decoded.partitions) == (1, driving.TOPIC_ID, 1)
    assert (decoded.page, decoded.pages) == (0, 1)
