"""Programs with many members over one transport: what each of them is woken for."""

from collections.abc import Sequence
from typing import Any

from coordlib.client import AssignedMember, ClassicMember
from coordlib.client.groups.member import Member
from coordlib.client.kit import events as sg
from coordlib.client.kit.requests import Identity, concerns
from coordlib.core.wire import api
from coordlib.testing.fake_log import FakeLog


def picture(member: str, group: str = "g") -> api.AssignmentChanged:
    return api.AssignmentChanged(
        group=group, cause="r0-1", member=member, generation=2, fence=1, partitions=(), release=()
    )


def test_a_picture_concerns_the_member_that_it_names() -> None:
    a = Identity("g", "a", "aa", 0, 0, "incarn-0")

    assert concerns(a, picture(a.member_at(17)))
    assert not concerns(a, picture(a.member_at(17), group="other"))
    assert not concerns(a, picture("b-incarn-0-0-17"))
    assert not concerns(a, picture("ab-incarn-0-0-17"))


def test_a_member_hears_of_its_share_under_whatever_id_it_was_given() -> None:
    """Its client id is all of its member id that it knows before it is told."""
    a = Identity("g", "a", "aa", 0, 0, "incarn-0")

    assert concerns(a, picture("a-other-in-3-99"))


def test_what_all_must_hear_of_is_for_all() -> None:
    for client in ("a", "b"):
        each = Identity("g", client, client, 0, 0, "incarn-0")
        assert concerns(each, api.Progress(shard=0, offset=3, time_ms=1))
        assert concerns(each, api.RebalanceInProgress(group="g", cause="r0-1", generation=1))


def let_poll(log: FakeLog, members: Sequence[Member[Any]], for_ms: int) -> None:
    """Their programs poll, and time goes on."""

    def poll() -> None:
        for each in members:
            each.poll()

    log.advance(for_ms, poll, step_ms=100)


class Counted(AssignedMember):
    """Counts the pictures that it is fed."""

    pictures = 0

    def feed(self, event: sg.Input) -> None:
        if isinstance(event, sg.Received) and isinstance(event.message, api.AssignmentChanged):
            self.pictures += 1
        super().feed(event)


def test_hundreds_of_members_share_a_transport_and_their_group() -> None:
    """When a group fills, nearly everybody is told something else at nearly every join: if each
    were to look at what all others are told, the work would grow with the cube of the members."""
    log = FakeLog({"t": 400})
    log.tell_topics()
    transport = log.transport()
    members = [Counted("g", transport=transport, client=f"c-{number}") for number in range(100)]
    for some in (members[:50], members[50:]):
        for member in some:
            member.subscribe(["t"])
        let_poll(log, members, 6_000)

    assert [len(each.assignment) for each in members] == [4] * 100
    told = [each for each in log.responses if b'"AssignmentChanged"' in (each.value or b"")]
    assert len(told) > 100
    assert sum(each.pictures for each in members) == len(told)


def test_members_of_several_groups_and_kinds_share_a_transport() -> None:
    log = FakeLog({"t": 4})
    log.tell_topics()
    transport = log.transport()
    divided = [AssignedMember("g", transport=transport, client=f"a{n}") for n in range(2)]
    dividing = [ClassicMember("h", transport=transport, client=f"a{n}") for n in range(2)]
    members = [*divided, *dividing]
    for member in members:
        member.subscribe(["t"])
    let_poll(log, members, 10_000)

    assert [len(each.assignment) for each in members] == [2, 2, 2, 2]
    members[0].close(timeout_s=0)
    members[2].close(timeout_s=0)
    let_poll(log, (members[1], members[3]), 10_000)
    assert [len(each.assignment) for each in members] == [0, 4, 0, 4]
