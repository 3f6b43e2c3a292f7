"""`coord acl print`: a role's rights, without a broker; what cannot be meant is refused."""

import json

import pytest

from coordlib.cli.kit.where import Where
from coordlib.cli.main.main import main
from coordlib.exit_codes import OK, UNREACHABLE, USAGE
from coordlib.kafka.roles import Right, Role, rights

NOBODY = ("--bootstrap-servers", "127.0.0.1:1")


def test_the_rights_of_a_role_are_printed_as_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--role", "member", "--principal", "User:alice", "--topics", "orders,clicks-*")
    assert main(["acl", "print", *words, *NOBODY]) == OK

    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["ROLE", "PRINCIPAL", "OPERATION", "RESOURCE", "PATTERN", "NAME"]
    assert ["member", "User:alice", "Read", "topic", "prefixed", "clicks-"] in [
        line.split() for line in lines
    ]
    assert len(lines) == 1 + len(rights(Role.MEMBER, "coord", ["orders", "clicks-*"]))


def test_programs_get_all_roles_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["acl", "print", "--prefix", "p", "--format", "json", *NOBODY]) == OK

    told = json.loads(capsys.readouterr().out)["rights"]
    assert {each["role"] for each in told} == set(Role)
    assert len(told) == sum(len(rights(role, "p")) for role in Role)
    assert told[0]["principal"] is None


def test_rows_that_need_names_are_mentioned(capsys: pytest.CaptureFixture[str]) -> None:
    """Who grants what was printed would wonder why members read nothing."""
    assert main(["acl", "print", "--role", "member", *NOBODY]) == OK

    assert "member: Read on each topic that --topics names" in capsys.readouterr().err


def granted(monkeypatch: pytest.MonkeyPatch) -> list[Right]:
    """What is granted, by brokers that are not there."""
    found: list[Right] = []
    monkeypatch.setattr(Where, "reach", lambda *_: {})
    monkeypatch.setattr("coordlib.kafka.acls.grant", lambda _, __, wanted: found.extend(wanted))
    return found


def test_a_member_with_transactions_is_granted_their_rows(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = granted(monkeypatch)
    words = ("--principal", "User:a", "--topics", "t", "--transactional-ids", "x,y-*")
    assert main(["acl", "apply", "--role", "member", *words, *NOBODY]) == OK

    assert found == list(rights(Role.MEMBER, "coord", ["t"], transactional_ids=["x", "y-*"]))
    told = capsys.readouterr().err
    lacking = "Write on each topic and DescribeConfigs on each topic that --outputs names"
    assert f"Not granted: member: {lacking}" in told
    assert "--transactional-ids" not in told


@pytest.mark.parametrize("format_", ["text", "json"])
def test_rows_that_were_not_granted_are_mentioned(
    format_: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An operator of the coordinator was granted its rights, and saw no lag."""
    found = granted(monkeypatch)
    words = ("--role", "operator", "--principal", "User:a", "--claims", "__marshal")
    assert main(["acl", "apply", *words, "--format", format_, *NOBODY]) == OK

    assert found == list(rights(Role.OPERATOR, "coord", claims="__marshal"))
    told = capsys.readouterr().err
    assert "Not granted: operator: Describe on each topic that --topics names" in told
    assert "Not granted: operator: Describe on each group that --groups names" in told
    assert "--claims" not in told


def test_an_archive_is_told_of_rows_for_claims(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    granted(monkeypatch)
    assert main(["acl", "apply", "--role", "archive", "--principal", "User:a", *NOBODY]) == OK

    assert "Not granted: archive: all rows for claims" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        ("print", "--role", "king"),
        ("print", "--role", "member", "--topics", "a b"),
        ("print", "--role", "archive", "--topics", "orders"),
        ("print", "--role", "job", "--groups", "billing"),
        ("print", "--principal", "User:*"),
        ("apply", "--role", "member", "--principal", "User:a"),
        ("apply", "--role", "archive", "--principal", "alice"),
        ("apply", "--role", "claims", "--principal", "User:a"),
        ("apply", "--role", "claimant", "--principal", "User:a", "--claims", "m"),
        ("apply", "--role", "claimant", "--principal", "User:a", "--topics", "t", "--groups", "g"),
        ("apply", "--role", "member", "--principal", "User:a", "--topics", "t", "--claims", "m"),
        ("apply", "--role", "archive", "--principal", "User:a", "--outputs", "o"),
        ("apply", "--role", "archive"),
        ("apply", "--principal", "User:a"),
    ],
)
def test_what_cannot_be_meant_is_wrong_usage(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    """It is found before a broker is asked: nothing is granted by half."""
    assert main(["acl", *words, *NOBODY]) == USAGE
    assert len(capsys.readouterr().err.splitlines()) == 3


def test_nobody_to_ask_is_told() -> None:
    words = ("--role", "archive", "--principal", "User:a")
    assert main(["acl", "apply", *words, *NOBODY]) == UNREACHABLE
