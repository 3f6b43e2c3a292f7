"""The families of this job. A new protocol adds its family here; see ARCHITECTURE.md."""

from typing import Final

from coordlib.coordinators.brokers.family import Clusters
from coordlib.coordinators.groups import version_1
from coordlib.coordinators.groups.family import Groups
from coordlib.coordinators.shard.family import Registry
from coordlib.coordinators.transactions.family import Transactions

REGISTRY: Final = Registry(Groups, Clusters, Transactions, migrations={1: version_1.migrate})
