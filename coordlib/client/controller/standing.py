"""The state of one broker that the parts of its state machine share."""

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import ClassVar, Final

from coordlib.client.controller import signals as bs
from coordlib.client.controller.wording import BrokerTiming, BrokerWording, Registration
from coordlib.client.groups.standing import BaseStanding
from coordlib.client.kit import signals as sg
from coordlib.client.kit.steps import Step
from coordlib.client.kit.wording import Identity


class State(Enum):
    """Where a broker stands, as it has read."""

    #: action: RegisterBroker unanswered. transition: answer -> INACTIVE; refused -> FAILED
    INITIAL = "Initial"
    #: action: leads nothing. transition: says Active -> ACTIVE; unregistered -> INITIAL
    INACTIVE = "Inactive"
    #: action: leads and follows. transition: says Stopping -> STOPPING; out -> INACTIVE
    ACTIVE = "Active"
    #: action: lets go of what it is asked for. transition: says Active -> ACTIVE; out -> INACTIVE
    STOPPING = "Stopping"
    #: action: every poll raises. transition: close -> LEAVING
    FAILED = "Failed"
    #: action: LeaveGroup is being written. transition: acknowledged or given up -> LEFT
    LEAVING = "Leaving"
    #: action: none. transition: none
    LEFT = "Left"


#: It may lead, and metadata name it.
READY: Final = frozenset({State.ACTIVE, State.STOPPING})
#: The controller has answered its registration.
REGISTERED: Final = READY | {State.INACTIVE}
#: It is registered, or will be.
LIVING: Final = REGISTERED | {State.INITIAL}


class BrokerStanding(BaseStanding[State, bs.Output]):
    """One broker's place in its cluster."""

    NOUN = "broker"
    VALID_PREVIOUS_STATES: ClassVar[Mapping[State, frozenset[State]]] = {
        State.INITIAL: frozenset({State.INACTIVE}),
        State.INACTIVE: REGISTERED | {State.INITIAL},
        State.ACTIVE: REGISTERED,
        State.STOPPING: REGISTERED,
        State.FAILED: LIVING,
        State.LEAVING: LIVING | {State.FAILED},
        State.LEFT: frozenset({State.LEAVING}),
    }

    def __init__(self, identity: Identity, timing: BrokerTiming, said: Registration) -> None:
        super().__init__(
            identity,
            State.INITIAL,
            timing.session_timeout_ms,
            timing.release_timeout_ms,
            timing.heartbeat_interval_ms,
        )
        self.timing, self.said = timing, said
        self.wording = BrokerWording(identity, timing)
        self.incarnation = -1
        #: The record that gave the state, as far as it is known (rule 12).
        self.since = -1

    @property
    def is_ready(self) -> bool:
        return self.state in READY

    @property
    def where(self) -> str:
        """For errors."""
        return f"cluster {self.identity.group}, broker {self.said.broker}"

    def take(self, now_ms: int, output: sg.Send) -> None:
        """The next step of the protocol."""
        self.step = Step(output, now_ms)
        self._out.append(output)

    def pass_on(self, outputs: Iterable[sg.Output]) -> None:
        """What `Asks` wants to send; nobody waits there for an answer."""
        self._out += [each for each in outputs if isinstance(each, sg.Send)]
