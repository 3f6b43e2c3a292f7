"""The families of this job. A new protocol adds its family here (adding-a-protocol.md)."""

from typing import Final

from coordlib.core.controller.protocol import Clusters
from coordlib.core.engine.protocol import Registry
from coordlib.core.groups.protocol import Groups
from coordlib.core.transactions.protocol import Transactions

REGISTRY: Final = Registry(Groups, Clusters, Transactions)
