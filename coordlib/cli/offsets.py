"""`coord offsets delete`: take committed positions away, asked of the coordinator itself."""

from typing import Annotated

from cyclopts import Parameter

from coordlib.cli.confirm import confirm
from coordlib.cli.output import counted, now, print_json, print_table, say
from coordlib.cli.where import HERE, Where
from coordlib.errors import SetupError


def delete(
    group: str,
    /,
    *,
    topics: Annotated[list[str], Parameter(negative="")],
    yes: bool = False,
    where: Where = HERE,
) -> int:
    """Delete committed offsets of topics that no member of the group subscribes to.

    Whoever reads these partitions next begins where its own settings say. Exit code 1 when some
    were refused; the others are deleted.

    Parameters
    ----------
    group
        The group's id.
    topics
        TOPIC for all of its committed partitions, TOPIC:0,1 for some; may be given several times.
    yes
        Do not ask.
    """
    from coordlib.client.admin import Admin

    named = dict(_named(text) for text in topics)
    where.reach()
    confirm(f"Deleting offsets of {', '.join(topics)}", f"group {group}", yes)
    with Admin(where.client(), where.topic_prefix()) as admin:
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


def _named(text: str) -> tuple[str, tuple[int, ...] | None]:
    topic, colon, partitions = text.partition(":")  # Kafka's topic names have none
    if not colon:
        return topic, None
    try:
        return topic, tuple(int(partition) for partition in partitions.split(","))
    except ValueError as problem:
        raise SetupError(
            f"{text} names no partitions", "--topics", "For example --topics orders:0,1"
        ) from problem
