"""The families of this job. A new protocol adds its family here; see ARCHITECTURE.md."""

from typing import Final

from coordlib.coordinators.brokers.family import Clusters
from coordlib.coordinators.groups import version_1
from coordlib.coordinators.groups.family import Groups
from coordlib.coordinators.shard.family import Registry

REGISTRY: Final = Registry(Groups, Clusters, migrations={1: version_1.migrate})
