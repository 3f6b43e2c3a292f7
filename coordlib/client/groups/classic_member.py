"""`ClassicMember`: a member of a classic group, whose leader assigns the partitions."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from coordlib.client.groups.assignor import Assignor
from coordlib.client.groups.classic_membership import ClassicMembership
from coordlib.client.groups.division import Metadata, lead, look_up
from coordlib.client.groups.member import Member, OnPartitions
from coordlib.client.groups.strategy import find_assignors
from coordlib.client.groups.tasks import TaskCounts, Tasks, check_type
from coordlib.client.kit import signals as sg
from coordlib.client.kit.name_checks import is_pool, topics_of
from coordlib.client.kit.names import Name
from coordlib.client.kit.signals import Callback
from coordlib.client.kit.transport import Transport
from coordlib.client.kit.wording import Timing
from coordlib.core.wire import consumer_protocol as cp


class ClassicMember(Member[ClassicMembership]):
    """A member that shares topics' partitions with the other members of its group.

    Args:
        group: the group's name.
        config: confluent-kafka's keys for all clients; needed unless a transport is given.
        transport: shared among members of one program; by default one of its own.
        on_assigned: these partitions are yours, beside those that you kept; called for every
            assignment, also an empty one.
        on_revoked: these go to another member; commit finished work without waiting, then return.
        on_lost: all partitions are lost and may have other owners; stop, commits are refused.
        client: client id, at most 150 bytes; by default host, process and a random part.
        instance: static instance id (KIP-345): `close` keeps this member's place in the group
            until its session ends.
        rack: where it runs, for assignors that look at racks.
        timing: session, rebalance timeout (also the longest time between polls), heartbeats.
        assignors: names or objects, in order of preference. The member runs cooperatively if all
            of them support it.
        protocol_type: `consumer` shares the partitions of topics. Under another name the group
            shares `tasks`, and `subscribe` names pools of them: see `tasks.py`.
        tasks: the number of tasks in each pool, for groups that share tasks.

    Raises:
        SetupError: a name or an assignor is not allowed.
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
        rack: str | None = None,
        prefix: str = "coord",
        timing: Timing | None = None,
        assignors: str | Sequence[str | Assignor] = "range",
        protocol_type: str = cp.CONSUMER,
        tasks: Tasks | None = None,
    ) -> None:
        found = find_assignors(assignors)
        check_type(protocol_type, tasks, found)
        self._tasks = tasks
        self._assignors = {each.name: each for each in found}
        super().__init__(
            Name(
                group=group,
                client=client,
                instance=instance,
                rack=rack,
                prefix=prefix,
                protocol_type=protocol_type,
            ),
            config,
            transport,
            {
                Callback.ASSIGNED: on_assigned,
                Callback.REVOKED: on_revoked,
                Callback.LOST: on_lost,
            },
            lambda identity: ClassicMembership(identity, timing or Timing(), found),
        )

    def subscribe(self, topics: Sequence[str]) -> None:
        """Join the group for these topics, or rejoin it with another list.

        A topic that begins with `^` is a regular expression; topics that match it later are
        found too. It matches neither `__*` nor the coordinator's own topics. No topics at all is
        `unsubscribe`, as in Kafka.

        Raises SetupError: not a list, a name that no topic can have, or an invalid expression.
        """
        is_of_tasks = self._tasks is not None
        wanted = topics_of(topics, is_pool, "pool") if is_of_tasks else topics_of(topics)
        if not wanted:
            self.unsubscribe()
            return
        self._give(sg.WantTopics(self._transport.now_ms(), wanted))

    @property
    def _metadata(self) -> Metadata:
        transport = self._transport
        return transport if self._tasks is None else TaskCounts(self._tasks, transport)

    def _do(self, output: sg.Output) -> None:
        match output:
            case sg.Divide():
                work = partial(lead, output, self._assignors, self._metadata)
                self._transport.beside(self, lambda: self.feed(work()))
            case sg.LookUp():
                self._transport.beside(self, lambda: self.feed(look_up(self._metadata)))
            case _:
                super()._do(output)
