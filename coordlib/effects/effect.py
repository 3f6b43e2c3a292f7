"""What should happen, as data. The core returns these; the streaming layer carries them out.

Each effect is complete: everything needed to write it is in it. `History` is a line of history
without its id and time, which the shard adds, because only it knows the record being judged.
"""

from typing import Any

import msgspec

from coordlib.records.responses import Notification, Progress, Response
from coordlib.records.stored import AssignmentValue, CommittedValue


class Respond(msgspec.Struct, frozen=True):
    """Answer a request, in the partition that its sender reads."""

    reply: int
    response: Response


class Notify(msgspec.Struct, frozen=True):
    """Tell all readers of a reply partition something that nobody asked for."""

    reply: int
    notification: Notification | Progress


class Assign(msgspec.Struct, frozen=True):
    """A member's current assignment; None: the member is gone."""

    group: str
    member: str
    value: AssignmentValue | None


class Commit(msgspec.Struct, frozen=True):
    """A committed offset; None: it was deleted or has expired."""

    group: str
    topic: str
    partition: int
    value: CommittedValue | None


class History(msgspec.Struct, frozen=True, kw_only=True):
    """A line of history, to be given its id and time by the shard."""

    type: str
    group: str
    #: The group's kind; None: there is no such group, and requests like this have no kind.
    protocol: str | None
    generation: int = -1
    member: str = ""
    cause: str
    reason: str = ""
    detail: dict[str, Any] = {}


class Event(msgspec.Struct, frozen=True):
    """A line of history with its id and time."""

    value: Any  # stored.Event; the name is taken here


class SaveGroup(msgspec.Struct, frozen=True):
    """The group's hard state as it stands at the end of a batch; None: the group is deleted."""

    group: str
    value: bytes | None


Effect = Respond | Notify | Assign | Commit | History | Event | SaveGroup
