"""Members of groups of both kinds."""

from functools import partial

import msgspec

from coordlib import limits
from coordlib.core.wire import api
from tests.tools import assigned_groups as assigned
from tests.tools.bytes_out.measure import (
    CLIENT,
    ID,
    JOB,
    MANY,
    MEMBERS,
    NAME,
    PRODUCTION,
    TOPIC,
    WORDS,
    Made,
    case,
    silence,
    words_of,
)
from tests.tools.core import set_value
from tests.tools.driving import (
    Conversation,
    describe,
    find,
    heartbeat,
    join,
    leave,
    release,
    settings,
    sync,
)


def _joined(members: int, metadata: bytes = b"") -> Conversation:
    """A stable group of so many, of which the first leads."""
    how = settings(initial_rebalance_delay_ms=3_000)
    talk = Conversation(msgspec.structs.replace(how, checks_invariants=False))
    for number in range(members):
        own = metadata if number else b""
        words = words_of(number)
        talk.send(join(CLIENT, instance=f"i{number}", protocols={"range": own}, **words))
    talk.wait(8_000)
    talk.tick()
    return talk


def synced(members: int, metadata: bytes = b"", share: bytes = b"") -> Conversation:
    talk = _joined(members, metadata)
    group = talk.group(NAME)
    leader, shares = group.leader or "", dict.fromkeys(group.members, share)
    talk.send(sync(CLIENT, group.generation, leader, assignments=shares, **WORDS))
    talk.tick()
    return talk


def members_of(talk: Conversation) -> list[str]:
    return list(talk.group(NAME).members)


@case("JoinGroup", "a leader asks for its list again", times=4)
def _() -> Made:
    talk = synced(MANY, b"m" * 4_000)
    return talk, [join(CLIENT, instance="i0", protocols={"range": b""}, **WORDS)]


@case("JoinGroup", "all members join again", otherwise=MEMBERS, kept_times=4)
def _() -> Made:
    talk = synced(MANY)
    talk.send(join("z", group=NAME))
    generation, ids = talk.group(NAME).generation, members_of(talk)
    again = partial(join, CLIENT, protocols={"range": b""}, generation=generation)
    own = [each for each in ids if each.startswith('"')]
    return talk, [again(instance=f"i{n}", member=each, **words_of(n)) for n, each in enumerate(own)]


@case("SyncGroup", "a member asks for its share again")
def _() -> Made:
    talk = synced(3, share=b"s" * 100_000)
    asks = sync(CLIENT, 1, members_of(talk)[1], **WORDS)
    talk.send(asks)
    talk.tick()
    return talk, [asks]


@case(
    "SyncGroup",
    "all members ask for their shares",
    otherwise=MEMBERS,
    kept_times=4,
)
def _() -> Made:
    talk = synced(MANY, share=b"s" * 1_000)
    return talk, [sync(CLIENT, 1, each, **words_of(n)) for n, each in enumerate(members_of(talk))]


@case("SyncGroup", "a leader's shares", otherwise=MEMBERS, kept_times=4)
def _() -> Made:
    talk = _joined(MANY)
    ids = members_of(talk)
    for each in ids[1:]:
        talk.send(sync(CLIENT, 1, each, **WORDS))
    return talk, [sync(CLIENT, 1, ids[0], assignments=dict.fromkeys(ids, b""), **WORDS)]


@case("SyncGroup", "a leader that cannot assign", times=limits.GROUP_SIZE_MAX // MANY)
def _() -> Made:
    talk = _joined(MANY)
    ids = members_of(talk)
    for each in ids[1:]:
        talk.send(sync(CLIENT, 1, each, **WORDS))
    error = {"error": "UNKNOWN_SERVER_ERROR", "message": "m" * limits.REASON_LENGTH_MAX}
    return talk, [sync(CLIENT, 1, ids[0], **error, **WORDS)]


@case("Heartbeat", "of a member that is not there")
def _() -> Made:
    return synced(2), [heartbeat(CLIENT, 1, NAME, instance=NAME, **WORDS)]


@case("LeaveGroup", "others leave, by short instance ids", times=limits.LEAVERS_MAX // MANY)
def _() -> Made:
    rows = [api.Leaver("", f"i{number}") for number in range(MANY)]
    return synced(MANY), [leave(CLIENT, *rows, **WORDS)]


@case("DescribeGroup", "of a group with large shares")
def _() -> Made:
    return synced(MANY, share=b"s" * 3_000), [describe("a", group=NAME)]


@case("FindCoordinator", "any")
def _() -> Made:
    return Conversation(PRODUCTION), [find(CLIENT, **WORDS)]


@case("ApiVersions", "any")
def _() -> Made:
    return Conversation(PRODUCTION), [api.ApiVersions(v=1, client=CLIENT, id=ID, group=NAME)]


@case("ReleaseQuarantine", "of a group of many members")
def _() -> Made:
    talk = synced(MANY, b"m" * 1_000)
    broken = msgspec.structs.replace(talk.group(NAME), is_quarantined=True)
    set_value(talk.shard, NAME, broken)
    return talk, [release("a", group=NAME)]


def _divided() -> Conversation:
    """A server-assigned group with long names and many partitions, of one member."""
    talk = Conversation(PRODUCTION)
    talk.send(assigned.topics({f"{n:03}{TOPIC[:200]}": 20 for n in range(100)}))
    talk.send(assigned.subscribe("a", group=NAME, pattern=".*", session_timeout_ms=6_000))
    talk.tick()
    return talk


@case("Subscribe", "the first member of many partitions")
def _() -> Made:
    talk = Conversation(PRODUCTION)
    talk.send(assigned.topics({f"{n:03}{TOPIC[:200]}": 20 for n in range(50)}))
    return talk, [assigned.subscribe("a", group="g", pattern=".*")]


@case("Subscribe", "a member comes, and others are to let go")
def _() -> Made:
    talk = _divided()
    for number in range(20):
        talk.send(assigned.subscribe(f"m{number}", group=NAME, pattern=".*"))
    talk.tick()
    return talk, [assigned.subscribe("z", group=NAME, pattern=".*")]


@case("Release", "of partitions that another is to have, with positions")
def _() -> Made:
    talk = _divided()
    talk.send(assigned.subscribe("b", group=NAME, pattern=".*"))
    cause, member = talk.next_offset - 1, members_of(talk)[0]
    talk.tick()
    gone = tuple(api.CommittedOffset(f"000{TOPIC[:200]}", n, 0) for n in range(10))
    generation = talk.group(NAME).generation
    return talk, [assigned.let_go("a", generation, member, cause, group=NAME, offsets=gone)]


@case(
    "TopicMetadata",
    "more partitions of a topic that all groups want",
    otherwise=JOB,
    kept_times=8,
)
def _() -> Made:
    talk = Conversation(PRODUCTION)
    talk.send(assigned.topics({"t": 1}))
    for number in range(20):
        for client in "abc":
            talk.send(assigned.subscribe(client, group=f"{number:03}{NAME[:246]}"))
        talk.tick()
    return talk, [assigned.topics({"t": 500})]


@case("Tick", "a member's session ends, and its partitions are given to another", after_ms=1_000)
def _() -> Made:
    talk = _divided()
    talk.send(assigned.subscribe("b", group=NAME, pattern=".*", session_timeout_ms=600_000))
    talk.tick()
    return talk, silence(talk, 5)
