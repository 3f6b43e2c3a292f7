"""`coord claims list|describe|history|decode|verify`: read from Kafka alone, job up or down."""

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from cyclopts import App, Parameter

from coordlib.cli.claims import admin
from coordlib.cli.kit.listing import Column, Listing, of_rows
from coordlib.cli.kit.options import (
    Count,
    GroupName,
    NotNegative,
    Since,
    TopicName,
    ask,
    require_name,
)
from coordlib.cli.kit.output import (
    counted,
    duration_text,
    millis_text,
    now,
    print_json,
    say,
    visible,
)
from coordlib.cli.kit.where import CLAIMS_HERE, TABLES_HERE, WhereClaims, WhereTables, as_of
from coordlib.errors import ErrorCode, GroupError, NotReady, SetupError
from coordlib.exit_codes import FAILED, OK, UNHEALTHY
from coordlib.history.tables import JUDGED, ORDINAL

if TYPE_CHECKING:
    from coordlib.cli.claims.view import SlotRow
    from coordlib.client.claims.admin import Survey
    from coordlib.client.claims.transport import LogView
    from coordlib.core.claims.slots import Key
    from coordlib.core.claims.world import World

State = Literal["live", "aging", "stale", "free", "paused"]
SLOT_COLUMNS: Final[tuple[Column["SlotRow"], ...]] = (
    Column("GROUP", lambda row: row.group),
    Column("TOPIC", lambda row: row.topic),
    Column("PARTITION", lambda row: row.partition),
    Column("STATE", lambda row: row.state),
    Column("CLIENT-ID", lambda row: row.client),
    Column("INSTANCE", lambda row: row.instance),
    Column("EPOCH", lambda row: row.epoch),
    Column("CURRENT-OFFSET", lambda row: row.position),
    Column("SIGN-AGE", lambda row: row.sign_age_ms, duration_text, is_in_json=False),
)
MESSAGES: Final = of_rows(
    "COORDINATE",
    "TIME",
    "TYPE",
    "VERSION",
    "INSTANCE",
    "CLIENT-ID",
    "GROUP",
    "TOPIC",
    "PARTITION",
    "NUMBER",
    "VERDICT",
    "ERROR",
)
EVENTS: Final = of_rows(
    "TIME",
    "TYPE",
    "GROUP",
    "TOPIC",
    "PARTITION",
    "CLIENT-ID",
    "EPOCH",
    "CURRENT-OFFSET",
    "REASON",
    "CAUSE",
)
_EVENTS: Final = """
    SELECT time, type, group_id, get_json_object(detail, '$.topic'),
           TRY_CAST(get_json_object(detail, '$.partition') AS INT), member_id,
           TRY_CAST(get_json_object(detail, '$.epoch') AS BIGINT),
           TRY_CAST(get_json_object(detail, '$.position') AS BIGINT), reason, cause
    FROM (SELECT *, {judged} AS judged,
                 ROW_NUMBER() OVER (PARTITION BY type, group_id, member_id, {one}
                                    ORDER BY time, shard) AS n
          FROM events WHERE space = 'claims' AND {which}) AS e
    WHERE n = 1
    ORDER BY judged DESC, log_offset DESC, {ordinal} DESC LIMIT ?"""
#: What tells lines apart. A pause is written to all coordination partitions: of one there are as
#: many, and all have the time at which its sender wrote it.
_ONE: Final = """
    COALESCE(CASE WHEN type IN ('GroupPaused', 'GroupResumed')
                  THEN CAST(epoch_ms(time) + TRY_CAST(get_json_object(detail, '$.skew_ms')
                                                      AS BIGINT) AS VARCHAR) END, event_id)"""
_KNOWN: Final = "SELECT MAX(time) FROM events WHERE space = 'claims' AND {which}"
_PARTS: Final = {"judged": JUDGED, "ordinal": ORDINAL, "one": _ONE}
_OF_GROUP: Final = "group_id = ?"
#: A group may have a name of this form, too.
_OF_PLACE: Final = (
    "(group_id = ? OR get_json_object(detail, '$.topic') = ? AND "
    "TRY_CAST(get_json_object(detail, '$.partition') AS INT) = ?)"
)


def list_claims(
    group: GroupName | None = None,
    /,
    *,
    topic: TopicName | None = None,
    state: State | None = None,
    where: WhereClaims = CLAIMS_HERE,
) -> int:
    """List the partitions that groups claim, with owner, fencing token and position.

    SIGN-AGE: time since the owner's last accepted message. EPOCH: the fencing token, the offset of
    the record that won the claim. As of m0-12: partition 0 of the coordination topic, offset 12.

    Parameters
    ----------
    group
        One group; else all of them.
    topic
        One topic; else all of them.
    state
        live: heard within one interval; aging: within two; stale; free; paused.
    """
    from coordlib.cli.claims.view import paused_groups, rows_of

    with where.survey() as survey:
        views = survey.read(_partitions_of(survey, topic))
    rows = rows_of(views, group, topic, state)
    paused = paused_groups(views.values())
    if where.format == "json":
        claims = _slots().objects(rows)
        print_json("claims list", claims=claims, as_of=as_of(views), paused=paused)
        return 0
    _slots().print(rows)
    _say_state(views, {name: by for name, by in paused.items() if group in (None, name)})
    return 0


def describe(group: GroupName, /, *, where: WhereClaims = CLAIMS_HERE) -> int:
    """Show a group's claims, and how far it is behind the ends of its partitions' logs.

    SIGN-AGE: time since the owner's last accepted message. SINCE is known where the winning record
    was read: with a job, records before its newest snapshot are not.

    Parameters
    ----------
    group
        The group's id.
    """
    from coordlib.cli.claims.view import paused_groups, rows_of
    from coordlib.core.claims.world import UNTRUSTED_TIME_MS

    begun: dict[tuple[int, int], int] = {}

    def note(number: int, record: Any, judgement: Any) -> None:
        if judgement.after is not None and judgement.after.epoch == record.offset:
            begun[number, record.offset] = record.timestamp_ms

    with where.survey() as survey:
        views = survey.read(on_record=note)
        rows = rows_of(views, group)
        if not rows:
            raise GroupError(
                ErrorCode.GROUP_ID_NOT_FOUND,
                f"group {group} in {where.claims_topic}",
                "Check its name: coord claims list",
            )
        ends, replaced = _ends(where, rows), _replaced(where, rows)
        numbers = {row.topic: _partition_of(survey, row.topic) for row in rows}

    def since(row: "SlotRow") -> str | None:
        time_ms = begun.get((numbers[row.topic], -1 if row.epoch is None else row.epoch))
        return None if time_ms == UNTRUSTED_TIME_MS else millis_text(time_ms)

    def end(row: "SlotRow") -> int | None:
        return ends.get((row.topic, row.partition))

    def lag(row: "SlotRow") -> int | None:
        log_end = end(row)
        if log_end is None or row.position is None or row.topic in replaced:
            return None
        return max(0, log_end - row.position)

    owners = _slots(Column("SINCE", since), Column("LOG-END-OFFSET", end), Column("LAG", lag))
    paused = {name: by for name, by in paused_groups(views.values()).items() if name == group}
    total_lag = sum(lag(row) or 0 for row in rows)
    if where.format == "json":
        fields: dict[str, Any] = {"as_of": as_of(views), "paused_by": paused.get(group)}
        fields |= {"total-lag": total_lag, "replaced-topics": replaced}
        print_json("claims describe", group=group, claims=owners.objects(rows), **fields)
        return 0
    owners.print(rows)
    say(f"{counted(len(rows), 'partition')}, {total_lag} records behind")
    for topic in replaced:
        say(
            f"{visible(topic)} has another id than positions of it: it was made anew. Whoever "
            "claims them next begins by auto.offset.reset."
        )
    _say_state(views, paused)
    return 0


def history(
    what: str,
    /,
    *,
    limit: Count = 100,
    since: Since = None,
    where: WhereTables = TABLES_HERE,
) -> int:
    """Show what became of claims, oldest first: won, released, expired, refused, and why.

    A pause of a group is shown once, with the first of its coordinates: it stands in every
    coordination partition. Read from the history's tables, which follow within the archive's
    interval (30 s).

    Parameters
    ----------
    what
        A group's id, or TOPIC:PARTITION.
    limit
        Show the newest N events.
    since
        From this date on, as 2026-03-01; by default the last 30 days of all history, or all of it
        where those have nothing to show.
    """
    topic, colon, number = what.rpartition(":")
    require_name("group", "GROUP", topic if colon else what)
    is_place = bool(colon) and number.isascii() and number.isdigit() and len(number) < 10
    which = _OF_PLACE if is_place else _OF_GROUP
    arguments: list[Any] = [what, topic, int(number)] if is_place else [what]
    asked = ask(
        where.tables_dir(),
        since,
        (_KNOWN.format(which=which), arguments),
        [(_EVENTS.format(which=which, **_PARTS), [*arguments, limit])],
    )
    rows = list(reversed(asked.answers[0].rows))
    if where.format == "json":
        events = EVENTS.objects(rows)
        print_json("claims history", now(), of=what, since=asked.first, events=events)
        return 0
    EVENTS.print(rows)
    asked.say_first()
    if asked.newest is None:
        say(
            f"The history has no claims of {visible(what)}: no job follows them, it is behind, or "
            "the name is wrong."
        )
    return 0


def decode(
    *,
    partition: NotNegative | None = None,
    group: Annotated[GroupName | None, Parameter(name="--group")] = None,
    limit: Count = 100,
    where: WhereClaims = CLAIMS_HERE,
) -> int:
    """Show the newest messages of the coordination topic, and what readers make of each.

    Verdicts are those of a reader that begins a while before the first message shown: where the
    log begins, or 10,000 messages earlier.

    Parameters
    ----------
    partition
        One coordination partition; else all of them.
    group
        Messages of one group; else all of them.
    limit
        Show the newest N messages of each coordination partition.
    """
    newest: dict[int, deque[tuple[object, ...]]] = {}

    def note(number: int, record: Any, judgement: Any) -> None:
        message = judgement.message
        if group is None or (message is not None and message.group == group):
            rows = newest.setdefault(number, deque(maxlen=limit))
            rows.append(_message_row(number, record, judgement))

    with where.survey() as survey:
        if partition is not None and partition >= survey.place.partitions:
            raise SetupError(
                f"{where.claims_topic} has {counted(survey.place.partitions, 'partition')}.",
                f"--partition {partition}",
                "They are numbered from 0.",
            )
        chosen = None if partition is None else [partition]
        most = limit + 10_000
        views = survey.read(chosen, is_whole=True, newest_max=most, on_record=note)
    rows = [row for number in sorted(newest) for row in newest[number]]
    if where.format == "json":
        print_json("claims decode", messages=MESSAGES.objects(rows), as_of=as_of(views))
    else:
        MESSAGES.print(rows)
        say(f"As of {as_of(views)}")
    return 0


def _message_row(number: int, record: Any, judgement: Any) -> tuple[object, ...]:
    from coordlib.core.claims.world import UNTRUSTED_TIME_MS

    stamp = record.timestamp_ms
    time = None if stamp == UNTRUSTED_TIME_MS else millis_text(stamp)
    head = (f"m{number}-{record.offset}", time)
    tail = (judgement.verdict.value, judgement.error or None)
    message = judgement.message
    if message is None:
        return (*head, *(None,) * 8, *tail)
    extra = getattr(message, "offset", getattr(message, "expire_s", None))
    names = (message.version, message.instance, message.client, message.group, message.topic)
    return (*head, type(message).__name__, *names, message.partition, extra, *tail)


def _partition_of(survey: "Survey", topic: str) -> int:
    from coordlib.core.wire.claims import partition_of

    return partition_of(topic, survey.place.partitions)


def _partitions_of(survey: "Survey", topic: str | None) -> list[int] | None:
    return None if topic is None else [_partition_of(survey, topic)]


def _ends(where: WhereClaims, rows: "list[SlotRow]") -> dict[tuple[str, int], int]:
    from coordlib.kafka.bounds import log_bounds
    from coordlib.kafka.clients import open_admin, reaching, refusing
    from coordlib.kafka.logs import Place

    client = where.client()
    admin, places = open_admin(client), [Place(row.topic, row.partition) for row in rows]
    with reaching("The ends of the logs are not known.", "Try again."):
        found = log_bounds(admin, places, on_denied=refusing(client))
    return {
        (place.topic, place.partition): each.end
        for place, each in found.items()
        if each is not None
    }


def _replaced(where: WhereClaims, rows: "list[SlotRow]") -> list[str]:
    """The topics that have another id now than one of these positions."""
    from coordlib.kafka.cluster import TopicIdReader

    return [*TopicIdReader(where.client()).replaced((row.topic, row.topic_id) for row in rows)]


def _slots(*more: "Column[SlotRow]") -> "Listing[SlotRow]":
    """Slots of claims, with more columns."""
    return Listing(
        *SLOT_COLUMNS,
        *more,
        fields=lambda row: {
            "sign-age-ms": row.sign_age_ms,
            "is-tentative": row.is_tentative,
            "topic-id": row.topic_id,
        },
    )


def _say_state(views: "dict[int, LogView]", paused: dict[str, str]) -> None:
    for group, client in sorted(paused.items()):
        say(f"Group {visible(group)} is paused by {visible(client)}.")
    unsettled = [number for number, view in views.items() if not view.world.is_settled]
    if unsettled:
        say(f"Too little of coordination partitions {unsettled} could be read to know all owners.")
    say(f"As of {as_of(views)}")


LATE: Final = "late: the log begins behind its first record"


@dataclass(frozen=True, slots=True)
class Compared:
    """A coordination partition: whether its snapshot is what its log says."""

    partition: int
    snapshot_offset: int | None
    #: None: nothing was compared, for the reason in `note`.
    ok: bool | None
    note: str | None = None
    slots: int | None = None
    #: A sentence for each difference.
    different: tuple[str, ...] = ()
    #: Whether a snapshot can be expected: the log's clock has gone a heartbeat interval.
    is_due: bool = True


COMPARED: Final[Listing[Compared]] = Listing(
    Column("PARTITION", lambda each: each.partition),
    Column("SNAPSHOT-OFFSET", lambda each: each.snapshot_offset),
    Column("OK", lambda each: each.ok),
    Column("SLOTS", lambda each: each.slots),
    Column("DIFFERENCES", lambda each: None if each.ok is None else len(each.different)),
    Column("NOTE", lambda each: each.note),
)


def verify(*, where: WhereClaims = CLAIMS_HERE) -> int:
    """Fold the coordination topic, and compare with the job's newest snapshots; exit code 3 if they
    differ, 1 if a partition could not be compared.

    Compared are owner, fencing token, position and age of every slot, at the snapshot's offset. A
    partition whose log has not gone a heartbeat interval has no snapshot yet, and counts for
    nothing.
    """
    with where.survey() as survey:
        rows = list(compare(survey))
    for each in rows:
        for line in each.different:
            say(f"m{each.partition}-{each.snapshot_offset}: {visible(line)}")
    ok = agreed(rows)
    if where.format == "json":
        partitions = COMPARED.objects(rows)
        print_json("claims verify", topic=where.claims_topic, ok=ok, partitions=partitions)
    else:
        COMPARED.print(rows)
    if all(each.snapshot_offset is None for each in rows):
        raise NotReady(
            "There is no snapshot to compare with.",
            f"{where.topic_prefix()}.claims.snapshots",
            "Start the job with claims, and wait for one heartbeat interval.",
        )
    if ok is None:
        say("Not every partition could be compared: see NOTE.")
    return FAILED if ok is None else OK if ok else UNHEALTHY


def agreed(rows: Iterable[Compared]) -> bool | None:
    """Of a whole topic; None: nothing differs, and not all that had to be compared could be."""
    some = [each for each in rows if each.ok is not None or each.is_due]
    if any(each.ok is False for each in some):
        return False
    return None if not some or any(each.ok is None for each in some) else True


def compare(survey: "Survey") -> "Iterator[Compared]":
    """Each coordination partition in turn, read to its end. Raises as `Survey.read`."""
    for number in range(survey.place.partitions):
        snapshot = survey.snapshot(number)
        if snapshot is None:
            yield _without_snapshot(survey, number)
            continue
        world = _folded(survey, number, snapshot.offset)
        if world.offset != snapshot.offset:
            note = "the log ends before it, or begins behind it"
            yield Compared(number, snapshot.offset, None, note)
        elif not world.is_settled:
            note = "too little of the log is left to know the owners"
            yield Compared(number, snapshot.offset, None, note)
        else:
            theirs = survey.restored(snapshot, number)
            compared, different = differences(world, theirs, is_late=world.is_late)
            late, found = LATE if world.is_late else None, tuple(different)
            yield Compared(number, snapshot.offset, not found, late, compared, found)


def _without_snapshot(survey: "Survey", number: int) -> Compared:
    world = _folded(survey, number)
    is_due = world.is_late or world.clock_ms >= world.interval_ms
    note = "no snapshot of this topic" if is_due else "no snapshot is due yet"
    return Compared(number, None, None, note, is_due=is_due)


def _folded(survey: "Survey", number: int, until: int | None = None) -> "World":
    """The log up to an offset, or to its end, as one that reads it alone."""
    from coordlib.core.claims.world import World

    world = World(survey.place.topic, number, survey.place.partitions)

    def keep(_: int, record: Any, __: Any) -> None:
        if until is None or record.offset <= until:
            world.judge(record)

    survey.read([number], is_whole=True, on_record=keep)
    return world


def differences(ours: "World", theirs: "World", is_late: bool) -> tuple[int, list[str]]:
    """How many slots were compared, and where they differ, one sentence each.

    A reader that began late knows less: compared are owners, unless either is not sure of one.
    """
    keys = ours.slots.keys() | theirs.slots.keys()
    if is_late:
        keys = {key for key in keys if _is_sure(ours, theirs, key)}
    found = []
    for key in sorted(keys):
        mine, other = _facts(ours, key), _facts(theirs, key)
        if is_late and mine is not None and other is not None and mine[3] is None:
            other = (*other[:3], None, *other[4:])  # it was written before this reader began
        if mine != other:
            group, topic, partition = key
            found.append(f"{group} {topic}:{partition}: the log says {mine}, the snapshot {other}")
    return len(keys), found


def _is_sure(ours: "World", theirs: "World", key: "Key") -> bool:
    owners = [slot for world in (ours, theirs) if (slot := world.owner(key)) is not None]
    return bool(owners) and not any(slot.is_tentative for slot in owners)


def _facts(world: "World", key: "Key") -> tuple[object, ...] | None:
    slot = world.slots.get(key)
    if slot is None:
        return None
    age_ms = world.clock_ms - slot.heard_ms
    return slot.client, slot.instance, slot.epoch, slot.position, slot.is_released, age_ms


def build() -> App:
    """`coord claims`."""
    app = App(name="claims", help="Inspect and administer groups that share by claims.")
    app.command(list_claims, name="list")
    app.command(describe, name="describe")
    app.command(history, name="history")
    app.command(decode, name="decode")
    app.command(admin.pause, name="pause")
    app.command(admin.resume, name="resume")
    app.command(
        admin.set_position,
        name="set-position",
        usage="Usage: coord claims set-position (--to-earliest | --to-latest | "
        "--to-datetime TIME | --shift-by N | --to TOPIC:PARTITION=OFFSET,...) [OPTIONS] GROUP",
    )
    app.command(admin.create, name="create")
    app.command(admin.check, name="check")
    app.command(verify, name="verify")
    return app
