"""`coord acl print`: a role's rights, without a broker; what cannot be meant is refused."""

import pytest

from coordlib.cli.kit.where import Where
from coordlib.exit_codes import UNREACHABLE
from coordlib.kafka.roles import Right, Role, rights
from tests.cli.kit import Cli

NOBODY = ("--bootstrap-servers", "127.0.0.1:1")


def test_the_rights_of_a_role_are_printed_as_a_table(cli: Cli) -> None:
    words = ("--role", "member", "--principal", "User:alice", "--topics", "orders,clicks-*")
    lines = cli("acl print", *words, *NOBODY).out.splitlines()
    assert lines[0].split() == ["ROLE", "PRINCIPAL", "OPERATION", "RESOURCE", "PATTERN", "NAME"]
    assert ["member", "User:alice", "Read", "topic", "prefixed", "clicks-"] in [
        line.split() for line in lines
    ]
    assert len(lines) == 1 + len(rights(Role.MEMBER, "coord", ["orders", "clicks-*"]))


def test_programs_get_all_roles_as_json(cli: Cli) -> None:
    told = cli.json("acl print --prefix p", *NOBODY)["rights"]
    assert {each["role"] for each in told} == set(Role)
    assert len(told) == sum(len(rights(role, "p")) for role in Role)
    assert told[0]["principal"] is None


def test_rows_that_need_names_are_mentioned(cli: Cli) -> None:
    """Who grants what was printed would wonder why members read nothing."""
    said = cli("acl print --role member", *NOBODY).err
    assert "member: Read on each topic that --topics names" in said


def granted(monkeypatch: pytest.MonkeyPatch) -> list[Right]:
    """What is granted, by brokers that are not there."""
    found: list[Right] = []
    monkeypatch.setattr(Where, "reach", lambda *_: {})
    monkeypatch.setattr("coordlib.kafka.acls.grant", lambda _, __, wanted: found.extend(wanted))
    return found


def test_a_member_with_transactions_is_granted_their_rows(
    monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    found = granted(monkeypatch)
    words = ("--principal", "User:a", "--topics", "t", "--transactional-ids", "x,y-*")
    said = cli("acl apply --role member", *words, *NOBODY).err

    assert found == list(rights(Role.MEMBER, "coord", ["t"], transactional_ids=["x", "y-*"]))
    lacking = "Write on each topic and DescribeConfigs on each topic that --outputs names"
    assert f"Not granted: member: {lacking}" in said
    assert "--transactional-ids" not in said


@pytest.mark.parametrize("format_", ["text", "json"])
def test_rows_that_were_not_granted_are_mentioned(
    format_: str, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    """An operator of the coordinator was granted its rights, and saw no lag."""
    found = granted(monkeypatch)
    words = ("--role", "operator", "--principal", "User:a", "--claims", "__marshal")
    said = cli("acl apply", *words, "--format", format_, *NOBODY).err

    assert found == list(rights(Role.OPERATOR, "coord", claims="__marshal"))
    assert "Not granted: operator: Describe on each topic that --topics names" in said
    assert "Not granted: operator: Describe on each group that --groups names" in said
    assert "--claims" not in said


def test_an_archive_is_told_of_rows_for_claims(monkeypatch: pytest.MonkeyPatch, cli: Cli) -> None:
    granted(monkeypatch)
    said = cli("acl apply --role archive --principal User:a", *NOBODY).err
    assert "Not granted: archive: all rows for claims" in said


def test_nobody_to_ask_is_told(cli: Cli) -> None:
    cli("acl apply --role archive --principal User:a", *NOBODY, code=UNREACHABLE)
