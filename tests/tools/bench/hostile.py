"""What a hostile client costs the others: joins of ever-new ids, and probes beside it.

Parts of the same length, one after the other, on the same running job: quiet; a flood of joins into
one group; quiet; a flood in which each join names a group of its own. Probes join and leave groups
of their own all the time; their answers are timed, those that come after the flood too. At the end
it is quiet once more, with what the flood left behind in the shards' state.
"""

import time
from collections import Counter
from typing import Any, Final

from confluent_kafka import Message

from coordlib.cli.where import Where
from coordlib.local.progress import phase, to_stderr
from coordlib.records import codec
from coordlib.records.partitioner import shard_of
from tests.tools import driving
from tests.tools.bench.crowd import METADATA, Record
from tests.tools.bench.figures import spread, tell, tell_machine
from tests.tools.bench.gauges import Costs
from tests.tools.bench.generator import Generator
from tests.tools.bench.load import WARM_SLICE_S
from tests.tools.bench.stand import Stand, standing

DRAIN_LIMIT_S: Final = 180.0
_NUMBER: Final = b"00000000"
_NAME: Final = "hostile-00000000"


class Joins:
    """Joins of clients that nobody has seen before. Pure."""

    def __init__(self, shards: int, token: str) -> None:
        self._shards, self._token = shards, token
        self._asked = 0

    def begin(self, part: str) -> None:
        """From now on into a group with this in its name, unless each has a group of its own."""
        self._one = f"hostile-{self._token}-{part}"
        self._many = f"hostile-{self._token}-{_NUMBER.decode()}"
        self._into_one, self._into_many = _template(self._one), _template(self._many)

    def next(self, has_many_groups: bool) -> Record:
        self._asked += 1
        number = b"%08d" % self._asked
        group = (
            self._many.replace(_NUMBER.decode(), number.decode()) if has_many_groups else self._one
        )
        template = self._into_many if has_many_groups else self._into_one
        value = template.replace(_NUMBER, number)
        return Record(value, group.encode(), shard_of(group, self._shards))


def _template(group: str) -> bytes:
    """A join whose every number is to be replaced: encoding each would slow the flood."""
    request = driving.join(_NAME, _NAME, group=group, reply=0, protocols={"range": METADATA})
    return codec.encode(request)


def error_of(answer: bytes) -> str | None:
    """The error of a JoinGroup answer to the flood; None: it is to somebody else, or another.

    By its bytes: to decode all of them would delay the probes.
    """
    if b'"client":"hostile-' not in answer or b'"type":"JoinGroup"' not in answer:
        return None
    return answer.partition(b'"error":"')[2].partition(b'"')[0].decode()


class Flood(Generator):
    """A generator whose load is such joins."""

    def __init__(self, config: dict[str, str], prefix: str) -> None:
        super().__init__(config, prefix, groups=1, members=1)
        self._joins = Joins(self._place.shards, self.probes.token)
        #: Whether each join names a group of its own.
        self.has_many_groups = False
        #: What the hostile client was answered.
        self.answers: Counter[str] = Counter()

    def begin(self, part: str) -> None:
        """Forget what was measured before."""
        self.probes.forget()
        self.pace.begin()
        self.answers.clear()
        self.lateness_s = 0.0
        self._joins.begin(part)

    def _beat(self, count: int) -> None:
        joins = (self._joins.next(self.has_many_groups) for _ in range(count))
        self.sent += self._write(joins)

    def _hear(self, message: Message) -> None:
        error = error_of(message.value() or b"")
        if error is None:
            super()._hear(message)
        else:
            self.answers[error] += 1


def measure(
    flood: Flood, stand: Stand, costs: Costs, part: str, seconds: float, rate: float, probes: float
) -> dict[str, Any]:
    """One part; what came of it."""
    to_stderr(f"{part}: {seconds:.0f} s")
    flood.begin(part)
    sent_before, judged_before = flood.sent, flood.pace.judged
    costs.begin()
    began = time.monotonic()
    flood.load(seconds, rate, probes)
    spent_s = time.monotonic() - began
    found = {
        "sent_per_s": round((flood.sent - sent_before) / spent_s),
        "judged_per_s": round((flood.pace.judged - judged_before) / spent_s),
        **flood.pace.figures(),
        **costs.figures(),
    }
    drained_s = flood.drain(DRAIN_LIMIT_S)
    return found | {
        # After draining: a probe that the flood delayed most is answered last.
        "join_s": spread(flood.probes.took_s, 0.5, 0.9, 0.99),
        "probes": len(flood.probes.took_s),
        "unanswered": flood.probes.unanswered,
        "refused_probes": flood.probes.refused,
        "drained_s": None if drained_s is None else round(drained_s, 2),
        "flood_answers": dict(flood.answers),
        "state_bytes": None if stand.stack is None else stand.stack.job.told().get("state_bytes"),
        "generator_late_s": round(flood.lateness_s, 3),
    }


def run(*, where: Where, joins_per_second: int, seconds: int, probes_per_second: float) -> int:
    """Quiet and hostile parts in turn, and how much longer others waited."""
    tell_machine("hostile")
    with standing(where) as stand:
        flood, costs = Flood(stand.config, stand.prefix), Costs(stand.stack)
        try:
            with phase(to_stderr, "Warming up the job"):
                flood.begin("warm")
                while not stand.is_warm():
                    flood.load(WARM_SLICE_S, 0, probes_per_second)
                flood.drain(DRAIN_LIMIT_S)  # a probe that is forgotten unanswered never leaves
            for part in ("one-group", "ever-new-groups"):
                flood.has_many_groups = part == "ever-new-groups"
                quiet = measure(flood, stand, costs, "quiet", seconds, 0, probes_per_second)
                tell("hostile", "quiet", **quiet)
                found = measure(
                    flood, stand, costs, part, seconds, joins_per_second, probes_per_second
                )
                tell("hostile", part, **found, ratio=_ratio(quiet["join_s"], found["join_s"]))
            after = measure(flood, stand, costs, "aftermath", seconds, 0, probes_per_second)
            tell("hostile", "aftermath", **after, ratio=_ratio(quiet["join_s"], after["join_s"]))
        finally:
            flood.close()
    return 0


def _ratio(
    quiet: dict[str, float | None], hostile: dict[str, float | None]
) -> dict[str, float | None]:
    return {
        share: round(slow / fast, 2)
        if (fast := quiet[share]) and (slow := hostile[share])
        else None
        for share in quiet
    }
