"""The state of one member that the parts of its state machine share.

`life` and the membership of each protocol say what happened and what is next; `leaving` brings the
member out of the group. Outputs are collected in order, which is that of requests in the log.
"""

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any, ClassVar, Generic, TypeVar

from coordlib.client.groups.assignor import Assignor, RebalanceMode, mode_of
from coordlib.client.groups.ownership import Ownership
from coordlib.client.groups.topics import Topics
from coordlib.client.kit import signals as sg
from coordlib.client.kit.fence import Fence
from coordlib.client.kit.heartbeats import Heartbeats
from coordlib.client.kit.steps import IN_GENERATION, VALID_PREVIOUS_STATES, State, Step
from coordlib.client.kit.wording import Identity, Timing, Wording
from coordlib.core.wire.own_topics import own_topics
from coordlib.errors import CoordError

StateT = TypeVar("StateT", bound=Enum)
OutputT = TypeVar("OutputT")


class BaseStanding(Generic[StateT, OutputT]):
    """What members of groups and brokers of clusters have in common.

    Args:
        state: the first one.
        release_timeout_ms: how long its user may take to let go.
    """

    #: What it is, for errors.
    NOUN: ClassVar[str]
    #: Which states may come before which.
    VALID_PREVIOUS_STATES: ClassVar[Mapping[Any, frozenset[Any]]]

    def __init__(
        self,
        identity: Identity,
        state: StateT,
        session_timeout_ms: int,
        release_timeout_ms: int,
        heartbeat_interval_ms: int,
    ) -> None:
        self.identity = identity
        self.fence = Fence(session_timeout_ms, release_timeout_ms)
        self.beats = Heartbeats(heartbeat_interval_ms, self.fence)
        self.state = state
        self.member = ""
        #: The step of the protocol that has no answer yet: at most one is under way.
        self.step: Step | None = None
        #: Why it has failed for good.
        self.failure: CoordError | None = None
        self._out: list[OutputT] = []

    def own_id(self) -> str:
        """The member id: as answered, or as the place of its first request will give it."""
        if not self.member and self.step is not None and self.step.offset is not None:
            return self.identity.member_at(self.step.offset)
        return self.member

    def become(self, state: StateT) -> None:
        if self.state not in self.VALID_PREVIOUS_STATES[state]:
            raise AssertionError(f"{self.state} -> {state} is no transition of a {self.NOUN}")
        self.state = state

    def say(self, *outputs: OutputT) -> None:
        self._out += outputs

    def outputs(self) -> list[OutputT]:
        """What was said since the last call."""
        out, self._out = self._out, []
        return out


class Standing(BaseStanding[State, sg.Output]):
    """One member's place in its group."""

    NOUN = "member"

    def __init__(self, identity: Identity, timing: Timing) -> None:
        super().__init__(
            identity,
            State.IDLE,
            timing.session_timeout_ms,
            timing.rebalance_timeout_ms,
            timing.heartbeat_interval_ms,
        )
        self.timing = timing
        self.wording = Wording(identity, timing)
        self.held = Ownership(self.fence)
        self.generation = -1
        #: The first id of the generation, or of the membership: refusals of older requests concern
        #: an older one.
        self.first_id = self.wording.next_id()
        #: Why there is nothing to own for now: the next poll raises it, once.
        self.news: CoordError | None = None

    @property
    def is_static(self) -> bool:
        """Whether its place waits for it when it goes (KIP-345)."""
        return self.identity.instance is not None

    @property
    def keeps_alive(self) -> bool:
        """Whether it heartbeats, and notices about its generation concern it."""
        is_parked_owner = self.state is State.JOINING and self.fence.is_guarding
        return self.state in IN_GENERATION or is_parked_owner

    @property
    def where(self) -> str:
        """For errors."""
        return f"group {self.identity.group}, member {self.member or self.identity.client}"

    def forget(self, keeps_member: bool = False) -> None:
        """End a membership that the coordinator does not have; the user's partitions are lost."""
        self.become(State.IDLE)
        self.member, self.generation = (self.member if keeps_member else ""), -1
        self.step = self.news = None
        self.held.withdraw()

    def fail(self, error: CoordError) -> None:
        """Fail for good: every poll raises from now on; the user's partitions are lost."""
        self.become(State.FAILED)
        self.step = self.news = None
        self.held.withdraw()
        self.failure = error

    def take(self, now_ms: int, output: sg.Send | sg.Divide) -> None:
        """The next step of the protocol."""
        self.step = Step(output, now_ms)
        self._out.append(output)

    def say_all(self, outputs: Iterable[sg.Output]) -> None:
        self._out += outputs


class ClassicStanding(Standing):
    """The standing of a member of a classic group."""

    VALID_PREVIOUS_STATES = VALID_PREVIOUS_STATES

    def __init__(self, identity: Identity, timing: Timing, assignors: tuple[Assignor, ...]) -> None:
        super().__init__(identity, timing)
        self.assignors = assignors
        #: Whether the member keeps what it owns while it joins (KIP-429).
        self.keeps = mode_of(assignors) is RebalanceMode.COOPERATIVE
        own = own_topics(identity.prefix)
        self.topics = Topics(own, timing.metadata_refresh_ms, timing.rebalance_interval_ms)
        self.protocol = ""
        #: Why a rejoin is owed; None: none is.
        self.rejoin_reason: str | None = None

    def forget(self, keeps_member: bool = False) -> None:
        super().forget(keeps_member)
        self.rejoin_reason = None
        self.topics.follow()

    def fail(self, error: CoordError) -> None:
        super().fail(error)
        self.rejoin_reason = None
