"""Marshal's text: what Go accepts is accepted, what Go refuses is refused, nothing raises."""

import json
from pathlib import Path

import pytest

from coordlib import limits
from coordlib.core.wire import claims
from coordlib.core.wire.claims import (
    BARE,
    AnyMessage,
    ClaimingMessages,
    ClaimingPartition,
    Fault,
    Heartbeat,
    Rejected,
    ReleaseGroup,
    ReleasingPartition,
    Sender,
    decode,
    encode,
    heartbeat_interval_ms,
    instance_of,
    partition_of,
    read,
    sender_of,
)
from tests.tools import marshal as tool

VECTORS = Path(__file__).parent / "marshal_vectors.jsonl"

#: Of Marshal's own TestMessageEncode and TestMessageDecode.
UNIT_TEST = {
    "Heartbeat/4/2/ii/cl/gr/t/3/5": Heartbeat(4, 2, "ii", "cl", "gr", "t", 3, 5),
    "ClaimingPartition/4/2/ii/cl/gr/t/3": ClaimingPartition(4, 2, "ii", "cl", "gr", "t", 3),
    "ReleasingPartition/4/2/ii/cl/gr/t/3/7": ReleasingPartition(4, 2, "ii", "cl", "gr", "t", 3, 7),
    "ClaimingMessages/4/2/ii/cl/gr/t/3/9": ClaimingMessages(4, 2, "ii", "cl", "gr", "t", 3, 9),
    "ReleaseGroup/4/2/ii/cl/gr//0/12": ReleaseGroup(4, 2, "ii", "cl", "gr", "", 0, 12),
}


@pytest.mark.parametrize(("text", "message"), UNIT_TEST.items())
def test_the_five_messages_are_read_and_written_byte_for_byte(
    text: str, message: AnyMessage
) -> None:
    """A Go client reads what we write, and we read what it writes."""
    assert decode(text.encode()) == message
    assert read(text.encode()) == message
    assert encode(message) == text.encode()


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", Fault.UNKNOWN_TYPE),
        ("banana", Fault.UNKNOWN_TYPE),  # V19
        ("heartbeat/1/2/i/c/g/t/0/1", Fault.UNKNOWN_TYPE),
        ("Heartbeat", Fault.PART_COUNT),
        ("Heartbeat/1/2/i/c/g/t/0", Fault.PART_COUNT),
        ("Heartbeat/1/2/i/c/g/t/0/1/2", Fault.PART_COUNT),
        ("Heartbeat/1/2/i/c/g/a/b/0/1", Fault.PART_COUNT),  # B4: a slash in a name
        ("ClaimingPartition/1/2/i/c/g/t/0/9", Fault.PART_COUNT),
        ("ClaimingPartition/4/2/ii/cl/gr/t/3/", Fault.PART_COUNT),
        ("Heartbeat/1/2/i/c/g/t/0/", Fault.NO_NUMBER),
        ("Heartbeat/x/2/i/c/g/t/0/1", Fault.NO_NUMBER),
        ("Heartbeat/1/2/i/c/g/t/1_0/1", Fault.NO_NUMBER),
        ("Heartbeat/1/2/i/c/g/t/ 0/1", Fault.NO_NUMBER),
        ("Heartbeat/1/2/i/c/g/t/0 /1", Fault.NO_NUMBER),
        ("Heartbeat/1/2\n/i/c/g/t/0/1", Fault.NO_NUMBER),
        ("Heartbeat/1/٢/i/c/g/t/0/1", Fault.NO_NUMBER),
        ("Heartbeat/1/²/i/c/g/t/0/1", Fault.NO_NUMBER),
        ("Heartbeat/1/2/i/c/g/t/0/1.5", Fault.NO_NUMBER),
        ("Heartbeat/1/2/i/c/g/t/0/0x1", Fault.NO_NUMBER),
        ("Heartbeat/1/2/i/c/g/t/0/+-1", Fault.NO_NUMBER),
        ("Heartbeat/1/2/i/c/g/t/0/9223372036854775808", Fault.NO_NUMBER),
        ("Heartbeat/1/2/i/c/g/t/0/-9223372036854775809", Fault.NO_NUMBER),
        ("Heartbeat/1/2/i/c/g/t/0/" + "9" * 1_900, Fault.NO_NUMBER),
        ("ReleaseGroup/1/2/i/c/g/t/0/9", Fault.TARGET),
        ("ReleaseGroup/1/2/i/c/g//1/9", Fault.TARGET),
        ("ReleaseGroup/1/2/i/c/g//0", Fault.PART_COUNT),
    ],
)
def test_what_marshal_cannot_decode_is_rejected(text: str, fault: Fault) -> None:
    """Anybody can write to the topic; every reader must be of the same mind about it."""
    assert decode(text.encode()) == Rejected(fault)
    assert read(text.encode()) == Rejected(fault)


@pytest.mark.parametrize(
    ("written", "number"),
    [
        ("+5", 5),
        ("-5", -5),
        ("-0", 0),
        ("007", 7),
        ("0" * 100 + "7", 7),
        ("9223372036854775807", 2**63 - 1),
        ("-9223372036854775808", -(2**63)),
    ],
)
def test_numbers_are_those_of_go(written: str, number: int) -> None:
    """strconv.ParseInt takes signs and leading zeros, and says them no more."""
    message = read(f"Heartbeat/1/2/i/c/g/t/0/{written}".encode())

    assert isinstance(message, Heartbeat)
    assert message.offset == number
    assert encode(message) == f"Heartbeat/1/2/i/c/g/t/0/{number}".encode()


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        (None, Fault.NO_VALUE),
        (b"Heartbeat/1/2/i/c/\xff/t/0/1", Fault.NOT_UTF8),
        (b"Heartbeat/1/2/i/c/\xed\xa0\x80/t/0/1", Fault.NOT_UTF8),  # a surrogate
        (b"x" * 2_049, Fault.TOO_LARGE),
        (b"x" * 2_048, Fault.UNKNOWN_TYPE),
    ],
)
def test_bytes_that_are_no_text_are_rejected(value: bytes | None, fault: Fault) -> None:
    """2 KiB and one byte; half a character; a tombstone that somebody sent."""
    assert read(value) == decode(value) == Rejected(fault)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("Heartbeat/1/2/i/c/g/t/-1/5", Fault.PARTITION),
        ("Heartbeat/1/2/i/c/g/t/2147483648/5", Fault.PARTITION),
        ("Heartbeat/1/2/i/\x1b[31m/g/t/0/5", Fault.NAME),
        ("Heartbeat/1/2/i/c/g\x00/t/0/5", Fault.NAME),
        ("Heartbeat/1/2/i/c/g/t\x85/0/5", Fault.NAME),
        (f"Heartbeat/1/2/i/c/{'g' * 250}/t/0/5", Fault.NAME),
        (f"Heartbeat/1/2/i/c/{'é' * 125}/t/0/5", Fault.NAME),
    ],
)
def test_b6_what_kills_marshals_readers_is_rejected_beyond_its_decoder(
    text: str, fault: Fault
) -> None:
    """Marshal decodes these, and one of them ends every consumer: its index is -1, or 2·10⁹."""
    assert not isinstance(decode(text.encode()), Rejected)
    assert read(text.encode()) == Rejected(fault)


@pytest.mark.parametrize(
    "text",
    [
        "Heartbeat/1/2/i/c/g/t/2000000000/5",
        f"Heartbeat/1/2/i/c/{'g' * 249}/t/0/5",
        f"Heartbeat/1/2/i/{'é' * 124}/g/t/0/5",
        "Heartbeat/0/0//////0/0".replace("//////", "/////"),
    ],
)
def test_odd_names_that_harm_nobody_are_read(text: str) -> None:
    """Empty names among them: Marshal lets them pass, so a reader that did not would differ."""
    assert read(text.encode()) == decode(text.encode())
    assert not isinstance(read(text.encode()), Rejected)


def test_every_fault_has_a_sentence_that_says_what_is_wrong() -> None:
    """History and `coord claims decode` show it."""
    assert set(claims.SENTENCES) == set(Fault)
    assert Rejected(Fault.NAME).sentence.startswith("A name has more than 249 bytes")
    assert limits.CLAIM_BYTES_MAX == 2_048


@pytest.mark.parametrize(
    ("topic", "partition"), [("test1", 2), ("test2", 1), ("test3", 2), ("unknown", 1)]
)
def test_the_partition_is_marshals(topic: str, partition: int) -> None:
    """Verified vectors of TestPartitionClaims, n = 4."""
    assert partition_of(topic, 4) == partition


@pytest.mark.parametrize(
    ("name", "interval_ms"),
    [
        ("__marshal", 60_000),
        ("__marshal.6s", 6_000),
        ("__marshal.3600s", 3_600_000),
        ("marshal6s", 60_000),
        ("__marshal.06s", 60_000),
        ("__marshal.6S", 60_000),
        ("__marshal.6s.x", 60_000),
        ("__marshal.٦s", 60_000),
    ],
)
def test_the_topics_name_says_the_heartbeat_interval(name: str, interval_ms: int) -> None:
    """A setting that must be equal everywhere will one day differ; a name cannot."""
    assert heartbeat_interval_ms(name) == interval_ms


@pytest.mark.parametrize("name", ["__marshal.5s", "__marshal.0s", "__marshal.3601s"])
def test_an_interval_beyond_the_bounds_is_refused(name: str) -> None:
    """Five seconds are less than a slow broker takes."""
    with pytest.raises(ValueError, match="from 6 to 3600 s are possible"):
        heartbeat_interval_ms(name)


@pytest.mark.parametrize(
    ("version", "instance", "sender"),
    [
        (2, "0123abcd", Sender("0123abcd", BARE)),
        (2, "0123abcd-7", Sender("0123abcd", 7)),
        (2, "0123abcd-0", Sender("0123abcd", 0)),
        (1, "0123abcd-7", None),
        (4, "0123abcd", None),
        (2, "0123ABCD-7", None),
        (2, "0123abc-7", None),
        (2, "0123abcde", None),
        (2, "0123abcd-", None),
        (2, "0123abcd-07", None),
        (2, "0123abcd-+7", None),
        (2, "0123abcd-7\n", None),
        (2, "0123abcd-٧", None),  # noqa: RUF001  Arabic digits
        (2, "0123abcd-99", Sender("0123abcd", 99)),
        (2, "0123abcd-100", None),  # the record's own offset
        (2, "0123abcd-9223372036854775807", None),
        (2, "0123abcd-" + "9" * 40, None),
    ],
)
def test_which_messages_are_ours(version: int, instance: str, sender: Sender | None) -> None:
    """Everything that is not exactly of our form is judged as Marshal's, by every reader."""
    message = Heartbeat(version, 2, instance, "c", "g", "t", 0, 5)

    assert sender_of(message, 100) == sender
    if sender is not None:
        assert instance_of(*sender) == instance


def test_marshals_own_handlers_agree() -> None:
    """Steps of the Go code: decoding, encoding, owners, positions. `make fuzz` draws more."""
    found = list(tool.compare("slice", VECTORS.read_text().splitlines()))

    assert len(found) > 1_000
    assert [each for each in found if each is not None] == []


def test_the_comparison_with_marshal_sees(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A tool that finds nothing may be blind: one wrong owner, one wrong text, one wrong pause."""
    log = [
        [1_500_000_001, "Heartbeat/1/1500000001/i0/c1/g/t/1/5", None],
        [1_500_000_002, "banana", {"encoded": "banana"}],
        [
            1_500_000_002,
            "Heartbeat/1/1500000002/i0/c1/g/t/1/6",
            {"claimed": True, "client": "c2", "instance": "i0", "offset": 6, "encoded": ""},
        ],
        [
            1_500_000_002,
            "ReleaseGroup/1/1500000002/i0/c1/g//0/1500000009",
            {"paused": "g", "until": 1, "encoded": ""},
        ],
    ]
    path = tmp_path / "wrong.jsonl"
    path.write_text(json.dumps(log))

    assert tool.main([str(path)]) == 1
    assert json.loads(capsys.readouterr().out)["different"] == 4
    path.write_text("")
    assert tool.main([str(path)]) == 1, "no step is no agreement"


def test_what_is_remembered_of_messages_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A flood of ever-new names, which anybody may write, must not fill a client's memory."""
    monkeypatch.setattr(claims, "_BODIES", {})
    monkeypatch.setattr(claims, "_BODIES_MAX", 3)
    monkeypatch.setattr(claims, "_SENDERS", {})
    monkeypatch.setattr(claims, "_SENDERS_MAX", 3)
    for number in range(10):
        value = f"Heartbeat/2/1/{number:08x}-1/client/group/topic/0/7".encode()
        message = claims.read(value)
        assert message == claims.read(value) == claims.read_any(value)
        assert isinstance(message, claims.Heartbeat)
        assert claims.sender_of(message, 2) == (f"{number:08x}", 1, "")
    assert 0 < len(claims._BODIES) <= 3
    assert 0 < len(claims._SENDERS) <= 3
