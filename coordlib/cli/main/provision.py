"""`coord topics` and `coord acl`: the coordinator's own topics, and rights at the brokers."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Final

from cyclopts import Parameter

from coordlib.cli.kit.options import Partitions, Replication
from coordlib.cli.kit.output import counted, print_json, print_line, print_table, say
from coordlib.cli.kit.where import HERE, Where
from coordlib.errors import NotAllowed, SetupError
from coordlib.kafka.roles import COORDINATION, TABLE, Right, Role, options_of, rights

if TYPE_CHECKING:
    from coordlib.kafka.plans import Finding


def create(
    *,
    shards: Partitions | None = None,
    responses: Partitions | None = None,
    replication: Replication = 3,
    claims: str | None = None,
    where: Where = HERE,
) -> int:
    """Create the topics that are missing; existing topics are left as they are.

    Parameters
    ----------
    shards
        Partitions of the requests topic; 2 for a new prefix, then fixed for its life.
    responses
        Partitions of the responses topic, then fixed for its life; for a new prefix eight times the
        shards, at least 32 and at most 256.
    replication
        Replicas of each partition; 1 for a single broker.
    claims
        The coordination topic that the job is to follow: also the job's own topics for it, with as
        many partitions.
    """
    from coordlib.kafka import coordination, topics

    where.reach()
    client, prefix = where.client(), where.topic_prefix()
    created = topics.create(client, prefix, shards, responses, replication)
    if claims:
        created += coordination.create(client, prefix, claims, replication)
    if where.format == "json":
        print_json("topics create", created=created)
        return 0
    for name in created:
        print_line(name)
    say(f"{counted(len(created), 'topic')} created")
    return 0


def check(*, claims: str | None = None, where: Where = HERE) -> int:
    """Check the topics' settings; exit code 3 when the job would not start on them.

    Parameters
    ----------
    claims
        Also a coordination topic of claims, and the job's topics for it; else those that the job
        has followed before.
    """
    from coordlib.kafka import coordination, topics

    where.reach()
    client, prefix = where.client(), where.topic_prefix()
    checked = topics.check(client, prefix)
    of_claims, followed = None, claims
    findings = list(checked.findings)
    try:
        followed = claims or coordination.followed(client, prefix)
        of_claims = coordination.check(client, prefix, followed) if followed else None
        findings += of_claims.findings if of_claims else ()
    except NotAllowed as problem:
        if claims:
            raise
        findings.append(_not_seen(problem, followed))
    rows = [(f.topic, f.what, f.must, f.is_fatal, f.hint) for f in findings]
    is_good = checked.layout is not None and (of_claims is None or of_claims.layout is not None)
    if where.format == "json":
        keys = ("topic", "what", "must", "is_fatal", "hint")
        layout = checked.layout
        print_json(
            "topics check",
            topic_prefix=prefix,
            ok=is_good,
            shards=layout.shards if layout else None,
            responses=layout.responses if layout else None,
            claims=followed,
            coordination_partitions=of_claims.layout.shards
            if of_claims and of_claims.layout
            else None,
            findings=[dict(zip(keys, row, strict=True)) for row in rows],
        )
    elif rows:
        headers = ("TOPIC", "IS", "MUST-BE", "LEVEL", "HINT")
        levels = {True: "error", False: "warning"}
        print_table(headers, [(t, w, m, levels[fatal], hint) for t, w, m, fatal, hint in rows])
    if checked.layout is not None:
        layout = checked.layout
        say(f"Topics of {prefix} are good: {layout.shards} shards, {layout.responses} responses")
    if of_claims is not None and of_claims.layout is not None:
        say(f"Those for {followed} are good: {of_claims.layout.shards} coordination partitions")
    return 0 if is_good else 3


def _not_seen(problem: NotAllowed, followed: str | None) -> "Finding":
    """Topics of claims that nobody asked for, and that whoever checks groups may not see: what is
    found of the groups' stands."""
    from coordlib.kafka.plans import Finding

    what = f"was not checked: {problem.what}"
    return Finding(followed or "topics of claims", what, "visible", problem.hint, is_fatal=False)


Names = Annotated[list[str] | None, Parameter(negative="")]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Named:
    """What a role has rights to, beside the coordinator's own topics."""

    topics: Names = None
    """Data topics of the role, separated by commas; NAMES* for all that begin so, * for all."""
    groups: Names = None
    """Groups that the job mirrors to Kafka, or that share by claims; written as topics are."""
    claims: str | None = None
    """The coordination topic of claims; without it no row for claims is there."""
    transactional_ids: Names = None
    """Transactional ids of a member, or that an operator may fence; NAMES* as above."""
    outputs: Names = None
    """Topics that a member writes in transactions, or an operator marks; NAMES* as above."""

    def rights(self, role: Role, where: Where) -> tuple[Right, ...]:
        """The rights of a role. Raises as `roles.rights`."""
        return rights(
            role,
            where.topic_prefix(),
            _split(self.topics),
            _split(self.groups),
            self.claims,
            transactional_ids=_split(self.transactional_ids),
            outputs=_split(self.outputs),
        )

    @property
    def given(self) -> dict[str, object]:
        """The same by option."""
        return {
            "--topics": self.topics,
            "--groups": self.groups,
            "--claims": self.claims,
            "--transactional-ids": self.transactional_ids,
            "--outputs": self.outputs,
        }


NOTHING_NAMED: Final = Named()
#: As in a secured local stack (`local/secured.py`, which needs Kafka's client).
_ADMIN = "admin"
#: Names without which a role's principal could do nothing: option, what for, an example.
_NEEDED: Final = {
    Role.MEMBER: (("--topics", "A member reads data topics", "orders"),),
    Role.CLAIMS: (("--claims", "The job follows a coordination topic", "__marshal"),),
    Role.CLAIMANT: (
        ("--claims", "A claimant writes to a coordination topic", "__marshal"),
        ("--topics", "A claimant reads data topics", "orders"),
        ("--groups", "A claimant commits to Kafka's group of its name", "billing"),
    ),
}


def print_rights(
    *,
    role: Role | None = None,
    principal: str | None = None,
    named: Named = NOTHING_NAMED,
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
    """
    if principal is not None:
        from coordlib.kafka.acls import require_principal

        require_principal(principal)
    found = [
        (each, right)
        for each in ([role] if role is not None else list(Role))
        for right in named.rights(each, where)
    ]
    rows = [_row(each, principal, right) for each, right in found]
    if where.format == "json":
        keys = [header.lower().replace("-", "_") for header in HEADERS]
        print_json("acl print", rights=[dict(zip(keys, row, strict=True)) for row in rows])
        return 0
    print_table(HEADERS, rows)
    for each in [role] if role is not None else list(Role):
        for sentence in _missing_names(each, named.given):
            say(sentence)
    return 0


def apply(
    *,
    role: Role,
    principal: str,
    named: Named = NOTHING_NAMED,
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
    """
    from coordlib.kafka.acls import grant, require_principal

    require_principal(principal)
    wanted = named.rights(role, where)
    _require_names(role, named.given)
    where.reach(_ADMIN)
    grant(where.client(_ADMIN), principal, wanted)
    if where.format == "json":
        print_json("acl apply", role=str(role), principal=principal, rights=len(wanted))
    else:
        say(f"{principal} has the {counted(len(wanted), 'right')} of the role {role}")
    for sentence in _missing_names(role, named.given):
        say(f"Not granted: {sentence}")
    return 0


HEADERS = ("ROLE", "PRINCIPAL", "OPERATION", "RESOURCE", "PATTERN", "NAME")


def _row(role: Role, principal: str | None, right: Right) -> tuple[str | None, ...]:
    pattern = "prefixed" if right.is_prefix else "literal"
    return str(role), principal, str(right.operation), str(right.kind), pattern, right.name


def _split(names: list[str] | None) -> list[str]:
    """An option may be repeated, or have several names with commas between them."""
    return [name for each in names or [] for name in each.split(",")]


def _require_names(role: Role, given: Mapping[str, object]) -> None:
    """Raises SetupError: without these names the role's principal could do nothing."""
    for option, what, example in _NEEDED.get(role, ()):
        if not given[option]:
            raise SetupError(f"{what}, and none is named.", option, f"Name it: {option} {example}")


def _missing_names(role: Role, given: Mapping[str, object]) -> Iterator[str]:
    """The rows that are not there for want of names."""
    for option, place in options_of(role).items():
        if given[option]:
            continue
        if place == COORDINATION:
            yield f"{role}: all rows for claims, whose coordination topic {option} names"
            continue
        rows = [row for row in TABLE[role] if row.name == place]
        named = " and ".join(f"{row.operation} on each {row.kind}" for row in rows)
        yield f"{role}: {named} that {option} names"
