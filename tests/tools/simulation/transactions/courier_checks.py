"""What must be true of couriers, of the cluster into which they write, and of who reads there.

The history is checked as any recorded one (`tests.tools check`): what was handed out, how each
transaction ended, and which input is in the output. Here it is held against what the job's history
says of each transaction, and against the other cluster's log.
"""

from collections.abc import Iterator

from coordlib.core.groups.offsets.pending_commit import key_of
from coordlib.core.wire.transactions import COMMIT
from coordlib.demo.history import Happened
from tests.tools.simulation.evidence import Evidence
from tests.tools.simulation.transactions import tellers
from tests.tools.simulation.transactions.checks import check_all_committed, fetches
from tests.tools.simulation.transactions.courier import MAIL
from tests.tools.simulation.transactions.couriers import READER, Couriers
from tests.tools.simulation.violation import Violation
from tests.tools.simulation.world import World


def check_carried(couriers: Couriers) -> None:
    """INV-96, INV-97: after the faults all is decided, marked, committed and handed out in time."""
    for group in couriers.groups:
        check_all_committed(couriers.world, group, MAIL)
    for number, log in enumerate(couriers.far.logs):
        if couriers.reader.stable(number) != len(log):
            raise Violation(f"INV-96: a transaction is open abroad, in partition {number}")


def check(couriers: Couriers, evidence: Evidence) -> None:
    """INV-91 to INV-96."""
    tellers.check(couriers.world, evidence)
    check_ended(evidence)
    check_handed_out(couriers, tellers.decisions(evidence))


def lines(world: World, evidence: Evidence) -> Iterator[Happened]:
    """What the group's members were told of its offsets, and what there is at the end."""
    for group in world.couriers.groups if world.couriers is not None else ():
        yield from fetches(world, evidence, group, READER)


def check_ended(evidence: Evidence) -> None:
    """INV-96: each transaction that began is decided, and its groups and partitions are told."""
    keys: dict[str, set[str]] = {}
    for event in evidence.told:
        if event.type.startswith("Transaction"):
            named = event.detail.get("producer_id", -1), event.detail.get("epoch", -1)
            keys.setdefault(event.type, set()).add(key_of(*named))
    began = keys.get("TransactionStarted", set())
    prepared = keys.get("TransactionPrepared", set())
    for before, after, what in (
        (began, prepared, "is open"),
        (prepared, keys.get("TransactionCompleted", set()), "is decided, and not told to all"),
    ):
        if left := sorted(before - after):
            raise Violation(f"INV-96: transaction {left[0]} {what}")


def check_handed_out(couriers: Couriers, decided: dict[str, str]) -> None:
    """INV-93, INV-94, INV-97: exactly what the job has committed, each record once and in order.

    Nothing is asked of the reader's rule: a record counts by what the job's history says of its
    transaction, and the first of those with its number alone.
    """
    for number in range(len(couriers.far.logs)):
        seen: set[tuple[str, int]] = set()
        wanted = []
        for offset, txn, s in couriers.stamped(number):
            key = key_of(txn.producer_id, txn.epoch)
            if decided.get(key) == COMMIT and (key, s) not in seen:
                wanted.append(offset)
            seen.add((key, s))
        given = [each.offset for each in couriers.handed_out if each.partition == number]
        for at, (one, other) in enumerate(zip([*wanted, -1], [*given, -1], strict=False)):
            if one != other:
                raise Violation(
                    f"INV-93: of partition {number} abroad record {other} was handed out as number "
                    f"{at}, and {one} is committed"
                )
