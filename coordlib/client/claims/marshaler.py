"""`Marshaler`: one process's part in a group that shares partitions by claims."""

from collections.abc import Mapping, Sequence
from typing import Any
from weakref import WeakSet

from coordlib.client.claims.consumer import MarshalConsumer
from coordlib.client.claims.data import data_consumer_of
from coordlib.client.claims.options import ConsumerOptions, Settings, read_settings, topics_wanted
from coordlib.client.claims.transport import Transport
from coordlib.client.kit.closing import Closing
from coordlib.client.kit.signals import TopicPartition
from coordlib.client.kit.uninterrupted import uninterrupted
from coordlib.errors import CoordError, SetupError

COORDINATION_TOPIC = "__marshal"


class Marshaler(Closing):
    """Makes consumers that claim partitions under one group and client id.

    Args:
        config: confluent-kafka's keys. `group.id` and `client.id` are required; a client id is for
            one process at a time, and outlives its restarts. `auto.offset.reset` is `earliest`
            unless given. Everything else goes to all Kafka clients.
        coordination_topic: its name says the heartbeat interval: `__marshal` 60 s, `__marshal.6s`
            6 s. All clients of a group use the same one.
        transport: shared with other marshalers of this program; None: one of its own.

    Raises:
        SetupError: a key that is missing, wrong or not offered; a topic that cannot be used.
        NotAllowed: the brokers refuse it: a right is missing.
        CannotReach: no broker, or no coordination topic.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        *,
        coordination_topic: str = COORDINATION_TOPIC,
        transport: Transport | None = None,
        data_consumer: Any = None,
    ) -> None:
        self._settings: Settings = read_settings(config)
        self._owns_transport = transport is None
        self._transport = transport or _open(self._settings, coordination_topic)
        self._data_consumer = data_consumer
        self.instance = self._transport.new_instance()
        #: One that the program has dropped is collected, and its claims end by themselves.
        self._consumers: WeakSet[MarshalConsumer] = WeakSet()

    def consumer(
        self, topics: Sequence[str], options: ConsumerOptions | None = None
    ) -> MarshalConsumer:
        """A consumer of these topics; it begins to claim at once.

        Raises:
            SetupError: names that cannot be claimed, or another consumer here has a topic.
            NotAllowed, CannotReach: the coordination topic cannot be read.
        """
        options = options or ConsumerOptions()
        wanted = topics_wanted(topics, options)
        taken = {topic for each in self._consumers for topic in each.topics}
        if both := sorted(taken & set(wanted)):
            # Both would have one name in the log: neither could know whose a claim is.
            raise SetupError(
                "Another consumer of this marshaler has the topic.",
                ", ".join(both),
                "Make another marshaler, with a client id of its own.",
            )
        reader = self._data_consumer or data_consumer_of(
            self._settings.common, self._settings.client, options
        )
        try:
            made = MarshalConsumer(
                self._settings, wanted, options, self._transport, self.instance, reader
            )
        except CoordError:
            reader.close()
            raise
        self._consumers.add(made)
        made.on_closed(self._consumers.discard)
        return made

    def claims(self) -> tuple[TopicPartition, ...]:
        """What the consumers of this marshaler may work on at this moment."""
        return tuple(sorted(place for each in self._consumers for place in each.claims()))

    @uninterrupted
    def state(self) -> dict[str, Any]:
        """All slots of the topics that are read here, as far as they are read, to be printed."""
        with self._transport.lock:
            topics = {topic for each in self._consumers for topic in each.topics}
            return {topic: self._state_of(topic) for topic in sorted(topics)}

    def _state_of(self, topic: str) -> dict[str, Any]:
        view = self._transport.view_of(topic)
        found = view.slots(self._settings.group, topic)
        return {
            "as_of_offset": view.position - 1,
            "paused_by": view.paused_by(self._settings.group),
            "slots": {number: slot._asdict() for number, slot in sorted(found.items())},
        }

    def close(self, release: bool = False, timeout: float = 10.0) -> None:
        """Close its consumers, then the transport if it is its own.

        With the transport ends what a consumer did not finish within its timeout. An attempt of it
        that wins after that keeps its partition for two heartbeat intervals, as after a crash.

        Args:
            release: False, as in Marshal: claims stay for a quick restart under this client id.
            timeout: seconds for each consumer.
        """
        for each in list(self._consumers):
            each.close(release, timeout)
        if self._owns_transport:
            self._owns_transport = False
            self._transport.close()


def _open(settings: Settings, coordination_topic: str) -> Transport:
    from coordlib.client.claims.kafka import KafkaClaims

    return KafkaClaims(
        settings.common,
        coordination_topic,
        client=settings.client,
        prefix=settings.prefix,
    )
