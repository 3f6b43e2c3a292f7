"""INV-67: what a server-assigned group accepts it can write, however little is let go of."""

import json
from random import Random

import msgspec
import pytest

from coordlib import limits
from coordlib.core.engine.effects import EVENTS, GROUPS, At, Output
from coordlib.core.engine.time import NEVER, Timer
from coordlib.core.groups.assigned import division
from coordlib.core.groups.assigned.group import (
    DEMAND_BYTES,
    GRANT_BYTES,
    Demand,
    Grant,
    Group,
    Member,
    Partitions,
    State,
    Step,
    partitions_bytes,
    text_bytes,
)
from coordlib.core.groups.assigned.protocol import ASSIGNED
from coordlib.core.wire import api, codec
from coordlib.job.batch import judge_readable
from coordlib.job.pipelines import fold_groups
from tests.tools.assigned_groups import (
    answer_demands,
    group_of,
    let_go,
    owned_in,
    subscribe,
    topics,
)
from tests.tools.core import InputRecord, context, fold
from tests.tools.driving import SETTINGS, START_MS, Conversation, leave, settings

#: The first record of a shard.
BEGIN = At(0, 1, "r", 0, 0, 0, "i", 1, "r0-0")

#: As the job runs: nothing is checked after a step that its transitions do not check.
PRODUCTION = msgspec.structs.replace(SETTINGS, checks_invariants=False)
DAY_MS = 24 * 3_600_000
LETTERS = "abcdefgh"


def cluster(each: int, length: int = 249) -> list[str]:
    """So many topics for each letter, with the longest names."""
    return sorted(f"{letter}{n:05}".ljust(length, "x") for letter in LETTERS for n in range(each))


def in_order(requests: list[api.AnyRequest]) -> list[InputRecord]:
    return [
        InputRecord("r", n, START_MS + 10 * n, codec.encode(each))
        for n, each in enumerate(requests)
    ]


def listings(names: list[str]) -> list[api.AnyRequest]:
    """As the driver tells them, in records of bounded length."""
    rows: list[api.AnyRequest] = []
    for first in range(0, len(names), limits.TOPICS_PER_RECORD_MAX):
        some = names[first : first + limits.TOPICS_PER_RECORD_MAX]
        after = names[first - 1] if first else None
        through = some[-1] if first + len(some) < len(names) else None
        rows.append(topics(dict.fromkeys(some, 1), after=after, through=through))
    return rows


def wishes(names: list[str]) -> list[InputRecord]:
    """One member wants one letter after the other, and lets go of nothing for a day."""
    requests = listings(names)
    member, times = "", {"session_timeout_ms": 1_800_000, "rebalance_timeout_ms": DAY_MS}
    for number, letter in enumerate(LETTERS):
        generation = number or -1
        wish = {"member": member, "generation": generation, "pattern": f"{letter}.*"}
        requests.append(subscribe("a", f"j{number}", **wish, **times))
        member = member or f"a-t-0-{len(requests) - 1}"
    return in_order(requests)


def saved_in(outputs: list[Output]) -> dict[str, bytes]:
    return {o.key.decode(): o.value for o in outputs if o.topic == GROUPS and o.value}


def events_in(outputs: list[Output], kind: str) -> list[dict[str, object]]:
    found = [json.loads(o.value or b"{}") for o in outputs if o.topic == EVENTS]
    return [each for each in found if each["type"] == kind]


def test_a_member_that_lets_go_of_nothing_does_not_stop_the_job() -> None:
    """Each new wish was granted beside all older ones, and the group's record grew beyond what an
    output may have: the task failed, the query ended, and the same batch came again for ever."""
    log = wishes(cluster(2_500))

    judge_readable(fold_groups, None, log, PRODUCTION)
    done = fold(None, log, PRODUCTION)

    saved = saved_in(done.outputs)
    assert len(saved["g"]) < limits.OUTPUT_BYTES_MAX // 2
    assert not events_in(done.outputs, "GroupQuarantined")
    started = events_in(done.outputs, "GenerationStarted")
    assert [bool(line["detail"].get("left_out")) for line in started] == [False, *[True] * 7]


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """A record has room for some ten topics with short names."""
    monkeypatch.setattr(limits, "ASSIGNED_PARTITIONS_BYTES_MAX", 1_200)


@pytest.mark.usefixtures("narrow")
def test_where_batches_end_changes_nothing_of_it() -> None:
    """INV-02: what is left out is decided by the record that is judged."""
    log = wishes(cluster(8, length=6))
    whole = fold(None, log, PRODUCTION)
    blob, events = None, []
    for record in log:
        part = fold(blob, [record], PRODUCTION)
        blob = part.blob
        events += [o for o in part.outputs if o.topic == EVENTS]

    assert blob == whole.blob
    assert events == [o for o in whole.outputs if o.topic == EVENTS]
    assert any("left_out" in str(o.value) for o in events)


def holding_a() -> Conversation:
    """a wants b* by now and holds a*, nothing of which is let go of; some of b* is left out."""
    talk = Conversation()
    talk.send(topics(dict.fromkeys(cluster(8, length=6), 1)))
    talk.send(subscribe("a", pattern="a.*"))
    talk.tick()
    wish = subscribe("a", "j2", member="a-t-0-1", generation=1, pattern="b.*")
    lines = talk.send(wish)
    assert any("left_out" in line for line in lines)
    assert len(group_of(talk).topics) < 8
    return talk


@pytest.mark.usefixtures("narrow")
def test_what_was_left_out_is_divided_when_there_is_room() -> None:
    """Nobody changes a wish or a topic any more, so nobody else would ever divide again."""
    talk = holding_a()
    talk.tick()
    talk.outputs.clear()

    answer_demands(talk, group_of(talk).members["a-t-0-1"])

    assert owned_in(talk) == {"a": {f"b{n:05}": (0,) for n in range(8)}}
    assert group_of(talk).state is State.STABLE
    assert not group_of(talk).has_left_out
    (line,) = events_in(talk.outputs, "GenerationStarted")
    assert line["reason"] == "room for more topics"


@pytest.mark.usefixtures("narrow")
def test_what_a_former_owner_may_have_counts_too() -> None:
    """An operator removed the member; another one wants b*, and has all of it in the end."""
    talk = holding_a()
    talk.send(leave("ops", "a-t-0-1"))
    talk.tick()
    talk.send(subscribe("b", pattern="b.*"))
    assert len(group_of(talk).topics) < 8

    talk.send(leave("a", "a-t-0-1"))  # the former owner itself says that it has stopped

    assert not group_of(talk).guards
    assert owned_in(talk) == {"b": {f"b{n:05}": (0,) for n in range(8)}}
    assert events_in(talk.outputs, "GenerationStarted")[-1]["reason"] == "room for more topics"


@pytest.mark.usefixtures("narrow")
def test_topics_that_come_while_others_are_held_are_left_out_and_named() -> None:
    """Nobody can be refused: the cluster's topics changed."""
    talk = holding_a()
    before = group_of(talk).topics
    lines = talk.send(topics(dict.fromkeys([*cluster(8, length=6), "b99999"], 1)))

    assert group_of(talk).topics == before
    assert not [line for line in lines if "Quarantined" in line]
    assert "b99999" in talk.shard.topics


@pytest.mark.usefixtures("narrow")
def test_a_group_keeps_what_it_has_when_the_bound_is_lowered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Code with a smaller bound takes over: running members are not asked to let go."""
    talk = holding_a()
    answer_demands(talk, group_of(talk).members["a-t-0-1"])
    owned = owned_in(talk)
    monkeypatch.setattr(limits, "ASSIGNED_PARTITIONS_BYTES_MAX", 100)

    talk.send(topics(dict.fromkeys([*cluster(8, length=6), "b99999"], 1)))

    assert owned_in(talk) == owned


# ---- many members with many partitions ----------------------------------------------------------


def filled_up(members: int, partitions: int) -> Conversation:
    """One has everything; others come, and fill up by one Release after the other."""
    talk = Conversation()
    talk.send(topics({"t": partitions}))
    for number in range(members):
        client = f"m{number}"
        talk.send(subscribe(client))
        for member in list(group_of(talk).members.values()):
            answer_demands(talk, member)
    return talk


def test_a_member_that_fills_up_by_many_releases_has_few_grants() -> None:
    """Of a thousand members with fifty partitions each everybody would have fifty grants after a
    rolling restart, and their record would have 12 MB: a group that did nothing wrong."""
    talk = filled_up(members=20, partitions=400)
    last = list(group_of(talk).members.values())[-1]

    assert sum(map(len, last.owned.values())) == 20
    assert len(last.grants) == limits.GRANTS_PER_MEMBER_MAX
    assert [each.fence for each in last.grants] == sorted(each.fence for each in last.grants)
    assert last.fence == last.grants[-1].fence == talk.next_offset - 1
    ASSIGNED.check(group_of(talk))


def test_grants_that_became_one_keep_no_smaller_fence_and_no_older_generation() -> None:
    """INV-20: a store that saw the older fence of the same owner takes the newer one."""
    talk = filled_up(members=6, partitions=60)
    before = {
        (topic, partition): grant
        for member in group_of(talk).members.values()
        for grant in member.grants
        for topic, some in grant.partitions.items()
        for partition in some
    }
    talk.send(subscribe("late"))
    for member in list(group_of(talk).members.values()):
        answer_demands(talk, member)

    for member in group_of(talk).members.values():
        for (topic, partition), older in before.items():
            grant = member.grant_of(topic, partition)
            if grant is not None:
                assert grant.fence >= older.fence
                assert grant.generation >= older.generation


def test_who_answers_nothing_has_few_demands() -> None:
    """Divisions come faster than a member reads: what it was not asked for yet is asked for when it
    has met a demand, all of it at once."""
    talk = Conversation()
    talk.send(topics({"t": 60}))
    talk.send(subscribe("a"))
    for number in range(9):
        talk.send(subscribe(f"b{number}"))
    slow = group_of(talk).members["a-t-0-1"]
    assert len(slow.demands) == limits.DEMANDS_PER_MEMBER_MAX
    assert sum(map(len, slow.asked_back.values())) < 60 - 6

    answer_demands(talk, slow)

    (rest,) = group_of(talk).members["a-t-0-1"].demands
    talk.send(let_go("a", 10, "a-t-0-1", rest.timer.cause))
    assert {len(each["t"]) for each in owned_in(talk).values()} == {6}
    assert group_of(talk).state is State.STABLE


# ---- arithmetic ---------------------------------------------------------------------------------


def test_frames_are_bounded_by_what_is_counted_for_them() -> None:
    """The largest numbers that a grant and a demand may have."""
    top = limits.INT64_MAX
    grant = Grant(fence=top, generation=limits.INT32_MAX, partitions={})
    timer = Timer(duration_ms=limits.REBALANCE_TIMEOUT_MAX_MS, cause=top, due_ms=NEVER)

    assert len(codec.encode(grant)) + 1 <= GRANT_BYTES
    assert len(codec.encode(Demand(timer=timer, partitions={}))) + 1 <= DEMAND_BYTES


def spread(luck: Random, count: int, parts: int) -> list[tuple[int, ...]]:
    """Partitions in any way over so many parts; the empty ones are left out."""
    found: list[list[int]] = [[] for _ in range(parts)]
    for partition in range(count):
        luck.choice(found).append(partition)
    return [tuple(each) for each in found if each]


@pytest.mark.parametrize("seed", range(20))
def test_however_a_topic_is_divided_it_takes_no_more_than_was_counted(seed: int) -> None:
    """Admission counts a topic before anybody knows who will have it, and in how many pieces."""
    luck = Random(seed)
    members, name = luck.randint(1, 6), "n" * luck.randint(1, 249)
    count = luck.choice([1, 2, 7, 40, 300])
    how = settings(max_size=members)
    step = Step(ASSIGNED, "g", Group(group="g"), BEGIN, context(how))

    kept: list[Partitions] = []
    for pieces in (1, limits.GRANTS_PER_MEMBER_MAX, limits.DEMANDS_PER_MEMBER_MAX):
        kept += [{name: some} for some in spread(luck, count, members * pieces)]
    taken_bytes = sum(map(partitions_bytes, kept)) + text_bytes(name) + 16

    assert taken_bytes <= division._bytes_of(step, name, count)


def test_a_group_that_has_all_that_it_may_have_can_be_written() -> None:
    """Both bounds are used up, by names that JSON writes with an escape for each character."""
    name = '"' * 249
    of_one = division._bytes_of(_draft(), name, 1)
    topic_count = limits.ASSIGNED_PARTITIONS_BYTES_MAX // of_one
    names = [f"{n:04}{name}"[:249] for n in range(topic_count)]
    everything = dict.fromkeys(names, (0,))
    top = limits.INT64_MAX
    timer = Timer(duration_ms=DAY_MS, cause=top, due_ms=NEVER)
    full = Member(
        member="m",
        client="c",
        reply=0,
        session_timeout_ms=1,
        rebalance_timeout_ms=1,
        topics=(),
        first_id="x",
        subscribed_generation=1,
        joined_ms=top,
        grants=(Grant(fence=top, generation=limits.INT32_MAX, partitions=everything),),
        demands=(Demand(timer=timer, partitions=everything),),
        target=everything,
    )
    others = {}
    while True:
        number = len(others)
        wide = msgspec.structs.replace(full, member=f"m{number}", topics=(name,) * 40, **_NOTHING)
        others[wide.member] = wide
        group = Group(group="g", members=others | {"m": full}, topics=dict.fromkeys(names, 1))
        if group.members_bytes() > limits.ASSIGNED_MEMBERS_BYTES_MAX:
            break

    assert len(ASSIGNED.save(group)) <= group.size_bytes
    assert group.size_bytes - wide.own_bytes <= limits.RECORD_BYTES_MAX


_NOTHING: dict[str, object] = {"grants": (), "demands": (), "target": {}}


def _draft() -> Step:
    how = settings()
    return Step(ASSIGNED, "g", Group(group="g"), BEGIN, context(how))


# ---- a refusal as the last resort of admission --------------------------------------------------


@pytest.mark.parametrize("checks", [True, False])
def test_a_group_that_is_larger_than_it_may_be_takes_no_new_wish(
    monkeypatch: pytest.MonkeyPatch, checks: bool
) -> None:
    """It was accepted by code that counted less: to shrink is allowed, to grow is not."""
    talk = Conversation(msgspec.structs.replace(SETTINGS, checks_invariants=checks))
    talk.send(topics({"t": 40, "u": 40}))
    talk.send(subscribe("a"))
    talk.tick()
    monkeypatch.setattr(limits, "RECORD_BYTES_MAX", group_of(talk).size_bytes - 1)
    grow = subscribe("a", "j2", member="a-t-0-1", generation=1, topics=("t", "u"))

    assert talk.send(grow)[0] == "answer a#j2 Subscribe GROUP_MAX_SIZE_REACHED member=a-t-0-1"
    assert talk.send(leave("a", "a-t-0-1"))[-1].startswith("event GroupEmptied generation=2 ")
    assert not group_of(talk).is_quarantined
