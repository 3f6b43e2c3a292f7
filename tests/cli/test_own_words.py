"""`coord groups describe` shows what clients said of themselves, in columns only where they did."""

import json
from dataclasses import replace
from typing import Any

import pytest

from coordlib.cli.groups import view as group_view
from coordlib.cli.groups.app import _as_json, _print
from coordlib.cli.groups.view import GroupView, PartitionLine, SeenGroup, _lines
from coordlib.cli.kit.listing import AsOf
from coordlib.cli.kit.output import now
from coordlib.core.groups.classic import group as classic
from coordlib.core.groups.offsets.tables import PENDING
from coordlib.core.wire import codec, stored
from coordlib.core.wire import consumer_protocol as cp
from coordlib.kafka.lag import UNKNOWN
from coordlib.kafka.logs import Place

TOLD_MS = 1_795_243_200_000


def view(host: str | None, timestamp_ms: int | None) -> GroupView:
    share = cp.encode_assignment(cp.Assignment(partitions={"t": (0,)}))
    fields: dict[str, Any] = {"session_timeout_ms": 1, "rebalance_timeout_ms": 1, "first_id": "j"}
    fields |= {} if host is None else {"host": host}
    member = classic.Member(
        member="m",
        client="c",
        reply=0,
        protocols=(),
        joined_ms=0,
        assignment=share,
        **fields,
    )
    head = classic.Group(
        group="g", state=classic.State.STABLE, protocol_type=cp.CONSUMER, members={"m": member}
    )
    group = SeenGroup("g", "classic", "Stable", 1, "range", value=head)
    place = Place("t", 0)
    lines = _lines(group, {place: 5}, {place: "m"}, {place: UNKNOWN}, {place: timestamp_ms})
    assert all(isinstance(line, PartitionLine) for line in lines)
    return GroupView(group, 0, tuple(lines), AsOf(1, 2, 0))


def test_host_and_time_have_columns(capsys: pytest.CaptureFixture[str]) -> None:
    """Which machine is it, and how old is what it has done?"""
    _print(view("rack-1-7", TOLD_MS), now())

    table = capsys.readouterr().out
    assert "CLIENT-ID  HOST      COMMITTED-TIMESTAMP" in table
    assert "rack-1-7" in table
    assert "2026-11-21T" in table


@pytest.mark.parametrize(("host", "time_ms"), [("rack-1-7", None), (None, TOLD_MS)])
def test_what_no_client_named_has_no_column(
    host: str | None, time_ms: int | None, capsys: pytest.CaptureFixture[str]
) -> None:
    """The table is wide enough."""
    _print(view(host, time_ms), now())

    table = capsys.readouterr().out
    assert ("HOST" in table, "COMMITTED-TIMESTAMP" in table) == (bool(host), bool(time_ms))


def test_json_always_has_them() -> None:
    """A program that reads it needs no case for a missing key."""
    told = json.loads(json.dumps(_as_json(view("rack-1-7", TOLD_MS))))
    none = _as_json(view(None, None))

    assert told["members"][0]["host"] == told["offsets"][0]["host"] == "rack-1-7"
    assert told["offsets"][0]["committed-timestamp"].startswith("2026-11-21T")
    assert none["members"] == [
        {"consumer-id": "m", "client-id": "c", "instance": None, "host": None}
    ]
    assert none["offsets"][0]["committed-timestamp"] is None  # type: ignore[index]


def waiting(group: str, key: str, record: int) -> tuple[bytes, bytes]:
    row = stored.PendingOffset(
        topic="t", partition=0, offset=7, leader_epoch=-1, metadata="", record=record
    )
    value = stored.PendingValue(
        decided_by="kafka",
        client="c",
        id="p",
        member="m",
        generation=1,
        since_ms=0,
        offsets=(row,),
    )
    return PENDING.key(group, (key, 0)), codec.encode(value)


def test_the_oldest_offset_that_waits_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The topic is shared: with other groups, and with what is no pending offset at all."""
    kept = dict([waiting("g", "r0-9", 9), waiting("g", "r0-10", 10), waiting("h", "r0-1", 1)])
    kept |= {b'["id","x"]': b"{}", b"no JSON": b""}
    monkeypatch.setattr(group_view, "newest_by_key", lambda *_: kept)

    assert group_view._pending({}, "coord", 0, "g") == {Place("t", 0): "r0-9"}


def test_offsets_that_wait_have_a_column(capsys: pytest.CaptureFixture[str]) -> None:
    """Why does this member not read on?"""
    seen = view(None, None)
    line = replace(seen.lines[0], pending="r0-9")
    _print(replace(seen, lines=(line,)), now())

    assert "PENDING" in (table := capsys.readouterr().out)
    assert "r0-9" in table
    _print(seen, now())
    assert "PENDING" not in capsys.readouterr().out
    offsets: Any = _as_json(replace(seen, lines=(line,)))["offsets"]
    assert offsets[0]["pending"] == "r0-9"
