"""Values of the compacted topic `coord.metadata`: what brokers of clusters see."""

import msgspec


class BrokerEndpoint(msgspec.Struct, frozen=True):
    """Where a broker can be reached."""

    name: str
    host: str
    port: int


class BrokerValue(msgspec.Struct, frozen=True, kw_only=True):
    """A broker that is Active or Stopping. Key: `["cluster","broker",id]`."""

    incarnation: int
    current_state: str
    endpoints: tuple[BrokerEndpoint, ...]
    rack: str | None
    since_ms: int


class TopicValue(msgspec.Struct, frozen=True, kw_only=True):
    """A topic of a cluster. Key: `["cluster","topic","name"]`."""

    #: Offset of the record that made it; of its n-th topic, counted from 0, n * 2**39 more.
    topic_id: int
    partitions: int
    min_isr: int
    unclean: bool
    is_deleting: bool = False


class PartitionValue(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A partition of a cluster. Key: `["cluster","partition","topic",number]`.

    The fields with defaults are left out where they have these; the last five are the job's own.
    """

    topic_id: int
    leader: int
    leader_epoch: int
    partition_epoch: int
    fence: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    recovering: bool = False
    #: Record of the demand by which its leader was asked to let go; -1: it was not.
    asked: int = -1
    #: The election that is wanted once the leader has let go.
    move: str = ""
    #: The incarnation that may still lead, so that nobody is elected; -1: none.
    guard: int = -1
    #: Replicas that have never been online.
    new: tuple[int, ...] = ()
    #: Broker -> state of its replica, which is to be deleted.
    deleting: dict[int, int] = {}
