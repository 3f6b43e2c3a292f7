"""`coord claims create|check`: the coordination topic, and what stands in it."""

from dataclasses import dataclass, field
from typing import Any, Final

from coordlib.cli.claims.claims_where import CLAIMS_HERE, WhereClaims, require_claims_topic
from coordlib.cli.kit.numbers import Partitions, Replication
from coordlib.cli.kit.output import counted, print_json, print_table, say
from coordlib.cli.kit.where import HERE, Where
from coordlib.exit_codes import OK, UNHEALTHY

#: Messages of each coordination partition that `check` looks at, the newest ones.
CHECKED_MAX: Final = 100_000
#: A sender's clock is wrong beyond this part of the heartbeat interval.
SKEW_PARTS: Final = 4
FINDING_COLUMNS: Final = ("TOPIC", "IS", "MUST-BE", "LEVEL", "MEND")


def create(
    topic: str,
    /,
    *,
    partitions: Partitions = 4,
    replication: Replication = 3,
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
        Replicas of each partition; 1 for a single broker.
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
        from coordlib.core.claims.slot import Verdict
        from coordlib.core.wire import marshal

        self.messages += 1
        coordinate = f"m{number}-{record.offset}"
        if judgement.verdict is Verdict.REJECTED:
            times, _ = self.rejected.get(judgement.error, (0, ""))
            self.rejected[judgement.error] = (times + 1, coordinate)
            return
        message = judgement.message
        who = (message.group, message.client)
        if marshal.sender_of(message, record.offset) is None:
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

    Shown are settings with their mends, messages that no reader takes, clocks of senders that are
    wrong, and client ids that two processes use at once.
    """
    from coordlib.kafka.coordination import check_coordination

    where.reach()
    findings = check_coordination(where.client(), where.claims_topic)
    is_good = not any(each.is_fatal for each in findings)
    rows: list[tuple[object, ...]] = [
        (f.topic, f.what, f.must, "error" if f.is_fatal else "warning", f.mend) for f in findings
    ]
    seen = _look(where) if is_good else None
    if seen is not None:
        rows += _rows_of(where.claims_topic, seen)
    if where.format == "json":
        keys = ("topic", "is", "must-be", "level", "mend")
        print_json(
            "claims check",
            topic=where.claims_topic,
            ok=is_good,
            messages=seen.messages if seen else None,
            marshal_groups=sorted(seen.foreign) if seen else None,
            findings=[dict(zip(keys, row, strict=True)) for row in rows],
        )
    elif rows:
        print_table(FINDING_COLUMNS, rows)
    if is_good and seen is not None:
        said = counted(seen.messages, "message")
        say(f"{where.claims_topic} can be used; {said} looked at")
    return OK if is_good else UNHEALTHY


def _look(where: WhereClaims) -> _Seen:
    with where.survey() as survey:
        seen = _Seen(survey.place.interval_ms)
        survey.read(is_whole=True, newest_max=CHECKED_MAX, on_record=seen.note)
    return seen


def _rows_of(topic: str, seen: _Seen) -> list[tuple[object, ...]]:
    from coordlib.core.wire.marshal import SENTENCES, Fault

    rows: list[tuple[object, ...]] = []
    for error, (times, coordinate) in sorted(seen.rejected.items()):
        what = f"{counted(times, 'message')} rejected: {error}, newest {coordinate}"
        rows.append((topic, what, "a message of claims", "warning", SENTENCES[Fault(error)]))
    for (group, client), skew_ms in sorted(seen.skews.items()):
        what = f"client {client} of {group}: its clock is {skew_ms / 1_000:+.0f} s off"
        rows.append((topic, what, "the time", "warning", "Set the clock of its machine."))
    for group, client in seen.twins():
        mend = "Give each process a client.id of its own."
        what = f"client {client} of {group}: several processes at once"
        rows.append((topic, what, "one process", "warning", mend))
    return rows
