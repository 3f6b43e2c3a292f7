"""`coord transactions abort|release|decide|finish`: how operators end transactions."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Final, Literal

from cyclopts import Group, Parameter

from coordlib.cli.kit.listing import of_rows
from coordlib.cli.kit.options import GroupName, PendingKey, TransactionalId, exactly_one
from coordlib.cli.kit.output import (
    confirm,
    counted,
    duration_text,
    now,
    print_json,
    say,
    visible,
)
from coordlib.cli.kit.where import HERE, Where, asking
from coordlib.cli.transactions import rows as shown
from coordlib.errors import ErrorCode, GroupError, SetupError

if TYPE_CHECKING:
    from coordlib.cli.transactions.view import SeenId, SeenPending
    from coordlib.core.wire.transactions import EndedTransaction, TopicsOfCluster


def abort(
    transactional_id: TransactionalId,
    /,
    *,
    of_kafka: Annotated[bool, Parameter(negative="")] = False,
    reason: str | None = None,
    yes: bool = False,
    where: Where = HERE,
) -> int:
    """Abort the open transaction of a producer that hangs; what it wrote and committed is void.

    The producer finds that its transaction was aborted, and may go on. With --of-kafka the id is
    one of Kafka's own: it is fenced, as by a new process under it, so that its producer must end.

    Parameters
    ----------
    transactional_id
        The transactional id.
    of_kafka
        The id is one of a transaction that Kafka decides.
    reason
        The reason, for the history of the id.
    yes
        Abort without asking.
    """
    if of_kafka:
        return _fence(where, transactional_id, reason, yes)
    from coordlib.cli.transactions.view import find_id

    seen, _ = where.read(find_id, transactional_id)
    _require_open(seen)
    say(_what_is_aborted(seen))
    confirm("Aborting its open transaction", f"transactional id {transactional_id}", yes)
    with asking(where) as admin:
        result = admin.abort_transaction(transactional_id, reason)
    if result != "abort":
        raise _too_late(seen.name)
    done = f"The transaction of {visible(transactional_id)} is aborted"
    return _report(where, "abort", done, **{"transactional-id": transactional_id})


def _require_open(seen: "SeenId") -> None:
    """Raises GroupError: nothing can be aborted, as far as the topics tell."""
    where = f"transactional id {seen.name}"
    if seen.is_quarantined:
        hint = f"Release it first: coord transactions release {seen.name}"
        raise GroupError(ErrorCode.COORDINATOR_NOT_AVAILABLE, where, hint)
    if seen.value is None:
        hint = f"It cannot be read: {seen.unreadable}. Install the version that the job has."
        raise GroupError(ErrorCode.UNKNOWN_SERVER_ERROR, where, hint)
    if seen.is_decided and seen.value.ended is not None:
        if seen.value.ended.result == "commit":
            raise _too_late(seen.name)
        hint = f"It is aborted, and not all have been told: coord transactions describe {seen.name}"
        raise GroupError(ErrorCode.INVALID_TXN_STATE, where, hint)
    if seen.pending_key is None:
        hint = f"No transaction is open under it: coord transactions describe {seen.name}"
        raise GroupError(ErrorCode.INVALID_TXN_STATE, where, hint)


def _too_late(name: str) -> GroupError:
    hint = f"It is committed, which nothing can change: coord transactions describe {name}"
    return GroupError(ErrorCode.INVALID_TXN_STATE, f"transactional id {name}", hint)


def _what_is_aborted(seen: "SeenId") -> str:
    from coordlib.core.transactions.transaction import count_of

    value = seen.value
    assert value is not None, "it is open"
    open_for = duration_text(seen.open_for_ms(shown.millis(now())))
    return visible(
        f"{seen.name}: open for {open_for}, producer {value.producer_id} in epoch {value.epoch}, "
        f"client {value.client}; offsets of {counted(len(value.groups), 'group')}, records in "
        f"{counted(count_of(value.partitions), 'partition')}"
    )


def _fence(where: Where, name: str, reason: str | None, yes: bool) -> int:
    """Kafka's own transactions: the coordinator has no part in them."""
    from coordlib.kafka.roles import Kind, Role, rights
    from coordlib.kafka.transactions import fence

    if reason is not None:
        raise SetupError(
            "Kafka keeps no reason.", "--of-kafka --reason", "Leave --reason out with --of-kafka."
        )
    own = rights(Role.JOB, where.topic_prefix(), claims="x")
    if name in {right.name for right in own if right.kind is Kind.TRANSACTIONAL_ID}:
        raise SetupError(
            "This is the id of the coordination job itself.",
            f"--of-kafka {visible(name)}",
            "Stop the job in its own way: coord down, or its supervisor.",
        )
    where.reach()
    say(
        f"{visible(name)}: Kafka aborts what is open under this id, and refuses what its producer "
        "still sends. An id that was never used is made."
    )
    confirm("Fencing its producer", f"transactional id {name} of Kafka", yes)
    fence(where.client(), name)
    done = f"{visible(name)} is fenced: its open transaction, if there was one, is aborted"
    return _report(where, "abort", done, kafka=True, **{"transactional-id": name})


def release(transactional_id: TransactionalId, /, *, yes: bool = False, where: Where = HERE) -> int:
    """Let a quarantined transactional id go on, from its state before the request that failed.

    Its event GroupQuarantined has the exception. An open transaction gets its full timeout again.

    Parameters
    ----------
    transactional_id
        The transactional id.
    yes
        Release without asking.
    """
    from coordlib.cli.transactions.view import find_id
    from coordlib.core.wire.transactions import TRANSACTION

    seen, _ = where.read(find_id, transactional_id)
    _require_quarantined(seen)
    say(_what_is_released(seen))
    confirm("Releasing it from quarantine", f"transactional id {transactional_id}", yes)
    with asking(where) as admin:
        admin.release_quarantine(transactional_id, space=TRANSACTION)
    done = f"{visible(transactional_id)} is released"
    return _report(where, "release", done, **{"transactional-id": transactional_id})


def _require_quarantined(seen: "SeenId") -> None:
    """Raises GroupError: there is nothing to release. What cannot be read may be quarantined."""
    if seen.value is not None and not seen.is_quarantined:
        hint = f"It is not quarantined: coord transactions describe {seen.name}"
        raise GroupError(ErrorCode.INVALID_REQUEST, f"transactional id {seen.name}", hint)


def _what_is_released(seen: "SeenId") -> str:
    """How it goes on."""
    value = seen.value
    if value is None:
        return visible(f"{seen.name}: it cannot be read: {seen.unreadable}")
    if seen.is_decided:
        assert value.ended is not None, "it is decided"
        then = f"{value.ended.result} is told to all that have not been told"
    elif seen.pending_key is not None:
        then = f"its open transaction has {duration_text(value.timeout_ms)} again"
    else:
        then = "no transaction is open"
    return visible(f"{seen.name}: quarantined in state {value.state}; when it goes on, {then}")


def _report(where: Where, command: str, done: str, **fields: object) -> int:
    """Say what was done, or print it as JSON; the exit code."""
    if where.format == "json":
        print_json(f"transactions {command}", now(), **fields)
    else:
        say(done)
    return 0


#: Partitions that are shown before the question; the others are counted.
SHOWN_MAX: Final = 10
RESULT: Final = Group("Decision", validator=exactly_one("--commit", "--abort"))


def decide(
    group: GroupName,
    key: PendingKey,
    /,
    *,
    commit: Annotated[bool, Parameter(group=RESULT, negative="")] = False,
    abort: Annotated[bool, Parameter(group=RESULT, negative="")] = False,
    reason: str,
    yes: bool = False,
    where: Where = HERE,
) -> int:
    """Commit or abort pending offsets by hand.

    Check first whether the sender's batch was written. Of a Delta table: if its member is gone and
    no other member starts. Of Kafka: only if the record was deleted before the job could look; else
    Kafka knows, and the job finds out. Committing what was not written loses records; aborting what
    was written repeats them.

    Parameters
    ----------
    group
        The group's id.
    key
        The key of the offsets, as `coord transactions pending` shows it.
    commit
        The offsets count from now on.
    abort
        The offsets are dropped, and what they stood for is read again.
    reason
        The reason, for the history of the group.
    yes
        Decide without asking.
    """
    from coordlib.cli.transactions.view import find_pending

    if not reason.strip():
        raise SetupError("A reason is needed.", "--reason", "Say why, for the history.")
    found, _ = where.read(find_pending, group, key)
    _require_undecidable(where, found)
    result: Literal["commit", "abort"] = "commit" if commit and not abort else "abort"
    _show(found, result)
    confirm(f"Deciding {result}", f"group {group}, key {key}", yes)
    with asking(where) as admin:
        admin.decide_pending(group, key, result, reason)
    done = f"{visible(key)} of {visible(group)} is decided: {result}"
    return _report(where, "decide", done, group=group, key=key, result=result)


def _require_undecidable(where: Where, found: "SeenPending") -> None:
    """Raises GroupError: somebody else decides it, or has."""
    from coordlib.cli.transactions.view import is_record_gone, log_starts
    from coordlib.core.wire.offsets import COORDINATOR, KAFKA

    entry, at = found.entry, f"group {found.group}, key {found.key}"
    if entry.decision:
        hint = f"It is decided ({entry.decision}): coord groups release {found.group}"
        raise GroupError(ErrorCode.INVALID_TXN_STATE, at, hint)
    if entry.decided_by == COORDINATOR:
        hint = "The coordinator decides it: coord transactions list, then abort its id."
        raise GroupError(ErrorCode.INVALID_REQUEST, at, hint)
    if entry.decided_by == KAFKA:
        starts = log_starts(where.client(), where.topic_prefix(), {found.shard})
        if not is_record_gone(found, starts):
            hint = (
                "Kafka decides it, and the job finds out. If an open transaction holds it up, this "
                "names it: coord transactions find-hanging (it takes no id; it looks at all)."
            )
            raise GroupError(ErrorCode.INVALID_REQUEST, at, hint)


def _show(found: "SeenPending", result: str) -> None:
    """What the decision is going to change."""
    entry, rows = found.entry, shown.offset_rows(found)
    waited = duration_text(max(0, shown.millis(now()) - entry.since_ms))
    table = f" {entry.table}" if entry.table else ""
    say(
        visible(
            f"{counted(len(rows), 'offset')} of group {found.group}, sent by client {entry.client} "
            f"as {entry.member or 'no member'}; decided by {entry.decided_by}{table}; waits for "
            f"{waited}:"
        )
    )
    will = "is committed" if result == "commit" else "is dropped"
    for _, row in rows[:SHOWN_MAX]:
        say(visible(f"  {row.topic}-{row.partition}: {row.offset} {will}"))
    if len(rows) > SHOWN_MAX:
        say(f"  … and {len(rows) - SHOWN_MAX} more")


#: Of partitions whose marker was not written.
LEFT: Final = of_rows("CLUSTER", "TOPIC", "PARTITION")
MARKERS_SHOWN_MAX: Final = 5  # topics that are named before the question


def finish(
    transactional_id: TransactionalId,
    /,
    *,
    data_file: Annotated[list[str] | None, Parameter(negative="")] = None,
    yes: bool = False,
    where: Where = HERE,
) -> int:
    """Write the missing markers of a transaction that is decided, in place of its producer.

    Readers of committed records go on then, and the id is free for its next transaction. To write
    a marker twice does no harm. Exit code 1: some partitions are in clusters that were not named,
    or did not take it.

    Parameters
    ----------
    transactional_id
        The transactional id.
    data_file
        File with librdkafka's options of another cluster that the transaction wrote to; may be
        repeated.
    yes
        Write without asking.
    """
    from coordlib.cli.transactions.view import find_id
    from coordlib.client.transactions.data_cluster import write_markers
    from coordlib.client.transactions.life import Unmarked
    from coordlib.core.transactions.transaction import as_rows

    clusters = [where.client(), *map(_options, data_file or ())]
    seen, _ = where.read(find_id, transactional_id)
    ended = _require_unwritten(seen)
    assert seen.value is not None, "it lacks markers"
    rows = as_rows(seen.value.unwritten)
    say(_what_is_written(seen.name, ended.result, rows))
    confirm(f"Writing the markers of its {ended.result}", f"transactional id {seen.name}", yes)
    with asking(where) as admin:
        unmarked = Unmarked.from_response(admin.incarnation, seen.name, ended, rows)
        written = write_markers(clusters, unmarked)
        if written:
            admin.markers_written(seen.name, ended.producer_id, ended.epoch, written)
    return _report_markers(where, seen.name, rows, written)


def _options(file: str) -> dict[str, str]:
    """The options of a cluster. Raises SetupError: it names no brokers, or cannot be read."""
    from coordlib.kafka.options import SERVERS, KafkaOptions, read_options

    servers = read_options(file).get(SERVERS)
    if not servers:
        raise SetupError(
            "No cluster is named: the file of options has no bootstrap.servers.",
            f"--data-file {file}",
            "Write bootstrap.servers=HOST:PORT into the file.",
        )
    return KafkaOptions.parse(file=file).librdkafka() | {SERVERS: servers}


def _require_unwritten(seen: "SeenId") -> "EndedTransaction":
    """How it ended. Raises GroupError: it lacks no marker, as far as the topics tell."""
    value = seen.value
    if (
        value is not None
        and value.unwritten
        and value.ended is not None
        and not seen.is_quarantined
    ):
        return value.ended
    hint = f"It lacks no marker: coord transactions describe {seen.name}"
    if seen.is_quarantined:
        hint = f"Release it first: coord transactions release {seen.name}"
    raise GroupError(ErrorCode.INVALID_TXN_STATE, f"transactional id {seen.name}", hint)


def _what_is_written(name: str, result: str, rows: "Sequence[TopicsOfCluster]") -> str:
    """Which partitions, by cluster and topic."""
    places = [f"{row.topic} of cluster {row.cluster}" for row in rows[:MARKERS_SHOWN_MAX]]
    more = (
        f" and {len(rows) - MARKERS_SHOWN_MAX} more topics" if len(rows) > MARKERS_SHOWN_MAX else ""
    )
    count = counted(sum(len(row.partitions) for row in rows), "partition")
    return visible(f"{name}: {result} into {count}: {', '.join(places)}{more}")


def _report_markers(
    where: Where,
    name: str,
    rows: "Sequence[TopicsOfCluster]",
    written: "Sequence[TopicsOfCluster]",
) -> int:
    """Name the partitions that were left out; the exit code."""
    from coordlib.core.wire.transactions import places_of

    done = set(places_of(written))
    left = [place for place in places_of(rows) if place not in done]
    if where.format == "json":
        fields = {"transactional-id": name, "written": len(done)}
        print_json("transactions finish", now(), **fields, left=LEFT.objects(left))
    elif left:
        LEFT.print(left)
    say(f"{counted(len(done), 'partition')} of {visible(name)} marked, {len(left)} left")
    if left:
        say("Name each cluster that is left: --data-file FILE, with its bootstrap.servers.")
    return 1 if left else 0
