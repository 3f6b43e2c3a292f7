"""When the settle benchmark calls a group settled, and when it must not."""

import math
import threading
from collections.abc import Iterator

import pytest

from coordlib.core.wire import api
from coordlib.errors import SetupError
from coordlib.testing.fake_log import FakeLog
from tests.tools.bench.settle_light import Crew, LightMember
from tests.tools.bench.settle_sides import chosen_light
from tests.tools.bench.settled import Ownership, is_settled


def owned(*shares: str) -> dict[int, frozenset[int]]:
    """owned("012", "34"): the first member has partitions 0, 1 and 2."""
    return {n: frozenset(int(digit) for digit in share) for n, share in enumerate(shares)}


@pytest.mark.parametrize(
    ("shares", "members", "partitions", "expected"),
    [
        (("01", "23"), 2, 4, True),
        (("012", "34"), 2, 5, True),
        (("0", "1", ""), 3, 2, True),
        (("01", "23"), 3, 4, False),  # the newcomer has said nothing yet
        (("01", "23", ""), 2, 4, False),  # the leaver is still counted
        (("01", "12"), 2, 4, False),  # 1 has two owners
        (("01", "2"), 2, 4, False),  # 3 has none
        (("012", "3"), 2, 4, False),  # uneven
        (("02", "14"), 2, 4, False),  # a partition that does not exist
        ((), 0, 0, False),
    ],
)
def test_settled_is_every_partition_once_evenly_by_all(
    shares: tuple[str, ...], members: int, partitions: int, expected: bool
) -> None:
    assert is_settled(owned(*shares), members, partitions) is expected


def test_the_time_is_that_of_the_change_and_not_of_the_looking() -> None:
    """Whoever looks every 10 ms must not add his own interval to the figure."""
    now = [10.0]
    ownership = Ownership(2, clock=lambda: now[0])
    ownership.owns(1, [0])
    now[0] = 11.0
    ownership.owns(2, [1])
    now[0] = 12.5
    assert ownership.settled_since(2) == 11.0
    ownership.owns(2, [])
    assert ownership.settled_since(2) is None


def test_a_member_that_left_owns_nothing() -> None:
    ownership = Ownership(2)
    ownership.owns(1, [0, 1])
    ownership.owns(2, [1])
    assert ownership.settled_since(1) is None
    ownership.forget(2)
    assert ownership.settled_since(1) is not None


def test_a_state_that_does_not_stay_is_not_settled() -> None:
    """Eager members look settled for an instant when the next rebalance is already under way."""
    ownership = Ownership(1)
    stop = threading.Event()

    def flicker() -> None:
        while not stop.is_set():
            ownership.owns(1, [0])
            ownership.owns(1, [0])

    thread = threading.Thread(target=flicker)
    thread.start()
    try:
        assert ownership.wait(1, limit_s=0.3) is None
    finally:
        stop.set()
        thread.join()
    assert ownership.wait(1, limit_s=30.0) is not None


# ---- light members ------------------------------------------------------------------------------


@pytest.fixture
def log() -> Iterator[FakeLog]:
    """A job that goes on by itself."""
    log, is_over = FakeLog({"t": 12}), threading.Event()
    log.tell_topics()

    def judge() -> None:
        while not is_over.is_set():
            log.pump()

    job = threading.Thread(target=judge)
    job.start()
    yield log
    is_over.set()
    job.join()


@pytest.fixture
def crew(log: FakeLog) -> Iterator[Crew]:
    made = Crew(log.transport(), "g", "t")
    yield made
    made.end()


def test_light_members_share_as_consumers_do(log: FakeLog, crew: Crew) -> None:
    """One transport and one thread for all; what they say to the coordinator is the same."""
    ownership = Ownership(12)
    members: list[LightMember] = []
    for number in range(4):
        members.append(crew.start(number, ownership))
        assert ownership.wait(len(members), math.inf) is not None
    members[0].stop()
    members[0].join()
    assert ownership.wait(3, math.inf) is not None

    said = [each for batch in log.batches for each in batch]
    of_first = [type(each) for each in said if each.client == "bench-0"]
    assert of_first == [api.Subscribe, api.OffsetFetch, *[api.Release] * 3, api.LeaveGroup]
    asked = {each.client for each in said if isinstance(each, api.OffsetFetch)}
    assert asked == {f"bench-{number}" for number in range(4)}
    assert [each.failure for each in members] == [None] * 4


@pytest.mark.parametrize(
    ("light", "members", "protocol", "peers", "expected"),
    [
        (None, 20, "range", ("ours", "kafka"), False),
        (None, 200, "assigned", ("ours",), True),
        (True, 20, "assigned", ("ours",), True),
        (False, 200, "assigned", ("ours", "kafka"), False),
    ],
)
def test_large_groups_have_light_members(
    light: bool | None, members: int, protocol: str, peers: tuple[str, ...], expected: bool
) -> None:
    assert chosen_light(light, members, protocol, peers) is expected


@pytest.mark.parametrize(
    ("protocol", "peers", "sentence"),
    [("assigned", ("ours", "kafka"), "cannot be compared"), ("range", ("ours",), "Only members")],
)
def test_light_members_are_compared_with_nobody(
    protocol: str, peers: tuple[str, ...], sentence: str
) -> None:
    """Beside whole consumers they would win for what they leave out."""
    with pytest.raises(SetupError, match=sentence):
        chosen_light(None, 200, protocol, peers)
