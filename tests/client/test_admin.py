"""An operator's question over the real core."""

import threading
from collections.abc import Iterator

import pytest

from coordlib.client.admin import Admin, _Question
from coordlib.coordinators.classic import machine
from coordlib.errors import CannotReach, ErrorCode, GroupError
from coordlib.records import requests as rq
from coordlib.testing.fake_log import FakeLog


@pytest.fixture
def log() -> Iterator[FakeLog]:
    """A log whose coordinator judges in the background."""
    log = FakeLog({"t": 1})
    is_over = threading.Event()

    def judge() -> None:
        while not is_over.wait(0.01):
            log.pump()

    thread = threading.Thread(target=judge)
    thread.start()
    yield log
    is_over.set()
    thread.join()


def test_releasing_a_group_that_does_not_exist(log: FakeLog) -> None:
    admin = Admin(transport=log.transport())

    with pytest.raises(GroupError) as refused:
        admin.release_quarantine("nobody")

    assert refused.value.code is ErrorCode.GROUP_ID_NOT_FOUND


def test_no_answer_while_the_job_is_down(log: FakeLog) -> None:
    log.job_is_up = False

    with pytest.raises(CannotReach) as unanswered:
        Admin(transport=log.transport()).release_quarantine("g", timeout_s=0.2)

    assert "coord status" in unanswered.value.mend


def test_a_quarantined_group_is_released(log: FakeLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """A defect met one request; after the fix was deployed the group goes on."""
    admin = Admin(transport=log.transport())
    row = rq.CommittedOffset(topic="t", partition=0, offset=1)

    def commit() -> str:
        asked = _Question(admin._identity("g"))
        admin._ask(asked, rq.OffsetCommit(**asked.envelope(), offsets=(row,)), 10)
        return "stored"

    commit()
    with monkeypatch.context() as broken:
        broken.setitem(machine.HANDLERS, rq.OffsetCommit, lambda *_, **__: 1 / 0)
        with pytest.raises(GroupError) as unavailable:
            commit()
    assert unavailable.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    with pytest.raises(GroupError):
        commit()

    admin.release_quarantine("g")

    assert commit() == "stored"
