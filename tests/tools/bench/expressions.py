"""What expressions cost: one over many topics, and a group of many over all that a shard knows.

`expression` is RE2 alone. `expressions` is a whole step of a shard, from the record to its effects:
members with an expression each subscribed before there were topics, so the first join after that
matches every expression with every topic. Each step is a batch of its own: the shard is read from
its blob before, outside of what is timed. Topics and expressions are new ones in each run, so that
nothing of a run before it helps.
"""

from collections.abc import Mapping
from typing import Final

from msgspec.structs import replace

from coordlib import limits
from coordlib.core.wire import api
from coordlib.core.wire.topics import compile_pattern, resolve
from tests.tools.assigned_groups import group_of, subscribe, topics
from tests.tools.bench.figures import Took, summary, tell, timed
from tests.tools.driving import SETTINGS, Conversation

TEXTS: Final = (r"team-7\..*", ".*orders.*", "clicks-.*", "(a+)+$")
NAMES: Final = 10_000
REPEATS: Final = 15
GROUP_EXPRESSIONS: Final = 100
#: As many as a shard keeps in mind, but for those that are made.
GROUP_TOPICS: Final = limits.TOPICS_MAX - 2
GROUP_REPEATS: Final = 5
#: Half of the topics belong to teams that nobody reads.
TEAMS_PER_MEMBER: Final = 2


def run_all(bench: str) -> None:
    """All that is measured of expressions."""
    for text in TEXTS:
        run_expression(bench, text)
    run_group(bench)


def run_expression(bench: str, text: str, names: int = NAMES, repeats: int = REPEATS) -> None:
    """Measure one expression, compiled before, over many topics."""
    listed = [f"team-{number % 50}.orders-{number:05}" for number in range(names)]
    pattern = compile_pattern(text)
    runs = [timed(lambda: resolve(pattern, None, listed)) for _ in range(repeats)]
    tell(
        bench,
        "expression",
        text=text,
        topics=names,
        matched=len(runs[0][0]),
        each_ms=summary([took for _, took in runs]),
    )


def run_group(
    bench: str,
    members: int = GROUP_EXPRESSIONS,
    known: int = GROUP_TOPICS,
    repeats: int = GROUP_REPEATS,
) -> None:
    """Measure a group of as many expressions as members, over all topics that a shard knows."""
    steps: dict[str, list[Took]] = {}
    divided = 0
    for number in range(repeats):
        talk = _waiting(f"r{number}", members)
        listed = {
            f"r{number}-{each % (TEAMS_PER_MEMBER * members)}.t{each:05}": 1
            for each in range(known)
        }
        talk.shard.topics = dict(sorted(listed.items()))
        made = f"r{number}-0.u"
        requests: dict[str, api.AnyRequest] = {
            "first_division_ms": _newcomer(f"r{number}", members),
            "next_join_ms": _newcomer(f"r{number}", 0, client="next"),
            "topic_created_ms": _created(made, listed),
            "unwanted_topic_created_ms": _created(f"r{number}-none", listed | {made: 1}),
        }
        for step, request in requests.items():
            steps.setdefault(step, []).append(_judged(talk, request))
        divided = len(group_of(talk).topics)
    shape = {"expressions": members + 1, "topics": known, "divided": divided}
    tell(bench, "expressions", **shape, **{step: summary(took) for step, took in steps.items()})


def _waiting(run: str, members: int) -> Conversation:
    """A group whose members want topics that do not exist yet."""
    talk = Conversation(replace(SETTINGS, checks_invariants=False))
    for number in range(members):
        talk.send(_newcomer(run, number))
    talk.end_batch()
    return talk


def _newcomer(run: str, number: int, client: str = "c") -> api.Subscribe:
    at = f"{run}-{number}"
    return subscribe(client, at, pattern=rf"{at}\..*")


def _created(name: str, listed: Mapping[str, int]) -> api.TopicMetadata:
    """One topic more, as the driver tells it."""
    before = max(each for each in listed if each < name)
    return topics({name: 1}, after=before, through=name)


def _judged(talk: Conversation, request: api.AnyRequest) -> Took:
    talk.end_batch()
    _, took = timed(lambda: talk.send(request))
    return took
