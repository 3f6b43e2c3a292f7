"""`coord acl print` and `apply`: what a role may do at the brokers, and the rights granted."""

from collections.abc import Iterator
from typing import Annotated

from cyclopts import Parameter

from coordlib.cli.output import counted, print_json, print_table, say
from coordlib.cli.where import HERE, Where
from coordlib.errors import SetupError
from coordlib.kafka.roles import TABLE, Right, Role, rights

Names = Annotated[list[str] | None, Parameter(negative="")]
#: As in a secured local stack (`local/secured.py`, which needs Kafka's client).
_ADMIN = "admin"


def print_rights(
    *,
    role: Role | None = None,
    principal: str | None = None,
    topics: Names = None,
    groups: Names = None,
    where: Where = HERE,
) -> int:
    """Print what a role may do, without asking a broker.

    Without a role all roles are printed. These are the rows that `coord acl apply` grants.

    Parameters
    ----------
    role
        Whose rights: a program's task, whatever it logs in as.
    principal
        Who is to have them, as Kafka writes it: User:alice.
    topics
        Data topics of the role, separated by commas; NAMES* for all that begin so, * for all.
    groups
        Groups that the job mirrors to Kafka; written as topics are.
    """
    if principal is not None:
        from coordlib.kafka.acls import require_principal

        require_principal(principal)
    found = [
        (each, right)
        for each in ([role] if role is not None else list(Role))
        for right in rights(each, where.topic_prefix(), _split(topics), _split(groups))
    ]
    rows = [_row(each, principal, right) for each, right in found]
    if where.format == "json":
        keys = [header.lower().replace("-", "_") for header in HEADERS]
        print_json("acl print", rights=[dict(zip(keys, row, strict=True)) for row in rows])
        return 0
    print_table(HEADERS, rows)
    for each in dict.fromkeys(each for each, _ in found):
        for sentence in _missing_names(each, topics, groups):
            say(sentence)
    return 0


def apply(
    *,
    role: Role,
    principal: str,
    topics: Names = None,
    groups: Names = None,
    where: Where = HERE,
) -> int:
    """Grant a principal the rights of a role; those that it has already stay as they are.

    It needs somebody who may alter the cluster; in a secured local stack that is its admin.

    Parameters
    ----------
    role
        Whose rights: a program's task, whatever it logs in as.
    principal
        Who is to have them, as Kafka writes it: User:alice.
    topics
        Data topics of the role, separated by commas; NAMES* for all that begin so, * for all.
    groups
        Groups that the job mirrors to Kafka; written as topics are.
    """
    from coordlib.kafka.acls import grant, require_principal

    require_principal(principal)
    wanted = rights(role, where.topic_prefix(), _split(topics), _split(groups))
    if role is Role.MEMBER and not topics:
        mend = "Name them: --topics orders"
        raise SetupError("A member reads data topics, and none is named.", "--topics", mend)
    where.reach(_ADMIN)
    grant(where.client(_ADMIN), principal, wanted)
    if where.format == "json":
        print_json("acl apply", role=str(role), principal=principal, rights=len(wanted))
        return 0
    say(f"{principal} has the {counted(len(wanted), 'right')} of the role {role}")
    return 0


HEADERS = ("ROLE", "PRINCIPAL", "OPERATION", "RESOURCE", "PATTERN", "NAME")


def _row(role: Role, principal: str | None, right: Right) -> tuple[str | None, ...]:
    pattern = "prefixed" if right.is_prefix else "literal"
    return str(role), principal, str(right.operation), str(right.kind), pattern, right.name


def _split(names: list[str] | None) -> list[str]:
    """An option may be repeated, or have several names with commas between them."""
    return [name for each in names or [] for name in each.split(",")]


def _missing_names(role: Role, topics: list[str] | None, groups: list[str] | None) -> Iterator[str]:
    for place, option, given in (("{topic}", "--topics", topics), ("{group}", "--groups", groups)):
        rows = [row for row in TABLE[role] if row.name == place]
        if rows and not given:
            named = " and ".join(f"{row.operation} on each {row.kind}" for row in rows)
            yield f"{role}: {named} that {option} names"
