"""What `coord status` shows: this machine's view of the job, and Kafka's and Delta's."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from coordlib import exit_codes
from coordlib.cli.kit.output import counted, error_fields, now
from coordlib.cli.kit.reading import SeenProgress, read_progress
from coordlib.cli.kit.where import WhereTables
from coordlib.core.wire import cells
from coordlib.core.wire.topics import INPUTS, claims_prefix
from coordlib.errors import CannotReach, CoordError, NotAllowed
from coordlib.local.home import command_for

if TYPE_CHECKING:
    from coordlib.kafka.logs import Place


def instance_rows(seen: SeenProgress, lag: "Lag", now_ms: int) -> list[dict[str, Any]]:
    """A row for each job instance: its shards, the age of its newest batch, and its lag."""
    rows = []
    for whose in seen.standing:
        marker, committed_ms = seen.markers.get(whose), seen.committed_ms.get(whose)
        rows.append(
            {
                "shards": "all" if whose is None else str(whose),
                "since_ms": seen.cells[whose].since_ms,
                "batch_id": None if marker is None else marker.batch,
                "marker_age_ms": None if committed_ms is None else max(0, now_ms - committed_ms),
                "checkpoint_id": None if marker is None else marker.checkpoint,
                "lag": lag.of(cells.shards_of(whose, seen.shards)),
            }
        )
    return rows


@dataclass(frozen=True, slots=True)
class Lag:
    """What waits for the job: of each partition the first record's offset, and their number."""

    waiting: "Mapping[Place, tuple[int, int]]"
    #: The time of the first record; None: the partition ended without one; absent: no answer.
    times: "Mapping[Place, int | None]"
    now_ms: int

    def of(self, shards: Iterable[int] | None = None) -> dict[str, int | None]:
        """Records that were not judged, and the age of the oldest of them; None where a partition
        does not say what waits there. Of these shards, else of all."""
        wanted = None if shards is None else set(shards)
        places = [each for each in self.waiting if wanted is None or each.partition in wanted]
        # A partition that ended without a record has only marks at the end of transactions.
        records = sum(self.waiting[at][1] for at in places if self.times.get(at, 0) is not None)
        if any(at not in self.times for at in places):
            return {"records": records, "ms": None}
        known = [time for at in places if (time := self.times[at]) is not None]
        return {"records": records, "ms": max(0, self.now_ms - min(known)) if known else 0}


TIMEOUT_S = 5.0
#: Names among what is late the requests that will be removed unread.
RETENTION = "retention"
#: Of the time that a topic keeps its records: how old a request that was not judged may become.
_NEAR_RETENTION = 0.5
#: Of each field that has a bound: what it tells, and the bound's option.
_BOUNDS = {
    "lag": ("the age of the oldest request that was not processed", "--max-lag-ms"),
    "archive_lag": (
        "the age of the oldest record that is not in the history's tables",
        "--max-archive-lag-ms",
    ),
}


@dataclass(slots=True)
class Status:
    """The fields of `coord status --format json`, and what could not be found out."""

    as_of_time: datetime
    fields: dict[str, Any]
    is_reachable: bool = False
    errors: list[CoordError] = field(default_factory=list)


def collect(where: WhereTables) -> Status:
    """Ask everybody; never fails because something is down."""
    local = where.local().status() if where.is_local else None
    of_job: Mapping[str, Any] = local.job if local else {}
    # Who does not run has no troubles but that one.
    live = of_job if local and local.job_pid else {}
    found = Status(
        now(),
        {
            "bootstrap_servers": local.bootstrap_servers if local else where.servers,
            "topic_prefix": where.topic_prefix(),
            "shards": local.shards if local else None,
            "job": {
                "state": local.job_state if local else "unknown",
                "pid": local.job_pid if local else None,
                "batch_id": of_job.get("batch_id"),
                "last_batch_ms": of_job.get("last_batch_ms"),
                "marker_age_ms": None,
            },
            "lag": {"records": None, "ms": None},
            "partitions_added": [],
            #: The shortest time that an input keeps its records; None: without end, or unknown.
            "retention_ms": None,
            "offsets_failing": live.get("offsets_failing") or {},
            "watches_failing": live.get("watches_failing") or {},
            "claims": _claims_of(live),
            "checkpoint": of_job.get("checkpoint") or None,
            "checkpoint_id": None,
            "job_instances": [],
            "shards_without_job": [],
            "tables": {"events": None, "group_snapshots": None, "lag": None},
            "archive_lag": {"records": None, "ms": None},
            "late": [],
        },
    )
    _ask(found, lambda: _from_kafka(found, where))
    _ask(found, lambda: _from_tables(found, where))
    if found.is_reachable:
        _ask(found, lambda: _from_archive(found, where))
    found.fields["errors"] = [error_fields(error) for error in found.errors]
    return found


def _claims_of(live: Mapping[str, Any]) -> dict[str, Any] | None:
    """The claims query beside the groups; None: the job has none, or is not here."""
    claims = live.get("claims")
    if not claims:
        return None
    trouble = (live.get("watches_failing") or {}).get("claims")
    return {
        **{name: claims.get(name) for name in ("topic", "state", "batch_id", "last_batch_ms")},
        "next_offsets": claims.get("next_offsets"),
        "checkpoint": claims.get("checkpoint"),
        "failing_since_ms": trouble["since_ms"] if trouble else None,
    }


def exit_code(found: Status) -> int:
    """Whether somebody should look: a setting is wrong, the broker is away, the job is, or one of
    them is ill or late. A query of claims that fails is ill, although groups are answered; shards
    that no job has are, too."""
    if any(exit_codes.of_command(error) == exit_codes.USAGE for error in found.errors):
        return exit_codes.USAGE
    if not found.is_reachable:
        return exit_codes.UNREACHABLE
    is_running = found.fields["job"]["state"] in ("running", "unknown")
    is_ill = found.errors or found.fields["late"] or not is_running or _claims_fail(found)
    is_ill = is_ill or found.fields["shards_without_job"]
    return exit_codes.UNHEALTHY if is_ill else exit_codes.OK


def _claims_fail(found: Status) -> bool:
    claims = found.fields["claims"]
    return claims is not None and claims["failing_since_ms"] is not None


def note_late(found: Status, max_lag_ms: int | None, max_archive_lag_ms: int | None) -> None:
    """Set the field `late`: which of these bounds is passed. What is not known passes it, too; of a
    broker that does not answer nothing is told but that. Requests that will soon be removed unread
    are late without a bound."""
    bounds = {"lag": max_lag_ms, "archive_lag": max_archive_lag_ms}
    lag_ms, kept_ms = found.fields["lag"]["ms"], found.fields["retention_ms"]
    is_near = None not in (lag_ms, kept_ms) and lag_ms > kept_ms * _NEAR_RETENTION
    near = [{"what": RETENTION, "ms": lag_ms, "max_ms": kept_ms}] if is_near else []
    found.fields["late"] = near + [
        {"what": what, "ms": found.fields[what]["ms"], "max_ms": max_ms}
        for what, max_ms in bounds.items()
        if found.is_reachable and max_ms is not None
        if found.fields[what]["ms"] is None or found.fields[what]["ms"] > max_ms
    ]


def instance_lines(found: Status) -> list[str]:
    """A line for each job instance, and one for shards that no job has."""
    lines = [
        f"Job instance {row['shards']}: batch {_or_unknown(row['batch_id'])}, "
        f"newest marker {_or_unknown(row['marker_age_ms'])} ms old, "
        f"{row['lag']['records']} records wait, the oldest for {_or_unknown(row['lag']['ms'])} ms"
        for row in found.fields["job_instances"]
    ]
    if left := found.fields["shards_without_job"]:
        lines.append(
            f"No job has the shards {', '.join(left)}: start one with --shards "
            f"{left[0]} --rebuild, in an empty folder"
        )
    return lines


def _or_unknown(value: int | None) -> str:
    return "unknown" if value is None else str(value)


def late_lines(found: Status) -> list[str]:
    """A sentence for each bound that is passed."""
    lines = []
    for each in found.fields["late"]:
        if each["what"] == RETENTION:
            lines.append(
                f"Late: the oldest request that was not processed is {each['ms']} ms old, and is "
                f"removed unread at {each['max_ms']}: let the job run, or raise retention.ms"
            )
            continue
        subject, option = _BOUNDS[each["what"]]
        waits = "is not known" if each["ms"] is None else f"is {each['ms']} ms"
        lines.append(f"Late: {subject} {waits} ({option} {each['max_ms']})")
    return lines


def trouble_lines(found: Status, where: WhereTables) -> list[str]:
    """That the local job does not run, or what fails beside its batches; for people."""
    state = found.fields["job"]["state"]
    if found.is_reachable and state in ("stopped", "down"):
        start = command_for(where.local().home, "up")
        return [f"The job is {state}: requests wait, and groups do not rebalance. Run: {start}"]
    now_ms = found.as_of_time.timestamp() * 1000
    failing = found.fields["offsets_failing"]
    troubles = {f"mirror of {name}": each for name, each in failing.items()}
    return [
        f"Failing for {max(0, round(now_ms - each['since_ms'])) // 1000} s: {name}: {each['error']}"
        for name, each in {**found.fields["watches_failing"], **troubles}.items()
    ]


def _ask(found: Status, question: Any) -> None:
    try:
        question()
    except CoordError as problem:
        found.errors.append(problem)


def _from_kafka(found: Status, where: WhereTables) -> None:
    if where.is_local and found.fields["bootstrap_servers"] is None:
        home = where.local().home
        raise CannotReach(
            "The local stack was never started.", f"stack {home}", f"Run: {command_for(home, 'up')}"
        )
    topics = where.reach()
    found.is_reachable = True
    prefix = found.fields["topic_prefix"]
    if f"{prefix}.requests" not in topics:
        from coordlib.kafka.cluster import require_visible

        require_visible(where.client(), f"{prefix}.requests", TIMEOUT_S)
        raise CoordError(
            "The engine's topics are not there.", f"prefix {prefix}", "Run: coord topics create"
        )
    seen = read_progress(where.client(), prefix)
    shards = seen.shards or len(topics[f"{prefix}.requests"].partitions)
    found.fields["shards"] = shards
    found.fields["partitions_added"] = _added(where.client(), topics, prefix, seen.layout)
    now_ms = round(found.as_of_time.timestamp() * 1000)
    lag = _lag(where.client(), topics, prefix, shards, seen.marker)
    found.fields["lag"] = lag.of()
    found.fields["retention_ms"] = _retention_ms(where.client(), topics, prefix)
    found.fields["job_instances"] = rows = instance_rows(seen, lag, now_ms)
    found.fields["shards_without_job"] = seen.gaps
    marker, committed_ms = seen.markers.get(None), seen.committed_ms.get(None)
    if rows:  # each has a checkpoint and batches of its own
        ages = [row["marker_age_ms"] for row in rows]
        oldest = None if None in ages else max(ages)
        found.fields["job"] |= {"batch_id": None, "marker_age_ms": oldest}
    elif marker is not None and committed_ms is not None:
        found.fields["checkpoint_id"] = marker.checkpoint
        age_ms = max(0, now_ms - committed_ms)
        found.fields["job"] |= {"batch_id": marker.batch, "marker_age_ms": age_ms}


def _retention_ms(client: Mapping[str, str], topics: Mapping[str, Any], prefix: str) -> int | None:
    """The shortest time that an input keeps its records; None: without end, or unknown."""
    from coordlib.kafka.clients import open_admin
    from coordlib.kafka.topics import describe

    names = [name for name in (f"{prefix}.{each}" for each in INPUTS) if name in topics]
    try:
        seen = describe(open_admin(client), names, dict(client))
    except NotAllowed:
        return None  # whoever may look at the lag alone has no right to settings
    kept_ms = [int(each.config.get("retention.ms", "-1")) for each in seen.values()]
    return min((each for each in kept_ms if each >= 0), default=None)


def _from_tables(found: Status, where: WhereTables) -> None:
    from coordlib.history.delta_files import describe_tables

    if where.tables is not None or where.is_local:
        found.fields["tables"] = describe_tables(where.tables_dir())


def _from_archive(found: Status, where: WhereTables) -> None:
    """What the topics have and the tables have not."""
    from coordlib.history.topics_read import backlog

    if found.fields["tables"]["events"] is not None:
        left = backlog(where.tables_dir(), where.client(), found.fields["topic_prefix"])
        if left is not None:
            found.fields["archive_lag"] = {"records": left.records, "ms": left.ms}


def _added(
    client: Mapping[str, str], topics: Mapping[str, Any], prefix: str, layout: Any
) -> list[dict[str, Any]]:
    """Partitions that were added to topics since the prefix was made, and how many records are in
    them: nobody reads these."""
    from coordlib.kafka.bounds import log_bounds
    from coordlib.kafka.clients import open_admin, reaching, refusing
    from coordlib.kafka.layout import grown, recorded_layout
    from coordlib.kafka.logs import Place

    pipelines = {prefix: layout}
    if f"{(below := claims_prefix(prefix))}.progress" in topics:
        pipelines[below] = recorded_layout(client, below, TIMEOUT_S)
    counts = {name: len(topic.partitions) for name, topic in topics.items()}
    rows = [each for at, known in pipelines.items() if known for each in grown(at, known, counts)]
    places = [
        Place(row.topic, each) for row in rows for each in range(row.recorded, row.partitions)
    ]
    with reaching("Kafka stopped answering", "Look into the broker's log."):
        bounds = log_bounds(open_admin(client), places, TIMEOUT_S, on_denied=refusing(client))
    records = {place: log.end - log.start for place, log in bounds.items() if log is not None}
    return [
        {
            **row._asdict(),
            "records": sum(count for place, count in records.items() if place.topic == row.topic),
        }
        for row in rows
    ]


def added_lines(found: Status) -> list[str]:
    """A sentence for each topic to which partitions were added."""
    return [
        f"{row['topic']} has {row['partitions']} partitions, and the prefix was made with "
        f"{row['recorded']}: the others are not read, and {counted(row['records'], 'record')} "
        "there will have no answer"
        for row in found.fields["partitions_added"]
    ]


def _lag(
    client: Mapping[str, str], topics: Mapping[str, Any], prefix: str, shards: int, marker: Any
) -> Lag:
    """The records that were not judged."""
    from coordlib.kafka.bounds import first_times
    from coordlib.kafka.clients import reaching

    with reaching("Kafka stopped answering", "Look into the broker's log."):
        waiting = _waiting(client, topics, prefix, shards, marker)
        at = {place: offset for place, (offset, _) in waiting.items()}
        found = first_times(client, at, TIMEOUT_S, is_committed=False)  # as the job reads
    return Lag(waiting, found, round(now().timestamp() * 1000))


def _waiting(
    client: Mapping[str, str], topics: Mapping[str, Any], prefix: str, shards: int, marker: Any
) -> "dict[Place, tuple[int, int]]":
    """Of each partition with records that were not judged: the first one's offset, their number.

    Raises TimeoutError: a partition does not say where it ends.
    """
    from coordlib.kafka.bounds import log_bounds
    from coordlib.kafka.clients import open_admin, refusing
    from coordlib.kafka.logs import Place

    judged = marker.next_offsets if marker is not None else {}
    names = [name for name in (f"{prefix}.{each}" for each in INPUTS) if name in topics]
    places = [Place(name, each) for name in names for each in range(shards)]
    found: dict[Place, tuple[int, int]] = {}
    bounds = log_bounds(open_admin(client), places, TIMEOUT_S, on_denied=refusing(client))
    for place in places:
        if place not in bounds:
            raise TimeoutError(f"{place.topic}-{place.partition} does not say where it ends")
        log = bounds[place]
        if log is None:  # deleted this moment
            continue
        at = max(log.start, judged.get(place.topic, {}).get(str(place.partition), 0))
        if log.end > at:
            found[place] = (at, log.end - at)
    return found
