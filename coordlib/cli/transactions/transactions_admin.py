"""`coord transactions abort|release`: what operators do to transactions that do not end."""

from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from coordlib.cli.kit.cluster_asking import asking
from coordlib.cli.kit.confirm import confirm
from coordlib.cli.kit.names import TransactionalId
from coordlib.cli.kit.output import counted, duration_text, now, print_json, say, visible
from coordlib.cli.kit.where import HERE, Where
from coordlib.cli.transactions import transaction_rows as shown
from coordlib.errors import ErrorCode, GroupError, SetupError

if TYPE_CHECKING:
    from coordlib.cli.transactions.transaction_view import SeenId


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
    from coordlib.cli.transactions.transaction_view import find_id

    topics = where.reach()
    seen = find_id(where.client(), topics, where.topic_prefix(), transactional_id)
    _require_open(seen)
    say(_what_is_aborted(seen))
    confirm("Aborting its open transaction", f"transactional id {transactional_id}", yes)
    with asking(where) as admin:
        result = admin.abort_transaction(transactional_id, reason)
    if result != "abort":
        raise _too_late(seen.name)
    said = f"The transaction of {visible(transactional_id)} is aborted"
    return told(where, "abort", said, **{"transactional-id": transactional_id})


def _require_open(seen: "SeenId") -> None:
    """Raises GroupError: nothing can be aborted, as far as the topics tell."""
    where = f"transactional id {seen.name}"
    if seen.is_quarantined:
        mend = f"Release it first: coord transactions release {seen.name}"
        raise GroupError(ErrorCode.COORDINATOR_NOT_AVAILABLE, where, mend)
    if seen.value is None:
        mend = f"It cannot be read: {seen.unreadable}. Install the version that the job has."
        raise GroupError(ErrorCode.UNKNOWN_SERVER_ERROR, where, mend)
    if seen.is_decided and seen.value.ended is not None:
        if seen.value.ended.result == "commit":
            raise _too_late(seen.name)
        mend = f"It is aborted, and not all have been told: coord transactions describe {seen.name}"
        raise GroupError(ErrorCode.INVALID_TXN_STATE, where, mend)
    if seen.pending_key is None:
        mend = f"No transaction is open under it: coord transactions describe {seen.name}"
        raise GroupError(ErrorCode.INVALID_TXN_STATE, where, mend)


def _too_late(name: str) -> GroupError:
    mend = f"It is committed, which nothing can change: coord transactions describe {name}"
    return GroupError(ErrorCode.INVALID_TXN_STATE, f"transactional id {name}", mend)


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
    from coordlib.kafka.fencing import fence
    from coordlib.kafka.roles import Kind, Role, rights

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
    said = f"{visible(name)} is fenced: its open transaction, if there was one, is aborted"
    return told(where, "abort", said, kafka=True, **{"transactional-id": name})


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
    from coordlib.cli.transactions.transaction_view import find_id
    from coordlib.core.wire.producers import TRANSACTION

    topics = where.reach()
    seen = find_id(where.client(), topics, where.topic_prefix(), transactional_id)
    _require_quarantined(seen)
    say(_what_is_released(seen))
    confirm("Releasing it from quarantine", f"transactional id {transactional_id}", yes)
    with asking(where) as admin:
        admin.release_quarantine(transactional_id, space=TRANSACTION)
    said = f"{visible(transactional_id)} is released"
    return told(where, "release", said, **{"transactional-id": transactional_id})


def _require_quarantined(seen: "SeenId") -> None:
    """Raises GroupError: there is nothing to release. What cannot be read may be quarantined."""
    if seen.value is not None and not seen.is_quarantined:
        mend = f"It is not quarantined: coord transactions describe {seen.name}"
        raise GroupError(ErrorCode.INVALID_REQUEST, f"transactional id {seen.name}", mend)


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


def told(where: Where, command: str, said: str, **fields: object) -> int:
    """Say what was done, or print it as JSON; the exit code."""
    if where.format == "json":
        print_json(f"transactions {command}", now(), **fields)
    else:
        say(said)
    return 0
