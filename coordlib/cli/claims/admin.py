"""`coord claims create|check|pause|resume|set-position`: what operators do to groups of claims."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from secrets import token_hex
from typing import TYPE_CHECKING, Annotated, Any, Final, Self

from cyclopts import Parameter

from coordlib.cli.kit.listing import of_rows
from coordlib.cli.kit.options import GroupName, Partitions, Replication, TopicName
from coordlib.cli.kit.output import confirm, counted, print_json, say, visible
from coordlib.cli.kit.where import (
    CLAIMS_HERE,
    HERE,
    Duration,
    Where,
    WhereClaims,
    require_claims_topic,
)
from coordlib.errors import CannotReach, SetupError
from coordlib.exit_codes import OK, UNHEALTHY
from coordlib.local.progress import ended_by_signals

if TYPE_CHECKING:
    from coordlib.client.claims.admin import ClaimsAdmin
    from coordlib.client.kit.events import TopicPartition

#: Messages of each coordination partition that `check` looks at, the newest ones.
CHECKED_MAX: Final = 100_000
#: A sender's clock is wrong beyond this part of the heartbeat interval.
SKEW_PARTS: Final = 4
FINDINGS: Final = of_rows("TOPIC", "IS", "MUST-BE", "LEVEL", "HINT")


def create(
    topic: str,
    /,
    *,
    partitions: Partitions = 4,
    replication: Replication | None = None,
    where: Where = HERE,
) -> int:
    """Create a coordination topic; one that exists is left as it is.

    Parameters
    ----------
    topic
        Its name: __marshal has heartbeats every 60 s, __marshal.6s every 6 s.
    partitions
        Topics are spread over them; fixed for the topic's life.
    replication
        Replicas of each partition; by default 3, or as many as there are brokers.
    """
    from coordlib.kafka.coordination import create_coordination

    require_claims_topic(None, topic)
    where.reach()
    is_new = create_coordination(where.client(), topic, partitions, replication)
    if where.format == "json":
        print_json("claims create", topic=topic, created=is_new)
    else:
        say(f"{topic} was created." if is_new else f"{topic} exists, and was left as it is.")
    return OK


@dataclass(slots=True)
class _Seen:
    """What stands in the newest messages."""

    interval_ms: int
    messages: int = 0
    #: Error name -> how many, and the newest coordinate.
    rejected: dict[str, tuple[int, str]] = field(default_factory=dict)
    #: (group, client) -> the processes that wrote, in turns.
    processes: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    #: (group, client) -> largest difference to the broker's stamp, in ms.
    skews: dict[tuple[str, str], int] = field(default_factory=dict)
    #: Groups in which a Marshal client writes.
    foreign: set[str] = field(default_factory=set)

    def note(self, number: int, record: Any, judgement: Any) -> None:
        from coordlib.core.claims.slots import Verdict
        from coordlib.core.wire import claims

        self.messages += 1
        coordinate = f"m{number}-{record.offset}"
        if judgement.verdict is Verdict.REJECTED:
            times, _ = self.rejected.get(judgement.error, (0, ""))
            self.rejected[judgement.error] = (times + 1, coordinate)
            return
        message = judgement.message
        who = (message.group, message.client)
        if claims.sender_of(message, record.offset) is None:
            self.foreign.add(message.group)
        turns = self.processes.setdefault(who, [])
        if not turns or turns[-1] != message.instance[:8]:
            turns.append(message.instance[:8])
        if record.timestamp_ms >= 0:
            skew_ms = message.time_s * 1_000 - record.timestamp_ms
            if abs(skew_ms) - 1_000 > self.interval_ms // SKEW_PARTS:
                self.skews[who] = max(self.skews.get(who, 0), skew_ms, key=abs)

    def twins(self) -> list[tuple[str, str]]:
        """Those of whom an earlier process went on after a later one had begun."""
        return sorted(who for who, turns in self.processes.items() if len(set(turns)) < len(turns))


def check(*, where: WhereClaims = CLAIMS_HERE) -> int:
    """Check the coordination topic's settings and newest messages; exit code 3 if it is unusable.

    Shown are settings with their hints, messages that no reader takes, clocks of senders that are
    wrong, and client ids that two processes use at once.
    """
    from coordlib.kafka.coordination import check_coordination

    where.reach()
    findings = check_coordination(where.client(), where.claims_topic)
    is_good = not any(each.is_fatal for each in findings)
    rows: list[tuple[object, ...]] = [
        (f.topic, f.what, f.must, "error" if f.is_fatal else "warning", f.hint) for f in findings
    ]
    seen = _look(where) if is_good else None
    if seen is not None:
        rows += _rows_of(where.claims_topic, seen)
    if where.format == "json":
        print_json(
            "claims check",
            topic=where.claims_topic,
            ok=is_good,
            messages=seen.messages if seen else None,
            marshal_groups=sorted(seen.foreign) if seen else None,
            findings=FINDINGS.objects(rows),
        )
    elif rows:
        FINDINGS.print(rows)
    if is_good and seen is not None:
        messages = counted(seen.messages, "message")
        say(f"{where.claims_topic} can be used; {messages} looked at")
    return OK if is_good else UNHEALTHY


def _look(where: WhereClaims) -> _Seen:
    with where.survey() as survey:
        seen = _Seen(survey.place.interval_ms)
        survey.read(is_whole=True, newest_max=CHECKED_MAX, on_record=seen.note)
    return seen


def _rows_of(topic: str, seen: _Seen) -> list[tuple[object, ...]]:
    from coordlib.core.wire.claims import SENTENCES, Fault

    rows: list[tuple[object, ...]] = []
    for error, (times, coordinate) in sorted(seen.rejected.items()):
        what = f"{counted(times, 'message')} rejected: {error}, newest {coordinate}"
        rows.append((topic, what, "a message of claims", "warning", SENTENCES[Fault(error)]))
    for (group, client), skew_ms in sorted(seen.skews.items()):
        what = f"client {client} of {group}: its clock is {skew_ms / 1_000:+.0f} s off"
        rows.append((topic, what, "the time", "warning", "Set the clock of its machine."))
    for group, client in seen.twins():
        hint = "Give each process a client.id of its own."
        what = f"client {client} of {group}: several processes at once"
        rows.append((topic, what, "one process", "warning", hint))
    return rows


RESETS: Final = of_rows("GROUP", "TOPIC", "PARTITION", "PRIOR-OFFSET", "NEW-OFFSET", "DELTA")
_TARGET: Final = re.compile(r"([A-Za-z0-9._-]{1,249}):([0-9]{1,10})=([0-9]{1,19})")
_SHIFT: Final = re.compile(r"[+-]?[0-9]{1,18}")
#: Offsets that are asked for, by partition: earliest and latest of the log.
Bounds = Mapping["TopicPartition", tuple[int, int]]


def pause(
    group: GroupName,
    /,
    *,
    for_: Annotated[Duration, Parameter(name="--for")],
    where: WhereClaims = CLAIMS_HERE,
) -> int:
    """Pause a group: consumers release all claims until it ends or `resume`.

    Parameters
    ----------
    group
        The group's id.
    for_
        How long: 90s, 10m, 2h, at most 7d; it ends by itself.
    """
    with _admin(where) as admin:
        admin.pause(group, for_)
    _tell(where, "claims pause", group, f"Group {visible(group)} is paused for {for_} s.")
    return 0


def resume(group: GroupName, /, *, where: WhereClaims = CLAIMS_HERE) -> int:
    """End a group's pause.

    Parameters
    ----------
    group
        The group's id.
    """
    with _admin(where) as admin:
        admin.resume(group)
    _tell(where, "claims resume", group, f"Group {visible(group)} is not paused any more.")
    return 0


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Target:
    """Where a group is to go on; one of these."""

    to_earliest: Annotated[bool, Parameter(negative="")] = False
    """To where the logs begin."""
    to_latest: Annotated[bool, Parameter(negative="")] = False
    """To where the logs end."""
    to_datetime: str | None = None
    """To the first record at or after a time: 2026-03-01T12:00:00Z."""
    shift_by: str | None = None
    """By so many records, +100 or -100, within the logs."""
    to: str | None = None
    """TOPIC:PARTITION=OFFSET,… for each."""


NO_TARGET: Final = Target()


def set_position(
    group: GroupName,
    /,
    *,
    target: Target = NO_TARGET,
    topic: TopicName | None = None,
    apply: Annotated[bool, Parameter(negative="")] = False,
    timeout: Duration = 900,
    yes: bool = False,
    where: WhereClaims = CLAIMS_HERE,
) -> int:
    """Set where a group goes on; prints what would change, and changes it only with --apply.

    The group is paused, its partitions are claimed as its consumers let go, released with the new
    positions, and the group is resumed, also after Ctrl-C. Exit code 1: some were not set; the
    message says which, and whether the group is still paused.

    Parameters
    ----------
    group
        The group's id.
    topic
        Only this topic, with all of its partitions.
    apply
        Do it.
    timeout
        How long consumers may take to let go: 90s, 10m; by default 15 minutes.
    yes
        Do it without asking.
    """
    aim = _Aim.of(target)
    positions = _positions(where, group, topic, set(aim.named))
    new = aim.over(where, positions, _bounds(where, list(positions)))
    rows = [_row(group, place, positions.get(place), new[place]) for place in sorted(new)]
    if not apply:
        _print(where, group, rows, is_applied=False)
        say("Nothing was changed: say --apply to do it.")
        return 0
    confirm(f"Setting {counted(len(new), 'position')}", f"group {group}", yes)
    return _apply(where, group, new, timeout)


def _apply(
    where: WhereClaims, group: str, new: "Mapping[TopicPartition, int]", timeout_s: int
) -> int:
    from coordlib.client.claims.admin import NotSet

    failure: NotSet | None = None
    with ended_by_signals(), _admin(where) as admin:
        try:
            outcomes = admin.set_positions(
                group, new, timeout_s=float(timeout_s), on_waiting=_say_holders
            )
        except NotSet as problem:
            outcomes, failure = problem.outcomes, problem
        except BaseException as reason:
            for note in getattr(reason, "__notes__", ()):
                say(note)
            raise
    done = [_row(group, each.place, each.prior, each.new) for each in outcomes if not each.error]
    if behind := sum(not each.is_copied for each in outcomes):
        say(
            f"Kafka's group {visible(group)} has not taken {counted(behind, 'position')}: the next "
            "owner of each copies it."
        )
    if failure is not None:
        if done and where.format != "json":
            RESETS.print(done)
        raise failure
    _print(where, group, done, is_applied=True)
    return 0


def _print(
    where: WhereClaims, group: str, rows: Sequence[tuple[object, ...]], is_applied: bool
) -> None:
    if where.format == "json":
        positions = RESETS.objects(rows)
        print_json("claims set-position", group=group, applied=is_applied, positions=positions)
    else:
        RESETS.print(rows)


def _say_holders(holders: "Mapping[TopicPartition, str]") -> None:
    for (topic, partition), client in sorted(holders.items()):
        say(f"Waiting for {visible(client)} to let go of {visible(topic)}:{partition}")


def _row(
    group: str, place: "TopicPartition", prior: int | None, new: int | None
) -> tuple[object, ...]:
    delta = None if prior is None or new is None else new - prior
    return group, place.topic, place.partition, prior, new, delta


def _admin(where: WhereClaims) -> "ClaimsAdmin":
    """An admin under a client id that no consumer has."""
    from coordlib.client.claims.admin import ClaimsAdmin

    where.reach()
    config = {
        **where.quiet_client(),
        "client.id": f"coord-claims-{token_hex(4)}",
        "coord.prefix": where.topic_prefix(),
    }
    return ClaimsAdmin(config, coordination_topic=where.claims_topic)


def _tell(where: WhereClaims, command: str, group: str, sentence: str) -> None:
    if where.format == "json":
        print_json(command, group=group)
    else:
        say(sentence)


# ---- which positions ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Aim:
    """A `Target`, checked before any broker is asked."""

    target: Target
    named: "Mapping[TopicPartition, int]"
    shift: int
    since_ms: int | None

    @classmethod
    def of(cls, target: Target) -> Self:
        """Raises SetupError: not exactly one way is given, or it cannot be read."""
        targets = {
            "--to-earliest": target.to_earliest,
            "--to-latest": target.to_latest,
            "--to-datetime": target.to_datetime is not None,
            "--shift-by": target.shift_by is not None,
            "--to": target.to is not None,
        }
        _require_one(targets)
        return cls(
            target,
            {} if target.to is None else _named(target.to),
            0 if target.shift_by is None else _shift(target.shift_by),
            None if target.to_datetime is None else _epoch_ms(target.to_datetime),
        )

    def over(
        self, where: WhereClaims, positions: "Mapping[TopicPartition, int | None]", bounds: "Bounds"
    ) -> "dict[TopicPartition, int]":
        """The new positions. Raises SetupError: an offset that the log does not have."""
        if self.named:
            return _within(self.named, bounds)
        if self.since_ms is not None:
            return _since(where, self.since_ms, bounds)
        if self.target.to_earliest or self.target.to_latest:
            at = 0 if self.target.to_earliest else 1
            return {place: bound[at] for place, bound in bounds.items()}
        return self._shifted(positions, bounds)

    def _shifted(
        self, positions: "Mapping[TopicPartition, int | None]", bounds: "Bounds"
    ) -> "dict[TopicPartition, int]":
        """Without those whose position is not known: from where should they be shifted? Kafka's
        group may have it, and a group that is to read 100 records again would read all."""
        known = {place: at for place, at in positions.items() if at is not None}
        if unknown := [f"{p.topic}:{p.partition}" for p in positions if p not in known]:
            say(f"Left as they are, since the log has no position of them: {', '.join(unknown)}.")
        if not known:
            what = "No partition of the group has a position that could be shifted."
            raise SetupError(what, f"--shift-by {self.target.shift_by}", "Name offsets: --to")
        return {
            place: min(max(at + self.shift, bounds[place][0]), bounds[place][1])
            for place, at in known.items()
        }


def _require_one(targets: Mapping[str, bool]) -> None:
    given = [name for name, is_given in targets.items() if is_given]
    if len(given) != 1:
        raise SetupError(
            "Two ways to name positions are given." if given else "No new positions are named.",
            " ".join(given) or "coord claims set-position",
            f"Give one of {', '.join(targets)}.",
        )


def _named(text: str) -> "dict[TopicPartition, int]":
    """Raises SetupError: no list of TOPIC:PARTITION=OFFSET, or one place twice."""
    from coordlib import limits
    from coordlib.client.kit.events import TopicPartition

    found: dict[TopicPartition, int] = {}
    for part in text.split(","):
        match = _TARGET.fullmatch(part.strip())
        place = TopicPartition(match[1], int(match[2])) if match else None
        is_good = match is not None and int(match[3]) <= limits.INT64_MAX
        if match is None or place is None or place in found or not is_good:
            raise SetupError(
                "This names no positions.",
                f"--to {text[:200]!r}",
                "For example --to orders:0=120,orders:1=95; each partition once.",
            )
        found[place] = int(match[3])
    return found


def _shift(text: str) -> int:
    if not _SHIFT.fullmatch(text):
        raise SetupError("This is no number of records.", f"--shift-by {text[:200]!r}", "Try -100.")
    return int(text)


def _epoch_ms(text: str) -> int:
    """Raises SetupError for what is no time; without a zone it is UTC."""
    try:
        time = datetime.fromisoformat(text)
        time = time if time.tzinfo is not None else time.replace(tzinfo=UTC)
        return max(0, round(time.timestamp() * 1_000))
    except (ValueError, OverflowError) as problem:
        raise SetupError(
            "This is no time.", f"--to-datetime {text[:200]!r}", "Try 2026-03-01T12:00:00Z"
        ) from problem


def _positions(
    where: WhereClaims, group: str, topic: str | None, named: "set[TopicPartition]"
) -> "dict[TopicPartition, int | None]":
    """The group's positions, by the log. Raises SetupError: there is nothing to set."""
    from coordlib.cli.claims.view import rows_of
    from coordlib.client.kit.events import TopicPartition
    from coordlib.kafka.cluster import partitions_of

    with where.survey() as survey:
        views = survey.read()
    rows = rows_of(views, group, topic)
    found: dict[TopicPartition, int | None] = dict.fromkeys(named)
    found |= {TopicPartition(row.topic, row.partition): row.position for row in rows}
    if topic is not None and not named:
        numbers = partitions_of(where.client(), topic, 5.0)
        found |= {p: found.get(p) for p in (TopicPartition(topic, each) for each in numbers)}
    if named:
        found = {place: position for place, position in found.items() if place in named}
    if not found:
        raise SetupError(
            "The group has claimed nothing that could be set.",
            f"group {group} in {where.claims_topic}",
            "Check its name (coord claims list), or name a topic: --topic TOPIC",
        )
    return found


def _bounds(where: WhereClaims, places: "list[TopicPartition]") -> "Bounds":
    """Raises SetupError: a partition does not exist, or does not answer."""
    from coordlib.kafka.bounds import log_bounds
    from coordlib.kafka.clients import open_admin, reaching, refusing
    from coordlib.kafka.logs import Place

    client = where.client()
    admin = open_admin(client)
    with reaching("The bounds of the logs are not known.", "Try again."):
        found = log_bounds(admin, [Place(*place) for place in places], on_denied=refusing(client))
    bounds = {place: found.get(Place(*place)) for place in places}
    missing = [f"{p.topic}:{p.partition}" for p, each in bounds.items() if each is None]
    if missing:
        raise SetupError(
            "Partitions do not exist, or have no leader.", ", ".join(missing), "Check their names."
        )
    return {place: (each.start, each.end) for place, each in bounds.items() if each is not None}


def _within(named: "Mapping[TopicPartition, int]", bounds: "Bounds") -> "dict[TopicPartition, int]":
    """Raises SetupError: an offset that the log does not have."""
    wrong = [
        f"{place.topic}:{place.partition}={offset} of {bounds[place][0]} to {bounds[place][1]}"
        for place, offset in named.items()
        if not bounds[place][0] <= offset <= bounds[place][1]
    ]
    if wrong:
        raise SetupError("The logs do not have these offsets.", ", ".join(wrong), "Give others.")
    return dict(named)


def _since(where: WhereClaims, since_ms: int, bounds: "Bounds") -> "dict[TopicPartition, int]":
    """Raises CannotReach: a partition does not answer."""
    from coordlib.kafka.bounds import offsets_since
    from coordlib.kafka.clients import open_admin, reaching
    from coordlib.kafka.logs import Place

    what, hint = "The offsets of this time are not known.", "Try again."
    admin = open_admin(where.client())
    with reaching(what, hint):
        found = offsets_since(admin, [Place(*place) for place in bounds], since_ms)
    # The end is for those that have no record so new, and not for those that have not answered.
    if silent := [f"{p.topic}:{p.partition}" for p in bounds if Place(*p) not in found]:
        raise CannotReach(what, ", ".join(silent), hint)
    return {
        place: end if (at := found[Place(*place)]) is None else at
        for place, (_, end) in bounds.items()
    }
