"""The inputs and outputs of a broker's state machine beside those of members: plain values, no IO.

Inputs from the log and from time are the members' own (`kit/signals.py`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from coordlib.client.kit import signals as sg
from coordlib.client.kit.signals import TopicPartition
from coordlib.core.wire import responses as rs
from coordlib.errors import CoordError


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
    """The process is there: register."""

    now_ms: int


@dataclass(frozen=True, slots=True)
class Ready:
    """The user has loaded what it has: be Active."""

    now_ms: int


@dataclass(frozen=True, slots=True)
class Stop:
    """The user wants to end: let others lead first (controlled shutdown)."""

    now_ms: int


@dataclass(frozen=True, slots=True)
class CalledBack:
    """The callback of an earlier `Call` has returned, or has raised."""

    now_ms: int
    call: "Call"
    has_raised: bool = False


@dataclass(frozen=True, slots=True)
class AlterIsr:
    """The user wants other in-sync replicas; answered under `ticket`."""

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
    row: rs.AlteredRow | None = None
    error: CoordError | None = None


@dataclass(frozen=True, slots=True)
class Registered:
    """The broker has an incarnation: keep it for the next process of this folder."""

    incarnation: int


Output = sg.Send | sg.Raise | sg.Left | Call | Altered | Registered
