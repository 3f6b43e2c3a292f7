"""What the claims query reads, and where it keeps its state."""

from dataclasses import dataclass, field

import msgspec

from coordlib.config import CoordinatorConfig
from coordlib.job.plane_query import QueryOptions
from coordlib.kafka.options import KafkaOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimsOptions:
    """What the claims query reads, and where it keeps its state."""

    bootstrap_servers: str
    #: Of the groups; the topics of claims lie below it.
    prefix: str = "coord"
    #: Folder or URI of this query's checkpoint.
    checkpoint: str
    #: `claims.topic` must name the coordination topic.
    config: CoordinatorConfig
    kafka: KafkaOptions = field(default_factory=KafkaOptions)
    #: Begin a new checkpoint from the snapshots; refused where the folder holds one.
    is_rebuild: bool = False
    #: The same, where the folder is empty; else go on.
    rebuilds_if_empty: bool = False

    @property
    def topic(self) -> str:
        """The coordination topic."""
        return self.config.claims.topic

    @property
    def of_query(self) -> QueryOptions:
        """Those of the query: the engine's, but for the sizes of batches."""
        own = self.config.claims
        engine = msgspec.structs.replace(
            self.config.engine,
            trigger_interval_ms=own.trigger_interval_ms,
            max_offsets_per_trigger=own.max_offsets_per_trigger,
            mirror_offsets=(),  # Marshal's clients commit to Kafka themselves
        )
        return QueryOptions(
            bootstrap_servers=self.bootstrap_servers,
            checkpoint=self.checkpoint,
            engine=engine,
            kafka=self.kafka,
        )
