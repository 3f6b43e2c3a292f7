"""A step of a group: what classic and server-assigned groups add to the shard's steps."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar

import msgspec
from msgspec import UnsetType

from coordlib.config import GroupConfig, TransactionsConfig
from coordlib.core.engine import effect as fx
from coordlib.core.engine.routing import ASSIGNMENTS
from coordlib.core.engine.step import Step
from coordlib.core.engine.table import Entries
from coordlib.core.groups.group import AnyGroup
from coordlib.core.groups.offsets.table import OFFSETS
from coordlib.core.groups.topics import present_id
from coordlib.core.wire import codec
from coordlib.core.wire import requests as rq
from coordlib.core.wire.stored import AssignmentValue
from coordlib.core.wire.topic_ids import Ids
from coordlib.errors import ErrorCode

if TYPE_CHECKING:
    from coordlib.core.groups.kind import GroupKind

#: For the sender of a request that comes when too many groups are being made.
SHARD_IS_THROTTLED: Final = (
    "Try again, or raise new_groups_per_second_max: this shard makes no more groups just now."
)


class AroundGroup(msgspec.Struct, frozen=True, kw_only=True):
    """The state that all groups of a shard share, as far as a step may read it."""

    config: GroupConfig
    #: How long the next new group has to wait, because the shard has made so many; 0: it has not.
    throttle_ms: int
    #: The topics of the cluster as listed in the log, by partition count. Read only.
    topics: Mapping[str, int]
    #: Strategies that the job's configuration adds, by friendly name.
    strategies: Mapping[str, Any]
    transactions: TransactionsConfig = TransactionsConfig()
    #: The ids of topics that listings have shown. Read only.
    ids: Ids = MappingProxyType({})

    @property
    def is_throttled(self) -> bool:
        """Whether the next new group has to wait."""
        return self.throttle_ms > 0

    def present_id(self, topic: str, topic_id: str | UnsetType) -> str:
        """The id that has replaced this one; empty: it is not known as an old one."""
        return present_id(self.ids, topic, topic_id) if topic_id else ""


G = TypeVar("G", bound=AnyGroup)


class GroupStep(Step[G], ABC):
    """One group during one step."""

    __slots__ = ()

    #: The state in which a group of this kind is deleted.
    DEAD: ClassVar[Any]
    family: AroundGroup
    kind: "GroupKind"

    @property
    def offsets(self) -> Entries:
        """Committed offsets of the group as they were before this step."""
        return self.entries(OFFSETS)

    def refuse(
        self, request: rq.Request, code: ErrorCode, message: str | None = None, **fields: Any
    ) -> None:
        """As for all kinds; who comes too early reads how long to wait."""
        if code is ErrorCode.THROTTLING_QUOTA_EXCEEDED:
            fields.setdefault("throttle_time_ms", self.family.throttle_ms)
        super().refuse(request, code, message, **fields)

    def assign(self, member: str, value: AssignmentValue | None) -> None:
        """Publish a member's current assignment; None: the member is gone."""
        key = codec.encode([self.name, member])
        self.emit(fx.Publish(ASSIGNMENTS, key, value))

    @property
    @abstractmethod
    def new_group_bytes(self) -> int:
        """What the group has in the shard's blob when it has just been made, at most."""

    @abstractmethod
    def enter(self, state: Any) -> None:
        """Change the state, along the kind's table only.  # INV-12"""

    def delete(self) -> None:
        """Delete the group, as the last act of its step: no request finds it any more."""
        self.enter(self.DEAD)
        super().delete()
