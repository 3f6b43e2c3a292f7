"""The table of rights, and what names make of it."""

import pytest

from coordlib.errors import SetupError
from coordlib.kafka.roles import TABLE, Kind, Operation, Right, Role, rights
from coordlib.records.own_topics import OWN


@pytest.mark.parametrize("role", Role)
def test_every_role_has_rows_and_each_has_a_purpose(role: Role) -> None:
    """An operator of brokers asks why; a row that nobody can explain is not granted."""
    assert TABLE[role]
    assert all(row.purpose for row in TABLE[role])
    assert len({(row.kind, row.name, row.operation) for row in TABLE[role]}) == len(TABLE[role])


def test_a_member_writes_requests_and_reads_what_is_named() -> None:
    assert rights(Role.MEMBER, "coord", ["orders", "clicks-*"]) == (
        Right(Kind.TOPIC, "coord.requests", Operation.WRITE),
        Right(Kind.TOPIC, "coord.responses", Operation.READ),
        Right(Kind.TOPIC, "coord.progress", Operation.READ),
        Right(Kind.TOPIC, "orders", Operation.READ),
        Right(Kind.TOPIC, "clicks-", Operation.READ, is_prefix=True),
        Right(Kind.GROUP, "coordlib-", Operation.DESCRIBE, is_prefix=True),
    )


def test_only_the_job_writes_what_others_believe() -> None:
    """Whoever may write answers, states or progress could forge all of them."""
    writers = {
        (role, right.name)
        for role in Role
        for right in rights(role, "p")
        if right.operation is Operation.WRITE and right.kind is Kind.TOPIC
    }

    assert writers == {
        (Role.JOB, "p."),
        (Role.MEMBER, "p.requests"),
        (Role.OPERATOR, "p.requests"),
        (Role.PUBLISHER, "p.offsets"),
    }


def test_rows_name_the_coordinators_own_topics() -> None:
    """A topic that is misspelt in the table would be refused when it is needed."""
    named = {
        row.name.removeprefix("{prefix}.")
        for rows in TABLE.values()
        for row in rows
        if row.kind is Kind.TOPIC and row.name.startswith("{prefix}.") and not row.is_prefix
    }

    assert named <= set(OWN)


def test_the_job_mirrors_only_what_is_named() -> None:
    without = rights(Role.JOB, "coord")
    mirroring = rights(Role.JOB, "coord", ["orders"], ["billing"])

    assert set(mirroring) - set(without) == {
        Right(Kind.GROUP, "billing", Operation.READ),
        Right(Kind.GROUP, "billing", Operation.DELETE),
        Right(Kind.TOPIC, "orders", Operation.READ),
    }


def test_rights_are_said_in_words() -> None:
    assert [str(right) for right in rights(Role.PUBLISHER, "coord")] == [
        "Write on the topic coord.offsets",
        "Read on the topic coord.progress",
    ]
    assert str(Right(Kind.TOPIC, "c.", Operation.READ, True)) == "Read on topics that begin with c."
    assert str(Right(Kind.CLUSTER, "kafka-cluster", Operation.ALTER)) == "Alter on the cluster"


@pytest.mark.parametrize(
    ("role", "topics", "groups", "what"),
    [
        (Role.MEMBER, ["a b"], [], "names no topics"),
        (Role.MEMBER, [""], [], "names no topics"),
        (Role.MEMBER, ["a*b"], [], "names no topics"),
        (Role.MEMBER, ["a**"], [], "names no topics"),
        (Role.MEMBER, ["a"], ["g"], "no right to what --groups"),
        (Role.ARCHIVE, ["a"], [], "no right to what --topics"),
        (Role.JOB, ["a"], [], "mirrored"),
        (Role.JOB, [], ["g"], "mirrored"),
        (Role.JOB, ["a"], [""], "names no groups"),
        (Role.JOB, ["a"], ["g\n"], "names no groups"),
    ],
)
def test_names_that_cannot_be_meant_are_refused(
    role: Role, topics: list[str], groups: list[str], what: str
) -> None:
    """A right that is granted by mistake is not noticed for years."""
    with pytest.raises(SetupError, match=what):
        rights(role, "coord", topics, groups)
