"""The hostile benchmark's flood is one that the coordinator reads, and its figures are fair."""

from coordlib.records import codec
from coordlib.records import requests as rq
from coordlib.records import responses as rs
from tests.tools.bench.core import SETTINGS, InputRecord
from tests.tools.bench.hostile import Joins, _ratio, error_of
from tests.tools.core import fold


def test_every_join_of_the_flood_is_of_somebody_new() -> None:
    """Repeats of one join would be recognised, and cost nothing."""
    joins = Joins(shards=1, token="x")
    joins.begin("part")
    read = [codec.decode_request(joins.next(has_many_groups=False).value) for _ in range(3)]

    assert [type(each) for each in read] == [rq.JoinGroup] * 3
    assert {each.group for each in read if isinstance(each, rq.JoinGroup)} == {"hostile-x-part"}
    assert len({(each.client, each.id) for each in read if isinstance(each, rq.JoinGroup)}) == 3


def test_ever_new_groups_are_ever_new_and_go_to_their_shard() -> None:
    """A join in the wrong partition would be rejected before any group is made."""
    joins = Joins(shards=3, token="x")
    joins.begin("part")
    records = [joins.next(has_many_groups=True) for _ in range(40)]
    read = [codec.decode_request(record.value) for record in records]

    assert len({each.group for each in read if isinstance(each, rq.JoinGroup)}) == 40
    assert {record.shard for record in records} == {0, 1, 2}
    assert all(
        each.group.encode() == record.key
        for each, record in zip(read, records, strict=True)
        if isinstance(each, rq.JoinGroup)
    )


def test_the_floods_answers_are_told_from_others_by_their_bytes() -> None:
    """To decode ten thousand a second would delay the probes that are timed."""
    joins = Joins(shards=1, token="x")
    joins.begin("part")
    record = InputRecord("r", 0, 1_000_000, joins.next(has_many_groups=False).value)
    outputs = fold(None, [record], SETTINGS).outputs
    (answer,) = [o.value or b"" for o in outputs if o.topic == "responses" and o.key]
    other = rs.JoinGroupResponse(id="1", client="probe-1", group="g", cause="r0-1")

    assert error_of(answer) == "NONE"
    assert error_of(codec.encode(other)) is None


def test_the_ratio_is_of_medians_and_tails_apart() -> None:
    assert _ratio({"p50": 0.5, "p99": 1.0}, {"p50": 1.0, "p99": None}) == {"p50": 2.0, "p99": None}
