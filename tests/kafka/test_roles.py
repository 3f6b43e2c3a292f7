"""The table of rights, and what names make of it."""

import pytest

from coordlib.core.wire.topics import CLAIMS_OWN, OWN
from coordlib.errors import SetupError
from coordlib.kafka.roles import TABLE, Kind, Operation, Right, Role, options_of, rights


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


def test_a_member_with_transactions_writes_what_is_named() -> None:
    """Whoever only reads is granted none of it."""
    without = rights(Role.MEMBER, "coord", ["orders"])
    copying = rights(
        Role.MEMBER, "coord", ["orders"], transactional_ids=["copier-*"], outputs=["bills"]
    )

    assert set(copying) - set(without) == {
        Right(Kind.TRANSACTIONAL_ID, "copier-", Operation.WRITE, is_prefix=True),
        Right(Kind.TOPIC, "bills", Operation.WRITE),
        Right(Kind.TOPIC, "bills", Operation.DESCRIBE_CONFIGS),
    }
    assert set(without) < set(copying)


@pytest.mark.parametrize(
    ("role", "ids", "outputs", "what"),
    [
        (Role.MEMBER, [""], [], "names no transactional ids"),
        (Role.MEMBER, ["a\n"], [], "names no transactional ids"),
        (Role.MEMBER, ["a"], ["a b"], "names no topics"),
        (Role.AGENT, ["a"], [], "no right to what --transactional-ids"),
        (Role.CLAIMANT, [], ["a"], "no right to what --outputs"),
    ],
)
def test_transactions_that_cannot_be_meant_are_refused(
    role: Role, ids: list[str], outputs: list[str], what: str
) -> None:
    with pytest.raises(SetupError, match=what):
        rights(role, "coord", transactional_ids=ids, outputs=outputs)


_OWN_IDS = (
    *("*", "c*", "coord-coordinator", "coord-coordinator*", "coord-coordinator-0-3"),
    *("coord.claims-coordinator", "coord.*"),
)
_OWN_TOPICS = ("*", "c*", "coord*", "coord.progress", "coord.re*", "coord.claims.*", "coord.groups")


@pytest.mark.parametrize("role", [Role.MEMBER, Role.OPERATOR])
@pytest.mark.parametrize(
    ("ids", "outputs"),
    [*(((name,), ()) for name in _OWN_IDS), *(((), (name,)) for name in _OWN_TOPICS)],
)
def test_what_is_written_covers_nothing_of_the_coordinators_own(
    role: Role, ids: tuple[str, ...], outputs: tuple[str, ...]
) -> None:
    """`*` was offered for all names: one producer of the job's transactional id ends the job, and
    no supervisor starts it again; whoever writes `coord.progress` says where it goes on."""
    with pytest.raises(SetupError, match="covers the coordinator's own"):
        rights(role, "coord", transactional_ids=ids, outputs=outputs)


@pytest.mark.parametrize("role", [Role.CLAIMANT, Role.OPERATOR, Role.CLAIMS, Role.JOB])
def test_a_coordination_topic_is_none_of_the_coordinators_own(role: Role) -> None:
    """A claimant could have written the job's progress."""
    with pytest.raises(SetupError, match="covers the coordinator's own"):
        rights(role, "coord", claims="coord.progress")


def test_names_beside_the_coordinators_own_are_granted() -> None:
    ids, outputs = ["coord-copier-*", "coordinator"], ["coord.bills", "coordinates*"]

    found = rights(Role.MEMBER, "coord", transactional_ids=ids, outputs=outputs)

    assert {"coord-copier-", "coordinator", "coord.bills", "coordinates"} < {r.name for r in found}


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
        (Role.AGENT, "p.requests"),
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

    assert named <= {*OWN, *(f"claims.{name}" for name in CLAIMS_OWN)}


def test_the_job_mirrors_only_what_is_named() -> None:
    without = rights(Role.JOB, "coord")
    mirroring = rights(Role.JOB, "coord", ["orders"], ["billing"])

    assert set(mirroring) - set(without) == {
        Right(Kind.GROUP, "billing", Operation.READ),
        Right(Kind.GROUP, "billing", Operation.DELETE),
        Right(Kind.TOPIC, "orders", Operation.READ),
    }


def test_claims_are_rows_of_a_coordination_topic() -> None:
    """Whoever follows no claims is granted nothing for them."""
    of_claims = {
        role: set(rights(role, "coord", claims="__marshal")) - set(rights(role, "coord"))
        for role in Role
        if "--claims" in options_of(role)
    }
    written = {
        role
        for role, more in of_claims.items()
        if Right(Kind.TOPIC, "__marshal", Operation.WRITE) in more
    }

    assert of_claims[Role.JOB] == {
        Right(Kind.TOPIC, "__marshal", Operation.READ),
        Right(Kind.TOPIC, "__marshal", Operation.DESCRIBE_CONFIGS),
        Right(Kind.TRANSACTIONAL_ID, "coord.claims-coordinator", Operation.WRITE),
    }
    assert of_claims[Role.ARCHIVE] == {
        Right(Kind.TOPIC, "coord.claims.events", Operation.READ),
        Right(Kind.TOPIC, "coord.claims.lag", Operation.READ),
        Right(Kind.TOPIC, "coord.claims.progress", Operation.READ),
    }
    assert of_claims.keys() == {
        *(Role.JOB, Role.ARCHIVE, Role.READER, Role.OPERATOR, Role.CLAIMS, Role.CLAIMANT)
    }
    assert written == {Role.CLAIMANT, Role.OPERATOR}, "the engine writes nothing to it"
    outputs = Right(Kind.TOPIC, "coord.claims.", Operation.WRITE, is_prefix=True)
    assert [role for role, more in of_claims.items() if outputs in more] == [Role.CLAIMS]


def test_a_claimant_reads_and_writes_what_is_named() -> None:
    assert rights(Role.CLAIMANT, "coord", ["orders"], ["billing"], "__marshal") == (
        Right(Kind.TOPIC, "__marshal", Operation.WRITE),
        Right(Kind.TOPIC, "__marshal", Operation.READ),
        Right(Kind.TOPIC, "__marshal", Operation.DESCRIBE_CONFIGS),
        Right(Kind.TOPIC, "coord.claims.snapshots", Operation.READ),
        Right(Kind.TOPIC, "orders", Operation.READ),
        Right(Kind.GROUP, "billing", Operation.READ),
        Right(Kind.GROUP, "coordlib-", Operation.DESCRIBE, is_prefix=True),
    )


def test_a_job_of_claims_touches_nothing_of_the_groups() -> None:
    """It may be another team's, beside a coordinator that it must not disturb."""
    found = rights(Role.CLAIMS, "coord", claims="__marshal")

    assert {each.name for each in found if each.operation is not Operation.DESCRIBE} == {
        *("coord.claims.", "__marshal", "coord.claims-coordinator")
    }


@pytest.mark.parametrize(
    ("role", "claims", "what"),
    [
        (Role.MEMBER, "__marshal", "no right to what --claims"),
        (Role.CLAIMANT, "a b", "names no coordination topic"),
        (Role.CLAIMANT, "", "names no coordination topic"),
        (Role.CLAIMANT, "*", "names no coordination topic"),
    ],
)
def test_coordination_topics_that_cannot_be_meant_are_refused(
    role: Role, claims: str, what: str
) -> None:
    with pytest.raises(SetupError, match=what):
        rights(role, "coord", claims=claims)


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
