"""What a transport sends to jobs of different ages: fields that came later wait for the answer."""

from collections.abc import Mapping
from typing import Any

import pytest

from coordlib.client import ClassicMember, TopicPartition
from coordlib.client.assigned import AssignedMember
from coordlib.client.machine import signals as sg
from coordlib.client.machine.later_fields import as_read, has_later_fields
from coordlib.client.machine.wording import Identity
from coordlib.client.shell.job_reads import WAIT_MS, JobReads
from coordlib.coordinators.registry import REGISTRY
from coordlib.records import requests as rq
from coordlib.records import responses as rs
from coordlib.records.api_versions import LATER_FIELDS
from coordlib.testing.fake_log import FakeLog
from tests.tools.assigned_groups import subscribe
from tests.tools.driving import commit, heartbeat, join

ALL = REGISTRY.reader.fields
TIMED = rq.CommittedOffset("t", 0, 5, timestamp_ms=7)
RELEASE = rq.Release(
    v=1, id="r", client="a", group="g", generation=1, member="m", cause=1, offsets=(TIMED,)
)
LATER = [
    join("a", host="here"),
    subscribe("a", host="here"),
    commit("a", offsets=(TIMED, rq.CommittedOffset("t", 1, 6))),
    RELEASE,
]


@pytest.mark.parametrize("request_", LATER, ids=lambda each: type(each).__name__)
def test_a_job_that_names_no_field_gets_none(request_: rq.Request) -> None:
    """INV-84: an older job refuses the whole request for a field that it does not know."""
    assert has_later_fields(request_)
    older = as_read(request_, {})

    assert not has_later_fields(older)
    assert as_read(request_, ALL) == request_
    assert as_read(request_, {"Heartbeat": ("space",)}) == older


def test_every_later_field_is_tried() -> None:
    """A field of tomorrow comes up here, too."""
    assert {type(each).__name__ for each in LATER} == set(LATER_FIELDS)


class Scene:
    """The gate of a transport, with what it wrote."""

    def __init__(self) -> None:
        self.now_ms = 10_000
        self.written: list[rq.Request] = []
        identity = Identity("", "c", "cafe", 0, 1, "incarn-0")
        self.gate = JobReads(identity, self._ask, lambda: self.now_ms)

    def _ask(self, gate: JobReads, question: rq.Request) -> None:
        assert gate is self.gate
        self.written.append(question)

    def send(self, *requests: rq.Request) -> None:
        for each in requests:
            self.gate.pass_on(self.written.append, each)

    def answer(self, types: Mapping[str, Any], number: int = 1) -> None:
        told = {"id": f"cafe-{number}", "client": "c", "group": "", "cause": "r0-0"}
        answer = rs.ApiVersionsResponse(**told, types=dict(types), limits={})
        self.gate.feed(sg.Received(self.now_ms, answer))


def test_requests_wait_for_the_answer_in_their_order() -> None:
    """INV-84: a heartbeat that overtook its JoinGroup would be a stranger's."""
    scene = Scene()
    scene.send(LATER[0], heartbeat("a", 1, "m"))
    (question,) = scene.written
    assert isinstance(question, rq.ApiVersions)
    assert (question.client, question.reply, question.group) == ("c", 1, "")

    scene.answer(ALL)
    assert scene.written[1:] == [LATER[0], heartbeat("a", 1, "m")]
    scene.send(LATER[2])
    assert scene.written[-1] == LATER[2]
    assert [type(each) for each in scene.written].count(rq.ApiVersions) == 1


def test_a_request_without_such_fields_asks_nothing() -> None:
    """A tool that deletes a group need not know."""
    scene = Scene()
    scene.send(heartbeat("a", 1, "m"))

    assert scene.written == [heartbeat("a", 1, "m")]


def test_a_job_that_is_down_holds_nobody_up_for_long() -> None:
    """INV-84: no answer means no new fields, and a member must get on all the same."""
    scene = Scene()
    scene.send(LATER[0])
    due_ms = scene.gate.wake_ms()
    assert due_ms == 10_000 + WAIT_MS
    scene.gate.feed(sg.Elapsed(due_ms))

    assert scene.written[1:] == [join("a")]
    scene.answer(ALL)  # late: from now on
    scene.send(LATER[0])
    assert scene.written[-1] == LATER[0]


def test_an_older_job_refuses_the_question_and_reads_no_new_field() -> None:
    """INV-84"""
    scene = Scene()
    scene.send(LATER[0])
    refused = rs.Rejected(
        id="cafe-1", client="c", group="", cause="r0-0", error="UNSUPPORTED_VERSION", message="No."
    )
    scene.gate.feed(sg.Received(10_100, refused))

    assert scene.written[1:] == [join("a")]


@pytest.mark.parametrize("types", [{}, {"JoinGroup": ["host"]}])
def test_a_job_that_starts_anew_is_asked_anew_and_nobody_waits(types: dict[str, Any]) -> None:
    """INV-84: it may have been set back to older code; a member at work must not stand still."""
    scene = Scene()
    scene.send(LATER[0])
    scene.answer(ALL)
    scene.gate.feed(sg.Received(20_000, rs.CoordinatorLoading()))
    scene.send(LATER[0])

    question, second = scene.written[-2:]
    assert isinstance(question, rq.ApiVersions)
    assert second == join("a")
    scene.answer(types, number=2)
    scene.send(LATER[0])
    assert scene.written[-1] == (LATER[0] if types else join("a"))


@pytest.mark.parametrize("event", ["lost", "failed"])
def test_a_question_that_is_lost_holds_nothing_up(event: str) -> None:
    """The broker refuses it: what waits is written."""
    scene = Scene()
    scene.send(LATER[0])
    if event == "lost":
        scene.gate.feed(sg.NotWritten(10_100, "cafe-1", "no right to write"))
    else:
        scene.gate.fail(RuntimeError("wrong"))

    assert scene.written[1:] == [join("a")]


# ---- whole members ----------------------------------------------------------------------------


def written_by(log: FakeLog, kind: type[Any]) -> list[rq.Request]:
    """What a member writes in a short life, with all that it could say of itself."""
    transport = log.transport()
    transport.host = "rack-1-7"
    member = kind("g", transport=transport, client="a")
    member.subscribe(["t"])
    log.tell_topics()
    for _ in range(5):
        log.pump()
        member.poll()
    assert member.assignment == (TopicPartition("t", 0),)
    done = member.commit_async([TIMED])
    log.pump()
    assert done.result(0).error is None
    member.close(timeout_s=0)
    log.pump()
    return [each for batch in log.batches for each in batch]


@pytest.mark.parametrize("kind", [ClassicMember, AssignedMember])
def test_members_tell_a_job_of_today_all(kind: type[Any]) -> None:
    """Their host with the request by which they enter, and their times with positions."""
    told = [each for each in written_by(FakeLog({"t": 1}), kind) if has_later_fields(each)]

    assert [type(each).__name__ for each in told] == [
        "JoinGroup" if kind is ClassicMember else "Subscribe",
        "OffsetCommit",
    ]


@pytest.mark.parametrize("kind", [ClassicMember, AssignedMember])
def test_members_tell_an_older_job_nothing_that_it_refuses(kind: type[Any]) -> None:
    """INV-84"""
    log = FakeLog({"t": 1})
    log.types = {}

    assert not any(map(has_later_fields, written_by(log, kind)))
