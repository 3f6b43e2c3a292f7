"""The clusters of a shard: their space, and the topics in which they are kept."""

from typing import ClassVar

import msgspec

from coordlib.config import BrokersConfig
from coordlib.core.controller.kind import BROKERS, Brokers
from coordlib.core.controller.rows import is_broker_key
from coordlib.core.controller.settings import BrokersSettings
from coordlib.core.engine.family import Family
from coordlib.core.engine.routing import CLUSTERS, METADATA
from coordlib.core.engine.transition import At
from coordlib.core.wire import codec
from coordlib.core.wire.brokers import CLUSTER

_decode_name = msgspec.json.Decoder(tuple[str]).decode


class Clusters(Family):
    """The clusters of a shard during one batch."""

    SPACE = CLUSTER
    KINDS: ClassVar[tuple[Brokers, ...]] = (BROKERS,)
    HEADS = CLUSTERS
    SETTINGS = BrokersSettings
    settings: BrokersSettings

    @property
    def entities_max(self) -> int:
        return self.settings.config.clusters_per_shard_max

    @classmethod
    def head_key(cls, name: str) -> bytes:
        return codec.encode([name])

    @classmethod
    def head_name(cls, key: bytes) -> str | None:
        return _decode_name(key)[0]

    @classmethod
    def is_published(cls, topic: str, key: bytes) -> bool:
        """Active brokers stand in `coord.metadata` for others; the head has them all."""
        return topic == METADATA and is_broker_key(key)

    def around(self, _at: At, _is_new: bool) -> BrokersConfig:
        return self.settings.config
