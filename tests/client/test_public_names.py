"""The names that programs import from `coordlib.client`."""

from coordlib import client
from coordlib.client import ClassicMember, GroupMember
from coordlib.testing.fake_log import FakeLog


def test_a_program_that_uses_the_former_name_runs() -> None:
    """It was written when there was one kind of member; nothing is printed at it for that."""

    class Own(GroupMember):
        pass

    log = FakeLog({"t": 1})
    with Own("g", transport=log.transport(), client="a") as member:
        member.subscribe(["t"])
        log.pump()
        member.poll()

        assert isinstance(member, ClassicMember)
        assert [each.topic for each in member.assignment] == ["t"]


def test_the_former_name_is_exported_and_documented() -> None:
    """A reader of old code must find what the name means."""
    assert GroupMember is ClassicMember
    assert {"ClassicMember", "GroupMember"} <= set(client.__all__)
    assert "`GroupMember` is the former name of `ClassicMember`" in (client.__doc__ or "")
