"""`BrokerAgent`: a broker of a cluster. What is asked of it may be asked from any thread."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from operator import index
from pathlib import Path
from typing import Any

from coordlib.client.controller import signals as bs
from coordlib.client.controller.folder import Home
from coordlib.client.controller.life import BrokerLife
from coordlib.client.controller.picture import ClusterMetadata
from coordlib.client.controller.running import STOP_TIMEOUT_S, Running
from coordlib.client.controller.signals import Callback, Following, Leadership
from coordlib.client.controller.wording import BrokerTiming, Registration, check_named
from coordlib.client.kit.fence import Stop
from coordlib.client.kit.names import Name, default_client_id
from coordlib.client.kit.signals import Partitions, TopicPartition
from coordlib.client.kit.transport import KafkaTransport, Transport
from coordlib.client.kit.uninterrupted import uninterrupted
from coordlib.core.wire import requests as rq
from coordlib.core.wire import responses as rs
from coordlib.errors import SetupError


class BrokerAgent(Running):
    """A broker of a cluster: it leads and follows partitions as the controller says.

    It registers at once, and is Inactive until `ready`. Leaving its `with` block is a controlled
    shutdown: others lead first, for `stop_timeout_s` at most.

    All callbacks may be left out. One that raises lets `poll` raise, and is called again by the
    next `poll`; a deletion that raises has failed (KAFKA_STORAGE_ERROR).

    Args:
        cluster: the cluster's name.
        config: confluent-kafka's keys for all clients; needed unless a transport is given.
        broker: its id, 0 or more. Of two processes with one id the newer one wins.
        endpoints: where others reach it, 1 to 16.
        folder: of its data. Its lock keeps a second process out; what lies in it tells the
            controller that the data are the same as before. None: nothing outlives the process.
        transport: shared among agents of one program; by default one of its own.
        rack: where it stands; replicas of new partitions are spread over racks.
        client: client id, at most 150 bytes; by default host, process and a random part.
        timing: session, release timeout (how long letting go may take; also the longest time
            between polls), fence timeout, heartbeats.
        stop_timeout_s: how long `close` lets others take over.
        on_leader: lead this partition in this epoch; a leadership may also go on in a new epoch.
        on_follower: follow in this epoch; stop leading it, if you did. What you have of another
            topic id is of a topic that was deleted: delete it first, also before you lead.
        on_resign: stop leading these, then return: others lead as soon as it has returned.
        on_stop: (topic, partition, delete): this replica is not yours any more. Stop it, delete its
            data if `delete`, then return.
        on_fenced: the door is closed, with the reason, and all leaderships are over: complete what
            has begun, refuse what is new. What goes on is told anew by on_leader.
        on_unfenced: the door is open.

    Raises:
        SetupError: a name, an id or an endpoint that is not allowed; a folder that cannot be used.
        NotReady: another process uses the folder.
        CannotReach: no broker of Kafka's, or no coordinator's topics under this prefix.

    Source: KIP-343 (seed 001); TIME-AND-FENCING.md, rules 8 to 12, 15 and 16.
    """

    def __init__(  # noqa: PLR0913  # all but the cluster by keyword, most with a default
        self,
        cluster: str,
        config: Mapping[str, Any] | None = None,
        *,
        broker: int,
        endpoints: Sequence[rq.Endpoint],
        folder: Path | str | None = None,
        transport: Transport | None = None,
        rack: str | None = None,
        client: str | None = None,
        prefix: str = "coord",
        timing: BrokerTiming | None = None,
        stop_timeout_s: float = STOP_TIMEOUT_S,
        on_leader: Callable[[Leadership], None] | None = None,
        on_follower: Callable[[Following], None] | None = None,
        on_resign: Callable[[Partitions], None] | None = None,
        on_stop: Callable[[str, int, bool], None] | None = None,
        on_fenced: Callable[[str], None] | None = None,
        on_unfenced: Callable[[], None] | None = None,
    ) -> None:
        check_named(broker, endpoints, rack)
        if transport is None and not config:
            what = "A broker needs the options of Kafka's clients, or a transport."
            raise SetupError(what, "config", 'At least {"bootstrap.servers": "HOST:PORT"}.')
        name = Name(group=cluster, client=client, prefix=prefix)
        own_client = client or default_client_id()
        callbacks: dict[Callback, Callable[..., None] | None] = {
            Callback.LEADER: on_leader,
            Callback.FOLLOWER: on_follower,
            Callback.RESIGN: on_resign,
            Callback.STOP: on_stop,
            Callback.FENCED: on_fenced,
            Callback.UNFENCED: on_unfenced,
        }
        #: Its id.
        self.broker = broker
        timing = timing or BrokerTiming()
        with ExitStack() as undone:
            home = Home(folder)
            undone.callback(home.close, has_stopped=True)  # none of the user's code has run
            over = transport
            if over is None:
                over = KafkaTransport(config or {}, prefix, own_client)
                undone.callback(over.close)
            identity = name.identity(own_client, over)
            said = Registration(
                broker=broker,
                endpoints=tuple(endpoints),
                rack=rack,
                storage=home.storage,
                previous=home.previous(identity, broker),
            )
            life = BrokerLife(identity, timing, said)
            super().__init__(life, over, home, callbacks, stop_timeout_s)
            self._begin(owns_transport=transport is None)
            undone.pop_all()

    # ---- what it may do, from any thread ------------------------------------------------------

    @property
    def incarnation(self) -> int:
        """What names this process of the broker: followers tell it their leader; -1: not yet."""
        return self._life.incarnation

    @property
    def member_id(self) -> str:
        """The controller's name for this process; empty before it was registered."""
        return self._life.member

    @property
    def state(self) -> str:
        """Initial, Inactive, Active or Stopping, as it has read; then Failed, Leaving, Left."""
        return self._life.state.value

    @uninterrupted
    def may_lead(self, topic: str, partition: int, epoch: int | None = None) -> bool:
        """Whether it acts as leader at this moment: ask before anything is acknowledged or read.

        Args:
            epoch: whether it is this very leadership, the one that `on_leader` told of.
        """
        place = TopicPartition(topic, partition)
        with self._changed:
            is_broken = self._broken is not None
            now_ms = self._transport.now_ms()
            return not is_broken and self._life.may_lead(now_ms, place, epoch)

    @uninterrupted
    def must_acknowledge(self, topic: str, partition: int) -> frozenset[int]:
        """The brokers who must have a write before it is committed (rule 16).

        The ISR that was read, and everybody whom `alter_isr` has named since. Each counts in the
        incarnation that fetched: of two processes with one id the older one's fetches count
        nothing once the newer one has fetched. Empty: it does not lead.
        """
        with self._changed:
            return self._life.must_acknowledge(TopicPartition(topic, partition))

    def alter_isr(
        self, topic: str, partition: int, isr: Mapping[int, int], has_recovered: bool = False
    ) -> "Future[rs.AlteredRow]":
        """Ask the controller for other in-sync replicas. One change of a partition at a time.

        Call it under the lock under which you decide what is committed: from the call on, all that
        it names must acknowledge, also if it is refused. Whoever is added has all that was
        committed until then.

        Args:
            isr: broker to the incarnation that fetched, as it told; this broker itself need not be
                named.
            has_recovered: after an unclean election: this leader has what it will have.

        Returns:
            The row as it stands; or the future raises GroupError (INELIGIBLE_REPLICA,
            INVALID_UPDATE_VERSION, NOT_LEADER_OR_FOLLOWER, …), BrokerFenced, CannotReach when the
            request could not be written, CoordError while another change is under way. What it
            calls when it is done runs in a thread that serves all agents of the transport: it
            must be quick; it may take the lock under which changes are asked for.

        Raises:
            TypeError: a broker or an incarnation is no integer.
        """
        place = TopicPartition(topic, partition)
        named = {index(broker): index(incarnation) for broker, incarnation in isr.items()}
        future = self._alter_isr(place, named, bool(has_recovered))
        self._futures.tell()
        return future

    @uninterrupted
    def _alter_isr(
        self, place: TopicPartition, isr: Mapping[int, int], has_recovered: bool
    ) -> "Future[rs.AlteredRow]":
        with self._changed:
            ticket, future = self._futures.expect()
            now_ms = self._transport.now_ms()
            self._step(bs.AlterIsr(now_ms, ticket, place, isr, has_recovered))
            if self._broken is not None or self._is_closed:
                self._futures.abandon(self._broken)
        return future

    @property
    @uninterrupted
    def is_fenced(self) -> bool:
        """Whether its door is closed: it takes no requests and shows no metadata."""
        with self._changed:
            is_broken = self._broken is not None
            return is_broken or self._life.is_fenced(self._transport.now_ms())

    @uninterrupted
    def metadata(self) -> ClusterMetadata:
        """Brokers, topics and partitions as it has read of them; stays as it is.

        Of a cluster with more than some 90,000 partitions it has the topics of this broker's own
        replicas, and what has changed since (`is_whole` is false).

        Raises BrokerFenced: its door is closed, or nothing was read yet. MetadataRefused: the
        controller does not answer the question; the broker leads and follows all the same.
        """
        with self._changed:
            if self._broken is not None:
                raise self._broken
            return self._life.metadata(self._transport.now_ms())

    @uninterrupted
    def stopped_by(self) -> Stop | None:
        """The rule by which it leads nothing at this moment; None: it may, or is not Active."""
        with self._changed:
            return self._life.stopped_by(self._transport.now_ms())
