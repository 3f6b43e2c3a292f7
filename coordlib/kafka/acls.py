"""Rights at the brokers: a role's rows as Kafka's ACLs, told and granted."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its stubs do not re-export
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from coordlib.errors import CoordError, SetupError
from coordlib.kafka.clients import denial, open_admin, reason_of, unreachable
from coordlib.kafka.roles import Kind, Operation, Right

TIMEOUT_S: Final = 15.0
_PRINCIPAL: Final = re.compile(r"[A-Za-z]+:\S(?:.{0,252}\S)?")
_TYPES: Final = {
    Kind.TOPIC: ResourceType.TOPIC,
    Kind.GROUP: ResourceType.GROUP,
    Kind.TRANSACTIONAL_ID: ResourceType.TRANSACTIONAL_ID,
}
_OPERATIONS: Final = {
    each: AclOperation[re.sub(r"(?<!^)(?=[A-Z])", "_", each.value).upper()] for each in Operation
}
_AUTHORIZER: Final = "The brokers need an authorizer: authorizer.class.name in their configuration."
_GRANTING: Final = Right(Kind.CLUSTER, "kafka-cluster", Operation.ALTER)


def require_principal(principal: str) -> None:
    """Check that Kafka may have such a principal.

    Raises:
        SetupError: it has no type, as in User:alice; or it is everybody.
    """
    if not _PRINCIPAL.fullmatch(principal) or not principal.isprintable():
        raise SetupError(
            "This is no principal.", f"--principal {principal[:200]!r}", "For example: User:alice"
        )
    if principal.partition(":")[2] == "*":
        raise SetupError(
            "These rights are for one principal, not for everybody.",
            f"--principal {principal}",
            "Name the one that the program logs in as.",
        )


def binding(right: Right, principal: str) -> AclBinding:
    """A right as Kafka's ACL, from any host."""
    return AclBinding(*_resource(right), principal, "*", _operation(right), AclPermissionType.ALLOW)


def grant(options: Mapping[str, Any], principal: str, rights: Sequence[Right]) -> None:
    """Let a principal have these rights; those that it has already stay as they are.

    Args:
        options: librdkafka's, of somebody who may alter the cluster.

    Raises:
        NotAllowed: who asks may not.
        CannotReach: no broker answers.
        SetupError: it is no principal, or the brokers have no authorizer.
    """
    require_principal(principal)
    admin = open_admin(options)
    wanted = [binding(right, principal) for right in rights]
    answers = admin.create_acls(wanted, request_timeout=TIMEOUT_S)
    _await(answers.values(), options, "The rights were not granted")


def withdraw(options: Mapping[str, Any], principal: str, rights: Sequence[Right]) -> None:
    """Take these rights from a principal. Raises as `grant`."""
    admin = open_admin(options)
    filters = [
        AclBindingFilter(
            *_resource(right), principal, "*", _operation(right), AclPermissionType.ALLOW
        )
        for right in rights
    ]
    answers = admin.delete_acls(filters, request_timeout=TIMEOUT_S)
    _await(answers.values(), options, "The rights were not withdrawn")


def _resource(right: Right) -> tuple[ResourceType, str, ResourcePatternType]:
    pattern = ResourcePatternType.PREFIXED if right.is_prefix else ResourcePatternType.LITERAL
    return _TYPES[right.kind], right.name, pattern


def _operation(right: Right) -> AclOperation:
    return _OPERATIONS[right.operation]


def _await(
    answers: Iterable[Any], options: Mapping[str, Any], what: str, hint: str = _AUTHORIZER
) -> None:
    for answer in answers:
        try:
            answer.result(TIMEOUT_S)
        except (KafkaException, TimeoutError) as problem:
            raise _failed(problem, options, what, hint) from problem


def _failed(
    problem: KafkaException | TimeoutError, options: Mapping[str, Any], what: str, hint: str
) -> CoordError:
    if denied := denial(problem, _GRANTING, options):
        return denied
    if isinstance(problem, KafkaException) and problem.args[0].code() > 0:
        return SetupError(
            f"{what}: {reason_of(problem)}",
            str(options.get("bootstrap.servers", "")),
            hint,
        )
    return unreachable(options, f"{what}.", problem, "Check --bootstrap-servers and --kafka.")
