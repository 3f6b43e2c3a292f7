"""An operator's question about what is no consumer group, and may have the name of one."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest

from coordlib.client.admin import Admin
from coordlib.core.engine.protocol import Registry
from coordlib.core.groups.protocol import Groups
from coordlib.core.wire import api
from coordlib.errors import ErrorCode, GroupError, SetupError
from coordlib.testing import fake_log
from coordlib.testing.fake_log import FakeLog, FakeTransport
from tests.client.test_admin import commit_as, log
from tests.core.engine.test_least_kinds import ClubFamily, Count, CounterFamily, Enter, asks

__all__ = ["log"]

#: What operators ask of anything that has a name; each as the admin client offers it.
QUESTIONS: dict[type[api.Request], Callable[..., Any]] = {
    api.DescribeGroup: Admin.describe_group,
    api.DeleteGroup: Admin.delete_group,
    api.FindCoordinator: Admin.find_coordinator,
    api.ReleaseQuarantine: Admin.release_quarantine,
    api.LeaveGroup: lambda *args, **named: Admin.remove_members(*args, ["m"], **named),
}


@pytest.fixture(autouse=True)
def _kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = Registry(Groups, CounterFamily, ClubFamily)
    monkeypatch.setattr(fake_log, "REGISTRY", registry)


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[api.Request]]:
    """All requests that were given to a transport."""
    requests: list[api.Request] = []
    send = FakeTransport.send

    def kept(self: FakeTransport, handler: Any, request: api.Request) -> None:
        requests.append(request)
        send(self, handler, request)

    monkeypatch.setattr(FakeTransport, "send", kept)
    return requests


def make(log: FakeLog, type_: type[api.Request]) -> None:
    """Something with the name of a group, before any client reads: none knows such an answer."""
    log.append(0, asks(type_))
    until = time.monotonic() + 60
    while not any(f'"type":"{type_.__name__}"'.encode() in (o.value or b"") for o in log.responses):
        assert time.monotonic() < until
        time.sleep(0.01)


@pytest.mark.parametrize("type_", QUESTIONS, ids=lambda type_: type_.__name__)
def test_a_space_is_named_where_it_is_not_the_groups(
    log: FakeLog, sent: list[api.Request], type_: type[api.Request]
) -> None:
    """A job that does not know the field refuses it, so who asks for groups leaves it out."""
    admin = Admin(transport=log.transport())
    for named in ({}, {"space": "group"}, {"space": "club"}):
        try:
            QUESTIONS[type_](admin, "g", **named)
        except GroupError as refused:
            assert refused.where == f"{named.get('space', 'group')} g"  # noqa: PT017

    assert [type(each) for each in sent] == [type_] * 3
    spaces = [msgspec.json.decode(msgspec.json.encode(each)).get("space") for each in sent]
    assert spaces == [None, None, "club"]


def test_what_has_a_groups_name_is_described_and_deleted_for_itself(log: FakeLog) -> None:
    make(log, Count)
    admin = Admin(transport=log.transport())
    commit_as(admin, "g", ("t", 0))

    assert admin.describe_group("g").state == "Empty"
    assert admin.describe_group("g", space="counter").kind == "counter"
    assert admin.describe_group("g", space="club").state == "Dead"
    assert admin.find_coordinator("g", space="counter") == 0

    admin.delete_group("g", space="counter")

    assert admin.describe_group("g", space="counter").state == "Dead"
    assert admin.describe_group("g").state == "Empty"
    assert len(admin.committed("g")) == 1


def test_refusals_name_the_space(log: FakeLog) -> None:
    """The hint is about a club; nobody must look for a group of that name."""
    make(log, Enter)
    admin = Admin(transport=log.transport())

    with pytest.raises(GroupError) as in_use:
        admin.delete_group("g", space="club")
    with pytest.raises(GroupError) as sound:
        admin.release_quarantine("g", space="club")
    with pytest.raises(GroupError) as memberless:
        admin.remove_all_members("nobody", space="club")
    with pytest.raises(SetupError) as nobody:
        admin.remove_members("g", space="club")

    assert (in_use.value.code, in_use.value.where) == (ErrorCode.NON_EMPTY_GROUP, "club g")
    assert sound.value.hint == "This club is not quarantined: there is nothing to release."
    assert memberless.value.where == "club nobody"
    assert nobody.value.where == "club g"


def test_a_space_that_the_job_lacks_is_refused(log: FakeLog) -> None:
    with pytest.raises(GroupError) as refused:
        Admin(transport=log.transport()).describe_group("g", space="planet")

    assert refused.value.code is ErrorCode.INVALID_REQUEST
    assert refused.value.hint == "space must be one of club, counter, group."
