"""`coord groups remove-members|release|delete`, `coord offsets delete`: what operators do."""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Final

from cyclopts import Group, Parameter

from coordlib.cli.kit.listing import of_rows
from coordlib.cli.kit.options import GroupName, Instances, Members, exactly_one, require_name
from coordlib.cli.kit.output import counted, now, print_json, say
from coordlib.cli.kit.where import HERE, Where, agreed, asking, is_a_cluster, of_a_group, pointer
from coordlib.errors import CoordError, ErrorCode, SetupError
from coordlib.limits import INT32_MAX

if TYPE_CHECKING:
    from coordlib.client.admin import Admin
    from coordlib.core.wire import api

REFUSED: Final = of_rows("GROUP", "CONSUMER-ID", "INSTANCE", "ERROR")
UNDELETED: Final = of_rows("GROUP", "TOPIC", "PARTITION", "ERROR")


WHOM: Final = Group("Members", validator=exactly_one("--member ID …", "--instance ID …", "--all"))


def remove_members(
    group: GroupName,
    /,
    *,
    member: Annotated[Members | None, Parameter(group=WHOM, negative="")] = None,
    instance: Annotated[Instances | None, Parameter(group=WHOM, negative="")] = None,
    everybody: Annotated[bool, Parameter(name="--all", group=WHOM, negative="")] = False,
    reason: str | None = None,
    yes: bool = False,
    where: Where = HERE,
) -> int:
    """Remove members from a group: members that hang, or static ones that will not come back.

    A member that still runs joins again; stop its process first. The partitions of a removed
    member move on when it reports that it has stopped, or must have stopped by its own clock. Exit
    code 1: some removals were refused; the other members are removed.

    Parameters
    ----------
    group
        The group's id.
    member
        A member's id, as `coord groups describe` shows it; may be repeated.
    instance
        A static member's instance id; may be repeated.
    everybody
        All members that the group has now.
    reason
        The reason, for the group's history.
    yes
        Remove without asking.
    """
    named = "all members" if everybody else ", ".join([*(member or ()), *(instance or ())])
    with (
        of_a_group(where, group),
        agreed(where, f"Removing {named}", f"group {group}", yes) as admin,
    ):
        rows = (
            admin.remove_all_members(group, reason)
            if everybody
            else admin.remove_members(group, member or (), instance or (), reason)
        )
        awaited = _awaited(admin, group)
    refused = [row for row in rows if row.error != ErrorCode.NONE.name]
    if where.format == "json":
        _print_json(group, rows, awaited)
    elif refused:
        lines = [(group, row.member, row.instance, row.error) for row in refused]
        REFUSED.print(lines)
    say(f"{counted(len(rows) - len(refused), 'member')} of {group} removed")
    _say_awaited(group, awaited)
    if len(refused) == len(rows) and is_a_cluster(where, group):
        say(pointer(group))
    return 1 if refused else 0


def _awaited(admin: "Admin", group: str) -> "list[api.AwaitedMember] | None":
    """Former owners that may still be at work; None: the coordinator did not answer.

    The removal itself is done.
    """
    from coordlib.core.wire import api

    try:
        waits_for = admin.describe_group(group).waits_for
    except CoordError:
        return None
    found = waits_for if isinstance(waits_for, tuple) else ()
    return [each for each in found if each.reason == api.NOT_STOPPED]


def _say_awaited(group: str, awaited: "list[api.AwaitedMember] | None") -> None:
    look = f"see: coord groups describe {group}"
    if awaited is None:
        say(f"The coordinator did not answer for which members the group waits; {look}")
    elif awaited:
        count = counted(len(awaited), "former owner")
        say(f"{group} waits until {count} must have stopped; {look}")


def _print_json(
    group: str, rows: "Sequence[api.LeftMember]", awaited: "list[api.AwaitedMember] | None"
) -> None:
    print_json(
        "groups remove-members",
        now(),
        group=group,
        members=[
            {"consumer-id": row.member or None, "instance": row.instance, "error": row.error}
            for row in rows
        ],
        **{"waits-for": _rows(awaited)},
    )


def _rows(awaited: "list[api.AwaitedMember] | None") -> list[dict[str, str]] | None:
    if awaited is None:
        return None
    return [
        {"consumer-id": each.member, "client-id": each.client, "reason": each.reason}
        for each in awaited
    ]


def release(group: GroupName, /, *, where: Where = HERE) -> int:
    """Let a quarantined group go on, from its state before the request that failed.

    A group is quarantined when judging one of its requests raises an exception; its event
    GroupQuarantined has the exception. Its members get their full timeouts again.

    Parameters
    ----------
    group
        The group's id.
    """
    with of_a_group(where, group), asking(where) as admin:
        admin.release_quarantine(group)
    if where.format == "json":
        print_json("groups release", now(), group=group)
    else:
        say(f"{group} is released")
    return 0


def delete(group: GroupName, /, *, yes: bool = False, where: Where = HERE) -> int:
    """Delete a group without members, with all of its committed offsets.

    First stop queries that publish their positions under this group: a position that is under way
    creates the group again.

    Parameters
    ----------
    group
        The group's id.
    yes
        Delete without asking.
    """
    with (
        of_a_group(where, group),
        agreed(where, "Deleting a group with its offsets", f"group {group}", yes) as admin,
    ):
        admin.delete_group(group)
    if where.format == "json":
        print_json("groups delete", now(), group=group)
    else:
        say(f"{group} is deleted")
    return 0


_DIGITS: Final = re.compile(r"[0-9]{1,10}")


def delete_offsets(
    group: GroupName,
    /,
    *,
    topics: Annotated[list[str], Parameter(negative="")],
    yes: bool = False,
    where: Where = HERE,
) -> int:
    """Delete committed offsets of topics that no member of the group subscribes to.

    The next consumer of these partitions starts by its own auto.offset.reset. Exit code 1: some
    deletions were refused; the other offsets are deleted.

    Parameters
    ----------
    group
        The group's id.
    topics
        TOPIC for all of its committed partitions, TOPIC:0,1 for some; may be repeated.
    yes
        Delete without asking.
    """
    named = _named(topics)
    with (
        of_a_group(where, group),
        agreed(where, f"Deleting offsets of {', '.join(topics)}", f"group {group}", yes) as admin,
    ):
        asked, failed = admin.delete_offsets(group, named)
    rows = [(group, row.topic, row.partition, row.error) for row in failed]
    if where.format == "json":
        refused = UNDELETED.objects(rows)
        print_json("offsets delete", now(), group=group, asked=asked, failed=refused)
    elif rows:
        UNDELETED.print(rows)
    say(f"{counted(asked - len(rows), 'partition')} of {group} without offset now")
    return 1 if rows else 0


def _named(texts: Sequence[str]) -> dict[str, tuple[int, ...] | None]:
    """Of each topic the partitions that are named, or None for all of them.

    Raises:
        SetupError: a topic has no name, is named whole and in part, or a partition is none.
    """
    found: dict[str, tuple[int, ...] | None] = {}
    for text in texts:
        topic, colon, partitions = text.partition(":")  # Kafka's topic names have none
        require_name("topic", "--topics", topic)
        some = _partitions(text, partitions) if colon else None
        known = found.setdefault(topic, some)
        if (known is None) != (some is None):
            raise SetupError(
                f"Topic {topic} is named whole and in part.",
                f"--topics {topic} --topics {topic}:…",
                "Name it once: without partitions for all of them.",
            )
        if known is not None and some is not None:
            found[topic] = tuple(dict.fromkeys((*known, *some)))
    return found


def _partitions(text: str, listed: str) -> tuple[int, ...]:
    numbers = listed.split(",")
    if not all(_DIGITS.fullmatch(each) and int(each) <= INT32_MAX for each in numbers):
        raise SetupError(
            f"{text} names no partitions.", "--topics", "For example --topics orders:0,1"
        )
    return tuple(map(int, numbers))
