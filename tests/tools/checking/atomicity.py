"""Checks over the history of transactions: all of each takes place, or nothing of it.

Jepsen's list-append is the model: a partition is a list, each value is appended once, and a
transaction appends to several lists and commits offsets. A read gives a list in its order. Whether
a transaction of which nobody knows the outcome took place is said by what was read of it: then all
of it must be there.

Nothing is shown about a partition that nobody has read to its end.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Final

from coordlib.demo.history import Happened
from tests.tools.checking.told import ABORTED, OK, Told, Transaction

#: Lines about transactions; `ended` is also that of a process.
WHATS: Final = frozenset({"begin", "sent", "offsets", "read", "read_to_end", "fetched"})


def is_of_transactions(line: Happened) -> bool:
    """Whether a line is about a transaction, or about what readers see of some."""
    return bool(line.transaction) or line.what in WHATS


def check(history: list[Happened]) -> list[str]:
    """All violations, in words; none for a history in which each transaction is whole."""
    told = Told(history)
    checks = (
        _only_what_was_committed(told),
        _each_once(told),
        _one_list_for_all(told),
        _as_sent(told),
        _whole(told),
        _committed_offsets(told),
        _inputs_once(told),
    )
    return [sentence for found in checks for sentence in found]


def _only_what_was_committed(told: Told) -> Iterator[str]:
    """INV-93: what is read was committed before; nothing else is ever seen."""
    for (reader, partition), lines in told.read.items():
        for line in lines:
            where = f"{reader} reads {line.value!r} of {partition} at {line.t_ms} ms"
            sent = told.sent.get(line.value)
            if sent is None:
                yield f"INV-93: {where}, which nobody has sent"
                continue
            writer = told.transactions[sent.transaction]
            if sent.partitions[0] != partition:
                yield f"INV-93: {where}, which was sent to {sent.partitions[0]}"
            if not writer.may_count:
                how = "was aborted" if writer.outcome == ABORTED else "was never committed"
                yield f"INV-93: aborted read: {where}, and {writer.name} {how}"
            elif writer.decided_ms is not None and line.t_ms < writer.decided_ms:
                yield (
                    f"INV-93: read before decided: {where}; the commit of {writer.name} was "
                    f"called at {writer.decided_ms} ms"
                )


def _each_once(told: Told) -> Iterator[str]:
    """INV-97: a reader goes forward, and is given each value once."""
    for (reader, partition), lines in told.read.items():
        for before, after in pairwise(lines):
            if after.offset <= before.offset:
                yield (
                    f"INV-97: order turned round: {reader} reads offset {after.offset} of "
                    f"{partition} after {before.offset}, at {after.t_ms} ms"
                )
        for value, count in Counter(line.value for line in lines).items():
            if count > 1:
                yield f"INV-97: duplicate: {reader} reads {value!r} of {partition} {count} times"


def _one_list_for_all(told: Told) -> Iterator[str]:
    """INV-97: two readers are given the same value at the same place."""
    at: dict[tuple[str, int], Happened] = {}
    for (reader, partition), lines in told.read.items():
        for line in lines:
            first = at.setdefault((partition, line.offset), line)
            if first.value != line.value:
                yield (
                    f"INV-97: order turned round: offset {line.offset} of {partition} is "
                    f"{line.value!r} for {reader}, and {first.value!r} for {first.member}"
                )


def _as_sent(told: Told) -> Iterator[str]:
    """INV-97: the values of a writer stand in the order in which it sent them."""
    sent_as: dict[str, dict[str, list[str]]] = {}
    for value, line in told.sent.items():
        sent_as.setdefault(line.partitions[0], {}).setdefault(line.member, []).append(value)
    for (reader, partition), lines in told.read.items():
        places = {line.value: line.offset for line in lines}
        for writer, values in sent_as.get(partition, {}).items():
            for one, other in pairwise(value for value in values if value in places):
                if places[other] < places[one]:
                    yield (
                        f"INV-97: order turned round: {writer} sent {one!r} before {other!r} to "
                        f"{partition}, and {reader} reads them the other way"
                    )


def _whole(told: Told) -> Iterator[str]:
    """INV-91, INV-92: what took place is there to the last part, and stays."""
    for each in told.transactions.values():
        since_ms = [told.seen_ms[line.value] for line in each.sent if line.value in told.seen_ms]
        known_ms = each.known_ms if each.outcome == OK else min(since_ms, default=None)
        if known_ms is None or not each.may_count:
            continue
        for line in each.sent:
            partition = line.partitions[0]
            for reader, began_ms in told.ends.get(partition, ()):
                if began_ms <= known_ms or told.has(reader, partition, line.value):
                    continue
                missing = f"{reader} reads {partition} to the end from {began_ms} ms on"
                if since_ms:
                    yield f"INV-91: torn: {missing}, and lacks {line.value!r} of {each.name}"
                elif reader == each.member:
                    yield f"INV-92: own write missing: {missing}, and lacks its own {line.value!r}"
                else:
                    yield f"INV-92: lost write: {missing}, and lacks {line.value!r} of {each.name}"


def _committed_offsets(told: Told) -> Iterator[str]:
    """INV-91, INV-93: offsets that a group has are those of transactions that took place."""
    newest: dict[tuple[str, str], Happened] = {}
    for line in told.fetched:
        for place, offset in line.offsets.items():
            newest[line.group, place] = line
            if offset >= 0 and not _is_named(told, line, place, offset):
                yield (
                    f"INV-93: {line.member} fetches {offset} of {place} for {line.group} at "
                    f"{line.t_ms} ms, which nothing has committed by then"
                )
    ended_ms = max((e.known_ms or e.decided_ms or 0 for e in told.transactions.values()), default=0)
    for (group, place), line in newest.items():
        named = {
            each.name: offset
            for offset, committers in told.committers.get((group, place), {}).items()
            for each in committers
            if told.counts(each)
        }
        if line.began_ms > ended_ms and line.offsets[place] < max(named.values(), default=-1):
            name = max(named, key=lambda each: named[each])
            yield (
                f"INV-91: torn: {group} has committed {line.offsets[place]} of {place} at "
                f"{line.t_ms} ms, and {name} took place, with {named[name]}"
            )


def _is_named(told: Told, line: Happened, place: str, offset: int) -> bool:
    """Whether something has committed that offset before the answer came."""
    if (line.group, place, offset) in told.plain:
        return True
    return any(
        each.decided_ms is not None
        and each.decided_ms <= line.t_ms
        and told.counts(each) is not False
        for each in told.committers.get((line.group, place), {}).get(offset, ())
    )


def _inputs_once(told: Told) -> Iterator[str]:
    """INV-97: each input record below a group's offsets is in its committed output once.

    Asked where every partition of the output was read to its end; the input must have no gaps, and
    each of its records one record of output.
    """
    counting = [each for each in told.transactions.values() if told.counts(each)]
    made = _made(counting)
    for (group, key), names in made.items():
        if len(names) > 1:
            yield (
                f"INV-97: {group} has {key} in its committed output {len(names)} times: "
                f"{', '.join(names)}"
            )
    unsure = _made(each for each in told.transactions.values() if told.counts(each) is None)
    outputs = {line.partitions[0] for each in told.transactions.values() for line in each.sent}
    if not made or not outputs <= told.ends.keys():
        return
    there = made.keys() | unsure.keys()
    copying, ends = {group for group, _ in made}, dict[tuple[str, str], int]()
    rows = [each.offsets for each in counting]
    rows += [{(f.group, place): at for place, at in f.offsets.items()} for f in told.fetched]
    for where, offset in (row for each in rows for row in each.items()):
        if where[0] in copying:
            ends[where] = max(offset, ends.get(where, 0))
    for (group, place), end in sorted(ends.items()):
        missing = [n for n in range(end) if (group, f"{place}@{n}") not in there]
        if missing:
            yield (
                f"INV-97: {place}@{missing[0]} is not in the committed output of {group}, which "
                f"has committed {end} ({len(missing)} are missing)"
            )


def _made(transactions: Iterable[Transaction]) -> dict[tuple[str, str], list[str]]:
    """Group and input record -> the transactions that made a record of it, one for each time."""
    made: dict[tuple[str, str], list[str]] = {}
    for each in transactions:
        for line in each.sent:
            for group in each.groups_of(line.key) if line.key else ():
                made.setdefault((group, line.key), []).append(each.name)
    return made
