"""One member of a server-assigned group, fed by hand. S = 8 s, RT = 12 s, so the margin is 2 s."""

from typing import Any

from coordlib.client.groups.assigned import AssignedMachine
from coordlib.client.kit import events as sg
from coordlib.client.kit.events import Callback, Partitions, TopicPartition
from coordlib.client.kit.requests import Timing
from coordlib.core.wire import api
from tests.client.groups.classic.test_membership import IDENTITY, MEMBER
from tests.client.groups.classic.test_membership import Play as ClassicPlay

WANTED = sg.Subscription(topics=("t",))
Demands = dict[int, tuple[int, ...]]


def t(*numbers: int) -> Partitions:
    return tuple(TopicPartition("t", number) for number in numbers)


class Play(ClassicPlay):
    """Feeds a member, and keeps what it was told to send."""

    member: AssignedMachine  # type: ignore[assignment]  # the same way in

    def __init__(self) -> None:
        self.member = AssignedMachine(IDENTITY, Timing(8_000, 12_000, 3_000))
        self.sent: list[api.Request] = []
        self.offset = 39

    def subscribed(self, *numbers: int, now_ms: int = 0) -> None:
        """A member that was given these, and whose user was told."""
        self.say(sg.ReadToEnd(now_ms, now_ms))
        self.say(sg.WantSubscription(now_ms, WANTED))
        self.written(now_ms)
        self.answer(now_ms, api.SubscribeResponse, **picture(numbers), strategy="sticky")
        self.polled(now_ms)

    def polled(self, now_ms: int) -> list[sg.Output]:
        """The user's thread comes by, and its callback returns at once."""
        outputs = self.say(sg.Polled(now_ms))
        for call in [each for each in outputs if isinstance(each, sg.Call)]:
            outputs += self.say(sg.CalledBack(now_ms, call.callback))
        return outputs

    def told(
        self,
        now_ms: int,
        numbers: tuple[int, ...],
        release: Demands | None = None,
        **more: Any,
    ) -> list[sg.Output]:
        """A notice is read."""
        fields = picture(numbers, release, **more)
        notice = api.AssignmentChanged(group="orders", cause="r1-95", **fields)
        return self.say(sg.Received(now_ms, notice))

    def commit(
        self, now_ms: int, *rows: tuple[int, int], ticket: int = 1, is_waited: bool = False
    ) -> list[sg.Output]:
        return self.say(sg.CommitOffsets(now_ms, ticket, offsets(*rows), is_waited))


def offsets(*rows: tuple[int, int]) -> tuple[api.CommittedOffset, ...]:
    return tuple(api.CommittedOffset(topic="t", partition=at, offset=to) for at, to in rows)


def picture(
    numbers: tuple[int, ...],
    release: Demands | None = None,
    *,
    generation: int = 1,
    fence: int = 40,
    member: str = MEMBER,
) -> dict[str, Any]:
    """All that a member holds."""
    demands = (release or {}).items()
    return {
        "member": member,
        "generation": generation,
        "fence": fence,
        "partitions": (api.GrantedPartitions("t", numbers, fence),) if numbers else (),
        "release": tuple(
            api.DemandedRelease(cause, (api.OwnedPartitions("t", some),)) for cause, some in demands
        ),
    }


def envelope(id_: str) -> dict[str, Any]:
    return {"v": 1, "id": id_, "client": "app", "group": "orders", "reply": 3}


def subscribe(id_: str, member: str = "", generation: int = -1, **more: Any) -> sg.Send:
    fields = {"topics": ("t",), "session_timeout_ms": 8_000, "rebalance_timeout_ms": 12_000}
    request = api.Subscribe(
        **envelope(id_), member=member, generation=generation, **(fields | more)
    )
    return sg.Send(request)


def release(id_: str, cause: int, *rows: tuple[int, int], generation: int = 1) -> sg.Send:
    request = api.Release(
        **envelope(id_), generation=generation, member=MEMBER, cause=cause, offsets=offsets(*rows)
    )
    return sg.Send(request)


def commit(id_: str, *rows: tuple[int, int], generation: int = 1) -> sg.Send:
    request = api.OffsetCommit(
        **envelope(id_), generation=generation, member=MEMBER, offsets=offsets(*rows)
    )
    return sg.Send(request)


def revoked(*numbers: int) -> sg.Call:
    return sg.Call(Callback.REVOKED, t(*numbers))


def assigned(*numbers: int) -> sg.Call:
    return sg.Call(Callback.ASSIGNED, t(*numbers))


def lost(*numbers: int) -> sg.Call:
    return sg.Call(Callback.LOST, t(*numbers))
