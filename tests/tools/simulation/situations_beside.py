"""The table of situations, continued: stores, transactions, tables that decide, forgeries.

Counted from what a run has left, as those of groups are (`situations.py`).
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from msgspec import UNSET

from coordlib.client.kit.requests import offset_of
from coordlib.core.engine.effects import REQUESTS
from coordlib.core.wire import api
from coordlib.core.wire.data_headers import Marker, Txn
from coordlib.core.wire.offsets import COORDINATOR
from tests.tools.simulation.evidence import Told
from tests.tools.simulation.lake import table
from tests.tools.simulation.lake.faults import POINTS as LAKE_POINTS
from tests.tools.simulation.lake.member import GROUP as LAKE
from tests.tools.simulation.seen import (
    Counting,
    Seen,
    Situations,
    answered,
    counted,
    is_refused,
    told,
)
from tests.tools.simulation.signing import controls, effective, first_signed, genuine
from tests.tools.simulation.transactions.checks import UNSTABLE
from tests.tools.simulation.transactions.copying import GROUP as COPIERS
from tests.tools.simulation.transactions.courier import POINTS as COURIER_POINTS
from tests.tools.simulation.transactions.couriers import (
    AWAY,
    READER_AGAIN,
    RECORD_AGAIN,
)
from tests.tools.simulation.transactions.couriers import WORD_AGAIN as COURIERS_AGAIN
from tests.tools.simulation.transactions.producer import POINTS as COPIER_POINTS
from tests.tools.simulation.transactions.tellers import OUTCOMES
from tests.tools.simulation.transactions.tellers import WORD_AGAIN as TELLERS_AGAIN
from tests.tools.simulation.world import PREFIX

# ---- stores --------------------------------------------------------------------------------------

_INACTIVE: Final = "Inactive"


def _of_fleet(seen: Seen) -> list[Told]:
    fleet = seen.world.fleet
    return [e for e in seen.evidence.told if e.group == fleet.name] if fleet is not None else []


def _in_fleet(type_: str, holds: Callable[[Told], bool] = lambda _: True) -> Counting:
    return lambda seen: sum(e.type == type_ and holds(e) for e in _of_fleet(seen))


def _elected(how: str) -> Counting:
    def holds(event: Told) -> bool:
        return any(line.get("election") == how for line in event.detail["partitions"])

    return _in_fleet("PartitionsChanged", holds)


def _of_stores(seen: Seen) -> Mapping[str, int]:
    """What the world and its stores have counted, and what follows from several lines."""
    found: Counter[str] = Counter()
    if seen.world.fleet is not None:
        found.update(seen.world.fleet.met)
        for store in seen.world.fleet.stores:
            found.update(store.counts)
    silent: set[str] = set()
    stopping: set[str] = set()
    deleting: dict[str, int] = {}
    for event in _of_fleet(seen):
        if event.type == "TopicDeletionStarted":
            deleting[event.detail["topic"]] = event.offset
        elif event.type == "TopicDeleted":
            began = deleting.pop(event.detail["topic"], event.offset)
            found["waited"] += event.offset - began > 20
        elif event.type == "BrokerStateChanged":
            to, has_left = event.detail["to"], event.reason.startswith("left")
            found["back"] += event.member in silent and to == "Active"
            found["stopped"] += event.member in stopping and to == _INACTIVE and has_left
            silent.discard(event.member)
            stopping.discard(event.member)
            if to == _INACTIVE and event.reason == "session expired":
                silent.add(event.member)
            if to == "Stopping":
                stopping.add(event.member)
    return found


def _late_duplicates(seen: Seen) -> int:
    """Of changes of an ISR, as far as there is a cluster."""
    times, known = 0, set[tuple[str, str]]()
    for each in seen.evidence.asked:
        if isinstance(each.request, api.AlterPartition):
            key = (each.request.client, each.request.id)
            answers = seen.evidence.answers.get(each.coordinate, ())
            rows = [row for answer in answers for row in answer.get("results", ())]
            is_refused = any(row["error"] not in ("NONE", "NEW_LEADER_ELECTED") for row in rows)
            times += key in known and is_refused
            known.add(key)
    return times


OF_STORES: Final[Situations] = {
    **counted(
        _of_stores,
        {
            "store led": "led",
            "value committed": "committed",
            "controlled shutdown ended": "stopped",
            "ISR emptied": "empty ISR",
            "deletion that waited": "waited",
            "refused change of an ISR": "isr refused",
            "silent store came back": "back",
            "store replaced": "replaced",
            "mute leader stopped by its lease": "mute and stopped",
            "mute leader followed by another": "mute and succeeded",
        },
    ),
    "offline election": _elected("offline"),
    "leadership handed over": _in_fleet("PartitionsChanged", lambda e: e.reason == "leader let go"),
    "former leader guarded": _in_fleet("HandOverDelayed"),
    "leader put out": lambda seen: sum(
        event.reason == "did not let go in time" for event in _of_fleet(seen)
    ),
    "unclean election": _elected("unclean"),
    "partition moved": _in_fleet("ReassignmentCompleted"),
    "late duplicate of a change refused": _late_duplicates,
    "store registered anew": _in_fleet("BrokerUnregistered"),
}

# ---- transactions --------------------------------------------------------------------------------


def _of_copiers(seen: Seen) -> Mapping[str, int]:
    found: Counter[str] = Counter()
    if (copying := seen.world.copying) is not None:
        found.update(copying.met + copying.tellers.met)
        found.update(copying.habits.counts)
        found.update(copying.faults.counts)
        newest = {
            line.transaction: line.detail
            for line in seen.lines.get("ended", ())
            if line.transaction
        }
        found["unknown"] += sum(how == "unknown" for how in newest.values())
        shards: dict[str, set[int]] = {}
        for event in (event for type_ in OUTCOMES for event in seen.events.get(type_, ())):
            if event.detail.get("decided_by") == COORDINATOR:
                shards.setdefault(event.detail["transaction"], set()).add(event.shard)
        found["several shards"] += sum(len(each) > 1 for each in shards.values())
        found.update(_decisions(seen))
    return found


def _decisions(seen: Seen) -> Iterable[str]:
    """What the coordinator decides about transactions, and why."""
    return [f"{e.detail['result']} {e.reason}" for e in seen.events.get("TransactionPrepared", ())]


def _decided_while_aside(seen: Seen) -> int:
    times, released = 0, set[tuple[int, int]]()
    for event in seen.evidence.told:
        if event.group == COPIERS:
            at = event.shard, event.offset
            released |= {at} if event.type == "GroupReleased" else set()
            times += event.type in OUTCOMES and at in released
    return times


def _fetched(seen: Seen) -> Mapping[str, int]:
    """What copiers' fetches show of offsets that wait."""
    found: Counter[str] = Counter()
    waiting: set[str] = set()
    for each, answer in seen.answered.get(api.OffsetFetch, ()):
        if each.request.group == COPIERS and each.topic == REQUESTS:
            errors = {row["error"] for row in answer.get("offsets") or ()}
            found["waits"] += UNSTABLE in errors
            found["goes on"] += each.request.client in waiting and errors == {"NONE"}
            waiting.discard(each.request.client)
            if UNSTABLE in errors:
                waiting.add(each.request.client)
    return found


OF_COPIERS: Final[Situations] = {
    **counted(_of_copiers, [f"copier struck at {point}" for point in COPIER_POINTS]),
    **counted(_of_copiers, ["question failed", "look failed", "look was short"]),
    **counted(_of_copiers, [TELLERS_AGAIN, "rebuilt while offsets wait"]),
    **counted(
        _of_copiers,
        {
            "users' transaction committed": "committed",
            "users' transaction aborted": "aborted",
            "users' transaction without a record": "empty",
            "teller's transaction committed": "commit client",
            "teller's transaction aborted": "abort client",
            "teller's transaction timed out": "abort timeout",
            "teller's transaction ended by a newer process": "abort fenced",
            "teller's transaction told to several shards": "several shards",
            "end of a transaction unknown to its process": "unknown",
        },
    ),
    "offsets of a transaction dropped": told("OffsetsDropped", of=COPIERS),
    "offsets of a transaction refused": answered(
        api.PendingCommit, is_refused, lambda r: r.group == COPIERS
    ),
    "decision of a group that is set aside": _decided_while_aside,
    **counted(
        _fetched, {"fetch waits for a decision": "waits", "fetch goes on after a commit": "goes on"}
    ),
}


def _of_couriers(seen: Seen) -> Mapping[str, int]:
    found: Counter[str] = Counter()
    if (couriers := seen.world.couriers) is not None:
        found.update(couriers.traps.sprung)
        found.update(_decisions(seen))
        found["asks"] += sum(
            isinstance(each.request, api.DescribeTransaction) for each in seen.evidence.asked
        )
        for log in couriers.far.logs:
            marked: set[Txn] = set()
            # What couriers have written; copies are counted where they are made.
            for said in (record.said for record in log if record.repeats < 0):
                if isinstance(said, Marker):
                    found["by a successor"] += said.n is UNSET
                    found["twice"] += said.txn in marked
                    marked.add(said.txn)
                elif said is not None:
                    found["late"] += said.txn in marked
    return found


_OF_COURIERS: Final[Situations] = {
    **counted(_of_couriers, {f"courier struck at {point}": point for point in COURIER_POINTS}),
    **counted(_of_couriers, [AWAY, COURIERS_AGAIN, RECORD_AGAIN, READER_AGAIN]),
    **counted(
        _of_couriers,
        {
            "courier's transaction committed": "commit client",
            "courier's transaction aborted": "abort client",
            "courier's transaction timed out": "abort timeout",
            "courier's transaction ended by its successor": "abort fenced",
            "marker written by a successor": "by a successor",
            "marker written twice": "twice",
            "courier's record behind its marker": "late",
            "reader abroad asks the coordinator": "asks",
        },
    ),
}


def _of_lake(seen: Seen) -> Mapping[str, int]:
    found: Counter[str] = Counter()
    if (lake := seen.world.lake) is not None:
        found.update(lake.store.met)
        found.update(lake.traps.sprung)
    #: Token of an entry -> the member that has sent it.
    senders: dict[int, str] = {}
    for each in seen.evidence.asked:
        request = each.request
        if request.group != LAKE or not isinstance(request, api.PendingCommit | api.DecidePending):
            continue
        for answer in seen.evidence.answers.get(each.coordinate, ()):
            is_taken = answer["error"] == "NONE"
            if isinstance(request, api.PendingCommit):
                found["refused"] += not is_taken
                if is_taken:
                    senders[offset_of(answer["pending"])] = request.member
            else:
                found["late"] += answer["error"] == "INVALID_TXN_STATE"
                is_own = senders.get(offset_of(request.pending)) == request.member
                found[f"{request.result} by {'itself' if is_own else 'others'}"] += is_taken
    return found


OF_LAKE: Final[Situations] = {
    **counted(_of_lake, {f"lake member struck at {point}": point for point in LAKE_POINTS}),
    **counted(
        _of_lake,
        {
            "batch in doubt found in the table": "commit by others",
            "batch in doubt not found in the table": "abort by others",
            "batch and its offsets committed": "commit by itself",
            "batch given up by its own writer": "abort by itself",
            "offsets of a batch refused": "refused",
            "word about a batch came too late": "late",
        },
    ),
    **counted(_of_lake, [table.CONFLICT, table.CLAIM_LATE, table.FAILED, table.FAILED_BEHIND]),
    **counted(_of_lake, [table.AWAY, table.ANOTHER, table.OLD_COPY]),
}

# ---- what others write instead of drivers --------------------------------------------------------


def _of_forgeries(seen: Seen) -> Mapping[str, int]:
    world, shards = seen.world, range(seen.world.plan.shards)
    requests = [world.cluster.partitions[f"{PREFIX}.requests", shard] for shard in shards]
    found: Counter[str] = Counter()
    signed: list[set[bytes]] = [set() for _ in shards]
    for shard, offset in world.engine.written:
        signed[shard].add(requests[shard].at(offset).value or b"")
    for shard in shards:
        counts, written = effective(world, shard), genuine(world, shard)
        found["late"] += len(written - counts)
        for offset in controls(world, shard).keys() - written:
            value = requests[shard].at(offset).value or b""
            found["copied"] += value in signed[shard]
            found["moved"] += any(value in signed[other] for other in shards if other != shard)
    since = sum(first_signed(world, shard) for shard in shards)
    found["over"] += bool(world.plan.unsigned_ms and world.engine.settings.keys and since)
    return found


def _forged(seen: Seen) -> int:
    refused = seen.events.get("RequestRejected", ())
    by_others = [e for e in refused if "written by the job's driver alone" in e.reason]
    return len({(event.shard, event.offset) for event in by_others})


OF_FORGERIES: Final[Situations] = {
    "forged record refused": _forged,
    **counted(
        _of_forgeries,
        {
            "control record moved to another shard": "moved",
            "control record copied": "copied",
            "older driver's record came late": "late",
            "prefix of before goes over": "over",
        },
    ),
}

BESIDE: Final[Situations] = {
    **OF_FORGERIES,
    **OF_STORES,
    **OF_COPIERS,
    **_OF_COURIERS,
    **OF_LAKE,
}
