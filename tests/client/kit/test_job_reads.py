"""What a transport sends to jobs of different ages: later fields only where they are read."""

import threading
from typing import Any

import pytest
from msgspec.structs import replace

from coordlib.client import ClassicMember, TopicPartition
from coordlib.client.groups.member import AssignedMember
from coordlib.client.kit.job_reads import LOOK_INTERVAL_MS, JobReads
from coordlib.client.kit.later_fields import as_read
from coordlib.core.registry import REGISTRY
from coordlib.core.wire import api as rq
from coordlib.core.wire.admin import LATER_FEATURES, LATER_FIELDS
from coordlib.core.wire.stored import FEATURES
from coordlib.errors import CannotReach
from coordlib.testing.fake_log import FakeLog
from tests.tools import producers
from tests.tools.assigned_groups import subscribe
from tests.tools.driving import commit, heartbeat, join, pending_commit

NAMED = rq.CommittedOffset("t", 0, 5, topic_id="0" * 22)
TIMED = rq.CommittedOffset("t", 0, 5, timestamp_ms=7)
RELEASE = rq.Release(
    v=1, id="r", client="a", group="g", generation=1, member="m", cause=1, offsets=(TIMED,)
)
LATER = [
    join("a", host="here"),
    subscribe("a", host="here"),
    commit("a", offsets=(TIMED, rq.CommittedOffset("t", 1, 6))),
    RELEASE,
    commit("a", offsets=(NAMED,)),
    replace(RELEASE, offsets=(NAMED,)),
    pending_commit("a", offsets=(NAMED,)),
    producers.offsets(1, 0, offsets=(NAMED,)),
]


def has_later_fields(request: rq.Request) -> bool:
    """Whether it has a field that a job which names none refuses."""
    return as_read(request, ()) is not request


@pytest.mark.parametrize("request_", LATER, ids=lambda each: type(each).__name__)
def test_a_job_that_names_no_field_gets_none(request_: rq.Request) -> None:
    """INV-84: an older job refuses the whole request for a field that it does not know."""
    assert has_later_fields(request_)
    older = as_read(request_, ())

    assert not has_later_fields(older)
    assert as_read(request_, FEATURES) is request_
    assert as_read(request_, ("Heartbeat.host",)) == older


def test_every_later_field_is_tried() -> None:
    """A field of tomorrow comes up here, too."""
    assert {type(each).__name__ for each in LATER} == set(LATER_FIELDS)


class Scene:
    """What a transport sends, to a job that records its features."""

    def __init__(self, *features: str) -> None:
        self.now_ms = 10_000
        self.recorded: frozenset[str] | None = frozenset(features)
        self.looks = 0
        self._looked = threading.Event()
        self.gate = JobReads(self.recorded, self._look, lambda: self.now_ms)

    def _look(self) -> frozenset[str]:
        self.looks += 1
        self._looked.set()
        if self.recorded is None:
            raise CannotReach("No broker answers.")
        return self.recorded

    def look_ends(self) -> None:
        """The look runs in a thread of its own."""
        assert self._looked.wait(60)
        self._looked.clear()
        for thread in threading.enumerate():
            if thread.name == "coord-features":
                thread.join(60)


def test_a_job_that_names_all_gets_all_and_nobody_waits() -> None:
    """A join must not wait a batch for a name that only people read."""
    scene = Scene(*FEATURES)

    assert [scene.gate.as_read(each) for each in LATER] == LATER
    assert scene.looks == 0


def test_an_older_job_gets_the_request_without_them_at_once() -> None:
    """INV-84"""
    scene = Scene()

    assert scene.gate.as_read(LATER[0]) == join("a")
    assert scene.looks == 0


def test_a_job_that_is_newer_by_now_is_noticed_after_a_while() -> None:
    """Consumers started first, or the job was upgraded under them."""
    scene = Scene()
    scene.recorded = frozenset(FEATURES)
    scene.now_ms += LOOK_INTERVAL_MS - 1
    assert scene.gate.as_read(LATER[0]) == join("a")
    assert scene.looks == 0
    scene.now_ms += 1
    scene.gate.as_read(LATER[0])
    scene.look_ends()

    assert scene.gate.as_read(LATER[0]) == LATER[0]


def test_brokers_that_are_away_change_nothing() -> None:
    """INV-84: what was known remains, and the next look comes after the interval."""
    scene = Scene("JoinGroup.host")
    scene.recorded = None
    scene.now_ms += LOOK_INTERVAL_MS
    assert scene.gate.as_read(LATER[1]) == subscribe("a")
    scene.look_ends()
    scene.gate.as_read(LATER[1])

    assert scene.gate.as_read(LATER[0]) == LATER[0]
    assert scene.looks == 1


def test_a_request_without_such_fields_is_passed_on_as_it_is() -> None:
    """A heartbeat costs no copy."""
    request = heartbeat("a", 1, "m")

    assert Scene().gate.as_read(request) is request


def test_what_a_job_records_is_what_it_reads() -> None:
    """A field that is recorded and not read would be refused for ever."""
    for name in LATER_FEATURES:
        tag, _, field = name.partition(".")
        assert field in REGISTRY.reader.fields[tag]


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
    log.features = frozenset()

    assert not any(map(has_later_fields, written_by(log, kind)))
