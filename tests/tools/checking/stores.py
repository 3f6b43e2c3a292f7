"""Checks over the history of a replicated store: who led, what was acknowledged, what was read.

Linearizability is not searched for: a leader tells where in the partition's log a value lies, so
that an operation which ends before another begins must lie before it. Values of a key differ.
"""

from collections.abc import Iterable, Iterator
from itertools import pairwise

from coordlib.demo.history import Happened

_LEADING = ("led", "acknowledged", "answered")
_ANSWERS = ("acknowledged", "answered")


def one_leader(history: list[Happened]) -> Iterable[str]:
    """INV-71: who acted in a leader epoch does nothing after a later epoch has begun to act."""
    for partition, acts in _by_partition(history, _ANSWERS).items():
        newest = acts[0]
        for act in acts[1:]:
            if act.generation < newest.generation and act.t_ms > newest.t_ms:
                yield (
                    f"INV-71: {act.member} acts on {partition} at {act.t_ms} ms in leader epoch "
                    f"{act.generation}, after {newest.member} did in {newest.generation} at "
                    f"{newest.t_ms} ms"
                )
            elif act.generation > newest.generation:
                newest = act


def epochs_have_one_leader(history: list[Happened]) -> Iterable[str]:
    """INV-72: a leader epoch has one leader and one fence, and fences rise with the epochs."""
    for partition, acts in _by_partition(history, _LEADING).items():
        known: dict[int, Happened] = {}
        for act in acts:
            first = known.setdefault(act.generation, act)
            if (first.member, first.fence) != (act.member, act.fence):
                yield (
                    f"INV-72: leader epoch {act.generation} of {partition} is {act.member}'s with "
                    f"fence {act.fence} at {act.t_ms} ms, and was {first.member}'s with "
                    f"{first.fence} at {first.t_ms} ms"
                )
        for before, after in pairwise(known[epoch] for epoch in sorted(known)):
            if after.fence <= before.fence:
                yield (
                    f"INV-72: leader epoch {after.generation} of {partition} has fence "
                    f"{after.fence}, and {before.generation} had {before.fence}"
                )


def nothing_stale(history: list[Happened]) -> Iterable[str]:
    """INV-78: who asks after an answer was there finds nothing older than that answer told.

    A put that was acknowledged, and a value that was read, stay: in the logs of later leaders.
    """
    for key, rows in _by_key(history).items():
        ended = sorted(rows, key=lambda each: each.t_ms)
        begun = sorted(rows, key=lambda each: each.began_ms)
        newest: Happened | None = None
        count = 0
        for each in begun:
            while count < len(ended) and ended[count].t_ms < each.began_ms:
                if newest is None or ended[count].offset > newest.offset:
                    newest = ended[count]
                count += 1
            if newest is None or each.offset > newest.offset:
                continue
            if each.what == "put" or each.offset < newest.offset:
                yield (
                    f"INV-78: {each.member} {_said(each)} {key} at {each.began_ms} ms, position "
                    f"{each.offset}; {newest.member} {_said(newest)} position {newest.offset} "
                    f"until {newest.t_ms} ms"
                )


def values_are_what_was_put(history: list[Happened]) -> Iterable[str]:
    """INV-78: a position of a log has one value of a key, and somebody has asked to put it there.

    What was read must have been put; two who are told one position are told one value.
    """
    asked = {
        (each.key, each.value): each.began_ms
        for each in history
        if each.what in ("put", "put_unknown")
    }
    told: dict[tuple[str, int], Happened] = {}
    for rows in _by_key(history).values():
        for each in rows:
            if each.offset < 0:
                continue
            first = told.setdefault((each.key, each.offset), each)
            if first.value != each.value:
                yield (
                    f"INV-78: position {each.offset} of {each.key} is {each.value!r} for "
                    f"{each.member} at {each.t_ms} ms, and was {first.value!r} for {first.member}"
                )
            if asked.get((each.key, each.value), each.t_ms + 1) > each.t_ms:
                yield (
                    f"INV-78: {each.member} reads {each.value!r} of {each.key} at {each.t_ms} ms, "
                    f"which nobody has put by then"
                )


def acknowledged_by_a_leader(history: list[Happened]) -> Iterable[str]:
    """A client that has an answer has it from a leader that told the same; else a line is lost."""
    if not any(each.what in _ANSWERS for each in history):
        return  # its stores wrote nothing down
    said = {(each.key, each.offset, each.value) for each in history if each.what in _ANSWERS}
    for each in history:
        if each.what in ("put", "got") and (each.key, each.offset, each.value) not in said:
            yield (
                f"INV-78: {each.member} {_said(each)} {each.key} at {each.t_ms} ms, position "
                f"{each.offset}, which no leader has said"
            )


def rows_are_sound(history: list[Happened]) -> Iterable[str]:
    """INV-72, INV-73: epochs rise one by one, and the leader is in an ISR that is of the replicas.

    Rows of one partition must stand in the order in which they were written.
    """
    for partition, rows in _by_partition(history, ("row",)).items():
        for row in rows:
            if row.leader >= 0 and row.leader not in row.isr:
                yield f"INV-73: {partition} at {row.t_ms} ms: leader {row.leader} is not in sync"
            if not set(row.isr) <= set(row.replicas):
                yield f"INV-73: {partition} at {row.t_ms} ms: {row.isr} of {row.replicas}"
        for before, after in pairwise(rows):
            yield from _of_change(partition, before, after)


def _of_change(partition: str, before: Happened, after: Happened) -> Iterator[str]:
    where = f"{partition} at {after.t_ms} ms"
    if (rise := after.partition_epoch - before.partition_epoch) not in (0, 1):
        yield f"INV-72: {where}: the partition epoch rose by {rise}"
    rise = after.generation - before.generation
    if rise not in (0, 1) or (after.leader != before.leader and rise != 1):
        yield f"INV-72: {where}: the leader epoch rose by {rise}"
    if after.fence < before.fence:
        yield f"INV-72: {where}: the fence fell from {before.fence} to {after.fence}"


def unread_puts(history: list[Happened]) -> list[Happened]:
    """Acknowledged puts after which nobody has read their key: nothing is shown about those."""
    begun = {key: max(_begun(rows), default=-1) for key, rows in _by_key(history).items()}
    puts = (each for each in history if each.what == "put")
    return [each for each in puts if begun[each.key] <= each.t_ms]


def _begun(rows: list[Happened]) -> Iterator[int]:
    return (each.began_ms for each in rows if each.what == "got")


def _said(each: Happened) -> str:
    return "put" if each.what == "put" else "read"


def _by_partition(history: list[Happened], whats: tuple[str, ...]) -> dict[str, list[Happened]]:
    found: dict[str, list[Happened]] = {}
    for each in history:
        if each.what in whats:
            for partition in each.partitions:
                found.setdefault(partition, []).append(each)
    return found


def _by_key(history: list[Happened]) -> dict[str, list[Happened]]:
    found: dict[str, list[Happened]] = {}
    for each in history:
        if each.what in ("put", "got"):
            found.setdefault(each.key, []).append(each)
    return found
