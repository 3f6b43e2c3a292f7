"""Programs with one member each, over the real core in memory. Two owners are refused at any time.

S = 8 s, RT = 12 s, a heartbeat every 2 s, so the margin is 2 s.
"""

from collections.abc import Sequence
from typing import Any

from coordlib.client.groups.assignors import Assignor
from coordlib.client.groups.member import ClassicMember, Member
from coordlib.client.kit.events import Partitions, TopicPartition
from coordlib.client.kit.requests import Timing
from coordlib.core.wire import api
from coordlib.errors import CoordError
from coordlib.testing.fake_log import FakeLog, FakeTransport

TIMING = Timing(
    session_timeout_ms=8_000,
    rebalance_timeout_ms=12_000,
    heartbeat_interval_ms=2_000,
    metadata_refresh_ms=5_000,
    rebalance_interval_ms=0,
)


class User:
    """A program with one member: works on what it is told to own, and commits when asked to go."""

    def __init__(
        self, log: FakeLog, name: str, assignors: Any, topics: Sequence[str], **more: Any
    ) -> None:
        self.transport: FakeTransport = log.transport()
        self.instance: str | None = more.get("instance")
        self.told: list[tuple[str, Partitions]] = []
        self.is_busy = False
        self.errors: list[CoordError] = []
        #: What it goes on with while it is busy: the core invariant is about this.
        self.works_on: set[TopicPartition] = set()
        self.position: dict[TopicPartition, int] = {}
        common = {
            "transport": self.transport,
            "client": name,
            "timing": TIMING,
            "on_assigned": self._assigned,
            "on_revoked": self._revoked,
            "on_lost": self._lost,
        }
        self.member = self._member(assignors, {**common, **more})
        self.member.subscribe(topics)

    def _member(self, assignors: Any, common: dict[str, Any]) -> Member[Any]:
        return ClassicMember("orders", assignors=assignors, **common)

    @property
    def owns(self) -> Partitions:
        return tuple(sorted(self.member.assignment))

    def _assigned(self, some: Partitions) -> None:
        self.told.append(("assigned", some))
        assert not self.works_on & set(some), "assigned twice"
        self.works_on |= set(some)

    def _revoked(self, some: Partitions) -> None:
        self.told.append(("revoked", some))
        assert self.works_on >= set(some), "revoked without having been assigned"
        mine = {each: at for each, at in self.position.items() if each in some}
        if mine:
            self.member.commit_async(mine)
        self.works_on -= set(some)

    def _lost(self, some: Partitions) -> None:
        self.told.append(("lost", some))
        assert self.works_on == set(some), "everything is lost at once"
        self.works_on = set()

    def poll(self) -> None:
        if self.is_busy:
            return
        try:
            self.member.poll()
        except CoordError as error:
            self.errors.append(error)


class World:
    """Some users, and time."""

    #: What its users are.
    USER: type[User] = User

    def __init__(
        self, topics: dict[str, int] | None = None, assignors: Sequence[str | Assignor] = ()
    ) -> None:
        self.log = FakeLog(topics or {"t": 4})
        self.assignors = assignors or ("range",)
        self.users: list[User] = []

    def join(
        self, *names: str, assignors: Any = None, topics: Sequence[str] = ("t",), **more: Any
    ) -> list[User]:
        made = [self.enter(name, assignors or self.assignors, topics, **more) for name in names]
        self.run(3_000)
        return made

    def enter(self, name: str, assignors: Any, topics: Sequence[str], **more: Any) -> User:
        user = self.USER(self.log, name, assignors, topics, **more)
        self.users.append(user)
        return user

    def close(self, user: User) -> None:
        self.users.remove(user)
        user.member.close(timeout_s=0)

    def poll_all(self) -> None:
        for user in self.users:
            user.poll()
        self.check()

    def check(self) -> None:
        """One owner at a time, and nobody works on what he was not told."""
        held = [each for user in self.users for each in user.member.assignment]
        assert len(held) == len(set(held)), f"two owners: {sorted(held)}"
        for user in self.users:
            assert user.works_on >= set(user.member.assignment)

    def run(self, for_ms: int, step_ms: int = 500) -> None:
        self.log.pump()
        self.log.advance(for_ms, self.poll_all, step_ms)

    @property
    def requests(self) -> list[api.Request]:
        """All that members wrote, in the order of the log."""
        return [request for batch in self.log.batches for request in batch]

    def batches_after_commit(self, client: str) -> int:
        """Batches of the job from a member's last commit to the request that it sent next."""
        sent = [
            (number, request)
            for number, batch in enumerate(self.log.batches)
            for request in batch
            if request.client == client and not isinstance(request, api.Heartbeat)
        ]
        last = max(at for at, (_, each) in enumerate(sent) if isinstance(each, api.OffsetCommit))
        assert isinstance(sent[last + 1][1], api.JoinGroup | api.LeaveGroup)
        return sent[last + 1][0] - sent[last][0]

    @property
    def generations(self) -> int:
        """The newest generation that anybody knows."""
        return max(user.member.generation for user in self.users)


def remove(world: World, user: User) -> None:
    """An operator thinks that it hangs."""
    leaver = api.Leaver(user.member.member_id)
    request = api.LeaveGroup(v=1, id="l", client="ops", group="orders", members=(leaver,))
    world.log.append(user.member.identity.shard, request)
    world.log.pump()


def t(*numbers: int) -> Partitions:
    return tuple(TopicPartition("t", number) for number in numbers)
