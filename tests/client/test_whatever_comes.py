"""Members in every state, and whatever may come: answers of all kinds, with all errors, to all ids.

A state machine that raises ends its member (INV-70); none may, whatever others write.
"""

from random import Random
from typing import Any

import pytest

from coordlib.client.groups.assignors import AssignorFailed
from coordlib.client.groups.state import State
from coordlib.client.kit import events as sg
from coordlib.core.wire import api
from coordlib.core.wire import consumer_protocol as cp
from coordlib.errors import ErrorCode
from tests.client import cooperative
from tests.client.groups.assigned.play import WANTED
from tests.client.groups.assigned.play import Play as AssignedPlay
from tests.client.groups.classic.test_membership import MEMBER, Play

SHARE = cp.encode_assignment(cp.Assignment(partitions={"t": (0, 1)}))
WANTS = cp.encode_subscription(cp.Subscription(topics=("t",)))
#: After which a member goes on.
USUAL = (
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
)
ANSWER_TO: dict[type[api.Request], type[api.Response]] = {
    api.JoinGroup: api.JoinGroupResponse,
    api.SyncGroup: api.SyncGroupResponse,
    api.Subscribe: api.SubscribeResponse,
    api.Release: api.ReleaseResponse,
    api.Heartbeat: api.HeartbeatResponse,
    api.LeaveGroup: api.LeaveGroupResponse,
    api.OffsetCommit: api.OffsetCommitResponse,
    api.OffsetFetch: api.OffsetFetchResponse,
}


class World:
    """Feeds one member what could come, drawn by chance; the shell's part is played faithfully."""

    def __init__(self, play: Play, luck: Random) -> None:
        self.play, self.luck, self.now_ms = play, luck, 0
        self.calls: list[sg.Call] = []
        self.work: list[sg.Divide | sg.LookUp] = []
        self.unwritten: list[api.Request] = []
        self.states: set[State] = set()

    def say(self, event: sg.Input) -> None:
        for output in self.play.say(event):
            if isinstance(output, sg.Call):
                self.calls.append(output)
            elif isinstance(output, sg.Divide | sg.LookUp):
                self.work.append(output)
            elif isinstance(output, sg.Send):
                self.unwritten.append(output.request)
        self.states.add(self.play.member.state)

    def step(self) -> None:
        luck = self.luck
        self.now_ms += luck.choice((0, 10, 500, 3_000))
        draw = luck.random()
        if draw < 0.3 and self.play.sent:
            self.say(sg.Received(self.now_ms, self.answer()))
        elif draw < 0.4:
            self.say(sg.Received(self.now_ms, self.notice()))
        elif draw < 0.55 and self.unwritten:
            self.acknowledge()
        elif draw < 0.65 and self.work:
            self.finish(self.work.pop(0))
        elif draw < 0.75:
            self.say(sg.ReadToEnd(self.now_ms, self.now_ms))
        elif draw < 0.85:
            self.say(sg.Elapsed(self.now_ms))
        else:
            self.use()

    def acknowledge(self) -> None:
        request = self.unwritten.pop(0)
        self.play.offset += 1
        if self.luck.random() < 0.85:
            at_ms = self.luck.randint(max(0, self.now_ms - 3_000), self.now_ms)
            self.say(sg.Acknowledged(self.now_ms, request.id, self.play.offset, at_ms))
        else:
            self.say(sg.NotWritten(self.now_ms, request.id, "why", self.luck.random() < 0.2))

    def use(self) -> None:
        """The user's thread."""
        if self.calls and self.luck.random() < 0.8:
            self.say(sg.CalledBack(self.now_ms, self.calls.pop(0).callback))
            return
        offsets = (api.CommittedOffset("t", 0, 5),)
        events: list[Any] = [
            sg.Polled(self.now_ms),
            sg.Polled(self.now_ms),
            sg.CommitOffsets(self.now_ms, 1, offsets, self.luck.random() < 0.5),
            sg.FetchOffsets(self.now_ms, 2, None),
            *self.wishes(),
        ]
        if self.luck.random() < 0.05:
            events = [sg.Close(self.now_ms)]
        self.say(self.luck.choice(events))

    def wishes(self) -> list[Any]:
        if isinstance(self.play, AssignedPlay):
            return [sg.WantSubscription(self.now_ms, WANTED), sg.Unsubscribe(self.now_ms)]
        return [sg.WantTopics(self.now_ms, ("t", "^u.*")), sg.Unsubscribe(self.now_ms)]

    def finish(self, work: sg.Divide | sg.LookUp) -> None:
        now_ms = self.now_ms
        if isinstance(work, sg.LookUp):
            seen = sg.TopicsSeen(now_ms, {"t": 2, "u": 1})
            self.say(self.luck.choice((seen, sg.TopicsNotSeen(now_ms))))
            return
        failed, why = AssignorFailed("It failed"), sg.WhyNot("UNKNOWN_SERVER_ERROR", "why")
        self.say(
            self.luck.choice(
                (
                    sg.Divided(now_ms, work.generation, (), ("t",), {"t": 2}),
                    sg.NotDivided(now_ms, work.generation, "why"),
                    sg.AssignorFailed(now_ms, work.generation, failed, why),
                )
            )
        )

    def answer(self) -> api.Response:
        """To something that it sent, mostly what fits."""
        luck = self.luck
        request = luck.choice(self.play.sent[-4:] if luck.random() < 0.8 else self.play.sent)
        fits = ANSWER_TO[type(request)]
        kind = fits if luck.random() < 0.9 else luck.choice([*ANSWER_TO.values(), api.Rejected])
        id_ = request.id if luck.random() < 0.95 else luck.choice(("cafe-x", "cafe-99", "cafe-"))
        code = luck.choice((*[ErrorCode.NONE] * 12, *USUAL, *USUAL, luck.choice(list(ErrorCode))))
        error = code.name if luck.random() < 0.98 else "OF_TOMORROW"
        fields: dict[str, Any] = {"id": id_, "client": "app", "group": "orders", "cause": "r1-7"}
        if error == "NONE" or luck.random() < 0.2:
            fields |= self.own_fields(kind)
        return kind(**fields, error=error, **({"message": "m"} if error != "NONE" else {}))

    def own_fields(self, kind: type[api.Response]) -> dict[str, Any]:
        luck = self.luck
        if luck.random() < 0.1:
            return {}
        joined = api.JoinedMember(MEMBER, None, WANTS)
        fences = api.GrantedPartitions("t", (0,), 41)
        asked = api.DemandedRelease(luck.choice((44, 45)), (api.OwnedPartitions("t", (1,)),))
        return {
            api.JoinGroupResponse: {
                "generation": luck.randint(1, 9),
                "protocol": "cooperative-sticky",
                "leader": luck.choice((MEMBER, "other")),
                "member": luck.choice((MEMBER, MEMBER, "app-x-1-2")),
                "members": (joined,),
                "skip_assignment": luck.random() < 0.1,
            },
            api.SyncGroupResponse: {"assignment": luck.choice((SHARE, b"", b"\0")), "fence": 41},
            api.SubscribeResponse: self.picture((fences,), (asked,)),
            api.OffsetFetchResponse: {"offsets": (), "part": 0, "parts": luck.choice((1, 2))},
        }.get(kind, {})

    def picture(self, granted: tuple[Any, ...], asked: tuple[Any, ...]) -> dict[str, Any]:
        luck = self.luck
        return {
            "member": luck.choice((MEMBER, MEMBER, "app-x-1-2")),
            "generation": luck.randint(1, 9),
            "fence": luck.choice((-1, 41)),
            "partitions": luck.choice((granted, ())),
            "release": luck.choice((asked, ())),
        }

    def notice(self) -> Any:
        luck, about = self.luck, {"group": "orders", "cause": "r1-8"}
        generation = self.play.member.generation if luck.random() < 0.8 else 3
        granted = (api.GrantedPartitions("t", (0, 1), 41),)
        return luck.choice(
            (
                api.RebalanceInProgress(**about, generation=generation),
                api.MemberRemoved(**about, member=self.play.member.member or MEMBER, reason="why"),
                api.AssignmentChanged(**about, **self.picture(granted, ())),
                api.Progress(shard=1, offset=self.play.offset, time_ms=1),
            )
        )


@pytest.mark.parametrize("kind", ["eager", "cooperative", "static", "assigned"])
def test_no_input_makes_a_member_raise(kind: str) -> None:
    """What is judged late, twice, by a job that went on meanwhile, or written by somebody else."""
    states: set[State] = set()
    for seed in range(80):
        play = AssignedPlay() if kind == "assigned" else of_classic(kind)
        world = World(play, Random(f"{kind} {seed}"))
        world.say(sg.ReadToEnd(0, 0))
        world.say(world.wishes()[0])
        for _ in range(120):
            world.step()
        states |= world.states

    of_assigned = {State.IDLE, State.JOINING, State.STABLE, State.FAILED, State.LEAVING, State.LEFT}
    assert states == (of_assigned if kind == "assigned" else set(State)), "each had its chance"


def of_classic(kind: str) -> Play:
    if kind == "cooperative":
        return Play(assignor=cooperative.assignor())
    return Play(instance="i" if kind == "static" else None)


def test_the_alphabet_knows_all_answers() -> None:
    """A new answer must come up here, too."""
    known = {*ANSWER_TO.values(), api.Rejected}
    asked_by_others = {
        *(api.DescribeGroupResponse, api.DeleteGroupResponse, api.OffsetDeleteResponse),
        *(api.FindCoordinatorResponse, api.ApiVersionsResponse, api.ReleaseQuarantineResponse),
        *(api.PendingCommitResponse, api.DecidePendingResponse),
    }
    answers = {each for each in api.AnyResponse.__args__ if issubclass(each, api.Response)}
    of_other_clients = {
        each for each in answers if each.__module__.endswith(("controller", "transactions"))
    }

    assert answers - of_other_clients == known | asked_by_others
