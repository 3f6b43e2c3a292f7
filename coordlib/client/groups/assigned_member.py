"""`AssignedMember`: a member of a server-assigned group."""

from collections.abc import Mapping, Sequence
from typing import Any

from coordlib import limits
from coordlib.client.groups.assigned_membership import AssignedMembership
from coordlib.client.groups.member import Member, OnPartitions
from coordlib.client.kit import signals as sg
from coordlib.client.kit.name_checks import topics_of
from coordlib.client.kit.names import Name
from coordlib.client.kit.signals import Callback, TopicPartition
from coordlib.client.kit.transport import Transport
from coordlib.client.kit.uninterrupted import uninterrupted
from coordlib.client.kit.wording import Timing
from coordlib.errors import SetupError

NO_STATIC = "Members of a server-assigned group have no instance id."


class AssignedMember(Member[AssignedMembership]):
    """A member to which the coordinator grants partitions one by one.

    No member waits for all others: an owner that must release some partitions works on with the
    rest, and a newcomer gets each partition as soon as its former owner has released it.

    Args:
        group: the group's name.
        config: confluent-kafka's keys for all clients; needed unless a transport is given.
        transport: shared among members of one program; by default one of its own.
        on_assigned: these partitions are yours, beside those that you have.
        on_revoked: these go to another member; stop, commit finished work without waiting, return.
            The last `commit_async` in the callback, if it names only these partitions, is written
            in one record with the Release; its answer comes after the return.
        on_lost: all partitions are lost and may have other owners; stop, commits are refused.
        client: client id, at most 150 bytes; by default host, process and a random part.
        instance: not offered.
        timing: session, rebalance timeout (how long letting go may take; also the longest time
            between polls), heartbeats.
        strategy: `sticky`, `uniform`, `range`, `roundrobin` or one of the job's; None: the group's.
        capacity: the member's share in proportion to the others; 1 to 1,000,000.

    Raises:
        SetupError: a name that is not allowed, an instance id, a capacity out of bounds.
        CannotReach: no broker, or no coordinator's topics under this prefix.
    """

    def __init__(  # noqa: PLR0913  # all but the group by keyword, each with a default
        self,
        group: str,
        config: Mapping[str, Any] | None = None,
        *,
        transport: Transport | None = None,
        on_assigned: OnPartitions | None = None,
        on_revoked: OnPartitions | None = None,
        on_lost: OnPartitions | None = None,
        client: str | None = None,
        instance: str | None = None,
        prefix: str = "coord",
        timing: Timing | None = None,
        strategy: str | None = None,
        capacity: int = 1,
    ) -> None:
        if instance is not None:
            raise SetupError(NO_STATIC, repr(instance), "Leave it out, or join a classic group.")
        if not 1 <= capacity <= limits.CAPACITY_MAX:
            bounds = f"A capacity is a number from 1 to {limits.CAPACITY_MAX:,}."
            raise SetupError(bounds, repr(capacity))
        self._strategy, self._capacity = strategy, capacity
        told = (on_assigned, on_revoked, on_lost)
        super().__init__(
            Name(group=group, client=client, prefix=prefix),
            config,
            transport,
            dict(zip((Callback.ASSIGNED, Callback.REVOKED, Callback.LOST), told, strict=True)),
            lambda identity: AssignedMembership(identity, timing or Timing()),
        )

    @property
    def strategy(self) -> str:
        """The group's strategy; empty before the member joined."""
        return self._membership.strategy

    @uninterrupted
    def fence_of(self, topic: str, partition: int) -> int | None:
        """The fencing token of one partition, for systems that refuse older ones.

        It is higher than that of any former owner, and stays as long as this member has the
        partition. None: the member does not own it.
        """
        with self._changed:
            return self._membership.fence_of(TopicPartition(topic, partition))

    def subscribe(
        self,
        topics: Sequence[str] = (),
        pattern: str | None = None,
        exclude: str | None = None,
    ) -> None:
        """Join the group for these topics, or replace the topics of the subscription.

        The call itself revokes nothing; the coordinator demands what must go. Expressions are
        RE2's; the coordinator checks them (`poll` raises). To want no topics, call `unsubscribe`.

        Args:
            topics: by name, existing or not. One that begins with `^` is an expression that a
                name must begin with, as in `ClassicMember`.
            pattern: topics whose whole name matches; `__*` and the coordinator's own never do.
            exclude: topics that match this too are not wanted.

        Raises SetupError: not a list, or a name that no topic can have.
        """
        given = topics_of(topics)
        names = tuple(each for each in given if not each.startswith("^"))
        begins = [f"(?:{each}).*" for each in given if each.startswith("^")]
        patterns = begins + ([f"(?:{pattern})" if begins else pattern] if pattern else [])
        if not names and not patterns:
            self.unsubscribe()
            return
        wanted = sg.Subscription(
            topics=names,
            pattern="|".join(patterns) or None,
            exclude=exclude,
            strategy=self._strategy,
            capacity=self._capacity,
        )
        self._give(sg.WantSubscription(self._transport.now_ms(), wanted))
