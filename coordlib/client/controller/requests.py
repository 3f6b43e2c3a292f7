"""What goes into a broker's state machine and out of it: plain values, no IO.

A broker's registration, its timing, and all of its requests; the inputs and outputs that members do
not have (theirs are in `kit/events.py`); the errors that an agent raises.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Literal

from msgspec.structs import replace

from coordlib import limits
from coordlib.client.kit import events as sg
from coordlib.client.kit.config import require_name
from coordlib.client.kit.events import TopicPartition
from coordlib.client.kit.fence import margin_of
from coordlib.client.kit.requests import Identity, RequestBuilder, Step, Timing
from coordlib.core.wire import api
from coordlib.core.wire.controller import CLUSTER
from coordlib.core.wire.envelope import is_name
from coordlib.errors import CoordError, ErrorCode, GroupError, SetupError


class BrokerReplaced(GroupError):
    """A newer process is registered as this broker; this one is over for good.

    Kafka's STALE_BROKER_EPOCH; INVALID_INCARNATION_ID in KIP-343.
    """

    def __init__(self, where: str) -> None:
        message = "A newer process is registered as this broker: end this one."
        super().__init__(ErrorCode.STALE_BROKER_EPOCH, where, message)


class BrokerFenced(CoordError):
    """The broker is fenced: it is not Active, or has no contact with the log."""

    def __init__(self, where: str, why: str) -> None:
        super().__init__(f"The broker is fenced: {why}", where, "Poll on, and try again.")


class MetadataRefused(GroupError):
    """The controller does not answer what this broker asks about the cluster.

    The broker leads and follows all the same, and is told of every change.
    """

    def __init__(self, refusal: GroupError) -> None:
        why = f"The cluster's metadata were refused: {refusal.hint}".rstrip(".")
        hint = "Ask for topics by name (Admin.metadata), or read coord.metadata."
        super().__init__(refusal.code, refusal.where, f"{why}. {hint}")


class NotLeader(GroupError):
    """This broker does not lead the partition, or not at this moment."""

    def __init__(self, where: str) -> None:
        super().__init__(ErrorCode.NOT_LEADER_OR_FOLLOWER, where)


#: Brokers have no generation; the field is the members' (rule 13).
GENERATION: Final = 0
Target = Literal["Active", "Stopping", "Inactive"]


@dataclass(frozen=True, slots=True)
class BrokerTiming:
    """A broker's promises, milliseconds.

    Source: KIP-343; the defaults are KRaft's (broker.session.timeout.ms,
    broker.heartbeat.interval.ms) where it has them.

    Raises:
        SetupError: the broker would stop before the controller could count it out, or heartbeats
            would be too rare to keep a leadership.
    """

    #: Silence for as long makes the broker Inactive.
    session_timeout_ms: int = 9_000
    #: How long letting go of leaderships may take; also the longest time between polls.
    release_timeout_ms: int = 18_000
    #: Without contact for as long the broker takes no requests any more; None: two sessions.
    fence_timeout_ms: int | None = None
    #: Two of them fit into the session timeout less the margin of rule 8.
    heartbeat_interval_ms: int = 2_000

    def __post_init__(self) -> None:
        if self.fenced_after_ms < self.session_timeout_ms:
            raise SetupError(
                "A fence timeout is at least the session timeout.",
                f"fence_timeout_ms {self.fence_timeout_ms}",
                f"Choose at least {self.session_timeout_ms}, or leave it out.",
            )
        # One that is late or lost must not end a leadership (rule 8).
        longest_ms = (self.session_timeout_ms - self.margin_ms) // 2
        if not 1 <= self.heartbeat_interval_ms <= longest_ms:
            shorter = f"Choose 1 to {longest_ms}, or a longer session timeout."
            raise SetupError(
                "Two heartbeats must fit into the session timeout less the margin.",
                f"heartbeat_interval_ms {self.heartbeat_interval_ms}, "
                f"session_timeout_ms {self.session_timeout_ms}",
                shorter if longest_ms >= 1 else "Choose a longer session timeout.",
            )

    @property
    def fenced_after_ms(self) -> int:
        """Without contact for as long the broker is fenced, milliseconds."""
        chosen = self.fence_timeout_ms
        return 2 * self.session_timeout_ms if chosen is None else chosen

    @property
    def margin_ms(self) -> int:
        """How much earlier than the controller the broker ends (rule 8)."""
        return margin_of(self.session_timeout_ms, self.release_timeout_ms)


@dataclass(frozen=True, slots=True)
class Registration:
    """What a broker registers: its endpoints, rack and storage."""

    broker: int
    endpoints: tuple[api.Endpoint, ...]
    rack: str | None = None
    #: Names what outlives the process; "": nothing does.
    storage: str = ""
    #: The incarnation whose process has certainly ended; -1: none is known.
    previous: int = -1


class BrokerWording(RequestBuilder):
    """Builds a broker's requests, each under an id of its own."""

    def __init__(self, identity: Identity, timing: BrokerTiming) -> None:
        members = Timing(
            timing.session_timeout_ms, timing.release_timeout_ms, timing.heartbeat_interval_ms
        )
        super().__init__(identity, members)
        self._timing = timing

    def register(self, registration: Registration, previous: int) -> api.RegisterBroker:
        return api.RegisterBroker(
            **self._envelope(),
            broker=registration.broker,
            endpoints=registration.endpoints,
            rack=registration.rack,
            session_timeout_ms=self._timing.session_timeout_ms,
            release_timeout_ms=self._timing.release_timeout_ms,
            storage=registration.storage,
            previous=previous,
        )

    def target(
        self, broker: int, incarnation: int, since: int, target: Target, reason: str | None
    ) -> api.BrokerHeartbeat:
        return api.BrokerHeartbeat(
            **self._envelope(),
            broker=broker,
            incarnation=incarnation,
            since=since,
            target_state=target,
            reason=reason,
        )

    def sign_of_life(self, member: str) -> api.Heartbeat:
        return api.Heartbeat(
            **self._envelope(), generation=GENERATION, member=member, space=CLUSTER
        )

    def leave_cluster(self, member: str, reason: str) -> api.LeaveGroup:
        leaver = api.Leaver(member=member)
        return api.LeaveGroup(**self._envelope(), members=(leaver,), reason=reason, space=CLUSTER)

    def let_go(self, member: str, cause: int) -> api.Release:
        return api.Release(
            **self._envelope(), generation=GENERATION, member=member, cause=cause, space=CLUSTER
        )

    def alter(
        self, broker: int, incarnation: int, topics: Iterable[api.AlteredTopic]
    ) -> api.AlterPartition:
        return api.AlterPartition(
            **self._envelope(), broker=broker, incarnation=incarnation, topics=tuple(topics)
        )

    def deleted(
        self, broker: int, incarnation: int, results: Sequence[api.DeletedReplica]
    ) -> api.ReplicasDeleted:
        return api.ReplicasDeleted(
            **self._envelope(), broker=broker, incarnation=incarnation, results=tuple(results)
        )

    def renewed(self, step: Step) -> sg.Send:
        """A request that was refused for now, under another id."""
        assert isinstance(step.output, sg.Send)
        return sg.Send(replace(step.output.request, id=self.next_id()))

    def ask_metadata(self, topics: tuple[str, ...] | None) -> api.Metadata:
        return api.Metadata(**self._envelope(), topics=topics)


def check_named(broker: int, endpoints: Sequence[api.Endpoint], rack: str | None) -> None:
    """Check the names that a user has given, before any network call. Raises SetupError."""
    if not isinstance(broker, int) or not 0 <= broker <= limits.INT32_MAX:
        raise SetupError("A broker id is a number from 0 to 2,147,483,647.", repr(broker))
    if not 1 <= len(endpoints) <= limits.ENDPOINTS_MAX:
        bounds = f"A broker has 1 to {limits.ENDPOINTS_MAX} endpoints."
        raise SetupError(bounds, f"{len(endpoints)} were given")
    if strange := [each for each in endpoints if not isinstance(each, api.Endpoint)]:
        raise SetupError("An endpoint is an Endpoint(name, host, port).", repr(strange[0]))
    if len({each.name for each in endpoints}) < len(endpoints):
        raise SetupError("Each endpoint has a name of its own.", repr(list(endpoints)))
    names = limits.NAME_LENGTH_MAX
    for each in endpoints:
        if not isinstance(each.port, int):
            raise SetupError("A port is a number.", repr(each))
        is_named = is_name(each.name, names) and is_name(each.host, limits.HOST_LENGTH_MAX)
        if not is_named or not 1 <= each.port <= limits.PORT_MAX:
            what = "An endpoint has a name, a host, and a port from 1 to 65,535."
            raise SetupError(what, repr(each))
    if rack is not None:
        require_name("A rack", rack, names, "Or leave it out.")


class Callback(Enum):
    """The user's callbacks, always run in the user's own thread, inside `poll` or `close`."""

    #: A leadership begins. Action: lead in this epoch.
    LEADER = "leader"
    #: Another broker leads, or none. Action: stop leading, follow in this epoch.
    FOLLOWER = "follower"
    #: Others are to lead these. Action: stop leading them.
    RESIGN = "resign"
    #: The replica is not this broker's any more. Action: stop it, and delete it where asked to.
    STOP = "stop"
    #: The door is closed, and all leaderships are over. Action: refuse new requests.
    FENCED = "fenced"
    #: The door is open. Action: take requests.
    UNFENCED = "unfenced"


@dataclass(frozen=True, slots=True)
class Leadership:
    """A leadership of one partition, as `on_leader` gets it."""

    topic: str
    partition: int
    #: Rises with every change of the leader (int32).
    epoch: int
    #: A token for other systems: higher than that of any former leader of the partition.
    fence: int
    #: Broker ids. Changes of them call nobody: ask `must_acknowledge`.
    isr: tuple[int, ...]
    #: Broker ids, in order of preference.
    replicas: tuple[int, ...]
    #: Of the topic: one that was deleted and made anew under this name has another.
    topic_id: int


@dataclass(frozen=True, slots=True)
class Following:
    """A replica of one partition that another broker leads, or none; as `on_follower` gets it."""

    topic: str
    partition: int
    #: Rises with every change of the leader (int32).
    epoch: int
    #: Broker id; -1: none.
    leader: int
    #: As a leadership's.
    topic_id: int


# ---- inputs -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Begin:
    """Register."""

    now_ms: int


@dataclass(frozen=True, slots=True)
class Ready:
    """The user asks for the state Active."""

    now_ms: int


@dataclass(frozen=True, slots=True)
class Stop:
    """The user asks for a controlled shutdown: others lead first."""

    now_ms: int


@dataclass(frozen=True, slots=True)
class CalledBack:
    """The callback of an earlier `Call` has returned, or has raised."""

    now_ms: int
    call: "Call"
    has_raised: bool = False


@dataclass(frozen=True, slots=True)
class AlterIsr:
    """The user asks for other in-sync replicas; answered under `ticket`."""

    now_ms: int
    ticket: int
    place: TopicPartition
    #: Broker to the incarnation that has everything.
    isr: Mapping[int, int]
    #: Whether the leader has recovered from an unclean election.
    has_recovered: bool = False


@dataclass(frozen=True, slots=True)
class Close:
    """The user ends the agent: on_fenced, then LeaveGroup."""

    now_ms: int
    reason: str | None = None


OwnInput = Begin | Ready | Stop | CalledBack | AlterIsr | Close
Input = sg.LogInput | sg.Polled | OwnInput


# ---- outputs ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Call:
    """Run this callback, then feed `CalledBack`. Comes only from `Polled` and `Close`."""

    callback: Callback
    arguments: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class Altered:
    """The outcome of the AlterIsr with this `ticket`: the row as it stands, or why not."""

    ticket: int
    row: api.AlteredRow | None = None
    error: CoordError | None = None


@dataclass(frozen=True, slots=True)
class Registered:
    """The broker has an incarnation: keep it for the next process of this folder."""

    incarnation: int


Output = sg.Send | sg.Raise | sg.Left | Call | Altered | Registered
