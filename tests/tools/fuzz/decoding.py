"""Throw inputs at the walls and note what comes of it: counts, what was raised, what was slow."""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Final

from tests.tools.fuzz.corpus import Found
from tests.tools.fuzz.mutate import Mutator
from tests.tools.fuzz.targets import ACCEPTED, BY_NAME, TARGETS, Target

#: A pause of the machine is no slowness of the decoder: a slow input is timed again, so often.
_TIMED_AGAIN: Final = 5
_KIB: Final = 1024


@dataclass(slots=True)
class Slowest:
    """The input that took the longest for its size; below a KB it counts as one."""

    target: str = ""
    ms_per_kb: float = 0.0
    size: int = 0
    first_bytes: bytes = b""


@dataclass(slots=True)
class Outcome:
    """What came of many inputs."""

    inputs: int = 0
    accepted: int = 0
    #: Refused inputs by target and error.
    refused: Counter[str] = field(default_factory=Counter)
    slowest: Slowest = field(default_factory=Slowest)
    #: How many inputs raised something.
    exceptions: int = 0
    #: By target and exception: what it said, and the smallest input that raised it.
    raised: dict[tuple[str, str], tuple[str, bytes]] = field(default_factory=dict)
    #: The smallest input for each way to be judged: what a corpus is made of.
    found: dict[tuple[str, str], bytes] = field(default_factory=dict)

    def add(self, other: "Outcome") -> None:
        self.inputs += other.inputs
        self.accepted += other.accepted
        self.refused += other.refused
        self.exceptions += other.exceptions
        for where, (said, value) in other.raised.items():
            self._keep_raised(where, said, value)
        if other.slowest.ms_per_kb > self.slowest.ms_per_kb:
            self.slowest = other.slowest
        for how, value in other.found.items():
            self._keep(how, value)

    def note(self, target: Target, value: bytes, verdict: str) -> None:
        """What a wall said of an input."""
        self.inputs += 1
        word, _, _ = verdict.partition(" ")
        if word == ACCEPTED:
            self.accepted += 1
        else:
            self.refused[f"{target.name} {word}"] += 1
        self._keep((target.name, verdict), value)

    def note_raised(self, target: Target, value: bytes, problem: Exception) -> None:
        """A bug."""
        self.inputs += 1
        self.exceptions += 1
        self._keep_raised((target.name, type(problem).__name__), str(problem)[:200], value)

    def _keep_raised(self, where: tuple[str, str], said: str, value: bytes) -> None:
        if where not in self.raised or len(value) < len(self.raised[where][1]):
            self.raised[where] = said, value

    def _keep(self, how: tuple[str, str], value: bytes) -> None:
        kept = self.found.get(how)
        if kept is None or len(value) < len(kept):
            self.found[how] = value


def fuzz(seed: int, count: int, corpus: list[Found]) -> Outcome:
    """`count` inputs, drawn from this seed."""
    rnd, outcome = Random(seed), Outcome()
    for target, value in _inputs(rnd, count, corpus):
        began = time.perf_counter_ns()
        try:
            verdict = target.wall(value)
        except Exception as problem:  # noqa: BLE001  that is what is looked for
            outcome.note_raised(target, value, problem)
            continue
        spent_ns = time.perf_counter_ns() - began
        if _per_kb(spent_ns, value) > outcome.slowest.ms_per_kb:
            _time_again(target, value, outcome)
        outcome.note(target, value, verdict)
    return outcome


def _inputs(rnd: Random, count: int, corpus: list[Found]) -> Iterator[tuple[Target, bytes]]:
    mutators = {
        target.name: Mutator(
            rnd,
            (*target.valid(), *(each.value for each in corpus if each.target == target.name)),
            target.is_json,
        )
        for target in TARGETS
    }
    turns = [target for target in TARGETS for _ in range(target.share)]
    for _ in range(count):
        target = rnd.choice(turns)
        yield target, mutators[target.name].draw()


def _time_again(target: Target, value: bytes, outcome: Outcome) -> None:
    least_ns = min(_time(target, value) for _ in range(_TIMED_AGAIN))
    ms_per_kb = _per_kb(least_ns, value)
    if ms_per_kb > outcome.slowest.ms_per_kb:
        outcome.slowest = Slowest(target.name, ms_per_kb, len(value), value[:64])


def _time(target: Target, value: bytes) -> int:
    began = time.perf_counter_ns()
    target.wall(value)
    return time.perf_counter_ns() - began


def _per_kb(spent_ns: int, value: bytes) -> float:
    return spent_ns / 1e6 / max(1.0, len(value) / _KIB)


def minimised(target_name: str, value: bytes) -> bytes:
    """A smaller input that raises the same: parts are left out as long as it still does."""
    wall = BY_NAME[target_name].wall
    kind = _raised_by(wall, value)
    step = max(1, len(value) // 2)
    while step:
        place = 0
        while place < len(value):
            shorter = value[:place] + value[place + step :]
            if kind is not None and _raised_by(wall, shorter) is kind:
                value = shorter
            else:
                place += step
        step //= 2
    return value


def _raised_by(wall: Callable[[bytes], str], value: bytes) -> type[Exception] | None:
    try:
        wall(value)
    except Exception as problem:  # noqa: BLE001
        return type(problem)
    return None
