"""`coord offsets delete`: take committed positions away, asked of the coordinator itself."""

import re
from collections.abc import Sequence
from typing import Annotated, Final

from cyclopts import Parameter

from coordlib.cli.controller.cluster_names import of_a_group
from coordlib.cli.kit.confirm import confirm
from coordlib.cli.kit.names import GroupName, require_name
from coordlib.cli.kit.output import counted, now, print_json, print_table, say
from coordlib.cli.kit.where import HERE, Where
from coordlib.errors import SetupError
from coordlib.limits import INT32_MAX

_DIGITS: Final = re.compile(r"[0-9]{1,10}")


def delete(
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
    from coordlib.client.admin import Admin

    named = _named(topics)
    where.reach()
    confirm(f"Deleting offsets of {', '.join(topics)}", f"group {group}", yes)
    with of_a_group(where, group), Admin(where.client(), where.topic_prefix()) as admin:
        asked, failed = admin.delete_offsets(group, named)
    rows = [(group, row.topic, row.partition, row.error) for row in failed]
    headers = ("GROUP", "TOPIC", "PARTITION", "ERROR")
    if where.format == "json":
        keys = [header.lower() for header in headers]
        refused = [dict(zip(keys, row, strict=True)) for row in rows]
        print_json("offsets delete", now(), group=group, asked=asked, failed=refused)
    elif rows:
        print_table(headers, rows)
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
