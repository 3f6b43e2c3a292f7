"""Effects: what should happen, as data. The core returns them; the driver's sink writes them.

Each effect has all the data that is needed to write it. `History` is a line of history
without its id and time, which the shard adds, because only it knows the record being judged.
"""

from typing import Any

import msgspec

from coordlib.core.wire import stored
from coordlib.core.wire.envelope import Message
from coordlib.core.wire.responses import Notification, Progress, Response


class Respond(msgspec.Struct, frozen=True):
    """Answer a request, in the partition that its sender reads."""

    reply: int
    response: Response


class Notify(msgspec.Struct, frozen=True):
    """Send a notification, which answers no request, to all readers of a reply partition."""

    reply: int
    notification: Notification | Progress


class Publish(msgspec.Struct, frozen=True):
    """A record of a compacted topic that the job itself does not read back; None: a tombstone."""

    #: Without the prefix.
    topic: str
    key: bytes
    value: msgspec.Struct | None


class Put(msgspec.Struct, frozen=True):
    """An entry of a table, stored with the step; None: it is deleted."""

    #: Of the entry's record, without the prefix.
    topic: str
    key: bytes
    #: The entity's name, the table's, and the key in it: a name, and a number beside it.
    entity: str
    table: str
    place: tuple[str, int]
    value: msgspec.Struct | None


class History(msgspec.Struct, frozen=True, kw_only=True):
    """A line of history, to be given its id and time by the shard."""

    type: str
    #: Space and name of the entity.
    space: str = "group"
    group: str
    #: The entity's kind; None: there is no such entity, and requests like this have no kind.
    kind: str | None
    generation: int = -1
    member: str = ""
    cause: str
    reason: str = ""
    detail: dict[str, Any] = {}


class Event(msgspec.Struct, frozen=True):
    """A line of history with its id and time."""

    value: Any  # stored.Event; the name is taken here


class Save(msgspec.Struct, frozen=True):
    """An entity's head, or a channel, as it stands at the end of a batch; None: it is deleted."""

    #: Of the heads of its family, or of the channels, without the prefix.
    topic: str
    key: bytes
    value: bytes | None


class ToShard(msgspec.Struct, frozen=True):
    """A message to a shard, to be fed to it when the batch is committed; None: it was judged."""

    shard: int
    #: Its number among the messages to that shard.
    number: int
    message: Message | None


class Own(msgspec.Struct, frozen=True):
    """Who owns a partition by a claim; None: nobody does any more."""

    group: str
    topic: str
    partition: int
    owner: stored.OwnerValue | None


class SavePage(msgspec.Struct, frozen=True):
    """One page of a snapshot of claims; None: the snapshot has fewer pages than before."""

    page: int
    value: bytes | None


Effect = Respond | Notify | Publish | Put | History | Event | Save | ToShard | Own | SavePage
