"""Rights as Kafka's ACLs, and the principals that they may be for."""

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from coordlib.errors import SetupError
from coordlib.kafka.acls import binding, grant, require_principal
from coordlib.kafka.roles import TABLE, Kind, Operation, Right, Role, rights


def test_a_right_is_an_acl_that_allows_it_from_any_host() -> None:
    made = binding(Right(Kind.TOPIC, "coord.", Operation.DESCRIBE_CONFIGS, True), "User:job")

    assert (made.restype, made.name) == (ResourceType.TOPIC, "coord.")
    assert made.resource_pattern_type is ResourcePatternType.PREFIXED
    assert (made.principal, made.host) == ("User:job", "*")
    assert made.operation is AclOperation.DESCRIBE_CONFIGS
    assert made.permission_type is AclPermissionType.ALLOW


@pytest.mark.parametrize("role", Role)
def test_every_row_can_be_granted(role: Role) -> None:
    """Kafka's client knows all kinds and operations of the table."""
    names = {row.name for row in TABLE[role]}
    topics = ["t"] if "{topic}" in names else []
    groups = ["g"] if "{group}" in names else []
    claims = "__marshal" if "{claims}" in names else None
    wanted = rights(role, "coord", topics, groups, claims)

    assert len({str(binding(right, "User:a")) for right in wanted}) == len(wanted)


@pytest.mark.parametrize(
    "principal", ["", "alice", "User:", ":alice", "User: ", "User:*", "User:a\nb", "Us er:a"]
)
def test_what_is_no_principal_gets_no_right(principal: str) -> None:
    """User:* would let everybody in, and a missing type nobody."""
    with pytest.raises(SetupError):
        grant({}, principal, [])


@pytest.mark.parametrize("principal", ["User:alice", "User:CN=a,O=b c", "Group:ops", "User:a:b"])
def test_principals_of_passwords_and_certificates_are_taken(principal: str) -> None:
    require_principal(principal)
