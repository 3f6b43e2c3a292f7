"""`coord transactions find-hanging`: transactions that do not end, and what mends each."""

from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final

from cyclopts import Parameter

from coordlib import exit_codes
from coordlib.cli.kit.names import TopicName
from coordlib.cli.kit.numbers import Duration
from coordlib.cli.kit.output import (
    as_objects,
    counted,
    duration_text,
    now,
    print_json,
    print_table,
    say,
    time_text,
    visible,
)
from coordlib.cli.kit.where import HERE, Where
from coordlib.cli.transactions.transaction_rows import millis
from coordlib.errors import SetupError

if TYPE_CHECKING:
    from coordlib.cli.transactions.hanging import Hanging
    from coordlib.cli.transactions.transaction_view import Seen

#: As long as the longest pause of a job that is started again.
LONGER_THAN_MS: Final = 60_000
#: Shown as it is given.
Longer = Annotated[Duration, Parameter(show_default=lambda _: "1m")]


def find_hanging(
    *, topic: TopicName | None = None, longer_than: Longer = LONGER_THAN_MS, where: Where = HERE
) -> int:
    """Find transactions that do not end, each with the command that mends it.

    Of the coordinator: decided, and not told for a minute to all groups and partitions. Of Kafka:
    open transactions that hold up readers and decisions, and offsets whose record was deleted
    before the job could look. Of Delta: offsets whose member is gone. The job may be down. Exit
    code 3: there are any.

    Parameters
    ----------
    topic
        Look at this topic too for open transactions of Kafka, not at the requests alone.
    longer_than
        Only what has lasted for longer, like 30s or 5m.
    """
    from coordlib.cli.transactions.hanging import (
        COLUMNS,
        of_coordinator,
        of_deleted_records,
        of_members,
        of_quarantined,
    )
    from coordlib.cli.transactions.transaction_view import read_all, read_unheard

    topics, prefix, client = where.reach(), where.topic_prefix(), where.client()
    as_of_time = now()
    now_ms = millis(as_of_time)
    seen = read_all(client, topics, prefix)
    found = [
        *of_coordinator(
            seen.ids, now_ms, longer_than, lambda each: read_unheard(client, prefix, each)
        ),
        *of_quarantined(seen.pending, now_ms, longer_than),
        *of_deleted_records(seen.pending, now_ms, _log_starts(client, prefix, seen)),
        *of_members(seen.pending, now_ms, longer_than, _members(client, topics, prefix, seen)),
        *_of_kafka(client, topics, prefix, topic, now_ms, longer_than),
    ]
    if where.format == "json":
        told = as_objects(COLUMNS, [each.row for each in found])
        print_json("transactions find-hanging", as_of_time, hanging=told)
    elif found:
        rows = [(*e.row[:2], duration_text(e.for_ms), *e.row[3:]) for e in found]
        print_table(COLUMNS, rows)
    say(f"{counted(len(found), 'transaction')} hanging as of {time_text(as_of_time)}")
    return exit_codes.UNHEALTHY if found else exit_codes.OK


# -- what is read for it ---------------------------------------------------------------------


def _log_starts(client: Mapping[str, str], prefix: str, seen: "Seen") -> dict[int, int]:
    """Where the requests of shards begin that wait for Kafka. Raises CannotReach."""
    from coordlib.core.wire.transactions import KAFKA

    shards = {each.shard for each in seen.pending if each.entry.decided_by == KAFKA}
    return log_starts(client, prefix, shards)


def log_starts(client: Mapping[str, str], prefix: str, shards: Collection[int]) -> dict[int, int]:
    """Where the requests of these shards begin. Raises CannotReach, NotAllowed."""
    from coordlib.kafka.bounds import log_bounds
    from coordlib.kafka.clients import open_admin, reaching
    from coordlib.kafka.denied import refusing
    from coordlib.kafka.places import Place

    places = [Place(f"{prefix}.requests", shard) for shard in sorted(shards)]
    if not places:
        return {}
    with reaching("It is not known where the requests begin.", "Look whether the brokers run."):
        found = log_bounds(open_admin(client), places, on_denied=refusing(client))
    return {place.partition: bounds.start for place, bounds in found.items() if bounds is not None}


def _members(
    client: Mapping[str, str], topics: Mapping[str, Any], prefix: str, seen: "Seen"
) -> dict[str, Collection[str]]:
    """The members of groups that wait for a Delta table; one that is not there has none."""
    from coordlib.cli.groups.group_view import read_groups
    from coordlib.core.wire.transactions import DELTA

    asked = {each.group for each in seen.pending if each.entry.decided_by == DELTA}
    if not asked:
        return {}
    groups = {each.group: each for each in read_groups(client, topics, prefix)}
    found: dict[str, Collection[str]] = {}
    for name in asked:
        group = groups.get(name)
        if group is None or group.value is not None:
            found[name] = () if group is None else tuple(group.members)
    return found


def _of_kafka(
    client: Mapping[str, str],
    topics: Mapping[str, Any],
    prefix: str,
    topic: str | None,
    now_ms: int,
    longer_than_ms: int,
) -> "Iterator[Hanging]":
    from coordlib.cli.transactions.hanging import of_held_up
    from coordlib.kafka.held_up import held_up
    from coordlib.kafka.places import Place

    names = [f"{prefix}.requests", *([topic] if topic is not None else [])]
    if topic is not None and topic not in topics:
        raise SetupError(
            "There is no such topic, or it may not be seen.",
            f"--topic {visible(topic)}",
            "Check its name, and the right to describe it.",
        )
    places = [Place(name, number) for name in names if name in topics
              for number in topics[name].partitions]  # fmt: skip
    held = held_up(client, places)
    return of_held_up(held, now_ms, longer_than_ms, client["bootstrap.servers"])
