"""The families of this job. A new protocol adds its family here; see ARCHITECTURE.md."""

from typing import Final

from coordlib.core.controller.family import Clusters
from coordlib.core.engine.family import Registry
from coordlib.core.groups.family import Groups
from coordlib.core.transactions.family import Transactions

REGISTRY: Final = Registry(Groups, Clusters, Transactions)
