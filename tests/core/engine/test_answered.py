"""INV-68: what a shard says and readers cannot see yet is bounded, by the log alone.

A small model of it: all short courses of a few requests whose answers are large, and random logs,
judged by the real fold in all kinds of cuts. The bounds are a thousandth of the real ones.
"""

import itertools
import json
from collections import Counter
from collections.abc import Iterator
from random import Random
from typing import NamedTuple

import msgspec
import pytest

from coordlib import limits
from coordlib.core.engine import effects as answered
from coordlib.core.engine.effects import (
    COMMITTED,
    EVENTS,
    GROUPS,
    REQUESTS,
    RESPONSES,
    At,
    Output,
    SizedRequest,
    UnreadOutputs,
    bytes_max,
    counted_bytes,
)
from coordlib.core.engine.step import THROTTLE_MS, TOO_MUCH_UNREAD
from coordlib.core.groups.offsets import commit as offset_commit
from coordlib.core.groups.protocol import COMMITS
from coordlib.core.wire import api, codec
from coordlib.errors import ErrorCode
from tests.core.groups.test_properties import compacted, run_in_batches, said
from tests.tools import assigned_logs, producers, random_logs
from tests.tools.assigned_groups import subscribe, topics
from tests.tools.bytes_out.measure import size_of
from tests.tools.core import InputRecord, Shard, ShardSettings, fold, restore, with_groups
from tests.tools.driving import (
    SETTINGS,
    Conversation,
    commit,
    delete,
    describe,
    fetch,
    heartbeat,
    join,
    leave,
    pending_commit,
    settings,
    sync,
)

THROTTLED = ErrorCode.THROTTLING_QUOTA_EXCEEDED.name
PRODUCTION = msgspec.structs.replace(SETTINGS, checks_invariants=False)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousandth: what costs megabytes in a shard is kilobytes here."""
    monkeypatch.setattr(answered, "FREE_BYTES", 1_000)
    monkeypatch.setattr(answered, "FREE_SHARE", 1)
    monkeypatch.setattr(answered, "ROW_BYTES", 1_000)
    monkeypatch.setattr(answered, "SMALL_BYTES", 1_500)
    monkeypatch.setattr(limits, "ANSWERED_BYTES_MAX", 16_000)


# ---- the count ----------------------------------------------------------------------------------


def asked(request: api.Request, size_bytes: int = 0) -> SizedRequest:
    return SizedRequest(request, size_bytes)


def test_ordinary_requests_count_nothing() -> None:
    """What a request brings it may say again, and once more: a leader's shares."""
    assert counted_bytes(answered.FREE_BYTES, None) == 0
    assert counted_bytes(answered.FREE_BYTES + 5, None) == 5
    assert counted_bytes(1_000_000, asked(sync("a", 1, "m"), 500_000)) == 0
    assert counted_bytes(1_000_000, asked(fetch("a"), 100)) == 1_000_000 - 6 * limits.KIB - 200


def test_the_bound_of_a_shard_is_a_share_of_what_all_have() -> None:
    """One batch has the outputs of all shards: of 64 of them 4 GiB came together, and a laptop's
    driver collects 512 MiB."""
    assert [bytes_max(shards) // limits.MIB for shards in (1, 2, 3, 16, 32)] == [64, 64, 42, 8, 4]
    assert bytes_max(1_000) == 4 * limits.MIB
    assert all(2 * n * bytes_max(n) <= 256 * limits.MIB for n in range(1, 33))


def test_what_is_covered_counts_no_more() -> None:
    """A tick tells that readers can see everything up to a record."""
    count = UnreadOutputs([], 64 * limits.MIB)
    for offset in (3, 5, 9):
        count.count(offset, answered.ROW_BYTES)

    count.outputs_visible(5)
    assert (count.rows, count.total_bytes) == (((9, answered.ROW_BYTES),), answered.ROW_BYTES)
    count.outputs_visible(20)
    assert (count.rows, count.total_bytes) == ((), 0)


def test_a_tick_is_owed_before_anybody_has_to_wait() -> None:
    """Rule 6: an ordinary commit of a hundred rows is not worth a batch of its own."""
    most = 4 * limits.MIB
    least = most // answered.OWED_SHARE

    assert UnreadOutputs((), most).owed == -1
    assert UnreadOutputs(((3, 5), (7, least - 6)), most).owed == -1
    assert UnreadOutputs(((3, 5), (7, least - 5)), most).owed == 7
    for request in (fetch("a"), commit("a"), join("a")):
        count = UnreadOutputs([(7, least)], most)
        assert not count.must_wait(asked(request), 16 * limits.MIB, is_unread=True)


def test_small_counts_share_a_row() -> None:
    """The rows are state, and stand in the marker: some hundred at most, whatever is asked."""
    count = UnreadOutputs([], 64 * limits.MIB)
    for offset in range(100_000):
        count.count(offset, 600)

    assert len(count.rows) <= 60_000_000 // answered.ROW_BYTES + 1
    assert count.total_bytes == 60_000_000
    assert UnreadOutputs(count.rows, 64 * limits.MIB).rows == count.rows


@pytest.mark.parametrize(
    ("request_", "total", "size", "is_unread", "waits"),
    [
        (fetch("a"), 0, 16 * limits.MIB, False, False),
        (fetch("a"), 32 * limits.MIB, 16 * limits.MIB, False, False),
        (fetch("a"), 33 * limits.MIB, 16 * limits.MIB, False, True),
        (describe("a"), 48 * limits.MIB, limits.MIB, False, True),
        # The last quarter is for small answers.
        (fetch("a"), 60 * limits.MIB, 64 * limits.KIB, False, False),
        (fetch("a"), 64 * limits.MIB, 64 * limits.KIB, False, True),
        (delete("a"), 40 * limits.MIB, 200 * limits.MIB, False, True),
        # The largest has room before it is empty, or a busy shard would never do it.
        (delete("a"), 30 * limits.MIB, 200 * limits.MIB, False, False),
        # Members wait for their own group's outputs, and half as much again is kept for others.
        (join("a"), 92 * limits.MIB, 4 * limits.MIB, False, False),
        (join("a"), 93 * limits.MIB, 4 * limits.MIB, False, True),
        (join("a"), 60 * limits.MIB, 4 * limits.MIB, True, False),
        (join("a"), 61 * limits.MIB, 4 * limits.MIB, True, True),
        (leave("a", "m"), 64 * limits.MIB, 1, True, True),
        # A group whose commits are unread leaves the last quarter to others, whatever it commits.
        (commit("a"), 45 * limits.MIB, 3 * limits.MIB, True, False),
        (commit("a"), 46 * limits.MIB, 3 * limits.MIB, True, True),
        (commit("a"), 48 * limits.MIB, 1, True, True),
        (commit("a"), 61 * limits.MIB, 3 * limits.MIB, False, False),
        (commit("a"), 62 * limits.MIB, 3 * limits.MIB, False, True),
        # What says little is never refused.
        (fetch("a"), 500 * limits.MIB, 0, True, False),
        (commit("a"), 500 * limits.MIB, 0, True, False),
        (heartbeat("a", 1, "m"), 500 * limits.MIB, 9 * limits.MIB, True, False),
    ],
)
def test_who_waits(
    request_: api.Request, total: int, size: int, is_unread: bool, waits: bool
) -> None:
    """The table at the head of effects.py."""
    count = UnreadOutputs([(0, total)], 64 * limits.MIB)

    assert count.must_wait(asked(request_), size, is_unread) is waits


def test_a_refusal_is_one_to_try_again() -> None:
    """Clients repeat what is refused so; no wire version is needed for it."""
    assert ErrorCode.THROTTLING_QUOTA_EXCEEDED.retriable
    assert api.Heartbeat.WAITS is api.Waits.NEVER
    assert api.OffsetCommit.WAITS is api.PendingCommit.WAITS is api.Waits.AS_A_COMMIT


# ---- a model: all short courses -----------------------------------------------------------------

#: Texts that make one answer large.
METADATA = b"m" * 1_500


def with_members(talk: Conversation, group: str) -> None:
    """A group whose leader is told of three members with some kilobytes."""
    for client in "abc":
        talk.send(join(client, group=group, protocols={"range": METADATA}))
    talk.wait(8_000)
    leader = talk.group(group).leader
    shares = dict.fromkeys(talk.group(group).members, b"p")
    talk.send(sync(leader[0], 1, leader, group=group, assignments=shares))


def prepared() -> Conversation:
    """Two classic groups, and one with offsets; everything that was said is covered."""
    how = with_groups(PRODUCTION, initial_rebalance_delay_ms=3_000)
    talk = Conversation(how)
    with_members(talk, "g")
    with_members(talk, "h")
    rows = tuple(api.CommittedOffset("t", p, p, metadata="m" * 100) for p in range(30))
    talk.send(commit("tool", group="k", offsets=rows))
    talk.tick()
    talk.end_batch()
    return talk


#: What may come next: by a letter.
def next_of(letter: str, talk_offset: int, group: dict[str, str], count: int) -> api.AnyRequest:
    some = (api.TopicPartitions("t", tuple(range(9))),)
    return {
        "L": lambda: join("a", "j1", group="g", protocols={"range": METADATA}),  # the leader, again
        "H": lambda: join("a", "j1", group="h", protocols={"range": METADATA}),
        "F": lambda: fetch("x", id=f"f{count}", group="k"),
        "s": lambda: fetch("x", id=f"s{count}", group="k", topics=some),
        "R": lambda: join("b", f"r{count}", group="h", member=group["h"], generation=1),
        "T": lambda: api.Tick(v=1, published=talk_offset - 1),
        "t": lambda: api.Tick(v=1, published=talk_offset - 3),
    }[letter]()


class Course(NamedTuple):
    """A log from one state on, and what was said to it in one batch."""

    blob: bytes
    log: list[InputRecord]
    how: ShardSettings

    def errors(self, outputs: list[Output]) -> list[tuple[str, str]]:
        """By request: the error of each answer, in order."""
        found = [json.loads(o.value or b"{}") for o in outputs if o.topic == RESPONSES]
        return [(each["cause"], each["error"]) for each in found if each.get("id")]


@pytest.fixture
def courses(small: None) -> Iterator[Course]:
    talk = prepared()
    blob, first, now_ms = talk.shard.encode(), talk.next_offset, talk.now_ms
    members = {name: list(talk.group(name).members)[1] for name in "gh"}

    def all_of_them() -> Iterator[Course]:
        for letters in itertools.product("LHFsRTt", repeat=3):
            # Something that was said before them: nearly all that there is room for.
            log = [
                InputRecord(
                    REQUESTS,
                    first + n,
                    now_ms + n,
                    codec.encode(next_of(letter, first + n, members, n)),
                )
                for n, letter in enumerate(("F", "F", "L", *letters))
            ]
            yield Course(blob, log, talk.settings)

    return all_of_them()


def test_in_any_cut_the_same_requests_are_refused(courses: Iterator[Course]) -> None:
    """INV-02: all courses of three requests, whole and record by record."""
    refused = Counter[str]()
    for course in courses:
        whole = fold(course.blob, course.log, course.how)
        blob, outputs = course.blob, []
        for record in course.log:
            part = fold(blob, [record], course.how)
            blob, outputs = part.blob, outputs + part.outputs

        assert blob == whole.blob
        assert said(outputs) == said(whole.outputs)
        errors = course.errors(whole.outputs)
        assert errors == course.errors(outputs)
        refused.update(error for _, error in errors)
    assert refused[THROTTLED] > 100
    assert refused["NONE"] > 1_000


def test_what_is_said_and_not_seen_is_bounded(courses: Iterator[Course]) -> None:
    """No tick in a batch covers what that batch says: so this bounds each batch of any cut."""
    largest = 0
    for course in courses:
        shard = Shard(course.blob, course.how)
        published, unseen = shard.published, {-1: 0}
        groups, free = len(shard.groups), answered.FREE_BYTES + answered.FREE_SHARE * 5_000
        for record in course.log:
            begun = len(shard.outputs)
            shard.judge(record)
            unseen[record.offset] = size_of(shard.outputs[begun:])
            if shard.published > published:
                published = shard.published
                unseen = {at: size for at, size in unseen.items() if at > published}
            step = 12_000  # of the largest answer here
            most = limits.ANSWERED_BYTES_MAX + (1 + groups) * step + len(unseen) * free
            assert sum(unseen.values()) <= most
            largest = max(largest, sum(unseen.values()))
            assert shard._answered.total_bytes <= sum(unseen.values())
    assert largest > limits.ANSWERED_BYTES_MAX  # it was tight


def test_whoever_was_refused_is_answered_after_a_tick(courses: Iterator[Course]) -> None:
    """Nobody is refused for ever: the driver owes a tick, and after it all can be said again."""
    for course in itertools.islice(courses, 0, None, 7):
        done = fold(course.blob, course.log, course.how)
        refused = {cause for cause, error in course.errors(done.outputs) if error == THROTTLED}
        if not refused:
            continue
        assert done.status.owed >= max(int(cause.partition("-")[2]) for cause in refused) - 4
        assert done.status.owed >= 0
        offset = course.log[-1].offset + 1
        blob = done.blob
        for record in course.log:
            if f"r0-{record.offset}" not in refused:
                continue
            tick = codec.encode(api.Tick(v=1, published=offset - 1))
            again = [
                InputRecord(REQUESTS, offset, record.timestamp_ms + 100, tick),
                InputRecord(REQUESTS, offset + 1, record.timestamp_ms + 100, record.value),
            ]
            after = fold(blob, again, course.how)
            blob, offset = after.blob, offset + 2
            assert THROTTLED not in {error for _, error in course.errors(after.outputs)}
            assert course.errors(after.outputs)


# ---- a flood, and those beside it ---------------------------------------------------------------


def test_a_flood_of_questions_keeps_no_member_from_its_generation(
    small: None,
) -> None:
    """A leader's list is larger than what is left: its group has said nothing else that is large,
    so it is told all the same. It must never be refused for as long as others ask."""
    talk = prepared()
    for number in range(30):
        talk.send(fetch("x", id=f"f{number}", group="k"))
    assert THROTTLED in talk.send(fetch("x", id="last", group="k"))[0]

    for member in list(talk.group("g").members):
        metadata = {"range": METADATA}
        request = join(member[0], "again", member=member, generation=1, protocols=metadata)
        lines = talk.send(request)

    (told,) = [line for line in lines if line.startswith("answer a#again JoinGroup generation=2")]
    assert len(told) > 3 * len(METADATA)


def test_a_group_that_says_too_much_itself_waits(small: None) -> None:
    """A leader in a crash loop asks for its list again and again: others go on, it is put off."""
    talk = prepared()
    again = join("a", "j1", group="g", protocols={"range": METADATA})
    answers = [talk.send(again)[0] for _ in range(9)]
    other = talk.send(join("a", "j1", group="h", protocols={"range": METADATA}))[0]

    assert [THROTTLED in each for each in answers] == sorted(THROTTLED in each for each in answers)
    assert THROTTLED in answers[-1]
    assert "generation=1" in other
    talk.tick()
    assert "generation=1" in talk.send(again)[0]


def full_of_itself() -> Conversation:
    """Group g has said too much that nobody has seen: its leader asks for its list no more."""
    talk = prepared()
    again = join("a", "j1", group="g", protocols={"range": METADATA})
    while THROTTLED not in talk.send(again)[0]:
        pass
    return talk


def test_who_was_asked_to_join_again_is_never_put_off(small: None) -> None:
    """INV-57: the rejoin is in the log, so its sender's fence takes the demand for met (rule 10),
    and a cooperative member works on. If it were refused until the rebalance timeout, the group
    would go on without it, and give what it has to others before it could hear."""
    talk = full_of_itself()
    last = json.loads(next(o.value for o in reversed(talk.outputs) if o.topic == RESPONSES) or b"")
    assert last["throttle_time_ms"] == THROTTLE_MS
    for member in list(talk.group("g").members):
        metadata = {"range": METADATA}
        request = join(member[0], "again", member=member, generation=1, protocols=metadata)
        lines = talk.send(request)
        assert THROTTLED not in str(lines)
    leader = talk.group("g").leader or ""
    shares = dict.fromkeys(talk.group("g").members, b"p" * 3_000)
    assert talk.group("g").generation == 2

    assert THROTTLED not in str(talk.send(sync("a", 2, leader, assignments=shares)))
    told = [talk.send(sync(m[0], 2, m))[-1] for m in talk.group("g").members if m != leader]
    again = talk.send(sync("b", 2, list(talk.group("g").members)[1], id="s2"))

    assert [line.split()[2] for line in told] == ["SyncGroup"] * 2
    assert all("assignment=ppp" in line for line in told)
    assert THROTTLED in again[0]  # it has its share: this is only a question


def test_who_is_put_off_changes_nothing_and_history_tells(small: None) -> None:
    """INV-24, and whoever wanted to change something finds out why it did not happen."""
    talk = prepared()
    again = join("a", "j1", group="g", protocols={"range": METADATA})
    for _ in range(9):
        lines = talk.send(again)
    before = talk.group("g")

    assert lines == [
        f"answer a#j1 JoinGroup {THROTTLED} throttle_time_ms={THROTTLE_MS}",
        f"event RequestRejected generation=1 cause=r0-{talk.next_offset - 1} "
        f'reason="{TOO_MUCH_UNREAD}" error={THROTTLED} request=JoinGroup client=a',
    ]
    assert talk.group("g") is before


def rows_of(count: int, metadata: str = "") -> tuple[api.CommittedOffset, ...]:
    return tuple(api.CommittedOffset("t", p, 1, metadata=metadata) for p in range(count))


def test_ordinary_commits_are_taken_whatever_was_said(small: None) -> None:
    """They are what a member must get rid of before it lets go."""
    talk = prepared()
    for number in range(30):
        talk.send(fetch("x", id=f"f{number}", group="k"))

    lines = talk.send(commit("tool", group="k", offsets=rows_of(2)))

    assert "answer[k] tool#c OffsetCommit" in lines


def test_large_commits_wait_whole_and_history_tells(small: None) -> None:
    """One client with a member's rights ended the job for good with 120 commits of 10,000 rows: a
    row of 40 bytes writes 700, and a batch is planned by the bytes of its requests."""
    talk = prepared()
    large = [talk.send(commit("x", id=f"c{n}", group="k", offsets=rows_of(30))) for n in range(30)]
    taken = ["answer[k]" in str(each) and THROTTLED not in str(each) for each in large]

    assert taken == sorted(taken, reverse=True)
    assert 1 < sum(taken) < 20
    assert large[-1] == [
        f"answer[k] x#c29 OffsetCommit {THROTTLED} throttle_time_ms={THROTTLE_MS}",
        f"event[k] CommitRefused cause=r0-{talk.next_offset - 1} reason={THROTTLED} client=x "
        "request=OffsetCommit",
    ]
    other = talk.send(commit("x", group="other", offsets=rows_of(30)))
    assert THROTTLED not in str(other)  # a group that has nothing unread has room
    talk.tick()
    assert THROTTLED not in str(talk.send(commit("x", group="k", offsets=rows_of(30))))


def test_a_large_commit_that_waits_costs_no_judging(
    small: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A flood of them would be judged row by row for nothing."""
    talk = prepared()
    for number in range(30):
        talk.send(commit("x", id=f"c{number}", group="k", offsets=rows_of(30)))
    monkeypatch.setattr(offset_commit, "store", None)

    assert THROTTLED in talk.send(commit("x", id="last", group="k", offsets=rows_of(300)))[0]


def test_pending_commits_wait_likewise(small: None) -> None:
    """A flood of transactions' offsets is as large as one of commits."""
    talk = prepared()
    large = [
        talk.send(pending_commit("x", id=f"c{n}", group="k", offsets=rows_of(30, "m" * 30)))
        for n in range(30)
    ]

    assert THROTTLED not in str(large[0])
    assert THROTTLED in large[-1][0]
    assert talk.group("k").is_empty


def test_positions_count_nothing_and_are_not_refused(small: None) -> None:
    """INV-02: their place among the requests depends on the cut; what they say must not."""
    talk = prepared()
    before = talk.shard._answered.rows
    rows = tuple(api.CommittedOffset("t", p, 1, metadata="n" * 100) for p in range(30))
    for number in range(30):
        talk.send(commit("x", id=f"c{number}", group="k", offsets=rows), topic=COMMITS)

    assert talk.shard._answered.rows == before
    assert not [o for o in talk.outputs if THROTTLED.encode() in (o.value or b"")]


# ---- deadlines ----------------------------------------------------------------------------------


def large_division(talk: Conversation) -> None:
    """Three members share topics with long names: each division is some kilobytes."""
    names = {f"{n:02}{'x' * 100}": 3 for n in range(6)}
    talk.send(topics(names))
    for client in "abc":
        talk.send(subscribe(client, pattern=".*", session_timeout_ms=6_000))


def test_a_deadline_waits_while_its_group_has_said_too_much(small: None) -> None:
    """Members that die one after the other cost a division each: within one batch, as many as they
    like. So the next one waits for the tick that covers the one before; nothing else is lost."""
    talk = Conversation(PRODUCTION)
    large_division(talk)
    talk.tick()
    wish = subscribe("a", "w", member="a-t-0-1", generation=3, capacity=2, pattern=".*")
    talk.send(wish)
    assert talk.shard.groups["g"].stored.answered == talk.next_offset - 1
    talk.shard._answered.count(talk.next_offset - 1, limits.ANSWERED_BYTES_MAX)  # others have
    talk.end_batch()

    for _ in range(8):  # b and c are not heard, and nothing new is covered
        assert "MemberRemoved" not in str(talk.send(describe("x", group="none"), after_ms=1_000))
        talk.end_batch()
    assert len(talk.group().members) == 3
    assert talk.shard.status().owed >= 0

    assert "MemberRemoved" not in str(talk.tick())
    lines = talk.send(describe("x", group="none"))
    assert [line.split()[1] for line in lines if "session expired" in line][:1] == ["MemberRemoved"]
    assert [*talk.group().members] == ["a-t-0-1"]


def test_other_groups_deadlines_do_not_wait(small: None) -> None:
    """INV-33: whatever one group says, a dead member of another one is out in its time."""
    talk = prepared()
    talk.send(join("z", group="z", session_timeout_ms=6_000))
    talk.wait(8_000)
    talk.tick()
    for number in range(30):
        talk.send(fetch("x", id=f"f{number}", group="k"))
    for _ in range(9):
        talk.send(join("a", "j1", group="g", protocols={"range": METADATA}))
    assert talk.shard._answered.total_bytes > limits.ANSWERED_BYTES_MAX // 2

    lines = talk.wait(8_000)

    assert [line for line in lines if "MemberRemoved" in line and "[z]" in line]


def test_groups_that_have_said_nothing_wait_from_twice_the_bound_on(small: None) -> None:
    """A flood of new groups, each of which makes one large step: a shard's outputs had no end, as
    each of 20,000 groups was let through once."""
    talk = Conversation(with_groups(PRODUCTION, initial_rebalance_delay_ms=0))
    said = [
        str(talk.send(join("a", group=f"g{n}", protocols={"range": METADATA * 3})))
        for n in range(40)
    ]
    assert not [each for each in said if THROTTLED in each]  # what it brings it may say
    talk.tick()
    again = [
        str(talk.send(join("a", "j1", group=f"g{n}", protocols={"range": b"x"}))) for n in range(40)
    ]
    assert THROTTLED not in again[0]
    assert THROTTLED in again[-1]
    assert talk.shard._answered.total_bytes <= limits.ANSWERED_BYTES_MAX * 3 // 2


def with_many_due() -> Conversation:
    """Twenty server-assigned groups, of which one member each is due at the same record."""
    talk = Conversation(PRODUCTION)
    talk.send(topics({f"{n:02}{'x' * 100}": 3 for n in range(6)}))
    for number in range(20):
        for client, session_ms in (("b", 6_000), ("a", 600_000)):
            group = f"g{number:02}"
            talk.send(subscribe(client, group=group, pattern=".*", session_timeout_ms=session_ms))
        talk.tick()
    talk.end_batch()
    return talk


def test_all_deadlines_wait_from_twice_the_bound_on(small: None) -> None:
    """A job that stood still: all members of all groups are due at its first record, which cannot
    be split. What waits fires behind the tick, in the same order."""
    talk = with_many_due()
    blob, first = talk.shard.encode(), talk.next_offset
    log = []
    for n in range(20):
        covered = first + n - 1 if n % 5 == 4 else -1
        value = codec.encode(api.Tick(v=1, published=covered))
        log.append(InputRecord(REQUESTS, first + n, talk.now_ms + 1_000 * n, value))
    removed = []
    shard = Shard(blob, PRODUCTION)
    for record in log:
        begun = len(shard.outputs)
        shard.judge(record)
        new = shard.outputs[begun:]
        gone = sum(o.topic == EVENTS and b"MemberRemoved" in (o.value or b"") for o in new)
        removed += [gone] if gone else []
        assert shard._answered.total_bytes <= 2 * limits.ANSWERED_BYTES_MAX + 3_000  # of one
    assert len(removed) > 1
    assert sum(removed) == 20

    whole = fold(blob, log, PRODUCTION)
    outputs = []
    for record in log:
        part = fold(blob, [record], PRODUCTION)
        blob, outputs = part.blob, outputs + part.outputs
    assert blob == whole.blob
    assert said(outputs) == said(whole.outputs)


def test_decisions_wait_and_are_said_again(small: None) -> None:
    """A TxnDecided of 200 KB decides on 10,000 transactions, and each of them may write a
    thousand offsets. Those that are not judged stay among what the shard asks about."""
    talk = Conversation(PRODUCTION)
    talk.send(commit("tool", group="other"))
    rows = rows_of(20, "m" * 90)
    for number in range(10):
        talk.send(pending_commit("x", group=f"g{number}", offsets=rows))
        talk.tick()
    waiting = talk.shard.status().undecided
    assert len(waiting) == 10
    record = api.TxnDecided(v=1, committed=waiting)

    decided = []
    while waiting:
        talk.send(record)
        left = talk.shard.status().undecided
        decided.append(len(waiting) - len(left))
        assert talk.shard._answered.total_bytes <= 3 * limits.ANSWERED_BYTES_MAX
        assert talk.send(record) == [], "what is left waits for a tick, and the rest is decided"
        talk.end_batch()
        talk.tick()
        assert talk.shard.status().undecided == left
        waiting = left
    assert sum(decided) == 10
    assert len(decided) > 1


def test_messages_of_shards_wait_in_the_outbox(small: None) -> None:
    """A marker of 200 bytes commits all offsets of a transaction. It is judged when it is fed again
    behind a tick, and history has no line about that."""
    talk = producers.prepare_commit()
    talk.tick()
    before = dict(talk.shard.channels.heard)
    assert len(talk.outbox()) == 1
    talk.shard._answered.count(talk.next_offset - 1, 2 * limits.ANSWERED_BYTES_MAX)

    assert talk.feed() == []
    assert talk.shard.channels.heard == before
    talk.end_batch()
    assert talk.feed() == []
    talk.tick()
    talk.feed()
    assert talk.shard.channels.heard != before


def test_retention_waits_too(small: None) -> None:
    """Groups with a hundred thousand offsets each expire at the same check: not in one record."""
    how = settings(offsets_retention_ms=10_000, check_interval_ms=1_000)
    talk = Conversation(how)
    rows = tuple(api.CommittedOffset("t", p, p) for p in range(300))
    talk.tick()
    for number in range(6):
        talk.send(commit("tool", group=f"k{number}", offsets=rows))
        talk.tick()
    talk.tick(after_ms=9_000)

    left = []
    for _ in range(8):
        talk.tick(after_ms=4_000)
        left.append(len(talk.shard.groups))

    assert left == sorted(left, reverse=True)
    assert len(set(left)) > 2
    assert left[-1] == 0


# ---- random logs --------------------------------------------------------------------------------


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """So small that ordinary steps count, and are refused."""
    monkeypatch.setattr(answered, "FREE_BYTES", 900)
    monkeypatch.setattr(answered, "FREE_SHARE", 0)
    monkeypatch.setattr(answered, "ROW_BYTES", 500)
    monkeypatch.setattr(answered, "SMALL_BYTES", 300)
    monkeypatch.setattr(limits, "ANSWERED_BYTES_MAX", 1_600)


def drawn(seed: int) -> tuple[list[InputRecord], ShardSettings]:
    if seed % 2:
        return assigned_logs.draw_log(seed, 150)[0], assigned_logs.SETTINGS
    how = msgspec.structs.replace(SETTINGS, reply_partitions=3)
    return random_logs.draw_log(seed, 150, how)[0], how


@pytest.mark.usefixtures("tiny")
def test_the_cut_of_a_random_log_shows_nowhere() -> None:
    """INV-02, INV-15: with refusals, deadlines that wait, and everything else that happens."""
    throttled, refused = Counter[bool](), 0
    for seed in range(6):
        records, how = drawn(seed)
        luck = Random(seed)
        blob, outputs = run_in_batches(records, [], how)
        cuts = [luck.randrange(len(records)) for _ in range(luck.randint(1, 40))]
        other_blob, other_outputs = run_in_batches(records, cuts, how)

        assert said(outputs) == said(other_outputs)
        assert compacted(outputs) == compacted(other_outputs)
        assert blob == other_blob
        refused += sum(THROTTLED.encode() in (o.value or b"") for o in outputs)
        throttled[any_is_put_off(records, how)] += 1
    assert refused > 30
    assert throttled[True] > 0


def any_is_put_off(records: list[InputRecord], how: ShardSettings) -> bool:
    shard = Shard(None, how)
    found = False
    for record in records:
        shard.judge(record)
        found = found or bool(shard._put_off)
    return found


@pytest.mark.usefixtures("tiny")
def test_the_count_is_what_was_said_and_is_not_covered(monkeypatch: pytest.MonkeyPatch) -> None:
    """INV-15: told by another way, from the outputs of each step."""
    counted: list[tuple[int, int]] = []

    def spying(self: Shard, at: At, key: tuple[str, str], size_bytes: int) -> None:
        if size_bytes and at.topic == REQUESTS:
            counted.append((at.offset, size_bytes))
        whole(self, at, key, size_bytes)

    whole = Shard._count
    monkeypatch.setattr(Shard, "_count", spying)
    for seed in range(4):
        records, how = drawn(seed)
        counted.clear()
        shard = Shard(None, how)
        for record in records:
            begun = len(shard.outputs)
            shard.judge(record)
            here = sum(size for at, size in counted if at == record.offset)
            assert here <= size_of(shard.outputs[begun:])
            exact = sum(size for at, size in counted if at > shard.published)
            assert shard._answered.total_bytes >= exact
            # Rows are shared, so that some is covered later; no more than one row of it.
            assert shard._answered.total_bytes <= exact + answered.ROW_BYTES + 10_000


@pytest.mark.usefixtures("tiny")
def test_a_rebuilt_shard_owes_the_same_tick_and_counts_the_same() -> None:
    """INV-38: the count stands in the marker, with the shard's position."""
    seen = 0
    for seed in range(4):
        records, how = drawn(seed)
        done = fold(None, records, how)
        newest = compacted(done.outputs)
        groups = [v for (topic, _, _), v in newest.items() if topic == GROUPS and v]
        committed = [(k, v) for (topic, _, k), v in newest.items() if topic == COMMITTED and v]
        position = msgspec.json.decode(
            msgspec.json.encode(done.status.position), type=type(done.status.position)
        )

        rebuilt = Shard(restore(groups, committed, position), how)

        assert rebuilt._answered.rows == Shard(done.blob, how)._answered.rows
        assert rebuilt.status().owed == done.status.owed
        seen += bool(rebuilt._answered.rows)
    assert seen > 1


def test_the_driver_owes_a_tick_for_large_answers_alone(small: None) -> None:
    """Rule 6: nobody is a member, and whoever asks again must be answered some day."""
    talk = Conversation(PRODUCTION)
    talk.send(commit("tool", offsets=rows_of(3, "m" * 500)))
    assert talk.shard.status().owed == -1
    for _ in range(3):
        talk.send(fetch("tool"))
    talk.send(fetch("tool"))
    assert talk.shard.status().owed == talk.next_offset - 1
    talk.tick()
    assert talk.shard.status().owed == -1
    assert not talk.shard.status().has_deadline


def test_a_large_group_has_room_for_all_that_it_says() -> None:
    """With the real bounds: a thousand members come back, and nobody of them is put off."""
    talk = Conversation(PRODUCTION)
    for number in range(300):
        talk.send(join(f"m{number}", protocols={"range": b"m" * 400}))
        if number % 30 == 0:
            talk.end_batch()
    assert not [o for o in talk.outputs if o.topic == EVENTS and THROTTLED.encode() in o.value]
    assert isinstance(talk.shard._answered.total_bytes, int)
